"""Steps that end at an event, where a function of the state changes its sign."""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from ..algebras.base import State
from ..drivers import Increment, JumpRows, Needs
from ..numerics.rootfind import SolveInfo
from ..systems import System
from .base import Claims, GroupMethod, Integrator, step_from

_CLOSE = 2.0**-46  # of a step: the interval in which the event is found
_MOST = 64  # steps that the search for one event may take


class EventCarry(NamedTuple):
    """The carry of a method, the value of the function after the last step, and the time of the event."""

    inner: PyTree
    value: Float[Array, ""]
    time: Float[Array, ""]  # NaN before the event


class _Search(NamedTuple):
    """The search for an event in one step: fractions of the step before and after it, and the step to the latter."""

    count: Int[Array, ""]
    at: Float[Array, ""]  # the next fraction to try
    low: Float[Array, ""]
    high: Float[Array, ""]
    f_low: Float[Array, ""]  # the function, with the sign that makes it negative before the event
    f_high: Float[Array, ""]
    reach: Float[Array, ""]  # how far from the middle the next fraction may be, plus half of the interval
    mu: State
    carry: PyTree
    info: SolveInfo
    found: Bool[Array, ""]
    done: Bool[Array, ""]


class Until(Integrator):
    """Any method, up to the event f(μ) = 0: the last step is one of the fraction θ of dt and of the increments.

    θ is found by root finding on f of steps that are made from the state before the event, so that the state at the
    event is a step of the method, which conserves all that the method conserves. After the event the state is held.

    The root finder is the method ITP of Oliveira and Takahashi (2020), which is never slower than bisection.
    """

    substeps: ClassVar[bool] = True
    inner: Integrator
    event: Callable[..., Float[Array, ""]]  # f(mu, params=, t=, g=, u=)
    direction: str = eqx.field(static=True)  # "up", "down" or "both"
    implicit: bool = eqx.field(static=True)  # θ as the solution of an equation that JAX differentiates

    def __init__(self, inner: Integrator, event: Callable, direction: str, implicit: bool = False):
        self.inner, self.event, self.direction, self.implicit = inner, event, direction, implicit

    @property
    def claims(self) -> Claims:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Those of the method inside."""
        return self.inner.claims

    @property
    def group_method(self) -> GroupMethod | None:
        """That of the method inside."""
        return self.inner.group_method

    def init(self, system: System, mu: State) -> EventCarry:
        """That of the method inside. `begin` adds the value at the start."""
        return EventCarry(self.inner.init(system, mu), jnp.zeros(()), jnp.full((), jnp.nan))

    def begin(self, system: System, mu: State, t: Any, carry: EventCarry, u: PyTree) -> EventCarry:
        """The carry with the value at the start."""
        return carry._replace(value=self._value(system, mu, t, carry.inner, u))

    def check(self, system: System) -> None:
        """Raise if the method does not follow a path, so that a state inside a step has no meaning."""
        needs = self.inner.needs(system)
        if needs.signs or (needs.halvings and system.n_noise):
            raise TypeError(
                f"until= needs the path inside a step, which {type(self.inner).__name__} does not follow: use a method "
                "such as TMK() or RKMK('rk4')."
            )
        self.inner.check(system)

    def needs(self, system: System) -> Needs:
        """The same."""
        return self.inner.needs(system)

    def init_group(self, system: System, mu: State, carry: EventCarry, g0: PyTree = None) -> EventCarry:
        """That of the method inside."""
        return carry._replace(inner=self.inner.init_group(system, mu, carry.inner, g0))

    def group(self, carry: EventCarry) -> Array | None:
        """That of the method inside."""
        return self.inner.group(carry.inner)

    def fast(self) -> "Until":
        """With the method inside so."""
        return Until(self.inner.fast(), self.event, self.direction, self.implicit)

    def differentiable(self) -> "Until":
        """With θ as the solution of an equation."""
        return Until(self.inner.differentiable(), self.event, self.direction, implicit=True)

    def failure(self, dt: float, residual: float, sigma: float) -> str:
        """That of the method inside."""
        return f"{self.inner.failure(dt, residual, sigma)}; or until= returned a value that is not finite"

    def step(
        self, system: System, mu: State, t: Float[Array, ""], dt: Float[Array, ""], dS: Increment, carry: EventCarry
    ) -> tuple[State, EventCarry, SolveInfo]:
        """A step, or its part up to the event; none after the event."""
        if self.implicit:
            return self._implicit_step(system, mu, t, dt, dS, carry)
        end = self._search(system, mu, t, dt, dS, carry)
        value = jnp.where(carry.value > 0.0, -end.f_high, end.f_high)
        time = jnp.where(end.found, t + end.high * dt, carry.time)
        return end.mu, EventCarry(end.carry, jnp.where(end.count > 0, value, carry.value), time), end.info

    def _implicit_step(
        self, system: System, mu: State, t: Array, dt: Array, dS: Increment, carry: EventCarry
    ) -> tuple[State, EventCarry, SolveInfo]:
        """The same, where JAX may differentiate θ by the implicit function theorem."""
        end = _constant(self)._search(*_constant((system, mu, t, dt, dS, carry)))
        stopped = carry.time == carry.time

        def equation(share: Array) -> Array:
            new, after, _ = self._part(system, mu, t, dt, dS, carry.inner, share)
            return jnp.where(end.found, self._value(system, new, t + share * dt, after, system.u), share - 1.0)

        share = jax.lax.custom_root(equation, end.high, lambda _, x: x, lambda slope, y: y / slope(jnp.ones(())))
        new, after, info = self._part(system, mu, t, dt, dS, carry.inner, share)
        value = self._value(system, new, t + share * dt, after, system.u)
        time = jnp.where(end.found, t + share * dt, carry.time)
        held = lambda old, now: jax.tree.map(lambda a, b: jnp.where(stopped, a, b), old, now)
        moved = held((mu, carry), (new, EventCarry(after, value, time)))
        return *moved, info._replace(converged=stopped | (info.converged & end.info.converged))

    def _search(self, system: System, mu: State, t: Array, dt: Array, dS: Increment, carry: EventCarry) -> _Search:
        """A step, and steps to fractions of it if the function changes its sign."""
        before = carry.value
        sign = jnp.where(before > 0.0, -1.0, 1.0)
        watched = {"up": before < 0.0, "down": before > 0.0, "both": before != 0.0}[self.direction]

        def one(s: _Search) -> _Search:
            new, after, info = self._part(system, mu, t, dt, dS, carry.inner, s.at)
            value = self._value(system, new, t + s.at * dt, after, system.u)
            f, first = sign * value, s.count == 0
            beyond = f >= 0.0
            found = jnp.where(first, watched & beyond, s.found)
            last = first | beyond
            pick = lambda a, b: jax.tree.map(lambda x, y: jnp.where(last, x, y), a, b)
            high, f_high, result = pick((s.at, f, (new, after)), (s.high, s.f_high, (s.mu, s.carry)))
            low, f_low = pick((s.low, s.f_low), (s.at, f))
            total = SolveInfo(
                s.info.iterations + info.iterations,
                info.worst(s.info.residual),
                s.info.converged & info.converged & jnp.isfinite(value),
                jnp.maximum(s.info.substeps, info.substeps),
            )
            done = ~found | (high - low <= _CLOSE) | (f_high <= 0.0) | (s.count + 1 >= _MOST)
            reach = jnp.where(first, s.reach, 0.5 * s.reach)
            at = _next(low, high, f_low, f_high, reach)
            mu_high, carry_high = result
            return _Search(
                s.count + 1, at, low, high, f_low, f_high, reach, mu_high, carry_high, total, found, done
            )  # fmt: skip

        none, zero = jnp.zeros((), int), jnp.zeros(())
        info = SolveInfo(none, zero, jnp.ones((), bool), none + 1)
        stopped = carry.time == carry.time
        start = _Search(
            none, zero + 1.0, zero, zero + 1.0, sign * before, zero, zero + 1.0, mu, carry.inner, info,
            jnp.zeros((), bool), stopped,
        )  # fmt: skip
        return jax.lax.while_loop(lambda s: ~s.done, one, start)

    def _part(
        self, system: System, mu: State, t: Array, dt: Array, dS: Increment, carry: PyTree, share: Array
    ) -> tuple[State, PyTree, SolveInfo]:
        """The step of a fraction of dt, along as much of the increments."""
        h = share * dt
        return step_from(self.inner, system.at_node(t, h, 0.5), mu, t, h, _part_of(dS, share), carry)

    def _value(self, system: System, mu: State, t: Any, carry: PyTree, u: PyTree) -> Float[Array, ""]:
        """f, with the carry of the method inside."""
        return self.event(mu, params=system.params, t=t, g=self.inner.group(carry), u=u)


def _next(low: Array, high: Array, f_low: Array, f_high: Array, reach: Array) -> Array:
    """The next fraction: ITP with κ₁ = 0.2, κ₂ = 2 and n₀ = 1."""
    length, middle = high - low, 0.5 * (low + high)
    slope = f_high - f_low
    secant = (f_high * low - f_low * high) / jnp.where(slope > 0.0, slope, 1.0)
    secant = jnp.where((slope > 0.0) & (secant > low) & (secant < high), secant, middle)
    side = jnp.where(middle >= secant, 1.0, -1.0)
    shift = 0.2 * length * length
    moved = jnp.where(shift <= jnp.abs(middle - secant), secant + side * shift, middle)
    radius = jnp.maximum(reach - 0.5 * length, 0.0)
    return jnp.where(jnp.abs(moved - middle) <= radius, moved, middle - side * radius)


def _part_of(dS: Increment, share: Array) -> Increment:
    """The path over a fraction of the step: as if it were linear, with jumps at their times."""
    scaled = lambda x, power: None if x is None else x * share**power
    jumps = dS.jumps
    if jumps is not None:
        times = jnp.where(jumps.times < share, jumps.times / jnp.maximum(share, 1e-300), 1.0)
        jumps = JumpRows(times, jumps.sizes, jumps.normals)
    return Increment(share * dS.S, dS.bound, scaled(dS.Z, 2), scaled(dS.areas, 2), scaled(dS.third, 3), dS.signs, jumps)


def _constant(x: PyTree) -> PyTree:
    """The same numbers, which JAX does not differentiate."""
    return jax.tree.map(lambda a: jax.lax.stop_gradient(a) if eqx.is_inexact_array(a) else a, x)
