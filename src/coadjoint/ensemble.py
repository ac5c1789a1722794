"""Many trajectories: members in fixed tiles, kept whole or reduced to statistics."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PyTree

from . import _checks
from .chunk import (
    Clock,
    Point,
    Record,
    advance,
    pieces,
    record,
    scan_run,
    slots_for,
    solved,
    start,
    window_blocks,
)
from .drivers import BLOCK, Driver, Window
from .integrators.base import Integrator
from .integrators.tmk import TMK
from .reducers import Reducer
from .solution import Saved, Stats, UnsolvedStepError
from .solve import Run, prepare, progress_bar, trace_save, unsolved_message
from .systems import System, check_state

LARGEST_TILE = 1024  # members that are stepped together


class Ensemble(Saved):
    """Many trajectories: `t`, `mu` of shape (members, n_saved, …) (or `saved`), `casimirs()`, `energy()`, `stats`.

    With `reduce=`, `reduced` holds the statistics instead, with a leading axis of saved times.
    """

    members: int = eqx.field(static=True)
    reduced: PyTree

    @property
    def mu(self) -> Any:
        """The saved states of every member."""
        if self.reduced is not None:
            raise AttributeError("the members were not saved, because reduce= was given: see .reduced.")
        return Saved.mu.fget(self)  # type: ignore[attr-defined]

    @property
    def _members(self) -> int | None:
        return self.members


def ensemble(
    system: System,
    mu0: Any,
    *,
    members: int,
    t1: float,
    dt: float,
    t0: float = 0.0,
    key: Any = None,
    driver: Driver | None = None,
    integrator: Integrator = TMK(),
    params: PyTree = None,
    reduce: Reducer | None = None,
    save_every: int = 1,
    save: Callable[[Any], PyTree] | None = None,
    group: bool = False,
    throw: bool = True,
    progress: bool = False,
) -> Ensemble:
    """Integrate `members` trajectories of a system; member k follows its own path, given by (key, k) alone.

    - `mu0`: one state for all, or a stack with a leading axis of members.
    - `params`: replaces the system's params; a leaf may have a leading axis of members.
    - `reduce`: a reducer such as `Mean()` or `Covariance()`: only statistics are kept, as `reduced`.
    - A given path (`Increments`) drives all members alike.
    - The rest is as in `solve`.

    Members sit in tiles of fixed size, member k in slot k mod P of tile k div P with P = 1024 (the next power of two
    for fewer members), so that no result depends on how tiles are placed or in which order they run.
    """
    run = prepare(system, t1=t1, dt=dt, t0=t0, key=key, driver=driver, integrator=integrator, save_every=save_every)
    members = _checks.count("members", members)
    mu0, by_member = _states(system, mu0, members)
    batch, axes = _params(system, params, members)
    save_fn = trace_save(system, save)
    _check_reducer(reduce)
    if _checks.is_traced((system, mu0, batch, run.driver, save_fn)):
        return _ensemble_traced(run, mu0, by_member, batch, axes, save_fn, members, reduce, group, throw)

    size = min(LARGEST_TILE, 1 << (members - 1).bit_length())
    tiles = -(-members // size)
    program = _Tile(system, integrator, axes, save_fn, group)
    shape = jax.eval_shape(lambda mu: record(integrator, save_fn, start(system, integrator, mu, group)), _state(system))
    slots = slots_for(shape, size)
    values = None
    if reduce is None:
        values = jax.tree.map(lambda s: np.empty((members, run.n_saved, *s.shape), s.dtype), shape)
    tree = _MergeTree(reduce)
    tallies = []
    devices = jax.local_devices()
    width = min(len(devices), tiles)
    with progress_bar(progress, run.steps, tiles * size) as bar:
        for first in range(0, tiles, width):
            together = [
                jax.device_put(_open_tile(k, size, members, mu0, by_member, batch, axes), device)
                for k, device in zip(range(first, min(first + width, tiles)), devices, strict=False)
            ]
            points = _run_tiles(program, run, together, slots, values, reduce, tree, first, size, members, bar)
            tallies += [
                jax.tree.map(lambda x, t=t: np.asarray(x)[np.asarray(t.real)], p.tally)
                for p, t in zip(points, together, strict=True)
            ]
            if throw and not all(np.all(solved(t)) for t in tallies):
                break
    tally = jax.tree.map(lambda *xs: np.concatenate(xs), *tallies)
    stats = Stats.of(tally, run.steps)
    computed = len(tally.iterations)
    if values is not None and computed < members:
        values = jax.tree.map(lambda x: x[:computed], values)
    reduced = None if reduce is None else tree.result()
    kept = Record(None, None) if values is None else values
    custom = save_fn is not None
    result = Ensemble(system, integrator, run.times, kept.values, kept.g, stats, run.dt, custom, computed, reduced)
    if throw and stats.unsolved:
        raise UnsolvedStepError(unsolved_message(stats, run, computed), result)
    return result


def _state(system: System) -> jax.ShapeDtypeStruct:
    """Shape and type of a state."""
    return jax.ShapeDtypeStruct(system.algebra.shape, system.algebra.dtype)


class _TileInputs(eqx.Module):
    """One tile's members, padded by repeating the last one."""

    member: Int[Array, " P"]
    real: Bool[Array, " P"]
    mu0: Array
    params: PyTree


class _Tile(eqx.Module):
    """The program of a tile: start and advance, mapped over members."""

    system: System
    integrator: Integrator
    axes: PyTree = eqx.field(static=True)
    save: Any
    group: bool = eqx.field(static=True)

    def _one(self, params: PyTree) -> System:
        return self.system if self.axes is None else self.system.with_params(params)

    @eqx.filter_jit
    def start(self, tile: _TileInputs) -> tuple[Point, PyTree]:
        """The points before the first step and the first saved values."""

        def one(mu0, params):
            point = start(self._one(params), self.integrator, mu0, self.group)
            return point, record(self.integrator, self.save, point)

        return jax.vmap(one, in_axes=(0, self.axes))(tile.mu0, tile.params)

    @eqx.filter_jit
    def advance(
        self, window: Window, slots: int, clock: Clock, tile: _TileInputs, points: Point, n0: Array, n1: Array
    ) -> tuple[Point, PyTree]:
        """Steps n₀ … n₁ − 1 of all members; saved values lead with members, then slots."""

        def one(member, point, params):
            system = self._one(params)
            return advance(system, self.integrator, window, self.save, slots, clock, member, point, n0, n1)

        return jax.vmap(one, in_axes=(0, 0, self.axes))(tile.member, points, tile.params)


def _run_tiles(program, run, together, slots, values, reduce, tree, first, size, members, bar) -> list[Point]:
    """Run some tiles side by side, one a device, storing or reducing what they save."""
    started = [program.start(tile) for tile in together]
    points = [p for p, _ in started]
    accs = [_Series(reduce, tile) for tile in together] if reduce is not None else None

    def keep(i: int, at: int, saved: PyTree, count: int) -> None:
        if accs is not None:
            accs[i].add(saved.values, count)
            return
        lo = (first + i) * size
        hi = min(lo + size, members)

        def put(a: np.ndarray, x: Array) -> None:
            a[lo:hi, at : at + count] = np.asarray(x)[: hi - lo, :count]

        jax.tree.map(put, values, saved)

    for i, (_, saved) in enumerate(started):
        keep(i, 0, jax.tree.map(lambda x: x[:, None], saved), 1)
    blocks = window_blocks(run.system.n_noise)
    for n0, n1 in pieces(run.steps, run.save_every, slots, blocks * BLOCK):
        window = run.driver.window(run.system.n_noise, run.dt, n0 // BLOCK, blocks)
        ends = jnp.asarray(n0), jnp.asarray(n1)
        results = [
            program.advance(window, slots, run.clock, tile, p, *ends) for tile, p in zip(together, points, strict=True)
        ]
        points = [p for p, _ in results]
        for i, (_, buffer) in enumerate(results):
            keep(i, n0 // run.save_every + 1, buffer, n1 // run.save_every - n0 // run.save_every)
        bar.update((first * run.steps + len(together) * n1) * size, points[-1].tally, size)
    if accs is not None:
        for acc in accs:
            tree.push(acc.series())
    return points


class _Series:
    """The accumulators of one tile along the saved times."""

    def __init__(self, reduce: Any, tile: _TileInputs):
        self.reduce, self.weight = reduce, jnp.asarray(tile.real, jnp.float64)
        self.parts: list[PyTree] = []

    def add(self, saved: PyTree, count: int) -> None:
        """Fold in the first `count` slots."""
        accs = _update(self.reduce, saved, self.weight)
        self.parts.append(jax.tree.map(lambda x: np.asarray(x)[:count], accs))

    def series(self) -> PyTree:
        """All saved times in a row."""
        return jax.tree.map(lambda *xs: np.concatenate(xs), *self.parts)


@eqx.filter_jit
def _update(reduce: Any, saved: PyTree, weight: Array) -> PyTree:
    def one_time(x):
        return reduce.update(reduce.init(jax.tree.map(lambda a: a[0], x)), x, weight)

    return jax.vmap(one_time, in_axes=1)(saved)


@eqx.filter_jit
def _merge(reduce: Any, a: PyTree, b: PyTree) -> PyTree:
    return jax.vmap(reduce.merge)(a, b)


@eqx.filter_jit
def _result(reduce: Any, a: PyTree) -> PyTree:
    return jax.vmap(reduce.result)(a)


class _MergeTree:
    """Merges tiles 0, 1, 2, … along a fixed binary tree, holding one accumulator a level."""

    def __init__(self, reduce: Any):
        self.reduce = reduce
        self.levels: list[PyTree | None] = []

    def push(self, acc: PyTree) -> None:
        """The accumulator of the next tile."""
        for i, held in enumerate(self.levels):
            if held is None:
                self.levels[i] = acc
                return
            acc = jax.tree.map(np.asarray, _merge(self.reduce, held, acc))
            self.levels[i] = None
        self.levels.append(acc)

    def result(self) -> PyTree:
        """The statistics over all tiles."""
        acc = None
        for held in self.levels:
            if held is not None:
                acc = held if acc is None else _merge(self.reduce, held, acc)
        return jax.tree.map(np.asarray, _result(self.reduce, acc))


def _open_tile(k: int, size: int, members: int, mu0, by_member: bool, batch, axes) -> _TileInputs:
    member = np.arange(k * size, (k + 1) * size)
    at = np.minimum(member, members - 1)
    states = mu0[at] if by_member else jnp.broadcast_to(mu0, (size, *mu0.shape))
    params = None if axes is None else jax.tree.map(lambda x, a: x[at] if a == 0 else x, batch, axes, is_leaf=_is_none)
    return _TileInputs(jnp.asarray(member), jnp.asarray(member < members), states, params)


def _is_none(x: Any) -> bool:
    return x is None


def _states(system: System, mu0: Any, members: int) -> tuple[Array, bool]:
    shape = np.shape(mu0)
    if shape == (members, *system.algebra.shape):
        return check_state(system.algebra, "mu0", mu0, (members,)), True
    if len(shape) == len(system.algebra.shape) + 1:
        raise ValueError(f"mu0 has {shape[0]} states, but there are {members} members.")
    return system.check_state("mu0", mu0), False


def _params(system: System, params: PyTree, members: int) -> tuple[PyTree, PyTree]:
    """The parameters and, leaf by leaf, whether they lead with members (0) or are shared (None)."""
    if params is None:
        return None, None
    if system.params is None:
        raise ValueError("params was given, but the system has none: give System(..., params=...) first.")
    old, new = jax.tree.structure(system.params), jax.tree.structure(params)
    if old != new:
        raise ValueError(f"params must have the structure of the system's params, {old}, not {new}.")

    def axis(a, b):
        if jnp.shape(b) == a.shape:
            return None
        if jnp.shape(b) == (members, *a.shape):
            return 0
        raise ValueError(
            f"params: a leaf of shape {jnp.shape(b)} must have shape {a.shape}, or lead with members: "
            f"{(members, *a.shape)}."
        )

    arrays = jax.tree.map(lambda a, b: jnp.asarray(b, a.dtype), system.params, params)
    return arrays, jax.tree.map(axis, system.params, arrays)


def _check_reducer(reduce: Any) -> None:
    if reduce is None:
        return
    missing = [name for name in ("init", "update", "merge", "result") if not callable(getattr(reduce, name, None))]
    if missing or isinstance(reduce, type):
        what = f"has no {', '.join(missing)}" if missing else f"is a class: write {reduce.__name__}()"
        raise TypeError(f"reduce must be an object with init, update, merge and result, but it {what}.")


def _ensemble_traced(run: Run, mu0, by_member, batch, axes, save_fn, members, reduce, group, throw) -> Ensemble:
    """An ensemble inside a transformation of JAX's: one vmap over plain scans."""
    window = run.driver.window(run.system.n_noise, run.dt, 0, -(-run.steps // BLOCK))

    def one(member, mu, params):
        system = run.system if axes is None else run.system.with_params(params)
        ends = run.steps, run.save_every, group
        return scan_run(system, run.integrator, window, save_fn, run.clock, mu, *ends, member)

    point, values = jax.vmap(one, in_axes=(0, 0 if by_member else None, axes))(jnp.arange(members), mu0, batch)
    if throw:
        values = eqx.error_if(values, ~jnp.all(solved(point.tally)), "a step could not be solved: take a smaller dt.")
    stats = Stats.of(point.tally, run.steps)
    reduced = None
    if reduce is not None:
        reduced = _result(reduce, _update(reduce, values.values, jnp.ones(members)))
        values = Record(None, None)
    return Ensemble(
        run.system,
        run.integrator,
        run.times,
        values.values,
        values.g,
        stats,
        run.dt,
        save_fn is not None,
        members,
        reduced,
    )
