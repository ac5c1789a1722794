"""A body in a planar ideal fluid, with circulation around it, on the centrally extended se(2)*."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..algebras.central import CentralExtension
from ..algebras.structure import StructureConstants
from ..numerics import validation
from ..systems import System, salt
from .origin import model

# [(ω, v), (η, w)] = (0, ωJw − ηJv), J a quarter turn: motions of the plane.
_CONSTANTS = np.zeros((3, 3, 3))
_CONSTANTS[0, 1, 2], _CONSTANTS[1, 0, 2] = 1.0, -1.0
_CONSTANTS[0, 2, 1], _CONSTANTS[2, 0, 1] = -1.0, 1.0
_AREA = np.array([[0.0, 0.0, 0.0], [0.0, 0.0, -1.0], [0.0, 1.0, 0.0]])  # Σ((ω, v), (η, w)) = v·Jw


@model
def planar_body(
    inertia: float = 1.0,
    mass: Any = (1.0, 2.0),
    circulation: float = 1.0,
    alpha: Any = None,
    start: Any = (0.0, 1.0, 0.0),
) -> tuple[System, Array]:
    """A body in a planar ideal fluid with circulation Γ around it, on the centrally extended se(2)*.

    In the body frame the equations are

        π' = −p·Jv,   p' = −ωJp − ΓJv,   ω = π/I,   v = (p₁/m₁, p₂/m₂),   J(x, y) = (−y, x),
        h = π²/2I + p₁²/2m₁ + p₂²/2m₂.

    −ΓJv is the Kutta–Zhukovsky lift, in units of the fluid's density. The state is (π, p₁, p₂, Γ). The Casimirs are Γ
    and |p|² − 2Γπ. A disc moves on a circle at the rate −Γ/m. Inertia and masses are in `params`. Reference:
    Vankerschaver, Kanso and Marsden, The geometry and dynamics of interacting rigid bodies and point vortices (2009).

    Parameters
    ----------
    inertia : float, default 1.0
        I, including the added inertia of the fluid.
    mass : array_like, shape (2,), default (1.0, 2.0)
        (m₁, m₂), including added mass.
    circulation : float, default 1.0
        Γ.
    alpha : array_like, shape (3,) or (M, 3), optional
        SALT noise along (ω, v₁, v₂), one row per Brownian motion. None means no noise.
    start : array_like, shape (3,), default (0.0, 1.0, 0.0)
        (π, p₁, p₂).

    Returns
    -------
    system : System
        Left-invariant.
    mu0 : array, shape (4,)
        The initial state (π, p₁, p₂, Γ).
    """  # fmt: skip
    masses = validation.vector("mass", mass, 2)
    if not np.all(masses > 0):
        raise ValueError(f"mass must be two numbers above 0, not {mass!r}.")
    params = {"inertia": np.float64(validation.positive("inertia", inertia)), "mass": masses}
    noise = []
    if alpha is not None:
        rows = np.atleast_2d(np.asarray(alpha, dtype=np.float64))
        if rows.ndim != 2 or rows.shape[1] != 3 or not np.all(np.isfinite(rows)):
            raise ValueError(f"alpha must be three numbers, or several such rows, not of shape {rows.shape}.")
        noise = [salt(np.pad(rows, ((0, 0), (0, 1))))]

    def hamiltonian(mu: Array, p: dict) -> Array:
        return 0.5 * mu[0] ** 2 / p["inertia"] + 0.5 * jnp.sum(mu[1:3] ** 2 / p["mass"])

    algebra = CentralExtension(StructureConstants(_CONSTANTS), _AREA)
    state = np.append(validation.vector("start", start, 3), validation.finite("circulation", circulation))
    return System(algebra, hamiltonian, noise, params=params), jnp.asarray(state)
