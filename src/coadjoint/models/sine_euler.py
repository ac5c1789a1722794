"""The sine-Euler equations: two-dimensional ideal fluid on the torus, truncated to su(N)."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex

from ..fluids.flow import Flow
from ..fluids.noise import fluid_noise, white_stirring
from ..fluids.torus import Torus, mirror, wavenumbers
from ..numerics import random
from ..systems import System
from .fluid import fluid_system, initial
from .origin import Field, model

Matrix = Complex[Array, "N N"]


@model
def sine_euler(
    n: int = 3,
    *,
    noise_modes: Any = ((1, 1), (1, -1)),
    amplitude: Field = 0.1,
    noise_shells: Any = None,
    noise_fields: Field = None,
    omega: Field = None,
    vorticity: Field = None,
    key: Any = 0,
    orientation: str = "physical",
    screening: float = 0.0,
    topography: Field = None,
    viscosity: float = 0.0,
    hyperviscosity: float = 0.0,
    hyperviscosity_order: int = 4,
    drag: float = 0.0,
    stirring: Field = None,
    stirring_shells: Any = None,
    stirring_amplitude: Any = 0.1,
) -> tuple[System, Matrix]:
    """Two-dimensional ideal flow on the torus [0, 2π)²: the sine-Euler equations on su(n) (Zeitlin 1991).

    The equation is

        W' = [P, W],   W = (i/2ε) Σ ω_m T_m,   P = (i/2ε) Σ ω_m/(|m|² + F) T_m,   ε = 2π/n,

    with m ≠ 0 in [−K, K]², K = (n − 1)/2. In Fourier space, in the orientation of the paper and without screening,

        dω_m = Σ_k (1/ε) sin(ε m∧k) ω_{m+k} (ω_{−k}/|k|² dt + Σ_i ζ_{i,−k} ∘ dW^i).

    This is Euler's equation only for wavenumbers far below n; small scales follow another Lie–Poisson system. The
    Casimirs are the eigenvalues of H = −iW. `cj.fluids.of(system)` returns the `Flow` that converts states to fields.
    All arrays may be the path of a .npy, Zarr or NetCDF file.

    Parameters
    ----------
    n : int, default 3
        The size of the matrices, odd.
    noise_modes : sequence of (m1, m2), default ((1, 1), (1, -1))
        Modes of SALT noise: ζ_i is `amplitude` at m and its conjugate at −m, a cosine. None means no noise.
    amplitude : complex or array_like, default 0.1
        The amplitude of the noise: one number, or one per mode or shell. Its phase shifts the cosine.
    noise_shells : (int, int), optional
        Cosine and sine noise on all modes whose rounded |m| lies in [k1, k2], instead of `noise_modes`.
    noise_fields : array_like, optional
        A stack of fields ζ_i, instead of `noise_modes`: coefficients if complex, values on a grid if real.
    omega : array_like, shape (n, n), complex, optional
        Initial coefficients omega[m1 % n, m2 % n] of exp(i m·x), of a real field without mean. The default has real and
        imaginary parts that are uniform on [−½, ½], from `key`.
    vorticity : array_like, shape (N, N), optional
        Initial values at x_i = 2πi/N, y_j = 2πj/N with N ≥ n, instead of `omega`.
    key : int or JAX key, default 0
        Selects the random initial field.
    orientation : {"physical", "paper"}, default "physical"
        "physical" means ∂ω/∂t = −u·∇ω for n → ∞ with u = (−ψ_y, ψ_x), Δψ = ω. In "paper" time runs backwards. A matrix
        does not record its orientation; the system does.
    screening : float, default 0.0
        F = 1/L_d², the inverse squared deformation radius. W is then the potential vorticity (Δ − F)ψ.
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
        Stirring that is white in time, on all modes of these shells.
    stirring_amplitude : float or array_like, default 0.1
        Its amplitude: one number, or one per shell.

    Returns
    -------
    system : System
        Right-invariant, on su(n).
    W0 : array, shape (n, n), complex
        The initial state.
    """  # fmt: skip
    torus = Torus(n, orientation)
    if omega is None and vorticity is None:
        omega = _random_field(torus.n, random.as_key(key))
    else:
        omega = initial(torus, "omega", omega, vorticity)
    flow = Flow.create(torus, screening, topography)
    damping = flow.damping(viscosity, hyperviscosity, hyperviscosity_order, drag, stirring)
    noise = fluid_noise(torus, noise_modes, amplitude, noise_shells, noise_fields)
    return fluid_system(flow, noise + white_stirring(torus, stirring_shells, stirring_amplitude), omega, damping)


@partial(jax.jit, static_argnums=0)
def _random_field(n: int, key: random.Key) -> Array:
    """Real and imaginary parts of the independent coefficients uniform on [−½, ½]."""
    member = random.member_key(key, random.INITIAL, 0)
    u = random.uniforms(member, 0, 2, 0, n * n).reshape(n, n, 2) - 0.5
    m1, m2 = np.meshgrid(wavenumbers(n), wavenumbers(n), indexing="ij")
    independent = (m1 > 0) | ((m1 == 0) & (m2 > 0))
    half = jnp.where(independent, jax.lax.complex(u[..., 0], u[..., 1]), 0.0)
    return half + jnp.conj(mirror(half))
