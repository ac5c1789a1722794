"""The state of a run, the values saved of a state, and one step from a state to the next."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from ..controls import Held
from ..drivers import Increment
from ..integrators.base import Integrator, step_from
from ..integrators.until import Until
from ..numerics.rootfind import SolveInfo
from ..systems import System
from .saved_values import Save


class SolverTotals(NamedTuple):
    """Statistics of the solver, accumulated over steps. A store has a variable of the same name for each."""

    iterations: Int[Array, ""]
    most_iterations: Int[Array, ""]
    residual: Float[Array, ""]
    unsolved: Int[Array, ""]
    first_unsolved: Int[Array, ""]  # the step, or −1
    substeps: Int[Array, ""]  # adaptive methods divide steps

    @staticmethod
    def zero(members: tuple[int, ...] = ()) -> "SolverTotals":
        """Return the totals before the first step, of a trajectory or of each member."""
        z: Any = np.zeros(members, np.int64)
        return SolverTotals(z, z, z.astype(float), z, z - 1, z)

    def add(self, n: Int[Array, ""], info: SolveInfo) -> "SolverTotals":
        """Return the totals after one more step."""
        failed = ~info.converged
        return SolverTotals(
            self.iterations + info.iterations,
            jnp.maximum(self.most_iterations, info.iterations),
            info.worst(self.residual),
            self.unsolved + failed,
            jnp.where(failed & (self.first_unsolved < 0), n, self.first_unsolved),
            self.substeps + info.substeps,
        )


class StepState(NamedTuple):
    """The state of a trajectory between steps: all that is needed to resume it."""

    mu: Array
    carry: PyTree
    totals: SolverTotals
    held: tuple[Held, ...] = ()  # the values of the control
    observed: PyTree = None  # the state of a reducer that observes members


class Snapshot(NamedTuple):
    """The values saved of a step state: the state or a function of it, and the group element if there is one."""

    values: PyTree
    g: Array | None
    held: PyTree = None  # the values of the control, until `save` has been evaluated


class TimeGrid(NamedTuple):
    """Times and saving of a run, for compiled code."""

    t0: Float[Array, ""]
    dt: Float[Array, ""]
    save_every: Int[Array, ""]


def initial_state(
    system: System, integrator: Integrator, mu0: Array, t0: Any = 0.0, group: bool = False, g0: PyTree = None
) -> StepState:
    """Return the state before the first step; with `group`, it includes the group element g0 (default 1)."""
    carry = integrator.init(system.anywhere(t0), mu0)
    if group:
        carry = integrator.init_group(system, mu0, carry, *(() if g0 is None else (g0,)))
    held = system.start_control(mu0, t0, integrator.group(carry)) if system.laws else ()
    if isinstance(integrator, Until):
        carry = integrator.begin(system, mu0, t0, carry, system.control_value(held))
    return StepState(mu0, carry, SolverTotals.zero(), held)


def raw_snapshot(integrator: Integrator, save: Save, point: StepState) -> Snapshot:
    """Return the inputs of the `save` function for a step state."""
    return Snapshot(*save.raw(integrator, point.mu, point.carry, point.held))


def take_snapshot(
    integrator: Integrator, save: Save, system: System, point: StepState, params: PyTree, t: Any
) -> Snapshot:
    """Return the values saved of a step state, with these params and at this time."""
    raw = raw_snapshot(integrator, save, point)
    return Snapshot(save.value(system, tuple(raw), params, t), raw.g if save.group else None)


def take_step(
    system: System,
    integrator: Integrator,
    t0: Float[Array, ""],
    dt: Float[Array, ""],
    n: Int[Array, ""],
    dS: Increment,
    point: StepState,
) -> StepState:
    """Return the state after step n of a run."""
    t = t0 + n * dt
    largest = jnp.maximum(jnp.abs(t0), jnp.abs(t)) + dt
    now = system.in_step(t, dt, largest, point.held) if system.changes_in_step else system
    mu, carry, info = step_from(integrator, now, point.mu, t, dt, dS, point.carry)
    held = point.held
    if held:
        held = system.next_control(n, held, mu, t0 + (n + 1) * dt, integrator.group(carry))
    return StepState(mu, carry, point.totals.add(n, info), held)


def try_step(
    system: System,
    fast: Integrator,
    t0: Float[Array, ""],
    dt: Float[Array, ""],
    n: Int[Array, ""],
    dS: Increment,
    point: StepState,
) -> tuple[StepState, Bool[Array, ""]]:
    """Return the state after step n by a method without fallbacks, and whether it is valid; else it is discarded."""
    before = point.totals
    clean = before._replace(unsolved=jnp.zeros((), int), first_unsolved=jnp.full((), -1))
    new = take_step(system, fast, t0, dt, n, dS, point._replace(totals=clean))
    totals = new.totals._replace(unsolved=before.unsolved, first_unsolved=before.first_unsolved)
    return new._replace(totals=totals), new.totals.unsolved == 0
