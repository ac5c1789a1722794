"""Lie midpoint rules: Poisson maps, symplectic on every coadjoint orbit."""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import equinox as eqx
from jaxtyping import Array, Float

from ..algebras.base import Element, State
from ..drivers import Increment
from ..numerics.modules import method_of
from ..numerics.rootfind import SolveInfo
from ..systems import System
from .base import Claims, Cost, OrbitMethod
from .implicit import ImplicitSolve, explicit_coordinates, truncated
from .matrix_products import Rule, check_solver, rule_for
from .tau import Cayley, Exp, Tau, checked
from .tmk import at_zero, local_inverse, near_root


class _Midpoint(OrbitMethod):
    """σ = ζ(dτ*_{sσ} μ_n) and μ_{n+1} = Ad*_{τ(sσ)} μ_n, for a τ that a subclass gives."""

    claims: ClassVar[Claims] = Claims(
        order=2,
        strong_commuting=1.0,
        strong=0.5,
        weak=1.0,
        casimirs=True,
        cost=Cost(1, 0, "iteration", 1, 1),
        momentum=True,
        symplectic=True,
        symmetric=True,
    )

    tau: Tau
    solve: ImplicitSolve
    drift_free: bool = eqx.field(static=True)
    remove_stabiliser: bool | None = eqx.field(static=True)

    def check(self, system: System) -> None:
        """τ fits the algebra, and so does the solver."""
        method_of(self.tau, "check")(system.algebra)
        check_solver(self.solve, system)

    def products_rule(self, system: System) -> Rule | None:
        """The midpoint rule of matrices."""
        return rule_for(self.solve, system, self.tau, mean=False)

    def equation(
        self, system: System, mu: State, dt: Float[Array, ""], S: Float[Array, " M"]
    ) -> Callable[[Element, Float[Array, ""]], Any]:
        """f(σ) = σ − ζ(dτ*_{sσ} μ_n)."""
        algebra, s = system.algebra, system.sign
        return lambda sigma, lam: sigma - system.zeta(self.tau.dtau_star(algebra, s * sigma, mu), lam * dt, lam * S)

    def sigma(
        self, system: System, mu: State, t: Float[Array, ""], dt: Float[Array, ""], dS: Increment
    ) -> tuple[Element, SolveInfo]:
        """The root of f(σ) = σ − ζ(dτ*_{sσ} μ_n); at σ = 0 it has the Jacobian of TMK's equation."""
        S = truncated(system, dS)
        near = partial(near_root, system, mu, dt, S, second=1 / 6)  # of φ₁; of τ = cay about
        starts = partial(at_zero, system, mu, dt, S), near
        explicit, local = explicit_coordinates(system), local_inverse(system, mu, dt)
        return self.solve(system, self.equation(system, mu, dt, S), *starts, explicit=explicit, local=local)


class LieMidpoint(_Midpoint):
    """The Lie midpoint rule: a Poisson map, also with noise.

    The step is

        σ = ∂h(m) dt + Σ_i ∂h_i(m) ΔS^i,   m = dτ*_{sσ} μ_n,   μ_{n+1} = Ad*_{τ(sσ)} μ_n.

    For τ = exp, m = φ₁(s ad*_σ) μ_n with φ₁(z) = (eᶻ − 1)/z is the mean state of the step. `LieMidpoint(Cayley())` is
    `IsospectralMidpoint()`. Without noise the energy error stays bounded for any h.

    Reference: Bou-Rabee and Marsden, Hamilton–Pontryagin integrators on Lie groups (2009).

    Parameters
    ----------
    tau : Tau, default Exp()
        The map from the algebra to the group: `Exp()`, `Cayley()` or a `Tau` of your own.
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
        default is True. In a product it is False with noise or dissipation; otherwise a run selects the gradient that
        changes more slowly at the initial state. Other algebras, and systems with a torque, are not affected.
    """  # fmt: skip

    def __init__(
        self,
        tau: Tau = Exp(),
        tol: float = 1e-14,
        solver: str = "auto",
        max_steps: int = 30,
        fallbacks: bool = True,
        drift_free: bool = True,
        remove_stabiliser: bool | None = None,
    ):
        self.tau = checked(tau)
        self.solve = ImplicitSolve(tol, solver, max_steps, fallbacks)
        self.drift_free = drift_free
        self.remove_stabiliser = remove_stabiliser


class IsospectralMidpoint(_Midpoint):
    """The isospectral midpoint rule of matrix algebras: a Poisson map without exponentials, also with noise.

    The step is

        σ = ∂h(W̃) dt + Σ_i ∂h_i(W̃) ΔS^i,   W̃ = (1 + sσ/2)⁻¹ W_n (1 − sσ/2)⁻¹,
        W_{n+1} = cay(sσ)⁻¹ W_n cay(sσ),   cay(σ) = (1 − σ/2)⁻¹(1 + σ/2).

    The iteration is on σ, and the step ends with the exact conjugation. The spectrum of W, and with it every Casimir,
    does therefore not depend on the accuracy of the solution.

    References: Modin and Viviani, Lie–Poisson methods for isospectral flows (2020). With noise: Ephrati, Jansson, Lang
    and Luesink, An exponential map free implicit midpoint method for stochastic Lie–Poisson systems (2024).

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
        default is True. In a product it is False with noise or dissipation; otherwise a run selects the gradient that
        changes more slowly at the initial state. Other algebras, and systems with a torque, are not affected.
    """  # fmt: skip

    def __init__(
        self,
        tol: float = 1e-14,
        solver: str = "auto",
        max_steps: int = 30,
        fallbacks: bool = True,
        drift_free: bool = True,
        remove_stabiliser: bool | None = None,
    ):
        self.tau = Cayley()
        self.solve = ImplicitSolve(tol, solver, max_steps, fallbacks)
        self.drift_free = drift_free
        self.remove_stabiliser = remove_stabiliser
