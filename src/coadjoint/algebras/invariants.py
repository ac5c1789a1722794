"""Casimirs of degree 3 and 4, and simple rational ones, found as null spaces: for reports, not for the steps."""

from functools import lru_cache
from itertools import combinations_with_replacement
from typing import TYPE_CHECKING, NamedTuple

import jax
import numpy as np

from .casimirs import echelon, low_casimirs_suffice, null_space, polynomial_casimirs
from .constants import structure_constants

if TYPE_CHECKING:
    from .base import LieAlgebra

_DEGREES = 3, 4
_MOST_MONOMIALS = 4000  # beyond which no degree is searched
_DENSE_MONOMIALS = 150  # up to which a plain null space is quick
_LARGEST_POWER = 8  # of the adjoint representation whose trace is compared
_SMALLEST = 1e-100  # denominator whose square is a number
_MOST_FOUND = 16  # invariants of one degree, products of others included


class Invariant(NamedTuple):
    """A Casimir p or p/q: p is the sum of coefficients times products of the coordinates in a row; q likewise."""

    terms: np.ndarray  # (number of terms, degree): which coordinates are multiplied
    coefficients: np.ndarray
    below: "Invariant | None" = None


@lru_cache(maxsize=256)
def higher_casimirs(algebra: "LieAlgebra") -> tuple[Invariant, ...]:
    """Casimirs beyond the linear and quadratic ones, as many as are found and needed to fix a generic orbit.

    p is a Casimir when {p, μ_i} = 0 for all i: linear equations for the coefficients of p, degree by degree. What does
    not depend on Casimirs already known, at a generic state, is kept.
    """
    if low_casimirs_suffice(algebra):
        return ()
    generic = np.random.default_rng(2).standard_normal(algebra.dim)
    linear, quadratic = polynomial_casimirs(algebra)
    rows = [*linear, *(2.0 * Q @ generic for Q in quadratic)]
    found: list[Invariant] = []
    candidates = (p for search in (_rational, *(_of_degree(d) for d in _DEGREES)) for p in search(algebra))
    while _rank(rows) < algebra.index:
        p = next(candidates, None)
        if p is None:
            break
        gradient = _gradient(p, generic)
        if _rank([*rows, gradient]) > _rank(rows):
            rows.append(gradient)
            found.append(p)
    return tuple(found)


def _rank(rows: list[np.ndarray]) -> int:
    if not rows:
        return 0
    sizes = [max(float(np.linalg.norm(r)), 1e-300) for r in rows]
    return int(np.linalg.matrix_rank(np.array([r / s for r, s in zip(rows, sizes, strict=True)]), rtol=1e-9))


def evaluate(p: Invariant, c: jax.Array) -> jax.Array:
    """The value at coordinates c; 0 where the denominator is as good as 0."""
    value = jax.numpy.prod(c[p.terms], axis=1) @ p.coefficients
    if p.below is None:
        return value
    below = evaluate(p.below, c)
    none = abs(below) < _SMALLEST
    return jax.numpy.where(none, 0.0, value / jax.numpy.where(none, 1.0, below))


def _gradient(p: Invariant, c: np.ndarray) -> np.ndarray:
    """By hand: nothing is compiled for it."""
    factors, total = c[p.terms], np.zeros(len(c))
    for at in range(p.terms.shape[1]):
        np.add.at(total, p.terms[:, at], p.coefficients * np.prod(np.delete(factors, at, axis=1), axis=1))
    if p.below is None:
        return total
    above, below = (np.prod(c[q.terms], axis=1) @ q.coefficients for q in (p, p.below))
    return (total - (above / below) * _gradient(p.below, c)) / below


def _of_degree(degree: int):
    """The search for polynomials of one degree."""
    return lambda algebra: _polynomials(algebra, degree)


def _polynomials(algebra: "LieAlgebra", degree: int) -> list[Invariant]:
    """A basis of the Casimirs of one degree, products of others included."""
    n = algebra.dim
    monomials = list(combinations_with_replacement(range(n), degree))
    if len(monomials) > _MOST_MONOMIALS:
        return []
    normal = _normal_matrix(structure_constants(algebra), monomials)
    if len(monomials) <= _DENSE_MONOMIALS:
        basis = null_space(normal.toarray())
    else:
        basis = _sparse_null_space(normal)
    terms = np.array(monomials)
    return [Invariant(terms[row != 0.0], row[row != 0.0]) for row in basis]


def _normal_matrix(C: np.ndarray, monomials: list[tuple[int, ...]]):
    """Σ_i D_iᵀ D_i for the derivations D_i p = {μ_i, p}: μ_j ↦ Σ_k C[i, j, k] μ_k; a sparse matrix."""
    from scipy import sparse

    number = {m: k for k, m in enumerate(monomials)}
    N = len(monomials)
    total = sparse.csc_matrix((N, N))
    for Ci in C:
        images = {j: [(k, Ci[j, k]) for k in np.flatnonzero(Ci[j])] for j in range(len(Ci))}
        rows, columns, values = [], [], []
        for column, m in enumerate(monomials):
            for at, j in enumerate(m):
                for k, x in images[j]:
                    rows.append(number[tuple(sorted((*m[:at], int(k), *m[at + 1 :])))])
                    columns.append(column)
                    values.append(x)
        D = sparse.csc_matrix((values, (rows, columns)), shape=(N, N))
        total = total + D.T @ D
    return total


def _sparse_null_space(normal) -> np.ndarray:
    """The null space of a positive semidefinite sparse matrix, by inverse iteration on a few vectors."""
    from scipy import sparse
    from scipy.sparse.linalg import splu

    scale = float(normal.diagonal().max())
    solve = splu((normal + 1e-7 * scale * sparse.identity(normal.shape[0])).tocsc()).solve
    vectors = np.random.default_rng(3).standard_normal((normal.shape[0], _MOST_FOUND))
    for _ in range(6):
        vectors, _ = np.linalg.qr(solve(vectors))
    values, turned = np.linalg.eigh(vectors.T @ (normal @ vectors))
    kept = vectors @ turned[:, values < 1e-12 * scale]
    return np.zeros((0, normal.shape[0])) if kept.shape[1] in (0, _MOST_FOUND) else echelon(kept.T)


def _rational(algebra: "LieAlgebra") -> list[Invariant]:
    """Quotients of linear forms on which the algebra acts by one and the same number χ(ξ).

    If [ξ, z] = χ(ξ) z for z in a space with basis z_1, z_2, …, then all <μ, z_k>/<μ, z_1> are Casimirs.
    """
    ad = structure_constants(algebra).transpose(0, 2, 1)
    matrix = np.tensordot(np.random.default_rng(4).standard_normal(algebra.dim), ad, axes=1)
    values = np.linalg.eigvals(matrix)
    out: list[Invariant] = []
    for value in _distinct(values[np.abs(values.imag) < 1e-8].real):
        space = null_space(matrix - value * np.eye(algebra.dim))
        moved = space @ ad.transpose(0, 2, 1)  # [e_i, z] for each i and z
        chi = np.sum(moved * space, axis=(1, 2)) / max(np.sum(space**2), 1.0)
        if len(space) < 2 or np.max(np.abs(moved - chi[:, None, None] * space)) > 1e-8:
            continue
        first, *others = map(_linear, space)
        out += [z._replace(below=first) for z in others]
    return out


def _linear(z: np.ndarray) -> Invariant:
    """<μ, z>."""
    at = np.flatnonzero(z)
    return Invariant(at[:, None], z[at])


def _distinct(values: np.ndarray) -> np.ndarray:
    """Values that are not zero, one of each cluster."""
    values = np.sort(values[np.abs(values) > 1e-7])
    return values[np.diff(values, prepend=-np.inf) > 1e-7]


def adjoint_errors(algebra: "LieAlgebra", mu: jax.Array, start: jax.Array) -> jax.Array:
    """Changes of Tr(bᵏ), b = ad_{Qμ}, k = 2 … 8, over ‖b‖ ‖bᵏ⁻¹‖ at the start, for each quadratic Casimir μᵀQμ."""
    jnp = jax.numpy
    quadratic = polynomial_casimirs(algebra)[1]
    errors = [jnp.zeros(0)]
    for Q in quadratic:
        a, b = (algebra.ad(algebra.element(Q @ algebra.coordinates(x))) for x in (mu, start))
        p, q = a, b
        for _ in range(_LARGEST_POWER - 1):
            scale = jnp.linalg.norm(b) * jnp.linalg.norm(q)
            p, q = p @ a, q @ b
            errors.append((jnp.abs(jnp.trace(p) - jnp.trace(q)) / jnp.where(scale > 0, scale, 1.0))[None])
    return jnp.concatenate(errors)
