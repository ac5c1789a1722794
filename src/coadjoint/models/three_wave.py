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
    """Three resonant waves with complex amplitudes u = W₁₂, v = W₂₃, w = W₁₃, left-invariant on su(3)*:

        u' = (κ₁₃ − κ₂₃) w v̄,   v' = (κ₁₂ − κ₁₃) ū w,   w' = (κ₂₃ − κ₁₂) u v,
        W' = [W, P],   P_ij = κ_ij W_ij,   h = Σ_{i<j} κ_ij |W_ij|²,

    for a W without diagonal, which stays so. `kappa` is (κ₁₂, κ₂₃, κ₁₃), no two alike; the coefficients of the three
    equations sum to 0. Integrals are h, the Casimirs, and with them the relations of Manley and Rowe. `amplitudes` are
    those of u, v, w at the start, real or complex. `alpha`: a number that multiplies SALT noise along each of the three
    real directions W₁₂, W₂₃, W₁₃ (the imaginary parts are left alone); None for none. κ is in `params`.

    Reference: Alber, Luther, Marsden and Robbins, Geometric phases, reduction and Lie–Poisson structure for the
    resonant three-wave interaction (1998).
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
