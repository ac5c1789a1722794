"""Runs of the members of a filter between observations, along increments that the filter prescribes."""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ..drivers import Increments
from ..integrators.base import Integrator
from ..numerics import random
from ..runtime.planning import complete
from ..runtime.prepared import PreparedRun, prepare
from ..runtime.results import UnsolvedStepError
from ..runtime.saved_values import MemberFunction
from ..systems import System
from .filtering_state import FilterError, Members

PATHS, ACCEPTANCE, RESAMPLING, PERTURBATIONS, PARAMETERS = range(5)  # levels of the random stream


class Draws:
    """The random numbers of a filter: functions of (key, cycle, move, level, member) alone."""

    def __init__(self, key: Any, members: int):
        self.key, self.members = random.as_key(key), members

    def normals(self, cycle: int, move: int, level: int, channels: int, start: int, count: int) -> np.ndarray:
        """Standard normals, shape (members, count, channels). `start` separates the windows of a path."""
        if channels == 0 or count == 0:
            return np.zeros((self.members, count, channels))
        even = count + count % 2
        own = _normals(self.key, cycle, move, level, 2 * start, self.members, channels, even)
        return np.asarray(own)[:, :count]

    def uniforms(self, cycle: int, move: int, level: int, count: int) -> np.ndarray:
        """Uniform numbers on [0, 1), shape (count,)."""
        return np.asarray(_uniforms(self.key, cycle, move, level, count))


def _key(key: random.Key, cycle: Any, move: Any) -> random.Key:
    return random.member_key(random.member_key(key, random.FILTERS, cycle), random.FILTERS, move)


@partial(jax.jit, static_argnums=(5, 6, 7))
def _normals(
    key: random.Key, cycle: Any, move: Any, level: Any, start: Any, members: int, channels: int, count: int
) -> Array:
    own = _key(key, cycle, move)

    def draw(member: Array) -> Array:
        return random.normals(random.member_key(own, random.PATH, member), level, channels, start, count)

    return jax.vmap(draw)(jnp.arange(members))


@partial(jax.jit, static_argnums=4)
def _uniforms(key: random.Key, cycle: Any, move: Any, level: Any, count: int) -> Array:
    own = random.member_key(_key(key, cycle, move), random.INITIAL, 0)
    return random.uniforms(own, level, 1, 0, count)[:, 0]


class Windows:
    """Advances members over windows of steps. Windows of equal length share a prepared run."""

    def __init__(
        self, system: System, *, members: int, dt: float, t0: float, integrator: Integrator, group: bool, backend: str
    ):
        self.system, self.members, self.dt, self.t0 = system, members, dt, t0
        self.group = group or system.has_attitude
        self._options: dict[str, Any] = {"integrator": integrator, "group": group, "backend": backend}
        self._runs: dict[int, PreparedRun] = {}
        self.axes: PyTree = None  # 0 for leaves of params with an axis of members, None for the others
        self._shared: list[Any] | None = None  # the leaves of params

    def start(self, mu0: Any, params: PyTree, g0: Any) -> tuple[Members, dict[str, Any]]:
        """The members at the start, from checked arguments, and the configuration of a run of one step."""
        from ..store.fingerprint import configuration

        M = self.system.n_noise
        driver = Increments(np.zeros((1, M)), brownian=True) if M else None
        run = self._run(1)
        plan = complete(run._options, mu0, driver=driver, params=params, g0=g0)
        N = self.members
        mu = np.array(plan.mu0 if plan.mu0_by_member else np.broadcast_to(plan.mu0, (N, *np.shape(plan.mu0))))
        g: PyTree = None
        if self.group:
            algebra = self.system.algebra
            one = plan.g0 if plan.g0 is not None else algebra.group_exp(jnp.zeros(algebra.shape, algebra.dtype))
            spread = lambda x: np.array(x if plan.g0_by_member else np.broadcast_to(x, (N, *np.shape(x))))
            g = jax.tree.map(spread, one)
        own: tuple[np.ndarray, ...] = ()
        if plan.params is not None:
            self.axes = plan.axes
            self._shared, self._tree = jax.tree.flatten(plan.params)
            self._which = jax.tree.leaves(jax.tree.map(lambda x, axis: axis == 0, plan.params, plan.axes))
            own = tuple(np.array(x) for x, by in zip(self._shared, self._which, strict=True) if by)
        return Members(mu, g, own), configuration(plan)

    def params(self, members: Members) -> PyTree:
        """The params of a run of these members."""
        if self._shared is None:
            return None
        own = iter(members.params)
        leaves = [next(own) if by else x for x, by in zip(self._shared, self._which, strict=True)]
        return jax.tree.unflatten(self._tree, leaves)

    def own_params(self, leaves: list[np.ndarray]) -> PyTree:
        """A pytree of the leaves that differ between members, with None in place of the others."""
        if self._shared is None or not leaves:
            return None
        own = iter(leaves)
        return jax.tree.unflatten(self._tree, [next(own) if by else None for by in self._which])

    def params_rebuilder(self) -> "ParamsRebuilder":
        """A function from the leaves of one member to the params of the system."""
        if self._shared is None:
            return ParamsRebuilder(self.system.params, (), None)
        return ParamsRebuilder(self._shared, tuple(self._which), self._tree)

    def time(self, n: int) -> np.ndarray:
        """The time after n steps, as an array: a number would be a constant of compiled programs."""
        return np.asarray(self.t0 + self.dt * n)

    def _run(self, steps: int) -> PreparedRun:
        if steps not in self._runs:
            self._runs[steps] = prepare(
                self.system, dt=self.dt, t0=self.t0, steps=steps, members=self.members, save_every=steps,
                **self._options,
            )  # fmt: skip
        return self._runs[steps]

    def advance(self, members: Members, first: int, dS: Float[np.ndarray, "N steps M"]) -> Members:
        """The members after the steps first, …, first + steps − 1 along the increments dS."""
        steps = dS.shape[1]
        if steps == 0:
            return members
        driver = Increments(dS, brownian=True) if dS.shape[2] else None
        try:
            found = self._run(steps)(
                members.mu, driver=driver, params=self.params(members), g0=members.g, t0=float(self.time(first))
            )
        except UnsolvedStepError as error:
            raise FilterError(f"a step of the forecast did not converge: {error}") from error
        last = lambda x: np.array(x[:, -1])
        return Members(last(found.mu), jax.tree.map(last, found.g) if self.group else None, members.params)

    def evaluate(self, function: MemberFunction, members: Members, n: int, *shared: Any) -> PyTree:
        """The values of a function of (μ, *shared) for all members after n steps, as NumPy arrays."""
        params = self.params(members) if self._shared is not None else self.system.params
        values = _evaluate(function, members.mu, members.g, params, self.axes, self.time(n), shared)
        return jax.tree.map(np.asarray, values)


class ParamsRebuilder(eqx.Module):
    """The params of one member from those of its leaves that are its own."""

    shared: PyTree
    which: tuple[bool, ...] = eqx.field(static=True)
    tree: Any = eqx.field(static=True)

    def __call__(self, own: tuple) -> PyTree:
        """The params."""
        if self.tree is None:
            return self.shared
        found = iter(own)
        leaves = [next(found) if by else x for x, by in zip(self.shared, self.which, strict=True)]
        return jax.tree.unflatten(self.tree, leaves)


@eqx.filter_jit
def _evaluate(
    function: MemberFunction, mu: Any, g: PyTree, params: PyTree, axes: PyTree, t: Any, shared: tuple
) -> PyTree:
    own = lambda m, h, p: function(m, *shared, params=p, t=t, g=h)
    return jax.vmap(own, in_axes=(0, 0, axes))(mu, g, params)
