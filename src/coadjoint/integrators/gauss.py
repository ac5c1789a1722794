"""Gauss methods: Poisson maps of order 4 and 6 in a single step, on every algebra and isospectral on matrices."""

import abc
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..algebras.base import Element, State
from ..drivers import Increment
from ..numerics import validation
from ..numerics.rootfind import InitialGuess, SolveInfo
from ..systems import System
from .base import Claims, Cost, OrbitMethod
from .gauss_displacements import GAUSS, lie_displacement, lie_states, linear_displacement, linear_states
from .implicit import ImplicitSolve, truncated
from .tau import Cayley, Exp, Tau
from .tmk import at_zero, stage_inverse

Stages = Array  # increments ζ_i of the stages, stacked


class _Gauss(OrbitMethod):
    """σ = S(ζ_1, …) and μ_{n+1} = Ad*_{τ(sσ)} μ_n, where ζ_i = ζ(m_i) belongs to the node c_i of the step.

    S and the states m_i = (1/b_i) (∂S/∂ζ_i)* dτ*_{sσ} μ_n come from a subclass.
    """

    order: int = eqx.field(static=True)
    solve: ImplicitSolve
    drift_free: bool = eqx.field(static=True)
    remove_stabiliser: bool | None = eqx.field(static=True)

    tau: eqx.AbstractClassVar[Tau]

    def _set(self, order: int, solve: ImplicitSolve, drift_free: bool, remove_stabiliser: bool | None) -> None:
        """The fields, checked."""
        if order not in GAUSS:
            raise ValueError(f"order must be 4 or 6, not {order!r}.")
        validation.choice("solver", solve.solver, ("auto", "chord", "newton", "fixed_point"))
        self.order, self.solve = order, solve
        self.drift_free, self.remove_stabiliser = drift_free, remove_stabiliser

    @property
    def claims(self) -> Claims:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Those of a midpoint rule, of a higher order without noise."""
        stages = self.order // 2
        return Claims(
            order=self.order,
            strong_commuting=1.0,
            strong=0.5,
            weak=1.0,
            casimirs=True,
            cost=Cost(1, 0, "iteration", *self._cost(stages)),
            momentum=True,
            symplectic=True,
            symmetric=True,
        )

    def _cost(self, stages: int) -> tuple[int, int]:
        """Actions and gradients per iteration."""
        return 1, stages

    def check_torque(self, what: str) -> None:
        """Raise: the states of the stages are dual to the displacement, which a torque is not."""
        raise TypeError(
            f"{type(self).__name__} does not support {what}: use a method of the same order that does, "
            "such as RKMK('gauss4')."
        )

    @abc.abstractmethod
    def _displacement(self, system: System, zeta: Stages) -> Element:
        """S(ζ_1, …)."""

    @abc.abstractmethod
    def _states(self, system: System, zeta: Stages, mu: State) -> list[State]:
        """m_1, …"""

    def equation(
        self, system: System, mu: State, dt: Float[Array, ""], S: Float[Array, " M"], t: Any = None
    ) -> Callable[[Stages, Float[Array, ""]], Stages]:
        """f(ζ)_i = ζ_i − ζ(m_i), the system of stage i at t + c_i dt."""
        nodes = GAUSS[self.order].nodes
        at = [system if t is None else system.at_node(t, dt, c) for c in nodes]

        def f(zeta: Stages, lam: Float[Array, ""]) -> Stages:
            found = self._states(system, zeta, mu)
            return zeta - jnp.stack([here.zeta(m, lam * dt, lam * S) for here, m in zip(at, found, strict=True)])

        return f

    def sigma(
        self, system: System, mu: State, t: Float[Array, ""], dt: Float[Array, ""], dS: Increment
    ) -> tuple[Element, SolveInfo]:
        """S(ζ_1, …) at the root; at ζ = 0 the equation has the Jacobian of the Gauss–Legendre method."""
        tableau, S = GAUSS[self.order], truncated(system, dS)

        def start() -> InitialGuess:
            middle = at_zero(system, mu, dt, S)
            values = [middle.x for _ in tableau.nodes]
            if system.timed:
                coordinates = system.algebra.coordinates
                values = [coordinates(system.at_node(t, dt, c).zeta(mu, dt, S)) for c in tableau.nodes]
            size = tableau.stages * system.algebra.dim
            return InitialGuess(
                jnp.zeros(size), jnp.kron(2.0 * jnp.array(tableau.A), middle.G), -jnp.concatenate(values)
            )

        equation, local = self.equation(system, mu, dt, S, t), stage_inverse(system, mu, dt, np.array(tableau.A))
        zeta, info = self.solve(system, equation, start, stages=tableau.stages, local=local)
        return self._displacement(system, zeta), info


class LieGauss(_Gauss):
    """A Gauss–Legendre method of order 4 or 6 on any Lie algebra: a Poisson map, also with noise.

    The step is

        ζ_i = ∂h(m_i) dt + Σ_k ∂h_k(m_i) ΔS^k,   m_i = (1/b_i) (∂S/∂ζ_i)* dexp*_{sσ} μ_n,
        σ = S(ζ_1, …, ζ_p),   μ_{n+1} = flow(sσ, μ_n)

    with the weights b_i of Gauss–Legendre quadrature and Magnus' expansion S of the group element. For order 4

        S = ½ (ζ_1 + ζ_2) + s (√3/12) [ζ_1, ζ_2],   m_1 = λ − s (√3/6) ad*_{ζ_2} λ,   m_2 = λ + s (√3/6) ad*_{ζ_1} λ

    with the mean state λ = dexp*_{sσ} μ_n. Order 6 has three stages and four brackets. The step extremises the discrete
    action Σ b_i l(ζ_i) subject to S(ζ) = σ, so it is symplectic whatever S is. One stage would be `LieMidpoint`.

    The method uses increments of the noise only, so its strong orders are those of `LieMidpoint`.

    References: Bogfjellmo and Marthinsen, High-order symplectic partitioned Lie group methods (2016); S of order 6:
    Blanes, Casas and Ros, Improved high order integrators based on the Magnus expansion (2000).

    Parameters
    ----------
    order : {4, 6}, default 4
        The order without noise, twice the number of stages.
    tol : float, default 1e-14
        The tolerance of the last correction, relative to the unknown.
    solver : {"auto", "chord", "newton", "fixed_point"}, default "auto"
        The solver of the implicit equation. "auto" selects the chord method up to dimension 16 and fixed-point
        iteration above.
    max_steps : int, default 50
        The largest number of iterations.
    fallbacks : bool, default True
        Use Newton's method and then homotopy if the solver fails, up to 64 unknowns.
    drift_free : bool, default True
        Apply the round-off correction after each step.
    remove_stabiliser : bool, optional
        On `SO3` and its products, leave out of ∂h the part along μ, which moves nothing. On a single `SO3` the
        default is True. In a product it is False with noise or dissipation; otherwise a run selects the gradient that
        changes more slowly at the initial state. Other algebras are not affected.

    Examples
    --------
    >>> import coadjoint as cj
    >>> system, mu0 = cj.models.heavy_top(alpha=None)
    >>> sol = cj.solve(system, mu0, t1=1.0, dt=0.1, integrator=cj.LieGauss(6))
    >>> bool(sol.casimir_errors().max() < 5e-15)
    True
    """  # fmt: skip

    tau: ClassVar[Tau] = Exp()

    def __init__(
        self,
        order: int = 4,
        tol: float = 1e-14,
        solver: str = "auto",
        max_steps: int = 50,
        fallbacks: bool = True,
        drift_free: bool = True,
        remove_stabiliser: bool | None = None,
    ):
        self._set(order, ImplicitSolve(tol, solver, max_steps, fallbacks), drift_free, remove_stabiliser)

    def _displacement(self, system: System, zeta: Stages) -> Element:
        """Magnus' expansion."""
        return lie_displacement(self.order, system.algebra, system.sign, zeta)

    def _states(self, system: System, zeta: Stages, mu: State) -> list[State]:
        """The duals of the derivatives of the expansion, applied to the mean state of the step."""
        algebra, s = system.algebra, system.sign
        mean = algebra.dexp_star(s * self._displacement(system, zeta), mu)
        return lie_states(self.order, algebra, s, zeta, mean)


class IsospectralGauss(_Gauss):
    """The isospectral Gauss–Legendre method of order 4 or 6 for su(n): a Poisson map without exponentials.

    For W' = [P, W] (s = −1) the step is

        ζ_i = ∂h(W_i) dt + Σ_k ∂h_k(W_i) ΔS^k,   W_i = U_i W_n U_iᴴ,   U_i = 1 + Σ_j a_ij ζ_j U_j,
        W_{n+1} = U W_n Uᴴ,   U = 1 + Σ_i b_i ζ_i U_i.

    U is the Gauss–Legendre step of the linear equation U' = P U. It is unitary for any skew-Hermitian ζ_i, so the
    spectrum of W does not depend on the accuracy of the solution. For s = +1 the signs of ζ_i are reversed. One stage
    would be `IsospectralMidpoint`.

    U is applied as the Cayley transform of σ = Σ_i b_i ζ_i V_i, V_i = 1 + Σ_j (a_ij − b_j/2) ζ_j V_j.

    References: Modin and Viviani, Lie–Poisson methods for isospectral flows (2020).

    Parameters
    ----------
    order : {4, 6}, default 4
        The order without noise, twice the number of stages.
    tol : float, default 1e-14
        The tolerance of the last correction, relative to the unknown.
    solver : {"auto", "chord", "newton", "fixed_point"}, default "auto"
        The solver of the implicit equation. "auto" selects the chord method up to dimension 16 and fixed-point
        iteration above.
    max_steps : int, default 50
        The largest number of iterations.
    fallbacks : bool, default True
        Use Newton's method and then homotopy if the solver fails, up to 64 unknowns.
    drift_free : bool, default True
        Apply the round-off correction after each step.
    """  # fmt: skip

    tau: ClassVar[Tau] = Cayley()

    def __init__(
        self,
        order: int = 4,
        tol: float = 1e-14,
        solver: str = "auto",
        max_steps: int = 50,
        fallbacks: bool = True,
        drift_free: bool = True,
    ):
        self._set(order, ImplicitSolve(tol, solver, max_steps, fallbacks), drift_free, None)

    def _cost(self, stages: int) -> tuple[int, int]:
        """Each stage is an action."""
        return stages, stages

    def check(self, system: System) -> None:
        """The states must be matrices that flows conjugate."""
        if not system.algebra.is_matrix_conjugation:
            raise ValueError(
                f"IsospectralGauss is for SU(n), not for {type(system.algebra).__name__}: "
                f"take LieGauss({self.order}), which supports every algebra."
            )

    def _displacement(self, system: System, zeta: Stages) -> Element:
        """σ, whose Cayley transform is the step of the linear equation."""
        return linear_displacement(self.order, system.sign, zeta)

    def _states(self, system: System, zeta: Stages, mu: State) -> list[State]:
        """U_i W U_iᴴ."""
        return linear_states(self.order, system.sign, zeta, mu)
