"""Ideal flow on the sphere, which may rotate: Zeitlin's model on su(n)."""

from typing import Any

from jaxtyping import Array, Complex

from ..fluids.fields import random_field
from ..fluids.flow import Flow
from ..fluids.noise import fluid_noise, white_stirring
from ..fluids.sphere import Sphere
from ..systems import System
from .fluid import fluid_system, initial
from .origin import Field, model


@model
def euler_sphere(
    n: int = 9,
    *,
    rotation: float = 0.0,
    noise_modes: Any = None,
    amplitude: Field = 0.1,
    noise_shells: Any = None,
    noise_fields: Field = None,
    omega: Field = None,
    vorticity: Field = None,
    key: Any = 0,
    screening: float = 0.0,
    topography: Field = None,
    viscosity: float = 0.0,
    hyperviscosity: float = 0.0,
    hyperviscosity_order: int = 4,
    drag: float = 0.0,
    stirring: Field = None,
    stirring_shells: Any = None,
    stirring_amplitude: Any = 0.1,
) -> tuple[System, Complex[Array, "n n"]]:
    """Ideal flow on a rotating unit sphere: Zeitlin's model on su(n) (Zeitlin 2004).

    The equation is

        W' = (1/ħ)[P, W],   P = (Δ − F)⁻¹(W − B),   ħ = 2/√(n² − 1),

    with the Laplacian of Hoppe and Yau. The state W is the matrix of the absolute (potential) vorticity q = ω + 2Ω cos
    θ. For n → ∞ the equation is ∂q/∂t = −u·∇q. Rossby–Haurwitz waves are exact at every n. The Casimirs are the
    eigenvalues of H = −iW, which belong to q. `cj.fluids.of(system)` returns the `Flow` that converts states to fields.
    All arrays may be the path of a .npy, Zarr or NetCDF file.

    Parameters
    ----------
    n : int, default 9
        The size of the matrices. Degrees l < n are represented.
    rotation : float, default 0.0
        Ω, the angular velocity of the sphere.
    noise_modes : sequence of (l, m), optional
        Modes of SALT noise. Each moves the field as the stream function −amplitude Y_lm does. The default, None, means
        no noise.
    amplitude : float or array_like, default 0.1
        The amplitude of the noise: one number, or one per mode or degree.
    noise_shells : (int, int), optional
        Noise on all modes of the degrees l1 to l2, instead of `noise_modes`.
    noise_fields : array_like, optional
        A stack of fields for the noise, coefficients or values, instead of `noise_modes`.
    omega : array_like, shape (n²,), optional
        Initial coefficients of the vorticity ω relative to the rotating sphere, at l² + l + m. The default is a random
        field of degrees about 4 (`fluids.random_field`) from `key`.
    vorticity : array_like, shape (latitudes, longitudes), optional
        Initial values of ω, instead of `omega`: on the n × 2n Gauss–Legendre grid, or on an equiangular N × 2N grid
        with N ≥ 2n. Latitudes run from north to south.
    key : int or JAX key, default 0
        Selects the random initial field.
    screening : float, default 0.0
        F = 1/L_d², the inverse squared deformation radius.
    topography : array_like, optional
        A fixed part of the potential vorticity, as coefficients or values.
    viscosity, hyperviscosity : float, default 0.0
        ν and ν_p in −(ν(−Δ) + ν_p(−Δ)ᵖ + α)ω + f, which is added to ∂ω/∂t. Casimirs then change.
    hyperviscosity_order : int, default 4
        p.
    drag : float, default 0.0
        α, a rate.
    stirring : array_like, optional
        f, a constant field.
    stirring_shells : (int, int), optional
        Stirring that is white in time, on all modes of these degrees.
    stirring_amplitude : float or array_like, default 0.1
        Its amplitude: one number, or one per degree.

    Returns
    -------
    system : System
        Right-invariant, on su(n).
    W0 : array, shape (n, n), complex
        The initial state.
    """  # fmt: skip
    sphere = Sphere(n)
    if omega is None and vorticity is None:
        omega = random_field(sphere, key, peak=min(4.0, sphere.n - 1))
    else:
        omega = initial(sphere, "omega", omega, vorticity)
    flow = Flow.create(sphere, screening, topography, rotation)
    damping = flow.damping(viscosity, hyperviscosity, hyperviscosity_order, drag, stirring)
    noise = fluid_noise(sphere, noise_modes, amplitude, noise_shells, noise_fields)
    return fluid_system(flow, noise + white_stirring(sphere, stirring_shells, stirring_amplitude), omega, damping)
