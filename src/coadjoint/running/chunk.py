"""The compiled chunk on which every run is built, and the host loop around it.

A chunk takes a run from step n₀ to step n₁, both traced: one compiled program of fixed shape serves every run of the
same system, whatever its length, step size, path and parameters. Increments come in aligned blocks and saved values
in a fixed number of slots, so that cutting a run into other chunks does not change a bit of it.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from math import isqrt
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from ..drivers import BLOCK, Window
from ..integrators.base import Integrator
from ..numerics.rootfind import Info
from ..systems import System

_FIRST_CHUNK, _LARGEST_CHUNK = 8 * BLOCK, 2**26  # steps
_POINTS_KEPT = 2**28  # bytes of points that a reverse pass keeps
_CHUNK_SECONDS = 0.5  # what a chunk should take: progress is shown, and Ctrl-C heard, this often


class Tally(NamedTuple):
    """What the solver did, summed up over steps."""

    iterations: Int[Array, ""]
    most: Int[Array, ""]
    residual: Float[Array, ""]
    unsolved: Int[Array, ""]
    first_unsolved: Int[Array, ""]  # the step, or −1
    substeps: Int[Array, ""]  # that the steps were made of

    @staticmethod
    def zero() -> "Tally":
        """Before the first step."""
        z = jnp.zeros((), int)
        return Tally(z, z, jnp.zeros(()), z, z - 1, z)

    def add(self, n: Int[Array, ""], info: Info) -> "Tally":
        """With one more step."""
        failed = ~info.converged
        return Tally(
            self.iterations + info.iterations,
            jnp.maximum(self.most, info.iterations),
            jnp.maximum(self.residual, info.residual),
            self.unsolved + failed,
            jnp.where(failed & (self.first_unsolved < 0), n, self.first_unsolved),
            self.substeps + info.substeps,
        )


class Point(NamedTuple):
    """Where a run stands: all that is needed to go on."""

    mu: Array
    carry: PyTree
    tally: Tally
    plain_until: Int[Array, ""]  # the step up to which the plain program goes, where lanes have failed


def start(system: System, integrator: Integrator, mu0: Array, group: bool = False) -> Point:
    """The point before the first step, with the group element if asked for."""
    carry = integrator.init(system, mu0)
    if group:
        carry = integrator.init_group(system, mu0, carry)
    return Point(mu0, carry, Tally.zero(), jnp.zeros((), int))


class Record(NamedTuple):
    """What is saved of a point: the state or a function of it, and the group element if there is one."""

    values: PyTree
    g: Array | None


def record(integrator: Integrator, save: Callable[[Array], PyTree] | None, point: Point) -> Record:
    """What is saved of a point."""
    return Record(point.mu if save is None else save(point.mu), integrator.group(point.carry))


def one_step(system: System, integrator: Integrator, t0, dt, n, dS, point: Point) -> Point:
    """Step n of a run."""
    mu, carry, info = integrator.step(system, point.mu, t0 + n * dt, dt, dS, point.carry)
    return Point(mu, carry, point.tally.add(n, info), point.plain_until)


class Clock(NamedTuple):
    """Times and saving of a run, all traced."""

    t0: Float[Array, ""]
    dt: Float[Array, ""]
    save_every: Int[Array, ""]


def slots_for(shapes: PyTree, members: int = 1) -> int:
    """How many saved times a chunk holds: as many as fit in two megabytes (of one trajectory) or in four."""
    size = sum(int(np.prod(s.shape)) for s in jax.tree.leaves(shapes))
    return max(1, 2 ** (18 if members == 1 else 19) // max(members * size, 1))


class Stretch(NamedTuple):
    """A run in the making: where it stands, the next step, and the slots with what was saved since the last chunk."""

    point: Point
    n: Int[Array, ""]
    slots: Record


def put(slots: Array, x: Array, at: Int[Array, ""]) -> Array:
    """The slots with x in one of them, in place."""
    return jax.lax.dynamic_update_index_in_dim(slots, x, at, 0)


def open_slots(shapes: Record, slots: int) -> Record:
    """Empty slots, one more than asked for: the last takes an interval that the chunk does not complete."""
    return jax.tree.map(lambda s: jnp.zeros((slots + 1, *s.shape), s.dtype), shapes)


def advance(
    system: System,
    integrator: Integrator,
    window: Window,
    save: Callable[[Array], PyTree] | None,
    clock: Clock,
    member: Int[Array, ""],
    first_slot: Int[Array, ""],
    n1: Int[Array, ""],
    stretch: Stretch,
) -> Stretch:
    """Steps n … n₁ − 1. What is saved after step n goes to slot n // save_every − first_slot.

    Each step writes to the slot of its saving interval, and the last one of the interval stays.
    """
    point, n0, buffer = stretch
    shapes = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), buffer)

    def saved(n: Array, point: Point) -> Record:
        if save is None:
            return record(integrator, None, point)
        due = (n + 1) % clock.save_every == 0
        nothing = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
        return jax.lax.cond(due, partial(record, integrator, save), lambda _: nothing, point)

    def block(b, state):
        increments = window.block(member, b)

        def step(n, state):
            point, buffer = state
            dS = jax.tree.map(lambda x: x[n - b * BLOCK], increments)
            point = one_step(system, integrator, clock.t0, clock.dt, n, dS, point)
            slot = n // clock.save_every - first_slot
            buffer = jax.tree.map(lambda a, x: put(a, x, slot), buffer, saved(n, point))
            return point, buffer

        return jax.lax.fori_loop(jnp.maximum(n0, b * BLOCK), jnp.minimum(n1, (b + 1) * BLOCK), step, state)

    point, buffer = jax.lax.fori_loop(n0 // BLOCK, -(-n1 // BLOCK), block, (point, buffer))
    return Stretch(point, jnp.maximum(n0, n1), buffer)


def pieces(steps: int, save_every: int, slots: int, largest: int, first: int = 0) -> Iterator[tuple[int, int]]:
    """Cut a run from step `first` on into chunks [n₀, n₁) that fit the slots and take about half a second each.

    The consumer times the work between two pieces; only speed depends on the cut, never a result.
    """
    n0, size = first, _FIRST_CHUNK
    warm = False
    while n0 < steps:
        room = (n0 // save_every + slots) * save_every - n0
        n1 = min(steps, n0 + size, n0 + room, (n0 // BLOCK) * BLOCK + largest)
        began = time.perf_counter()
        yield n0, n1
        seconds = time.perf_counter() - began
        if warm and seconds > 2 * _CHUNK_SECONDS:
            size = max(size // 2, 1)
        elif seconds < _CHUNK_SECONDS / 4:
            size = min(int(size * min(_CHUNK_SECONDS / 2 / seconds, 64)), _LARGEST_CHUNK)
        warm = True
        n0 = n1


def scan_run(
    system: System,
    integrator: Integrator,
    window: Window,
    save: Callable[[Array], PyTree] | None,
    clock: Clock,
    mu0: Array,
    steps: int,
    save_every: int,
    group: bool = False,
    member: Int[Array, ""] | int = 0,
) -> tuple[Point, Record]:
    """The whole run as nested scans, for when something is being differentiated, mapped or compiled by the user.

    A reverse pass recomputes every step from the point before it. It keeps all points as long as they fit in a quarter
    of a gigabyte; beyond that, one point per saved state, one per block of an interval between two saved states, and
    those of one block, with about √save_every steps a block, at the price of computing each step once more.
    """
    member = jnp.asarray(member)
    increments = jax.vmap(lambda b: window.block(member, b))(jnp.arange(-(-steps // BLOCK)))
    increments = jax.tree.map(lambda x: x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])[:steps], increments)
    first = start(system, integrator, mu0, group)
    sparse = steps * sum(x.nbytes for x in jax.tree.leaves(first)) > _POINTS_KEPT
    size = max(k for k in range(1, isqrt(save_every) + 1) if save_every % k == 0) if sparse else 1
    lead = steps // save_every, save_every // size, size
    rows = jax.tree.map(lambda x: x.reshape(*lead, *x.shape[1:]), (jnp.arange(steps), increments))

    def step(point, row):
        n, dS = row
        return one_step(system, integrator, clock.t0, clock.dt, n, dS, point), None

    @jax.checkpoint
    def block(point, rows):
        return jax.lax.scan(step, point, rows)

    def interval(point, rows):
        point, _ = jax.lax.scan(block, point, rows)
        return point, record(integrator, save, point)

    point, saved = jax.lax.scan(jax.checkpoint(interval) if sparse else interval, first, rows)
    return point, jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), record(integrator, save, first), saved)


scan_one = eqx.filter_jit(scan_run)


def solved(tally: Tally) -> Bool[Array, ""]:
    """Whether every step was solved."""
    return tally.unsolved == 0
