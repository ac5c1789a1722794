"""Primitives that are made of others: what they are is written as a function for JAX."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from .kinds import LaneArray
from .refused import Refused


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(map(float, text.split()))


# M. Giles (2012), Approximating the erfinv function: polynomials in w = −log(1 − x²), as XLA has them.
_CENTRE = _numbers(
    """
    -3.6444120640178196996e-21 -1.685059138182016589e-19 1.2858480715256400167e-18 1.115787767802518096e-17
    -1.333171662854620906e-16 2.0972767875968561637e-17 6.6376381343583238325e-15 -4.0545662729752068639e-14
    -8.1519341976054721522e-14 2.6335093153082322977e-12 -1.2975133253453532498e-11 -5.4154120542946279317e-11
    1.051212273321532285e-09 -4.1126339803469836976e-09 -2.9070369957882005086e-08 4.2347877827932403518e-07
    -1.3654692000834678645e-06 -1.3882523362786468719e-05 0.0001867342080340571352 -0.00074070253416626697512
    -0.0060336708714301490533 0.24015818242558961693 1.6536545626831027356
    """
)
_TAIL = _numbers(
    """
    2.2137376921775787049e-09 9.0756561938885390979e-08 -2.7517406297064545428e-07 1.8239629214389227755e-08
    1.5027403968909827627e-06 -4.013867526981545969e-06 2.9234449089955446044e-06 1.2475304481671778723e-05
    -4.7318229009055733981e-05 6.8284851459573175448e-05 2.4031110387097893999e-05 -0.0003550375203628474796
    0.00095328937973738049703 -0.0016882755560235047313 0.0024914420961078508066 -0.0037512085075692412107
    0.005370914553590063617 1.0052589676941592334 3.0838856104922207635
    """
)
_FAR_TAIL = _numbers(
    """
    -2.7109920616438573243e-11 -2.5556418169965252055e-10 1.5076572693500548083e-09 -3.7894654401267369937e-09
    7.6157012080783393804e-09 -1.4960026627149240478e-08 2.9147953450901080826e-08 -6.7711997758452339498e-08
    2.2900482228026654717e-07 -9.9298272942317002539e-07 4.5260625972231537039e-06 -1.9681778105531670567e-05
    7.5995277030017761139e-05 -0.00021503011930044477347 -0.00013871931833623122026 1.0103004648645343977
    4.8499064014085844221
    """
)


def _polynomial(coefficients: tuple[float, ...], x: Array) -> Array:
    out = jnp.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        out = out * x + c
    return out


def _horner(x: Array, *coefficients: Array, unroll: int | None = None) -> Array:
    """JAX 0.12: Σ cₖ xᵏ, lowest first."""
    out = coefficients[-1]
    for c in coefficients[-2::-1]:
        out = out * x + c
    return out


def _erf_inv(x: Array) -> Array:
    w = -jnp.log1p(-x * x)
    root = jnp.sqrt(w)
    tail = jnp.where(w < 16.0, _polynomial(_TAIL, root - 3.25), _polynomial(_FAR_TAIL, root - 5.0))
    slope = jnp.where(w < 6.25, _polynomial(_CENTRE, w - 3.125), tail)
    return jnp.where(jnp.abs(x) == 1.0, x * jnp.inf, slope * x)


def _cumlogsumexp(x: Array, axis: int, reverse: bool) -> Array:
    rows = jnp.moveaxis(x, axis, 0)
    order = range(len(rows))[:: -1 if reverse else 1]
    out, total = [rows[0]] * len(rows), None
    for i in order:
        total = rows[i] if total is None else jnp.logaddexp(total, rows[i])
        out[i] = total
    return jnp.moveaxis(jnp.stack(out), 0, axis) if out else x


def _reduce_precision(x: Array, exponent_bits: int, mantissa_bits: int) -> Array:
    """Rounded to even at the last bit that is kept; then what is too large is ∞, and what is too small is 0."""
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


def _lu(a: Array) -> tuple[Array, Array, Array]:
    """P A = L U by elimination, the largest element of what is left of a column as its pivot."""
    if a.ndim != 2:
        raise Refused("`lu` of many matrices has no native rule.")
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


def _cholesky(a: Array) -> Array:
    """A = L Lᵀ, column by column."""
    if a.ndim != 2:
        raise Refused("`cholesky` of many matrices has no native rule.")
    n = len(a)
    L = jnp.zeros_like(a)
    for j in range(n):
        rest = a[j:, j] - L[j:, :j] @ L[j, :j]
        L = L.at[j:, j].set(jnp.concatenate([jnp.sqrt(rest[:1]), rest[1:] / jnp.sqrt(rest[0])]))
    return L


def _reduce_window(x: Array, *, start: Any, how: Callable, **params: Any) -> Array:
    """Sums, or the like, of what lies in windows."""
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


def _rule(function: Callable) -> Callable[..., list[LaneArray]]:
    def rule(evaluator: Any, eqn: Any, *xs: LaneArray) -> list[LaneArray]:
        structs = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in eqn.invars]
        return evaluator.evaluate(jax.make_jaxpr(partial(function, **eqn.params))(*structs), list(xs))

    return rule


RULES = {
    "cholesky": _rule(_cholesky),
    "cumlogsumexp": _rule(_cumlogsumexp),
    "erf_inv": _rule(_erf_inv),
    "lu": _rule(_lu),
    "one_minus_square": _rule(lambda x: (1 + x) * (1 - x)),
    "polynomial": _rule(_horner),
    "reduce_precision": _rule(_reduce_precision),
    "reduce_window_max": _rule(partial(_reduce_window, start=-np.inf, how=lax.max)),
    "reduce_window_min": _rule(partial(_reduce_window, start=np.inf, how=lax.min)),
    "reduce_window_sum": _rule(partial(_reduce_window, start=0.0, how=lax.add)),
}
