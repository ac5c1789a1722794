"""Splittings of weak order 2: the drift, and each noise by its exact flow."""

import abc
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..algebras.base import State
from ..drivers import Increment, Needs
from ..numerics.rootfind import SolveInfo
from ..systems import System
from .base import Claims, Cost, GroupMethod, Integrator
from .munthe_kaas import HeunMK
from .split_terms import Part, check_noises
from .tau import Exp


class _WeakSplitting(GroupMethod):
    """The drift by a method of order 2, the noises by their exact flows, in an order that a subclass gives."""

    drift: GroupMethod
    drift_free: bool = eqx.field(static=True)

    @property
    def claims(self) -> Claims:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Without noise, those of the method for the drift; order 2 with noise."""
        c = self.drift.claims
        return Claims(
            order=c.order,
            strong_commuting=1.0,
            strong=0.5,
            weak=2.0,
            casimirs=True,
            cost=self.cost(c.cost),
            energy=c.energy,
            symmetric=c.symmetric,
            explicit=c.explicit,
        )

    @abc.abstractmethod
    def cost(self, drift: Cost) -> Cost:
        """The cost of a step, from the cost of a step of the drift."""

    def check(self, system: System) -> None:
        """Check the drift by its method. Noises must be exactly solvable."""
        self.drift.check(_quiet(system))
        check_noises(type(self).__name__, system)

    def fast(self) -> Integrator:
        """With the fast method for the drift."""
        return eqx.tree_at(lambda i: i.drift, self, self.drift.fast())

    def moved(
        self, system: System, mu: State, t: Any, dt: Any, carry: PyTree, before: SolveInfo | None = None
    ) -> tuple[State, PyTree, SolveInfo]:
        """A step of the drift alone. The numbers of iterations are added to those of `before`."""
        none = Increment(jnp.zeros(0), jnp.full((), jnp.inf))
        quiet = _quiet(system).at_node(t, dt, 0.5)
        mu, carry, info = self.drift.step(quiet, mu, t, dt, none, carry)
        if before is not None:
            iterations, residual = info.iterations + before.iterations, jnp.maximum(info.residual, before.residual)
            info = SolveInfo(iterations, residual, info.converged & before.converged)
        return mu, carry, info

    def noises(self, system: System, S: Float[Array, " M"]) -> list[Part]:
        """The gradients of the noises times the increments `S`. Noises that are known to commute are one part."""
        parts, start = [], 0
        for n in system.noises:
            own = S[start : start + n.size]
            for group in n.groups:
                parts.append(lambda mu, n=n, x=own * group: system.one_noise(n, mu, x))
            start += n.size
        return parts


def _checked(drift: Any) -> GroupMethod:
    """Return a method for the drift; raise an error that lists the allowed ones."""
    if not isinstance(drift, GroupMethod) or not isinstance(getattr(drift, "tau", Exp()), Exp):
        raise TypeError(f"drift must be a method that moves by the exponential, such as TMK(), not {drift!r}.")
    if drift.claims.order < 2:
        raise ValueError(f"drift must be of order 2 or more, but {type(drift).__name__} is of order 1.")
    return drift


def _quiet(system: System) -> System:
    return eqx.tree_at(lambda s: s.noises, system, ())


class NinomiyaVictoir(_WeakSplitting):
    """The Ninomiya–Victoir splitting: weak order 2 for any noises, with one Rademacher variable Λ per step.

    The step is

        Φ = φ_0(½ dt) ∘ φ_1(ΔW¹) ∘ φ_2(ΔW²) ∘ … ∘ φ_M(ΔW^M) ∘ φ_0(½ dt)

    if Λ = 1, and with the noises in reverse order if Λ = −1. Here φ_i(c): μ ← flow(s c ∂h_i(μ), μ), and φ_0 is the
    method `drift`. Noises must be exactly solvable: SALT, or functions φ(<μ, a>). Commuting fields are applied
    together, so the noise of a heat bath needs three actions for any number of spins.

    Reference: Ninomiya and Victoir, Weak approximation of stochastic differential equations and application to
    derivative pricing (2008).

    Parameters
    ----------
    drift : Integrator, default HeunMK()
        The method for the drift with any forcing, of order 2 or more.
    """  # fmt: skip

    def __init__(self, drift: Integrator = HeunMK()):
        self.drift = _checked(drift)
        self.drift_free = self.drift.drift_free

    def cost(self, drift: Cost) -> Cost:
        """The drift twice, an action for each noise."""
        if drift.each:
            return Cost(
                2 * drift.flows, 2 * drift.gradients, drift.each, 2 * drift.flows_each, 2 * drift.gradients_each
            )
        return Cost(2 * drift.flows, 2 * drift.gradients, "noise", 1, 0)

    def needs(self, system: System) -> Needs:
        """One Rademacher variable per step."""
        return Needs(signs=int(system.n_noise > 1), brownian=system.n_noise > 0)

    def step(
        self, system: System, mu: State, t: Float[Array, ""], dt: Float[Array, ""], dS: Increment, carry: PyTree
    ) -> tuple[State, PyTree, SolveInfo]:
        """Half of the drift, the noises in one order or the other, half of the drift."""
        mu, carry, info = self.moved(system, mu, t, 0.5 * dt, carry)
        parts = self.noises(system, dS.S)
        for there, back in zip(parts, reversed(parts), strict=True):
            sigma = there(mu)
            if dS.signs is not None and there is not back:
                sigma = jnp.where(dS.signs[0] > 0, sigma, back(mu))
            mu, carry = self.act(system, sigma, mu, carry)
        return self.moved(system, mu, t + 0.5 * dt, 0.5 * dt, carry, info)


class BathSplitting(_WeakSplitting):
    """A symmetric splitting of the generator for heat baths: weak order 2, without Rademacher variables.

    The step is

        Φ = φ_1(U¹) ∘ … ∘ φ_M(U^M) ∘ φ_0(dt) ∘ φ_M(V^M) ∘ … ∘ φ_1(V¹),   U, V = ½ ΔW ± ½ √3 (2 ΔZ/dt − ΔW)

    with φ_i as in `NinomiyaVictoir`. ΔW and ΔZ = ∫ W dt give two independent increments U, V of variance dt/2, whose
    sum is ΔW. The drift, friction included, is applied once per step, and the noise preserves the Liouville measure.

    Parameters
    ----------
    drift : Integrator, default HeunMK()
        The method for the drift with any forcing, of order 2 or more.
    """  # fmt: skip

    def __init__(self, drift: Integrator = HeunMK()):
        self.drift = _checked(drift)
        self.drift_free = self.drift.drift_free

    def cost(self, drift: Cost) -> Cost:
        """The drift once, two actions for each noise."""
        return drift if drift.each else Cost(drift.flows, drift.gradients, "noise", 2, 0)

    def needs(self, system: System) -> Needs:
        """ΔZ."""
        return Needs(Z=system.n_noise > 0, brownian=system.n_noise > 0)

    def step(
        self, system: System, mu: State, t: Float[Array, ""], dt: Float[Array, ""], dS: Increment, carry: PyTree
    ) -> tuple[State, PyTree, SolveInfo]:
        """The noises there, the drift, the noises back."""
        if dS.Z is None:
            return self.moved(system, mu, t, dt, carry)
        apart = 0.5 * 3.0**0.5 * (2.0 * dS.Z / dt - dS.S)
        for part in self.noises(system, 0.5 * dS.S + apart):
            mu, carry = self.act(system, part(mu), mu, carry)
        mu, carry, info = self.moved(system, mu, t, dt, carry)
        for part in reversed(self.noises(system, 0.5 * dS.S - apart)):
            mu, carry = self.act(system, part(mu), mu, carry)
        return mu, carry, info._replace(converged=info.converged & jnp.all(jnp.isfinite(mu)))
