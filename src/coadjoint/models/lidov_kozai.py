"""Secular orbits of a hierarchical triple: the Lidov–Kozai effect on so(4)*."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from stepcompiler.device_arrays import to_device

from ..algebras.product import Product
from ..algebras.so3 import SO3
from ..numerics import validation
from ..systems import System
from .origin import model
from .spin_chain import numbers

# An orthonormal basis of symmetric 3×3 matrices of trace 0.
_TIDES = (
    np.array(
        [
            [[0, 1, 0], [1, 0, 0], [0, 0, 0]],
            [[0, 0, 0], [0, 0, 1], [0, 1, 0]],
            [[0, 0, 1], [0, 0, 0], [1, 0, 0]],
            [[1, 0, 0], [0, -1, 0], [0, 0, 0]],
            np.diag([-1, -1, 2]) / 3**0.5,
        ]
    )
    / 2**0.5
)


@model
def lidov_kozai(
    eccentricity: Any = 1e-3,
    inclination: Any = 1.3,
    pericentre: Any = 0.0,
    node: Any = 0.0,
    *,
    octupole: Any = 0.0,
    flybys: Any = None,
) -> tuple[System, Array]:
    """The orbit of a light body under a distant companion, averaged over both orbits (Lidov–Kozai).

    The orbit has the vectors j = √(1 − e²) n, with its unit normal n, and e, which points to the pericentre. They obey

        j' = −(j×∂h/∂j + e×∂h/∂e),   e' = −(j×∂h/∂e + e×∂h/∂j),   h = h₂ + h₃ + Σ_k h_k dS^k/dt,
        h₂ = ⅛ (1 − 6 e² − 3 j_z² + 15 e_z²),
        h₃ = (15/64) ε ( e_x (8 e² − 1 − 35 e_z² + 5 j_z²) + 10 e_z j_x j_z ),
        h_k = −¼ a (5 e·T_k e − j·T_k j).

    The companion moves on a fixed orbit in the x-y plane with its pericentre on the x axis. It has the mass m₂, the
    semi-major axis a₂ and the eccentricity e₂. The inner orbit has the semi-major axis a and the mean motion ν about
    the mass M. The unit of time is (M/m₂) (a₂ √(1 − e₂²)/a)³/ν, and ε = (a/a₂) e₂/(1 − e₂²). The term h₂ is the
    quadrupole, h₃ the octupole. A passing star changes the orbit by its tidal field, integrated over the passage. In
    the unit ν it is a Σ_k S^k T_k. The T_k are an orthonormal basis of the symmetric matrices of trace 0. With the
    driver `cj.Jumps` fly-bys are jumps.

    The state is (½(j + e), ½(j − e)), in which so(4) is so(3) ⊕ so(3). The lengths of both vectors are the Casimirs, so
    j·e = 0 and j² + e² = 1 hold to round-off. `models.orbit_vectors` returns j and e. For ε = 0 without fly-bys j_z is
    conserved. An orbit with e₀ → 0 and cos² i₀ < 3/5 then reaches e_max = √(1 − (5/3) cos² i₀). For ε > 0 the orbit may
    flip: j_z changes its sign. References: Tremaine, Touma and Namouni, Satellite dynamics on the Laplace surface
    (2009); Liu, Muñoz and Lai, Suppression of extreme orbital evolution in triple systems (2015).

    Parameters
    ----------
    eccentricity, inclination : float, default 1e-3 and 1.3
        The initial e, below 1, and i in rad.
    pericentre, node : float, default 0.0
        The initial argument of the pericentre and the longitude of the node in rad.
    octupole : float, default 0.0
        ε. An entry of `params`.
    flybys : float, optional
        The amplitude a of 5 noises for passing stars. An entry of `params`. None means no noise.

    Returns
    -------
    system : System
        Right-invariant, on so(3)² ≅ so(4).
    mu0 : array, shape (6,)
        The initial state.
    """  # fmt: skip
    params = {"octupole": numbers("octupole", octupole, ((),))}
    noise = []
    if flybys is not None:
        params["flybys"] = numbers("flybys", flybys, ((),))
        noise = [_flyby(T) for T in _TIDES]
    elements = (eccentricity, inclination, pericentre, node)
    if not validation.is_traced(elements):
        names = ("eccentricity", "inclination", "pericentre", "node")
        elements = [validation.finite(name, x) for name, x in zip(names, elements, strict=True)]
        if not 0 <= elements[0] < 1:
            raise ValueError(f"eccentricity must be at least 0 and below 1, not {elements[0]:g}.")

    def hamiltonian(mu: Array, p: dict) -> Array:
        (jx, _, jz), e = mu[:3] + mu[3:], mu[:3] - mu[3:]
        ex, ez, square = e[0], e[2], e @ e
        quadrupole = (1.0 - 6.0 * square - 3.0 * jz**2 + 15.0 * ez**2) / 8.0
        third = ex * (8.0 * square - 1.0 - 35.0 * ez**2 + 5.0 * jz**2) + 10.0 * ez * jx * jz
        return quadrupole + 15.0 / 64.0 * p["octupole"] * third

    return System(Product(SO3(), copies=2), hamiltonian, noise, params=params, side="right"), _state(*elements)


def orbit_vectors(mu: Any) -> tuple[Any, Any]:
    """The vectors j and e of states of `lidov_kozai`.

    Parameters
    ----------
    mu : array, shape (…, 6)
        One state, or an array of states.

    Returns
    -------
    j, e : array, shape (…, 3)
    """
    return mu[..., :3] + mu[..., 3:], mu[..., :3] - mu[..., 3:]


def _flyby(T: np.ndarray) -> Any:
    """The averaged tidal potential, as noise."""

    def h(mu: Array, p: dict) -> Array:
        j, e = orbit_vectors(mu)
        return -0.25 * p["flybys"] * (5.0 * e @ (T @ e) - j @ (T @ j))

    return h


def _state(e: Any, inclination: Any, pericentre: Any, node: Any) -> Array:
    """(½(j + e), ½(j − e)) of an orbit."""
    xp: Any = jnp if validation.is_traced((e, inclination, pericentre, node)) else np
    (ci, si), (cw, sw), (cn, sn) = ((xp.cos(x), xp.sin(x)) for x in (inclination, pericentre, node))
    along = xp.stack([cn * cw - sn * ci * sw, sn * cw + cn * ci * sw, si * sw])
    normal = xp.stack([sn * si, -cn * si, ci])
    j, e = xp.sqrt(1.0 - e * e) * normal, e * along
    state = xp.concatenate([j + e, j - e]) / 2
    return state if xp is jnp else to_device(state)
