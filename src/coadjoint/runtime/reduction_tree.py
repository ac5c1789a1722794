"""Statistics over members: rows of a batch are reduced, and batches merged, along a fixed tree."""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

_ROWS = 64  # saved times whose accumulators one call merges


def accumulated(reduce: Any, rows: PyTree, slots: int, size: int) -> PyTree:
    """Reduce the rows (member, saved time, …) of a batch at each saved time; the result has an axis of batches: (1, …).

    Rows are padded to `slots` times and `size` members, so that one program serves all of them.
    """
    count, times = jax.tree.leaves(rows)[0].shape[:2]

    def padded(x: np.ndarray) -> np.ndarray:
        out = np.zeros((size, slots, *x.shape[2:]), x.dtype)
        out[:count, :times] = x
        return out

    weight = jnp.asarray(np.arange(size) < count, jnp.float64)
    acc = update(reduce, jax.tree.map(padded, rows), weight)
    return jax.tree.map(lambda x: np.asarray(x)[None, :times], acc)


@eqx.filter_jit
def update(reduce: Any, rows: PyTree, weight: Array) -> PyTree:
    """The accumulators of weighted members at each saved time."""

    def one_time(x: PyTree) -> PyTree:
        return reduce.update(reduce.init(jax.tree.map(lambda a: a[0], x)), x, weight)

    return jax.vmap(one_time, in_axes=1)(rows)


@eqx.filter_jit
def merge(reduce: Any, a: PyTree, b: PyTree) -> PyTree:
    """Merge accumulators of disjoint members at each saved time."""
    return jax.vmap(reduce.merge)(a, b)


@eqx.filter_jit
def result(reduce: Any, acc: PyTree) -> PyTree:
    """The statistics at each saved time."""
    return jax.vmap(reduce.result)(acc)


def _by_rows(fn: Callable, reduce: Any, *accs: PyTree) -> PyTree:
    """fn(reduce, *accs) along the saved times, in pieces of fixed shape so that it compiles once."""
    count = len(jax.tree.leaves(accs)[0])
    padded = jax.tree.map(lambda x: np.concatenate([x, np.repeat(x[-1:], -count % _ROWS, axis=0)]), accs)
    parts = [fn(reduce, *jax.tree.map(lambda x, i=i: x[i : i + _ROWS], padded)) for i in range(0, count, _ROWS)]
    return jax.tree.map(lambda *xs: np.concatenate([np.asarray(x) for x in xs])[:count], *parts)


class MergeTree:
    """Merges batches 0, 1, 2, … along a fixed binary tree, with one accumulator per level."""

    def __init__(self, reduce: Any, merge_rows: Callable[[PyTree, PyTree], PyTree] | None = None):
        self.reduce = reduce
        self.merge = merge_rows or partial(_by_rows, merge, reduce)  # of accumulators at all saved times
        self.levels: list[PyTree | None] = []

    def push(self, acc: PyTree) -> None:
        """Add the accumulator of the next batch."""
        for i, held in enumerate(self.levels):
            if held is None:
                self.levels[i] = acc
                return
            acc = self.merge(held, acc)
            self.levels[i] = None
        self.levels.append(acc)

    def result(self) -> PyTree:
        """Return the statistics over all batches; None before the first."""
        acc = None
        for held in self.levels:
            if held is not None:
                acc = held if acc is None else self.merge(held, acc)
        return None if acc is None else _by_rows(result, self.reduce, acc)
