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
    """The sine-Euler equations on su(n), n odd, with SALT noise on chosen modes (Zeitlin 1991):

        W' = [P, W],   W = (i/2ε) Σ ω_m T_m,   P = (i/2ε) Σ ω_m/|m|² T_m,   ε = 2π/n,

    m ≠ 0 in [−K, K]², K = (n − 1)/2. In the orientation of the paper these are the Fourier equations

        dω_m = Σ_k (1/ε) sin(ε m∧k) ω_{m+k} (ω_{−k}/|k|² dt + Σ_i ζ_{i,−k} ∘ dW^i).

    - `omega`: the coefficients at the start, an (n, n) array with omega[m1 % n, m2 % n], of a real field without mean;
      or `vorticity`: its values at x_i = 2πi/N, y_j = 2πj/N, N ≥ n, as [i, j]. By default real and imaginary parts of
      coefficients are uniform on [−½, ½], drawn from `key`.
    - `noise_modes`: pairs (m1, m2); ζ_i is `amplitude` at m and its conjugate at −m: a cosine, moved by the phase of a
      complex amplitude. One number, or one a mode. None for no noise. In their place `noise_shells` = (k1, k2): cosine
      and sine on all modes with |m| rounded in [k1, k2], `amplitude` one number or one a shell; or `noise_fields`: a
      stack of ζ_i, coefficients if complex, values on a grid if real.
    - `orientation`: "physical", ∂ω/∂t = −u·∇ω, u = (−ψ_y, ψ_x), Δψ = ω, for n → ∞; or "paper", in which time runs
      backwards. Flow diagnostics use it; a matrix alone does not record it.
    - `screening` F: ω_m/(|m|² + F) in P, and W is the potential vorticity (Δ − F)ψ, the inverse radius of deformation
      squared. `topography`: coefficients, or values on a grid, that are part of it but do not move.
    - `viscosity` ν, `hyperviscosity` ν_p with `hyperviscosity_order` p, `drag` α, `stirring` f add
      −(ν(−Δ) + ν_p(−Δ)ᵖ + α)ω + f to ∂ω/∂t; `stirring_shells` = (k1, k2) adds white noise on all modes of these shells,
      of `stirring_amplitude`. Split off by Strang's rule; Casimirs then change.

    Arrays may be given as the path of a file. The state is the matrix W; `cj.fluids.of(system)` knows its vorticity.
    Casimirs: the eigenvalues of H = −iW.
    """  # fmt: skip
    torus = Torus(n, orientation)
    if omega is None and vorticity is None:
        omega = _random_field(torus.n, random.as_key(key))
    else:
        omega = initial(torus, "omega", omega, vorticity)
    flow = Flow.of(torus, screening, topography)
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
