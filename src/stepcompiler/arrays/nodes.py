"""Expressions of the elements of arrays: constants, memory, and operations of them.

A node is an array of elements that are computed alike: the operands of an operation have its shape. Moves of elements
are made on constants and on addresses in memory, so that they cost nothing. If an address is a linear function of the
indices, elements are read without a table, side by side where it increases by one.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int

from ..errors import NotCompilable
from ..lowering.scalar_kinds import number

_MOST_MOVED = 150_000  # nodes, so that compiling takes seconds
ANY = -1  # in place of an index: the element is not used


@dataclass(eq=False)
class Node:
    """An array of expressions.

    `name` is an operation of JAX on numbers, "constant" with a `value`, or "memory" with the address of each element.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    operands: tuple["Node", ...] = ()
    params: Any = None
    value: Any = None
    at: Any = None
    linear: tuple[int, tuple[int, ...]] | None = None  # the first address and the increments by axis

    @property
    def uniform(self) -> Any:
        """The value of a constant that all elements share, else None."""
        return number(self.value, self.dtype) if self.name == "constant" and self.value.ndim == 0 else None


class Nodes:
    """Makes each node once."""

    def __init__(self) -> None:
        self._made: dict[Any, Node] = {}
        self._moved = 0

    def constant(self, value: Any, shape: tuple[int, ...]) -> Node:
        """A constant array; one number if all are equal."""
        value = np.asarray(value)
        flat = np.ascontiguousarray(value).ravel()
        rows = flat.view(np.uint8).reshape(len(flat), value.dtype.itemsize)
        kept = flat[0] if len(flat) and np.all(rows == rows[0]) else np.broadcast_to(value, shape)
        key = "constant", shape, value.dtype, kept.tobytes()
        return self._once(key, lambda: Node("constant", shape, value.dtype, value=np.asarray(kept)))

    def memory(self, at: Int[np.ndarray, "..."], dtype: np.dtype) -> Node:
        """Elements in memory."""
        if (linear := linear_of(at)) is not None:
            at = addresses(linear, at.shape)  # also of unused elements, because nodes with equal keys are the same
        key = "memory", at.shape, dtype, linear or at.tobytes()
        return self._once(key, lambda: Node("memory", at.shape, dtype, at=at, linear=linear))

    def apply(self, name: str, dtype: Any, operands: Sequence[Node], params: Any = None) -> Node:
        """An operation on arrays of one shape."""
        dtype = np.dtype(dtype)
        if (simple := self._simplified(name, dtype, operands)) is not None:
            return simple
        try:
            key: Any = name, dtype, tuple(map(id, operands)), _hashable(params)
        except TypeError:
            key = object()
        made = lambda: Node(name, operands[0].shape, dtype, tuple(operands), params)
        return self._once(key, made)

    def move(self, x: Node, index: Int[np.ndarray, "..."]) -> Node:
        """The array whose elements are those of x at the given places, counted along all axes."""
        flat = index.ravel()
        unused = np.any(flat < 0)
        done: dict[int, Node] = {}
        for node in postorder(x):
            self._moved += 1
            if node.name == "constant":
                value = node.value if node.value.ndim == 0 else node.value.ravel()[index]
                done[id(node)] = self.constant(value, index.shape)
            elif node.name == "memory":
                at = node.at.ravel()[index]
                done[id(node)] = self.memory(np.where(index < 0, ANY, at) if unused else at, node.dtype)
            else:
                done[id(node)] = self.apply(node.name, node.dtype, [done[id(y)] for y in node.operands], node.params)
        if self._moved > _MOST_MOVED:
            raise NotCompilable("A step of large arrays has too many operations for native code.")
        return done[id(x)]

    def spread(self, x: Node, shape: tuple[int, ...]) -> Node:
        """An array that is repeated along axes of length one and along new first axes."""
        return x if x.shape == shape else self.move(x, np.broadcast_to(places(x.shape), shape))

    def joined(self, parts: Sequence[Node], which: Int[np.ndarray, "..."], at: Int[np.ndarray, "..."]) -> Node:
        """The array whose elements are those of several arrays: of which one, and at which place there."""
        used = [k for k in range(len(parts)) if np.any(which == k)] or [0]
        out = None
        for k in used:
            here = which == k
            part = self.move(parts[k], np.where(here, at, ANY))
            chosen = self.constant(here, which.shape)
            out = part if out is None else self.apply("select_n", part.dtype, [chosen, out, part])
        assert out is not None
        return out

    def _once(self, key: Any, make: Callable[[], Node]) -> Node:
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def _simplified(self, name: str, dtype: np.dtype, xs: Sequence[Node]) -> Node | None:
        """The result of an operation that need not be computed."""
        values = [x.uniform for x in xs]
        x, y = xs[0], xs[1] if len(xs) > 1 else xs[0]
        if name == "select_n" and values[0] is not None:
            return xs[1 + int(values[0])]
        if name == "select_n" and len(xs) == 3 and xs[1] is xs[2]:
            return xs[1]
        if name == "mul" and any(v is not None and v == 0 for v in values):
            return self.constant(number(0, dtype), x.shape)
        if name == "mul" and values[0] is not None and values[0] == 1:
            return y
        if name == "mul" and values[1] is not None and values[1] == 1:
            return x
        if name in ("add", "add_any") and values[0] is not None and values[0] == 0:
            return y
        if name in ("add", "add_any", "sub") and values[1] is not None and values[1] == 0:
            return x
        return None


def postorder(x: Node) -> Iterator[Node]:
    """All nodes of an expression, operands first."""
    waiting, seen = [(x, False)], set()
    while waiting:
        node, ready = waiting.pop()
        if ready:
            yield node
        elif id(node) not in seen:
            seen.add(id(node))
            waiting.append((node, True))
            waiting += [(y, False) for y in node.operands]


def linear_of(at: Int[np.ndarray, "..."]) -> tuple[int, tuple[int, ...]] | None:
    """The first address and the increments of addresses that are linear in the indices; else None."""
    used = at >= 0
    if not used.any():
        return 0, (0,) * at.ndim
    whole = bool(used.all())
    steps = []
    for axis in range(at.ndim):
        a, b = np.moveaxis(at, axis, 0)[:-1], np.moveaxis(at, axis, 0)[1:]
        pairs = np.ones(a.shape, bool) if whole else (a >= 0) & (b >= 0)
        first = int(np.argmax(pairs)) if pairs.size and pairs.any() else None
        steps.append(0 if first is None else int(b.flat[first] - a.flat[first]))
    place = np.unravel_index(int(np.argmax(used)), at.shape)
    start = int(at[place]) - sum(int(i) * s for i, s in zip(place, steps, strict=True))
    linear = start, tuple(steps)
    return linear if np.all((at == addresses(linear, at.shape)) | ~used) else None


def addresses(linear: tuple[int, tuple[int, ...]], shape: tuple[int, ...]) -> Int[np.ndarray, "..."]:
    """The values of a linear function of the indices."""
    out: Any = np.asarray(linear[0])
    for axis, (n, step) in enumerate(zip(shape, linear[1], strict=True)):
        out = out + (step * np.arange(n)).reshape([-1 if a == axis else 1 for a in range(len(shape))])
    return np.broadcast_to(out, shape)


def places(shape: tuple[int, ...]) -> Int[np.ndarray, "..."]:
    """The place of each element of an array, counted along all axes."""
    return np.arange(math.prod(shape)).reshape(shape)


def _hashable(params: Any) -> Any:
    return tuple(sorted(params.items(), key=lambda kv: kv[0])) if params else None
