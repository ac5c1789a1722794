"""TMK of weak order 2, by one group action a step."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..algebras.base import Element, State
from ..areas import area_term
from ..drivers import Increment, Needs
from ..numerics.rootfind import SolveInfo
from ..systems import System
from .base import Claims, Cost, OrbitMethod
from .implicit import ImplicitSolve, KnownFlow
from .tmk import trapezoidal
from .tmk15 import drift_terms
from .tmk_levy import mean_third_term, not_too_many


class TMKWeak(OrbitMethod):
    """The trapezoidal Munthe-Kaas method of weak order 2, for SALT noise.

    The step uses increments and a Rademacher variable for each pair of noises:

        σ = g(m) dt + w + s Σ_{i<j} A_ij [β_i, β_j] + (dt/12) Σ_i [β_i,[β_i, w]] + dt² Σ_i e_i,   w = Σ_i β_i ΔW^i,
        e_i = ¼ [β_i, Dg a_i] + (1/12) [β_i,[β_i, g]] + ⅛ D²g(a_i, a_i),   a_i = ad*_{β_i} μ_n,
        m = ½ (μ_n + flow(sσ, μ_n)),   μ_{n+1} = flow(sσ, μ_n).

    Here g is ∂h with the forcing added, and its derivatives are at μ_n. The areas A_ij = ± dt/2 with equal probability
    have the relevant moments of the Lévy areas. Commuting noises need no areas. On single paths the method has the
    orders of TMK, because these areas are not those of the path. The terms are those of `TMK15` in the mean. For many
    noises, as in spin lattices, the sums over i are expensive: use `NinomiyaVictoir`.

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
        strong=0.5,
        weak=2.0,
        casimirs=True,
        cost=Cost(0, 1, "iteration", 1, 1),
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
                "TMKWeak is made for SALT noise, salt(beta), but the system has a noise that is not: NinomiyaVictoir() "
                "takes noises φ(<μ, a>), TMK() any noise."
            )
        not_too_many("TMKWeak", "a random sign", system)

    def needs(self, system: System) -> Needs:
        """Rademacher variables for noises that do not commute."""
        M = system.n_noise
        return Needs(signs=0 if system.commuting else M * (M - 1) // 2, brownian=M > 0)

    def sigma(
        self, system: System, mu: State, t: Float[Array, ""], dt: Float[Array, ""], dS: Increment
    ) -> tuple[Element, SolveInfo, KnownFlow]:
        """The root of TMK's equation with the terms of weak order 2 added."""
        if not system.n_noise:
            return trapezoidal(self.solve, system, mu, dt, dS.S)
        extra = drift_terms(system, mu, dt)
        if dS.signs is not None:
            areas = 0.5 * dt * _antisymmetric(system.n_noise, dS.signs)
            extra = extra + area_term(system, mu, areas) + mean_third_term(system, mu, dt, dS.S)
        return trapezoidal(self.solve, system, mu, dt, dS.S, extra)


def _antisymmetric(M: int, above: Float[Array, " K"]) -> Float[Array, "M M"]:
    """The antisymmetric matrix with the given entries above the diagonal, row by row."""
    rows, columns = np.triu_indices(M, 1)
    number = np.zeros((M, M), int)
    number[rows, columns] = number[columns, rows] = np.arange(len(rows))
    sign = np.triu(np.ones((M, M)), 1) - np.tril(np.ones((M, M)), -1)
    return jnp.asarray(sign) * above[number]
