"""Three resonant waves, on su(3)*."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..algebras.su import SU
from ..numerics import validation
from ..systems import System, salt
from .origin import model


@model
def three_wave(
    kappa: Any = (1.0, 2.0, 4.0), amplitudes: Any = (1.0, 0.5, 0.1), alpha: Any = None
) -> tuple[System, Array]:
    """Three resonant waves with complex amplitudes u = W₁₂, v = W₂₃, w = W₁₃, on su(3)*.

    The equations are

        u' = (κ₁₃ − κ₂₃) w v̄,   v' = (κ₁₂ − κ₁₃) ū w,   w' = (κ₂₃ − κ₁₂) u v,
        W' = [W, P],   P_ij = κ_ij W_ij,   h = Σ_{i<j} κ_ij |W_ij|²,

    for a W without diagonal, which remains so. The coefficients of the three equations sum to 0. h, the Casimirs and
    the Manley–Rowe relations are conserved. κ is in `params`. Reference: Alber, Luther, Marsden and Robbins, Geometric
    phases, reduction and Lie–Poisson structure for the resonant three-wave interaction (1998).

    Parameters
    ----------
    kappa : array_like, shape (3,), default (1.0, 2.0, 4.0)
        (κ₁₂, κ₂₃, κ₁₃), three different numbers.
    amplitudes : array_like, shape (3,), default (1.0, 0.5, 0.1)
        The initial u, v, w, real or complex.
    alpha : float, optional
        The amplitude of SALT noise along the real directions W₁₂, W₂₃, W₁₃. None means no noise.

    Returns
    -------
    system : System
        Left-invariant, on su(3).
    W0 : array, shape (3, 3), complex
        The initial state.
    """  # fmt: skip
    k = validation.vector("kappa", kappa, 3)
    z = np.asarray(amplitudes, dtype=np.complex128)
    if z.shape != (3,) or not np.all(np.isfinite(z)):
        raise ValueError(f"amplitudes must be three finite numbers, not {amplitudes!r}.")
    rows, columns = np.array([0, 1, 0]), np.array([1, 2, 2])

    def matrix(entries: np.ndarray) -> np.ndarray:
        W = np.zeros((3, 3), complex)
        W[rows, columns] = entries
        return W - W.conj().T

    noise = (
        [] if alpha is None else [salt(validation.finite("alpha", alpha) * np.stack([matrix(e) for e in np.eye(3)]))]
    )

    def hamiltonian(W: Array, p: dict) -> Array:
        u = W[rows, columns]
        return jnp.sum(p["kappa"] * (u.real**2 + u.imag**2))

    return System(SU(3), hamiltonian, noise, params={"kappa": k}), jnp.asarray(matrix(z))
