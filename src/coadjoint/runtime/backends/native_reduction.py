"""Reducers as native code: statistics of a batch along a fixed tree, bitwise identical on every target.

Each member has an accumulator, `update(init(x), x, 1)`. In a batch of P members (a power of two) members k and k + P/2
are merged, then k and k + P/4 of the results, and so on. If the second of a pair is padding, the first is unchanged.
`update` and `merge` are compiled for one pair.
"""

from collections.abc import Hashable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from stepcompiler.cache import LRUCache
from stepcompiler.compile import compile_step
from stepcompiler.kernel import Kernel, Signature
from stepcompiler.targets.cpu import Cpu
from stepcompiler.targets.time_loop import Target
from stepcompiler.words import packed, unpacked, words_in

from .. import tuning
from ..plan import Plan
from .base import NotSupported, attempt_native

_OPERATIONS = 2000  # to merge two accumulators, above which XLA computes the sums over a batch

_made: LRUCache["ReductionKernels | None"] = LRUCache()


class ReductionKernels(NamedTuple):
    """A reducer of one kind of saved values as native code."""

    single: Kernel  # own: the saved values of a member; saved: its accumulator
    merge: Kernel  # own: two accumulators; saved: theirs together
    accumulator: PyTree  # shapes and types
    values: int  # words saved of a member

    @property
    def words(self) -> int:
        """Of an accumulator."""
        return self.single.sizes.saved

    def leaves(self, words: np.ndarray) -> PyTree:
        """Accumulators as arrays from words (lanes / width, words, width)."""
        shapes = jax.tree.leaves(self.accumulator)
        arrays = unpacked(words[:, None], [s.shape for s in shapes], [s.dtype for s in shapes])
        return jax.tree.unflatten(jax.tree.structure(self.accumulator), [a[:, 0] for a in arrays])


def reduction_for(plan: Plan, target: Target) -> ReductionKernels | None:
    """The reducer of a plan as native code for a target; None if there is none."""
    if plan.reduce is None:
        return None
    arrays, rest = eqx.partition(plan.reduce, eqx.is_array)
    leaves = [np.asarray(x) for x in jax.tree.leaves(arrays)]
    objects = jax.tree.leaves(rest)
    shapes = tuple((x.shape, str(x.dtype)) for x in jax.tree.leaves(plan.snapshot_shape.values))
    about = tuple((x.shape, str(x.dtype), x.tobytes()) for x in leaves), jax.tree.structure(plan.reduce)
    key: Hashable = (about, tuple(map(_Same, objects)), jax.tree.structure(plan.snapshot_shape.values), shapes, target)

    def make() -> ReductionKernels | None:
        made = attempt_native(lambda: _make(plan.reduce, plan.snapshot_shape.values, plan.accumulator_shape, target))
        return None if isinstance(made, NotSupported) else made

    return _made.get(key, make)


class _Same:
    """A hashable wrapper, equal only to itself, that keeps its object alive."""

    def __init__(self, x: Any):
        self.x = x

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, _Same) and self.x is other.x

    def __hash__(self) -> int:
        return id(self.x)


def _make(reduce: Any, values: PyTree, accumulator: PyTree, target: Target) -> ReductionKernels | None:
    size = sum(words_in(s.shape, s.dtype) for s in jax.tree.leaves(accumulator))
    if size > tuning.current().accumulator_words or not size:
        return None

    def single(shared: list, own: list, state: None, n: Any, path: None) -> tuple[None, PyTree, Any]:
        x = jax.tree.unflatten(jax.tree.structure(values), own)
        return None, reduce.update(reduce.init(x), jax.tree.map(lambda a: a[None], x), np.ones(1)), jnp.ones((), bool)

    def merge(shared: list, own: list, state: None, n: Any, path: None) -> tuple[None, PyTree, Any]:
        half = len(own) // 2
        a, b = (jax.tree.unflatten(jax.tree.structure(accumulator), x) for x in (own[:half], own[half:]))
        return None, reduce.merge(a, b), jnp.ones((), bool)

    of = jax.tree.leaves(values)
    pair = jax.tree.leaves(accumulator) * 2
    first = compile_step(single, Signature(member=of), target, max_operations=_OPERATIONS)
    second = compile_step(merge, Signature(member=pair), target, max_operations=_OPERATIONS)
    for made in first, second:
        like = [(s.shape, s.dtype) for s in jax.tree.leaves(made.saved_shape)]
        if like != [(s.shape, s.dtype) for s in jax.tree.leaves(accumulator)]:
            return None
    return ReductionKernels(first, second, accumulator, sum(words_in(x.shape, x.dtype) for x in of))


def constants(native: Kernel) -> np.ndarray:
    """Return the inputs of the code: the arrays of the reducer."""
    return native.shared_words([])


# On a CPU.


class CpuReduction:
    """The tree over words in groups of `width` members."""

    def __init__(self, reduction: ReductionKernels):
        self.reduction = reduction
        self.width = reduction.single.width
        self.constants = {id(x): constants(x) for x in (reduction.single, reduction.merge)}

    @staticmethod
    def of(plan: Plan, width: int) -> "CpuReduction | None":
        """That of a plan, if its reducer can be native code."""
        found = reduction_for(plan, Cpu(width))
        made = None if found is None else attempt_native(lambda: CpuReduction(found))
        return None if isinstance(made, NotSupported) else made

    def batch(self, words: np.ndarray, count: int) -> PyTree:
        """The accumulators (1, times, …) of words (groups, times, words, width) of `count` members and padding."""
        _, times, _, width = words.shape
        if not times:
            empty = lambda s: np.zeros((1, 0, *s.shape), s.dtype)
            return jax.tree.map(empty, self.reduction.accumulator)
        own = np.ascontiguousarray(words[:, :, : self.reduction.values])
        acc = self._call(self.reduction.single, own)
        while len(acc) > 1:  # groups with groups, …
            half = len(acc) // 2
            merged = self._call(self.reduction.merge, np.concatenate([acc[:half], acc[half:]], axis=2))
            acc = self._present(merged, acc[:half], half * width, count)
        half = width
        while half > 1:  # … then the members of one
            half //= 2
            other = np.roll(acc, -half, axis=3)
            merged = self._call(self.reduction.merge, np.concatenate([acc, other], axis=2))
            acc = self._present(merged, acc, half, count)
        one = np.ascontiguousarray(acc[0, :, :, :1])  # of each time
        return jax.tree.map(lambda x: x[None], self.reduction.leaves(one))

    def merge(self, a: PyTree, b: PyTree) -> PyTree:
        """Merge accumulators (times, …) of disjoint members."""
        times = len(jax.tree.leaves(a)[0])
        rows = [np.concatenate([x, np.repeat(x[-1:], -times % self.width, axis=0)]) for x in jax.tree.leaves((a, b))]
        out = self._call(self.reduction.merge, packed(rows, self.width)[:, None])
        return jax.tree.map(lambda x: x[:times], self.reduction.leaves(out[:, 0]))

    def _call(self, native: Kernel, own: np.ndarray) -> np.ndarray:
        """Native code on words (groups, times, own, width)."""
        groups, times, words, width = own.shape
        lanes = groups * times
        buffers = native.allocate(lanes * width, slots=1)
        buffers.shared, buffers.member = self.constants[id(native)], own.reshape(lanes, words, width)
        native.run(buffers, stop=1)
        return buffers.saved.reshape(groups, times, -1, width)

    def _present(self, merged: np.ndarray, first: np.ndarray, half: int, count: int) -> np.ndarray:
        """Return the merged values; the first of a pair if the second, `half` members further on, is padding."""
        groups, _, _, width = merged.shape
        second = half + np.arange(groups * width).reshape(groups, 1, 1, width)
        return merged if count >= 2 * half else np.where(second < count, merged, first)
