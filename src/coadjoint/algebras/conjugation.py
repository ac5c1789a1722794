"""e^{−σ} μ e^σ for large skew-Hermitian matrices, inversion-free, with its derivatives.

The derivative of e^σ along δ is e^σ ω with ω = φ₁(−ad_σ) δ, φ₁(z) = (eᶻ − 1)/z, so that the state w = e^{−σ} μ e^σ
moves by [w, ω]. No derivative of an eigenvalue problem, of a Taylor polynomial or of squarings is formed.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Complex

from stepcompiler.derivatives import custom_derivative

from ..numerics.split_complex import Level, Pair, norm, pair, product, skew, unpair
from .exponentials import expm

Matrix = Complex[Array, "n n"]

_HALF = 0.5  # largest norm of the argument of a series
_MOST = 24  # terms of a series at such norms, far more than round-off leaves
_MOST_HALVINGS = 20  # the exponential is NaN beyond norm 2^19
_ROUND_OFF = 1e-18


@custom_derivative
def conjugated(sigma: Matrix, mu: Matrix) -> Matrix:
    """e^{−σ} μ e^σ for skew-Hermitian σ and μ, by eigenvectors."""
    lam, v = jnp.linalg.eigh(-1j * sigma)
    u = (v * jnp.exp(1j * lam)) @ _dagger(v)
    return _dagger(u) @ mu @ u


@conjugated.def_rule
def _conjugated_slope(out, primals, tangents):
    """e^{−σ} δμ e^σ + [w, ω]; eigenvectors are not needed."""
    (sigma, mu), (dsigma, dmu) = primals, tangents
    n, part = len(mu), part_of_exponential(sigma)
    u = pair(exponential(sigma, part))
    moved = lambda x: product(_pair_dagger(u), product(pair(x), u, Level.DOUBLE), Level.DOUBLE)
    slope = jnp.zeros_like(out) if dmu is None else unpair(moved(dmu), n)
    if dsigma is not None:
        slope = slope + unpair(skew(product(moved(mu), pair(mean(sigma, part, dsigma)), Level.DOUBLE)), n)
    return slope


def part_of_exponential(sigma: Matrix) -> Matrix:
    """exp(σ/2ᵏ), of which the exponential and its mean are made, as a constant: both have derivatives of their own."""
    s, _ = _scaled(jax.lax.stop_gradient(sigma))
    one = pair(jnp.eye(len(sigma), dtype=sigma.dtype))
    return unpair(one + _series(lambda x, j: product(s, x, Level.DOUBLE) / j, s, 2), len(sigma))


@custom_derivative
def exponential(sigma: Matrix, part: Matrix) -> Matrix:
    """e^σ of a skew-Hermitian matrix: `part`, a Taylor polynomial of σ/2ᵏ, after k squarings."""
    _, k = _scaled(sigma)
    squared = jax.lax.fori_loop(0, k, lambda _, x: product(x, x, Level.DOUBLE), pair(part))
    return jnp.where(k < _MOST_HALVINGS, unpair(squared, len(sigma)), jnp.nan)


@exponential.def_rule
def _exponential_slope(out, primals, tangents):
    """e^σ ω."""
    return out @ mean(*primals, tangents[0])


@custom_derivative
def mean(sigma: Matrix, part: Matrix, x: Matrix) -> Matrix:
    """φ₁(−ad_σ) x = x − ½ [σ, x] + (1/6) [σ, [σ, x]] − … for skew-Hermitian matrices.

    Of a large σ it is the mean of e^{−jσ/N} φ₁(−ad_{σ/N}) x e^{jσ/N} over j = 0 … N − 1, N = 2ᵏ; `part` = e^{σ/N}.
    """
    s, k = _scaled(sigma)
    X = pair(x)
    first = X + _series(
        lambda y, j: skew(product(s, y, Level.DOUBLE)) / -j, -0.5 * skew(product(s, X, Level.DOUBLE)), 3
    )

    def doubled(_: Array, state: tuple[Pair, Pair]) -> tuple[Pair, Pair]:
        """The mean over twice the time, from that over the first half and the exponential of it."""
        total, u = state
        moved = product(_pair_dagger(u), product(total, u, Level.DOUBLE), Level.DOUBLE)
        return 0.5 * (total + moved), product(u, u, Level.DOUBLE)

    total, _ = jax.lax.fori_loop(0, k, doubled, (first, pair(part)))
    return jnp.where(k < _MOST_HALVINGS, unpair(total, len(sigma)), jnp.nan)


@mean.def_rule
def _mean_slope(out, primals, tangents):
    """φ₁(−ad_σ) x = e^{−σ} D exp(σ) x, whose derivative in σ is that of explicit products."""
    (sigma, part, x), (dsigma, _, dx) = primals, tangents
    slope = jnp.zeros_like(out) if dx is None else mean(sigma, part, dx)
    if dsigma is not None:
        explicit = lambda s: expm(-s) @ jax.jvp(expm, (s,), (x,))[1]
        slope = slope + jax.jvp(explicit, (sigma,), (dsigma,))[1]
    return slope


@mean.def_transpose(2)
def _mean_transposed(sigma, part, ct):
    """φ₁(−ad_{σᵀ}), since Σ [σ, x]_ij y_ij = Σ x_ij [σᵀ, y]_ij; of y only the skew-Hermitian part meets x."""
    return mean(sigma.T, part.T, 0.5 * (ct - _dagger(ct)))


def _scaled(sigma: Matrix) -> tuple[Pair, Array]:
    """σ/2ᵏ of norm at most ½, and k."""
    s = pair(sigma)
    halvings = jnp.ceil(jnp.log2(jnp.maximum(norm(s) / _HALF, 1.0)))
    k = jnp.clip(jnp.where(jnp.isfinite(halvings), halvings, _MOST_HALVINGS), 0, _MOST_HALVINGS).astype(int)
    return s * 2.0 ** -k.astype(float), k


def _series(next_term, term: Pair, first: int) -> Pair:
    """The sum of terms that decrease, from this one on."""
    small = _ROUND_OFF * jnp.maximum(norm(term), 1e-300)

    def further(state: tuple) -> tuple:
        term, total, j = state
        term = next_term(term, j.astype(float))
        return term, total + term, j + 1

    going = lambda state: (norm(state[0]) > small) & (state[2] < first + _MOST)
    return jax.lax.while_loop(going, further, (term, term, jnp.asarray(first)))[1]


def _dagger(a: Matrix) -> Matrix:
    return jnp.conj(a.T)


def _pair_dagger(u: Pair) -> Pair:
    return jnp.stack([u[0].T, -u[1].T])
