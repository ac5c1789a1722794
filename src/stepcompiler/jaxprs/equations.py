"""Parameters of equations whose spelling depends on the version of JAX (0.10 to 0.12), read in one place."""

import math
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.core
from jax.extend import core as jex

from ..hints import HINTS, wrapped
from .equation_types import Equation, equations_of

# Primitives that only call another program, and under which parameter they hold it.
CALLS = {
    "call_hi_primitive": "_prim",  # JAX 0.12: an operation with its own decomposition
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "eval_jaxpr": "call_jaxpr",
    "custom_derivative": "jaxpr",  # ours
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
    "remat2": "jaxpr",
    "checkpoint": "jaxpr",
    "composite": "jaxpr",
    **{hint.name: "jaxpr" for hint in HINTS},
}

_FUNCTIONS = ("jit", "pjit")  # those of functions


class Scan(NamedTuple):
    """A `scan`: body(constants, carry, row) → (carry, row of results), `length` times."""

    body: jex.ClosedJaxpr
    constants: int
    carry: int
    length: int
    reverse: bool


def scan_of(params: dict[str, Any]) -> Scan:
    """Return the parameters of a `scan`: numbers of arguments, which JAX 0.12 stores as flattened trees."""
    if "num_consts" in params:
        constants, carry = params["num_consts"], params["num_carry"]
    else:
        constants, carry = (len(part) for part in params["ft_in"].unpack()[:2])
    return Scan(closed(params["jaxpr"]), constants, carry, params["length"], params["reverse"])


class While(NamedTuple):
    """A `while`: state = body(constants, state) as long as cond(constants, state) holds."""

    cond: jex.ClosedJaxpr
    body: jex.ClosedJaxpr
    cond_constants: int
    body_constants: int

    def split(self, xs: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any]]:
        """Return the constants of cond, those of body, and the initial state, from the operands of the equation."""
        a, b = self.cond_constants, self.cond_constants + self.body_constants
        return xs[:a], xs[a:b], xs[b:]


def while_of(params: dict[str, Any]) -> While:
    """The parameters of a `while`."""
    programs = closed(params["cond_jaxpr"]), closed(params["body_jaxpr"])
    return While(*programs, params["cond_nconsts"], params["body_nconsts"])


def inner_programs(params: dict[str, Any]) -> list[jex.ClosedJaxpr]:
    """All programs in the parameters of an equation: of calls, loops, branches and linear solves."""
    parts = [s for p in params.values() for s in (p if isinstance(p, (tuple, list)) else [p])]
    return [closed(s) for s in parts if isinstance(s, (jex.Jaxpr, jex.ClosedJaxpr))]


def may_run_forever(eqn: Equation) -> bool:
    """Whether an operation is a loop of an unknown number of passes, or has one inside."""
    inner = (e for program in inner_programs(eqn.params) for e in program.jaxpr.eqns)
    return eqn.primitive.name == "while" or any(map(may_run_forever, inner))


def callee(eqn: Equation) -> jex.ClosedJaxpr:
    """The program that an equation only calls."""
    name, params = eqn.primitive.name, eqn.params
    if eqn.primitive in HINTS:
        return wrapped(eqn)
    if name == "call_hi_primitive":
        return jax.make_jaxpr(partial(eqn.primitive.to_lojax, **params))(*(v.aval for v in eqn.invars))
    return closed(params[CALLS[name]])


def bind(primitive: jex.Primitive, params: dict[str, Any], args: Iterable[Any]) -> list[Any]:
    """Return the results of an operation."""
    out = primitive.bind(*args, **primitive.get_bind_params(params))
    return out if primitive.multiple_results else [out]


def eval_equation(jaxpr: jex.Jaxpr, eqn: Equation, values: Sequence[Any]) -> list[Any]:
    """Evaluate one equation of a jaxpr, whatever its primitive, as a jaxpr of its own."""
    arguments = {v: x for v, x in zip(eqn.invars, values, strict=True) if not isinstance(v, jex.Literal)}
    alone = jaxpr.replace(constvars=[], invars=list(arguments), outvars=eqn.outvars, eqns=[eqn])
    return jax.core.eval_jaxpr(alone, [], *arguments.values())


def closed(jaxpr: jex.Jaxpr | jex.ClosedJaxpr) -> jex.ClosedJaxpr:
    """A program together with its constants."""
    return jaxpr if isinstance(jaxpr, jex.ClosedJaxpr) else jex.ClosedJaxpr(jaxpr, [])


def count_operations(jaxpr: jex.Jaxpr) -> int:
    """Return the number of operations of a program, with one pass of each loop."""

    def one(eqn: Equation) -> int:
        sizes = [math.prod(v.aval.shape) for v in eqn.outvars if hasattr(v.aval, "shape")]
        if eqn.primitive.name == "dot_general":
            (contracted, _), _ = eqn.params["dimension_numbers"]
            return sizes[0] * math.prod(eqn.invars[0].aval.shape[a] for a in contracted)
        inside = [count_operations(program.jaxpr) for program in inner_programs(eqn.params)]
        return sum(inside) if inside else sum(sizes)

    return sum(map(one, equations_of(jaxpr)))


def live_equations(jaxpr: jex.Jaxpr) -> list[Equation]:
    """The equations of a program that have a used result or an effect."""
    used: set[Any] = {v for v in jaxpr.outvars if not isinstance(v, jex.Literal)}
    out: list[Equation] = []
    for eqn in reversed(equations_of(jaxpr)):
        if eqn.effects or any(v in used for v in eqn.outvars):
            eqn = _trimmed(eqn, used)
            used.update(v for v in eqn.invars if not isinstance(v, jex.Literal))
            out.append(eqn)
    return out[::-1]


def _trimmed(eqn: Equation, used: set[Any]) -> Equation:
    """Return a call without unused results and without the equations that only they need."""
    if eqn.primitive.name not in _FUNCTIONS or all(v in used for v in eqn.outvars):
        return eqn
    program = closed(eqn.params["jaxpr"])
    kept = [(v, x) for v, x in zip(eqn.outvars, program.jaxpr.outvars, strict=True) if v in used]
    inner = program.jaxpr.replace(outvars=[x for _, x in kept])
    inner = inner.replace(eqns=live_equations(inner))
    uses = [*(v for e in inner.eqns for v in e.invars), *inner.outvars]
    read = {v for v in uses if not isinstance(v, jex.Literal)}
    given = [(v, x) for v, x in zip(eqn.invars, inner.invars, strict=True) if x in read]
    inner = inner.replace(invars=[x for _, x in given])
    params = eqn.params | {"jaxpr": jex.ClosedJaxpr(inner, program.consts)}
    return eqn.replace(invars=[v for v, _ in given], outvars=[v for v, _ in kept], params=params)
