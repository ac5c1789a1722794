"""The Landau–Lifshitz spin chain on a ring, on so(3)* for each spin."""

from collections.abc import Sequence
from typing import Any, Literal

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from stepcompiler.device_arrays import to_device

from ..algebras.product import Product
from ..algebras.so3 import SO3
from ..numerics import random, validation
from ..systems import Noise, System
from .origin import model


@model
def spin_chain(
    n: int = 64,
    *,
    coupling: Any = 1.0,
    anisotropy: Any = 0.0,
    field: Any = (0.0, 0.0, 0.0),
    alpha: Any = 0.1,
    key: Any = 0,
    S0: Any = None,
    side: Literal["left", "right"] = "left",
) -> tuple[System, Array]:
    """The Landau–Lifshitz equation of n spins on a ring, with an independent random field on every spin.

    The equation is

        dS_i = −S_i × (H_i dt + α ∘ dW_i),   H_i = −∂h/∂S_i = J (S_{i−1} + S_{i+1}) − d S_i^z e_z + B,
        h = −J Σ S_i·S_{i+1} + ½ d Σ (S_i^z)² − B·Σ S_i.

    J > 0 is ferromagnetic. d > 0 makes the x-y plane easy, d < 0 the z axis. An isolated spin precesses about B
    counterclockwise at the rate |B|. The noise is SALT with h_{ic} = −α S_i^c, without damping, and has 3n Brownian
    motions in the order of the state. The length of every spin is a Casimir. All numbers are in `params`.

    Parameters
    ----------
    n : int, default 64
        The number of spins.
    coupling : float or array_like, shape (n,), default 1.0
        J. Entry i couples spins i and i + 1; the last couples spins n − 1 and 0.
    anisotropy : float or array_like, shape (n,), default 0.0
        d.
    field : array_like, shape (3,) or (n, 3), default (0.0, 0.0, 0.0)
        B.
    alpha : float or array_like, shape (3,) or (n, 3), default 0.1
        α. None means no noise.
    key : int or JAX key, default 0
        Selects the random initial state.
    S0 : array_like, shape (n, 3), optional
        The initial spins, of any lengths. The default is unit spins, uniform on the sphere.
    side : {"left", "right"}, default "left"
        "left" for the equation above, "right" for dS_i = +S_i × (H_i dt + α ∘ dW_i), with time reversed.

    Returns
    -------
    system : System
        On so(3)ⁿ.
    mu0 : array, shape (3n,)
        The initial state. `mu.reshape(n, 3)` has one spin per row.
    """  # fmt: skip
    n = validation.count("n", n, least=3)
    params = {
        "coupling": numbers("coupling", coupling, ((), (n,))),
        "anisotropy": numbers("anisotropy", anisotropy, ((), (n,))),
        "field": numbers("field", field, ((3,), (n, 3))),
    }
    noise = []
    if alpha is not None:
        params["alpha"] = numbers("alpha", alpha, ((), (3,), (n, 3)))
        noise = [_LocalFields(3 * n)]
    start = random_spins(n, key) if S0 is None else numbers("S0", S0, ((n, 3),))

    def hamiltonian(mu: Array, p: dict) -> Array:
        S = mu.reshape(n, 3)
        exchange = jnp.sum(p["coupling"] * jnp.sum(S * jnp.roll(S, -1, axis=0), axis=1))
        return -exchange + 0.5 * jnp.sum(p["anisotropy"] * S[:, 2] ** 2) - jnp.sum(p["field"] * S)

    return System(Product(SO3(), copies=n), hamiltonian, noise, params=params, side=side), start.reshape(-1)


class _LocalFields(Noise):
    """A random field on every spin: h_{ic} = −α S_i^c. The fields are never formed one by one."""

    size: int = eqx.field(static=True)
    additive: bool = eqx.field(default=True, static=True, init=False)

    def apply(self, mu: Array, dS: Float[Array, " M"], params: PyTree = None) -> Array:
        """−α dW_i on spin i."""
        return -(params["alpha"] * dS.reshape(-1, 3)).reshape(-1)

    @property
    def groups(self) -> Sequence[np.ndarray]:
        """By components: different spins commute."""
        return [np.tile(e, self.size // 3) for e in np.eye(3)]


def random_spins(n: int, key: Any) -> Array:
    """Unit vectors, uniform on the sphere. The first spins of a longer chain are those of a shorter one."""
    x = random.initial_normals(key, 3, n)
    return x / jnp.linalg.norm(x, axis=1, keepdims=True)


def numbers(name: str, value: Any, shapes: tuple[tuple[int, ...], ...]) -> Array:
    """Finite real numbers in one of the shapes. Traced arrays are not checked."""
    traced = validation.is_traced(value)
    try:
        array = jnp.asarray(value, jnp.float64) if traced else np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be numbers, not {value!r}.") from None
    if array.shape not in shapes:
        allowed = " or ".join("one number" if s == () else f"shape {s}" for s in shapes)
        raise ValueError(f"{name} must have {allowed}, not shape {array.shape}.")
    if not traced and not np.all(np.isfinite(array)):
        raise ValueError(f"{name} must be finite: it has a NaN or an infinity.")
    return to_device(array)
