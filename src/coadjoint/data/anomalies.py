"""Anomalies of an ensemble, as motions along orbits and of the group."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float, PyTree

from stepcompiler.jaxprs.interning import Constant

from ..algebras.base import LieAlgebra
from ..runtime.lapack_lock import run_exclusive
from .filtering_state import FilterError, Members

_ITERATIONS = 20
_AT_ONCE = 2**21  # numbers of an array over several members
_SMALL = 1e-12
_CONVERGED = 1e-9


class Anomalies(NamedTuple):
    """The differences of members from their mean, divided by √(N − 1), with a leading axis of members."""

    eta: np.ndarray | None  # elements that move a state along its orbit,
    straight: np.ndarray | None  # or the anomalies of states
    zeta: np.ndarray | None  # elements that move the group element
    theta: tuple[np.ndarray, ...]  # unknown parameters


def anomalies(algebra: LieAlgebra, members: Members, ridge: float | None, sign: int) -> Anomalies:
    """The anomalies of members, those of states as motions along orbits if there is a ridge parameter."""
    root = np.sqrt(len(members.mu) - 1)
    centred = lambda x: (x - x.mean(axis=0)) / root
    eta = None if ridge is None else elements_of_anomalies(algebra, members.mu, ridge)
    zeta = None if members.g is None else elements_of_group(algebra, members.g, sign) / root
    return Anomalies(eta, centred(members.mu) if eta is None else None, zeta, tuple(centred(x) for x in members.params))


def elements_of_anomalies(algebra: LieAlgebra, mu: np.ndarray, ridge: float) -> np.ndarray:
    """Elements η_j with ad*_{η_j} μ_j ≈ μ_j − μ̄, centred and divided by √(N − 1)."""
    difference = mu - mu.mean(axis=0)
    eta = (_by_eigenvectors if algebra.is_matrix_conjugation else _by_coordinates)(algebra, mu, difference, ridge)
    return (eta - eta.mean(axis=0)) / np.sqrt(len(mu) - 1)


def elements_of_group(algebra: LieAlgebra, g: PyTree, sign: int) -> np.ndarray:
    """Elements ζ_j of mean 0 with g_j = ḡ exp(ζ_j), or exp(ζ_j) ḡ for right-invariant systems (sign = −1)."""
    zeta, error = run_exclusive(_group_elements, Constant(algebra), g, sign)
    if not float(error) < _CONVERGED:
        raise FilterError(
            "the group elements of the members are too far apart for a Kalman update. Use ParticleFilter, or initial "
            "group elements that are closer to each other."
        )
    return np.asarray(zeta)


def _by_eigenvectors(
    algebra: LieAlgebra, mu: Complex[np.ndarray, "N n n"], difference: np.ndarray, ridge: float
) -> Complex[np.ndarray, "N n n"]:
    """Ridge regression for ad*_η W = [W, η], which is diagonal in the eigenvectors of W."""
    w, V = np.linalg.eigh(-1j * mu)
    D = dagger(V) @ difference @ V
    rates = 1j * (w[:, :, None] - w[:, None, :])
    size = np.mean(np.abs(rates) ** 2, axis=(1, 2), keepdims=True)
    bottom = np.abs(rates) ** 2 + ridge * size
    X = np.conj(rates) * D / np.where(bottom > 0, bottom, 1.0)
    X = V @ X @ dagger(V)
    return 0.5 * (X - dagger(X))


def _by_coordinates(algebra: LieAlgebra, mu: np.ndarray, difference: np.ndarray, ridge: float) -> np.ndarray:
    """Ridge regression for ad*_η μ = −J(μ) η in coordinates."""
    return np.asarray(run_exclusive(_regressions, Constant(algebra), mu, difference, ridge))


def in_batches(of_member: Callable, members: PyTree, size: int) -> PyTree:
    """The values of a function of one member, which needs some arrays of this size, for as many members at once."""
    return jax.lax.map(of_member, members, batch_size=max(1, _AT_ONCE // size))


def dagger(x: np.ndarray) -> np.ndarray:
    """The conjugate transposes of matrices."""
    return np.conj(np.swapaxes(x, -1, -2))


@eqx.filter_jit
def _regressions(algebra: Constant, mu: Array, difference: Array, ridge: Any) -> Array:
    g = algebra.value

    def of_member(member: tuple[Array, Array]) -> Array:
        m, d = member
        J, c = g.poisson(m), g.coordinates(d)
        square = J.T @ J
        size = jnp.trace(square) / len(J)
        scale = jnp.where(size > 0, size, 1.0)
        return g.element(-jnp.linalg.solve(square + ridge * scale * jnp.eye(len(J)), J.T @ c))

    return in_batches(of_member, (mu, difference), g.dim**2)


def _flat(g: PyTree) -> Float[Array, " k"]:
    """The entries of a group element as real numbers."""
    parts = [jnp.ravel(x) for x in jax.tree.leaves(g)]
    parts = [jnp.concatenate([x.real, x.imag]) if jnp.iscomplexobj(x) else x for x in parts]
    return jnp.concatenate(parts)


@eqx.filter_jit
def _group_elements(algebra: Constant, g: PyTree, sign: int) -> tuple[Array, Array]:
    """The elements, and the largest error of g_j or of the mean of the elements."""
    G = algebra.value
    product = lambda k, e: G.group_product(k, e) if sign == 1 else G.group_product(e, k)

    def logarithm(k: PyTree) -> Array:
        """Coordinates c with exp(c) = k, by Gauss and Newton's method from 0. Kernels of exp have no part in c."""
        value = lambda c: _flat(G.group_exp(G.element(c)))

        def step(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            c, _, count = state
            J = jax.jacfwd(value)(c)
            square = J.T @ J
            ridge = 1e-14 * jnp.trace(square) + jnp.finfo(float).tiny
            change = jnp.linalg.solve(square + ridge * jnp.eye(len(c)), J.T @ (value(c) - _flat(k)))
            return c - change, jnp.max(jnp.abs(change)), count + 1

        more = lambda state: (state[1] > _SMALL) & (state[2] < _ITERATIONS)
        return jax.lax.while_loop(more, step, (jnp.zeros(G.dim), jnp.ones(()), jnp.zeros((), int)))[0]

    def relative(base: PyTree) -> tuple[Array, Array]:
        """The coordinates beside a base, and the largest error of an exponential."""
        inverse = G.group_inverse(base)

        def of_member(k: PyTree) -> tuple[Array, Array]:
            own = product(inverse, k)
            c = logarithm(own)
            return c, jnp.max(jnp.abs(_flat(G.group_exp(G.element(c))) - _flat(own)))

        c, error = in_batches(of_member, g, G.dim * _flat(base).size)
        return c, jnp.max(error)

    def centre(state: tuple[PyTree, Array, Array]) -> tuple[PyTree, Array, Array]:
        base, _, count = state
        c = jnp.mean(relative(base)[0], axis=0)
        return product(base, G.group_exp(G.element(c))), jnp.max(jnp.abs(c)), count + 1

    more = lambda state: (state[1] > _SMALL) & (state[2] < _ITERATIONS)
    first = jax.tree.map(lambda x: x[0], g)
    base = jax.lax.while_loop(more, centre, (first, jnp.ones(()), jnp.zeros((), int)))[0]
    c, error = relative(base)
    mean = jnp.mean(c, axis=0)
    return jax.vmap(G.element)(c - mean), jnp.maximum(error, jnp.max(jnp.abs(mean)))
