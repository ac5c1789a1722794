"""The Maxwell–Bloch equations of light in a medium of two-level atoms, on e(2)*."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..algebras.structure import StructureConstants
from ..numerics import validation
from ..systems import System, salt
from .origin import model

# [e_E, e_P] = e_D, [e_E, e_D] = −e_P: motions of the plane.
_CONSTANTS = np.zeros((3, 3, 3))
_CONSTANTS[0, 1, 2], _CONSTANTS[1, 0, 2] = 1.0, -1.0
_CONSTANTS[0, 2, 1], _CONSTANTS[2, 0, 1] = -1.0, 1.0


@model
def maxwell_bloch(alpha: Any = (0.1, 0.1), start: Any = (1.0, 0.6, -0.8)) -> tuple[System, Array]:
    """The real-valued Maxwell–Bloch equations of light in a medium of two-level atoms, on e(2)*.

    With noise on both parts of the energy they are

        dE = P (dt + α₂ ∘ dW²),   dP = E D (dt + α₁ ∘ dW¹),   dD = −E P (dt + α₁ ∘ dW¹),

    where E is the envelope of the field, P the polarisation and D the inversion of the atoms. The Hamiltonian is h = ½
    E² + D, and the Casimir is P² + D². The noise Hamiltonians are h_1 = ½ α₁ E², which is not SALT, and h_2 = α₂ D.
    Both parts of h and both noises are exactly solvable, so splitting methods apply. A field that starts from 0 and
    returns to it is a 2π pulse: E = 2 sech t, (P, D) = (sin θ, cos θ) with θ = 4 arctan eᵗ. References: David and Holm,
    Multiple Lie–Poisson structures, reductions, and geometric phases for the Maxwell–Bloch travelling wave equations
    (1992); the noise is that of Bréhier, Cohen and Jahnke (2023).

    Parameters
    ----------
    alpha : (float, float), default (0.1, 0.1)
        (α₁, α₂). None means no noise.
    start : array_like, shape (3,), default (1.0, 0.6, -0.8)
        (E, P, D).

    Returns
    -------
    system : System
        Left-invariant, on e(2).
    mu0 : array, shape (3,)
        The initial state.
    """  # fmt: skip
    noise = []
    if alpha is not None:
        a = validation.vector("alpha", alpha, 2)
        noise = [lambda mu: 0.5 * a[0] * mu[0] ** 2, salt([0.0, 0.0, a[1]])]
    algebra = StructureConstants(
        _CONSTANTS, casimirs=lambda mu: jnp.stack([mu[1] ** 2 + mu[2] ** 2]), casimir_names=("P² + D²",)
    )
    parts = [lambda mu: 0.5 * mu[0] ** 2, lambda mu: mu[2]]
    return System(algebra, parts, noise), jnp.asarray(validation.vector("start", start, 3))
