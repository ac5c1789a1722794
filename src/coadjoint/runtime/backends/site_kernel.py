"""The step of a large lattice, compiled for one of its sites.

A system of N equal copies of one algebra is presented to the method as a system of one site: its algebra, and ζ at the
site, which reads neighbours (`lattice_lowering`). `sitewise` methods work unchanged. The result is sweeps over sites
(`lattice_loops`).
"""

import copy
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from stepcompiler.cache import LRUCache
from stepcompiler.errors import NotCompilable
from stepcompiler.kernel import dynamic_input
from stepcompiler.lattices.lattice_loops import Location, Sweep, split_at_barriers
from stepcompiler.lattices.lattice_lowering import OneSite
from stepcompiler.lattices.site_values import PerSite

from ...algebras.base import Element, LieAlgebra, State
from ...algebras.product import Product
from ...drivers import BrownianWindow, Increment, Needs
from ...integrators.jump_adapted import user_method
from ...integrators.until import Until
from ...stabilisers import Reduction, Weights, reduced_gradient
from ...systems import System
from .. import tuning
from ..executors import cores
from ..plan import Plan
from ..run_state import initial_state
from .base import NotSupported, attempt_native

_OPERATIONS = 20_000  # of a sweep


class SiteSystem:
    """A system of many copies at one site: the part of a `System` that methods use."""

    reduction: Reduction | None

    def __init__(self, system: System, factor: LieAlgebra, sites: int, numbers: PyTree):
        self.algebra, self.sign, self.side, self.additive = factor, system.sign, system.side, system.additive
        self.has_attitude = False
        self.laws = ()
        self.noises, self.n_noise = system.noises, system.n_noise // sites
        self.is_sum = True
        self.is_noisy_sum, self.is_split = system.is_noisy_sum, system.is_split
        self._whole, self._sites, self._numbers = system, sites, numbers  # the site's, if they have an axis of sites
        self.timed, self.has_torque, self._now, self.reduction = system.timed, system.has_torque, system, None

    def in_step(self, t: Array, dt: Array, largest: Array) -> "SiteSystem":
        """The system in the middle of a step, as `System.in_step` has it."""
        return self._at(self._now.in_step(t, dt, largest))

    def at_node(self, t: Array, dt: Array, c: float) -> "SiteSystem":
        """The system at a node of a step, as `System.at_node` has it."""
        return self._at(self._now.at_node(t, dt, c))

    def _at(self, now: System) -> "SiteSystem":
        new = copy.copy(self)
        new._now = now
        return new if self.reduction is None else new.without_stabiliser(*self.reduction.rule)

    def _here(self, fn: Callable, *args: Array | PerSite) -> Array:
        """Return fn(system, …) at one site."""
        leaves, treedef = jax.tree.flatten(self._numbers)
        rest = eqx.filter(self._whole, eqx.is_array, inverse=True)
        time = [] if self._now.time is None else [self._now.time]
        given = [*leaves, *time, *args]
        structs = [jax.ShapeDtypeStruct(x.shape, x.value.dtype if isinstance(x, PerSite) else x.dtype) for x in given]

        def whole(*xs: Array) -> Array:
            numbers, now, own = xs[: len(leaves)], xs[len(leaves) : -len(args)], xs[-len(args) :]
            system = eqx.combine(jax.tree.unflatten(treedef, numbers), rest)
            return fn(system.at(*now) if now else system, *own)

        site = OneSite(self._sites)
        (out,) = site.evaluate(jax.make_jaxpr(whole)(*structs), given)
        return site.to_site(out)

    def _all(self, x: Array) -> PerSite:
        """The vector of all sites, of which this site has x."""
        return PerSite.whole(x, (x.size * self._sites,))

    def anywhere(self, t: Array, g: PyTree = None) -> "SiteSystem":
        """Itself, whose time does not change the carry."""
        return self

    def reduction_weights(self, mu: State) -> Weights:
        """The weight of one site; every site has the same one."""
        return jnp.ones(1) if self.algebra.knows_stabilisers and not self.has_torque else None

    def without_stabiliser(self, start: State, canonical: bool = False, weights: Weights = None) -> "SiteSystem":
        """The system without the part of ∂h in the stabiliser of the state, as `System.without_stabiliser` has it."""
        if not self.algebra.knows_stabilisers:
            return self
        at_zero = self.energy_gradient(jnp.zeros_like(start))
        new = copy.copy(self)
        linear = jnp.where(jnp.isfinite(jnp.sum(at_zero)), at_zero, 0.0)
        new.reduction = Reduction(linear, start, canonical, weights)
        return new

    def energy_gradient(self, mu: State) -> Element:
        """∂h/∂μ."""
        return self._here(System.energy_gradient, self._all(mu))

    def drift(self, mu: State) -> Element:
        """∂h/∂μ + g, with ∂h reduced in `without_stabiliser`."""
        if self.reduction is None:
            return self._here(System.drift, self._all(mu))
        dh = reduced_gradient(self, mu)
        return dh + self._here(System.force, self._all(mu)) if self._whole.forces else dh

    def vector_field(self, mu: State, dt: Float[Array, ""], dS: Float[Array, " M"]) -> State:
        """s ad*_ζ μ."""
        return self.sign * self.algebra.ad_star(self.zeta(mu, dt, dS), mu)

    def noise(self, mu: State, dS: Float[Array, " M"]) -> Element:
        """Σ_i ∂h_i/∂μ dS^i."""
        return self._here(System.noise, self._all(mu), self._all(dS))

    def zeta(self, mu: State, dt: Float[Array, ""], dS: Float[Array, " M"]) -> Element:
        """(∂h/∂μ + g) dt + Σ_i ∂h_i/∂μ dS^i."""
        zeta = self.drift(mu) * dt
        return zeta + self.noise(mu, dS) if self.noises else zeta


class Layout(NamedTuple):
    """The memory of a member: the state, the carry, and arrays of the system with an axis of sites."""

    sites: int
    places: list[Location]
    sizes: list[int]  # numbers of each at a site
    planes: dict[str, int]  # of each area
    path: int  # increments at a site


class SiteKernel(NamedTuple):
    """The sweeps of a step, the sweep that draws the path for two steps, and their memory layout."""

    sweeps: list[Sweep]
    draw: Sweep | None  # None if there is no path, or if it is given
    layout: Layout
    by_site: tuple[bool, ...]  # which numbers of the system are


_kernels: LRUCache[SiteKernel | NotSupported] = LRUCache()


def copies(plan: Plan) -> int:
    """Return the number of copies of one algebra in a system; 0 for other systems."""
    algebra = plan.system.algebra
    return algebra.counts[0] if isinstance(algebra, Product) and len(algebra.kinds) == 1 else 0


def kernel_for(plan: Plan, full: bool = False) -> SiteKernel | NotSupported:
    """Return the kernel of a plan, or the reason why it is not supported; cached by structure."""
    arrays = [x for x in jax.tree.leaves((plan.system, plan.state_shape, plan.increment_shape)) if hasattr(x, "dtype")]
    window = jax.tree.structure(plan.first_window)
    key = plan.structure_key, tuple((x.shape, str(x.dtype)) for x in arrays), window, full

    def make() -> SiteKernel | NotSupported:
        return attempt_native(lambda: _tried(plan, _make(plan, full)))

    return _kernels.get(key, make)


def _tried(plan: Plan, kernel: SiteKernel) -> SiteKernel:
    """A kernel for which threads were started once, and the numbers computed that all sites share."""
    leaves = jax.tree.leaves(eqx.filter(plan.system, eqx.is_array))
    shared = [*(x for x, here in zip(leaves, kernel.by_site, strict=True) if not here), *clock_of(plan)]
    with ThreadPoolExecutor(threads_for(kernel)) as pool:
        list(pool.map(lambda sweep: sweep.uniforms(shared), kernel.sweeps))
    return kernel


def clock_of(plan: Plan) -> list[Any]:
    """The numbers of time that all sites share: dt, and before it t₀ if the system depends on time."""
    clock = plan.time_grid
    return [clock.t0, clock.dt] if plan.system.timed else [clock.dt]


def threads_for(kernel: SiteKernel) -> int:
    """Return the number of threads that share the sites of a member."""
    return max(1, min(cores(), kernel.layout.sites // tuning.current().sites_per_thread))


def _make(plan: Plan, full: bool) -> SiteKernel:
    """Write and compile the sweeps."""
    system, sites, method = plan.system, copies(plan), plan.integrator.fast()
    _check(plan, sites)
    assert isinstance(system.algebra, Product)
    factor = system.algebra.kinds[0]
    leaves, treedef = jax.tree.flatten(eqx.filter(system, eqx.is_array))
    by_site = tuple(x.size >= sites and x.size % sites == 0 for x in leaves)
    here = [jax.ShapeDtypeStruct((x.size // sites,), x.dtype) for x, own in zip(leaves, by_site, strict=True) if own]
    shared = [x for x, own in zip(leaves, by_site, strict=True) if not own]
    patterns: list[Any] = [dynamic_input(x) for x in (*shared, *clock_of(plan))]
    flat, structure = jax.tree.flatten(_site_point(plan, factor, sites))
    structs = _structs(patterns)

    def step(shared: list, here: list, flat: list, dS: Array, n: Array) -> tuple[list, Array]:
        *rest, dt = shared
        given, own = iter(rest), iter(here)
        numbers = [
            PerSite.whole(next(own), x.shape) if s else next(given) for x, s in zip(leaves, by_site, strict=True)
        ]
        site: Any = SiteSystem(system, factor, sites, jax.tree.unflatten(treedef, numbers))
        mu, carry = jax.tree.unflatten(structure, flat)
        increment = Increment(dS, jnp.full((), jnp.inf))
        t = jnp.zeros(())  # unused, or t₀ + n dt
        if system.timed:
            t0 = rest.pop()
            t = t0 + n * dt
            site = site.in_step(t, dt, jnp.maximum(jnp.abs(t0), jnp.abs(t)) + dt)
        mu, carry, info = method.step(site, mu, t, dt, increment, carry)
        return jax.tree.leaves((mu, carry)), info.converged

    path = jax.ShapeDtypeStruct((system.n_noise // sites,), jnp.float64)
    closed = jax.make_jaxpr(step)(structs, here, flat, path, jax.ShapeDtypeStruct((), jnp.int64))
    jaxpr, first = closed.jaxpr, len(patterns) + len(here)
    stays = [v is w for v, w in zip(jaxpr.invars[first:-2], jaxpr.outvars[:-1], strict=True)]
    layout = _layout(sites, [*flat, *here], [*stays, *[True] * len(here)], path.size)
    places, fixed = layout.places[: len(flat)], layout.places[len(flat) :]
    outputs = [None if s else Location("new", p.plane) for s, p in zip(stays, places, strict=True)]
    inputs = [*fixed, *places, Location("path"), Location("number")]
    plans, layout.planes["kept"] = split_at_barriers(closed, len(patterns), inputs, outputs)
    sweeps = [Sweep(p, patterns, sites, _OPERATIONS, full) for p in plans]
    return SiteKernel(sweeps, _drawing(plan, sites), layout, by_site)


def _check(plan: Plan, sites: int) -> None:
    """Raise an error for options that are not supported site by site."""
    if isinstance(plan.integrator, Until):
        raise NotCompilable(f"A run of {sites} copies with until= has no native code.")
    name = type(user_method(plan.integrator)).__name__
    if plan.system.has_torque or plan.system.laws:
        raise NotCompilable(f"A torque, or a control, of {sites} copies has no native code.")
    if not plan.integrator.sitewise:
        raise NotCompilable(
            f"Of {sites} copies native code takes methods that do each by itself, like HeunMK, not {name}."
        )
    if plan.system.n_noise % sites or plan.needs != Needs():
        raise NotCompilable(f"A path of more than increments, as many for each of {sites} copies, has no native code.")


def _site_point(plan: Plan, factor: LieAlgebra, sites: int) -> tuple[Any, PyTree]:
    """Return the shapes of the state and of the carry at one site."""
    site: Any = SiteSystem(plan.system, factor, sites, None)
    mu = jax.ShapeDtypeStruct((factor.dim,), jnp.float64)
    own = jax.eval_shape(lambda mu: initial_state(site, plan.integrator, mu, 0.0, plan.follows_group), mu)
    both = zip(jax.tree.leaves(own[:2]), jax.tree.leaves(plan.state_shape[:2]), strict=True)
    if factor.shape != mu.shape or any(a.size * sites != b.size for a, b in both):
        raise NotCompilable("Native code does not support the carry of this method on large lattices.")
    return own[:2]


def _structs(patterns: list[Any]) -> list[jax.ShapeDtypeStruct]:
    return [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype, _ in patterns]


def _layout(sites: int, structs: list, stays: list[bool], path: int) -> Layout:
    planes = {"old": 0, "fixed": 0}
    places, sizes = [], [math.prod(x.shape) for x in structs]
    for size, fixed in zip(sizes, stays, strict=True):
        area = "fixed" if fixed else "old"
        places.append(Location(area, planes[area]))
        planes[area] += size
    return Layout(sites, places, sizes, planes, path)


def _drawing(plan: Plan, sites: int) -> Sweep | None:
    """The sweep that draws the increments of steps 2k and 2k + 1 at each site; None if the path is given."""
    window, each = plan.first_window, plan.system.n_noise // sites
    if not each or not isinstance(window, BrownianWindow):
        return None
    leaves, treedef = jax.tree.flatten(window)
    patterns: list[Any] = [*map(dynamic_input, leaves), dynamic_input(np.int64(0))]

    def pair(shared: list, site: Array, k: Array) -> tuple[Array, Array]:
        *rest, member = shared
        channels = site * each + jnp.arange(each)
        return jax.tree.unflatten(treedef, rest).pair(member, k, channels).S, jnp.ones((), bool)

    integer = jax.ShapeDtypeStruct((), jnp.int64)
    closed = jax.make_jaxpr(pair)(_structs(patterns), integer, integer)
    ((only,), _) = split_at_barriers(closed, len(patterns), [Location("site"), Location("number")], [Location("path")])
    return Sweep(only, patterns, sites, _OPERATIONS, False)
