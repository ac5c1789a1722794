"""A traced program as a graph of terms: the arrays that it computes.

Calls are entered, scans are unrolled. Arrays that are known are constants. JAX computes those that depend on shared
numbers alone before the run. Loops of unknown length and branches stay: their programs are blocks of terms.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.core
import numpy as np
from jax.extend import core as jex

from ..errors import NotCompilable
from ..hints import likely_p, no_fma_p, parts_of_unlikely, unlikely_p
from ..jaxprs.data_movement import MOVES
from ..jaxprs.equation_types import Equation
from ..jaxprs.equations import (
    CALLS,
    callee,
    closed,
    eval_equation,
    live_equations,
    may_run_forever,
    scan_of,
    while_of,
)
from ..jaxprs.interning import value_key
from ..jaxprs.interpreter import Interpreter, typed_literal
from ..jaxprs.numpy_eval import by_numpy
from ..lowering.decomposed_primitives import one_minus_square
from ..lowering.reduction_rules import REDUCTIONS
from ..lowering.scalar_ops import known_to

_MOST = 20_000  # terms of a step
_IN_ARRAYS = ", of arrays of this size"
SCATTERS = {  # and how they combine an element with its updates
    "scatter": None,
    **{f"scatter{dash}{how}": how for how in ("add", "mul", "min", "max") for dash in "-_"},
}
_OTHERS = ("dot_general", "gather", *SCATTERS)
_TYPES = "biu"


@dataclass(eq=False)
class Block:
    """The terms of a program that runs once, of the body of a loop, or of a branch, in order."""

    terms: list["Term"] = field(default_factory=list)
    results: list["Term"] = field(default_factory=list)


@dataclass(eq=False)
class Term:
    """An array: its operation and operands.

    The operations are those of JAX, and "constant", "shared", "input", "while", "cond" and "result".
    """

    name: str
    operands: tuple["Term", ...]
    shape: tuple[int, ...]
    dtype: np.dtype
    block: Block
    params: dict = field(default_factory=dict)
    value: Any = None  # of a constant or of a shared array
    blocks: tuple[Block, ...] = ()  # of a loop: its body; of a choice: its branches

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)


class Graph:
    """Makes the terms of programs. With `trust_likely`, conditions marked `likely` are assumed, and are guards."""

    def __init__(self, trust_likely: bool):
        self.trust_likely = trust_likely
        self.block = Block()
        self.guards: list[Term] = []
        self._made: dict[Any, Term] = {}
        self._count = 0
        self._interpreter = Interpreter(
            self._equation,
            inline=lambda eqn: False,
            constant=self.value,
            literal=lambda v: self.value(typed_literal(v)),
            equations=live_equations,
        )

    def evaluate(self, program: jex.ClosedJaxpr, args: Sequence[Term]) -> list[Term]:
        """The results of a program."""
        return self._interpreter.evaluate(program, args)

    def value(self, x: Any) -> Term:
        """A constant, or an array that depends on shared numbers."""
        if isinstance(x, jax.core.Tracer):
            return Term("shared", (), np.shape(x), _checked(x.dtype), self.block, value=x)
        x = np.asarray(x)
        key = "constant", x.shape, x.dtype, x.tobytes() if x.size == 1 else id(x)
        if key not in self._made:
            self._made[key] = Term("constant", (), x.shape, _checked(x.dtype), self.block, value=x)
        return self._made[key]

    def input(self, shape: tuple[int, ...], dtype: Any) -> Term:
        """An array that is in memory."""
        return self._added(Term("input", (), shape, _checked(dtype), self.block))

    def apply(
        self, name: str, operands: Sequence[Term], shape: tuple = (), dtype: Any = bool, params: dict | None = None
    ) -> Term:
        """The term of an operation, made once for the same operands."""
        key = name, value_key(params), tuple(map(id, operands)), shape, np.dtype(dtype), id(self.block)
        if key not in self._made:
            made = Term(name, tuple(operands), shape, _checked(dtype), self.block, params or {})
            self._made[key] = self._added(made)
        return self._made[key]

    def all_of(self, conditions: Sequence[Term]) -> Term:
        """Whether conditions hold for all elements."""
        out = self.value(np.True_)
        for x in conditions:
            one = self.apply("reduce_and", [x], params={"axes": tuple(range(len(x.shape)))}) if x.shape else x
            out = one if out.name == "constant" else self.apply("and", [out, one])
        return out

    def _added(self, term: Term) -> Term:
        self._count += 1
        if self._count > _MOST:
            raise NotCompilable(f"A step of large arrays has more than {_MOST} operations.")
        self.block.terms.append(term)
        return term

    def _equation(self, jaxpr: jex.Jaxpr, eqn: Equation, xs: list[Term]) -> list[Term]:
        name = eqn.primitive.name
        if not all(isinstance(v.aval.dtype, np.dtype) for v in eqn.outvars):
            raise NotCompilable("A step uses random keys of JAX, which native code does not support.")
        if name in CALLS:
            return self._call(eqn, xs)
        if all(x.name in ("constant", "shared") for x in xs) and not may_run_forever(eqn):
            return [self.value(y) for y in _evaluated(jaxpr, eqn, [x.value for x in xs])]
        if name == "one_minus_square":
            x = eqn.invars[0].aval
            return self.evaluate(jax.make_jaxpr(one_minus_square)(jax.ShapeDtypeStruct(x.shape, x.dtype)), xs)
        if name == "while":
            return self._while(eqn, xs)
        if name == "cond":
            return self._cond(eqn, xs)
        if name == "scan":
            return self._scan(eqn, xs)
        if name == "custom_linear_solve":
            lengths = eqn.params["const_lengths"]
            start = lengths.matvec + lengths.vecmat
            given = [*xs[start : start + lengths.solve], *xs[sum(lengths) :]]
            return self.evaluate(closed(eqn.params["jaxprs"].solve), given)
        if not (known_to(name) or name in MOVES or name in REDUCTIONS or name in _OTHERS):
            raise NotCompilable.operation(name, _IN_ARRAYS)
        if len(eqn.outvars) > 1 and name in MOVES:
            each = enumerate(v.aval for v in eqn.outvars)
            return [self.apply(name, xs, v.shape, v.dtype, eqn.params | {"which": i}) for i, v in each]
        (v,) = eqn.outvars
        return [self.apply(name, xs, v.aval.shape, v.aval.dtype, eqn.params)]

    def _call(self, eqn: Equation, xs: list[Term]) -> list[Term]:
        """A call, or a hint."""
        if eqn.primitive is likely_p and self.trust_likely and xs[0].name not in ("constant", "shared"):
            self.guards.append(xs[0])
            return [self.value(np.ones(xs[0].shape, bool))]
        if eqn.primitive is no_fma_p:
            return [self.apply("no_fma", xs, xs[0].shape, xs[0].dtype)]
        if eqn.primitive is unlikely_p:
            conditions, otherwise = parts_of_unlikely(eqn, xs)
            if conditions.name == "constant" and not conditions.value.any():
                return otherwise
        return self.evaluate(callee(eqn), xs)

    def _inside(self, block: Block, program: jex.ClosedJaxpr, args: Sequence[Term]) -> tuple[list[Term], Term]:
        """The results of a program in a block, and whether its guards hold."""
        outside, self.block, guards, self.guards = self.block, block, self.guards, []
        out = self.evaluate(program, args)
        fine = self.all_of(self.guards)
        self.block, self.guards = outside, guards
        return out, fine

    def _while(self, eqn: Equation, xs: list[Term]) -> list[Term]:
        """A loop. Its state has one more number: whether all guards have held."""
        loop, body = while_of(eqn.params), Block()
        cond_constants, body_constants, init = loop.split(xs)
        if loop.cond.jaxpr.outvars[0].aval.shape:
            raise NotCompilable.operation("while", " with a condition for each element")
        (begins,), _ = self._inside(Block(), loop.cond, [*cond_constants, *init])
        if begins.name == "constant" and not begins.value:
            return list(init)
        state = [Term("input", (), x.shape, x.dtype, body) for x in (*init, self.value(np.True_))]
        body.terms += state
        (going,), _ = self._inside(body, loop.cond, [*cond_constants, *state[:-1]])
        out, fine = self._inside(body, loop.body, [*body_constants, *state[:-1]])
        outside, self.block = self.block, body
        fine = self.apply("and", [state[-1], fine])
        self.block = outside
        body.results = [going, *out, fine]
        made = Term("while", (*init, self.value(np.True_)), (), np.dtype(bool), self.block, blocks=(body,))
        return self._results(made, state)

    def _cond(self, eqn: Equation, xs: list[Term]) -> list[Term]:
        """A choice of one of several programs."""
        branches = [closed(b) for b in eqn.params["branches"]]
        if xs[0].name == "constant":
            return self.evaluate(branches[int(np.clip(xs[0].value, 0, len(branches) - 1))], xs[1:])
        blocks = tuple(Block() for _ in branches)
        for block, branch in zip(blocks, branches, strict=True):
            out, fine = self._inside(block, branch, xs[1:])
            block.results = [*out, fine]
        made = Term("cond", (xs[0],), (), np.dtype(bool), self.block, blocks=blocks)
        return self._results(made, blocks[0].results)

    def _results(self, made: Term, like: Sequence[Term]) -> list[Term]:
        """The results of a loop or a choice, of which the last is whether its guards held."""
        self._added(made)
        out = [
            self._added(Term("result", (made,), x.shape, x.dtype, self.block, {"index": i})) for i, x in enumerate(like)
        ]
        self.guards.append(out[-1])
        return out[:-1]

    def _scan(self, eqn: Equation, xs: list[Term]) -> list[Term]:
        """A loop of known length, unrolled."""
        body, constants, carried, length, reverse = scan_of(eqn.params)
        carry, rows = list(xs[constants : constants + carried]), xs[constants + carried :]
        stacks: list[list[Term]] = []
        for i in range(length)[:: -1 if reverse else 1]:
            out = self.evaluate(body, [*xs[:constants], *carry, *(self._row(r, i) for r in rows)])
            carry = out[:carried]
            stacks.append(out[carried:])
        stacks = stacks[:: -1 if reverse else 1]
        avals = [v.aval for v in eqn.outvars[carried:]]
        if avals and not length:
            raise NotCompilable.operation("scan", " of no rows")
        columns = zip(zip(*stacks, strict=True), avals, strict=True)
        return [*carry, *(self.apply("stack", y, v.shape, v.dtype, {"axis": 0}) for y, v in columns)]

    def _row(self, x: Term, i: int) -> Term:
        if x.name in ("constant", "shared"):
            return self.value(x.value[i])
        return self.apply("row", [x], x.shape[1:], x.dtype, {"index": i})


def _checked(dtype: Any) -> np.dtype:
    dtype = np.dtype(dtype)
    if dtype != np.float64 and dtype.kind not in _TYPES:
        raise NotCompilable.dtype(dtype.name, _IN_ARRAYS)
    return dtype


def _evaluated(jaxpr: jex.Jaxpr, eqn: Equation, values: list[Any]) -> list[Any]:
    """The results of an equation without varying operands."""
    if any(isinstance(x, jax.core.Tracer) for x in values):
        return eval_equation(jaxpr, eqn, values)
    if len(eqn.outvars) == 1:
        dtype, given = eqn.outvars[0].aval.dtype, [v.aval.dtype for v in eqn.invars]
        if (does := by_numpy(eqn.primitive.name, eqn.params, dtype, given, values)) is not None:
            with np.errstate(all="ignore"):
                return [np.asarray(does(*values), dtype)]
    with jax.ensure_compile_time_eval():
        return [np.asarray(y) for y in eval_equation(jaxpr, eqn, values)]
