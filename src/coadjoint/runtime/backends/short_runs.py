"""Short runs of matrices: the start, all steps and the saved values of many members in one call of XLA.

Members are computed one after the other by the code of a single one, so results are bitwise those of a longer run. A
member with a step that needs a fallback does not reach the end. The ordinary program then takes its run from the start.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PyTree

from stepcompiler.cache import LRUCache

from ...drivers import Window
from ...integrators.until import Until
from .. import tuning
from ..executors import cores
from ..plan import Batch, Plan
from ..run_state import Snapshot, SolverTotals, StepState, TimeGrid
from .step_definition import StepDefinition, _start

_MOST, _LEAST = 32, 4  # members in a call
_NUMBERS = 2**18  # of their states
_WORK = 2**23  # of a member: what takes at most some tenths of a second
_SAVED = 2**17  # numbers that a call saves, if a member saves more than one state


class ShortRuns(NamedTuple):
    """The results of the members of some batches."""

    rows: Snapshot  # (member, saved time, …), the start included
    points: StepState  # at the end; without the carry
    complete: Bool[np.ndarray, " member"]  # whether a member has reached the end


class ShortRunProgram:
    """Runs batches of one member, several in a call."""

    def __init__(self, plan: Plan, definition: StepDefinition, call: Callable):
        self.plan, self.call = plan, call
        self.size, self.slots = _capacity(plan)
        self.leaves, structure = jax.tree.flatten(definition)
        treedef = structure, self.slots
        make = lambda: jax.jit(lambda x, *args: _run(jax.tree.unflatten(structure, x), treedef[1], *args))
        self.compiled: Callable = _programs.get(treedef, make)

    @classmethod
    def of(cls, plan: Plan, definition: StepDefinition, call: Callable) -> "ShortRunProgram | None":
        """None if the run is not short, or not one of single matrices on a CPU. `call(program, *args)` runs it."""
        if (
            not plan.single
            or plan.reduce is not None
            or plan.save_at is not None
            or plan.devices
            or isinstance(plan.integrator, Until)
            or jax.default_backend() != "cpu"
        ):
            return None
        shape = plan.system.algebra.conjugated_shape or plan.system.algebra.shape
        few = plan.steps <= tuning.current().short_run_steps and plan.steps * float(np.prod(shape)) ** 1.5 <= _WORK
        fits = few and plan.n_saved - 1 <= _capacity(plan)[1]
        return cls(plan, definition, call) if fits and len(shape) > 1 else None

    @property
    def batches_per_launch(self) -> int:
        """As many as fit in a call, unless cores would be left without work."""
        return min(self.size, max(_LEAST, -(-self.plan.n_batches // cores())))

    def __call__(self, batch: Batch) -> ShortRuns:
        """Run the members of some batches."""
        plan, count = self.plan, batch.n_members
        own = batch.member, batch.mu0, batch.g0
        member, mu0, g0 = jax.tree.map(self._padded, own)
        params = jax.tree.map(lambda x, a: self._padded(x) if a == 0 else x, batch.params, plan.axes)
        blocks = plan.first_window, plan.time_grid, np.asarray(count), np.asarray(plan.steps)
        done = self.call(self.compiled, self.leaves, *blocks, member, mu0, g0, params)
        rows, end, totals, reached = jax.tree.map(lambda x: np.asarray(x)[:count], done)
        rows = jax.tree.map(lambda x: x[:, : plan.n_saved], rows)
        return ShortRuns(rows, StepState(end, None, totals), reached == plan.steps)

    def _padded(self, x: Any) -> np.ndarray:
        """Return an array padded to the members of a call."""
        if len(x) == self.size:
            return x
        out = np.zeros((self.size, *x.shape[1:]), x.dtype)
        out[: len(x)] = x
        return out


_programs: LRUCache[Callable] = LRUCache()


def _capacity(plan: Plan) -> tuple[int, int]:
    """Members of a call, and saved times of each after the start: powers of two, by the size of a state alone."""
    power = lambda x: 1 << max(int(x), 1).bit_length() - 1
    state = int(np.prod(plan.system.algebra.shape)) * 2
    saved = sum(int(np.prod(s.shape)) * 2 for s in jax.tree.leaves(plan.snapshot_shape))
    size = 1 if plan.members is None else min(_MOST, power(2 * _NUMBERS // state))
    return size, power(_SAVED // max(size * saved, 1))


def _run(
    definition: StepDefinition,
    n_slots: int,
    window: Window,
    time_grid: TimeGrid,
    count: Int[Array, ""],
    steps: Int[Array, ""],
    member: Int[Array, " size"],
    mu0: Array,
    g0: PyTree,
    params: PyTree,
) -> tuple[Snapshot, Array, SolverTotals, Int[Array, " size"]]:
    """Saved values, last states, totals and the steps that were reached, of the first `count` members."""

    from .xla import SaveBuffer, advance_steps

    def one(i: Array) -> tuple:
        here = lambda x: jax.lax.dynamic_slice_in_dim(x, i, 1)
        own_params = jax.tree.map(lambda x, a: here(x) if a == 0 else x, params, definition.axes)
        start = here(mu0)
        carry, held, first = _start(definition, start, jax.tree.map(here, g0), own_params, time_grid.t0)
        empty = jax.tree.map(lambda x: jnp.zeros((1, n_slots + 1, *x.shape[1:]), x.dtype), first)
        points = StepState(start, carry, jax.tree.map(jnp.asarray, SolverTotals.zero((1,))), held)
        slots, zero, none = SaveBuffer(empty, jnp.zeros((), int)), jnp.zeros((), int), jnp.zeros(1, int)
        about = definition, window, time_grid, here(member), own_params
        points, reached, slots = advance_steps(*about, zero, steps, points, none, slots)
        rows = jax.tree.map(lambda a, x: jnp.concatenate([a[:, None], x[:, :-1]], axis=1), first, slots.values)
        return rows, points.mu, points.totals, reached

    def put(i: Array, out: tuple) -> tuple:
        return jax.tree.map(lambda a, x: jax.lax.dynamic_update_slice_in_dim(a, x, i, 0), out, one(i))

    shapes = jax.eval_shape(one, jnp.zeros((), int))
    out = jax.tree.map(lambda s: jnp.zeros((len(member), *s.shape[1:]), s.dtype), shapes)
    return jax.lax.fori_loop(0, count, put, out)
