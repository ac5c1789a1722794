"""The integrator: one step, and what it claims."""

import abc
import dataclasses
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .. import _checks
from .._rootfind import Info, solve_root
from ..algebras.base import Element, State
from ..drivers import Increment, Needs
from ..systems import System

DENSE = 64  # largest dimension for which Jacobians are formed


@dataclass(frozen=True)
class Claims:
    """What an integrator promises. The tables of the documentation and the verification tests read this."""

    order: int  # deterministic order
    strong_commuting: float  # strong order with one SALT noise, or commuting ones
    strong: float  # strong order with any SALT noises
    casimirs: bool  # keeps every Casimir to round-off
    energy: str = ""  # the Hamiltonians whose energy it keeps without noise: "", "quadratic" or "any"
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


class OrbitMethod(Integrator):
    """A method on the coadjoint orbit: σ from a rule, then the exact group action μ ← flow(sσ, μ).

    Whatever σ is, the action keeps every Casimir; `drift_free` also removes the round-off of the action. A subclass
    gives the rule.
    """

    drift_free: eqx.AbstractVar[bool]

    @abc.abstractmethod
    def sigma(
        self, system: System, mu: State, t: Float[Array, ""], dt: Float[Array, ""], dS: Increment
    ) -> tuple[Element, Info]:
        """σ_n, the element of the algebra by which the step moves."""

    def init(self, system: System, mu: State) -> OrbitCarry:
        """What the algebra remembers of the starting orbit."""
        return OrbitCarry(system.algebra.anchor(mu) if self.drift_free else None, None, None)

    def init_group(self, system: System, mu: State, carry: OrbitCarry) -> OrbitCarry:
        """With g₀ = 1."""
        algebra = system.algebra
        return carry._replace(g=algebra.group_exp(jnp.zeros(algebra.shape, algebra.dtype)), start=mu)

    def group(self, carry: OrbitCarry) -> Array | None:
        """g_n."""
        return carry.g

    def step(
        self, system: System, mu: State, t: Float[Array, ""], dt: Float[Array, ""], dS: Increment, carry: PyTree
    ) -> tuple[State, PyTree, Info]:
        """σ, then the group action; left: g_{n+1} = g_n exp(σ), right: g_{n+1} = exp(σ) g_n."""
        algebra, s = system.algebra, system.sign
        anchor, g, start = carry
        sigma, info = self.sigma(system, mu, t, dt, dS)
        if self.drift_free:
            mu, anchor = algebra.transport(s * sigma, mu, anchor)
        else:
            mu = algebra.flow(s * sigma, mu)
        if g is not None:
            step = algebra.group_exp(sigma)
            g = algebra.group_product(g, step) if s == 1 else algebra.group_product(step, g)
            g = algebra.group_align(g, start, mu) if s == 1 else algebra.group_align(g, mu, start)
        carry = OrbitCarry(anchor, g, start)
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
        _checks.positive("tol", self.tol)
        _checks.choice("solver", self.solver, ("auto", "chord", "newton", "fixed_point"))
        _checks.count("max_steps", self.max_steps)

    def for_lanes(self) -> "ImplicitSolve":
        """The same without fallbacks, written for evaluation lane by lane."""
        return dataclasses.replace(self, fallbacks=False, in_lanes=True)

    def __call__(self, system: System, f: Any, jacobian0: Any) -> tuple[Element, Info]:
        """The root of f(x, 1) continued from x = 0 at λ = 0; x is an element or a state of the algebra."""
        algebra = system.algebra
        dense = algebra.dim <= DENSE
        method = ("chord" if dense else "fixed_point") if self.solver == "auto" else self.solver
        c, info = solve_root(
            lambda c, lam: algebra.coordinates(f(algebra.element(c), lam)),
            jnp.zeros(algebra.dim),
            method=method,
            jacobian0=jacobian0,
            tol=self.tol,
            max_steps=self.max_steps,
            fallbacks=self.fallbacks and dense,
            dense=dense,
            in_lanes=self.in_lanes,
        )
        return algebra.element(c), info


def truncated(system: System, dS: Increment) -> Float[Array, " M"]:
    """ΔS for an implicit equation: with nonlinear noise, cut at the bound of the path (Milstein–Tretyakov)."""
    return dS.S if system.additive else jnp.clip(dS.S, -dS.bound, dS.bound)
