"""Reducers with a state per member: the states of a batch, and the values to reduce."""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from stepcompiler.cache import LRUCache
from stepcompiler.compile import compile_step
from stepcompiler.kernel import Kernel, Signature, dynamic_input
from stepcompiler.targets.cpu import Cpu
from stepcompiler.words import as_words, words_in

from .. import tuning
from ..plan import Batch, Plan
from ..run_state import Snapshot, StepState
from ..saved_values import MemberFunction
from .base import NotSupported, attempt_native

_OPERATIONS = 2000  # to observe one saved value, beyond which XLA does it
_ROWS = 256  # saved times that native code observes together

_kernels: LRUCache[Kernel | NotSupported] = LRUCache()


def observer_for(plan: Plan, batch: Batch, width: int | None = None) -> "Observer | None":
    """Return the observer of a batch; None for a reducer without states. `width`: SIMD lanes of native code, if any."""
    return None if plan.observe is None else Observer(plan, batch, width)


def begin(
    plan: Plan, batch: Batch, points: StepState, first: Snapshot, width: int | None = None
) -> tuple[StepState, Snapshot]:
    """The points with the states of a reducer, and the values that it makes of those saved first."""
    observer = observer_for(plan, batch, width)
    if observer is None:
        return points, first
    observer.states = jax.tree.map(np.asarray, _started(plan.reduce, observer.padded(first.values, 0)))
    before = observer.states
    first = observer.observed(first, 0)
    return points._replace(observed=observer.states if plan.saved.start else before), first


@eqx.filter_jit
def _started(reduce: Any, values: PyTree) -> PyTree:
    return jax.vmap(reduce.start)(jax.tree.map(lambda x: x[:, 0], values))


def unsupported_reason(plan: Plan, width: int) -> str:
    """Why XLA observes the members of a run in native code; empty if native code does, or if nothing is observed."""
    kernel = None if plan.observe is None else kernel_for(plan, width)
    if not isinstance(kernel, NotSupported):
        return ""
    return f"XLA observes members for the reducer: {kernel.reason}"


class Observer:
    """The states of the members of a batch, by native code or by XLA, which has the same programs for all batches."""

    def __init__(self, plan: Plan, batch: Batch, width: int | None):
        self.plan, self.batch = plan, batch
        self.states: PyTree = None
        kernel = None if width is None else kernel_for(plan, width)
        self.kernel = kernel if isinstance(kernel, Kernel) else None

    def observed(self, rows: Snapshot, first: int) -> Snapshot:
        """Rows (member, time, …) with the values to reduce, from the saved time `first` on; the states move on."""
        count, times = jax.tree.leaves(rows.values)[0].shape[:2]
        if not times:
            empty = lambda s: np.zeros((count, 0, *s.shape), s.dtype)
            return rows._replace(values=jax.tree.map(empty, self.plan.reduced_shape))
        at = self.plan.t0 + self.plan.dt * np.asarray(self.plan.saved.step(first + np.arange(times)), float)
        found = self._by_kernel(rows.values, at) if self.kernel is not None else self._by_xla(rows.values, at)
        return rows._replace(values=jax.tree.map(lambda x: np.asarray(x)[:count, :times], found))

    def padded(self, values: PyTree, more: int) -> PyTree:
        """Values of all members of the batch, padding repeated, and of so many times more."""
        size = self.batch.member.size

        def fill(x: Any) -> np.ndarray:
            x = np.asarray(x)
            x = np.concatenate([x, np.repeat(x[-1:], size - len(x), axis=0)])
            return np.concatenate([x, np.repeat(x[:, -1:], more, axis=1)], axis=1)

        return jax.tree.map(fill, values)

    def _by_xla(self, values: PyTree, t: np.ndarray) -> PyTree:
        plan, parts, size = self.plan, [], self.plan.call_slots
        own = plan.system.params if plan.axes is None else self.batch.params
        assert plan.observe is not None
        for i in range(0, len(t), size):
            some, at = jax.tree.map(lambda x, i=i: x[:, i : i + size], values), t[i : i + size]
            count, more = len(at), size - len(at)
            some, at = self.padded(some, more), np.concatenate([at, np.repeat(at[-1:], more)])
            states, found = _observe(plan.observe, plan.axes, own, self.states, some, at, count)
            self.states = jax.tree.map(np.asarray, states)
            parts.append(jax.tree.map(lambda x, count=count: np.asarray(x)[:, :count], found))
        return jax.tree.map(lambda *x: np.concatenate(x, axis=1), *parts)

    def _by_kernel(self, values: PyTree, t: np.ndarray) -> PyTree:
        kernel, parts = self.kernel, []
        assert kernel is not None
        shared, own = _params(self.plan, self.batch.params)
        for i in range(0, len(t), _ROWS):
            some = self.padded(jax.tree.map(lambda x, i=i: x[:, i : i + _ROWS], values), 0)
            at = np.broadcast_to(t[i : i + _ROWS], (self.batch.member.size, len(t[i : i + _ROWS])))
            path = np.concatenate([_words(x) for x in (*jax.tree.leaves(some), at)], axis=2)
            buffers = kernel.allocate(self.batch.member.size, slots=path.shape[1])
            kernel.set_inputs(buffers, shared=shared, member=own, state=self.states)
            buffers.path = kernel.layout.arranged(np.ascontiguousarray(path[:, :, list(kernel.path_columns)]))
            kernel.run(buffers, path.shape[1])
            self.states = kernel.state(buffers)
            parts.append(kernel.saved(buffers))
        return jax.tree.map(lambda *x: np.concatenate(x, axis=1), *parts)


def _words(x: np.ndarray) -> np.ndarray:
    """An array (member, time, …) as words (member, time, words)."""
    return as_words(x.reshape(-1, *x.shape[2:])).reshape(*x.shape[:2], -1)


@eqx.filter_jit
def _observe(
    observe: MemberFunction, axes: PyTree, params: PyTree, states: PyTree, values: PyTree, t: Any, count: Any
) -> tuple[PyTree, PyTree]:
    """The states of members after so many saved times, and the values to reduce at each time."""
    along = partial(observe_along, observe, t=t, count=count)
    return jax.vmap(along, in_axes=(axes, 0, 0))(params, states, values)


def observe_along(
    observe: MemberFunction, params: PyTree, state: PyTree, values: PyTree, t: Array, count: Any
) -> tuple[PyTree, PyTree]:
    """The state of one member after so many of its saved times, and the values to reduce at each."""

    def one(state: PyTree, row: tuple) -> tuple[PyTree, PyTree]:
        k, x, t = row
        new, value = observe(state, x, params=params, t=t)
        return jax.tree.map(lambda a, b: jnp.where(k < count, a, b), new, state), value

    return jax.lax.scan(one, state, (jnp.arange(len(t)), values, t))


# Native code.


def _params(plan: Plan, params: PyTree) -> tuple[list, list]:
    """The params that `observe` takes: those that members share, and those by member."""
    if plan.observe is None or not plan.observe.params:
        return [], []
    leaves = jax.tree.leaves(plan.system.params if plan.axes is None else params)
    pairs = list(zip(leaves, _axes(plan), strict=True))
    return [x for x, a in pairs if a is None], [x for x, a in pairs if a == 0]


def _axes(plan: Plan) -> list:
    """For each of the params, 0 if it is by member, else None."""
    if plan.axes is None:
        return [None for _ in jax.tree.leaves(plan.system.params)]
    return jax.tree.structure(plan.system.params).flatten_up_to(plan.axes)


def kernel_for(plan: Plan, width: int) -> Kernel | NotSupported:
    """Native code for `observe` of one member, or why there is none."""
    observe = plan.observe
    assert observe is not None
    axes = tuple(_axes(plan))
    shapes = [(x.shape, str(x.dtype)) for x in jax.tree.leaves((plan.snapshot_shape.values, plan.observed_shape))]
    constants = tuple(np.asarray(x).tobytes() for x in jax.tree.leaves(eqx.filter(observe, eqx.is_array)))
    trees = (
        jax.tree.structure(plan.observed_shape),
        jax.tree.structure((plan.snapshot_shape.values, plan.system.params)),
    )
    key = jax.tree.structure(observe), constants, tuple(shapes), trees, axes, width
    return _kernels.get(key, lambda: attempt_native(lambda: _made(plan, observe, axes, width)))


def _made(plan: Plan, observe: MemberFunction, axes: tuple, width: int) -> Kernel | NotSupported:
    state, values = plan.observed_shape, plan.snapshot_shape.values
    size = sum(words_in(s.shape, s.dtype) for s in jax.tree.leaves(state))
    limit = tuning.current().accumulator_words
    if size > limit:
        return NotSupported(f"its state has {size} numbers per member, and native code holds {limit}.")
    structs = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in jax.tree.leaves(plan.system.params)]
    by_member = axes if observe.params else ()
    takes = structs if observe.params else []

    def step(shared: list, own: list, state: PyTree, n: Any, path: tuple) -> tuple[PyTree, PyTree, Array]:
        given, mine = iter(shared), iter(own)
        numbers = [next(mine if a == 0 else given) for a in by_member]
        params = jax.tree.unflatten(jax.tree.structure(plan.system.params), numbers) if observe.params else None
        values, t = path
        new, value = observe(state, values, params=params, t=t)
        return new, value, jnp.ones((), bool)

    shared = [dynamic_input(x) for x, a in zip(takes, by_member, strict=True) if a is None]
    own = [x for x, a in zip(takes, by_member, strict=True) if a == 0]
    path = values, jax.ShapeDtypeStruct((), jnp.float64)
    return compile_step(step, Signature(shared, own, state, path), Cpu(width), max_operations=_OPERATIONS)
