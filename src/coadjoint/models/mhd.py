"""Flows that carry a magnetic field or buoyancy: su(n) ⋉ su(n)*, on torus and sphere."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Complex

from ..algebras.magnetic import MagneticSU
from ..fluids.carrying import CarryingFlow, carrying_noise
from ..fluids.fields import random_field
from ..fluids.flow import Flow
from ..fluids.noise import fluid_noise
from ..fluids.sphere import Sphere
from ..fluids.surface import Surface
from ..fluids.torus import Torus
from ..numerics import validation
from ..systems import System
from .fluid import initial
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
    """Reduced magnetohydrodynamics on su(n) ⋉ su(n)*, on the torus or on a sphere that may rotate:

        Θ' = rate [P, Θ],   W' = rate ([P, W] − [ΔΘ, Θ]),   P = (−Δ)⁻¹(W − B),

    that is ∂a/∂t = −{ψ, a}, ∂q/∂t = −{ψ, q} + {a, Δa}, q = Δψ + 2Ω cos θ, for n → ∞, in physical orientation.

    - `surface`: "torus" (n odd) or "sphere".
    - `omega` or `vorticity`, noise and rotation: as in `euler_sphere`; `potential`: the magnetic potential a, as
      coefficients or as values on a grid. By default both are random fields of wavenumbers about 4, from `key`.

    The state is (W, Θ). Casimirs: the eigenvalues of Θ and the cross-helicities Tr(WΘᵏ); `cj.fluids.of(system)` knows
    the fields. W = ±ΔΘ is steady at every n (without rotation), and so are Malkus waves on a ∝ cos θ exact.
    """  # fmt: skip
    on = _surface(n, surface, rotation)
    base = Flow.of(on, rotation=rotation)
    flow = CarryingFlow(on, 0.0, base.background)
    noise = fluid_noise(on, noise_modes, amplitude, noise_shells, noise_fields)
    return _system(flow, noise, omega, vorticity, "potential", potential, key)


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
    """A stratified flow on su(n) ⋉ su(n)*: buoyancy b is carried, and turns the flow where it lies on a slope of h:

        Θ' = rate [P, Θ],   W' = rate ([P, W] − [H, Θ]),   P = (−Δ)⁻¹(W − B),

    that is ∂b/∂t = −{ψ, b}, ∂q/∂t = −{ψ, q} − {h, b} for n → ∞: in a vertical plane h is the height, and the last term
    ∂b/∂x; h must be periodic here. By default h = sin y on the torus, cos θ on the sphere.

    - `height`, `buoyancy`: coefficients, or values on a grid; all else as in `mhd`.

    The state is (W, Θ), Casimirs as in `mhd`: the eigenvalues of Θ (how much there is of each buoyancy), Tr(WΘᵏ).
    """  # fmt: skip
    on = _surface(n, surface, rotation)
    if height is None:
        h = jnp.zeros(on.shape, complex if isinstance(on, Torus) else float)
        h = h.at[0, 1].set(-0.5j).at[0, -1].set(0.5j) if isinstance(on, Torus) else h.at[2].set((4 * jnp.pi / 3) ** 0.5)
    else:
        h = on.given("height", height)
    flow = CarryingFlow(on, 0.0, Flow.of(on, rotation=rotation).background, on.matrix(h))
    noise = fluid_noise(on, noise_modes, amplitude, noise_shells, noise_fields)
    return _system(flow, noise, omega, vorticity, "buoyancy", buoyancy, key)


def _surface(n: int, name: str, rotation: Any) -> Surface:
    validation.choice("surface", name, ("torus", "sphere"))
    if name == "torus" and validation.finite("rotation", rotation):
        raise ValueError("rotation is for surface='sphere': on the torus it would do nothing.")
    return Torus(n) if name == "torus" else Sphere(n)


def _system(
    flow: CarryingFlow, noise: list, omega: Any, vorticity: Any, name: str, carried: Any, key: Any
) -> tuple[System, Pair]:
    on = flow.surface
    peak = min(4.0, on.n // 2)
    given = omega is not None or vorticity is not None
    start = initial(on, "omega", omega, vorticity) if given else random_field(on, key, peak=peak)
    a = random_field(on, key, 1, peak=peak, rms=1.0 / peak) if carried is None else on.given(name, carried)
    options = {"side": "right", "gradient": flow.gradient, "flow": flow}
    system = System(MagneticSU(on.n), flow.total, carrying_noise(noise), **options)
    return system, flow.state(start, a)
