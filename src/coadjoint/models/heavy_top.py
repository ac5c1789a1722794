"""The heavy top on se(3)*."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from stepcompiler.device_arrays import to_device

from ..algebras.se3 import SE3
from ..numerics import validation
from ..systems import System, salt
from .origin import model
from .rigid_body import check_alpha, check_inertia, velocity

# inertia, chi, pi0, gamma0. The paper's states have π₀ = γ₀; Goryachev and Chaplygin need π·γ = 0.
_HALF = 0.5**0.5
_PRESETS: dict[str, dict[str, tuple[float, float, float]]] = {
    "lagrange": {"inertia": (4.0, 4.0, 1.0), "chi": (0.0, 0.0, 1.0)},
    "kovalevskaya": {"inertia": (2.0, 2.0, 1.0), "chi": (1.0, 0.0, 0.0)},
    "goryachev_chaplygin": {
        "inertia": (4.0, 4.0, 1.0),
        "chi": (1.0, 0.0, 0.0),
        "pi0": (_HALF, _HALF, 1.0),
        "gamma0": (-_HALF, _HALF, 0.0),
    },
    "euler": {"inertia": (4.0, 2.0, 1.0), "chi": (0.0, 0.0, 0.0)},
}


@model
def heavy_top(
    preset: str | None = None,
    *,
    inertia: Any = None,
    chi: Any = None,
    alpha: Any = (0.01, 0.02, 0.03),
    pi0: Any = None,
    gamma0: Any = None,
) -> tuple[System, Array]:
    """The heavy top with SALT noise.

    The equations are

        dπ = (π×ω + χ×γ) dt + π×α ∘ dW,   dγ = γ×ω dt + γ×α ∘ dW,   ω = I⁻¹π,   h = ½ π·I⁻¹π − χ·γ.

    π is the angular momentum and γ the direction of gravity, both in the body frame. The Casimirs are π·γ and |γ|². The
    defaults are those of the paper of the TMK method. Inertia and χ are in `params`.

    Parameters
    ----------
    preset : str, optional
        An integrable case: "lagrange" (I₁ = I₂, χ on the axis), "kovalevskaya" (I₁ = I₂ = 2 I₃, χ equatorial),
        "goryachev_chaplygin" (I₁ = I₂ = 4 I₃, χ equatorial, π·γ = 0) or "euler" (χ = 0). Other arguments replace its
        values.
    inertia : array_like, shape (3,) or (3, 3), default (4.0, 2.0, 1.0)
        The moments of inertia, or a symmetric tensor.
    chi : array_like, shape (3,), default (0.0, 0.0, 1.0)
        χ, from the fixed point to the centre of mass, times weight.
    alpha : array_like, shape (3,) or (M, 3), default (0.01, 0.02, 0.03)
        Amplitudes of the noise, one row per Brownian motion. None means no noise.
    pi0, gamma0 : array_like, shape (3,), optional
        The initial π and γ.

    Returns
    -------
    system : System
        Left-invariant, on se(3).
    mu0 : array, shape (6,)
        The initial state (π, γ).
    """  # fmt: skip
    values = {
        "inertia": (4.0, 2.0, 1.0),
        "chi": (0.0, 0.0, 1.0),
        "pi0": (-_HALF, _HALF, 0.0),
        "gamma0": (-_HALF, _HALF, 0.0),
    }
    if preset is not None:
        values |= _PRESETS[validation.choice("preset", preset, tuple(_PRESETS))]
    given = {"inertia": inertia, "chi": chi, "pi0": pi0, "gamma0": gamma0}
    values |= {k: v for k, v in given.items() if v is not None}

    params = {"inertia": check_inertia(values["inertia"]), "chi": jnp.asarray(_vector("chi", values["chi"]))}
    noise = []
    if alpha is not None:
        rows = check_alpha(alpha)
        noise = [salt(_joined([rows, np.zeros(rows.shape)], axis=1))]
    mu0 = _joined([_vector("pi0", values["pi0"]), _vector("gamma0", values["gamma0"])])

    def hamiltonian(mu: Array, p: dict) -> Array:
        pi, gamma = mu[:3], mu[3:]
        return 0.5 * pi @ velocity(p["inertia"], pi) - p["chi"] @ gamma

    return System(SE3(), hamiltonian, noise, params=params), mu0


def _vector(name: str, value: Any) -> Any:
    return jnp.asarray(value) if validation.is_traced(value) else validation.vector(name, value, 3)


def _joined(parts: list, axis: int = 0) -> Array:
    """Concatenate by NumPy unless the arrays are traced, because JAX would compile a program for it."""
    xp: Any = jnp if validation.is_traced(parts) else np
    return to_device(xp.concatenate(parts, axis=axis))
