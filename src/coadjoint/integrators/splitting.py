"""Splitting methods: exact flows of parts, one after the other; explicit Poisson maps."""

from typing import ClassVar

import equinox as eqx
from jaxtyping import Array, Float, PyTree

from ..algebras.base import State
from ..drivers import Increment
from ..numerics.rootfind import SolveInfo, explicit_info
from ..systems import System
from .base import Claims, Cost, GroupMethod
from .split_terms import Part, check_parts, energy_parts, noise_parts


class Splitting(GroupMethod):
    """Exact flows of the parts of h, then of the noises, in an order that a subclass gives.

    A part is exactly solvable if its gradient does not change along its own motion: flow(s c ∂h_k(μ), μ) is then where
    it takes μ while its clock runs by c.
    """

    drift_free: bool = eqx.field(static=True, default=True)

    def check(self, system: System) -> None:
        """Every part must be solvable."""
        check_parts(type(self).__name__, system)

    def parts(self, system: System, dt: Float[Array, ""], S: Float[Array, " M"]) -> list[Part]:
        """The gradients of all parts times their increments: dt for the drift, then `S` for the noise."""
        return [lambda mu, g=g: dt * g(mu) for g in energy_parts(system)] + noise_parts(system, S)


class LieTrotter(Splitting):
    """Lie–Trotter splitting: the exact flows of all parts of h and of the noise, one after the other.

    The step is

        μ ← flow(s dt ∂h_1(μ), μ),   μ ← flow(s dt ∂h_2(μ), μ),   …,   μ ← flow(s Σ_i β_i ΔS^i, μ).

    It is explicit and a Poisson map. `Strang` describes the parts.

    Parameters
    ----------
    drift_free : bool, default True
        Apply the round-off correction after each step.
    """  # fmt: skip

    claims: ClassVar[Claims] = Claims(
        order=1,
        strong_commuting=1.0,
        strong=0.5,
        weak=1.0,
        casimirs=True,
        cost=Cost(0, 0, "part", 1, 1),
        symplectic=True,
        explicit=True,
    )

    def step(
        self, system: System, mu: State, t: Float[Array, ""], dt: Float[Array, ""], dS: Increment, carry: PyTree
    ) -> tuple[State, PyTree, SolveInfo]:
        """Part by part."""
        for part in self.parts(system, dt, dS.S):
            mu, carry = self.act(system, part(mu), mu, carry)
        return mu, carry, explicit_info(mu)


class Strang(Splitting):
    """Strang splitting: half a step of every part, a whole step of the last, and the halves in reverse order.

    The step is

        Φ = φ_1(½) ∘ φ_2(½) ∘ … ∘ φ_K(1) ∘ … ∘ φ_2(½) ∘ φ_1(½),   φ_k(c): μ ← flow(s c dt ∂h_k(μ), μ),

    with the noise as the last parts, φ(c): μ ← flow(s c Σ_i β_i ΔS^i, μ). It is explicit, symmetric and a Poisson map.
    Its weak order is 2 if the noises are SALT and commute.

    The parts are those of `System(algebra, [h_1, h_2, …])`. Each must be exactly solvable: a function φ(<μ, a>), or of
    several <μ, a_j> with a_j that commute. A single h is split automatically if possible. Coordinates are grouped in
    blocks that commute, and the parts are the terms of h in each block. So rigid bodies are split axis by axis, heavy
    tops into three screws {π_i, γ_i}, spin chains into components. All SALT noises are one part. Each other noise is a
    part of its own and must be exactly solvable.

    References: McLachlan, Explicit Lie–Poisson integration and the Euler equations (1993); with noise, Bréhier, Cohen
    and Jahnke, Splitting integrators for stochastic Lie–Poisson systems (2023).

    Parameters
    ----------
    drift_free : bool, default True
        Apply the round-off correction after each step.
    """  # fmt: skip

    claims: ClassVar[Claims] = Claims(
        order=2,
        strong_commuting=1.0,
        strong=0.5,
        weak=1.0,
        weak_commuting=2.0,
        casimirs=True,
        cost=Cost(-1, -1, "part", 2, 2),
        symplectic=True,
        symmetric=True,
        explicit=True,
    )

    def step(
        self, system: System, mu: State, t: Float[Array, ""], dt: Float[Array, ""], dS: Increment, carry: PyTree
    ) -> tuple[State, PyTree, SolveInfo]:
        """There and back."""
        *outer, last = self.parts(system, dt, dS.S)
        for part in outer:
            mu, carry = self.act(system, 0.5 * part(mu), mu, carry)
        mu, carry = self.act(system, last(mu), mu, carry)
        for part in reversed(outer):
            mu, carry = self.act(system, 0.5 * part(mu), mu, carry)
        return mu, carry, explicit_info(mu)
