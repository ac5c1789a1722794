"""The budget of operations of a step, and the groups of operations on the elements of one array."""

import math
from collections.abc import Callable
from typing import Any

from ..errors import NotCompilable
from ..targets import slp_vectorizer
from .llvm_builder import Code


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
        if self.copies is None or self._inside or count < slp_vectorizer.SIZE:
            return [work(i) for i in range(count)]
        code, out, elements = self.code, [], []
        self._inside, left = True, self.left
        for i in range(count):
            start = len(code.lines)
            out.append(work(i))
            elements.append(code.names(start, len(code.lines)))
        self._inside = False
        self.left = left - (left - self.left) // slp_vectorizer.SIZE
        rows = None if shape is None else slp_vectorizer.rows_of(shape, self.copies)
        code.groups.append(slp_vectorizer.Group(elements, rows))
        return out
