"""Evaluate a function in single precision."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import core as jex
from jaxtyping import Array

from .equation_types import Equation
from .equations import inner_programs
from .interpreter import Interpreter, jits_and_hints

_SINGLE = {jnp.dtype("float64"): jnp.dtype("float32"), jnp.dtype("complex128"): jnp.dtype("complex64")}
_DOUBLE = {single: double for double, single in _SINGLE.items()}


def single_precision(fn: Callable[[Array], Array], x: Array) -> Array:
    """Return fn(x) for x in single precision: computed so if fn has no loops or branches, else in double precision."""
    x = x.astype(_SINGLE.get(x.dtype, x.dtype))
    wide = jax.ShapeDtypeStruct(x.shape, _DOUBLE[x.dtype])
    closed = jax.make_jaxpr(fn)(wide)
    if not _plain(closed.jaxpr):
        return fn(x.astype(wide.dtype))
    return _NARROW.evaluate(closed, [_narrowed(x)])[0]


def _plain(jaxpr: Any) -> bool:
    """Whether every operation takes its precision from its operands."""
    for eqn in jaxpr.eqns:
        inner = inner_programs(eqn.params)
        if inner and not (_inlined(eqn) and all(_plain(program.jaxpr) for program in inner)):
            return False
    return True


def _inlined(eqn: Equation) -> bool:
    return jits_and_hints(eqn) or eqn.primitive.name == "closed_call"


def _narrowed(x: Any) -> Any:
    dtype = getattr(x, "dtype", None)
    return jnp.asarray(x, _SINGLE[dtype]) if dtype in _SINGLE else x


def _equation(jaxpr: jex.Jaxpr, eqn: Equation, values: list) -> list:
    params = {k: _narrow_dtype(v) for k, v in eqn.params.items()}
    out = eqn.primitive.bind(*values, **params)
    return out if eqn.primitive.multiple_results else [out]


def _narrow_dtype(value: Any) -> Any:
    """The single-precision type for a type among the parameters of an operation."""
    try:
        return _SINGLE.get(jnp.dtype(value), value) if isinstance(value, (jnp.dtype, type)) else value
    except TypeError:
        return value


_NARROW = Interpreter(
    _equation,
    inline=_inlined,
    constant=_narrowed,
    literal=lambda v: _narrowed(jnp.asarray(v.val, getattr(v.aval, "dtype", None))),
)
