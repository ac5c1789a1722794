"""The Landau–Lifshitz spin chain on a ring, on so(3)* for each spin."""

from collections.abc import Sequence
from typing import Any, Literal

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from stepcompiler.device_arrays import placed

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
    """The Landau–Lifshitz equation for n spins on a ring, with a random field of its own on every spin:

        dS_i = −S_i × (H_i dt + α ∘ dW_i),   H_i = −∂h/∂S_i = J (S_{i−1} + S_{i+1}) − d S_i^z e_z + B,
        h = −J Σ S_i·S_{i+1} + ½ d Σ (S_i^z)² − B·Σ S_i.

    J > 0 is ferromagnetic; d > 0 makes the x-y plane easy, d < 0 the z axis; an isolated spin turns about B
    counterclockwise at the rate |B|. The noise is SALT, h_{ic} = −α S_i^c: thermal-like fields, 3n Brownian motions in
    the order of the state, without damping. The length of every spin is a Casimir.

    - `coupling` J: a number, or n of them, entry i between spins i and i + 1 (the last between n − 1 and 0).
    - `anisotropy` d: a number, or n of them.
    - `field` B: a vector, or n of them as rows.
    - `alpha` α: a number, 3 of them for the components, or n rows of 3; None for no noise.
    - `S0`: the start, shape (n, 3), of any lengths; by default unit spins drawn uniformly from `key`.
    - `side`: "left" for the equation above, "right" for dS_i = +S_i × (H_i dt + α ∘ dW_i), time reversed.

    The state is a vector of length 3n; `mu.reshape(n, 3)` has a spin in each row. All of these numbers are in `params`.
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
    """A random field on every spin: h_{ic} = −α S_i^c, never formed one by one."""

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
    """Unit vectors, uniform on the sphere; the first spins of a longer chain are those of a shorter one."""
    x = random.initial_normals(key, 3, n)
    return x / jnp.linalg.norm(x, axis=1, keepdims=True)


def numbers(name: str, value: Any, shapes: tuple[tuple[int, ...], ...]) -> Array:
    """Finite real numbers in one of the shapes; traced ones pass, so that they can be differentiated."""
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
    return placed(array)
