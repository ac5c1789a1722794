"""Casimirs that follow from the bracket alone: how many there are, the polynomial ones, and keeping them."""

from functools import lru_cache
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from stepcompiler.device_arrays import compile_and_run
from stepcompiler.hints import likely

from .constants import structure_constants

if TYPE_CHECKING:
    from .base import LieAlgebra

_CURE_ULPS = 16.0  # the largest correction of a step, in units of eps·|μ|
_LARGEST_SEARCH = 40  # dimension up to which unknown Casimirs are searched for


def clip_correction(correction: Array, size2: Float[Array, ""], mu2: Float[Array, ""]) -> Array:
    """A correction of squared size `size2`, limited to a few ulps of |μ|, so that it removes round-off only."""
    limit2 = (_CURE_ULPS * jnp.finfo(jnp.float64).eps) ** 2 * mu2
    fits = likely(size2 <= limit2)
    cut = jnp.where(
        jnp.isfinite(size2) & (size2 > 0), correction * jnp.sqrt(limit2 / jnp.where(size2 > 0, size2, 1.0)), 0.0
    )
    return jnp.where(fits, correction, cut)


def project_casimirs(algebra: "LieAlgebra", mu: Array, values: Float[Array, " k"]) -> Array:
    """One Newton step towards the level set of the Casimirs, regularised where their gradients are dependent.

    δμ = −Gᵀ (G Gᵀ + λ)⁻¹ (C(μ) − values), G = DC(μ), λ a hundredth of the largest squared gradient: where the Casimirs
    are independent an error shrinks a hundredfold per step; where they are not, round-off is not amplified.
    """
    if len(values) == 0:
        return mu
    error = algebra.casimirs(mu) - values
    G = jax.jacrev(algebra.casimirs)(mu)
    size2 = jnp.sum(G * G, axis=1)
    scale = jax.lax.rsqrt(jnp.where(size2 > 0, size2, 1.0))
    G, error = scale[:, None] * G, scale * error
    M = G @ G.T + 0.01 * jnp.eye(len(error))
    step = -G.T @ _solve_positive(M, error)
    return mu + jax.lax.stop_gradient(clip_correction(step, jnp.sum(step * step), jnp.sum(mu * mu)))


def _solve_positive(M: Float[Array, "k k"], b: Float[Array, " k"]) -> Float[Array, " k"]:
    """M⁻¹ b for a positive definite M, by elimination written out: k is small, LAPACK costs more."""
    k = len(b)
    a = [[*(M[i, j] for j in range(k)), b[i]] for i in range(k)]
    for p in range(k):
        pivot = 1.0 / a[p][p]
        a[p] = [pivot * x for x in a[p]]
        for i in range(k):
            if i != p:
                a[i] = [x - a[i][p] * y for x, y in zip(a[i], a[p], strict=True)]
    return jnp.stack([row[k] for row in a])


@lru_cache(maxsize=256)
def index(algebra: "LieAlgebra") -> int:
    """The corank of J(μ) at a generic μ."""
    C = structure_constants(algebra)
    generic = np.random.default_rng(0).standard_normal((3, algebra.dim))
    return algebra.dim - max(np.linalg.matrix_rank(np.einsum("ijk,k->ij", C, mu)) for mu in generic)


@lru_cache(maxsize=256)
def knows_all_casimirs(algebra: "LieAlgebra") -> bool:
    """Whether the Casimirs that steps can be brought back to fix the orbit of a generic state.

    Some may depend on others. Of those that are found these are the linear and quadratic ones.
    """
    if algebra.casimirs_are_found:
        return low_casimirs_suffice(algebra)
    return algebra.index == 0 or independent_casimirs(algebra) >= algebra.index


@lru_cache(maxsize=256)
def independent_casimirs(algebra: "LieAlgebra") -> int:
    """The rank of the derivatives of all known Casimirs at a generic state."""
    if not algebra.casimir_names:
        return 0
    generic = np.random.default_rng(1).standard_normal(algebra.dim)
    G = np.asarray(compile_and_run(jax.jacrev(lambda c: algebra.casimirs(algebra.element(c))), generic))
    return min(_rank(G), algebra.index)


@lru_cache(maxsize=256)
def low_casimirs_suffice(algebra: "LieAlgebra") -> bool:
    """Whether linear and quadratic Casimirs fix the orbit of a generic state."""
    generic = np.random.default_rng(1).standard_normal(algebra.dim)
    linear, quadratic = polynomial_casimirs(algebra)
    gradients = np.concatenate([linear, 2.0 * quadratic @ generic])
    return algebra.index == 0 or (len(gradients) >= algebra.index and _rank(gradients) >= algebra.index)


def _rank(rows: np.ndarray) -> int:
    """The rank of vectors of any lengths."""
    return int(np.linalg.matrix_rank(rows / np.linalg.norm(rows, axis=1, keepdims=True), rtol=1e-9))


@lru_cache(maxsize=256)
def polynomial_casimirs(algebra: "LieAlgebra") -> tuple[np.ndarray, np.ndarray]:
    """Linear Casimirs (rows z, the centre) and quadratic ones (symmetric Q) that are not products of linear ones.

    <μ, z> is a Casimir when [ξ, z] = 0 for all ξ, μᵀQμ when a_ξ Q + Q a_ξᵀ = 0 with a_ξ the matrix of ad_ξ. Both are
    null spaces; a few random ξ generate the equations, and the result is checked on all basis elements.
    """
    n = algebra.dim
    C = structure_constants(algebra)
    ad = C.transpose(0, 2, 1)  # ad[i] is the matrix of ad_{e_i}
    linear = null_space(ad.reshape(n * n, n))
    if n > _LARGEST_SEARCH:
        return linear, np.zeros((0, n, n))
    rows, columns = np.triu_indices(n)
    units = np.zeros((len(rows), n, n))
    units[np.arange(len(rows)), rows, columns] = 1.0
    units[np.arange(len(rows)), columns, rows] = 1.0
    random = np.random.default_rng(0).standard_normal((min(n, 4), n))
    xis = np.einsum("ri,ikj->rkj", random, ad)
    equations = [(xi @ units + units @ xi.T).reshape(len(rows), -1).T for xi in xis]
    found = null_space(np.concatenate(equations))
    if len(linear):
        products = np.array([np.outer(a, b) + np.outer(b, a) for a in linear for b in linear])[:, rows, columns]
        q, s, _ = np.linalg.svd(products.T, full_matrices=False)
        q = q[:, s > 1e-10 * s[0]]
        found = null_space(np.concatenate([_complement(found), q.T]))
    quadratic = np.einsum("kr,rij->kij", found, units)
    residual = np.einsum("ial,klb->ikab", ad, quadratic) + np.einsum("kal,ibl->ikab", quadratic, ad)
    whole = np.max(np.abs(residual), axis=(0, 2, 3), initial=0.0) < 1e-9
    return linear, quadratic[whole]


def _complement(rows: np.ndarray) -> np.ndarray:
    """An orthonormal basis of the orthogonal complement of the rows."""
    if len(rows) == 0:
        return np.eye(rows.shape[1])
    if rows.shape[0] > rows.shape[1]:
        rows = np.asarray(np.linalg.qr(rows, mode="r"))  # the same null space, without a huge U below
    _, s, vt = np.linalg.svd(rows)
    return vt[int(np.sum(s > 1e-10 * s[0])) :]


def null_space(equations: np.ndarray) -> np.ndarray:
    """A basis of the null space in reduced row-echelon form: sparse, and the same for every algorithm."""
    return echelon(_complement(equations) if np.any(equations) else np.eye(equations.shape[1]))


def echelon(basis: np.ndarray) -> np.ndarray:
    """The rows in reduced row-echelon form."""
    basis = basis.copy()
    row = 0
    for column in range(basis.shape[1]):
        if row == len(basis):
            break
        pivot = row + int(np.argmax(np.abs(basis[row:, column])))
        if abs(basis[pivot, column]) < 1e-9:
            continue
        basis[[row, pivot]] = basis[[pivot, row]]
        basis[row] /= basis[row, column]
        others = np.arange(len(basis)) != row
        basis[others] -= np.outer(basis[others, column], basis[row])
        row += 1
    nearest = np.round(basis * 60) / 60  # small rationals, as they are for integer structure constants
    return np.where(np.abs(basis - nearest) < 1e-9, nearest, basis)
