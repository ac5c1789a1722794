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
    """The real-valued Maxwell–Bloch equations, with noise on both parts of the energy:

        dE = P (dt + α₂ ∘ dW²),   dP = E D (dt + α₁ ∘ dW¹),   dD = −E P (dt + α₁ ∘ dW¹),

    for the envelope E of the field, the polarisation P and the inversion D of the atoms. They are left-invariant on
    e(2)*, with h = ½ E² + D and the Casimir P² + D². Noise: h_1 = ½ α₁ E², which is not SALT, and h_2 = α₂ D; `alpha`
    is None for no noise. `start` is (E, P, D). Both parts of h and both noises are exactly solvable, so that splitting
    methods apply. A field that comes from 0 and returns to it is a 2π pulse: E = 2 sech t, (P, D) = (sin θ, cos θ) with
    θ = 4 arctan eᵗ.

    Reference: David and Holm, Multiple Lie–Poisson structures, reductions, and geometric phases for the Maxwell–Bloch
    travelling wave equations (1992); the noise is that of Bréhier, Cohen and Jahnke (2023).
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
