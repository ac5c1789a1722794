"""Quasi-geostrophic flow of several layers, on the sphere and on the torus."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..fluids.fields import random_field
from ..fluids.flow import Flow
from ..fluids.layered import LayeredFlow, fields, layered_noise
from ..fluids.noise import fluid_noise
from ..fluids.sphere import Sphere, index
from ..fluids.stratification import by_layer, stratification
from ..fluids.torus import Torus
from ..numerics import validation
from ..systems import System
from .origin import Field, model


@model
def multilayer_qg(
    n: int = 33,
    layers: int = 2,
    *,
    surface: str = "sphere",
    depths: Any = None,
    deformation_radius: float = 0.3,
    coupling: Any = None,
    screening: float = 0.0,
    rotation: float = 0.0,
    shear: Any = None,
    base: Field = None,
    topography: Field = None,
    noise_modes: Any = None,
    amplitude: Field = 0.1,
    noise_shells: Any = None,
    noise_fields: Field = None,
    noise_layers: Any = "independent",
    omega: Field = None,
    vorticity: Field = None,
    key: Any = 0,
    viscosity: float = 0.0,
    hyperviscosity: float = 0.0,
    hyperviscosity_order: int = 4,
    drag: Any = 0.0,
    stirring: Field = None,
) -> tuple[System, Float[Array, " dim"]]:
    """Quasi-geostrophic flow of L layers on su(n)^L: Zeitlin's model in each layer, coupled by the interfaces.

    For n → ∞ the equations are, with layers from the top,

        ∂q_i/∂t = −u_i·∇q_i,   q_i = Δψ_i + F_i⁻(ψ_{i−1} − ψ_i) + F_i⁺(ψ_{i+1} − ψ_i) + b_i,
        F_i⁺ = G_i/d_i,   F_{i+1}⁻ = G_i/d_{i+1},   b_i = 2Ω cos θ, plus the topography in the lowest layer.

    d_i is the depth of layer i over the mean depth. F is constant, so latitude enters through b alone (the traditional
    approximation). The state is a vector of `SU(n) ** L`. `cj.fluids.of(system)` returns the `LayeredFlow`, which
    converts states to fields. The Casimirs are the eigenvalues of every layer, and so each potential enstrophy.

    On the sphere a mean shear is solid-body rotation of every layer at its own angular velocity U_i. It is steady and
    lies in su(n)^L. The gradient of potential vorticity in cos θ is 2Ω + 2U_i + Σ_j F_ij (U_i − U_j). A disturbance of
    one degree obeys linear theory at every n. On the torus neither βy nor the stream function −U_i y is periodic, so
    neither is in su(n): pass a sheared flow as `base`.

    Parameters
    ----------
    n : int, default 33
        The size of the matrices, odd on the torus.
    layers : int, default 2
        L.
    surface : {"sphere", "torus"}, default "sphere"
        The surface.
    depths : sequence of float, shape (L,), optional
        Depths of the layers in any unit. The default is equal depths.
    deformation_radius : float, default 0.3
        The first baroclinic deformation radius. All G_i are then equal. For two equal layers F₁ = F₂ = 1/(2 L_d²).
    coupling : float or sequence of float, shape (L − 1,), optional
        G_i of each interface, instead of `deformation_radius`.
    screening : float, default 0.0
        F₀ = G₀/d₁ of a free surface over the first layer, with d₁ = 1; 0 is a rigid lid.
    rotation : float, default 0.0
        Ω, on the sphere only.
    shear : sequence of float, shape (L,), optional
        U_i, on the sphere only. It is added to the initial state. Viscosity and drag relax the flow to it.
    base : array_like, shape (L, …), optional
        The vorticity of a base flow of every layer, as coefficients or as values on a grid. It is added to the initial
        state. Viscosity and drag relax the flow to it. A zonal flow is steady.
    topography : array_like, optional
        A fixed part of the potential vorticity of the lowest layer, as coefficients or values.
    noise_modes, amplitude, noise_shells, noise_fields : optional
        SALT noise, as in `euler_sphere` or `sine_euler`.
    noise_layers : {"independent", "common"} or array_like, shape (L, K), default "independent"
        Whether layers have noises of their own or one noise in common. An array A contains weights: layer i moves by
        Σ_k A_ik times the noise k. AAᵀ is the covariance of the layers.
    omega : array_like, shape (L, …), optional
        Initial coefficients of the vorticity of every layer, in addition to shear and base flow. The default is random
        fields of wavenumbers about 4.
    vorticity : array_like, shape (L, …), optional
        Initial values on a grid, instead of `omega`.
    key : int or JAX key, default 0
        Selects the random initial fields.
    viscosity, hyperviscosity, hyperviscosity_order : float, float, int
        ν, ν_p and p in −(ν(−Δ) + ν_p(−Δ)ᵖ + α_i)(ω_i − ω̄_i) + f_i, which is added to ∂q_i/∂t; ω̄ is shear and base flow.
    drag : float or sequence of float, shape (L,), default 0.0
        α: of all layers, or of each. (0, r) is a drag at the bottom of two layers.
    stirring : array_like, shape (L, …), optional
        f, constant fields.

    Returns
    -------
    system : System
        Right-invariant, on su(n)^L.
    mu0 : array, shape (L(n² − 1),)
        The initial state: the coordinates of d_i W_i.
    """  # fmt: skip
    validation.choice("surface", surface, ("sphere", "torus"))
    on = Sphere(n) if surface == "sphere" else Torus(n)
    for name, value in (("rotation", validation.finite("rotation", rotation)), ("shear", shear is not None)):
        if surface == "torus" and value:
            raise ValueError(
                f"{name} is for surface='sphere': on the torus βy and −Uy are not periodic, so they are not in su(n). "
                "Pass a sheared flow as base=."
            )
    kind = stratification(layers, depths, deformation_radius, coupling, screening)
    flow = LayeredFlow(on, kind.free_surface, _background(on, kind.layers, rotation, topography), kind)
    carried = _base(flow, shear, base)
    flow = LayeredFlow(on, kind.free_surface, flow.background, kind, carried)
    if omega is not None and vorticity is not None:
        raise ValueError("omega and vorticity are two ways to give the fields at the start: give one of them.")
    given = omega if omega is not None else vorticity
    peak = min(4.0, on.n // 2)
    if given is None:
        start = jnp.stack([random_field(on, key, i, peak=peak) for i in range(kind.layers)])
    else:
        start = fields(flow, "omega" if omega is not None else "vorticity", given)
    noise = layered_noise(flow, fluid_noise(on, noise_modes, amplitude, noise_shells, noise_fields), noise_layers)
    damping = flow.damping(viscosity, hyperviscosity, hyperviscosity_order, drag, stirring)
    options = {"side": "right", "gradient": flow.stream, "dissipation": damping, "flow": flow}
    return System(flow.algebra, flow.hamiltonian, noise, **options), flow.state(start)


def _background(on: Any, layers: int, rotation: Any, topography: Any) -> Any:
    """B of each layer."""
    planet = Flow.create(on, rotation=rotation).background
    floor = None if topography is None else on.matrix(on.as_coefficients("topography", topography))
    if planet is None and floor is None:
        return None
    B = jnp.zeros((layers, on.n, on.n), complex)
    B = B if planet is None else B + planet
    return B if floor is None else B.at[-1].add(floor)


def _base(flow: LayeredFlow, shear: Any, base: Any) -> Array | None:
    """The vorticity of the base state, whose solid-body rotation is 2U cos θ."""
    if shear is None and base is None:
        return None
    total = jnp.zeros((flow.layers, *flow.surface.shape), float if isinstance(flow.surface, Sphere) else complex)
    if shear is not None:
        U = by_layer("shear", shear, flow.layers)
        total = total.at[:, index(1, 0)].add(2 * U * np.sqrt(4 * np.pi / 3))
    return total if base is None else total + fields(flow, "base", base)
