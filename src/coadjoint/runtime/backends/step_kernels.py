"""Kernels: the step of a plan as native code for a target, and its inputs."""

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, PyTree

from stepcompiler.arrays.compile import compile_array_step
from stepcompiler.cache import IdentityCache, LRUCache
from stepcompiler.compile import compile_step
from stepcompiler.kernel import Kernel, SharedInput, Signature, constant_pattern, dynamic_input
from stepcompiler.targets.cpu import Cpu
from stepcompiler.targets.time_loop import Target
from stepcompiler.words import as_words, packed, unpacked

from ...drivers import Increment
from ...integrators.base import Integrator
from ...integrators.implicit import from_near
from ...systems import System
from .. import tuning
from ..member_params import with_params
from ..plan import Batch, Plan
from ..run_state import Snapshot, StepState, raw_snapshot, try_step
from .base import NotSupported, attempt_native
from .path_sampling import drawing

_FULL = 3  # times as many in a full kernel, beside which a step by XLA is slow
WIDTH = 8  # members in SIMD lanes on a CPU


class StepKernel(NamedTuple):
    """The native loop of a system and a method, and how their points are laid out in it."""

    native: Kernel
    drawn: bool  # whether it draws the path itself, for which it reads the numbers of members
    by_member: tuple[bool, ...]  # which arrays of the system have an axis of members
    treedef: Any  # of a point
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[Any, ...]
    arrays: bool = False  # whether it is made of loops over the elements of arrays

    @property
    def width(self) -> int:
        """The number of members in SIMD lanes."""
        return self.native.width

    def pack(self, tree: PyTree) -> np.ndarray:
        """Return arrays with a leading axis of members as words (groups, words, width)."""
        return packed(jax.tree.leaves(tree), self.width)

    def unpack(self, words: np.ndarray) -> StepState:
        """The points of all members from words (groups, words, width)."""
        arrays = unpacked(words[:, None], self.shapes, self.dtypes)
        return jax.tree.unflatten(self.treedef, [a[:, 0] for a in arrays])


def member_words(tree: PyTree) -> np.ndarray:
    """Return arrays with a leading axis of members as words (members, words)."""
    return np.concatenate([as_words(np.asarray(x)) for x in jax.tree.leaves(tree)], axis=1)


# Making kernels.

_kernels: LRUCache[StepKernel | NotSupported] = LRUCache()
_patterns: IdentityCache["_Pattern"] = IdentityCache()
_arrays: IdentityCache[list[Any]] = IdentityCache()
_marks: LRUCache[tuple[tuple[bool, ...], tuple[bool, ...]]] = LRUCache()


def kernel_for(
    plan: Plan, target: Target, full: bool = False, drawn: bool = False, arrays: bool = False
) -> StepKernel | NotSupported:
    """Return the kernel for the step of a plan, or the reason why it is not supported; cached by structure.

    `drawn`: it draws the path itself. `arrays`: it is made of loops over the elements of arrays.
    """
    leaves = _numbers(plan.system)
    axes = jax.tree.leaves(plan.axes, is_leaf=lambda x: x is None)
    params, own = _marks.get((plan.structure_key, *axes), lambda: (is_param(plan), by_member(plan)))
    marked = zip(leaves, params, own, strict=True)
    patterns = tuple(_Pattern(dynamic_input(x)) if p else _pattern(x) for x, p, m in marked if not m)
    shapes = tuple((x.shape, x.dtype) for x in jax.tree.leaves((plan.state_shape, plan.increment_shape)))
    window = jax.tree.structure(plan.first_window) if drawn else None
    key = (
        plan.structure_key,
        jax.tree.structure(plan.increment_shape),
        patterns,
        shapes,
        own,
        target,
        full,
        window,
        arrays,
    )

    def make() -> StepKernel | NotSupported:
        shared = tuple(p.shared for p in patterns)
        return attempt_native(lambda: _tried(plan, _make(plan, shared, own, target, full, drawn, arrays)))

    return _kernels.get(key, make)


class _Pattern:
    """A description of a shared input as a key, whose hash is computed once: it may have thousands of numbers."""

    def __init__(self, shared: SharedInput):
        self.shared, self._hash = shared, hash(shared)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, _Pattern) and self.shared == other.shared)


def _pattern(x: Any) -> _Pattern:
    """Return the pattern of constants of an array. Those of JAX never change."""
    make = lambda: _Pattern(constant_pattern(x))
    return _patterns.get(x, make) if isinstance(x, jax.Array) else make()


def _numbers(system: System) -> list[Any]:
    """All arrays of a system."""
    return _arrays.get(system, lambda: [x for x in jax.tree.leaves(system) if eqx.is_array(x)])


def _marked(plan: Plan, params: PyTree) -> tuple[bool, ...]:
    """Return the flag of params for each array of the system, or False for other arrays."""
    flags = jax.tree.map(lambda _: False, eqx.filter(plan.system, eqx.is_array))
    if plan.system.params is not None:
        flags = flags.given(params)
    return tuple(jax.tree.leaves(flags))


def by_member(plan: Plan) -> tuple[bool, ...]:
    """Return for each array of the system whether it has an axis of members."""
    axes = jax.tree.map(lambda _: None, plan.system.params) if plan.axes is None else plan.axes
    return _marked(plan, jax.tree.map(lambda _, a: a == 0, plan.system.params, axes))


def is_param(plan: Plan) -> tuple[bool, ...]:
    """Return for each array of the system whether it belongs to params, whose values are never compiled in."""
    return _marked(plan, jax.tree.map(lambda _: True, plan.system.params))


def width_of(plan: Plan) -> int:
    """Return the number of members in SIMD lanes on a CPU."""
    return 1 if plan.members is None else min(WIDTH, plan.batch_size)


def shared_inputs(plan: Plan, kernel: StepKernel, system: System) -> np.ndarray:
    """Return the inputs that all members share: arrays of the system, times, and constants of the path."""
    numbers = [x for x, m in zip(_numbers(system), kernel.by_member, strict=True) if not m]
    words, drawn = (
        kernel.native.shared_words([*numbers, plan.time_grid.t0, plan.time_grid.dt]),
        kernel.native.sampler_words,
    )
    return words if drawn is None else np.concatenate([words, drawn(jax.tree.leaves(plan.first_window))])


def _tried(plan: Plan, kernel: StepKernel) -> StepKernel:
    """The kernel, once its shared inputs have been computed; the plan of a cluster's worker has no members."""
    shared_inputs(plan, kernel, plan.system)
    return kernel


def _make(
    plan: Plan, patterns: tuple, by_member: tuple[bool, ...], target: Target, full: bool, drawn: bool, arrays: bool
) -> StepKernel:
    """Write and compile the step of one member."""
    numbers, rest = eqx.partition(plan.system, eqx.is_array)
    leaves, treedef = jax.tree.flatten(numbers)
    own = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x, m in zip(leaves, by_member, strict=True) if m]
    fast = plan.integrator.fast()

    def step(
        method: Integrator, shared: list, own: list, point: StepState, n: Array, dS: Increment
    ) -> tuple[StepState, Snapshot, Array]:
        *shared, t0, dt = shared
        given, mine = iter(shared), iter(own)
        numbers = jax.tree.unflatten(treedef, [next(mine if m else given) for m in by_member])
        new, valid = try_step(eqx.combine(numbers, rest), method, t0, dt, n, dS, point)
        return new, raw_snapshot(plan.integrator, plan.save, new), valid

    scalar = dynamic_input(0.0)
    point, draw = plan.state_shape, None
    if drawn:
        own, draw = [*own, jax.ShapeDtypeStruct((), np.int64)], drawing(plan.first_window)
    steps = partial(step, from_near(fast)), partial(step, fast) if full else None
    signature = Signature([*patterns, scalar, scalar], own, point, plan.increment_shape)
    if arrays:
        assert isinstance(target, Cpu) and draw is None
        native = compile_array_step(steps[0], signature, target, fallback=steps[1])
    else:
        most = tuning.current().native_operations * (_FULL if full else 1)
        native = compile_step(steps[0], signature, target, fallback=steps[1], path_sampler=draw, max_operations=most)
    words = jax.tree.leaves(point)
    layout = tuple(x.shape for x in words), tuple(np.dtype(x.dtype) for x in words)
    return StepKernel(native, drawn, by_member, jax.tree.structure(point), *layout, arrays)


class KernelInputs:
    """The inputs of kernels besides the states of a batch: those that members share, and those of each member."""

    def __init__(self, plan: Plan, batch: Batch, by_member: tuple[bool, ...]):
        self.plan, self.members = plan, batch.member
        self.system = plan.system if plan.axes is None else with_params(plan.system, batch.params)
        self.params = [x for x, m in zip(_numbers(self.system), by_member, strict=True) if m]

    def shared(self, kernel: StepKernel) -> np.ndarray:
        """Return the shared inputs of a kernel as words."""
        return shared_inputs(self.plan, kernel, self.system)

    def own(self, kernel: StepKernel) -> list[Any]:
        """Return the inputs of each member, as arrays with a leading axis of members."""
        return [*self.params, self.members] if kernel.drawn else self.params
