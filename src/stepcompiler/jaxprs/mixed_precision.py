"""Evaluate a function in single precision."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import core as jex
from jaxtyping import Array

from ..hints import HINTS
from .equations import callee

_SINGLE = {jnp.dtype("float64"): jnp.dtype("float32"), jnp.dtype("complex128"): jnp.dtype("complex64")}
_DOUBLE = {single: double for double, single in _SINGLE.items()}


def single_precision(fn: Callable[[Array], Array], x: Array) -> Array:
    """Return fn(x) for x in single precision: computed so if fn has no loops or branches, else in double precision."""
    x = x.astype(_SINGLE.get(x.dtype, x.dtype))
    wide = jax.ShapeDtypeStruct(x.shape, _DOUBLE[x.dtype])
    closed = jax.make_jaxpr(fn)(wide)
    if not _plain(closed.jaxpr):
        return fn(x.astype(wide.dtype))
    return _evaluate(closed.jaxpr, closed.consts, x)[0]


def _plain(jaxpr: Any) -> bool:
    """Whether every operation takes its precision from its operands."""
    for eqn in jaxpr.eqns:
        inner = list(jex.jaxprs_in_params(eqn.params))
        if inner and (not _inlined(eqn) or not all(map(_plain, inner))):
            return False
    return True


def _inlined(eqn: Any) -> bool:
    return eqn.primitive.name in ("jit", "pjit", "closed_call") or eqn.primitive in HINTS


def _narrowed(x: Any) -> Any:
    dtype = getattr(x, "dtype", None)
    return jnp.asarray(x, _SINGLE[dtype]) if dtype in _SINGLE else x


def _evaluate(jaxpr: Any, consts: Any, *args: Any) -> list:
    env = dict(zip([*jaxpr.constvars, *jaxpr.invars], map(_narrowed, [*consts, *args]), strict=True))

    def read(v: Any) -> Any:
        return _narrowed(jnp.asarray(v.val, getattr(v.aval, "dtype", None))) if isinstance(v, jex.Literal) else env[v]

    for eqn in jaxpr.eqns:
        values = [read(v) for v in eqn.invars]
        if _inlined(eqn):
            inner = callee(eqn)
            out = _evaluate(inner.jaxpr, inner.consts, *values)
        else:
            params = {k: _narrow_dtype(v) for k, v in eqn.params.items()}
            out = eqn.primitive.bind(*values, **params)
            out = out if eqn.primitive.multiple_results else [out]
        env.update(zip(eqn.outvars, out, strict=True))
    return [read(v) for v in jaxpr.outvars]


def _narrow_dtype(value: Any) -> Any:
    """The single-precision type for a type among the parameters of an operation."""
    try:
        return _SINGLE.get(jnp.dtype(value), value) if isinstance(value, (jnp.dtype, type)) else value
    except TypeError:
        return value
