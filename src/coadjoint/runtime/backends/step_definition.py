"""The step of a plan for XLA, with initial states and the fallback solver: the parts that all backends share."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PyTree

from stepcompiler.cache import LRUCache

from ...drivers import BLOCK, Window
from ...integrators.base import Integrator
from ...systems import System
from ..lapack_lock import run_exclusive
from ..member_params import params_of, with_params
from ..plan import Batch, Plan
from ..reduction_tree import accumulated
from ..run_state import Snapshot, SolverTotals, StepState, TimeGrid, initial_state, take_snapshot, take_step
from ..saved_values import Save

_DRAWN = 2**20  # numbers of a path that are sampled together


@jax.tree_util.register_dataclass
@dataclass(frozen=True)  # a Module of Equinox takes longer to make, which short runs would notice
class StepDefinition:
    """The parts of a plan that compiled code uses."""

    system: System
    integrator: Integrator
    save: Save
    group: bool = field(metadata={"static": True})  # whether steps compute the group element
    axes: PyTree = field(metadata={"static": True})  # of the params of members, which are given beside
    single: bool = field(metadata={"static": True})  # one trajectory: no axis of members inside

    @staticmethod
    def of(plan: Plan) -> "StepDefinition":
        """Return the definition of a plan."""
        return StepDefinition(plan.system, plan.integrator, plan.save, plan.follows_group, plan.axes, plan.single)

    def with_params(self, params: PyTree) -> System:
        """The system of one member."""
        return self.system if self.axes is None else with_params(self.system, params)

    def each(self, fn: Callable, members: PyTree, params: PyTree) -> PyTree:
        """fn(member's own arguments, params) of each member; of a single one, without an axis of members inside."""
        if not self.single:
            return jax.vmap(fn, in_axes=(0, self.axes))(members, params)
        own = params if self.axes is None else params_of(params, self.axes, 0)
        out = fn(jax.tree.map(lambda x: x[0], members), own)
        return jax.tree.map(lambda x: x[None], out)

    def take_snapshot(self, point: StepState, params: PyTree, t: Any) -> Snapshot:
        """Return the values saved of a step state of a member with these params."""
        own = self.system.params if self.axes is None else params
        return take_snapshot(self.integrator, self.save, self.system, point, own, t)


def reduced_by_xla(plan: Plan, rows: Snapshot, slots: int) -> PyTree:
    """Return the rows of a batch, at most so many times; with a reducer, their accumulators."""
    return rows if plan.reduce is None else accumulated(plan.reduce, rows.values, slots, plan.batch_size)


class InitialStateCache:
    """The initial states of batches, computed once if all members start alike."""

    def __init__(self, plan: Plan, definition: StepDefinition):
        self.definition, self.t0 = definition, plan.time_grid.t0
        self.alike = plan.axes is None and not (plan.mu0_by_member or plan.g0_by_member)
        self.found: dict[int, tuple[StepState, Snapshot]] = {}  # by batch size

    def __call__(self, batch: Batch) -> tuple[StepState, Snapshot]:
        """Return the states, padding included, and the rows saved of them, without padding."""
        size = batch.member.size
        points, first = self.found.get(size) or initial_batch(self.definition, batch, self.t0)
        if self.alike and batch.n_members == size:
            self.found[size] = points, first
        return points, jax.tree.map(lambda x: x[: batch.n_members], first)


def initial_batch(definition: StepDefinition, batch: Batch, t0: Any) -> tuple[StepState, Snapshot]:
    """Return the states before the first step, padding included, and the rows saved of them, without padding."""
    leaves, structure = jax.tree.flatten(definition)
    program = _starts.get(structure, lambda: jax.jit(lambda x, *args: _start(jax.tree.unflatten(structure, x), *args)))
    carry, held, first = run_exclusive(program, leaves, batch.mu0, batch.g0, batch.params, t0)
    mu0: Any = batch.mu0
    points = StepState(mu0, carry, SolverTotals.zero(batch.member.shape), held)
    return points, jax.tree.map(lambda x: np.asarray(x)[: batch.n_members, None], first)


_starts: LRUCache[Callable] = LRUCache()  # they are called faster than the functions of equinox.filter_jit


def _start(
    definition: StepDefinition, mu0: Array, g0: PyTree, params: PyTree, t0: Array
) -> tuple[PyTree, PyTree, Snapshot]:
    """Return the carry of the method and of the control, and the saved values; the rest of a state is given."""

    def one(own: tuple, params: PyTree) -> tuple[PyTree, PyTree, Snapshot]:
        mu0, g0 = own
        system, group = definition.with_params(params), definition.group
        point = initial_state(system, definition.integrator, mu0, t0, group, g0)
        return point.carry, point.held, definition.take_snapshot(point, params, t0)

    return definition.each(one, (mu0, g0), params)


def drawn_together(window: Window, member: Int[Array, " size"]) -> int:
    """Return the number of steps drawn at once: a block, or two steps if a block of one trajectory is too large.

    A chunk draws complete blocks, so a short chunk discards the rest of them.
    """
    if member.size > 1:
        return BLOCK
    return 2 if BLOCK * sum(x.size for x in jax.tree.leaves(window.step_shape())) > _DRAWN else BLOCK


def where_taken(taken: Bool[Array, " size"], new: PyTree, old: PyTree) -> PyTree:
    """Return the new values of some members and the old values of the others."""
    return jax.tree.map(lambda a, b: jnp.where(taken.reshape(-1, *(1,) * (a.ndim - 1)), a, b), new, old)


def fallback_step(
    definition: StepDefinition,
    window: Window,
    time_grid: TimeGrid,
    member: Int[Array, " size"],
    params: PyTree,
    n: Int[Array, " size"],
    active: Bool[Array, " size"],
    points: StepState,
) -> StepState:
    """Take step n of each active member, by the method with all its fallbacks."""
    size = drawn_together(window, member)

    def one(own: tuple, params: PyTree) -> StepState:
        member, n, point = own
        dS = jax.tree.map(lambda x: x[n % size], window.steps(member, n // size * size, size))
        return take_step(
            definition.with_params(params), definition.integrator, time_grid.t0, time_grid.dt, n, dS, point
        )

    return where_taken(active, definition.each(one, (member, n, points), params), points)
