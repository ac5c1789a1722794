"""TMK, the trapezoidal Munthe-Kaas method."""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from stepcompiler.hints import low_precision

from ..algebras.base import Element, State
from ..drivers import Increment
from ..numerics.modules import method_of
from ..numerics.rootfind import InitialGuess, SolveInfo
from ..stabilisers import removed_part
from ..systems import System
from .base import Claims, Cost, OrbitMethod
from .implicit import ImplicitSolve, KnownFlow, explicit_coordinates, truncated
from .matrix_products import Rule, check_solver, rule_for
from .tau import Exp, Tau, checked

_NEAR = 6  # dimension up to which a nearer start, and a more exact Jacobian, take less than the evaluation they save


class TMK(OrbitMethod):
    """The trapezoidal Munthe-Kaas method.

    The step is

        σ = ∂h(m) dt + Σ_i ∂h_i(m) ΔS^i,   m = ½ (μ_n + flow(sσ, μ_n)),
        μ_{n+1} = flow(sσ, μ_n).

    The chord method solves for σ, from σ = 0 with the Jacobian frozen at the start of the step,

        σ ← σ − Df(0)⁻¹ f(σ),   Df(0) = I + s (dt/2) D²h J(μ_n) + s Σ_i (ΔS^i/2) D²h_i J(μ_n).

    If it fails, Newton's method and then homotopy in (dt, ΔS) follow. Matrices above dimension 64 use the
    inversion-free solver. Up to dimension 6 native code starts closer to the root, so a small step takes two
    evaluations instead of four. Without noise a quadratic energy is conserved.

    Reference: Luesink, Ephrati, Cifani and Geurts, Casimir preserving stochastic Lie–Poisson integrators, algorithm 1
    (signs: docs/reference/conventions.md).

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
    tau : Tau, default Exp()
        The map from the algebra to the group: `Exp()`, `Cayley()` or a `Tau` of your own.
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
        weak=1.0,
        casimirs=True,
        cost=Cost(0, 0, "iteration", 1, 1),
        energy="quadratic",
        symmetric=True,
    )

    solve: ImplicitSolve
    drift_free: bool = eqx.field(static=True)
    remove_stabiliser: bool | None = eqx.field(static=True)
    tau: Tau

    def __init__(
        self,
        tol: float = 1e-14,
        solver: str = "auto",
        max_steps: int = 30,
        fallbacks: bool = True,
        drift_free: bool = True,
        tau: Tau = Exp(),
        remove_stabiliser: bool | None = None,
    ):
        self.solve = ImplicitSolve(tol, solver, max_steps, fallbacks)
        self.drift_free = drift_free
        self.remove_stabiliser = remove_stabiliser
        self.tau = checked(tau)

    def check(self, system: System) -> None:
        """τ fits the algebra, and so does the solver."""
        method_of(self.tau, "check")(system.algebra)
        check_solver(self.solve, system)

    def products_rule(self, system: System) -> Rule | None:
        """The trapezoidal rule of matrices."""
        return rule_for(self.solve, system, self.tau, mean=True)

    def equation(
        self, system: System, mu: State, dt: Float[Array, ""], S: Float[Array, " M"]
    ) -> Callable[[Element, Float[Array, ""]], Any]:
        """f(σ) = σ − ζ(½ (μ_n + Ad*_{τ(sσ)} μ_n)); for τ = exp, with flow(sσ, μ) − μ."""
        return _equation(system, mu, dt, S, None, self.tau)

    def sigma(
        self, system: System, mu: State, t: Float[Array, ""], dt: Float[Array, ""], dS: Increment
    ) -> tuple[Element, SolveInfo] | tuple[Element, SolveInfo, KnownFlow]:
        """The root of f(σ) = σ − ζ(½ (μ_n + Ad*_{τ(sσ)} μ_n))."""
        return trapezoidal(self.solve, system, mu, dt, truncated(system, dS), tau=self.tau)


def trapezoidal(
    solve: ImplicitSolve,
    system: System,
    mu: State,
    dt: Float[Array, ""],
    S: Float[Array, " M"],
    extra: Element | None = None,
    tau: Tau = Exp(),
) -> Any:
    """The root of f(σ) = σ − ζ(½ (μ_n + Ad*_{τ(sσ)} μ_n)) − extra, for increments S of the path."""
    f, about = _equation(system, mu, dt, S, extra, tau), (system, mu, dt, S, extra)
    starts = partial(at_zero, *about), partial(near_root, *about)
    return solve(system, f, *starts, explicit=explicit_coordinates(system), local=local_inverse(system, mu, dt))


def _equation(
    system: System, mu: State, dt: Float[Array, ""], S: Float[Array, " M"], extra: Element | None, tau: Tau
) -> Callable[[Element, Float[Array, ""]], Any]:
    """f(σ, λ); for τ = exp with the change of μ, from which the step follows."""
    algebra, s = system.algebra, system.sign

    def f(sigma, lam):
        known = isinstance(tau, Exp)
        change = algebra.change(s * sigma, mu) if known else tau.action(algebra, s * sigma, mu) - mu
        residual = sigma - system.zeta(mu + 0.5 * change, lam * dt, lam * S)
        residual = residual if extra is None else residual - lam * extra
        return (residual, change) if known else residual

    return f


def local_inverse(system: System, mu: State, dt: Float[Array, ""], share: float = 0.5) -> Any:
    """The inverse of x ↦ x + s (dt/2) [c μ, x], the part of Df(0) that belongs to the c μ left out of ∂h; or None.

    With it a fixed point needs no more iterations than with all of ∂h: of spin waves with D²h = −γ it contracts by
    (dt/2)|γ|/|1 + i (dt/2) c|, not by (dt/2)|γ + c|. `share`: the part of a step at whose end the state is.
    """
    if system.reduction is None:
        return None

    def inverse() -> Callable[[Element], Element]:
        part = jax.lax.stop_gradient(share * system.sign * dt * removed_part(system, mu, mu))
        return lambda x: system.algebra.resolvent(part, x)

    return inverse


def stage_inverse(system: System, mu: State, dt: Float[Array, ""], A: np.ndarray) -> Any:
    """`local_inverse` for the stages of a tableau A, each without the others; or None."""
    if system.reduction is None:
        return None

    def inverse() -> Callable[[Element], Element]:
        each = [local_inverse(system, mu, dt, share)() for share in np.diag(A)]
        return lambda k: jnp.stack([solve(x) for solve, x in zip(each, k, strict=True)])

    return inverse


def at_zero(
    system: System, mu: State, dt: Float[Array, ""], S: Float[Array, " M"], extra: Element | None = None
) -> InitialGuess:
    """f(0) = −ζ(μ) and Df(0) = I + s (dt/2) D²h J(μ) + s Σ_i (ΔS^i/2) D²h_i J(μ), of every symmetric rule."""
    algebra, s = system.algebra, system.sign
    x = algebra.coordinates(_zeta(system, mu, dt, S, extra))
    return InitialGuess(x, _slope(system, mu, dt, S, lambda x: s * algebra.ad_star(x, mu)), at_zero=-x)


def near_root(
    system: System,
    mu: State,
    dt: Float[Array, ""],
    S: Float[Array, " M"],
    extra: Element | None = None,
    second: float = 1 / 4,
) -> InitialGuess:
    """Near the root of σ = ζ(m), m = (1 + ½a + c a² + …) μ, a = s ad*_σ, which is every symmetric rule's; c: `second`.

        σ₁ = ζ(μ + ½a′μ + c a₀²μ),   a′ = s ad*_σ′,   σ′ = ζ(μ + ½a₀μ),   a₀ = s ad*_σ₀,   σ₀ = ζ(μ),

    explicitly, within O(h⁴) of the root for steps of the size h; and the derivative of ζ(m) at σ′, to second order,

        Gx = Dζ(μ + ½a′μ) (½a_x + c (a_x a′ + a′ a_x)) μ,   a_x = s ad*_x.

    These need few digits, for two corrections follow; σ₀ has all of them. In a larger algebra as in `at_zero`.
    """  # fmt: skip
    algebra, s = system.algebra, system.sign
    if algebra.dim > _NEAR or system.has_torque:
        return at_zero(system, mu, dt, S, extra)
    ad = lambda x, m: s * algebra.ad_star(x, m)

    @low_precision
    def start(mu: State, dt: Array, S: Array, extra: Element | None) -> tuple[Array, Array]:
        zeta = lambda m: _zeta(system, m, dt, S, extra)
        first = zeta(mu)
        change = ad(first, mu)
        near = zeta(mu + 0.5 * change)
        once = ad(near, mu)
        sigma = zeta(mu + 0.5 * once + second * ad(first, change))
        scaled, ahead = 2.0 * second * near, mu + 2.0 * second * once
        along = lambda x: ad(x, ahead) + ad(scaled, ad(x, mu))
        return algebra.coordinates(sigma), _slope(system, mu + 0.5 * once, dt, S, along)

    return InitialGuess(*start(mu, dt, S, extra), explicit=algebra.coordinates(_zeta(system, mu, dt, S, extra)))


def _zeta(system: System, m: State, dt: Float[Array, ""], S: Float[Array, " M"], extra: Element | None) -> Element:
    return system.zeta(m, dt, S) if extra is None else system.zeta(m, dt, S) + extra


def _slope(
    system: System, mean: State, dt: Float[Array, ""], S: Float[Array, " M"], along: Callable[[Element], State]
) -> Float[Array, "dim dim"]:
    """x ↦ ½ Dζ(m̄) along(x)."""
    algebra = system.algebra

    def column(e: Float[Array, " dim"]) -> Float[Array, " dim"]:
        moved = 0.5 * along(algebra.element(e))
        return algebra.coordinates(jax.jvp(lambda m: system.zeta(m, dt, S), (mean,), (moved,))[1])

    return jax.vmap(column, out_axes=1)(jnp.eye(algebra.dim))
