"""Exponentials that follow from the bracket alone: exp(ad*_σ) μ, in double-double too, and functions of a matrix."""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from stepcompiler.derivatives import custom_derivative
from stepcompiler.hints import likely

from ..numerics import doubledouble as dd
from .constants import structure_constants

if TYPE_CHECKING:
    from .base import LieAlgebra

_DEGREES = ((0.0, 8.0), (0.05, 12.0), (0.28, 19.0))  # of Taylor's polynomial of exp above a norm, for an error of 1e-17
_SMALL = 7  # dimensions for which a product of matrices is little code
_MOST_SUBSTEPS = (64, 2**12)  # in small dimensions, where exp(a) is formed beyond, and in others, where it is NaN
_MOST_SQUARINGS = 20  # exp(a) is NaN beyond norm 2^20


@custom_derivative
def flow(algebra: "LieAlgebra", sigma: Float[Array, " dim"], mu: Float[Array, " dim"]) -> Float[Array, " dim"]:
    """exp(ad*_σ) μ in coordinates."""
    a = algebra.ad(algebra.element(sigma)).T
    return taylor(a, jnp.sum(a * a), mu)


@custom_derivative
def dual_flow(algebra: "LieAlgebra", sigma: Float[Array, " dim"], zeta: Float[Array, " dim"]) -> Float[Array, " dim"]:
    """exp(ad_σ) ζ in coordinates, the transpose of `flow`."""
    a = algebra.ad(algebra.element(sigma))
    return taylor(a, jnp.sum(a * a), zeta)


def taylor(a: Array, norm2: Float[Array, ""], v: Array) -> Array:
    """exp(a) v by substeps of norm at most one, each a Taylor polynomial of high enough degree; norm2: |a|².

    Where these would be too many, as when an iteration has lost its way, exp(a) is formed by squarings. For vectors of
    more than seven numbers that is more code than native code supports, and the result is NaN beyond norm 4096.
    """
    substeps, degree = _substeps(norm2)
    most = _most(v)
    out = jax.lax.fori_loop(0, _count(substeps, most), lambda _, v: _polynomial(a, v, substeps, degree), v)
    if v.ndim == 2:
        return _unless_many(substeps, most, out, lambda: _squared(a, substeps) @ v)
    return _unless_many(substeps, most, out, lambda: expm(a) @ v)


def _substeps(norm2: Float[Array, ""]) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """How many substeps, and the degree of the polynomial of each."""
    one = likely(norm2 <= 1.0)
    substeps = jnp.where(one, 1.0, jnp.ceil(jnp.sqrt(jnp.where(jnp.isfinite(norm2), norm2, 1.0))))
    size2 = jnp.where(one, norm2, 1.0)
    least, *more = _DEGREES
    degree = functools.reduce(lambda d, step: jnp.where(size2 > step[0] ** 2, step[1], d), more, jnp.asarray(least[1]))
    return substeps, degree


def _most(v: Array) -> int:
    """The most substeps: fewer where exp(a) is formed beyond them."""
    return _MOST_SUBSTEPS[v.ndim == 1 and len(v) > _SMALL]


def _count(substeps: Float[Array, ""], most: int) -> Int[Array, ""]:
    """How many of them are taken."""
    return jnp.where(substeps > most, 0.0, substeps).astype(int)


def _unless_many(substeps: Float[Array, ""], most: int, out: Array, formed: Callable[[], Array]) -> Array:
    """What substeps gave, unless they were too many. A loop, for under vmap a branch would be both its sides."""
    if most > _MOST_SUBSTEPS[0]:
        return jnp.where(substeps > most, jnp.nan, out)
    again = lambda state: (formed(), jnp.zeros((), bool))
    return jax.lax.while_loop(lambda state: state[1], again, (out, substeps > most))[0]


def _squared(a: Array, norm: Float[Array, ""]) -> Array:
    """exp(a) by squarings in a loop, which is little code; NaN beyond norm 2²⁰."""
    squarings = jnp.ceil(jnp.log2(norm))
    fits = squarings <= _MOST_SQUARINGS
    scale = jnp.where(fits, 2.0**squarings, 1.0)
    start = _polynomial(a, jnp.eye(len(a), dtype=a.dtype), scale, jnp.asarray(_DEGREES[-1][1]))
    more = lambda state: fits & (state[0] < squarings)
    e = jax.lax.while_loop(more, lambda state: (state[0] + 1.0, state[1] @ state[1]), (jnp.zeros(()), start))[1]
    return jnp.where(fits, e, jnp.nan)


def _polynomial(a: Array, v: Array, substeps: Array, degree: Array, order: float = 0.0) -> Array:
    """Of φ(a/substeps) v, φ(z) = Σ_k zᵏ order!/(k + order)!, by Horner's rule: exp, or of order 1 (eᶻ − 1)/z."""

    def horner(state):
        k, total = state
        return k - 1.0, v + a @ total * (1.0 / (k * substeps))

    return jax.lax.while_loop(lambda state: state[0] > order, horner, (degree + order, v))[1]


@custom_derivative
def mean_flow(a: Float[Array, "n n"], v: Float[Array, " n"]) -> Float[Array, " n"]:
    """φ₁(a) v = ∫₀¹ exp(ta) v dt, φ₁(z) = (eᶻ − 1)/z: of N substeps the mean of exp(ja/N) φ₁(a/N) v, j < N."""
    substeps, degree = _substeps(jnp.sum(a * a))
    first = _polynomial(a, v, substeps, degree, order=1.0)

    def add(_, state):
        moved, total = state
        moved = _polynomial(a, moved, substeps, degree)
        return moved, total + moved

    most = _most(v)
    out = jax.lax.fori_loop(1, _count(substeps, most), add, (first, first))[1] / substeps
    return _unless_many(substeps, most, out, lambda: phi1(a) @ v)


@mean_flow.def_rule
def _mean_flow_slope(out, primals, tangents):
    """With explicit matrices, hence transposable, where `a` changes."""
    (a, v), (da, dv) = primals, tangents
    tangent = jnp.zeros_like(out) if dv is None else mean_flow(a, dv)
    return tangent if da is None else tangent + jax.jvp(lambda a: phi1(a) @ v, (a,), (da,))[1]


@flow.def_rule
def _flow_slope(out, primals, tangents):
    """exp(ad*_σ) δμ + ad*_{dexp_{−σ} δσ} flow(σ, μ), by series on vectors."""
    algebra, sigma, mu = primals
    _, dsigma, dmu = tangents
    tangent = jnp.zeros_like(mu) if dmu is None else flow(algebra, sigma, dmu)
    if dsigma is not None:
        mean = mean_flow(-algebra.ad(algebra.element(sigma)), dsigma)
        tangent -= algebra.poisson(algebra.element(out)) @ mean
    return tangent


@dual_flow.def_rule
def _dual_flow_slope(out, primals, tangents):
    """exp(ad_σ) δζ + [dexp_σ δσ, exp(ad_σ) ζ]."""
    algebra, sigma, zeta = primals
    _, dsigma, dzeta = tangents
    tangent = jnp.zeros_like(zeta) if dzeta is None else dual_flow(algebra, sigma, dzeta)
    if dsigma is not None:
        mean = mean_flow(algebra.ad(algebra.element(sigma)), dsigma)
        tangent -= algebra.ad(algebra.element(out)) @ mean
    return tangent


mean_flow.def_transpose(1)(lambda a, ct: mean_flow(a.T, ct))
flow.def_transpose(2)(dual_flow)
dual_flow.def_transpose(2)(flow)


@custom_derivative
def flow_doubledouble(algebra: "LieAlgebra", sigma: Array, mu: Array, low: Array) -> tuple[Array, Array]:
    """exp(ad*_σ) (μ + low) in double-double and in coordinates: high and low words."""
    constants = jnp.asarray(structure_constants(algebra).transpose(1, 2, 0))
    hi, lo = dd.expm_action(dd.contract(constants, sigma), dd.DoubleDouble(mu, low))
    return hi, lo


@flow_doubledouble.def_rule
def _flow_doubledouble_slope(out, primals, tangents):
    """The low words are round-off: their derivative is zero."""
    high, low = out
    return _flow_slope(high, primals[:3], tangents[:3]), jnp.zeros_like(low)


def expm(a: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """exp(a): a Taylor polynomial at norm at most one, then squarings.

    `jax.scipy.linalg.expm` squares once too little and is wrong by up to 1e-8 from norm 6 on.
    """
    norm = jax.lax.stop_gradient(jnp.max(jnp.sum(jnp.abs(a), axis=0)))
    squarings = jnp.ceil(jnp.log2(jnp.maximum(norm, 1.0)))
    a = a * 2.0**-squarings
    one = jnp.eye(a.shape[0], dtype=a.dtype)
    e = jax.lax.fori_loop(0, 18, lambda i, e: one + a @ e / (18.0 - i), one)

    def square(i, e):  # no `cond`: JAX cannot transpose the derivative of one that `vmap` has turned into a selection
        wanted = i < squarings
        x = jnp.where(wanted, e, 0.0)  # else e @ e may be infinite, and its derivative not a number
        return jnp.where(wanted, x @ x, e)

    e = jax.lax.fori_loop(0, _MOST_SQUARINGS, square, e)
    return jnp.where(squarings <= _MOST_SQUARINGS, e, jnp.nan)


def phi1(a: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """(exp(a) − 1)/a, from the exponential of an augmented matrix."""
    n = a.shape[0]
    augmented = jnp.zeros((2 * n, 2 * n)).at[:n, :n].set(a).at[:n, n:].set(jnp.eye(n))
    return expm(augmented)[:n, n:]
