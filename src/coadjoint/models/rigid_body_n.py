"""The free rigid body in n dimensions, on so(n)*."""

from functools import lru_cache
from itertools import combinations
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..algebras.structure import StructureConstants
from ..numerics import random, validation
from ..systems import System, salt
from .origin import model


@model
def rigid_body_n(
    masses: Any = (1.0, 2.0, 3.0, 4.0), alpha: Any = None, M0: Any = None, key: Any = 0
) -> tuple[System, Array]:
    """The free rigid body in n dimensions, integrable after Manakov, on so(n)*.

    The equation is

        M' = [M, Ω],   Ω_ij = M_ij/(J_i + J_j),   h = ½ Σ_{i<j} M_ij²/(J_i + J_j).

    The state contains the entries M_ij, i < j, row by row, which are coordinates in the basis E_ij = e_i e_jᵀ − e_j
    e_iᵀ. The Casimirs are the coefficients of det(M − λ). The traces tr (M + λJ²)ᵏ are further integrals for all λ and
    k. For n = 3 the moments of inertia are J_2 + J_3, J_3 + J_1, J_1 + J_2. Reference: Manakov, Note on the integration
    of Euler's equations of the dynamics of an n-dimensional rigid body (1976).

    Parameters
    ----------
    masses : array_like, shape (n,), default (1.0, 2.0, 3.0, 4.0)
        J, the second moments of the mass along the axes. An entry of `params`.
    alpha : array_like, shape (d,) or (M, d), optional
        SALT noise, d = n(n − 1)/2 entries, one row per Brownian motion. None means no noise.
    M0 : array_like, shape (d,), optional
        The initial state. The default is normally distributed, from `key`.
    key : int or JAX key, default 0
        Selects the random initial state.

    Returns
    -------
    system : System
        Left-invariant, on so(n).
    M0 : array, shape (d,)
        The initial state.
    """  # fmt: skip
    J = np.asarray(masses, dtype=np.float64)
    if J.ndim != 1 or not 3 <= len(J) <= 8 or not np.all(np.isfinite(J) & (J > 0)):
        raise ValueError(f"masses must be 3 to 8 numbers above 0, not {masses!r}.")
    n = len(J)
    rows, columns = np.triu_indices(n, 1)
    dim = len(rows)
    if M0 is None:
        start = random.initial_normals(key, dim, 1)[0]
    else:
        start = jnp.asarray(validation.vector("M0", M0, dim))
    noise = []
    if alpha is not None:
        beta = np.atleast_2d(np.asarray(alpha, dtype=np.float64))
        if beta.ndim != 2 or beta.shape[1] != dim or not np.all(np.isfinite(beta)):
            raise ValueError(f"alpha must be one element of {dim} numbers, or several as rows, not shape {beta.shape}.")
        noise = [salt(beta)]

    def hamiltonian(m: Array, p: dict) -> Array:
        J = p["masses"]
        return 0.5 * jnp.sum(m**2 / (J[rows] + J[columns]))

    return System(_so(n), hamiltonian, noise, params={"masses": J}), start


@lru_cache(maxsize=8)
def _so(n: int) -> StructureConstants:
    """so(n) in the basis E_ij, i < j. The pairing is that of coordinates, and ad*_Ω M = [M, Ω]."""
    pairs = list(combinations(range(n), 2))
    basis = np.zeros((len(pairs), n, n))
    for k, (i, j) in enumerate(pairs):
        basis[k, i, j], basis[k, j, i] = 1.0, -1.0
    brackets = np.einsum("aij,bjk->abik", basis, basis) - np.einsum("bij,ajk->abik", basis, basis)
    return StructureConstants(np.stack([brackets[:, :, i, j] for i, j in pairs], axis=-1))
