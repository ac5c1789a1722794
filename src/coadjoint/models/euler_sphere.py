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
    """Ideal flow on the unit sphere, which rotates with angular velocity Ω = `rotation`, on su(n) (Zeitlin 2004):

        W' = (1/ħ)[P, W],   P = (Δ − F)⁻¹(W − B),   ħ = 2/√(n² − 1),

    with the Laplacian of Hoppe and Yau. The state W is the matrix of absolute (potential) vorticity q = ω + 2Ω cos θ,
    the equation is ∂q/∂t = −u·∇q for n → ∞, and Rossby–Haurwitz waves are exact at every n.

    - `omega`: coefficients at the start of the vorticity ω relative to the rotating sphere, n² numbers at l² + l + m;
      or `vorticity`: its values as [latitude, longitude], on the n × 2n grid of Gauss or on an equiangular one,
      N × 2N with N ≥ 2n. By default a random field of degrees about 4 (`fluids.random_field`), drawn from `key`.
    - `noise_modes`: pairs (l, m) of SALT noise, which moves the field as the stream function −amplitude Y_lm does; or
      `noise_shells` = (l1, l2): all modes of these degrees, `amplitude` one number or one a degree; or `noise_fields`:
      a stack of fields, coefficients or values.
    - `screening` F and `topography`, `viscosity` and all that follows: as in `sine_euler`.

    Arrays may be given as the path of a file. `cj.fluids.of(system)` knows the vorticity of a state. Casimirs: the
    eigenvalues of H = −iW, that is, those of ω + 2Ω cos θ.
    """  # fmt: skip
    sphere = Sphere(n)
    if omega is None and vorticity is None:
        omega = random_field(sphere, key, peak=min(4.0, sphere.n - 1))
    else:
        omega = initial(sphere, "omega", omega, vorticity)
    flow = Flow.of(sphere, screening, topography, rotation)
    damping = flow.damping(viscosity, hyperviscosity, hyperviscosity_order, drag, stirring)
    noise = fluid_noise(sphere, noise_modes, amplitude, noise_shells, noise_fields)
    return fluid_system(flow, noise + white_stirring(sphere, stirring_shells, stirring_amplitude), omega, damping)
