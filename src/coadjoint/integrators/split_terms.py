"""The parts into which a splitting method takes a system: gradients that do not change along their own motion."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..algebras.base import Element, State
from ..numerics import validation
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

    return [restricted(jnp.asarray(block)) for block in algebra.commuting_blocks]


def noise_parts(system: System, S: Float[Array, " M"]) -> list[Part]:
    """The gradients of the noises times their increments: all of SALT noise together, the others one by one."""
    if not system.noises:
        return []
    if system.additive:
        return [lambda mu: system.noise(mu, S)]
    return [lambda mu, e=e: system.noise(mu, e * S) for e in jnp.eye(system.n_noise)]


def check_parts(name: str, system: System) -> None:
    """Raise unless every part is exactly solvable, which is tried at a random state."""
    if system.has_torque:
        what, it = ("a function of the group element g", "one") if system.has_attitude else ("a torque", "a torque")
        raise ValueError(
            f"{name} takes the exact flows of parts of h, and {what} is no part of it: TMK(), RKMK() and other "
            f"Munthe-Kaas methods support {it}, and so does the splitting NinomiyaVictoir()."
        )
    if system.forces:
        raise ValueError(
            f"{name} takes the exact flows of parts of h, and a forcing is no part of it: TMK() takes any forcing, "
            "and so does the splitting NinomiyaVictoir()."
        )
    needs = (
        "give its parts, System(algebra, [h_1, h_2, …]), each of them a function φ(<μ, a>), or of several <μ, a_j> "
        "with a_j that commute."
    )
    if not system.parts and system.algebra.dim > _LARGEST:
        raise ValueError(f"{name} splits a Hamiltonian by itself up to dimension {_LARGEST} only: {needs}")
    if validation.is_traced(system):
        return
    between, along = (np.asarray(x) for x in _defects(system))
    bad = np.flatnonzero(~(between <= 1e-9))
    if len(bad):
        block = np.flatnonzero(system.algebra.commuting_blocks[bad[0]]).tolist()
        raise ValueError(
            f"{name} needs a Hamiltonian that is a sum of exactly solvable parts, but this one has terms that couple "
            f"the coordinates {block} to others: {needs}"
        )
    _check_along(name, along, [f"hamiltonian[{k}]" for k in range(len(energy_parts(system)))])


def check_noises(name: str, system: System) -> None:
    """Raise unless every noise is exactly solvable, which is tried at a random state."""
    if "g" in system.noise_receives:
        raise ValueError(f"{name} takes the exact flows of noise, which may not depend on g: TMK() supports that.")
    if not system.additive and not validation.is_traced(system):
        _check_along(name, np.asarray(_changes(system, False)), [])


def _check_along(name: str, along: np.ndarray, parts: list[str]) -> None:
    """Raise if a gradient changes along its own motion; the noises come after the parts of h."""
    bad = np.flatnonzero(~(along <= 1e-9))
    if len(bad):
        k, n = int(bad[0]), len(parts)
        which = parts[k] if k < n else f"noise {k - n + 1}"
        raise ValueError(
            f"{name} needs parts that are exactly solvable, but the gradient of {which} changes along its own motion, "
            f"by {along[k]:.3g} at a random state: a part must be a function φ(<μ, a>), or of several <μ, a_j> with "
            "a_j that commute."
        )


@eqx.filter_jit
def _defects(system: System) -> tuple[Float[Array, " K"], Float[Array, " P"]]:
    """How the gradient of each block depends on other blocks, and that of each part changes along itself; scaled."""
    algebra = system.algebra
    mu, y = _random_states(system)
    between = []
    for block in () if system.parts else map(jnp.asarray, algebra.commuting_blocks):
        value, change = jax.jvp(system.energy_gradient, (mu,), (algebra.element((1.0 - block) * y),))
        between.append(_size(block * algebra.coordinates(change)) / (1.0 + _size(value)))
    return jnp.asarray(between), _changes(system, True)


@eqx.filter_jit
def _changes(system: System, energy: bool) -> Float[Array, " P"]:
    """How the gradient of each part of h, if asked for, and of each noise that is not SALT changes along itself."""
    algebra = system.algebra
    mu, _ = _random_states(system)
    along = []
    noises = [] if system.additive else noise_parts(system, jnp.ones(system.n_noise))
    for gradient in (energy_parts(system) if energy else []) + noises:
        value, change = jax.jvp(gradient, (mu,), (algebra.ad_star(gradient(mu), mu),))
        along.append(_size(change) / (1.0 + _size(value)))
    return jnp.asarray(along)


def _random_states(system: System) -> tuple[State, Array]:
    """A state, and the coordinates of another."""
    rng = np.random.default_rng(0)
    x, y = (jnp.asarray(rng.standard_normal(system.algebra.dim)) for _ in range(2))
    return system.algebra.element(x), y


def _size(a: Array) -> Array:
    return jnp.max(jnp.abs(a))
