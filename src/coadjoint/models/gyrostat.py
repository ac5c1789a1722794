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
    """A gyrostat: a free rigid body with rotors that spin at fixed rates, such as a satellite with momentum wheels.

    The equation is

        dπ = π×ω dt + π×α ∘ dW,   ω = I⁻¹(π − l),   h = ½ (π − l)·I⁻¹(π − l).

    π is the total angular momentum in the body frame. The Casimir is |π|². Inertia and rotors are in `params`.
    References: Hughes, Spacecraft Attitude Dynamics (1986), chapter 6; Volterra (1898) for the solution.

    Parameters
    ----------
    inertia : array_like, shape (3,) or (3, 3), default (4.0, 2.0, 1.0)
        The moments of inertia, or a symmetric tensor, of the body with its rotors, without their spin.
    rotors : array_like, shape (3,), default (0.0, 0.0, 0.5)
        l, the angular momentum of the rotors relative to the body.
    alpha : array_like, shape (3,) or (M, 3), optional
        Amplitudes of SALT noise, one row per Brownian motion. None means no noise.
    pi0 : array_like, shape (3,), default (0.6, 0.0, 0.8)
        The initial π.

    Returns
    -------
    system : System
        Left-invariant, on so(3).
    pi0 : array, shape (3,)
        The initial state.
    """  # fmt: skip
    params = {"inertia": check_inertia(inertia), "rotors": validation.vector("rotors", rotors, 3)}
    noise = [] if alpha is None else [salt(check_alpha(alpha))]

    def hamiltonian(pi: Array, p: dict) -> Array:
        body = pi - p["rotors"]
        return 0.5 * body @ velocity(p["inertia"], body)

    return System(SO3(), hamiltonian, noise, params=params), jnp.asarray(validation.vector("pi0", pi0, 3))
