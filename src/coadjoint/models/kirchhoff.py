"""Kirchhoff's equations: a rigid body in an ideal fluid, on se(3)*."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..algebras.se3 import SE3
from ..numerics import validation
from ..systems import System, salt
from .origin import model

# A prolate spheroid of aspect ratio 2, as heavy as the water it displaces, with its added mass
# (lamb1932hydrodynamics, 114–115);
# units: its mass and its short half-axis.
_INERTIA = (0.4, 1.2394, 1.2394)
_MASS = (1.2100, 1.7042, 1.7042)


@model
def kirchhoff(
    inertia: Any = None,
    mass: Any = None,
    *,
    matrix: Any = None,
    alpha: Any = (0.01, 0.02, 0.03, 0.0, 0.0, 0.0),
    pi0: Any = (0.1, 0.05, 0.0),
    p0: Any = (1.0, 0.0, 0.0),
) -> tuple[System, Array]:
    """A rigid body in an ideal fluid that is at rest far away, such as a neutrally buoyant underwater vehicle.

    Kirchhoff's equations with SALT noise are

        dΠ = (Π×Ω + P×V) dt + Σ_k (Π×α_k + P×a_k) ∘ dW^k,   dP = P×Ω dt + Σ_k P×α_k ∘ dW^k,
        Ω = A⁻¹Π,   V = M⁻¹P,   h = ½ Π·A⁻¹Π + ½ P·M⁻¹P.

    Π and P are the angular and linear momentum of the body with the fluid that it moves, in the body frame. Centres of
    mass and of buoyancy coincide. The Casimirs are Π·P and |P|². The default is a prolate spheroid driven along its
    long axis. This motion is unstable: the body turns broadside and tumbles. The matrices are in `params`.

    Parameters
    ----------
    inertia : array_like, shape (3,) or (3, 3), optional
        A, including added inertia: positive numbers, or a symmetric positive definite matrix.
    mass : array_like, shape (3,) or (3, 3), optional
        M, including added mass.
    matrix : array_like, shape (6, 6), optional
        The matrix ((A, D), (Dᵀ, M)) of a body whose rotation and translation couple, instead of `inertia` and `mass`.
    alpha : array_like, shape (6,) or (M, 6)
        Amplitudes (α, a) of the noise, one row per Brownian motion. The default is (0.01, 0.02, 0.03, 0, 0, 0). None
        means no noise.
    pi0 : array_like, shape (3,), default (0.1, 0.05, 0.0)
        The initial Π.
    p0 : array_like, shape (3,), default (1.0, 0.0, 0.0)
        The initial P.

    Returns
    -------
    system : System
        Left-invariant, on se(3).
    mu0 : array, shape (6,)
        The initial state (Π, P).
    """  # fmt: skip
    if matrix is not None:
        if inertia is not None or mass is not None:
            raise ValueError("give matrix, or inertia and mass, not both: matrix holds them in its diagonal blocks.")
        params = {"matrix": _positive("matrix", matrix, 6)}
    else:
        params = {
            "inertia": _positive("inertia", _INERTIA if inertia is None else inertia, 3),
            "mass": _positive("mass", _MASS if mass is None else mass, 3),
        }
    noise = [] if alpha is None else [salt(_rows(alpha))]
    mu0 = jnp.concatenate([_vector("pi0", pi0), _vector("p0", p0)])

    def velocity(mu: Array, p: dict) -> Array:
        if "matrix" in p:
            return _divide(mu, p["matrix"])
        return jnp.concatenate([_divide(mu[:3], p["inertia"]), _divide(mu[3:], p["mass"])])

    def hamiltonian(mu: Array, p: dict) -> Array:
        return 0.5 * mu @ velocity(mu, p)

    return System(SE3(), hamiltonian, noise, params=params, gradient=velocity), mu0


def _divide(x: Array, a: Array) -> Array:
    return x / a if a.ndim == 1 else jnp.linalg.solve(a, x)


def _positive(name: str, value: Any, size: int) -> Array:
    """Positive numbers (3 only) or a symmetric positive definite matrix. Traced arrays are not checked."""
    shapes = [(size, size)] if size == 6 else [(size,), (size, size)]
    traced = validation.is_traced(value)
    try:
        array = jnp.asarray(value, jnp.float64) if traced else np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be an array of numbers, not {value!r}.") from None
    if array.shape not in shapes:
        raise ValueError(f"{name} must have shape {' or '.join(map(str, shapes))}, not {array.shape}.")
    if not traced:
        if not np.all(np.isfinite(array)):
            raise ValueError(f"{name} must be finite: it has a NaN or an infinity.")
        if array.ndim == 1:
            if not np.all(array > 0):
                raise ValueError(f"{name} must be {size} numbers above 0, not {tuple(array.tolist())}.")
        else:
            asymmetry = np.abs(array - array.T).max()
            if asymmetry > 1e-12 * np.abs(array).max():
                raise ValueError(f"{name} must be symmetric, but it differs from its transpose by {asymmetry:.3g}.")
            array = 0.5 * (array + array.T)
            least = np.linalg.eigvalsh(array)[0]
            if not least > 0:
                raise ValueError(f"{name} must be positive definite, but it has the eigenvalue {least:.3g}.")
    return jnp.asarray(array)


def _rows(alpha: Any) -> Array:
    if validation.is_traced(alpha):
        return jnp.atleast_2d(jnp.asarray(alpha))
    try:
        rows = np.asarray(alpha, dtype=np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"alpha must be an array of numbers, not {alpha!r}.") from None
    if rows.ndim not in (1, 2) or rows.shape[-1] != 6 or rows.size == 0:
        raise ValueError(
            f"alpha must be one vector of 6 numbers, 3 of rotation and 3 of translation, or several as rows, "
            f"not of shape {rows.shape}."
        )
    if not np.all(np.isfinite(rows)):
        raise ValueError(f"alpha must be finite, not {rows.tolist()}.")
    return jnp.asarray(np.atleast_2d(rows))


def _vector(name: str, value: Any) -> Array:
    return jnp.asarray(value) if validation.is_traced(value) else jnp.asarray(validation.vector(name, value, 3))
