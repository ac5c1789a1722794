"""The gyrostat, a rigid body with spinning rotors, on so(3)*."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from ..algebras.so3 import SO3
from ..numerics import validation
from ..systems import System, salt
from .origin import model
from .rigid_body import check_alpha, check_inertia, velocity


@model
def gyrostat(
    inertia: Any = (4.0, 2.0, 1.0),
    rotors: Any = (0.0, 0.0, 0.5),
    alpha: Any = None,
    pi0: Any = (0.6, 0.0, 0.8),
) -> tuple[System, Array]:
    """A free rigid body with rotors that spin at fixed rates, as in a satellite with momentum wheels:

        dπ = π×ω dt + π×α ∘ dW,   ω = I⁻¹(π − l),   h = ½ (π − l)·I⁻¹(π − l).

    π is the whole angular momentum in the body, l = `rotors` that of the rotors relative to it, I the inertia with the
    rotors locked but for their own spin. The Casimir is |π|. `inertia`: three moments or a symmetric 3×3 matrix;
    `alpha`: one vector, or several as rows, one a Brownian motion; None for no noise. Inertia and rotors are in
    `params`.

    Reference: Hughes, Spacecraft Attitude Dynamics (1986), chapter 6; Volterra (1898) has the solution.
    """  # fmt: skip
    params = {"inertia": check_inertia(inertia), "rotors": validation.vector("rotors", rotors, 3)}
    noise = [] if alpha is None else [salt(check_alpha(alpha))]

    def hamiltonian(pi: Array, p: dict) -> Array:
        body = pi - p["rotors"]
        return 0.5 * body @ velocity(p["inertia"], body)

    return System(SO3(), hamiltonian, noise, params=params), jnp.asarray(validation.vector("pi0", pi0, 3))
