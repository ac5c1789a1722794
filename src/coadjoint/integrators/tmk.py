"""TMK, the trapezoidal Munthe-Kaas method."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..algebras.base import Element, State
from ..drivers import Increment
from ..numerics.rootfind import Info
from ..systems import System
from .base import Claims, Cost, ImplicitSolve, OrbitMethod, Reached, truncated


class TMK(OrbitMethod):
    """The trapezoidal Munthe-Kaas method.

        σ = ∂h(m) dt + Σ_i ∂h_i(m) ΔS^i,   m = ½ (μ_n + flow(sσ, μ_n)),
        μ_{n+1} = flow(sσ, μ_n).

    σ is found by the chord method from σ = 0 with the Jacobian frozen at the start of the step,

        σ ← σ − Df(0)⁻¹ f(σ),   Df(0) = I + s (dt/2) D²h J(μ_n) + s Σ_i (ΔS^i/2) D²h_i J(μ_n),

    and by Newton's method, then homotopy in (dt, ΔS), where that fails. Without noise a quadratic energy is kept.

    Reference: Luesink, Ephrati, Cifani and Geurts, Casimir preserving stochastic Lie–Poisson integrators, algorithm 1
    (signs: docs/conventions.md).
    """  # fmt: skip

    claims: ClassVar[Claims] = Claims(
        order=2,
        strong_commuting=1.0,
        strong=0.5,
        weak=1.0,
        casimirs=True,
        cost=Cost(0, 0, "iteration", 1, 1),
        energy="quadratic",
        symmetric=True,
    )

    solve: ImplicitSolve
    drift_free: bool = eqx.field(static=True)

    def __init__(
        self,
        tol: float = 1e-14,
        solver: str = "auto",
        max_steps: int = 30,
        fallbacks: bool = True,
        drift_free: bool = True,
    ):
        self.solve = ImplicitSolve(tol, solver, max_steps, fallbacks)
        self.drift_free = drift_free

    def sigma(
        self, system: System, mu: State, t: Float[Array, ""], dt: Float[Array, ""], dS: Increment
    ) -> tuple[Element, Info, Reached]:
        """The root of f(σ) = σ − ζ(½ (μ_n + flow(sσ, μ_n)))."""
        return trapezoidal(self.solve, system, mu, dt, truncated(system, dS))


def trapezoidal(
    solve: ImplicitSolve,
    system: System,
    mu: State,
    dt: Float[Array, ""],
    S: Float[Array, " M"],
    extra: Element | None = None,
) -> tuple[Element, Info, Reached]:
    """The root of f(σ) = σ − ζ(½ (μ_n + flow(sσ, μ_n))) − extra, for increments S of the path."""
    algebra, s = system.algebra, system.sign

    def f(sigma, lam):
        change = algebra.change(s * sigma, mu)
        residual = sigma - system.zeta(mu + 0.5 * change, lam * dt, lam * S)
        return residual if extra is None else residual - lam * extra, change

    def start():
        value, jacobian = at_zero(system, mu, dt, S)
        return value if extra is None else value - algebra.coordinates(extra), jacobian

    return solve(system, f, start)


def at_zero(
    system: System, mu: State, dt: Float[Array, ""], S: Float[Array, " M"]
) -> tuple[Float[Array, " dim"], Float[Array, "dim dim"]]:
    """f(0) = −ζ(μ) and Df(0) = I + s (dt/2) D²h J(μ) + s Σ_i (ΔS^i/2) D²h_i J(μ), of every symmetric rule."""
    algebra, s = system.algebra, system.sign

    def linear(c):
        zeta = algebra.coordinates(system.zeta(mu + 0.5 * s * algebra.ad_star(algebra.element(c), mu), dt, S))
        return zeta, zeta

    derivative, zeta = jax.jacfwd(linear, has_aux=True)(jnp.zeros(algebra.dim))
    return -zeta, jnp.eye(algebra.dim) - derivative
