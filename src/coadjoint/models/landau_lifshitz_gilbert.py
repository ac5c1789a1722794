"""Landau–Lifshitz–Gilbert spins: damping, temperature and spin-transfer torque on a periodic lattice."""

from typing import Any, Literal

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ..algebras.product import Product
from ..algebras.so3 import SO3
from ..noises import Noise
from ..numerics import validation
from ..systems import System
from .origin import model
from .spin_chain import numbers, random_spins
from .spin_lattice import lattice_terms


@model
def landau_lifshitz_gilbert(
    shape: Any = (8, 8),
    *,
    damping: float = 0.1,
    temperature: float = 0.0,
    current: float = 0.0,
    polarisation: Any = (0.0, 0.0, 1.0),
    coupling: float = 1.0,
    anisotropy: float = 0.0,
    field: Any = (0.0, 0.0, 0.0),
    dm: Any = None,
    dipole: float = 0.0,
    cutoff: float = 2.0,
    key: Any = 0,
    S0: Any = None,
    side: Literal["left", "right"] = "left",
) -> tuple[System, Array]:
    """Landau–Lifshitz–Gilbert spins on a periodic chain, square or simple cubic lattice.

    The equation with the energy h of `spin_lattice`, s = +1 for side="left" and −1 for side="right", is

        S_i' = s S_i × ∂h/∂S_i + s (α/|S_i|) S_i × S_i' + (a/|S_i|) S_i × (S_i × p) + thermal noise.

    The second term is Gilbert damping, which lowers h. The third is the spin-transfer torque of Slonczewski. Solved for
    S_i', the equation is S_i' = s S_i × G_i with

        G_i = ( ∂h/∂S_i + s (α/|S_i|) S_i × ∂h/∂S_i + s (a/|S_i|) S_i × p − α a p ) / (1 + α²) + σ_i ∘ dW_i/dt,
        σ_i² = 2 α T / (|S_i| (1 + α²)).

    The lengths of the spins are the Casimirs. Without a current exp(−h/T) is the stationary distribution. With
    `side="right"`, `current=0` and `temperature=0` this is the equation of Sunny's `Langevin` in Gilbert form.

    Parameters
    ----------
    shape : int or sequence of int, default (8, 8)
        One to three numbers of spins, each at least 3.
    damping : float, default 0.1
        α ≥ 0, Gilbert's damping. An entry of `params`, as are T, a, p and the parameters of h.
    temperature : float, default 0.0
        T ≥ 0, in the units of h. T > 0 adds 3n Brownian motions in the order of the state, and requires α > 0. The
        entry "length" of `params` then has |S_i|; set it too if you run from spins of other lengths.
    current : float, default 0.0
        a, the strength of the spin-transfer torque.
    polarisation : array_like, shape (3,), default (0.0, 0.0, 1.0)
        p, the polarisation of the current.
    coupling, anisotropy, dipole, cutoff : float
        J, d, g and R of `spin_lattice`, by default 1.0, 0.0, 0.0 and 2.0.
    field : array_like, shape (3,), default (0.0, 0.0, 0.0)
        B.
    dm : array_like, shape (axes, 3), optional
        The Dzyaloshinskii–Moriya vectors D_a, one row per axis. None means none.
    key : int or JAX key, default 0
        Selects the random initial state.
    S0 : array_like, shape (*shape, 3), optional
        The initial spins, of any lengths but 0. The default is unit spins, uniform on the sphere.
    side : {"left", "right"}, default "left"
        The sign s. "right" is the time direction of Sunny and of Schrödinger's equation.

    Returns
    -------
    system : System
        On so(3)ⁿ.
    mu0 : array, shape (3n,)
        The initial state. `mu.reshape(*shape, 3)` has one spin per site.

    Raises
    ------
    ValueError
        If `damping` or `temperature` is negative, if `temperature` is given without damping, or if a spin has length 0.
    """  # fmt: skip
    terms = lattice_terms(
        shape, coupling=coupling, anisotropy=anisotropy, field=field, dm=dm, dipole=dipole, cutoff=cutoff
    )
    alpha, T = _rate("damping", damping), _rate("temperature", temperature)
    thermal = validation.is_traced(T) or T > 0.0
    if thermal and not (validation.is_traced(alpha) or alpha > 0.0):
        raise ValueError(f"temperature = {temperature} needs damping above 0, not {damping}.")
    start = random_spins(terms.n, key) if S0 is None else numbers("S0", S0, ((*terms.sizes, 3),))
    lengths = jnp.linalg.norm(start.reshape(-1, 3), axis=1)
    if not validation.is_traced(lengths) and not np.all(np.asarray(lengths) > 0.0):
        raise ValueError("S0 must have no spin of length 0: the damping divides by |S|.")
    params = terms.params | {
        "damping": alpha,
        "current": numbers("current", current, ((),)),
        "polarisation": numbers("polarisation", polarisation, ((3,),)),
    }
    if thermal:
        params |= {"temperature": T, "length": lengths}
    s = validation.choice("side", side, ("left", "right")) == "left" or -1

    def damped(mu: Array, p: dict) -> Array:
        """G − ∂h/∂S, without noise."""
        S, slope, alpha = mu.reshape(-1, 3), terms.gradient(mu, p).reshape(-1, 3), p["damping"]
        pull = alpha * slope + p["current"] * p["polarisation"]
        turned = jnp.cross(S / jnp.linalg.norm(S, axis=1, keepdims=True), pull)
        return ((s * turned - alpha * pull) / (1.0 + alpha**2)).reshape(-1)

    algebra = Product(SO3(), copies=terms.n)
    noise = [_ThermalField(3 * terms.n)] if thermal else []
    system = System(
        algebra, terms.hamiltonian, noise, side=side, params=params, gradient=terms.gradient, forcing=damped
    )
    return system, start.reshape(-1)


class _ThermalField(Noise):
    """σ_i dW_i on each spin, with σ_i² = 2αT/(|S_i|(1 + α²))."""

    size: int = eqx.field(static=True)
    additive: bool = eqx.field(default=True, static=True)

    def apply(self, mu: Array, dS: Float[Array, " M"], params: PyTree = None) -> Array:
        """The element σ_i dW_i."""
        alpha = params["damping"]
        variance = 2.0 * alpha * params["temperature"] / (1.0 + alpha**2)
        return jnp.repeat(jnp.sqrt(variance / params["length"]), 3) * dS


def _rate(name: str, value: Any) -> Any:
    """A number that is not negative; a traced one is not checked."""
    if validation.is_traced(value):
        return value
    found = numbers(name, value, ((),))
    if float(found) < 0.0:
        raise ValueError(f"{name} must be 0 or above, not {value!r}.")
    return found
