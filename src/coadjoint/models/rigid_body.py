"""The free rigid body on so(3)*."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from stepcompiler.device_arrays import to_device

from ..algebras.so3 import SO3
from ..numerics import validation
from ..systems import System, salt
from .origin import model


@model
def rigid_body(
    inertia: Any = (4.0, 2.0, 1.0),
    alpha: Any = (0.01, 0.02, 0.03),
    pi0: Any = (-(0.5**0.5), 0.5**0.5, 0.0),
) -> tuple[System, Array]:
    """The free rigid body, h = ½ π·I⁻¹π, with SALT noise.

    The equation is

        dπ = π×ω dt + π×α ∘ dW,   ω = I⁻¹π.

    The Casimir is |π|². The inertia is in `params`.

    Parameters
    ----------
    inertia : array_like, shape (3,) or (3, 3), default (4.0, 2.0, 1.0)
        The moments of inertia, or a symmetric tensor.
    alpha : array_like, shape (3,) or (M, 3), default (0.01, 0.02, 0.03)
        Amplitudes of the noise, one row per Brownian motion. None means no noise.
    pi0 : array_like, shape (3,), default (-0.707…, 0.707…, 0.0)
        The initial angular momentum in the body frame.

    Returns
    -------
    system : System
        Left-invariant, on so(3).
    pi0 : array, shape (3,)
        The initial state.
    """
    I = check_inertia(inertia)
    noise = [] if alpha is None else [salt(check_alpha(alpha))]
    system = System(SO3(), lambda pi, p: 0.5 * pi @ velocity(p["inertia"], pi), noise, params={"inertia": I})
    return system, jnp.asarray(validation.vector("pi0", pi0, 3))


def check_inertia(inertia: Any) -> Array:
    """Three positive moments of inertia, or a tensor. Traced arrays are not checked."""
    if validation.is_traced(inertia):
        return jnp.asarray(inertia)
    if np.shape(inertia) == (3, 3):
        tensor = np.asarray(inertia, dtype=np.float64)
        if not np.all(np.isfinite(tensor)) or np.max(np.abs(tensor - tensor.T)) > 1e-12 * np.max(np.abs(tensor)):
            raise ValueError(f"inertia must be a symmetric matrix of finite numbers, not {tensor.tolist()}.")
        if np.linalg.eigvalsh(tensor)[0] <= 0:
            raise ValueError(
                f"inertia must be positive definite, but has the eigenvalue {np.linalg.eigvalsh(tensor)[0]:g}."
            )
        return jnp.asarray(tensor)
    I = validation.vector("inertia", inertia, 3)
    if not np.all(I > 0):
        raise ValueError(f"inertia must be three numbers above 0, not {tuple(I.tolist())}.")
    return to_device(I)


def velocity(inertia: Array, pi: Array) -> Array:
    """ω = I⁻¹π, for three moments or a tensor. Cramer's rule has native code."""
    if inertia.ndim == 1:
        return pi / inertia
    rows = jnp.stack([jnp.cross(inertia[1], inertia[2]), jnp.cross(inertia[2], inertia[0]), jnp.cross(*inertia[:2])])
    return (pi @ rows) / (inertia[0] @ rows[0])


def check_alpha(alpha: Any) -> Any:
    """Noise amplitudes as rows of three."""
    if validation.is_traced(alpha):
        return jnp.atleast_2d(jnp.asarray(alpha))
    rows = np.asarray(alpha, dtype=np.float64)
    if rows.ndim not in (1, 2) or rows.shape[-1] != 3 or rows.size == 0:
        raise ValueError(f"alpha must be one vector of 3 numbers or several as rows, not of shape {rows.shape}.")
    if not np.all(np.isfinite(rows)):
        raise ValueError(f"alpha must be finite, not {rows.tolist()}.")
    return np.atleast_2d(rows)
