"""Common parts of the models of fluids."""

from typing import Any

from jaxtyping import Array

from ..algebras.magnetic import MagneticSU
from ..algebras.su import SU
from ..fluids.advected import AdvectingFlow, advecting_noise
from ..fluids.fields import random_field
from ..fluids.flow import Flow
from ..fluids.sphere import Sphere
from ..fluids.surface import Coefficients, Surface
from ..fluids.torus import Torus
from ..numerics import validation
from ..systems import System


def initial(surface: Surface, name: str, coefficients: Any, values: Any) -> Coefficients:
    """The coefficients of the initial field, from coefficients or from values on a grid."""
    if coefficients is not None and values is not None:
        raise ValueError(f"{name} and vorticity are two ways to give the field at the start: give one of them.")
    return surface.check(name, coefficients) if values is None else surface.from_values(values, "vorticity")


def fluid_system(flow: Flow, noise: list[Any], vorticity: Coefficients, damping: Any = None) -> tuple[System, Array]:
    """The system of a flow, and the state with this vorticity."""
    options = {"side": "right", "gradient": flow.stream, "dissipation": damping, "flow": flow}
    system = System(SU(flow.surface.n), flow.hamiltonian, noise, **options)
    return system, flow.state(vorticity)


def surface_named(n: int, name: str, rotation: Any) -> Surface:
    """The torus or the sphere. A rotation other than 0 requires the sphere."""
    validation.choice("surface", name, ("torus", "sphere"))
    if name == "torus" and validation.finite("rotation", rotation):
        raise ValueError("rotation is for surface='sphere': on the torus it would do nothing.")
    return Torus(n) if name == "torus" else Sphere(n)


def advecting_system(
    flow: AdvectingFlow, noise: list, omega: Any, vorticity: Any, name: str, advected: Any, key: Any
) -> tuple[System, Array]:
    """The system of a flow with an advected field of this name, and its initial state."""
    on = flow.surface
    peak = min(4.0, on.n // 2)
    given = omega is not None or vorticity is not None
    start = initial(on, "omega", omega, vorticity) if given else random_field(on, key, peak=peak)
    a = random_field(on, key, 1, peak=peak, rms=1.0 / peak) if advected is None else on.as_coefficients(name, advected)
    options = {"side": "right", "gradient": flow.gradient, "flow": flow}
    system = System(MagneticSU(on.n), flow.total, advecting_noise(noise), **options)
    return system, flow.state(start, a)
