"""The interpreter of traced programs that all tools share.

    double = Interpreter(equation=lambda jaxpr, eqn, values: …, inline=calls)
    results = double.evaluate(closed, args)

A program is evaluated equation by equation with values of any kind in place of arrays: numbers, truth values, names,
or arrays of `Value`s. A tool supplies one function for equations, and states which calls the interpreter enters and
how captured arrays and literals become values.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax.extend import core as jex

from ..hints import HINTS
from .equation_types import Equation
from .equations import CALLS, callee


def calls(eqn: Equation) -> bool:
    """Whether an equation only calls another program: a `jit`, a custom derivative, a hint."""
    return eqn.primitive.name in CALLS


def jits_and_hints(eqn: Equation) -> bool:
    """Whether an equation is a `jit` or a hint."""
    return eqn.primitive.name in ("jit", "pjit") or eqn.primitive in HINTS


def typed_literal(v: Any) -> Any:
    """The value of a literal as a number, or array, of the type that the program gives it."""
    return np.asarray(v.val, getattr(v.aval, "dtype", None))[()]


@dataclass(frozen=True)
class Interpreter:
    """Evaluates programs.

    Attributes
    ----------
    equation
        `equation(jaxpr, eqn, values)` returns the results of one equation of a jaxpr.
    inline
        Whether the interpreter enters the program that an equation calls; it then passes no such equation to
        `equation`.
    constant
        The value for an array that a program has captured.
    literal
        The value for a literal.
    equations
        The equations of a jaxpr, in the order of their evaluation.
    """

    equation: Callable[[jex.Jaxpr, Any, list[Any]], Sequence[Any]]
    inline: Callable[[Any], bool] = calls
    constant: Callable[[Any], Any] = lambda x: x
    literal: Callable[[Any], Any] = lambda v: v.val
    equations: Callable[[jex.Jaxpr], Sequence[Any]] = lambda jaxpr: jaxpr.eqns

    def evaluate(self, closed: jex.ClosedJaxpr, args: Sequence[Any]) -> list[Any]:
        """Return the results of a program."""
        jaxpr = closed.jaxpr
        env: dict[Any, Any] = dict(zip(jaxpr.constvars, map(self.constant, closed.consts), strict=True))
        env.update(zip(jaxpr.invars, args, strict=True))

        def read(v: Any) -> Any:
            return self.literal(v) if isinstance(v, jex.Literal) else env[v]

        for eqn in self.equations(jaxpr):
            values = [read(v) for v in eqn.invars]
            inline = self.inline(eqn)
            out = self.evaluate(callee(eqn), values) if inline else self.equation(jaxpr, eqn, values)
            env.update(zip(eqn.outvars, out, strict=True))
        return [read(v) for v in jaxpr.outvars]
