"""The parts into which a splitting method takes a system: gradients that do not change along their own motion."""

from collections.abc import Callable
from functools import lru_cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..algebras.base import Element, LieAlgebra, State
from ..algebras.constants import structure_constants
from ..numerics import checks
from ..systems import System

Part = Callable[[State], Element]  # the gradient of a part

_LARGEST = 200  # dimension up to which blocks of coordinates that commute are looked for


def energy_parts(system: System) -> list[Part]:
    """The gradients of the parts of h: those given, or the terms in each block of coordinates that commute."""
    if system.parts:
        return [lambda mu, k=k: system.part_gradient(k, mu) for k in range(len(system.parts))]
    algebra = system.algebra

    def restricted(block: Array) -> Part:
        return lambda mu: algebra.element(block * algebra.coordinates(system.energy_gradient(mu)))

    return [restricted(jnp.asarray(block)) for block in commuting_blocks(algebra)]


def noise_parts(system: System, S: Float[Array, " M"]) -> list[Part]:
    """The gradients of the noises times their increments: all of SALT noise together, the others one by one."""
    if not system.noises:
        return []
    if system.additive:
        return [lambda mu: system.noise(mu, S)]
    return [lambda mu, e=e: system.noise(mu, e * S) for e in jnp.eye(system.n_noise)]


@lru_cache(maxsize=64)
def commuting_blocks(algebra: LieAlgebra) -> tuple[np.ndarray, ...]:
    """A partition of the coordinates into blocks whose basis elements commute: each goes to the first block it fits."""
    commute = ~np.any(structure_constants(algebra), axis=2)
    blocks: list[list[int]] = []
    for i in range(algebra.dim):
        block = next((b for b in blocks if commute[i, b].all()), None)
        if block is None:
            blocks.append([i])
        else:
            block.append(i)
    return tuple(np.isin(np.arange(algebra.dim), b).astype(float) for b in blocks)


def check_parts(name: str, system: System) -> None:
    """Raise unless every part is exactly solvable, which is tried at a random state."""
    if system.forces:
        raise ValueError(
            f"{name} takes the exact flows of parts of h, and a forcing is no part of it: TMK() takes any forcing."
        )
    needs = (
        "give its parts, System(algebra, [h_1, h_2, …]), each of them a function φ(<μ, a>), or of several <μ, a_j> "
        "with a_j that commute."
    )
    if not system.parts and system.algebra.dim > _LARGEST:
        raise ValueError(f"{name} splits a Hamiltonian by itself up to dimension {_LARGEST} only: {needs}")
    if checks.is_traced(system):
        return
    between, along = (np.asarray(x) for x in _defects(system))
    bad = np.flatnonzero(~(between <= 1e-9))
    if len(bad):
        block = np.flatnonzero(commuting_blocks(system.algebra)[bad[0]]).tolist()
        raise ValueError(
            f"{name} needs a Hamiltonian that is a sum of exactly solvable parts, but this one has terms that couple "
            f"the coordinates {block} to others: {needs}"
        )
    bad = np.flatnonzero(~(along <= 1e-9))
    if len(bad):
        k, n = int(bad[0]), len(energy_parts(system))
        which = f"hamiltonian[{k}]" if k < n else f"noise {k - n + 1}"
        raise ValueError(
            f"{name} needs parts that are exactly solvable, but the gradient of {which} changes along its own motion, "
            f"by {along[k]:.3g} at a random state: a part must be a function φ(<μ, a>), or of several <μ, a_j> with "
            "a_j that commute."
        )


@eqx.filter_jit
def _defects(system: System) -> tuple[Float[Array, " K"], Float[Array, " P"]]:
    """How the gradient of each block depends on other blocks, and that of each part changes along itself; scaled."""
    algebra = system.algebra
    rng = np.random.default_rng(0)
    x, y = (jnp.asarray(rng.standard_normal(algebra.dim)) for _ in range(2))
    mu = algebra.element(x)

    def size(a: Array) -> Array:
        return jnp.max(jnp.abs(a))

    between, along = [], []
    for block in () if system.parts else map(jnp.asarray, commuting_blocks(algebra)):
        value, change = jax.jvp(system.energy_gradient, (mu,), (algebra.element((1.0 - block) * y),))
        between.append(size(block * algebra.coordinates(change)) / (1.0 + size(value)))
    noises = [] if system.additive else noise_parts(system, jnp.ones(system.n_noise))
    for gradient in energy_parts(system) + noises:
        value, change = jax.jvp(gradient, (mu,), (algebra.ad_star(gradient(mu), mu),))
        along.append(size(change) / (1.0 + size(value)))
    return jnp.asarray(between), jnp.asarray(along)
