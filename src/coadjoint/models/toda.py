"""The open Toda lattice in Flaschka's variables, on the dual of a solvable algebra."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..algebras.structure import StructureConstants
from ..numerics import validation
from ..systems import System, salt
from .origin import model


@model
def toda(n: int = 4, alpha: Any = None, q0: Any = None, p0: Any = None) -> tuple[System, Array]:
    """The open Toda lattice in Flaschka's variables: n particles on a line with exponential repulsion of neighbours.

    The equations are

        a_i' = a_i (b_{i+1} − b_i),   b_i' = 2 (a_i² − a_{i−1}²),   h = ½ Σ b_i² + Σ a_i²

    on the dual of the solvable algebra with [e_{b_i}, e_{a_i}] = −e_{a_i} and [e_{b_{i+1}}, e_{a_i}] = e_{a_i}. With
    a_i = ½ exp(½(q_i − q_{i+1})) and b_i = −½ p_i they are q' = p, p_i' = exp(q_{i−1} − q_i) − exp(q_i − q_{i+1}). The
    Casimir is the momentum Σ b_i. The eigenvalues of the tridiagonal matrix with diagonal b and off-diagonal a are
    integrals. As t → ∞, a → 0 and b tends to these eigenvalues, in order. Reference: Flaschka, The Toda lattice II
    (1974).

    Parameters
    ----------
    n : int, default 4
        The number of particles.
    alpha : array_like, shape (2n − 1,) or (M, 2n − 1), optional
        SALT noise, one row per Brownian motion. None means no noise.
    q0, p0 : array_like, shape (n,), optional
        Initial positions and momenta. By default the particles are at rest at a distance of 1, except for the first,
        which has p = 1.

    Returns
    -------
    system : System
        Left-invariant.
    mu0 : array, shape (2n − 1,)
        The initial state (a_1 … a_{n−1}, b_1 … b_n).
    """  # fmt: skip
    n = validation.count("n", n, least=2)
    q = np.arange(n, dtype=float) if q0 is None else validation.vector("q0", q0, n)
    p = np.eye(n)[0] if p0 is None else validation.vector("p0", p0, n)
    a, b = np.arange(n - 1), np.arange(n - 1, 2 * n - 1)
    C = np.zeros((2 * n - 1,) * 3)
    for first, second, sign in ((b[:-1], a, -1.0), (b[1:], a, 1.0)):
        C[first, second, a], C[second, first, a] = sign, -sign
    noise = []
    if alpha is not None:
        beta = np.atleast_2d(np.asarray(alpha, dtype=np.float64))
        if beta.ndim != 2 or beta.shape[1] != 2 * n - 1 or not np.all(np.isfinite(beta)):
            raise ValueError(f"alpha must be {2 * n - 1} numbers, or several such rows, not of shape {beta.shape}.")
        noise = [salt(beta)]

    def hamiltonian(mu: Array) -> Array:
        return jnp.sum(mu[: n - 1] ** 2) + 0.5 * jnp.sum(mu[n - 1 :] ** 2)

    start = np.concatenate([0.5 * np.exp(0.5 * (q[:-1] - q[1:])), -0.5 * p])
    return System(StructureConstants(C), hamiltonian, noise), jnp.asarray(start)
