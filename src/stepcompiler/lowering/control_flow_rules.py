"""Rules for calls, branches and loops."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..hints import likely_p, low_precision_p, no_fma_p, parts_of_unlikely, unlikely_p
from ..jaxprs.data_movement import object_array, row
from ..jaxprs.equation_types import Equation
from ..jaxprs.equations import CALLS, callee, closed, scan_of, while_of
from . import single_precision
from .context import LoweringContext, Rule, rule
from .instructions import Value
from .scalar_kinds import LaneArray, known, number, same

_LONGEST_UNROLLED = 32  # passes through a loop
_LONGEST_PASS = 500  # operations of one that is written twice


@rule(*CALLS)
def _call(ctx: LoweringContext, eqn: Equation, *xs: LaneArray) -> list[LaneArray]:
    hinted = _HINTS.get(eqn.primitive, _plainly)
    return hinted(ctx, eqn, *xs)


def _plainly(ctx: LoweringContext, eqn: Equation, *xs: LaneArray) -> list[LaneArray]:
    """A call, and a hint that does not apply."""
    return ctx.evaluate(callee(eqn), list(xs))


def _likely(ctx: LoweringContext, eqn: Equation, x: LaneArray) -> list[LaneArray]:
    if not ctx.assumptions.trust_likely:
        return [x]
    ctx.assumptions.guards += [e for e in x.ravel() if not known(e)]
    return [object_array([e if known(e) else np.True_ for e in x.ravel()], x.shape)]


def _no_fma(ctx: LoweringContext, eqn: Equation, x: LaneArray) -> list[LaneArray]:
    for e in x.ravel():
        if not known(e):
            ctx.code.forbid_fma(e)
    return [x]


def _low_precision(ctx: LoweringContext, eqn: Equation, *xs: LaneArray) -> list[LaneArray]:
    """In single precision, and back."""
    if not single_precision.is_supported(callee(eqn)):
        return _plainly(ctx, eqn, *xs)
    outside, ctx.scalars.low_precision = ctx.scalars.low_precision, True
    out = ctx.evaluate(callee(eqn), list(xs))
    ctx.scalars.low_precision = outside
    return [object_array([single_precision.widen(ctx.code, e) for e in x.ravel()], x.shape) for x in out]


def _unlikely(ctx: LoweringContext, eqn: Equation, *xs: LaneArray) -> list[LaneArray]:
    """A branch, if there is a single condition. Under `vmap` there may be many: then all are computed."""
    conditions, otherwise = parts_of_unlikely(eqn, xs)
    if all(known(c) and not c for c in conditions.ravel()):
        return otherwise
    if conditions.size != 1 or known(conditions.ravel()[0]) or ctx.groups.copies is not None:
        return _plainly(ctx, eqn, *xs)
    return _branch(ctx, eqn, conditions.ravel()[0], otherwise, *xs)


def _branch(
    ctx: LoweringContext, eqn: Equation, condition: Any, instead: Sequence[LaneArray], *xs: LaneArray
) -> list[LaneArray]:
    """Skipped if the condition holds for no member. If it holds for some, the others are unchanged."""
    code, scalar = ctx.code, ctx.scalars.apply
    before = [e for x in instead for e in x.ravel()]
    olds, otherwise = [ctx.shared.operand(e) for e in before], scalar("not", condition)
    label, entry = code.fresh("unlikely"), code.block
    skipped = code.all_lanes(ctx.shared.operand(otherwise), "and")
    code.branch(skipped, f"{label}.end", f"{label}.case", likely=True)
    code.begin(f"{label}.case")
    outside, ctx.assumptions.guards = ctx.assumptions.guards, []
    out = _evaluated_if(ctx, condition, callee(eqn), xs)
    guards = [scalar("or", otherwise, g) for g in ctx.assumptions.guards]
    news = [ctx.shared.operand(e) for x in out for e in x.ravel()]
    if guards:
        olds, news = [*olds, np.bool_(True)], [*news, ctx.shared.operand(ctx.scalars.tree_reduce("and", guards))]
    values = [Value("%" + code.fresh(), x.dtype) for x in news]
    phis = [code.phi(x, [(a, entry), (b, code.block)]) for x, a, b in zip(values, olds, news, strict=True)]
    code.jump(f"{label}.end")
    code.begin(f"{label}.end")
    code.lines += phis
    ctx.assumptions.guards = [*outside, *values[len(before) :]]
    ends = np.cumsum([0, *(x.size for x in out)])
    return [object_array(values[a:b], x.shape) for a, b, x in zip(ends, ends[1:], out, strict=False)]


def _evaluated_if(ctx: LoweringContext, condition: Any, program: Any, xs: Sequence[LaneArray]) -> list[LaneArray]:
    """A branch; its loops make no pass for members where the condition is false, because they might never end."""
    outside, ctx.assumptions.active = (
        ctx.assumptions.active,
        ctx.scalars.apply("and", ctx.assumptions.active, condition),
    )
    out = ctx.evaluate(program, list(xs))
    ctx.assumptions.active = outside
    return out


@rule("custom_linear_solve")
def _linear_solve(ctx: LoweringContext, eqn: Equation, *xs: LaneArray) -> list[LaneArray]:
    lengths, jaxprs = eqn.params["const_lengths"], eqn.params["jaxprs"]
    start = lengths.matvec + lengths.vecmat
    return ctx.evaluate(closed(jaxprs.solve), [*xs[start : start + lengths.solve], *xs[sum(lengths) :]])


@rule("cond")
def _cond(ctx: LoweringContext, eqn: Equation, index: LaneArray, *xs: LaneArray) -> list[LaneArray]:
    """Compute all branches and select the result of one."""
    i, branches = index[()], [closed(b) for b in eqn.params["branches"]]
    if known(i):
        return ctx.evaluate(branches[int(np.clip(i, 0, len(branches) - 1))], list(xs))
    scalar = ctx.scalars.apply
    outs, outside, guards = [], ctx.assumptions.guards, []
    tests = [scalar("eq", i, number(k, i.dtype)) for k in range(len(branches))]
    for branch, chosen in zip(branches, tests, strict=True):
        ctx.assumptions.guards = []
        outs.append(_evaluated_if(ctx, chosen, branch, xs))
        guards += [scalar("or", scalar("not", chosen), g) for g in ctx.assumptions.guards]
    ctx.assumptions.guards = [*outside, *guards]
    result = outs[-1]
    for out, chosen in zip(outs[-2::-1], tests[-2::-1], strict=True):
        result = [_chosen(scalar, object_array([chosen], ()), a, b) for a, b in zip(out, result, strict=True)]
    return result


def _chosen(scalar: Callable[..., Any], p: LaneArray, a: LaneArray, b: LaneArray) -> LaneArray:
    """Return a where p, with the first axes of a, is true, else b."""
    wide = np.broadcast_to(p.reshape(p.shape + (1,) * (a.ndim - p.ndim)), a.shape)
    each = zip(wide.ravel(), a.ravel(), b.ravel(), strict=True)
    return object_array([scalar("select_n", q, y, x) for q, x, y in each], a.shape)


@rule("scan")
def _scan(ctx: LoweringContext, eqn: Equation, *xs: LaneArray) -> list[LaneArray]:
    """Unrolled."""
    body, nc, nk, length, reverse = scan_of(eqn.params)
    constants, carry, rows = xs[:nc], xs[nc : nc + nk], xs[nc + nk :]
    stacks: list[list[LaneArray]] = []
    for i in range(length)[:: -1 if reverse else 1]:
        out = ctx.evaluate(body, [*constants, *carry, *(row(r, i) for r in rows)])
        carry = out[:nk]
        stacks.append(out[nk:])
    stacks = stacks[:: -1 if reverse else 1]
    shapes = [v.aval.shape for v in eqn.outvars[nk:]]
    flat = [[e for results in stacks for e in results[k].ravel()] for k in range(len(shapes))]
    return [*carry, *(object_array(f, shape) for f, shape in zip(flat, shapes, strict=True))]


@rule("while")
def _while(ctx: LoweringContext, eqn: Equation, *xs: LaneArray) -> list[LaneArray]:
    """Unroll a loop with a constant number of passes; otherwise write a loop, after a first pass if that is constant.

    Loops under `vmap` have one condition each: all iterate until the last is done, and
    those that are done stay as they are.
    """
    loop = while_of(eqn.params)
    cond_constants, body_constants, init = loop.split(xs)
    outside, ctx.assumptions.guards = ctx.assumptions.guards, []

    def still(state: list[LaneArray]) -> LaneArray:
        return ctx.evaluate(loop.cond, [*cond_constants, *state])[0]

    def test(state: list[LaneArray]) -> Any:
        return ctx.scalars.tree_reduce("or", list(still(state).ravel()))

    def once(state: list[LaneArray]) -> list[LaneArray]:
        new = ctx.evaluate(loop.body, [*body_constants, *state])
        if not loop.cond.jaxpr.outvars[0].aval.shape:
            return new
        going = still(state)
        return [_chosen(ctx.scalars.apply, going, a, b) for a, b in zip(new, state, strict=True)]

    state, ended = _unrolled(ctx, test, once, list(init))
    guards = [*outside, *ctx.assumptions.guards]
    if not ended:
        ctx.assumptions.guards = []
        state = Loop(ctx, test, once, state).write()
        guards += ctx.assumptions.guards
    ctx.assumptions.guards = guards
    return state


def _unrolled(
    ctx: LoweringContext, test: Callable[..., Any], once: Callable[..., Any], state: list[LaneArray]
) -> tuple[list[LaneArray], bool]:
    """Unroll a loop whose conditions are constant; return its final state, and whether it has ended.

    For other loops, return the state before the first pass whose condition is not constant, or after one short pass,
    in which nothing must be frozen and many values are constant.
    """
    marks = [(ctx.code.snapshot(), ctx.groups.left, list(ctx.assumptions.guards), state)]
    for passes in range(_LONGEST_UNROLLED):
        goes_on = test(state)
        if not known(goes_on):
            break
        if not goes_on:
            return state, True
        state = once(state)
        if passes == 0 and marks[0][1] - ctx.groups.left <= _LONGEST_PASS:
            marks.append((ctx.code.snapshot(), ctx.groups.left, list(ctx.assumptions.guards), state))
    else:
        marks = marks[:1]
    mark, ctx.groups.left, ctx.assumptions.guards, state = marks[-1]
    ctx.code.rollback(mark)
    return state, False


class Loop:
    """A loop whose state is a tuple of numbers; entries that stay constant are left out.

    Members that are done are frozen while others of their group iterate.
    """

    def __init__(self, ctx: LoweringContext, test: Callable[..., Any], once: Callable[..., Any], init: list[LaneArray]):
        self.ctx, self.code, self.test, self.once = ctx, ctx.code, test, once
        self.shapes = [x.shape for x in init]
        self.flat = [e for x in init for e in x.ravel()]
        self.moving = [not known(e) for e in self.flat]

    def tree(self, values: Sequence[Any]) -> list[LaneArray]:
        """Return the state with these values of its varying entries."""
        it = iter(values)
        full = [next(it) if m else e for e, m in zip(self.flat, self.moving, strict=True)]
        ends = np.cumsum([0, *(math.prod(s) for s in self.shapes)])
        return [object_array(full[a:b], s) for a, b, s in zip(ends, ends[1:], self.shapes, strict=False)]

    def moved(self, entries: Sequence[Any]) -> list[Any]:
        """The varying ones of all entries."""
        return [e for e, m in zip(entries, self.moving, strict=True) if m]

    def one_pass(self, values: Sequence[Any]) -> list[Any]:
        """All entries of the state after a pass."""
        return [e for x in self.once(self.tree(values)) for e in x.ravel()]

    def heads(self) -> list[Value]:
        """Return names for the varying entries."""
        return [Value("%" + self.code.fresh(), e.dtype) for e in self.moved(self.flat)]

    def write(self) -> list[LaneArray]:
        """Write the loop; return its final state, and whether all guards held in every pass.

        Constant entries are assumed to stay constant. If the body changes some, the loop is written again without them.
        """
        ctx = self.ctx
        while True:
            mark, left = self.code.snapshot(), ctx.groups.left
            if (state := self.attempt()) is not None:
                return state
            self.code.rollback(mark)
            ctx.groups.left, ctx.assumptions.guards = left, []

    def attempt(self) -> list[LaneArray] | None:
        """The final state if all constant entries stay constant; else note the others and return None."""
        ctx, code = self.ctx, self.code
        label, entry, values, fine = code.fresh("loop"), code.block, self.heads(), Value("%" + code.fresh(), bool)
        starts = [ctx.shared.operand(e) for e in self.moved(self.flat)]
        code.jump(f"{label}.head")
        code.begin(f"{label}.head")
        top = len(code.lines)
        p = ctx.shared.operand(ctx.scalars.apply("and", ctx.assumptions.active, self.test(self.tree(values))))
        going = code.all_lanes(p, "or")
        code.branch(going, f"{label}.body", f"{label}.exit")
        code.begin(f"{label}.body")
        after = self.one_pass(values)
        moving = [m or not same(y, e) for m, e, y in zip(self.moving, self.flat, after, strict=True)]
        if moving != self.moving:
            self.moving = moving
            return None
        out = [ctx.shared.operand(y) for y in self.moved(after)]
        still = ctx.shared.operand(ctx.scalars.tree_reduce("and", [fine, *ctx.assumptions.guards]))
        if code.width > 1:
            out = [code.select(p, y, x) for y, x in zip(out, values, strict=True)]
            still = code.select(p, still, fine)
        phis = [
            code.phi(x, [(a, entry), (b, code.block)])
            for x, a, b in zip([*values, fine], [*starts, np.bool_(True)], [*out, still], strict=True)
        ]
        code.lines[top:top] = phis
        code.jump(f"{label}.head")
        code.begin(f"{label}.exit")
        ctx.assumptions.guards = [fine]
        return self.tree(values)


_HINTS: dict[Any, Rule] = {
    likely_p: _likely,
    no_fma_p: _no_fma,
    low_precision_p: _low_precision,
    unlikely_p: _unlikely,
}
