"""Rules for elements at indices: gathers, scatters, slices with a computed start.

A window of an array starts at some index along some of its axes. A constant index determines the element. For a varying
index, the element is selected from all those in range.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from jax.lax import GatherScatterMode

from ..errors import NotCompilable
from ..jaxprs.data_movement import object_array
from ..jaxprs.equation_types import Equation
from .context import LoweringContext, rule
from .scalar_kinds import LaneArray, known, number

MOST_CHOICES = 64
Start = Sequence[Any]  # lanes: where a window starts along each of its axes
_UPDATES = {
    "scatter": None,
    "scatter-add": "add",
    "scatter-sub": "sub",
    "scatter-mul": "mul",
    "scatter-min": "min",
    "scatter-max": "max",
}


class Axes(NamedTuple):
    """The relation of the axes of windows (gathered elements or updates) to those of the array and of the indices."""

    window: tuple[int, ...]  # axes of the window; the others are those of the indices
    absent: tuple[int, ...]  # axes of the array that the window does not have
    starts: tuple[int, ...]  # axes of the array that the indices are for
    batch: tuple[int, ...]  # axes of the array that go along with …
    batch_indices: tuple[int, ...]  # … these of the indices

    def place(self, at: tuple[int, ...], ndim: int) -> tuple[tuple[int, ...], list[int]]:
        """Return the row of indices of an element of the windows, and its position in the array for indices of 0."""
        row = tuple(i for axis, i in enumerate(at) if axis not in self.window)
        inside = iter(at[axis] for axis in self.window)
        where = [0 if axis in (*self.absent, *self.batch) else next(inside) for axis in range(ndim)]
        for axis, along in zip(self.batch, self.batch_indices, strict=True):
            where[axis] = row[along]
        return row, where


def _shifted(where: list[int], axes: Sequence[int], start: Sequence[int]) -> tuple[int, ...]:
    out = list(where)
    for axis, i in zip(axes, start, strict=True):
        out[axis] += i
    return tuple(out)


class Choice:
    """Chooses by one row of indices, each of which may be 0 … last."""

    def __init__(self, ctx: LoweringContext, start: Start, lasts: Sequence[int], clip: bool):
        self.ctx, self.lasts = ctx, lasts
        start = [self._wide(i, last) for i, last in zip(start, lasts, strict=True)]
        self.inside: Any = np.True_  # whether all are within bounds
        for i, last in zip(start, lasts, strict=True):
            for test, bound in (("ge", 0), ("le", last)):
                self.inside = ctx.scalars.apply("and", self.inside, ctx.scalars.apply(test, i, number(bound, i.dtype)))
        if clip:
            start = [self._clipped(i, last) for i, last in zip(start, lasts, strict=True)]
        self.start = start
        count = math.prod(last + 1 for i, last in zip(start, lasts, strict=True) if not known(i))
        if count > MOST_CHOICES:
            raise NotCompilable(
                f"A step takes one of {count} elements at a computed index; "
                f"native code supports at most {MOST_CHOICES}."
            )
        self.tests = [
            None if known(i) else [ctx.scalars.apply("eq", i, number(v, i.dtype)) for v in range(last + 1)]
            for i, last in zip(start, lasts, strict=True)
        ]

    def _wide(self, i: Any, last: int) -> Any:
        """The index as a number of a type that `last` fits into too."""
        return i if last <= np.iinfo(i.dtype).max else self.ctx.scalars.convert(i, np.int64)

    def _clipped(self, i: Any, last: int) -> Any:
        low = self.ctx.scalars.apply("min", i, number(last, i.dtype))
        return self.ctx.scalars.apply("max", low, number(0, i.dtype))

    def one_of(self, element: Callable[[tuple[int, ...]], Any], chosen: tuple[int, ...] = ()) -> Any:
        """element(start): one of those that there may be."""
        axis = len(chosen)
        if axis == len(self.start):
            return element(chosen)
        tests = self.tests[axis]
        if tests is None:
            return self.one_of(element, (*chosen, int(self.start[axis])))
        out = self.one_of(element, (*chosen, 0))
        for v in range(1, self.lasts[axis] + 1):
            out = self.ctx.scalars.apply("select_n", tests[v], out, self.one_of(element, (*chosen, v)))
        return out

    def cases(self, chosen: tuple[int, ...] = (), condition: Any = np.True_) -> Iterator[tuple[tuple[int, ...], Any]]:
        """All starts within bounds that there may be, each with the condition for it."""
        axis = len(chosen)
        if axis == len(self.start):
            yield chosen, condition
        elif (tests := self.tests[axis]) is None:
            if 0 <= self.start[axis] <= self.lasts[axis]:
                yield from self.cases((*chosen, int(self.start[axis])), condition)
        else:
            for v, test in enumerate(tests):
                yield from self.cases((*chosen, v), self.ctx.scalars.apply("and", condition, test))


@rule("gather")
def _gather(ctx: LoweringContext, eqn: Equation, x: LaneArray, indices: LaneArray) -> list[LaneArray]:
    params, aval = eqn.params, eqn.outvars[0].aval
    dims, mode = params["dimension_numbers"], GatherScatterMode.from_any(params["mode"])
    if mode == GatherScatterMode.ONE_HOT:
        raise NotCompilable.operation("gather", " in the mode one_hot")
    axes = Axes(
        dims.offset_dims,
        dims.collapsed_slice_dims,
        dims.start_index_map,
        dims.operand_batching_dims,
        dims.start_indices_batching_dims,
    )
    lasts = [x.shape[axis] - params["slice_sizes"][axis] for axis in axes.starts]
    if min(lasts, default=0) < 0:
        raise NotCompilable.operation("gather", " of an empty array")
    choices: dict[tuple[int, ...], Choice] = {}
    fill = _fill_value(params["fill_value"], aval.dtype)

    def taken(at: tuple[int, ...]) -> Any:
        row, where = axes.place(at, x.ndim)
        if row not in choices:
            choices[row] = Choice(ctx, list(indices[row]), lasts, clip=True)
        choice = choices[row]
        element = (
            choice.one_of(lambda start: x[_shifted(where, axes.starts, start)]) if min(lasts, default=0) >= 0 else fill
        )
        if mode == GatherScatterMode.FILL_OR_DROP:
            return ctx.scalars.apply("select_n", choice.inside, fill, element)
        return element

    return [object_array([taken(at) for at in np.ndindex(*aval.shape)], aval.shape)]


def _fill_value(value: Any, dtype: Any) -> Any:
    """Return JAX's value for an index out of bounds."""
    if value is not None:
        return number(value, dtype)
    if dtype.kind == "f":
        return number(np.nan, dtype)
    if dtype.kind == "b":
        return np.True_
    return number(np.iinfo(dtype).min if dtype.kind == "i" else np.iinfo(dtype).max, dtype)


@rule(*_UPDATES, *(name.replace("-", "_") for name in _UPDATES))
def _scatter(
    ctx: LoweringContext, eqn: Equation, x: LaneArray, indices: LaneArray, updates: LaneArray
) -> list[LaneArray]:
    """Update after update; those whose window is not within bounds are dropped, or moved inside."""
    dims, mode = eqn.params["dimension_numbers"], GatherScatterMode.from_any(eqn.params["mode"])
    if mode == GatherScatterMode.ONE_HOT:
        raise NotCompilable.operation("gather", " in the mode one_hot")
    axes = Axes(
        dims.update_window_dims,
        dims.inserted_window_dims,
        dims.scatter_dims_to_operand_dims,
        dims.operand_batching_dims,
        dims.scatter_indices_batching_dims,
    )
    sizes = iter(updates.shape[axis] for axis in axes.window)
    size = [1 if axis in (*axes.absent, *axes.batch) else next(sizes) for axis in range(x.ndim)]
    lasts = [x.shape[axis] - size[axis] for axis in axes.starts]
    how, out = _UPDATES[eqn.primitive.name.replace("_", "-")], x.copy()
    choices: dict[tuple[int, ...], Choice] = {}
    for at in np.ndindex(*updates.shape):
        row, where = axes.place(at, x.ndim)
        if row not in choices:
            choices[row] = Choice(ctx, list(indices[row]), lasts, mode == GatherScatterMode.CLIP)
        for start, condition in choices[row].cases():
            i = _shifted(where, axes.starts, start)
            new = updates[at] if how is None else ctx.scalars.apply(how, out[i], updates[at])
            out[i] = ctx.scalars.apply("select_n", condition, out[i], new)
    return [out]


@rule("dynamic_slice")
def _dynamic_slice(ctx: LoweringContext, eqn: Equation, x: LaneArray, *start: LaneArray) -> list[LaneArray]:
    sizes = eqn.params["slice_sizes"]
    lasts = [n - size for n, size in zip(x.shape, sizes, strict=True)]
    choice = Choice(ctx, [i[()] for i in start], lasts, clip=True)

    def taken(at: tuple[int, ...]) -> Any:
        return choice.one_of(lambda start: x[tuple(i + j for i, j in zip(start, at, strict=True))])

    return [object_array([taken(at) for at in np.ndindex(*sizes)], tuple(sizes))]


@rule("dynamic_update_slice")
def _dynamic_update_slice(
    ctx: LoweringContext, eqn: Equation, x: LaneArray, new: LaneArray, *start: LaneArray
) -> list[LaneArray]:
    lasts = [n - size for n, size in zip(x.shape, new.shape, strict=True)]
    choice = Choice(ctx, [i[()] for i in start], lasts, clip=True)

    def taken(at: tuple[int, ...]) -> Any:
        def element(start: tuple[int, ...]) -> Any:
            inside = tuple(i - j for i, j in zip(at, start, strict=True))
            return new[inside] if all(0 <= i < n for i, n in zip(inside, new.shape, strict=True)) else x[at]

        return choice.one_of(element)

    return [object_array([taken(at) for at in np.ndindex(*x.shape)], x.shape)]
