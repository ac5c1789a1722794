"""A satellite on a circular orbit under the gravity-gradient torque, on (so(3) ⋉ (R³ ⊕ R³))*."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..algebras.semidirect import Semidirect
from ..algebras.so3 import SO3
from ..numerics import validation
from ..systems import System, salt
from .origin import model
from .rigid_body import check_alpha, check_inertia, velocity


@model
def gravity_gradient(
    inertia: Any = (3.0, 4.0, 2.0),
    rate: float = 1.0,
    alpha: Any = None,
    start: Any = (0.0, 4.0, 0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0),
) -> tuple[System, Array]:
    """A rigid satellite on a circular orbit, with the gravity-gradient torque.

    The equations are

        π' = π×ω + 3n² γ×Iγ,   γ' = γ×(ω − nβ),   β' = β×ω,   ω = I⁻¹π,
        h = ½ π·I⁻¹π − n β·π + (3/2) n² γ·Iγ.

    All vectors have components in the body frame. The vector γ points from the centre of the Earth to the
    satellite. The vector β is the normal of the orbit. The angular momentum π is relative to inertial space. h is
    the energy in the orbital frame. The Casimirs are |γ|², |β|² and γ·β. The last one is 0 for an orbit. In the
    default initial state the axes of the body lie along the path, the normal and the radius. The body turns
    once per revolution. This equilibrium is stable if I₂ > I₁ > I₃. Small pitch oscillations have the frequency n
    √(3(I₁ − I₃)/I₂). Reference: Beletskii, Motion of an artificial satellite about its center of mass (1966).

    Parameters
    ----------
    inertia : array_like, shape (3,) or (3, 3), default (3.0, 4.0, 2.0)
        The moments of inertia, or a symmetric tensor. An entry of `params`.
    rate : float, default 1.0
        n, the angular velocity of the orbit. An entry of `params`.
    alpha : array_like, shape (3,) or (M, 3), optional
        Amplitudes of SALT noise π×α ∘ dW, and the same for γ and β; one row per Brownian motion. None means no noise.
    start : array_like, shape (9,)
        (π, γ, β).

    Returns
    -------
    system : System
        Left-invariant.
    mu0 : array, shape (9,)
        The initial state.
    """  # fmt: skip
    params = {"inertia": check_inertia(inertia), "rate": np.float64(validation.positive("rate", rate))}
    noise = []
    if alpha is not None:
        rows = check_alpha(alpha)
        noise = [salt(jnp.concatenate([rows, jnp.zeros((len(rows), 6))], axis=1))]

    def hamiltonian(mu: Array, p: dict) -> Array:
        pi, gamma, beta, n = mu[:3], mu[3:6], mu[6:], p["rate"]
        I = p["inertia"]
        moment = I * gamma if I.ndim == 1 else I @ gamma
        return 0.5 * pi @ velocity(I, pi) - n * (beta @ pi) + 1.5 * n**2 * (gamma @ moment)

    system = System(Semidirect(SO3(), SO3().bracket, dim=3, copies=2), hamiltonian, noise, params=params)
    return system, jnp.asarray(validation.vector("start", start, 9))
