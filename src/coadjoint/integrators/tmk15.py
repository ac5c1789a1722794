"""TMK of strong order 1.5 for SALT noise."""

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
from .implicit import ImplicitSolve, KnownFlow
from .tmk import trapezoidal

_MOST_NOISES = 32  # that do not commute: a block of steps has 8 megabytes of level 3 in each part


class TMK15(OrbitMethod):
    """The trapezoidal Munthe-Kaas method of strong order 1.5, for SALT noise.

    The step is

        σ = ∂h(m) dt + Σ_i β_i ΔW^i + L₂ + L₃ + s (D²h a_z − [∂h, z]) + dt² Σ_i e_i,   m = ½ (μ_n + flow(sσ, μ_n)),
        z = Σ_i (ΔZ_i − ½ dt ΔW_i) β_i,   a_i = ad*_{β_i} μ_n,   a_z = ad*_z μ_n,
        e_i = ¼ [β_i, D²h a_i] + (1/12) [β_i,[β_i, ∂h]] + ⅛ D³h(a_i, a_i),
        μ_{n+1} = flow(sσ, μ_n)

    with ΔZ_i = ∫ (W_i − W_i(t_n)) dt and all derivatives of h but the first at μ_n. L₂ and L₃ are levels 2 and 3 of the
    logarithm of the noise alone,

        L₂ = s Σ_{i<j} A_ij [β_i, β_j],   L₃ = ⅓ Σ_ijk ℓ_ijk [β_i,[β_j, β_k]],

    where ℓ is level 3 of the log-signature of the path. With a forcing g, ∂h + g takes the place of ∂h. Commuting
    noises need ΔZ only. For others the path is sampled in about dt^{−½} parts of each step with the areas of each part.
    This costs an amount of order M² dt^{−5/4} per step.

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
        strong_commuting=1.5,
        strong=1.5,
        weak=2.0,
        casimirs=True,
        cost=Cost(0, 2, "iteration", 1, 1),
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
        """SALT noise only, and not too many that do not commute."""
        if not system.additive:
            raise ValueError(
                "TMK15 is made for SALT noise, salt(beta), but the system has a noise that is not: "
                "TMKLevy() is of strong order 1 for any noise."
            )
        M = system.n_noise
        if M > _MOST_NOISES and not system.commuting:
            raise ValueError(
                f"TMK15 needs the log-signature to level 3, {M}³ numbers in each part of a step, of {M} noises that do "
                f"not commute; it takes at most {_MOST_NOISES}: TMKLevy() needs {M}² numbers per step, TMK() none."
            )

    def needs(self, system: System) -> Needs:
        """ΔZ, and the log-signature to level 3 unless its brackets vanish."""
        return Needs(Z=system.n_noise > 0, third=not system.commuting, brownian=system.n_noise > 0)

    def sigma(
        self, system: System, mu: State, t: Float[Array, ""], dt: Float[Array, ""], dS: Increment
    ) -> tuple[Element, SolveInfo, KnownFlow]:
        """The root of TMK's equation with the terms of order 1.5 added."""
        if dS.Z is None:
            return trapezoidal(self.solve, system, mu, dt, dS.S)
        extra = time_terms(system, mu, dt, dS.S, dS.Z)
        if dS.areas is not None and dS.third is not None:
            extra = extra + area_term(system, mu, dS.areas) + third_term(system, mu, dS.third)
        return trapezoidal(self.solve, system, mu, dt, dS.S, extra)


def time_terms(
    system: System, mu: State, dt: Float[Array, ""], W: Float[Array, " M"], Z: Float[Array, " M"]
) -> Element:
    """s (D²h a_z − [∂h, z]) + dt² Σ_i e_i."""
    algebra, s = system.algebra, system.sign
    later = Z - 0.5 * dt * W
    z = system.noise(mu, later)
    dh, d2h = jax.jvp(system.drift, (mu,), (algebra.ad_star(z, mu),))
    terms = s * (d2h - algebra.bracket(dh, z)) + drift_terms(system, mu, dt)
    if not system.timed:
        return terms
    change = jax.jvp(lambda t: system.at(t).noise(mu, later), (system.time,), (jnp.ones(()),))[1]
    return terms - change  # ∫ β(t) dW = β ΔW − (ΔZ − ½ dt ΔW) ∂β/∂t + …, β at the middle of the step


def drift_terms(system: System, mu: State, dt: Float[Array, ""]) -> Element:
    """dt² Σ_i e_i."""
    algebra = system.algebra

    def e(unit: Float[Array, " M"]) -> Element:
        beta = system.noise(mu, unit)
        a = algebra.ad_star(beta, mu)
        (dh, d2h), (_, d3h) = jax.jvp(lambda m: jax.jvp(system.drift, (m,), (a,)), (mu,), (a,))
        double = algebra.bracket(beta, algebra.bracket(beta, dh))
        return 0.25 * algebra.bracket(beta, d2h) + double / 12.0 + 0.125 * d3h

    return dt**2 * jnp.sum(jax.vmap(e)(jnp.eye(system.n_noise)), axis=0)


def third_term(system: System, mu: State, third: Float[Array, "M M M"]) -> Element:
    """L₃ = ⅓ Σ_ijk ℓ_ijk [β_i,[β_j, β_k]], by Dynkin's theorem."""
    algebra = system.algebra
    beta = jax.vmap(lambda e: system.noise(mu, e))(jnp.eye(len(third)))

    def inner(matrix: Float[Array, "M M"]) -> Element:
        fields = jax.vmap(lambda row: system.noise(mu, row))(matrix)  # Σ_k ℓ_ijk β_k
        return jnp.sum(jax.vmap(algebra.bracket)(beta, fields), axis=0)

    return jnp.sum(jax.vmap(algebra.bracket)(beta, jax.vmap(inner)(third)), axis=0) / 3.0
