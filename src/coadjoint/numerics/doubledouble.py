"""Double-double arithmetic: a number as an unevaluated sum hi + lo, about 32 digits.

References: Dekker, Numerische Mathematik 18 (1971); Hida, Li and Bailey, ARITH-15 (2001).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


class DoubleDouble(NamedTuple):
    """hi + lo with |lo| ≤ ulp(hi)/2."""

    hi: Float[Array, "..."]
    lo: Float[Array, "..."]


def two_sum(a: Array, b: Array) -> DoubleDouble:
    """a + b exactly (Knuth)."""
    s = a + b
    v = s - a
    return DoubleDouble(s, (a - (s - v)) + (b - v))


def fast_two_sum(a: Array, b: Array) -> DoubleDouble:
    """a + b exactly for |a| ≥ |b| (Dekker)."""
    s = a + b
    return DoubleDouble(s, b - (s - a))


def _split(a: Array) -> tuple[Array, Array]:
    """The upper 26 bits of a, and the rest: by a mask, which no contraction can undo."""
    hi = jax.lax.bitcast_convert_type(jax.lax.bitcast_convert_type(a, jnp.int64) & ~0x7FFFFFF, jnp.float64)
    return hi, a - hi


def two_prod(a: Array, b: Array) -> DoubleDouble:
    """a·b to 2^-105, as the sum of the products of the halves.

    Those products are exact (the last one to one bit), so that it makes no difference where the compiler contracts
    a product and a sum into one fused operation; Dekker's form, which needs the rounded a·b, is broken by that.
    """
    ah, al = _split(a)
    bh, bl = _split(b)
    s = two_sum(ah * bh, ah * bl)
    t = two_sum(s.hi, al * bh)
    return fast_two_sum(t.hi, t.lo + s.lo + al * bl)


def add(x: DoubleDouble, y: DoubleDouble) -> DoubleDouble:
    """x + y, with an error below 2^-104 (|x| + |y|)."""
    s = two_sum(x.hi, y.hi)
    t = two_sum(x.lo, y.lo)
    s = fast_two_sum(s.hi, s.lo + t.hi)
    return fast_two_sum(s.hi, s.lo + t.lo)


def multiply(x: DoubleDouble, y: DoubleDouble) -> DoubleDouble:
    """x·y, with a relative error below 2^-102."""
    p = two_prod(x.hi, y.hi)
    return fast_two_sum(p.hi, p.lo + (x.hi * y.lo + x.lo * y.hi))


def _sum_last(x: DoubleDouble) -> DoubleDouble:
    """Sum over the last axis, by a loop: additions in order."""

    def body(k, acc):
        return add(acc, DoubleDouble(x.hi[..., k], x.lo[..., k]))

    zero = jnp.zeros(x.hi.shape[:-1])
    return jax.lax.fori_loop(0, x.hi.shape[-1], body, DoubleDouble(zero, zero))


def contract(tensor: Float[Array, "m n i"], vector: Float[Array, " i"]) -> DoubleDouble:
    """Σ_i tensor[m, n, i] vector[i] in double-double, from plain doubles."""
    return _sum_last(two_prod(tensor, jnp.broadcast_to(vector, tensor.shape)))


def matvec(a: DoubleDouble, v: DoubleDouble) -> DoubleDouble:
    """The matrix a times the vector v."""
    row = DoubleDouble(jnp.broadcast_to(v.hi, a.hi.shape), jnp.broadcast_to(v.lo, a.hi.shape))
    return _sum_last(multiply(a, row))


def expm_action(a: DoubleDouble, v: DoubleDouble) -> DoubleDouble:
    """exp(a) v: substeps of norm at most one, each a Taylor series summed until it no longer changes."""
    substeps = jnp.maximum(jnp.ceil(jnp.max(jnp.sum(jnp.abs(a.hi), axis=0))), 1.0)

    def unfinished(state):
        k, term, total = state
        return (jnp.max(jnp.abs(term.hi)) > 1e-33 * jnp.max(jnp.abs(total.hi))) & (k < 60.0)

    def add_term(state):
        k, term, total = state
        term = _divide(matvec(a, term), k * substeps)
        return k + 1.0, term, add(total, term)

    def substep(_, v):
        return jax.lax.while_loop(unfinished, add_term, (1.0, v, v))[2]

    return jax.lax.fori_loop(0, substeps.astype(int), substep, v)


def _divide(x: DoubleDouble, d: Array) -> DoubleDouble:
    q = x.hi / d
    p = two_prod(q, jnp.broadcast_to(d, q.shape))
    return fast_two_sum(q, ((x.hi - p.hi) - p.lo + x.lo) / d)
