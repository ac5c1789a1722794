"""States that are no longer on the orbit of their start, or no longer finite: steps that failed without a sign."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, PyTree

from stepcompiler.jaxprs.interning import Constant

from ..algebras.base import LieAlgebra, State
from .plan import Batch, Plan
from .results import map_rows
from .run_state import SolverTotals, StepState

_GROWN = 1.5  # a state that is so many times as large as its start is examined
LARGE_GROWTH = 1e4  # growth of |μ| from which a run warns that Casimirs lose digits
_ROUND_OFF = 1e-3  # the largest share of a Casimir at large states that is attributed to round-off and step size


class LeftOrbit(eqx.Module):
    """Whether a pair (state, start) is on two orbits: a Casimir has changed by more than it could be at the start.

    On the orbit of a noncompact group states may grow without bound. There the round-off of a Casimir is measured
    against its scale at the state. States are divided by the size of the start, which changes no invariant.
    """

    algebra: LieAlgebra

    def __call__(self, pair: Array) -> Bool[Array, ""]:
        """Return true for states off the orbit, and for those with a Casimir that is not finite."""
        size = jnp.max(jnp.abs(pair[1]))
        mu, start = pair / jnp.where(size > 0, size, 1.0)
        c = self.algebra
        error = jnp.abs(c.casimirs(mu) - c.casimirs(start))
        off = (error > c.casimir_scales(start)) & ~(error <= _ROUND_OFF * c.casimir_scales(mu))
        return jnp.any(off | ~jnp.isfinite(error)) | ~jnp.all(jnp.isfinite(mu))


def may_leave(plan: Plan) -> bool:
    """Whether a method does not conserve Casimirs that the system does."""
    return not plan.integrator.claims.casimirs and not plan.system.leaves_orbit


def failed(plan: Plan, states: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Which states (member, time, …) are not finite, or have left the orbits of their starts (member, …)."""
    inner = tuple(range(2, states.ndim))
    if not may_leave(plan):
        return ~np.all(np.isfinite(states), axis=inner)
    starts = starts[:, None]
    size = np.max(np.abs(starts), axis=inner, keepdims=True)
    scale = np.where(size > 0, size, 1.0)
    with np.errstate(all="ignore"):
        square = lambda x: np.sum(np.abs(x / scale) ** 2, axis=inner)
        out = ~(square(states) <= _GROWN**2 * square(starts))
    if np.any(out):
        pairs = np.stack([states, np.broadcast_to(starts, states.shape)], axis=2)[out]
        out[out] = map_rows(Constant(LeftOrbit(plan.system.algebra)), pairs, states.ndim - 1)
    return out


class Examination:
    """Checks the saved states and the last states of a batch during the run."""

    def __init__(self, plan: Plan, batch: Batch):
        self.plan, self.starts = plan, np.asarray(batch.mu0)
        self.first = np.full(batch.member.size, -1)  # the step that ended at the first failed state, by member
        self.growth = np.ones(batch.member.size)  # the largest max|μ| over that of the start, by member
        self.sizes = _largest(self.starts)
        self.rows = not plan.custom and plan.reduce is None and not plan.devices

    def saved(self, at: int, rows: PyTree) -> None:
        """Check saved states, the first of which belongs to the saved time `at`."""
        if not self.rows:
            return
        states = rows.values
        bad = failed(self.plan, states, self.starts[: len(states)])
        self._grow(states)
        if np.any(bad):
            self._note(np.where(np.any(bad, axis=1), self.plan.saved.step(at + np.argmax(bad, axis=1)) - 1, -1))

    def ended(self, points: StepState) -> None:
        """Check the states after the last step."""
        if not self.plan.devices:
            states = np.asarray(points.mu)[:, None]
            bad = failed(self.plan, states, self.starts)[:, 0]
            self._grow(states)
            if np.any(bad):
                self._note(np.where(bad, self.plan.steps - 1, -1))

    def _grow(self, states: np.ndarray) -> None:
        with np.errstate(all="ignore"):
            growth = _largest(states) / self.sizes[: len(states)]
        more = np.isfinite(growth)
        self.growth[: len(states)][more] = np.maximum(self.growth[: len(states)], growth)[more]

    def _note(self, step: np.ndarray) -> None:
        step = np.pad(step, (0, len(self.first) - len(step)), constant_values=-1)
        self.first = np.where(self.first < 0, step, self.first)

    def counted(self, points: StepState) -> StepState:
        """Return the step states; every step after the first failed state counts as not converged."""
        if np.all(self.first < 0):
            return points
        t = points.totals
        known, lost = np.asarray(t.first_unsolved), self.plan.steps - self.first
        unsolved: Any = np.where(self.first >= 0, np.maximum(t.unsolved, lost), t.unsolved)
        first: Any = np.where((self.first >= 0) & ((known < 0) | (self.first < known)), self.first, known)
        return points._replace(totals=t._replace(unsolved=unsolved, first_unsolved=first))


def _largest(states: np.ndarray) -> np.ndarray:
    """The largest number in the states of each member; of complex ones, real or imaginary part."""
    x = np.ascontiguousarray(states).reshape(len(states), -1)
    x = x.view(np.float64)
    return np.maximum(x.max(axis=1), -x.min(axis=1))


def examined(plan: Plan, mu0: State, points: StepState) -> SolverTotals:
    """Return the totals of a traced run, in which states that have left their orbits count as not converged."""
    totals = points.totals
    if not may_leave(plan):
        return totals
    left = LeftOrbit(plan.system.algebra)
    pairs = jax.lax.stop_gradient((points.mu, jnp.broadcast_to(jnp.asarray(mu0), points.mu.shape)))
    test = lambda mu, start: left(jnp.stack([mu, start]))
    new = (test if plan.members is None else jax.vmap(test))(*pairs) & (totals.unsolved == 0)
    first: Any = jnp.where(new, plan.steps - 1, totals.first_unsolved)
    return totals._replace(unsolved=totals.unsolved + new, first_unsolved=first)
