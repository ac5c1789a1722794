"""A satellite on a circular orbit, turned by the gradient of gravity, on (so(3) ⋉ (R³ ⊕ R³))*."""

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
    """A rigid satellite on a circular orbit of angular rate n, with the torque of the gradient of gravity:

        π' = π×ω + 3n² γ×Iγ,   γ' = γ×(ω − nβ),   β' = β×ω,   ω = I⁻¹π,
        h = ½ π·I⁻¹π − n β·π + (3/2) n² γ·Iγ,

    left-invariant. γ is the direction from the centre of the Earth to the satellite, β the normal of the orbit, both in
    the body; π is the angular momentum in space. h is the energy in the frame that goes with the orbit. The Casimirs
    are |γ|², |β|² and γ·β, which is 0 for an orbit. Noise is SALT, π×α ∘ dW and so on for γ and β. By default the axes
    of the body lie along the path, the normal and the radius, and it turns once a revolution: an equilibrium, stable if
    I₂ > I₁ > I₃. Small pitch about it has the frequency n √(3(I₁ − I₃)/I₂).

    `start` is (π, γ, β), nine numbers. Inertia and n are in `params`.

    Reference: Beletskii, Motion of an artificial satellite about its center of mass (1966).
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
