"""Primitives that are decomposed into others by a function for JAX."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from ..errors import NotCompilable
from ..jaxprs.equation_types import Equation
from .context import LoweringContext, rule
from .scalar_kinds import LaneArray


def _decomposed(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function of arrays, which is lowered in place of the primitive of this name."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        @rule(name)
        def lower(ctx: LoweringContext, eqn: Equation, *xs: LaneArray) -> list[LaneArray]:
            structs = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in eqn.invars]
            return ctx.evaluate(jax.make_jaxpr(partial(function, **eqn.params))(*structs), list(xs))

        return function

    return register


@_decomposed("polynomial")
def _horner(x: Array, *coefficients: Array, unroll: int | None = None) -> Array:
    """JAX 0.12: Σ cₖ xᵏ, lowest first."""
    out = coefficients[-1]
    for c in coefficients[-2::-1]:
        out = out * x + c
    return out


@_decomposed("cumlogsumexp")
def _cumlogsumexp(x: Array, axis: int, reverse: bool) -> Array:
    rows = jnp.moveaxis(x, axis, 0)
    order = range(len(rows))[:: -1 if reverse else 1]
    out, total = [rows[0]] * len(rows), None
    for i in order:
        total = rows[i] if total is None else jnp.logaddexp(total, rows[i])
        out[i] = total
    return jnp.moveaxis(jnp.stack(out), 0, axis) if out else x


@_decomposed("reduce_precision")
def _reduce_precision(x: Array, exponent_bits: int, mantissa_bits: int) -> Array:
    """Round to even at the last bit; values that are too large become ∞, and those that are too small 0."""
    info = jnp.finfo(x.dtype)
    integer = np.dtype(f"uint{info.bits}")
    bits = lax.bitcast_convert_type(x, integer)
    if (dropped := info.nmant - mantissa_bits) > 0:
        odd = (bits >> dropped) & integer.type(1)
        bits = (bits + (odd + integer.type((1 << (dropped - 1)) - 1))) & integer.type(
            ~((1 << dropped) - 1) % 2**info.bits
        )
    y = lax.bitcast_convert_type(bits, x.dtype)
    if exponent_bits < info.bits - 1 - info.nmant:
        bias = 2 ** (exponent_bits - 1) - 1
        least, most = 2.0 ** (1 - bias), 2.0**bias * (2 - 2.0**-mantissa_bits)
        y = jnp.where(jnp.abs(y) > most, jnp.copysign(jnp.inf, x), y)
        y = jnp.where(jnp.abs(y) < least, jnp.copysign(0.0, x), y)
    return jnp.where(jnp.isnan(x), x, y)


@_decomposed("lu")
def _lu(a: Array) -> tuple[Array, Array, Array]:
    """P A = L U by elimination with partial pivoting."""
    if a.ndim != 2:
        raise NotCompilable.operation("lu", ", of many matrices at once")
    m, n = a.shape
    pivots: list[Any] = []
    permutation: list[Any] = list(range(m))
    rows = [a[i] for i in range(m)]
    for k in range(min(m, n)):
        p = k + jnp.argmax(jnp.abs(jnp.stack([r[k] for r in rows[k:]])))
        pivots.append(p)
        for i in range(k + 1, m):
            here = p == i
            rows[k], rows[i] = jnp.where(here, rows[i], rows[k]), jnp.where(here, rows[k], rows[i])
            a_k, a_i = permutation[k], permutation[i]
            permutation[k], permutation[i] = jnp.where(here, a_i, a_k), jnp.where(here, a_k, a_i)
        for i in range(k + 1, m):
            factor = jnp.where(rows[k][k] == 0.0, 0.0, rows[i][k] / rows[k][k])
            rows[i] = jnp.concatenate([rows[i][:k], factor[None], rows[i][k + 1 :] - factor * rows[k][k + 1 :]])
    order = [jnp.asarray(p, jnp.int32) for p in permutation]
    return jnp.stack(rows), jnp.stack(pivots).astype(jnp.int32), jnp.stack(order)


@_decomposed("cholesky")
def _cholesky(a: Array) -> Array:
    """A = L Lᵀ, column by column."""
    if a.ndim != 2:
        raise NotCompilable.operation("cholesky", " of many matrices at once")
    n = len(a)
    L = jnp.zeros_like(a)
    for j in range(n):
        rest = a[j:, j] - L[j:, :j] @ L[j, :j]
        L = L.at[j:, j].set(jnp.concatenate([jnp.sqrt(rest[:1]), rest[1:] / jnp.sqrt(rest[0])]))
    return L


def _reduce_window(x: Array, *, start: Any, how: Callable[..., Any], **params: Any) -> Array:
    """Reduce the elements of windows, for example to their sums."""
    inside = [d - 1 for d in params["base_dilation"]]
    x = lax.pad(x, jnp.asarray(start, x.dtype), [(*p, i) for p, i in zip(params["padding"], inside, strict=True)])
    sizes, dilation = params["window_dimensions"], params["window_dilation"]
    spans = [(n - 1) * d for n, d in zip(sizes, dilation, strict=True)]
    out = None
    for at in np.ndindex(*sizes):
        first = [i * d for i, d in zip(at, dilation, strict=True)]
        last = [f + n - s for f, n, s in zip(first, x.shape, spans, strict=True)]
        piece = lax.slice(x, first, last, params["window_strides"])
        out = piece if out is None else how(out, piece)
    return jnp.zeros(()) if out is None else out


@_decomposed("one_minus_square")
def one_minus_square(x: Array) -> Array:
    """1 − x² without cancellation: JAX 0.12 differentiates tanh by it."""
    return (1 + x) * (1 - x)


_decomposed("reduce_window_max")(partial(_reduce_window, start=-np.inf, how=lax.max))
_decomposed("reduce_window_min")(partial(_reduce_window, start=np.inf, how=lax.min))
_decomposed("reduce_window_sum")(partial(_reduce_window, start=0.0, how=lax.add))
