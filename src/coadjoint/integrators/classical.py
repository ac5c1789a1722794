"""Baselines: classical methods applied directly to the equation dμ = F(μ), F(μ) = s ad*_ζ(μ) μ.

They know nothing of orbits. They are here to be compared with.
"""

import abc
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..algebras.base import State
from ..drivers import Increment
from ..numerics.rootfind import InitialGuess, SolveInfo, explicit_info
from ..systems import System
from .base import Claims, Cost, Integrator
from .implicit import ImplicitSolve, truncated

Nodes = tuple[System, System, System]


class _ImplicitDirect(Integrator):
    """A classical method whose increment x = μ_{n+1} − μ_n solves x = increment(μ_n, x).

    Method arguments
    ----------------
    nodes : tuple of System
        The system at the start, the middle and the end of the step.
    mu, x : array, shape `algebra.shape`
        The state at the start of the step, and its change.
    dt : float
        The time step.
    S : array, shape (M,)
        The increments of the driving path.
    """

    solve: ImplicitSolve = ImplicitSolve()

    def __init__(self, tol: float = 1e-14, solver: str = "auto", max_steps: int = 30, fallbacks: bool = True):
        self.solve = ImplicitSolve(tol, solver, max_steps, fallbacks)

    @abc.abstractmethod
    def increment(self, nodes: Nodes, mu: State, x: State, dt: Float[Array, ""], S: Float[Array, " M"]) -> State:
        """The right-hand side of the equation for x, from the system at start, middle and end of the step."""

    def init(self, system: System, mu: State) -> PyTree:
        """Nothing to carry."""
        return None

    def step(
        self, system: System, mu: State, t: Float[Array, ""], dt: Float[Array, ""], dS: Increment, carry: PyTree
    ) -> tuple[State, PyTree, SolveInfo]:
        """Solve for the increment and add it."""
        plain = system.on_states()
        algebra = plain.algebra
        S = truncated(system, dS)
        nodes = system.at_node(t, dt, 0.0), system, system.at_node(t, dt, 1.0)

        def f(x, lam):
            return x - self.increment(nodes, mu, x, lam * dt, lam * S)

        def start():
            def one(c):
                out = algebra.coordinates(self.increment(nodes, mu, algebra.element(c), dt, S))
                return out, out

            zero = jnp.zeros(algebra.dim)
            derivative, value = jax.jacfwd(one, has_aux=True)(zero)
            return InitialGuess(zero, derivative, -value)

        x, info = self.solve(plain, f, start)
        mu = mu + x
        return mu, carry, info._replace(converged=info.converged & jnp.all(jnp.isfinite(mu)))


class ImplicitMidpoint(_ImplicitDirect):
    """The implicit midpoint rule: μ_{n+1} = μ_n + F(½ (μ_n + μ_{n+1})).

    A classical method for comparison. It conserves quadratic Casimirs and no others.

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
    """

    claims: ClassVar[Claims] = Claims(
        order=2,
        strong_commuting=1.0,
        strong=0.5,
        weak=1.0,
        casimirs=False,
        cost=Cost(0, 0, "iteration", 0, 1),
        energy="quadratic",
        momentum=True,
        symmetric=True,
    )

    def increment(self, nodes: Nodes, mu: State, x: State, dt: Float[Array, ""], S: Float[Array, " M"]) -> State:
        """F(μ_n + ½ x)."""
        return nodes[1].vector_field(mu + 0.5 * x, dt, S)


class Trapezoidal(_ImplicitDirect):
    """The trapezoidal rule: μ_{n+1} = μ_n + ½ (F(μ_n) + F(μ_{n+1})).

    A classical method for comparison: it adds increments to μ, and does not conserve Casimirs in general.

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
    """

    claims: ClassVar[Claims] = Claims(
        order=2,
        strong_commuting=1.0,
        strong=0.5,
        weak=1.0,
        casimirs=False,
        cost=Cost(0, 0, "iteration", 0, 2),
        momentum=True,
        symmetric=True,
    )

    def increment(self, nodes: Nodes, mu: State, x: State, dt: Float[Array, ""], S: Float[Array, " M"]) -> State:
        """½ (F(μ_n) + F(μ_n + x))."""
        start, _, end = nodes
        return 0.5 * (start.vector_field(mu, dt, S) + end.vector_field(mu + x, dt, S))


class Heun(Integrator):
    """Heun's method, the explicit trapezoidal rule: μ_{n+1} = μ_n + ½ (F(μ_n) + F(μ_n + F(μ_n))).

    A classical method for comparison: it adds increments to μ, and does not conserve Casimirs in general.
    """

    claims: ClassVar[Claims] = Claims(
        order=2,
        strong_commuting=1.0,
        strong=0.5,
        weak=1.0,
        casimirs=False,
        cost=Cost(0, 2),
        momentum=True,
        explicit=True,
    )

    def init(self, system: System, mu: State) -> PyTree:
        """Nothing to carry."""
        return None

    def step(
        self, system: System, mu: State, t: Float[Array, ""], dt: Float[Array, ""], dS: Increment, carry: PyTree
    ) -> tuple[State, PyTree, SolveInfo]:
        """Predict, then average."""
        first = system.at_node(t, dt, 0.0).vector_field(mu, dt, dS.S)
        mu = mu + 0.5 * (first + system.at_node(t, dt, 1.0).vector_field(mu + first, dt, dS.S))
        return mu, carry, explicit_info(mu)
