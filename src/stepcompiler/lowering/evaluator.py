"""The evaluator lowers a traced program number by number.

XLA's CPU compiler is made for large arrays: a loop whose body works on vectors of length six spends its time between
operations. Here a program is evaluated with each array replaced by an array of lanes (see `scalar_kinds`).

- Known numbers are folded: sums with 0, products with 0 and 1.
- Numbers that do not vary are left to JAX, once before the run. A quotient by such a number becomes a product.
- Varying numbers are written as code.

Operations that only move elements cost nothing, and loops of unknown length stay loops. What remains is the
straight-line code that one would write in C.

Conditions marked `likely` are assumed to be true, so that the other branch costs nothing. They become guards: a step
for which a guard does not hold is not taken.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jex

from ..errors import NotCompilable
from ..jaxprs.data_movement import MOVES, object_array
from ..jaxprs.equation_types import Equation
from ..jaxprs.equations import eval_equation, live_equations, may_run_forever
from ..jaxprs.interpreter import Interpreter, typed_literal
from ..jaxprs.numpy_eval import by_numpy
from . import control_flow_rules, decomposed_primitives, indexing_rules, reduction_rules, scalar_ops
from .context import RULES, Assumptions, LoweringContext
from .groups import Groups
from .instructions import Operand
from .llvm_builder import Code
from .scalar_kinds import LaneArray, all_known, any_varies, known, split
from .scalar_lowering import ScalarLowering
from .shared_values import SharedValues

RULE_MODULES = control_flow_rules, decomposed_primitives, indexing_rules, reduction_rules  # which register their rules


class Attempt(NamedTuple):
    """A lowered step: its results, whether it is valid, and the basic block that computes this."""

    results: list[Any]
    valid: Any  # whether each member takes the step
    taken: Operand  # whether all members of the group take it
    block: str


def lowering_context(code: Code, limit: int, stem: str = "%u", copies: int | None = None) -> LoweringContext:
    """Return a context that writes into `code`; names of shared numbers begin with `stem`."""
    shared, groups = SharedValues(stem), Groups(code, limit, copies)
    scalars = ScalarLowering(code, shared, groups)

    def equation(jaxpr: jex.Jaxpr, eqn: Equation, xs: list[LaneArray]) -> list[LaneArray]:
        return lower_equation(context, jaxpr, eqn, xs)

    lanes = Interpreter(
        equation,
        inline=lambda eqn: False,
        constant=split,
        literal=lambda v: split(typed_literal(v)),
        equations=lambda jaxpr: _loops_last(live_equations(jaxpr)),
    )
    context = LoweringContext(code, scalars, shared, groups, Assumptions(), lanes.evaluate)
    return context


def lower_equation(ctx: LoweringContext, jaxpr: jex.Jaxpr, eqn: Equation, xs: list[LaneArray]) -> list[LaneArray]:
    """Lower one equation: by a rule if one is needed, else by JAX before the run."""
    name = eqn.primitive.name
    if not all(isinstance(v.aval.dtype, np.dtype) for v in eqn.outvars):  # keys have a type of JAX's own
        raise NotCompilable("A step uses random keys of JAX, which native code does not support.")
    if scalar_ops.known_to(name):
        return [_elementwise(ctx, eqn, xs)]
    if name in MOVES:
        return MOVES[name](eqn.params, *xs)
    if name in control_flow_rules.CALLS:
        return RULES[name](ctx, eqn, *xs)
    by_jax = not any_varies(*xs) and name not in reduction_rules.FOLDED
    if by_jax and (known(ctx.assumptions.active) or not may_run_forever(eqn)):
        about = name, tuple(v.aval for v in eqn.invars), *eqn.params.items()
        return ctx.shared.memoize(about, [e for x in xs for e in x.ravel()], lambda: _by_jax(jaxpr, eqn, xs))
    if name not in RULES:
        raise NotCompilable.operation(name)
    return RULES[name](ctx, eqn, *xs)


def _elementwise(ctx: LoweringContext, eqn: Equation, xs: list[LaneArray]) -> LaneArray:
    """An operation on each element."""
    aval, name, params = eqn.outvars[0].aval, eqn.primitive.name, eqn.params
    count = math.prod(aval.shape)
    wide = [_spread(x, aval.shape) for x in xs]
    numbers = _known_among(eqn, wide)
    if len(numbers) == count:
        return object_array(list(numbers.values()), aval.shape)
    bind = lambda *ys: eqn.primitive.bind(*ys, **params)

    def one(i: int) -> Any:
        return numbers[i] if i in numbers else ctx.scalars.fold(name, params, aval.dtype, [x[i] for x in wide], bind)

    return object_array(ctx.groups.each(one, aval.shape), aval.shape)


def emit_step(
    ctx: LoweringContext, closed: jex.ClosedJaxpr, args: Sequence[LaneArray], before: Attempt | None = None
) -> Attempt:
    """Write a step, whose last result states whether it is valid.

    After another attempt `before`, this one assumes nothing, and serves the members that have not taken the other.
    """
    code, operand = ctx.code, ctx.shared.operand
    ctx.assumptions.trust_likely, ctx.assumptions.guards = before is None, []
    ctx.groups.left = ctx.groups.limit
    *out, ok = ctx.evaluate(closed, args)
    flat = [operand(e) for x in out for e in x.ravel()]
    code.use(*flat)
    valid = operand(ctx.scalars.tree_reduce("and", [ok[()], *ctx.assumptions.guards, *ctx.shared.in_range()]))
    if before is not None:
        flat = [code.select(before.valid, a, b) for a, b in zip(before.results, flat, strict=True)]
        valid = operand(ctx.scalars.apply("or", before.valid, valid))
    return Attempt(flat, valid, code.all_lanes(valid, "and"), code.block)


def _loops_last(eqns: Sequence[Any]) -> list[Any]:
    """Order equations that depend on no loop first: a processor computes them during a loop."""
    waiting: set[Any] = set()
    early, late = [], []
    for eqn in eqns:
        waits = eqn.primitive.name == "while" or any(v in waiting for v in eqn.invars if not isinstance(v, jex.Literal))
        (late if waits else early).append(eqn)
        waiting.update(eqn.outvars if waits else ())
    return early + late


def _spread(x: LaneArray, shape: tuple[int, ...]) -> list[Any]:
    """The lanes of an array as those of one of another shape; the quick ways first."""
    if x.shape == shape:
        return list(x.flat)
    return [x[()]] * math.prod(shape) if x.ndim == 0 else list(np.broadcast_to(x, shape).flat)


def _known_among(eqn: Equation, xs: Sequence[list[Any]]) -> dict[int, Any]:
    """Fold an operation on the elements of constant vectors by NumPy, if it can."""
    at = [i for i, lanes in enumerate(zip(*xs, strict=True)) if all(map(known, lanes))]
    if not at:
        return {}
    given, dtype = [v.aval.dtype for v in eqn.invars], eqn.outvars[0].aval.dtype
    arrays = [np.array([x[i] for i in at], d) for x, d in zip(xs, given, strict=True)]
    does = by_numpy(eqn.primitive.name, eqn.params, dtype, given, arrays)
    if does is None:
        return {}
    with np.errstate(all="ignore"):
        return dict(zip(at, np.asarray(does(*arrays), dtype), strict=True))


def _by_jax(jaxpr: jex.Jaxpr, eqn: Equation, xs: Sequence[LaneArray]) -> list[LaneArray]:
    """Evaluate an equation without varying operands: now if all are constant, else before the run."""
    arrays = _arrays(eqn, xs)
    if not all_known(*xs):
        return [split(y) for y in eval_equation(jaxpr, eqn, arrays)]
    types = eqn.outvars[0].aval.dtype, [a.dtype for a in arrays]
    if (does := by_numpy(eqn.primitive.name, eqn.params, *types, arrays)) is not None:
        return [split(np.asarray(does(*arrays)))]
    with jax.ensure_compile_time_eval():
        return [split(np.asarray(y)) for y in eval_equation(jaxpr, eqn, arrays)]


def _arrays(eqn: Equation, xs: Sequence[LaneArray]) -> list[Any]:
    """Arrays of lanes that do not vary."""

    def one(x: LaneArray, dtype: Any) -> Any:
        if all_known(x):
            return x.astype(dtype)
        return jnp.stack([jnp.asarray(e, dtype) for e in x.ravel()]).reshape(x.shape)

    return [one(x, v.aval.dtype) for x, v in zip(xs, eqn.invars, strict=True)]
