"""Steps that are divided at the jumps of the path."""

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from ..algebras.base import State
from ..drivers import Increment, JumpRows, Needs
from ..numerics.rootfind import SolveInfo
from ..systems import System
from .base import Claims, GroupMethod, Integrator, OrbitCarry, step_from
from .dissipative import Dissipative
from .rkmk import RKMK
from .until import Until

_MOST_HALVINGS = 12  # of the unit interval of the jump equation
_FIXED = 5  # halvings, if the run is differentiated in reverse


class _Progress(NamedTuple):
    """The progress in a step: `at` is a fraction of it, `rest` the increment from there to its end."""

    i: Int[Array, ""]
    mu: State
    carry: PyTree
    at: Float[Array, ""]
    rest: Float[Array, " M"]
    info: SolveInfo


class JumpAdapted(Integrator):
    """Any method, from jump to jump:

        μ ← Φ(t_1 − t_n) μ,   μ ← J(Δ_1) μ,   μ ← Φ(t_2 − t_1) μ,   …,   μ ← Φ(t_{n+1} − t_k) μ,

    where Φ is a step of the method, and J(Δ) solves dμ/dx = s ad*_{Σ_i Δ^i ∂h_i(μ)} μ on [0, 1] (Marcus). For SALT
    noise J is one group action. Otherwise `RKMK("rk4")` solves the equation with 1, 2, 4, … parts, until two solutions
    differ by less than `tol`.
    """  # fmt: skip

    substeps: ClassVar[bool] = True
    inner: Integrator
    tol: float = eqx.field(static=True)
    bounded: bool = eqx.field(static=True)  # loops of fixed length, which JAX differentiates in reverse

    def __init__(self, inner: Integrator, tol: float, bounded: bool = False):
        self.inner, self.tol, self.bounded = inner, tol, bounded

    @property
    def claims(self) -> Claims:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Those of the method inside, without symmetry and energy: jumps do not conserve them."""
        return Claims(**{**vars(self.inner.claims), "symmetric": False, "energy": ""})

    @property
    def group_method(self) -> GroupMethod | None:
        """That of the method inside."""
        return self.inner.group_method

    def init(self, system: System, mu: State) -> PyTree:
        """That of the method inside."""
        return self.inner.init(system, mu)

    def check(self, system: System) -> None:
        """The noises that the inner method supports."""
        self.inner.check(system)

    def needs(self, system: System) -> Needs:
        """The needs of the inner method."""
        return self.inner.needs(system)

    def init_group(self, system: System, mu: State, carry: PyTree, g0: PyTree = None) -> PyTree:
        """That of the method inside."""
        return self.inner.init_group(system, mu, carry, g0)

    def group(self, carry: PyTree) -> Array | None:
        """That of the method inside."""
        return self.inner.group(carry)

    def fast(self) -> "JumpAdapted":
        """With the method inside so."""
        return eqx.tree_at(lambda i: i.inner, self, self.inner.fast())

    def differentiable(self) -> "JumpAdapted":
        """With loops of fixed length."""
        return JumpAdapted(inner=self.inner.differentiable(), tol=self.tol, bounded=True)

    def failure(self, dt: float, residual: float, sigma: float) -> str:
        """That of the method inside."""
        return self.inner.failure(dt, residual, sigma)

    def step(
        self, system: System, mu: State, t: Float[Array, ""], dt: Float[Array, ""], dS: Increment, carry: Any
    ) -> tuple[State, PyTree, SolveInfo]:
        """From jump to jump."""
        jumps = dS.jumps
        assert jumps is not None
        count = jnp.sum(jumps.times < 1.0)
        one = lambda p: self._part(system, t, dt, dS.bound, jumps, count, p)
        none = jnp.zeros((), int)
        info = SolveInfo(none, jnp.zeros(()), jnp.ones((), bool), none)
        start = _Progress(none, mu, carry, jnp.zeros(()), dS.S, info)
        if self.bounded:
            taken = lambda p: jax.tree.map(lambda a, b: jnp.where(p.i <= count, a, b), one(p), p)
            end = jax.lax.fori_loop(0, jumps.times.shape[0] + 1, lambda _, p: taken(p), start)
        else:
            end = jax.lax.while_loop(lambda p: p.i <= count, one, start)
        return end.mu, end.carry, end.info

    def _part(
        self,
        system: System,
        t: Float[Array, ""],
        dt: Float[Array, ""],
        bound: Array,
        jumps: JumpRows,
        count: Array,
        p: _Progress,
    ) -> _Progress:
        """To the next jump, or to the end of the step, and the jump."""
        space = jumps.times.shape[0]
        row = jnp.minimum(p.i, space - 1)
        jumping = p.i < count
        end = jnp.where(jumping, jumps.times[row], 1.0)
        left = jnp.maximum(1.0 - p.at, 1e-300)
        share = jnp.where(jumping, (end - p.at) / left, 1.0)
        increment = share * p.rest
        if jumps.normals is not None:
            deviation = jnp.sqrt(jnp.maximum((end - p.at) * (1.0 - end) / left * dt, 0.0))
            increment = increment + deviation * jumps.normals[row]
        h, begin = (end - p.at) * dt, t + p.at * dt
        here = system.at_node(begin, h, 0.5)
        mu, carry, info = step_from(self.inner, here, p.mu, begin, h, Increment(increment, bound), p.carry)
        size = jnp.where(jumping, jumps.sizes[row], 0.0)
        mu, carry, solved = self._jump(system.at_node(t + end * dt, 0.0 * dt, 0.5), mu, t + end * dt, size, carry)
        total = SolveInfo(
            p.info.iterations + info.iterations,
            jnp.maximum(p.info.residual, info.residual),
            p.info.converged & info.converged & solved,
            p.info.substeps + 1,
        )
        return _Progress(p.i + 1, mu, carry, end, p.rest - increment, total)

    def _jump(
        self, system: System, mu: State, t: Array, size: Float[Array, " M"], carry: PyTree
    ) -> tuple[State, PyTree, Bool[Array, ""]]:
        """J(Δ) μ, and whether the equation was solved."""
        if isinstance(self.inner, Dissipative):  # white stirring jumps too
            mu = mu + system.stirring_increment(size)
        method = self.inner
        known = isinstance(method, GroupMethod)
        given = carry if known else OrbitCarry(None, None, None)
        solver = RKMK("rk4", drift_free=known and method.drift_free)
        if system.additive and not system.has_attitude:
            mu, after = (method if known else solver).act(system, system.noise(mu, size), mu, given)
            return mu, after if known else carry, jnp.ones((), bool)
        mu, after, solved = self._solved(solver, system, mu, t, size, given)
        return mu, after if known else carry, solved

    def _solved(
        self, method: RKMK, system: System, mu: State, t: Array, size: Float[Array, " M"], carry: OrbitCarry
    ) -> tuple[State, OrbitCarry, Bool[Array, ""]]:
        """The jump equation by 2^k parts, with the k that `tol` needs."""
        none = jnp.full((), jnp.inf)

        def by_parts(number: Any) -> tuple[State, OrbitCarry]:
            increment = Increment(size / number, none)
            one = lambda _, s: step_from(method, system, s[0], t, jnp.zeros(()), increment, s[1])[:2]
            return jax.lax.fori_loop(0, number, one, (mu, carry))

        def difference(a: State, b: State) -> Array:
            return jnp.sqrt(jnp.sum(jnp.abs(a - b) ** 2) / jnp.maximum(jnp.sum(jnp.abs(mu) ** 2), 1e-300))

        if self.bounded:
            coarse, fine = by_parts(2 ** (_FIXED - 1)), by_parts(2**_FIXED)
            return *fine, difference(coarse[0], fine[0]) <= 16.0 * max(self.tol, 1e-8)

        def going(s: tuple) -> Bool[Array, ""]:
            return (s[0] < _MOST_HALVINGS) & (s[1] > self.tol)

        def more(s: tuple) -> tuple:
            k = s[0] + 1
            end, after = by_parts(jnp.left_shift(1, k))
            return k, difference(s[2], end), end, after

        first = by_parts(1)
        _, error, end, after = jax.lax.while_loop(going, more, (jnp.zeros((), int), none, *first))
        return end, after, error <= self.tol


def user_method(integrator: Integrator) -> Integrator:
    """The method that the user chose, without what dissipation, jumps and events add."""
    while isinstance(integrator, Dissipative | JumpAdapted | Until):
        integrator = integrator.inner
    return integrator
