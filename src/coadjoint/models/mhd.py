"""Flows that advect a magnetic field or buoyancy: su(n) ⋉ su(n)*, on torus and sphere."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Complex

from ..fluids.advected import AdvectingFlow
from ..fluids.flow import Flow
from ..fluids.noise import fluid_noise
from ..fluids.torus import Torus
from ..systems import System
from .fluid import advecting_system, surface_named
from .origin import Field, model

Pair = Complex[Array, "2 n n"]


@model
def mhd(
    n: int = 9,
    *,
    surface: str = "torus",
    rotation: float = 0.0,
    noise_modes: Any = None,
    amplitude: Field = 0.1,
    noise_shells: Any = None,
    noise_fields: Field = None,
    omega: Field = None,
    vorticity: Field = None,
    potential: Field = None,
    key: Any = 0,
) -> tuple[System, Pair]:
    """Reduced magnetohydrodynamics on su(n) ⋉ su(n)*, on the torus or on a rotating sphere.

    The equations are

        Θ' = rate [P, Θ],   W' = rate ([P, W] − [ΔΘ, Θ]),   P = (−Δ)⁻¹(W − B).

    For n → ∞ they are ∂a/∂t = −{ψ, a}, ∂q/∂t = −{ψ, q} + {a, Δa} with q = Δψ + 2Ω cos θ, in the physical orientation.
    The state is (W, Θ). The Casimirs are the eigenvalues of Θ and the cross-helicities Tr(WΘᵏ). W = ±ΔΘ is steady at
    every n without rotation, and Malkus waves on a ∝ cos θ are exact. All arrays may be the path of a file.

    Parameters
    ----------
    n : int, default 9
        The size of the matrices, odd on the torus.
    surface : {"torus", "sphere"}, default "torus"
        The surface.
    rotation : float, default 0.0
        Ω, on the sphere only.
    noise_modes, amplitude, noise_shells, noise_fields : optional
        SALT noise, as in `euler_sphere`.
    omega, vorticity : array_like, optional
        The initial vorticity, as in `euler_sphere` or `sine_euler`. The default is a random field of wavenumbers about
        4.
    potential : array_like, optional
        The initial magnetic potential a, as coefficients or as values on a grid. The default is a random field.
    key : int or JAX key, default 0
        Selects the random initial fields.

    Returns
    -------
    system : System
        Right-invariant, on su(n) ⋉ su(n)*.
    mu0 : array, shape (2, n, n), complex
        The initial state.
    """  # fmt: skip
    on = surface_named(n, surface, rotation)
    base = Flow.create(on, rotation=rotation)
    flow = AdvectingFlow(on, 0.0, base.background)
    noise = fluid_noise(on, noise_modes, amplitude, noise_shells, noise_fields)
    return advecting_system(flow, noise, omega, vorticity, "potential", potential, key)


@model
def boussinesq(
    n: int = 9,
    *,
    surface: str = "torus",
    height: Field = None,
    rotation: float = 0.0,
    noise_modes: Any = None,
    amplitude: Field = 0.1,
    noise_shells: Any = None,
    noise_fields: Field = None,
    omega: Field = None,
    vorticity: Field = None,
    buoyancy: Field = None,
    key: Any = 0,
) -> tuple[System, Pair]:
    """A stratified flow on su(n) ⋉ su(n)*: the flow advects the buoyancy b, which drives vorticity.

    The equations are

        Θ' = rate [P, Θ],   W' = rate ([P, W] − [H, Θ]),   P = (−Δ)⁻¹(W − B).

    For n → ∞ they are ∂b/∂t = −{ψ, b}, ∂q/∂t = −{ψ, q} − {h, b}. In a vertical plane h is the height, and the last term
    is ∂b/∂x; h must be periodic here. The Casimirs are the eigenvalues of Θ, the distribution of buoyancy, and Tr(WΘᵏ).
    All arrays may be the path of a file.

    Parameters
    ----------
    n : int, default 9
        The size of the matrices, odd on the torus.
    surface : {"torus", "sphere"}, default "torus"
        The surface.
    height : array_like, optional
        h, as coefficients or values. The default is sin y on the torus and cos θ on the sphere.
    rotation : float, default 0.0
        Ω, on the sphere only.
    noise_modes, amplitude, noise_shells, noise_fields : optional
        SALT noise, as in `euler_sphere`.
    omega, vorticity : array_like, optional
        The initial vorticity, as in `euler_sphere` or `sine_euler`. The default is a random field of wavenumbers about
        4.
    buoyancy : array_like, optional
        The initial buoyancy b, as coefficients or values. The default is a random field.
    key : int or JAX key, default 0
        Selects the random initial fields.

    Returns
    -------
    system : System
        Right-invariant, on su(n) ⋉ su(n)*.
    mu0 : array, shape (2, n, n), complex
        The initial state (W, Θ).
    """  # fmt: skip
    on = surface_named(n, surface, rotation)
    if height is None:
        h = jnp.zeros(on.shape, complex if isinstance(on, Torus) else float)
        h = h.at[0, 1].set(-0.5j).at[0, -1].set(0.5j) if isinstance(on, Torus) else h.at[2].set((4 * jnp.pi / 3) ** 0.5)
    else:
        h = on.as_coefficients("height", height)
    flow = AdvectingFlow(on, 0.0, Flow.create(on, rotation=rotation).background, on.matrix(h))
    noise = fluid_noise(on, noise_modes, amplitude, noise_shells, noise_fields)
    return advecting_system(flow, noise, omega, vorticity, "buoyancy", buoyancy, key)
