"""Rules for sums, products and searches over the elements of arrays."""

import itertools
import math
from typing import Any

import numpy as np

from ..errors import NotCompilable
from ..jaxprs.data_movement import object_array, row
from ..jaxprs.equation_types import Equation
from ..jaxprs.equations import closed
from .context import LoweringContext, rule
from .scalar_kinds import LaneArray, number

REDUCTIONS = {
    "reduce_sum": "add",
    "reduce_prod": "mul",
    "reduce_max": "max",
    "reduce_min": "min",
    "reduce_and": "and",
    "reduce_or": "or",
    "reduce_xor": "xor",
}
_CUMULATIVE = {"cumsum": "add", "cumprod": "mul", "cummax": "max", "cummin": "min"}


def of_nothing(name: str, dtype: Any) -> Any:
    """The sum, product, largest … of no numbers at all."""
    if name == "mul":
        return number(1, dtype)
    if name in ("max", "min"):
        if dtype.kind == "b":
            return np.bool_(name == "min")
        low, high = (-np.inf, np.inf) if dtype.kind == "f" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        return number(low if name == "max" else high, dtype)
    return number(-1 if name == "and" else 0, dtype)


@rule(*REDUCTIONS)
def _reduce(ctx: LoweringContext, eqn: Equation, x: LaneArray) -> list[LaneArray]:
    name, axes, dtype = REDUCTIONS[eqn.primitive.name], eqn.params["axes"], eqn.outvars[0].aval.dtype
    kept = [a for a in range(x.ndim) if a not in axes]
    shape = tuple(x.shape[a] for a in kept)
    rows = x.transpose(*kept, *axes).reshape(math.prod(shape), math.prod(x.shape[a] for a in axes))
    one = lambda i: ctx.scalars.tree_reduce(name, list(rows[i])) if rows.shape[1] else of_nothing(name, dtype)
    return [object_array(ctx.groups.each(one, shape), shape)]


@rule("reduce")
def _reduce_by(ctx: LoweringContext, eqn: Equation, *xs: LaneArray) -> list[LaneArray]:
    """Reduce element by element, by the program of the reduction."""
    body, axes, count = closed(eqn.params["jaxpr"]), eqn.params["dimensions"], len(xs) // 2
    kept = [a for a in range(xs[0].ndim) if a not in axes]
    shape = tuple(xs[0].shape[a] for a in kept)
    size = math.prod(xs[0].shape[a] for a in axes)
    rows = [x.transpose(*kept, *axes).reshape(math.prod(shape), size) for x in xs[:count]]
    out = [np.empty(len(r), object) for r in rows]
    for i in range(math.prod(shape)):
        values = list(xs[count:])
        for k in range(size):
            values = ctx.evaluate(body, [*values, *(row(r[i], k) for r in rows)])
        for o, v in zip(out, values, strict=True):
            o[i] = v[()]
    return [o.reshape(shape) for o in out]


@rule(*_CUMULATIVE)
def _cumulate(ctx: LoweringContext, eqn: Equation, x: LaneArray) -> list[LaneArray]:
    name, axis = _CUMULATIVE[eqn.primitive.name], eqn.params["axis"]
    rows = np.moveaxis(x, axis, 0).copy()
    order = range(len(rows))[:: -1 if eqn.params["reverse"] else 1]
    for a, b in itertools.pairwise(order):
        for index in np.ndindex(*rows.shape[1:]):
            rows[(b, *index)] = ctx.scalars.apply(name, rows[(a, *index)], rows[(b, *index)])
    return [np.moveaxis(rows, 0, axis)]


@rule("dot_general")
def _dot(ctx: LoweringContext, eqn: Equation, a: LaneArray, b: LaneArray) -> list[LaneArray]:
    (ca, cb), (ba, bb) = eqn.params["dimension_numbers"]
    dtype = eqn.outvars[0].aval.dtype
    fa = [i for i in range(a.ndim) if i not in (*ca, *ba)]
    fb = [i for i in range(b.ndim) if i not in (*cb, *bb)]
    lead = [a.shape[i] for i in ba]
    k = math.prod(a.shape[i] for i in ca)
    left = a.transpose(*ba, *fa, *ca).reshape(math.prod(lead), math.prod(a.shape[i] for i in fa), k)
    right = b.transpose(*bb, *fb, *cb).reshape(math.prod(lead), math.prod(b.shape[i] for i in fb), k)
    shape = (*lead, *(a.shape[i] for i in fa), *(b.shape[i] for i in fb))
    left, right = (object_array([ctx.scalars.convert(e, dtype) for e in x.flat], x.shape) for x in (left, right))
    places = list(np.ndindex(left.shape[0], left.shape[1], right.shape[1]))

    def one(n: int) -> Any:
        g, i, j = places[n]
        terms = ctx.groups.each(lambda m: ctx.scalars.apply("mul", left[g, i, m], right[g, j, m]), (k,))
        return ctx.scalars.tree_reduce("add", terms) if terms else number(0, dtype)

    return [object_array(ctx.groups.each(one, shape), shape)]


@rule("argmax", "argmin")
def _extreme(ctx: LoweringContext, eqn: Equation, x: LaneArray) -> list[LaneArray]:
    """The first index of the largest or smallest element, or of the first NaN."""
    test = "gt" if eqn.primitive.name == "argmax" else "lt"
    (axis,), dtype = eqn.params["axes"], eqn.params["index_dtype"]
    rows = np.moveaxis(x, axis, 0)
    out = []
    for column in rows.reshape(len(rows), -1).T:
        best, at = column[0], number(0, dtype)
        for i, y in enumerate(column[1:], 1):
            better = _before(ctx, test, y, best)
            best = ctx.scalars.apply("select_n", better, best, y)
            at = ctx.scalars.apply("select_n", better, at, number(i, dtype))
        out.append(at)
    return [object_array(out, rows.shape[1:])]


def _before(ctx: LoweringContext, test: str, x: Any, y: Any) -> Any:
    """Whether x is beyond y, NaN being beyond all numbers."""
    beyond = ctx.scalars.apply(test, x, y)
    if x.dtype.kind != "f":
        return beyond
    new = ctx.scalars.apply("and", ctx.scalars.apply("ne", x, x), ctx.scalars.apply("eq", y, y))
    return ctx.scalars.apply("or", beyond, new)


@rule("sort")
def _sort(ctx: LoweringContext, eqn: Equation, *xs: LaneArray) -> list[LaneArray]:
    """Swap neighbours in the wrong order, by the first key, then by the next; the sort is stable.

    Zeros are equal whatever their sign, and NaN comes last.
    """
    axis, keys = eqn.params["dimension"], eqn.params["num_keys"]
    rows = [np.moveaxis(x, axis, 0).copy() for x in xs]
    for index in np.ndindex(*rows[0].shape[1:]):
        for end in range(len(rows[0]) - 1, 0, -1):
            for i in range(end):
                here, there = (i, *index), (i + 1, *index)
                wrong = _precedes(ctx, [(r[there], r[here]) for r in rows[:keys]])
                for r in rows:
                    a, b = r[here], r[there]
                    r[here] = ctx.scalars.apply("select_n", wrong, a, b)
                    r[there] = ctx.scalars.apply("select_n", wrong, b, a)
    return [np.moveaxis(r, 0, axis) for r in rows]


def _precedes(ctx: LoweringContext, pairs: list[tuple[Any, Any]]) -> Any:
    """Whether the first ones of pairs (x, y) of keys come before the second ones."""
    (x, y), *more = pairs
    before = ctx.scalars.apply("lt", x, y)
    if x.dtype.kind == "f":
        last = ctx.scalars.apply("and", ctx.scalars.apply("eq", x, x), ctx.scalars.apply("ne", y, y))
        before = ctx.scalars.apply("or", before, last)
    if not more:
        return before
    same = ctx.scalars.apply("eq", x, y)
    if x.dtype.kind == "f":
        both = ctx.scalars.apply("and", ctx.scalars.apply("ne", x, x), ctx.scalars.apply("ne", y, y))
        same = ctx.scalars.apply("or", same, both)
    return ctx.scalars.apply("or", before, ctx.scalars.apply("and", same, _precedes(ctx, more)))


@rule("triangular_solve")
def _triangular_solve(ctx: LoweringContext, eqn: Equation, a: LaneArray, b: LaneArray) -> list[LaneArray]:
    """By substitution."""
    params = eqn.params
    if a.ndim != 2 or params["conjugate_a"]:
        raise NotCompilable.operation("triangular_solve", " with many matrices, or complex ones")
    lower = params["lower"] != params["transpose_a"]
    a, b = (a.T if params["transpose_a"] else a), b.copy()
    if not params["left_side"]:
        a, b, lower = a.T, b.T, not lower
    order = list(range(len(a)))[:: 1 if lower else -1]
    for column in b.T:  # a view of b
        for k, i in enumerate(order):
            terms = [ctx.scalars.apply("mul", a[i, j], column[j]) for j in order[:k]]
            value = ctx.scalars.apply("sub", column[i], ctx.scalars.tree_reduce("add", terms)) if terms else column[i]
            column[i] = value if params["unit_diagonal"] else ctx.scalars.apply("div", value, a[i, i])
    return [b if params["left_side"] else b.T]


FOLDED = frozenset([*REDUCTIONS, "dot_general"])  # their rules apply even if nothing varies
