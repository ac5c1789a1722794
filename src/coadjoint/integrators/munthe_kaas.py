"""Explicit stochastic Munthe-Kaas methods: Euler–Maruyama and Heun in the Lie algebra."""

from typing import ClassVar

import equinox as eqx
import jax
from jaxtyping import Array, Float

from ..algebras.base import Element, State
from ..drivers import Increment
from ..numerics.rootfind import SolveInfo, explicit_info
from ..systems import System
from .base import Claims, Cost, OrbitMethod


class EulerMaruyamaMK(OrbitMethod):
    """The Euler–Maruyama method in the Lie algebra (Munthe-Kaas).

    The step is

        σ = ∂h(μ_n) dt + Σ_i ∂h_i(μ_n) ΔS^i + (s/2) Σ_ij ΔS^i ΔS^j D²h_i ad*_{∂h_j} μ_n,
        μ_{n+1} = flow(sσ, μ_n).

    The last term vanishes for SALT noise. For nonlinear noise it is the Stratonovich correction. It contains ΔS^i ΔS^j
    in place of the mean δ_ij dt, so it is correct for any path.

    Parameters
    ----------
    drift_free : bool, default True
        Apply the round-off correction after each step.
    remove_stabiliser : bool, optional
        On `SO3` and its products, leave out of ∂h the part along μ, which moves nothing. On a single `SO3` the
        default is True. In a product it is False with noise or dissipation; otherwise a run selects the gradient that
        changes more slowly at the initial state. Other algebras, and systems with a torque, are not affected.
    """  # fmt: skip

    claims: ClassVar[Claims] = Claims(
        order=1, strong_commuting=1.0, strong=0.5, weak=1.0, casimirs=True, cost=Cost(1, 1), explicit=True
    )

    sitewise: ClassVar[bool] = True
    drift_free: bool = eqx.field(static=True, default=True)
    remove_stabiliser: bool | None = eqx.field(static=True, default=None)

    def sigma(
        self, system: System, mu: State, t: Float[Array, ""], dt: Float[Array, ""], dS: Increment
    ) -> tuple[Element, SolveInfo]:
        """ζ(μ_n), with the Stratonovich correction."""
        sigma = system.zeta(mu, dt, dS.S)
        if not system.additive:
            noise = system.noise(mu, dS.S)
            along = system.sign * system.algebra.ad_star(noise, mu)
            sigma = sigma + 0.5 * jax.jvp(lambda m: system.noise(m, dS.S), (mu,), (along,))[1]
        return sigma, explicit_info(sigma)


class HeunMK(OrbitMethod):
    """Heun's method (the explicit trapezoidal rule) in the Lie algebra (Munthe-Kaas).

    The step is

        σ₁ = ζ(μ_n),   σ = ½ (ζ(μ_n) + ζ(flow(sσ₁, μ_n))),   μ_{n+1} = flow(sσ, μ_n)

    with ζ(μ) = ∂h(μ) dt + Σ_i ∂h_i(μ) ΔS^i.

    Parameters
    ----------
    drift_free : bool, default True
        Apply the round-off correction after each step.
    remove_stabiliser : bool, optional
        On `SO3` and its products, leave out of ∂h the part along μ, which moves nothing. On a single `SO3` the
        default is True. In a product it is False with noise or dissipation; otherwise a run selects the gradient that
        changes more slowly at the initial state. Other algebras, and systems with a torque, are not affected.
    """  # fmt: skip

    claims: ClassVar[Claims] = Claims(
        order=2, strong_commuting=1.0, strong=0.5, weak=1.0, casimirs=True, cost=Cost(2, 2), explicit=True
    )

    sitewise: ClassVar[bool] = True
    drift_free: bool = eqx.field(static=True, default=True)
    remove_stabiliser: bool | None = eqx.field(static=True, default=None)

    def sigma(
        self, system: System, mu: State, t: Float[Array, ""], dt: Float[Array, ""], dS: Increment
    ) -> tuple[Element, SolveInfo]:
        """½ (ζ(μ_n) + ζ(flow(sσ₁, μ_n)))."""
        first = system.at_node(t, dt, 0.0).zeta(mu, dt, dS.S)
        moved = system.algebra.flow(system.sign * first, mu)
        sigma = 0.5 * (first + system.at_node(t, dt, 1.0).zeta(moved, dt, dS.S))
        return sigma, explicit_info(sigma)
