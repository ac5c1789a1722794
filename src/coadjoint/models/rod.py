"""An elastic rod of cross-sections that bend, twist, stretch and shear, on SE(3)^N."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .. import inputs
from ..algebras.product import Product
from ..algebras.se3 import SE3
from ..noises import white_torque
from ..numerics import validation
from ..systems import System
from .origin import model
from .spin_chain import numbers

_se3 = SE3()


@model
def rod(
    n: int = 16,
    *,
    length: Any = 1.0,
    radius: Any = 0.02,
    density: Any = 1000.0,
    young: Any = 1e6,
    poisson: Any = 0.5,
    stiffness: Any = None,
    rest_strain: Any = None,
    actuation: Any = None,
    damping: Any = 0.0,
    drag: Any = 0.0,
    gravity: Any = (0.0, 0.0, -9.81),
    tip_force: Any = (0.0, 0.0, 0.0),
    tip_moment: Any = (0.0, 0.0, 0.0),
    clamped: bool = True,
    disturbance: Any = None,
    start: Any = None,
) -> tuple[System, Array]:
    """An elastic rod: a beam, a tentacle, a soft robot or a filament, as n elements between rigid cross-sections.

    Cross-section i has the state (π_i, γ_i), its angular and linear momentum in its own frame. The first axis of the
    frame is the normal of the cross-section. Its group element g_i has the rotation R_i and the displacement x_i − X_i
    of its centre from X_i = (iΔ, 0, 0), Δ = length/n. So the identity is the straight rod along the first axis of
    space. With the equations of `multibody` for the motion, the energy is

        h = Σ_i ( ½ π_i·I_i⁻¹π_i + |γ_i|²/2m_i − m_i x_i·f ) − x_n·F + ½ Δ Σ_i (ε_i − ε̂_i)ᵀ K (ε_i − ε̂_i),
        ε_i = log(G_{i−1}⁻¹ G_i)/Δ − (0, 0, 0, 1, 0, 0),   G_i = (R_i, x_i),   i = 1 … n,

    with the logarithm of SE(3). ε = (κ, ν) is the strain: twist and two curvatures per length, stretch and two shears.
    ε̂ is the rest strain: `rest_strain` plus the actuation at time t, by muscles or tendons. Strain is exact if it
    is constant along an element: a moment at the tip bends the rod to an exact circle for every n. Other errors are of
    order Δ². f is the acceleration of gravity, and F a force at the tip. The torques and forces are −∂h/∂g and

        − τ Δ Jᵀ K ε' − α (π, γ) + (M, 0) at the tip,   J = ∂ε/∂g,

    for damping inside the material (Kelvin and Voigt), drag, and a moment M in the frame of the tip. They dissipate
    energy at the rate τ Δ Σ ε'ᵀK ε' + α Σ (π·ω + γ·v), apart from the work of M. Cross-section 0 is clamped: it is no
    part of the state. With `clamped=False` it is free, and the state has n + 1 cross-sections.

    m_i is the mass of the half elements on both sides, and I_i the inertia of this piece of the rod as a rigid body.
    `RKMK("rk4")` needs Δt < 2.8/Ω. For circular cross-sections the largest frequency Ω is between 2c/Δ and 3.2c/Δ, with
    c = √(E/density). Internal damping needs Δt < 2.8/(τΩ²) too. Neighbouring frames must differ by less than 180°.
    Without damping and actuation `DiscreteGradient()` conserves h. Casimirs change, because h depends on g. References:
    Simo and Vu-Quoc (1988); Sonneville, Cardona and Brüls (2014).

    Parameters
    ----------
    n : int, default 16
        The number of elements.
    length : float, default 1.0
        The length in m.
    radius : float or array_like, shape (n,), default 0.02
        The radius of the circular cross-section in m, or that of every element of a tapered rod.
    density : float, default 1000.0
        The density in kg/m³.
    young : float, default 1e6
        E in Pa.
    poisson : float, default 0.5
        Poisson's ratio: the shear modulus is E/(2 + 2 poisson).
    stiffness : array_like, shape (6,) or (n, 6), optional
        The diagonal of K. Three numbers in N m² are GJ of torsion and EI of bending about the second and third axis.
        Three numbers in N are EA of stretch and GA of shear along these axes. The default is that of the circular
        cross-section without a shear correction factor.
    rest_strain : array_like, shape (6,) or (n, 6), optional
        The constant part of ε̂. The default is 0, a straight rod.
    actuation : Input, callable or pair, optional
        The part of ε̂ that depends on time, of shape (6,) or (n, 6). It is an input, a function of t, or a pair of times
        and values with linear interpolation. An input is an entry of `params`.
    damping : float, default 0.0
        τ in s.
    drag : float, default 0.0
        α in 1/s.
    gravity : array_like, shape (3,), default (0.0, 0.0, -9.81)
        f in m/s².
    tip_force : array_like, shape (3,), default (0.0, 0.0, 0.0)
        F in N, in space.
    tip_moment : array_like, shape (3,), default (0.0, 0.0, 0.0)
        M in N m, in the frame of the tip.
    clamped : bool, default True
        Whether cross-section 0 is fixed.
    disturbance : float or array_like, shape (6,), optional
        The amplitudes of independent white torques (N m √s) and forces (N √s) on each cross-section, in its frame.
    start : array_like, shape (6N,), optional
        The initial momenta. The default is rest. `g0=` of a run sets the initial displacements, as N 4×4 matrices.

    Returns
    -------
    system : System
        Left-invariant, on se(3)^N with attitude: N = n, or n + 1 if the rod is free. `params` has the entries "mass",
        "inertia", "stiffness", "gravity", "tip_force", and those of other effects that are present.
    mu0 : array, shape (6N,)
        The initial state.

    Raises
    ------
    TypeError, ValueError
        If a number is not above 0 where it must be, or an array has the wrong shape.
    """  # fmt: skip
    n = validation.count("n", n)
    if not isinstance(clamped, bool):
        raise TypeError(f"clamped must be True or False, not {clamped!r}.")
    size = 6 * (n if clamped else n + 1)
    spacing = validation.positive("length", length) / n
    shapes = ((6,), (n, 6))
    params = _section(n, spacing, radius, density, young, poisson, clamped)
    if stiffness is not None:
        params["stiffness"] = _above("stiffness", numbers("stiffness", stiffness, shapes))
    params |= {"gravity": numbers("gravity", gravity, ((3,),)), "tip_force": numbers("tip_force", tip_force, ((3,),))}
    if rest_strain is not None:
        params["rest_strain"] = numbers("rest_strain", rest_strain, shapes)
    for name, value, shape in (("damping", damping, ()), ("drag", drag, ()), ("tip_moment", tip_moment, (3,))):
        array = numbers(name, value, (shape,))
        if validation.is_traced(value) or np.any(np.asarray(array)):
            params[name] = array
    muscles = _muscles(actuation)
    if isinstance(muscles, inputs.Input):
        params["actuation"] = muscles
    noise = [] if disturbance is None else [white_torque(_kicks(disturbance, size))]
    system = System(
        Product(SE3(), copies=size // 6),
        _energy(n, spacing, clamped, muscles),
        noise,
        params=params,
        torque=_torques(n, spacing, clamped, params),
    )
    return system, jnp.asarray(np.zeros(size) if start is None else validation.vector("start", start, size))


def _section(n: int, spacing: float, radius: Any, density: Any, young: Any, poisson: Any, clamped: bool) -> dict:
    """Stiffness of circular elements, and mass and inertia of cross-sections with the half elements beside them."""
    a = np.broadcast_to(np.asarray(_above("radius", numbers("radius", radius, ((), (n,))))), n)
    rho, E = validation.positive("density", density), validation.positive("young", young)
    ratio = validation.finite("poisson", poisson)
    if not -1 < ratio <= 0.5:
        raise ValueError(f"poisson must be above -1 and at most 0.5, not {ratio:g}.")
    G, area = E / (2 + 2 * ratio), np.pi * a**2
    second = np.pi * a**4 / 4
    K = np.stack([2 * G * second, E * second, E * second, E * area, G * area, G * area], axis=1)
    half, pad = rho * spacing / 2, lambda x: np.concatenate([[0.0], x]) + np.concatenate([x, [0.0]])
    mass = half * pad(area)
    across = half * pad(second) + mass * (spacing * pad(np.ones(n)) / 2) ** 2 / 12
    inertia = np.stack([half * pad(2 * second), across, across], axis=1)
    return {"mass": jnp.asarray(mass[clamped:]), "inertia": jnp.asarray(inertia[clamped:]), "stiffness": jnp.asarray(K)}


def _above(name: str, array: Array) -> Array:
    if not validation.is_traced(array) and not np.all(np.asarray(array) > 0):
        raise ValueError(f"{name} must be above 0, not {np.asarray(array).tolist()}.")
    return array


def _muscles(actuation: Any) -> inputs.Input | Callable | None:
    if actuation is None or isinstance(actuation, inputs.Input) or callable(actuation):
        return actuation
    try:
        times, values = actuation
    except (TypeError, ValueError):
        raise TypeError(
            "actuation must be an input, a function of t, or a pair of times and values, not "
            f"a {type(actuation).__name__}."
        ) from None
    return inputs.linear(times, values)


def _kicks(disturbance: Any, size: int) -> np.ndarray:
    """Amplitudes of one white torque per component of the state."""
    amplitudes = np.asarray(numbers("disturbance", disturbance, ((), (6,))))
    return np.diag(np.tile(np.broadcast_to(amplitudes, 6), size // 6))


def _strains(n: int, spacing: float, clamped: bool, g: Array) -> Float[Array, "n 6"]:
    """ε of each element."""
    frames = g.reshape(-1, 4, 4)  # one cross-section alone has no axis
    frames = jnp.concatenate([jnp.eye(4)[None], frames]) if clamped else frames
    R, displacement = frames[:, :3, :3], frames[:, :3, 3]
    gap = displacement[1:] - displacement[:-1] + jnp.asarray([spacing, 0.0, 0.0])
    Q = jnp.sum(R[:-1, :, :, None] * R[1:, :, None, :], axis=1)
    d = jnp.sum(R[:-1] * gap[:, :, None], axis=1)
    # (Q, d) is the Cayley transform of (c, w).
    odd = jnp.stack([Q[:, 2, 1] - Q[:, 1, 2], Q[:, 0, 2] - Q[:, 2, 0], Q[:, 1, 0] - Q[:, 0, 1]], axis=1)
    c = 2.0 * odd / (1.0 + Q[:, 0, 0] + Q[:, 1, 1] + Q[:, 2, 2])[:, None]
    w = d - 0.5 * jnp.cross(c, d)
    logs = jax.vmap(_se3.log_cayley)(jnp.concatenate([c, w], axis=1))
    return logs / spacing - jnp.asarray([0.0, 0.0, 0.0, 1.0, 0.0, 0.0])


def _energy(n: int, spacing: float, clamped: bool, muscles: Any) -> Callable:
    """h(μ, params, g), or h(μ, params, g, t) with actuation."""

    def h(mu: Array, p: dict, g: Array, rest: Any) -> Array:
        momenta = mu.reshape(-1, 2, 3)
        pi, gamma = momenta[:, 0], momenta[:, 1]
        kinetic = jnp.sum(pi * pi / p["inertia"]) + jnp.sum(gamma * gamma / p["mass"][:, None])
        strain = _strains(n, spacing, clamped, g) - rest
        elastic = spacing * jnp.sum(p["stiffness"] * strain * strain)
        x = g.reshape(-1, 4, 4)[:, :3, 3]  # the constants x·X are left out
        weight = jnp.sum(p["mass"][:, None] * x * p["gravity"]) + x[-1] @ p["tip_force"]
        return 0.5 * (kinetic + elastic) - weight

    def still(mu: Array, p: dict, g: Array) -> Array:
        return h(mu, p, g, p.get("rest_strain", 0.0))

    def driven(mu: Array, p: dict, g: Array, t: Any) -> Array:
        return h(mu, p, g, p.get("rest_strain", 0.0) + p.get("actuation", muscles)(t))

    return still if muscles is None else driven


def _torques(n: int, spacing: float, clamped: bool, params: dict) -> list[Callable]:
    """Damping, drag and the moment at the tip, as functions f(μ, params) or f(μ, params, g)."""

    def material(mu: Array, p: dict, g: Array) -> Array:
        momenta = mu.reshape(-1, 2, 3)
        velocity = jnp.stack([momenta[:, 0] / p["inertia"], momenta[:, 1] / p["mass"][:, None]], axis=1)
        strain = lambda theta: _strains(n, spacing, clamped, _moved(g.reshape(-1, 4, 4), theta))
        still = jnp.zeros_like(velocity)
        rate = jax.jvp(strain, (still,), (velocity,))[1]
        (force,) = jax.vjp(strain, still)[1](p["damping"] * spacing * p["stiffness"] * rate)
        return -force.reshape(-1)

    def drag(mu: Array, p: dict) -> Array:
        return -p["drag"] * mu

    def moment(mu: Array, p: dict) -> Array:
        return jnp.zeros_like(mu).at[-6:-3].set(p["tip_moment"])

    given = {"damping": material, "drag": drag, "tip_moment": moment}
    return [f for name, f in given.items() if name in params]


def _moved(frames: Float[Array, "N 4 4"], theta: Float[Array, "N 2 3"]) -> Array:
    """G (1 + θ), to first order in θ."""
    R = frames[:, :3, :3]
    turned = R + jnp.cross(R, theta[:, None, 0])  # a row r of R θ^ is r × θ
    shifted = frames[:, :3, 3] + jnp.sum(R * theta[:, None, 1], axis=2)
    top = jnp.concatenate([turned, shifted[:, :, None]], axis=2)
    return jnp.concatenate([top, frames[:, 3:]], axis=1)
