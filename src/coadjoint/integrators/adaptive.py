"""Adaptive steps: dyadic parts of each step, chosen by an embedded estimate of the error."""

from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from stepcompiler.derivatives import custom_derivative

from ..algebras.base import State
from ..drivers import Increment, Needs, joined, truncation_bound
from ..numerics import validation
from ..numerics.rootfind import SolveInfo
from ..systems import System
from .base import Claims, Integrator, step_from
from .tmk import TMK

_MOST_HALVINGS = 20  # all 2^halvings parts of a step are sampled


class AdaptiveCarry(NamedTuple):
    """The carry of the method inside, and the level at which the next step begins."""

    inner: PyTree
    level: Int[Array, ""]


class _Progress(NamedTuple):
    """The progress in a step: `at` of its 2^halvings parts are done."""

    mu: State
    carry: PyTree
    at: Int[Array, ""]
    level: Int[Array, ""]
    info: SolveInfo


class Adaptive(Integrator):
    """Any method with steps that are halved where the error is large.

    The error of a part of length h is

        error = |whole − halves| / |μ|,   whole = step(μ, h),   halves = step(step(μ, h/2), h/2).

    If error ≤ tol the two halves are accepted. Otherwise each half is treated in the same way, down to dt/2^halvings.
    After an accepted part the next one may be twice as long, within the dyadic tree. All increments belong to one path,
    sampled at dt/2^halvings and combined by Chen's relation, so μ follows the same Brownian motion. Every accepted part
    is a step of the method and conserves what the method conserves. `sol.stats.substeps` is the mean number of accepted
    parts per step. A step that does not meet `tol` at dt/2^halvings counts as not converged.

    Increments alone do not determine the limit if steps depend on the path (Gaines and Lyons 1997). If noises do not
    commute, use a method with Lévy areas, `Adaptive(TMKLevy())`. Sampling costs as much as 2^halvings steps. Only
    forward derivatives (`jax.jvp`) are supported.

    Parameters
    ----------
    integrator : Integrator, default TMK()
        The method.
    tol : float, default 1e-6
        The tolerance of the relative error per part.
    halvings : int, default 6
        The largest number of halvings.
    """  # fmt: skip

    substeps: ClassVar[bool] = True
    integrator: Integrator
    tol: float = eqx.field(static=True)
    halvings: int = eqx.field(static=True)

    def __init__(self, integrator: Integrator = TMK(), tol: float = 1e-6, halvings: int = 6):
        if not isinstance(integrator, Integrator):
            raise TypeError(f"integrator must be an Integrator such as TMK(), not {integrator!r}.")
        if isinstance(integrator, Adaptive):
            raise TypeError("integrator must not be Adaptive itself: give the method inside, as in Adaptive(TMK()).")
        self.integrator = integrator
        self.tol = validation.positive("tol", tol)
        self.halvings = validation.count("halvings", halvings)
        if self.halvings > _MOST_HALVINGS:
            raise ValueError(f"halvings must be at most {_MOST_HALVINGS}, not {halvings!r}.")

    @property
    def claims(self) -> Claims:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Those of the method inside, without symmetry: the choice of steps breaks it."""
        c = self.integrator.claims
        return Claims(**{**vars(c), "symmetric": False, "symplectic": False})

    def check(self, system: System) -> None:
        """The message of the inner method."""
        self.integrator.check(system)

    def needs(self, system: System) -> Needs:
        """The needs of the inner method, for every part."""
        inner = self.integrator.needs(system)
        return replace(inner, halvings=self.halvings)

    def fast(self) -> Integrator:
        """The method itself: what it accepts must not depend on whether its steps have fallbacks."""
        return self

    def failure(self, dt: float, residual: float, sigma: float) -> str:
        """The smallest sub-step, and the error estimate there; or that of the method inside."""
        least = f"the sub-steps fell to the smallest allowed, dt/2^{self.halvings} = {dt / 2**self.halvings:.3g}"
        if residual <= self.tol:
            return f"{least}, where {self.integrator.failure(dt, residual, sigma)}, or more halvings"
        error = f"the estimate of the error was still {residual:.1e}, above tol = {self.tol:g}"
        return f"{least}, where {error}. Take a smaller dt, more halvings or a larger tol"

    @property
    def group_method(self) -> Any:
        """That of the method inside."""
        return self.integrator.group_method

    def init(self, system: System, mu: State) -> AdaptiveCarry:
        """Begin with full steps."""
        return AdaptiveCarry(self.integrator.init(system, mu), jnp.zeros((), int))

    def init_group(self, system: System, mu: State, carry: AdaptiveCarry, g0: PyTree = None) -> AdaptiveCarry:
        """With the group element of the method inside."""
        return carry._replace(inner=self.integrator.init_group(system, mu, carry.inner, g0))

    def group(self, carry: AdaptiveCarry) -> Array | None:
        """The group element of the method inside."""
        return self.integrator.group(carry.inner)

    def step(
        self, system: System, mu: State, t: Float[Array, ""], dt: Float[Array, ""], dS: Increment, carry: Any
    ) -> tuple[State, PyTree, SolveInfo]:
        """Down and up the dyadic tree of [t, t + dt]."""
        K, parts = self.halvings, 2**self.halvings
        nodes = _tree(dS, dt, K)

        def going(p: _Progress) -> Bool[Array, ""]:
            return p.at < parts

        def attempt(p: _Progress) -> _Progress:
            index = p.at >> (K - p.level)
            half = 2 ** (p.level + 1) - 1 + 2 * index  # the nodes of level ℓ are numbered from 2^ℓ − 1
            h = dt / 2.0**p.level
            now = t + dt * p.at / parts

            def one(state, piece):
                node, begin, length, fresh = piece
                mu, inner = jax.tree.map(lambda a, b: jnp.where(fresh, a, b), (p.mu, p.carry), state)
                increment = jax.tree.map(lambda x: x[node], nodes)
                here = system.at_node(begin, length, 0.5)
                mu, inner, info = step_from(self.integrator, here, mu, begin, length, increment, inner)
                return (mu, inner), (mu, info)

            pieces = (
                jnp.stack([2**p.level - 1 + index, half, half + 1]),
                jnp.stack([now, now, now + 0.5 * h]),
                jnp.stack([h, 0.5 * h, 0.5 * h]),
                jnp.array([True, True, False]),
            )
            (mu, inner), (states, infos) = jax.lax.scan(one, (p.mu, p.carry), pieces)
            error = _norm(states[0] - states[2]) / _norm(p.mu)
            good = (error <= self.tol) & infos.converged[1] & infos.converged[2]
            accept = good | (p.level == K - 1)
            after = p.at + jnp.where(accept, 2 ** (K - p.level), 0)
            up = accept & (error <= 0.25 * self.tol) & (p.level > 0) & ((after >> (K - p.level)) % 2 == 0)
            level = jnp.where(accept, p.level - up, p.level + 1)
            residual = jnp.maximum(jnp.max(infos.residual[1:]), jnp.where(error <= self.tol, 0.0, error))
            info = SolveInfo(
                p.info.iterations + jnp.sum(infos.iterations),
                jnp.maximum(p.info.residual, jnp.where(accept, residual, 0.0)),
                p.info.converged & (good | ~accept),
                p.info.substeps + jnp.where(accept, 2, 0),
            )
            mu, inner = jax.tree.map(lambda a, b: jnp.where(accept, a, b), (mu, inner), (p.mu, p.carry))
            return _Progress(mu, inner, after, level, info)

        none = jnp.zeros((), int)
        start = _Progress(mu, carry.inner, none, carry.level, SolveInfo(none, jnp.zeros(()), jnp.ones((), bool), none))
        end = jax.lax.while_loop(going, attempt, start)
        return _forward_only(end.mu), AdaptiveCarry(end.carry, end.level), end.info


@custom_derivative
def _forward_only(mu: State) -> State:
    """The state, whose derivative in reverse raises an error that names the method."""
    return mu


@_forward_only.def_rule
def _forward_only_slope(out, primals, tangents):
    return _forward_only(tangents[0])


@_forward_only.def_transpose(0)
def _forward_only_transposed(ct):
    raise TypeError(
        "Adaptive has no derivatives in reverse, because the number of its steps is not known when JAX transposes a "
        "run. Use jax.jvp or jax.jacfwd, or a method with fixed steps."
    )


def _tree(dS: Increment, dt: Float[Array, ""], K: int) -> Increment:
    """The increments of all dyadic parts: level ℓ (2^ℓ parts) from row 2^ℓ − 1 on."""
    levels = [dS]
    for level in reversed(range(K)):
        even, odd = (jax.tree.map(lambda x, k=k: x[k::2], levels[0]) for k in (0, 1))
        whole = joined(even, odd, dt / 2.0 ** (level + 1))
        bound = jnp.where(jnp.isinf(whole.bound), jnp.inf, truncation_bound(dt / 2.0**level))
        levels.insert(0, eqx.tree_at(lambda i: i.bound, whole, bound))
    return jax.tree.map(lambda *xs: jnp.concatenate(xs), *levels)


def _norm(x: Array) -> Float[Array, ""]:
    return jnp.sqrt(jnp.sum(jnp.abs(x) ** 2))
