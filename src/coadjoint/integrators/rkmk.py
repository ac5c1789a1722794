"""Runge–Kutta–Munthe-Kaas methods, for any tableau and any τ."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..algebras.base import Element, State
from ..drivers import Increment
from ..numerics.modules import method_of
from ..numerics.rootfind import InitialGuess, SolveInfo, explicit_info
from ..systems import System
from .base import Claims, Cost, OrbitMethod
from .implicit import ImplicitSolve, truncated
from .tableau import Tableau, get_tableau
from .tau import Exp, Tau, checked
from .tmk import stage_inverse


class RKMK(OrbitMethod):
    """A Runge–Kutta–Munthe-Kaas method: a Runge–Kutta method (A, b) for σ with μ = Ad*_{τ(sσ)} μ_n.

    The step is

        σ_i = Σ_j a_ij k_j,   k_i = dτinv_{−sσ_i} ζ(Ad*_{τ(sσ_i)} μ_n),   σ = Σ_i b_i k_i,   μ_{n+1} = Ad*_{τ(sσ)} μ_n

    with ζ(μ) = ∂h(μ) dt + Σ_i ∂h_i(μ) ΔS^i. The method uses increments only, so its strong orders are those of TMK for
    any tableau. Along a smooth path that `Increments` prescribes its order is 2. A tableau of order 1 supports
    SALT noise only.

    Reference: Munthe-Kaas, High order Runge–Kutta methods on manifolds (1999).

    Parameters
    ----------
    tableau : str or Tableau, default "rk4"
        "euler", "midpoint" (explicit), "heun", "rk4", "gauss2", "gauss4" (Gauss–Legendre), or a `Tableau`. All stages
        of an implicit tableau are solved together. dexpinv includes the order − 2 brackets that are needed.
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

    tableau: Tableau = eqx.field(static=True)
    tau: Tau
    solve: ImplicitSolve
    drift_free: bool = eqx.field(static=True)
    remove_stabiliser: bool | None = eqx.field(static=True)

    def __init__(
        self,
        tableau: str | Tableau = "rk4",
        tau: Tau = Exp(),
        tol: float = 1e-14,
        solver: str = "auto",
        max_steps: int = 30,
        fallbacks: bool = True,
        drift_free: bool = True,
        remove_stabiliser: bool | None = None,
    ):
        self.tableau = get_tableau(tableau)
        self.tau = checked(tau)
        self.solve = ImplicitSolve(tol, solver, max_steps, fallbacks)
        self.drift_free = drift_free
        self.remove_stabiliser = remove_stabiliser

    @property
    def claims(self) -> Claims:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Those of the tableau."""
        t = self.tableau
        n = t.stages
        cost = Cost(n, n) if t.explicit else Cost(1, 0, "iteration", n, n)
        centred = (t.A, t.b) == (((0.5,),), (1.0,)) and isinstance(self.tau, Exp)
        return Claims(
            order=t.order,
            strong_commuting=1.0,
            strong=0.5,
            weak=1.0,
            casimirs=True,
            symmetric=centred,
            explicit=t.explicit,
            cost=cost,
        )

    @property
    def sitewise(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """An explicit one is."""
        return self.tableau.explicit

    def check(self, system: System) -> None:
        """τ fits the algebra, and the tableau the noise."""
        method_of(self.tau, "check")(system.algebra)
        if self.tableau.order < 2 and not system.additive:
            raise ValueError(
                "a tableau of order 1 is made for SALT noise, salt(beta), but the system has a noise that is not: "
                "EulerMaruyamaMK() has the correction it needs, or take a tableau of order 2."
            )

    def sigma(
        self, system: System, mu: State, t: Float[Array, ""], dt: Float[Array, ""], dS: Increment
    ) -> tuple[Element, SolveInfo]:
        """Σ_i b_i k_i."""
        algebra, s, order = system.algebra, system.sign, self.tableau.order
        A, b, c = np.array(self.tableau.A), np.array(self.tableau.b), self.tableau.nodes
        step = dt

        def slope(sigma: Element, dt: Float[Array, ""], S: Float[Array, " M"], c: float) -> Element:
            zeta = system.at_node(t, step, c).zeta(self.tau.action(algebra, s * sigma, mu), dt, S)
            return self.tau.dtauinv_to(order, algebra, -s * sigma, zeta)

        if self.tableau.explicit:
            k = [system.at_node(t, dt, c[0]).zeta(mu, dt, dS.S)]
            for row, node in zip(A[1:], c[1:], strict=True):
                k.append(slope(_combination(row, k), dt, dS.S, node))
            sigma = _combination(b, k)
            return sigma, explicit_info(sigma)

        S = truncated(system, dS)

        def f(k, lam):
            stage = lambda sigma, c: slope(sigma, lam * dt, lam * S, c)
            return k - jax.vmap(stage)(jnp.tensordot(A, k, axes=1), np.array(c))

        def start():
            def one(x):
                out = algebra.coordinates(slope(algebra.element(x), dt, S, 0.5))
                return out, out

            derivative, value = jax.jacfwd(one, has_aux=True)(jnp.zeros(algebra.dim))
            size = len(b) * algebra.dim
            values = [value] * len(b)
            if system.timed:
                values = [algebra.coordinates(system.at_node(t, step, node).zeta(mu, dt, S)) for node in c]
            return InitialGuess(jnp.zeros(size), jnp.kron(A, derivative), -jnp.concatenate(values))

        k, info = self.solve(system, f, start, stages=len(b), local=stage_inverse(system, mu, dt, A))
        return jnp.tensordot(b, k, axes=1), info


def _combination(weights: np.ndarray, k: list[Element]) -> Element:
    """Σ_j w_j k_j, without the products by zero."""
    total = jnp.zeros_like(k[0])
    for w, x in zip(weights, k, strict=False):
        total = total + w * x if w else total
    return total
