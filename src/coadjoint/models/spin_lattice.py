"""Spins on a periodic lattice in one, two or three dimensions, on so(3)* for each spin."""

from collections.abc import Callable
from itertools import product
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..algebras.product import Product
from ..algebras.so3 import SO3
from ..numerics import validation
from ..systems import System
from .origin import model
from .spin_chain import numbers, random_spins

_MOST_SPINS = 2**24


@model
def spin_lattice(
    shape: Any = (8, 8),
    *,
    coupling: float = 1.0,
    anisotropy: float = 0.0,
    field: Any = (0.0, 0.0, 0.0),
    dm: Any = None,
    dipole: float = 0.0,
    cutoff: float = 2.0,
    key: Any = 0,
    S0: Any = None,
    side: Literal["left", "right"] = "left",
) -> tuple[System, Array]:
    """Landau–Lifshitz spins on a periodic chain, square or simple cubic lattice.

    The equation is S_i' = S_i × ∂h/∂S_i with

        h = − J Σ S_i·S_{i+a} + ½ d Σ (S_i^z)² − B·Σ S_i − Σ D_a·(S_i × S_{i+a})
            + g Σ_{r ≤ R} (S_i·S_j − 3 (S_i·r̂)(S_j·r̂))/r³.

    The sums over a include the axes of the lattice, each bond once. The last sum includes each pair of spins at a
    distance r ≤ R once, and the lattice constant is 1. J > 0 is ferromagnetic. d > 0 makes the x-y plane easy, d < 0
    the z axis. There is no noise; `cj.heat_bath` adds it. The cost is linear in the number of spins.

    Parameters
    ----------
    shape : int or sequence of int, default (8, 8)
        One to three numbers of spins, each at least 3.
    coupling : float, default 1.0
        J. An entry of `params`, as are d, B and g.
    anisotropy : float, default 0.0
        d.
    field : array_like, shape (3,), default (0.0, 0.0, 0.0)
        B.
    dm : array_like, shape (axes, 3), optional
        The Dzyaloshinskii–Moriya vectors D_a, one row per axis. None means none.
    dipole : float, default 0.0
        g, the strength of the dipole interaction.
    cutoff : float, default 2.0
        R, in lattice constants.
    key : int or JAX key, default 0
        Selects the random initial state.
    S0 : array_like, shape (*shape, 3), optional
        The initial spins, of any lengths. The default is unit spins, uniform on the sphere.
    side : {"left", "right"}, default "left"
        "left" for S_i' = S_i × ∂h/∂S_i. "right" for S_i' = −S_i × ∂h/∂S_i, the time direction of Sunny and of
        Schrödinger's equation.

    Returns
    -------
    system : System
        On so(3)ⁿ.
    mu0 : array, shape (3n,)
        The initial state. `mu.reshape(*shape, 3)` has one spin per site.
    """  # fmt: skip
    terms = lattice_terms(
        shape, coupling=coupling, anisotropy=anisotropy, field=field, dm=dm, dipole=dipole, cutoff=cutoff
    )
    start = random_spins(terms.n, key) if S0 is None else numbers("S0", S0, ((*terms.sizes, 3),))
    algebra = Product(SO3(), copies=terms.n)
    system = System(algebra, terms.hamiltonian, params=terms.params, gradient=terms.gradient, side=side)
    return system, start.reshape(-1)


class LatticeTerms(NamedTuple):
    """The energy of spins on a lattice: its sizes, number of sites, params, h(mu, params) and ∂h(mu, params)."""

    sizes: tuple[int, ...]
    n: int
    params: dict[str, Array]
    hamiltonian: Callable[[Array, dict], Array]
    gradient: Callable[[Array, dict], Array]


def lattice_terms(
    shape: Any, *, coupling: Any, anisotropy: Any, field: Any, dm: Any, dipole: Any, cutoff: Any
) -> LatticeTerms:
    """The energy of `spin_lattice`, from its arguments."""
    sizes = lattice(shape)
    axes = len(sizes)
    params = {
        "coupling": numbers("coupling", coupling, ((),)),
        "anisotropy": numbers("anisotropy", anisotropy, ((),)),
        "field": numbers("field", field, ((3,),)),
    }
    if dm is not None:
        params["dm"] = numbers("dm", dm, ((axes, 3),))
    apart = _vectors(sizes, validation.positive("cutoff", cutoff)) if validation.finite("dipole", dipole) else []
    if apart:
        params["dipole"] = numbers("dipole", dipole, ((),))

    def hamiltonian(mu: Array, p: dict) -> Array:
        S = mu.reshape(*sizes, 3)
        nearest = [jnp.roll(S, -1, a) for a in range(axes)]
        h = -p["coupling"] * jnp.sum(S * sum(nearest))
        h = h + 0.5 * p["anisotropy"] * jnp.sum(S[..., 2] ** 2) - jnp.sum(p["field"] * S)
        if "dm" in p:
            h = h - sum(jnp.sum(p["dm"][a] * jnp.cross(S, x)) for a, x in enumerate(nearest))
        for r, length, unit in apart:
            far = jnp.roll(S, tuple(-k for k in r), tuple(range(axes)))
            pairs = jnp.sum(S * far) - 3.0 * jnp.sum((S @ unit) * (far @ unit))
            h = h + p["dipole"] * pairs / length**3
        return h

    gradient = lambda mu, p: _gradient(mu.reshape(*sizes, 3), p, apart).reshape(-1)
    return LatticeTerms(sizes, int(np.prod(sizes)), params, hamiltonian, gradient)


def _gradient(S: Array, p: dict, apart: list[tuple[tuple[int, ...], float, np.ndarray]]) -> Array:
    """∂h/∂S_i = − J Σ (S_{i+a} + S_{i−a}) + d S_i^z ẑ − B − Σ (S_{i+a} − S_{i−a}) × D_a + the dipoles, at each site."""
    at = _around(S, max((abs(k) for r, *_ in apart for k in r), default=1))
    pairs = [(at(a), at(-a)) for a in np.eye(S.ndim - 1, dtype=int)]
    g = -p["coupling"] * sum(x + y for x, y in pairs) - p["field"]
    g = g + p["anisotropy"] * np.array([0.0, 0.0, 1.0]) * S
    if "dm" in p:
        g = g - sum(jnp.cross(x - y, p["dm"][a]) for a, (x, y) in enumerate(pairs))
    for r, length, unit in apart:
        both = at(np.array(r)) + at(-np.array(r))
        g = g + p["dipole"] * (both - 3.0 * (both @ unit)[..., None] * unit) / length**3
    return g


def _around(S: Array, reach: int) -> Callable[[np.ndarray], Array]:
    """r ↦ the spins at i + r for each site i of the periodic lattice; no entry of r exceeds the reach.

    The lattice is continued on all sides once, so all of these are slices. A processor reads and adds slices in order.
    """
    sizes = S.shape[:-1]
    for axis, n in enumerate(sizes):
        ends = (jax.lax.slice_in_dim(S, n - reach, n, axis=axis), jax.lax.slice_in_dim(S, 0, reach, axis=axis))
        S = jnp.concatenate([ends[0], S, ends[1]], axis)
    S = jax.lax.optimization_barrier(S)
    return lambda r: S[tuple(slice(reach + k, reach + k + n) for k, n in zip(r, sizes, strict=True))]


def lattice(shape: Any) -> tuple[int, ...]:
    """The sides of a lattice. Invalid ones raise an error that states what is allowed."""
    sizes = tuple(validation.count("shape", n, least=3) for n in np.atleast_1d(np.asarray(shape, object)))
    if not 1 <= len(sizes) <= 3 or np.prod(sizes) > _MOST_SPINS:
        raise ValueError(f"shape must be one to three numbers, of at most {_MOST_SPINS} spins in all, not {shape!r}.")
    return sizes


def _vectors(sizes: tuple[int, ...], cutoff: float) -> list[tuple[tuple[int, ...], float, np.ndarray]]:
    """(r, |r|, r̂) for r up to the cutoff, one of each pair ±r. They must not reach around the lattice."""
    if 2 * cutoff >= min(sizes):
        raise ValueError(f"cutoff must be below half of the shortest side, {min(sizes) / 2:g}, not {cutoff:g}.")
    reach = range(-int(cutoff), int(cutoff) + 1)
    vectors = product(reach, repeat=len(sizes))
    found = [r for r in vectors if r > (0,) * len(sizes) and np.linalg.norm(r) <= cutoff + 1e-12]
    return [
        (r, length, np.pad(np.array(r) / length, (0, 3 - len(r))))
        for r in found
        for length in [float(np.linalg.norm(r))]
    ]
