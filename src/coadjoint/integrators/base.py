"""The integrator: one step, and what it claims."""

import abc
import dataclasses
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..algebras.base import Element, State
from ..drivers import Increment, Needs
from ..numerics import checks
from ..numerics.rootfind import Info, solve_root
from ..systems import System
from .tau import Exp, Tau

DENSE = 64  # largest number of unknowns for which Jacobians are formed
_EXP = Exp()


@dataclass(frozen=True)
class Cost:
    """What a step costs: group actions and gradients of h, and how many more for each iteration or part of h.

    An action is a flow, or the dual of the differential of τ, which is as dear. A gradient is ∂h, or a derivative of
    it in one direction, for one noise or for all of them at once.
    """

    flows: int = 0
    gradients: int = 0
    each: str = ""  # "", "iteration" or "part"
    flows_each: int = 0
    gradients_each: int = 0


@dataclass(frozen=True)
class Claims:
    """What an integrator promises. The tables of the documentation and the verification tests read this."""

    order: int  # deterministic order
    strong_commuting: float  # strong order with one SALT noise, or commuting ones; 0 if it takes no noise
    strong: float  # strong order with any SALT noises
    casimirs: bool  # keeps every Casimir to round-off
    weak: float = 0.0  # weak order with any SALT noises
    cost: Cost = Cost()
    energy: str = ""  # the Hamiltonians whose energy it keeps without noise: "", "quadratic", "polynomial" or "any"
    symplectic: bool = False  # a Poisson map, symplectic on the coadjoint orbits
    symmetric: bool = False  # without noise, its own inverse when time runs backwards
    explicit: bool = False


class Integrator(eqx.Module):
    """One step of a method. All that a restart needs is in `mu` and `carry`."""

    claims: eqx.AbstractClassVar[Claims]

    @abc.abstractmethod
    def init(self, system: System, mu: State) -> PyTree:
        """The carry at the start."""

    def check(self, system: System) -> None:
        """Raise if the scheme is not made for such a system; called before anything is compiled."""

    def needs(self, system: System) -> Needs:
        """What the method asks of the path beside ΔS."""
        return Needs()

    def init_group(self, system: System, mu: State, carry: PyTree) -> PyTree:
        """The same carry with the group element g₀ = 1, which the steps then move along."""
        raise TypeError(
            f"group=True needs a method that moves by a group action, such as TMK(); {type(self).__name__} does not."
        )

    def group(self, carry: PyTree) -> Array | None:
        """The group element in the carry, if there is one."""
        return None

    def for_lanes(self) -> "Integrator":
        """The same method for the fast path: it may fail where this one does not, and says so."""
        solve = getattr(self, "solve", None)
        return self if solve is None else eqx.tree_at(lambda i: i.solve, self, solve.for_lanes())

    @abc.abstractmethod
    def step(
        self, system: System, mu: State, t: Float[Array, ""], dt: Float[Array, ""], dS: Increment, carry: PyTree
    ) -> tuple[State, PyTree, Info]:
        """One step from t to t + dt: the new state, the new carry, and how the step was solved."""


class OrbitCarry(NamedTuple):
    """What an orbit method carries: the algebra's memory of the starting orbit, and the group element if asked for."""

    anchor: PyTree
    g: Array | None
    start: State | None  # μ₀, with g


class GroupMethod(Integrator):
    """A method that moves on the coadjoint orbit, by exact group actions μ ← Ad*_{τ(sσ)} μ alone.

    Whatever σ is, the action keeps every Casimir; `drift_free` also removes the round-off of the action. A method whose
    τ is not the exponential has it as a field `tau`.
    """

    drift_free: eqx.AbstractVar[bool]

    @property
    def _tau(self) -> Tau:
        return getattr(self, "tau", _EXP)

    def init(self, system: System, mu: State) -> OrbitCarry:
        """What the algebra remembers of the starting orbit."""
        return OrbitCarry(self._tau.anchor(system.algebra, mu) if self.drift_free else None, None, None)

    def init_group(self, system: System, mu: State, carry: OrbitCarry) -> OrbitCarry:
        """With g₀ = 1."""
        algebra = system.algebra
        return carry._replace(g=algebra.group_exp(jnp.zeros(algebra.shape, algebra.dtype)), start=mu)

    def group(self, carry: OrbitCarry) -> Array | None:
        """g_n."""
        return carry.g

    def act(self, system: System, sigma: Element, mu: State, carry: OrbitCarry) -> tuple[State, OrbitCarry]:
        """Ad*_{τ(sσ)} μ; left: g_{n+1} = g_n τ(σ), right: g_{n+1} = τ(σ) g_n."""
        algebra, s, tau = system.algebra, system.sign, self._tau
        anchor, g, start = carry
        if self.drift_free:
            mu, anchor = tau.transport(algebra, s * sigma, mu, anchor)
        else:
            mu = tau.action(algebra, s * sigma, mu)
        if g is not None and start is not None:
            step = tau.group(algebra, sigma)
            g = algebra.group_product(g, step) if s == 1 else algebra.group_product(step, g)
            g = algebra.group_align(g, start, mu) if s == 1 else algebra.group_align(g, mu, start)
        return mu, OrbitCarry(anchor, g, start)


class OrbitMethod(GroupMethod):
    """A method that moves once a step: σ from a rule, which a subclass gives, then the group action."""

    @abc.abstractmethod
    def sigma(
        self, system: System, mu: State, t: Float[Array, ""], dt: Float[Array, ""], dS: Increment
    ) -> tuple[Element, Info]:
        """σ_n, the element of the algebra by which the step moves."""

    def step(
        self, system: System, mu: State, t: Float[Array, ""], dt: Float[Array, ""], dS: Increment, carry: PyTree
    ) -> tuple[State, PyTree, Info]:
        """σ, then the group action."""
        sigma, info = self.sigma(system, mu, t, dt, dS)
        mu, carry = self.act(system, sigma, mu, carry)
        return mu, carry, info._replace(converged=info.converged & jnp.all(jnp.isfinite(mu)))


class ImplicitSolve(eqx.Module):
    """How the equation of an implicit step is solved.

    `solver`: "chord" (Jacobian frozen at the start of the step), "newton", "fixed_point", or "auto": chord up to
    dimension 64, fixed point above. `tol` is on the last correction, scaled by the unknown. `fallbacks`: Newton,
    then homotopy in the step, where the solver fails (dimension 64 at most).
    """

    tol: float = eqx.field(static=True, default=1e-14)
    solver: str = eqx.field(static=True, default="auto")
    max_steps: int = eqx.field(static=True, default=30)
    fallbacks: bool = eqx.field(static=True, default=True)
    in_lanes: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        checks.positive("tol", self.tol)
        checks.choice("solver", self.solver, ("auto", "chord", "newton", "fixed_point"))
        checks.count("max_steps", self.max_steps)

    def for_lanes(self) -> "ImplicitSolve":
        """The same without fallbacks, written for evaluation lane by lane."""
        return dataclasses.replace(self, fallbacks=False, in_lanes=True)

    def __call__(
        self, system: System, f: Any, jacobian0: Any, stages: int | None = None
    ) -> tuple[Element | Float[Array, "stages *shape"], Info]:
        """The root of f(x, 1) continued from x = 0 at λ = 0; x is an element or a state of the algebra.

        With `stages`, x is a stack of so many.
        """
        algebra = system.algebra
        size = algebra.dim * (stages or 1)

        def element(c: Float[Array, " size"]) -> Array:
            return algebra.element(c) if stages is None else jax.vmap(algebra.element)(c.reshape(stages, -1))

        def coordinates(x: Array) -> Float[Array, " size"]:
            return algebra.coordinates(x) if stages is None else jax.vmap(algebra.coordinates)(x).reshape(-1)

        dense = size <= DENSE
        method = ("chord" if dense else "fixed_point") if self.solver == "auto" else self.solver
        c, info = solve_root(
            lambda c, lam: coordinates(f(element(c), lam)),
            jnp.zeros(size),
            method=method,
            jacobian0=jacobian0,
            tol=self.tol,
            max_steps=self.max_steps,
            fallbacks=self.fallbacks and dense,
            dense=dense,
            in_lanes=self.in_lanes,
        )
        return element(c), info


def truncated(system: System, dS: Increment) -> Float[Array, " M"]:
    """ΔS for an implicit equation: with nonlinear noise, cut at the bound of the path (Milstein–Tretyakov)."""
    return dS.S if system.additive else jnp.clip(dS.S, -dS.bound, dS.bound)
