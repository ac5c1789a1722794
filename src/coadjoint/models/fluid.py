"""Common parts of the models of fluids."""

from typing import Any

from jaxtyping import Array

from ..algebras.su import SU
from ..fluids.flow import Flow
from ..fluids.surface import Coefficients, Surface
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
