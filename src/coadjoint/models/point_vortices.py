"""Point vortices on the sphere, on so(3)* for each vortex."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..algebras.product import Product
from ..algebras.so3 import SO3
from ..noises import salt
from ..numerics import validation
from ..systems import System
from .origin import model
from .spin_chain import numbers, random_spins


@model
def point_vortices(
    strengths: Any = (1.0, 1.0, 1.0, -1.0, -1.0, -1.0),
    *,
    positions: Any = None,
    key: Any = 0,
    alpha: Any = None,
    strain: Any = None,
) -> tuple[System, Array]:
    """Point vortices on the unit sphere, alone or in a random large-scale flow.

    Vortex i has the strength (circulation) Γ_i and the position x_i, |x_i| = 1. The equation is

        x_i' = (1/4π) Σ_j Γ_j (x_j × x_i)/(1 − x_i·x_j),   the sum over all j but i.

    The state has μ_i = Γ_i x_i for each vortex, and

        h = −(1/4π) Σ_{i<j} Γ_i Γ_j log(1 − x_i·x_j),   μ_i' = −μ_i × ∂h/∂μ_i,

    so the system is right-invariant, like other fluids. A vortex of positive strength turns its surroundings
    counterclockwise. If the strengths do not add up to 0, the sphere has a uniform vorticity of opposite sign besides.
    The total moment Σ μ_i is conserved; methods that are Poisson maps (`cj.LieMidpoint()`) conserve it to round-off.
    Reference: Newton, The N-vortex problem (2001), chapter 4.

    Noise moves all vortices by one random flow, so it is common to all:

        dx_i = … + Σ_k α_k × x_i ∘ dW_k − Σ_l x_i × A_l x_i ∘ dW_l,   h_k = Σ_i α_k·μ_i,   h_l = Σ_i ½ Γ_i x_i·A_l x_i.

    Parameters
    ----------
    strengths : array_like, shape (N,), default (1.0, 1.0, 1.0, -1.0, -1.0, -1.0)
        Γ_i, N ≥ 2 numbers of any sign, none of them 0.
    positions : array_like, shape (N, 3), optional
        The initial positions, vectors of any length but 0. The default is random and uniform on the sphere.
    key : int or JAX key, default 0
        Selects the random positions.
    alpha : array_like, shape (3,) or (M, 3), optional
        α_k, the amplitudes of random rotations of the whole sphere (SALT noise). None means none.
    strain : array_like, shape (3, 3) or (M, 3, 3), optional
        A_k, symmetric matrices: the amplitudes of random flows with the stream functions ½ x·A_k x. None means none.

    Returns
    -------
    system : System
        On so(3)ᴺ. The strengths are the entry "strength" of `params`.
    mu0 : array, shape (3N,)
        The initial state. `mu.reshape(N, 3) / strengths[:, None]` has the positions.

    Raises
    ------
    ValueError
        If a strength is 0, if two vortices have one position, or if `strain` is not symmetric.
    """  # fmt: skip
    Gamma = _strengths(strengths)
    n = len(Gamma)
    start = random_spins(n, key) if positions is None else _directions(positions, n)
    _check_apart(start)
    apart = ~np.eye(n, dtype=bool)

    def directions(mu: Array, p: dict) -> Array:
        m = mu.reshape(n, 3)
        return m * (jnp.sign(p["strength"]) / jnp.linalg.norm(m, axis=1))[:, None]

    def hamiltonian(mu: Array, p: dict) -> Array:
        x = directions(mu, p)
        distance = jnp.where(apart, 1.0 - x @ x.T, 1.0)
        return -jnp.sum(p["strength"][:, None] * p["strength"] * jnp.log(distance)) / (8.0 * jnp.pi)

    def gradient(mu: Array, p: dict) -> Array:
        x = directions(mu, p)
        weights = jnp.where(apart, p["strength"] / jnp.where(apart, 1.0 - x @ x.T, 1.0), 0.0)
        pull = weights @ x / (4.0 * jnp.pi)
        ratio = jnp.abs(p["strength"]) / jnp.linalg.norm(mu.reshape(n, 3), axis=1)  # 1 on the orbit
        return (ratio[:, None] * (pull - jnp.sum(pull * x, axis=1, keepdims=True) * x)).reshape(-1)

    def strained(A: np.ndarray) -> Any:
        def noise(mu: Array, p: dict) -> Array:
            x = directions(mu, p)
            return 0.5 * jnp.sum(p["strength"] * jnp.sum((x @ A) * x, axis=1))

        return noise

    noises: list[Any] = []
    if alpha is not None:
        rotations = _stack("alpha", alpha, (3,))
        noises.append(salt(np.tile(rotations, (1, n))))
    if strain is not None:
        noises += [strained(A) for A in _symmetric(strain)]
    mu0 = Gamma[:, None] * start
    system = System(
        Product(SO3(), copies=n), hamiltonian, noises, side="right", params={"strength": Gamma}, gradient=gradient
    )
    return system, mu0.reshape(-1)


def _strengths(strengths: Any) -> Array:
    found = np.atleast_1d(np.asarray(validation.numbers("strengths", strengths, kinds="fiu"), float))
    if found.ndim != 1 or len(found) < 2:
        raise ValueError(f"strengths must be two numbers or more, not of shape {np.shape(strengths)}.")
    if not np.all(np.isfinite(found)) or np.any(found == 0.0):
        raise ValueError(f"strengths must be finite and not 0, not {strengths!r}.")
    return jnp.asarray(found)


def _directions(positions: Any, n: int) -> Array:
    x = np.asarray(numbers("positions", positions, ((n, 3),)))
    lengths = np.linalg.norm(x, axis=1, keepdims=True)
    if np.any(lengths == 0.0):
        raise ValueError("positions must be vectors of any length but 0.")
    return jnp.asarray(x / lengths)


def _check_apart(x: Any) -> None:
    """Raise if two vortices have one position, where h is infinite."""
    near = np.triu(np.asarray(x) @ np.asarray(x).T, 1) > 1.0 - 1e-14
    if near.any():
        i, j = np.argwhere(near)[0]
        raise ValueError(f"positions must differ, but vortices {i} and {j} have the same.")


def _stack(name: str, values: Any, shape: tuple[int, ...]) -> np.ndarray:
    """A stack of arrays of one shape, from one array or several."""
    found = np.asarray(validation.numbers(name, values, kinds="fiu"), float)
    found = found[None] if found.shape == shape else found
    if found.shape[1:] != shape or len(found) == 0 or not np.all(np.isfinite(found)):
        words = ", ".join(map(str, shape))
        raise ValueError(f"{name} must be finite and have shape ({words}) or (M, {words}), not {np.shape(values)}.")
    return found


def _symmetric(strain: Any) -> np.ndarray:
    stack = _stack("strain", strain, (3, 3))
    if not np.allclose(stack, stack.swapaxes(1, 2)):
        raise ValueError("strain must be symmetric matrices.")
    return stack
