"""The budget of operations of a step, and the groups of operations on the elements of one array."""

import itertools
import math
import operator
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from jax.extend import core as jex
from jaxtyping import Int

from ..errors import NotCompilable
from ..jaxprs.equations import inner_programs
from .instructions import Group, Line
from .llvm_builder import Code

PACK = 8  # numbers that the SLP vectoriser computes together
LEAST_COPIES = 8  # of a part of a system; with fewer, packs are slower


class Groups:
    """Counts the operations of a step, and notes equal ones, which the SLP vectoriser may compute together.

    `copies` is the length of the axis along which elements are computed together; None for code without groups.
    """

    def __init__(self, code: Code, limit: int, copies: int | None):
        self.code, self.limit, self.left, self.copies = code, limit, limit, copies
        self._inside = False

    def spend(self, operations: int) -> None:
        """Count operations; raise `NotCompilable` above the limit."""
        self.left -= operations
        if self.left < 0:
            raise NotCompilable.size(self.limit)

    def each(self, work: Callable[[int], Any], shape: tuple[int, ...] | None, count: int = 0) -> list[Any]:
        """Return work(i) for all elements of an array of this shape, or for i = 0 … count − 1, as one group."""
        count = count if shape is None else math.prod(shape)
        if self.copies is None or self._inside or count < PACK:
            return [work(i) for i in range(count)]
        lines, out = self.code.lines, list[Any]()
        elements: list[list[Line]] = []
        self._inside, left = True, self.left
        for i in range(count):
            start = len(lines)
            out.append(work(i))
            elements.append(lines[start:])
        self._inside = False
        self.left = left - (left - self.left) // PACK
        self.code.groups.append(Group(elements, None if shape is None else rows_of(shape, self.copies)))
        return out


def copies_of(jaxpr: jex.Jaxpr) -> int | None:
    """Return the length of the axis with most of a program's numbers, in arrays of several axes; None if short."""
    lengths: Counter[int] = Counter()

    def count(jaxpr: jex.Jaxpr) -> None:
        for eqn in jaxpr.eqns:
            inside = inner_programs(eqn.params)
            for program in inside:
                count(program.jaxpr)
            for v in () if inside else eqn.outvars:
                shape = getattr(v.aval, "shape", ())
                if len(shape) > 1:
                    lengths[max(shape)] += math.prod(shape)

    count(jaxpr)
    most = lengths.most_common(1)
    return most[0][0] if most and most[0][0] >= LEAST_COPIES else None


def rows_of(shape: tuple[int, ...], copies: int) -> Int[np.ndarray, "rows elements"]:
    """The elements of an array, in rows along the copies, or along its first axis."""
    index = np.arange(math.prod(shape)).reshape(shape)
    leading = list(itertools.accumulate(shape, operator.mul))
    if copies in shape:
        index = np.moveaxis(index, shape.index(copies), 0)
    elif copies in leading or (len(shape) == 1 and shape[0] % copies == 0):
        index = index.reshape(copies, -1)
    return index.reshape(len(index), -1).T
