"""The XLA backend: whole batches as one compiled program of fixed shape. It supports every plan.

A chunk advances a batch from step n₀ to step n₁, both traced, so that one program serves every run of the same system
with any length, step size, path and parameters. Increments come in aligned blocks and the save buffer has a fixed
size, so that results are bitwise identical for any division into chunks.

The method runs without its fallbacks, which take long to compile and are rarely needed. If a step is not valid, its
member stops before it until the fallback solver, compiled only then, takes that step.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PyTree

from stepcompiler.cache import LRUCache

from ...drivers import BLOCK, Window
from ...numerics.split_complex import on_gpu
from ..lapack_lock import run_exclusive, uses_lapack
from ..plan import Batch, Plan
from ..run_state import Snapshot, StepState, TimeGrid, try_step
from .observer import begin, observer_for
from .placement import ShardedPlacement, SingleDevice, retraced
from .short_runs import ShortRunProgram
from .step_definition import (
    InitialStateCache,
    StepDefinition,
    drawn_together,
    fallback_step,
    reduced_by_xla,
    where_taken,
)


def prepare(plan: Plan, reason: str) -> "XlaProgram":
    """Return a program: XLA supports every plan."""
    return XlaProgram(plan, reason)


class XlaProgram:
    """Runs batches by XLA programs, on one device after the other."""

    backend = "xla"
    max_concurrency: int | None = None
    merge: Callable[[PyTree, PyTree], PyTree] | None = None

    def __init__(self, plan: Plan, reason: str = ""):
        self.plan, self.reason, self.definition = plan, reason, StepDefinition.of(plan)
        self.starts = InitialStateCache(plan, self.definition)
        self.spread = ShardedPlacement(plan) if len(plan.devices) > 1 else None
        if self.spread is not None:
            self.definition = self.spread.definition(self.definition)
        elif on_gpu():
            self.definition = retraced(self.definition)
        self.call = (
            run_exclusive if plan.n_batches == 1 or _step_uses_lapack(plan) else lambda program, *args: program(*args)
        )
        short = ShortRunProgram.of(plan, self.definition, self.call)
        self.short_runs: Callable[[Batch], Any] | None = short
        self.batches_per_launch: int = 1 if short is None else short.batches_per_launch

    def renewed(self, plan: Plan) -> "XlaProgram":
        """XLA caches its programs itself."""
        return XlaProgram(plan, self.reason)

    def device_context(self) -> AbstractContextManager[Any]:
        """Wherever JAX computes."""
        return nullcontext()

    def slots(self, batch: Batch) -> int:
        """As the plan has it."""
        return self.plan.save_slots

    def initial_state(self, batch: Batch) -> tuple[StepState, PyTree]:
        """Return the states before the first step, and the rows saved of them."""
        points, first = begin(self.plan, batch, *self.starts(batch))
        return points, reduced_by_xla(self.plan, first, 1)

    def stepper(self, batch: Batch, points: StepState, n: int) -> "XlaStepper":
        """Return a stepper that starts before step n."""
        if self.spread is not None:
            return XlaStepper(self, batch, points, n, self.spread)
        devices = self.plan.devices or jax.local_devices()
        return XlaStepper(self, batch, points, n, SingleDevice(devices[batch.indices.start % len(devices)]))


def _step_uses_lapack(plan: Plan) -> bool:
    """Whether only one batch may run at a time."""

    def find() -> bool:
        fast = plan.integrator.fast()
        step = lambda n, dS, point: try_step(plan.system, fast, plan.time_grid.t0, plan.time_grid.dt, n, dS, point)
        return uses_lapack(step, jax.ShapeDtypeStruct((), jnp.int64), plan.increment_shape, plan.state_shape)

    return _lapack.get((plan.structure_key, plan.needs), find)


_lapack: LRUCache[bool] = LRUCache()


class SaveBuffer(eqx.Module):
    """The save buffer: arrays (member, slot, …).

    The values saved after step n go to slot n // save_every − first. There is one slot more than a chunk fills, for
    fallback steps of an interval that it does not complete.
    """

    values: Snapshot
    first: Int[Array, ""]


class XlaStepper:
    """A batch on a device. `next` is the number of the next step of each member."""

    def __init__(
        self, program: XlaProgram, batch: Batch, points: StepState, n: int, where: SingleDevice | ShardedPlacement
    ):
        self.plan, self.definition, self.call = program.plan, program.definition, program.call
        self.batch, self.n, self.where = batch, n, where
        plan = self.plan
        size = batch.member.size
        empty = jax.tree.map(lambda s: np.zeros((size, plan.call_slots + 1, *s.shape), s.dtype), plan.snapshot_shape)
        self.observer = observer_for(plan, batch)
        if self.observer is not None:
            self.observer.states, points = points.observed, points._replace(observed=None)
        held = batch.member, batch.params, points, np.full(size, n), empty
        self.member, self.params, self.at, self.next, self.slots = where.put(held)

    def advance(self, n1: int, every: int) -> PyTree:
        """Advance all members to step n₁, with fallback steps where needed."""
        plan, where = self.plan, self.where
        window = plan.window(self.n // BLOCK)
        first = self.n // every
        begin: Any = np.asarray(first)  # passed anew to each call: a returned array is bound to a device
        time_grid = plan.time_grid._replace(save_every=np.asarray(every))  # type: ignore[arg-type]
        about = self.definition, window, time_grid, self.member, self.params
        low = self.n
        while low < n1:
            bounds = np.asarray(low), np.asarray(n1)
            held = self.at, self.next, SaveBuffer(self.slots, begin)
            self.at, self.next, slots = self.call(where.call, _advance, *about, *bounds, *held)
            waiting = np.asarray(self.next) < n1
            if waiting.any():
                held = self.at, self.next, SaveBuffer(slots.values, begin)
                self.at, self.next, slots = run_exclusive(where.call, _fallback, *about, jnp.asarray(waiting), *held)
            self.slots = slots.values
            low = int(np.asarray(self.next).min())
        self.n = n1
        saved = n1 // every - first
        rows = jax.tree.map(lambda x: where.rows(x, saved)[: self.batch.n_members], self.slots)
        if self.observer is not None:
            rows = self.observer.observed(rows, plan.saved.up_to(self.n) - saved)
        return reduced_by_xla(plan, rows, plan.call_slots + 1)

    def points(self) -> StepState:
        """Return the states of the members."""
        points = self.where.points(self.at)
        return points if self.observer is None else points._replace(observed=self.observer.states)


def advance_steps(
    definition: StepDefinition,
    window: Window,
    time_grid: TimeGrid,
    member: Int[Array, " size"],
    params: PyTree,
    n0: Int[Array, ""],
    n1: Int[Array, ""],
    points: StepState,
    next: Int[Array, " size"],
    slots: SaveBuffer,
) -> tuple[StepState, Int[Array, " size"], SaveBuffer]:
    """Take steps n₀ … n₁ − 1 without fallbacks. A member takes step n if it has reached it, and if it is valid."""
    fast, size = definition.integrator.fast(), drawn_together(window, member)

    def going(state: tuple, end: Int[Array, ""]) -> Bool[Array, ""]:
        n, _, next, _ = state
        return (n < end) & jnp.any(next >= n)  # some member has reached this step

    def block(state: tuple) -> tuple:
        b = state[0] // size
        increments = definition.each(lambda member, _: window.steps(member, b * size, size), member, params)

        def one(own: tuple, params: PyTree) -> tuple[StepState, Bool[Array, ""]]:
            increments, point, n = own
            dS = jax.tree.map(lambda x: x[n % size], increments)
            return try_step(definition.with_params(params), fast, time_grid.t0, time_grid.dt, n, dS, point)

        def step(state: tuple) -> tuple:
            n, points, next, slots = state
            new, valid = definition.each(one, (increments, points, jnp.full_like(next, n)), params)
            taken = valid & (next == n)
            points = where_taken(taken, new, points)
            return n + 1, points, next + taken, _put(definition, time_grid, params, n, taken, points, slots)

        return jax.lax.while_loop(lambda s: going(s, jnp.minimum(n1, (b + 1) * size)), step, state)

    _, points, next, slots = jax.lax.while_loop(lambda s: going(s, n1), block, (n0, points, next, slots))
    return points, next, slots


_advance = eqx.filter_jit(advance_steps)


def _put(
    definition: StepDefinition,
    time_grid: TimeGrid,
    params: PyTree,
    n: Array,
    taken: Array,
    points: StepState,
    slots: SaveBuffer,
) -> SaveBuffer:
    """Return the save buffer after step n of some members; `save` is evaluated at the end of a saving interval."""
    at = n // time_grid.save_every - slots.first

    def row(points: StepState) -> Snapshot:
        t = time_grid.t0 + (n + 1) * time_grid.dt
        return definition.each(lambda point, own: definition.take_snapshot(point, own, t), points, params)

    def put(values: Snapshot) -> Snapshot:
        old = jax.tree.map(lambda a: jax.lax.dynamic_index_in_dim(a, at, 1, keepdims=False), values)
        new = where_taken(taken, row(points), old)
        return jax.tree.map(lambda a, x: jax.lax.dynamic_update_index_in_dim(a, x, at, 1), values, new)

    due = (n + 1) % time_grid.save_every == 0
    return SaveBuffer(jax.lax.cond(due, put, lambda values: values, slots.values), slots.first)


@eqx.filter_jit
def _fallback(
    definition: StepDefinition,
    window: Window,
    time_grid: TimeGrid,
    member: Int[Array, " size"],
    params: PyTree,
    waiting: Bool[Array, " size"],
    points: StepState,
    next: Int[Array, " size"],
    slots: SaveBuffer,
) -> tuple[StepState, Int[Array, " size"], SaveBuffer]:
    """Take one step, with all fallbacks, of the members that stopped before it."""
    points = fallback_step(definition, window, time_grid, member, params, next, waiting, points)
    at = next // time_grid.save_every - slots.first
    t = time_grid.t0 + (next + 1) * time_grid.dt
    taken = lambda own, params: definition.take_snapshot(own[0], params, own[1])
    rows = definition.each(taken, (points, t), params)
    old = jax.tree.map(lambda a: a[jnp.arange(len(at)), at], slots.values)
    values = jax.tree.map(
        lambda a, x: a.at[jnp.arange(len(at)), at].set(x), slots.values, where_taken(waiting, rows, old)
    )
    return points, next + waiting, SaveBuffer(values, slots.first)
