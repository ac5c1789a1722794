"""Values of a program that are marked by `checkpoint_name`: as further results, and as further arguments."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.core
from jax.extend import core as jex

from ..errors import NotCompilable
from .equation_types import Equation, equations_of
from .equations import eval_equation, inner_programs, live_equations
from .interpreter import Interpreter

_INLINED = ("jit", "pjit", "closed_call")


def with_named_results(program: jex.ClosedJaxpr, name: str) -> Callable[..., tuple[list, list]]:
    """A function that returns the results of a program and the values of this name."""

    def run(*args: Any) -> tuple[list, list]:
        named: list[Any] = []

        def mark(value: Any) -> Any:
            named.append(value)
            return value

        return _evaluate(program, name, mark, args), named

    return run


def with_named_arguments(program: jex.ClosedJaxpr, name: str) -> Callable[..., list]:
    """A function of the arguments of a program and of the values of this name, which it does not compute.

    Equations that only these values need are removed, so that the function can be differentiated where they
    cannot.
    """

    def run(args: Sequence[Any], named: Sequence[Any]) -> list:
        def traced(args: Sequence[Any], named: Sequence[Any]) -> list:
            given = iter(named)
            return _evaluate(program, name, lambda _: next(given), args)

        closed = jax.make_jaxpr(traced)(list(args), list(named))
        live = closed.jaxpr.replace(eqns=live_equations(closed.jaxpr))
        return jax.core.eval_jaxpr(live, closed.consts, *args, *named)

    return run


def _evaluate(program: jex.ClosedJaxpr, name: str, mark: Callable[[Any], Any], args: Sequence[Any]) -> list:
    def equation(jaxpr: jex.Jaxpr, eqn: Equation, values: list[Any]) -> Sequence[Any]:
        if _named(eqn, name):
            return [mark(values[0])]
        if any(_holds(p.jaxpr, name) for p in inner_programs(eqn.params)):
            raise NotCompilable(f"A value marked {name!r} lies inside an operation ({eqn.primitive.name}).")
        return eval_equation(jaxpr, eqn, values)

    return Interpreter(equation, inline=lambda eqn: eqn.primitive.name in _INLINED).evaluate(program, args)


def _named(eqn: Equation, name: str) -> bool:
    return eqn.primitive.name == "name" and eqn.params["name"] == name


def _holds(jaxpr: jex.Jaxpr, name: str) -> bool:
    """Whether there is such a value anywhere in a program."""
    inner = (p for eqn in jaxpr.eqns for p in inner_programs(eqn.params))
    return any(_named(eqn, name) for eqn in equations_of(jaxpr)) or any(_holds(p.jaxpr, name) for p in inner)
