"""Thermal quasi-geostrophic flow: one layer with a buoyancy that varies along the surface."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Complex

from ..fluids.advected import AdvectingFlow
from ..fluids.flow import Flow
from ..fluids.noise import fluid_noise
from ..numerics import validation
from ..systems import System
from .fluid import advecting_system, surface_named
from .origin import Field, model


@model
def thermal_qg(
    n: int = 9,
    *,
    surface: str = "sphere",
    screening: float = 1.0,
    rotation: float = 0.0,
    topography: Field = None,
    noise_modes: Any = None,
    amplitude: Field = 0.1,
    noise_shells: Any = None,
    noise_fields: Field = None,
    omega: Field = None,
    vorticity: Field = None,
    buoyancy: Field = None,
    key: Any = 0,
) -> tuple[System, Complex[Array, "2 n n"]]:
    """Thermal quasi-geostrophic flow on su(n) ⋉ su(n)*, on a rotating sphere or on the torus.

    For n → ∞ the equations are those of Holm, Luesink and Pan (2021), in the physical orientation,

        ∂b/∂t + {ψ, b} = 0,   ∂ω/∂t + {ψ, ω − b} = −½ {h₁, b},   ω = (Δ − F)ψ + 2Ω cos θ,

    with the velocity of stream function ψ, {ψ, b} = u·∇b. b is the buoyancy and h₁ the topography. The Lie–Poisson
    variables are b and q = ω + b, because ∂q/∂t = −{ψ, q} + {ψ − ½h₁, b}. The state is (W, Θ), the matrices of q and b:

        Θ' = rate [P, Θ],   W' = rate ([P, W] − [P + ½H₁, Θ]),   P = (−Δ + F)⁻¹(W − Θ − B).

    The conserved energy is the mean of ½(|u|² + Fψ²) − ½ b h₁. The Casimirs are the eigenvalues of Θ, the distribution
    of buoyancy, and Tr(WΘᵏ). `cj.fluids.of(system)` returns an `AdvectingFlow` with Δψ as vorticity and b as the
    advected field. F is constant, so latitude enters through 2Ω cos θ alone (the traditional approximation). Roop and
    Ephrati (2025) use the same bracket on the sphere, and an F that depends on latitude.

    On the sphere let ω̄ = (2 + F)U cos θ + 2Ω cos θ, b̄ = B cos θ and h₁ = H cos θ. A disturbance of degree l and order m
    then obeys linear theory at every n. It grows like exp(m t Im s) with (l(l + 1) + F) s² + (Q − 2B) s = (U + ½H) B
    and Q = (2 + F)U + 2Ω + B. The growth rate does not decrease with l = m, so small scales of an unstable flow grow
    first.

    Parameters
    ----------
    n : int, default 9
        The size of the matrices, odd on the torus.
    surface : {"sphere", "torus"}, default "sphere"
        The surface.
    screening : float, default 1.0
        F = 1/L_d², the inverse squared deformation radius.
    rotation : float, default 0.0
        Ω, on the sphere only.
    topography : array_like, optional
        h₁, as coefficients or as values on a grid. The default is 0.
    noise_modes, amplitude, noise_shells, noise_fields : optional
        SALT noise, as in `euler_sphere` or `sine_euler`. It moves vorticity and buoyancy.
    omega, vorticity : array_like, optional
        The initial Δψ, as in `euler_sphere` or `sine_euler`. The default is a random field of wavenumbers about 4.
    buoyancy : array_like, optional
        The initial b, as coefficients or as values on a grid. The default is a random field.
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
    F = validation.finite("screening", screening)
    base = Flow.create(on, F, rotation=rotation)
    H = jnp.zeros((on.n, on.n), complex)
    if topography is not None:
        H = 0.5 * on.matrix(on.as_coefficients("topography", topography))
    flow = AdvectingFlow(on, F, base.background, H, thermal=True)
    noise = fluid_noise(on, noise_modes, amplitude, noise_shells, noise_fields)
    return advecting_system(flow, noise, omega, vorticity, "buoyancy", buoyancy, key)
