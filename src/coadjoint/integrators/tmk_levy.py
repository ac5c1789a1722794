"""TMK with Lévy areas: strong order 1 whether the noises commute or not."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..algebras.base import Element, State
from ..areas import area_term
from ..drivers import Increment, Needs
from ..numerics.rootfind import SolveInfo
from ..systems import System
from .base import Claims, Cost, OrbitMethod
from .implicit import ImplicitSolve, KnownFlow, truncated
from .tmk import trapezoidal

_MOST_NOISES = 512  # that do not commute: a block of steps has 64 megabytes of areas


class TMKLevy(OrbitMethod):
    """The trapezoidal Munthe-Kaas method with Lévy areas A_ij = ½ ∫ (W_i dW_j − W_j dW_i).

    The step is

        σ = ∂h(m) dt + Σ_i ∂h_i(m) ΔW^i + s Σ_{i<j} A_ij c_ij(μ_n),   m = ½ (μ_n + flow(sσ, μ_n)),
        c_ij = [∂h_i, ∂h_j] + D²h_j ad*_{∂h_i} μ − D²h_i ad*_{∂h_j} μ,
        μ_{n+1} = flow(sσ, μ_n).

    For SALT noise c_ij = [β_i, β_j], and σ includes the mean of level 3 of the noise given ΔW,

        (dt/12) Σ_i [β_i,[β_i, w]],   w = Σ_j β_j ΔW^j.

    Without it, means over many paths would be less accurate than those of TMK. Commuting noises need no areas, and the
    method is then TMK. The areas have an rms error of order dt^{3/2}. Sampling them costs an amount of order M² dt^{−½}
    per step. Prescribed paths must be
    Brownian ones.

    Parameters
    ----------
    tol : float, default 1e-14
        The tolerance of the last correction, relative to the unknown.
    solver : {"auto", "chord", "newton", "fixed_point", "products"}, default "auto"
        The solver of the implicit equation. "auto" selects the chord method up to dimension 16 and fixed-point
        iteration above. Above dimension 64 it selects the inversion-free solver ("products") if the method supports it.
    max_steps : int, default 30
        The largest number of iterations.
    fallbacks : bool, default True
        Use Newton's method and then homotopy if the solver fails, up to dimension 64.
    drift_free : bool, default True
        Apply the round-off correction after each step.
    remove_stabiliser : bool, optional
        On `SO3` and its products, leave out of ∂h the part along μ, which moves nothing. On a single `SO3` the
        default is False. In a product it is False with noise or dissipation; otherwise a run selects the gradient that
        changes more slowly at the initial state. Other algebras, and systems with a torque, are not affected.
    """  # fmt: skip

    reduces_one_body: ClassVar[bool] = False
    claims: ClassVar[Claims] = Claims(
        order=2,
        strong_commuting=1.0,
        strong=1.0,
        weak=1.0,
        casimirs=True,
        cost=Cost(0, 0, "iteration", 1, 1),
        energy="quadratic",
        symmetric=True,
    )

    solve: ImplicitSolve
    drift_free: bool = eqx.field(static=True)
    remove_stabiliser: bool | None = eqx.field(static=True)

    def __init__(
        self,
        tol: float = 1e-14,
        solver: str = "auto",
        max_steps: int = 30,
        fallbacks: bool = True,
        drift_free: bool = True,
        remove_stabiliser: bool | None = None,
    ):
        self.solve = ImplicitSolve(tol, solver, max_steps, fallbacks)
        self.drift_free = drift_free
        self.remove_stabiliser = remove_stabiliser

    def check(self, system: System) -> None:
        """Not too many noises that do not commute."""
        not_too_many("TMKLevy", "an area", system)

    def needs(self, system: System) -> Needs:
        """Areas, unless they would be multiplied by zero."""
        areas = system.n_noise > 1 and not system.commuting
        return Needs(areas=areas, brownian=areas and system.additive)

    def sigma(
        self, system: System, mu: State, t: Float[Array, ""], dt: Float[Array, ""], dS: Increment
    ) -> tuple[Element, SolveInfo, KnownFlow]:
        """The root of TMK's equation with s Σ_{i<j} A_ij c_ij added, and for SALT noise the mean of level 3."""
        extra = None
        if dS.areas is not None:
            extra = area_term(system, mu, dS.areas)
            if system.additive:
                extra = extra + mean_third_term(system, mu, dt, dS.S)
        return trapezoidal(self.solve, system, mu, dt, truncated(system, dS), extra)


def not_too_many(method: str, what: str, system: System) -> None:
    """Raise if the pairs of noises are more than fit in memory."""
    M = system.n_noise
    if M > _MOST_NOISES and not system.commuting:
        raise ValueError(
            f"{method} needs {what} for each pair of noises, {M * (M - 1) // 2} in a step of {M} that do not commute; "
            f"it takes at most {_MOST_NOISES}: NinomiyaVictoir() is of weak order 2 with any number, TMK() needs none."
        )


def mean_third_term(system: System, mu: State, dt: Float[Array, ""], W: Float[Array, " M"]) -> Element:
    """(dt/12) Σ_i [β_i,[β_i, w]], w = Σ_j β_j ΔW^j, for SALT noise."""
    algebra, w = system.algebra, system.noise(mu, W)

    def term(e: Float[Array, " M"]) -> Element:
        beta = system.noise(mu, e)
        return algebra.bracket(beta, algebra.bracket(beta, w))

    return dt / 12.0 * jnp.sum(jax.vmap(term)(jnp.eye(len(W))), axis=0)
