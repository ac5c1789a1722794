"""Many trajectories: members in fixed tiles, kept whole or reduced to statistics."""

import itertools
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from os import PathLike
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from ..drivers import BLOCK, Driver
from ..integrators.base import Integrator
from ..integrators.tmk import TMK
from ..numerics import checks
from ..systems import System, check_state, fit_params
from .chunk import Point, Record, Tally, pieces, scan_run, slots_for, solved
from .program import Tile, TileProgram, group_size, on_best_path
from .reducers import Reducer
from .solution import Saved, Stats, UnsolvedStepError, mapped
from .solving import (
    Job,
    Run,
    check_out,
    prepare,
    progress_bar,
    record_shapes,
    recorded,
    trace_save,
    unsolved_message,
)

if TYPE_CHECKING:
    from ..store.reading import Stored

LARGEST_TILE = 1024  # members that are stepped together
_ROWS = 64  # saved times whose accumulators are merged together
_STATES = 1024  # states whose energies are computed together


class Ensemble(Saved):
    """Many trajectories: `t`, `mu` of shape (members, n_saved, …) (or `saved`), `casimirs()`, `energy()`, `stats`.

    With `reduce=`, `reduced` holds the statistics instead, with a leading axis of saved times.
    """

    members: int = eqx.field(static=True)
    reduced: PyTree
    params: PyTree  # those given in place of the system's, if any …
    axes: PyTree = eqx.field(static=True)  # … and, leaf by leaf, whether they lead with members (0) or not (None)

    @property
    def mu(self) -> Any:
        """The saved states of every member."""
        self._check_members()
        return Saved.mu.fget(self)  # type: ignore[attr-defined]

    @property
    def saved(self) -> Any:
        """What the `save` function returned for every member; the states if there was none."""
        self._check_members()
        return self.values

    def energy(self) -> Any:
        """The Hamiltonian at the saved times, with the params of each member."""
        if self.params is None:
            return Saved.energy(self)
        return _energies(self.system, self.params, self.axes, self.mu)

    def _check_members(self) -> None:
        if self.reduced is not None:
            raise AttributeError("the members were not saved, because reduce= was given: see .reduced.")

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
    out: str | PathLike | None = None,
    resume: bool = False,
) -> "Ensemble | Stored":
    """Integrate `members` trajectories of a system; member k follows its own path, given by (key, k) alone.

    - `mu0`: one state for all, or a stack with a leading axis of members.
    - `params`: replaces the system's params; a leaf may have a leading axis of members.
    - `reduce`: a reducer such as `Mean()`, `Covariance()` or `Quantiles(...)`: only statistics are kept, as `reduced`.
    - A given path (`Increments`) drives all members alike.
    - The rest is as in `solve`.

    Members sit in tiles of fixed size, member k in slot k mod P of tile k div P with P = 1024 (the next power of two
    for fewer members), so that no result depends on how tiles are placed or in which order they run.
    """
    job = ensemble_job(
        system, mu0, members=members, t1=t1, dt=dt, t0=t0, key=key, driver=driver, integrator=integrator,
        params=params, reduce=reduce, save_every=save_every, save=save, group=group, throw=throw, progress=progress,
        stored=check_out(out, resume),
    )  # fmt: skip
    if out is None:
        return job.execute(None)
    return recorded(job, out, resume, checks.is_traced((system, job.mu0, job.params, job.run.driver, job.save)))


def ensemble_job(
    system: Any,
    mu0: Any,
    *,
    members: Any,
    params: Any,
    reduce: Any,
    save: Any,
    group: bool,
    throw: bool,
    progress: Any,
    stored: bool,
    **options: Any,
) -> Job:
    """The checked arguments of `ensemble`."""
    run = prepare(system, **options)
    members = checks.count("members", members)
    mu0, by_member = _states(system, mu0, members)
    batch, axes = _params(system, params, members)
    _check_reducer(reduce)
    save_fn = trace_save(system, save, stored and reduce is None)

    def execute(store: Any) -> Any:
        if checks.is_traced((system, mu0, batch, run.driver, save_fn)):
            return _ensemble_traced(run, mu0, by_member, batch, axes, save_fn, members, reduce, group, throw)

        def on(path: str) -> Any:
            program = TileProgram(system, run.integrator, save_fn, group, axes)
            return _ensemble(run, program, path, mu0, by_member, batch, members, reduce, throw, progress, store)

        return on_best_path(system, run.integrator, group, members, on)

    def energy(mu: Array, member: np.ndarray) -> Array:
        if axes is None:
            return mapped(system.energy, mu)
        return _energy_rows(system, _own(batch, axes, member), axes, mu)

    return Job(
        run, mu0, save_fn, group, record_shapes(run, save_fn, group), save is not None, energy, execute, throw,
        members, tile_size(members), batch, reduce,
    )  # fmt: skip


def tile_size(members: int) -> int:
    """Members that are stepped together: at most LARGEST_TILE, and a power of two."""
    return min(LARGEST_TILE, 1 << (members - 1).bit_length())


def _ensemble(
    run: Run, program: TileProgram, path: str, mu0, by_member: bool, batch, members: int, reduce, throw, progress, store
) -> Any:
    """All tiles, in threads."""
    system, integrator = run.system, run.integrator
    size = tile_size(members)
    values = None
    if reduce is None and store is None:
        shape = record_shapes(run, program.save, program.group)
        values = jax.tree.map(lambda s: np.empty((members, run.n_saved, *s.shape), s.dtype), shape)
    tree = _MergeTree(reduce)
    computed, total = 0, None
    firsts = range(0, members, size)
    devices = jax.local_devices()
    with progress_bar(progress, run, len(firsts) * size) as bar:

        def one_tile(first: int) -> tuple[Tally, PyTree]:
            inputs = _open_tile(first, size, group_size(path, size), members, mu0, by_member, batch, program.axes)
            device = devices[(first // size) % len(devices)]
            if store is not None:
                keep = _Stored(store.part(path, first), reduce, first, members, throw)
            elif reduce is not None:
                keep = _Statistics(reduce, first, members)
            else:
                keep = _Members(values, first, members)
            return _run_tile(program, path, run, inputs, device, keep, bar)

        for tally, series in in_order(one_tile, firsts, workers=max(len(devices), _cores())):
            computed += len(tally.iterations)
            total = _together(tally if total is None else jax.tree.map(np.append, total, tally))
            failed = throw and not np.all(solved(tally))
            if reduce is not None and not (failed and store is not None):
                tree.push(series)
            if failed:
                break
    assert total is not None
    stats = Stats.of(
        total._replace(iterations=total.iterations / computed, substeps=total.substeps / computed), run.steps, path
    )
    reduced = tree.result() if tree.levels else None

    def result(values: Record, times: np.ndarray) -> Ensemble:
        kept = jax.tree.map(lambda x: x[:computed], values) if computed < members else values
        custom = program.save is not None
        outcome = kept.values, kept.g, stats, run.dt, custom, computed, reduced
        return Ensemble(system, integrator, times, *outcome, batch, program.axes)

    if store is None:
        ens = result(Record(None, None) if values is None else values, run.times)
    else:
        ens = store.result(result, stats, reduced)
    if throw and stats.unsolved:
        note = "" if store is None else store.note()
        raise UnsolvedStepError(unsolved_message(stats, run, computed) + note, ens)
    return ens


def _together(tally: Tally) -> Tally:
    """The tally of many members as one: a number for each of 10⁷ members would be too many."""
    first: Any = tally.first_unsolved[tally.first_unsolved >= 0]
    none: Any = np.int64(-1)
    return Tally(
        np.sum(tally.iterations),
        np.max(tally.most),
        np.max(tally.residual),
        np.sum(tally.unsolved),
        np.min(first) if len(first) else none,
        np.sum(tally.substeps),
    )


def _cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _energies(system: System, params: PyTree, axes: PyTree, mu: Any) -> Any:
    """h of each member at its saved times, in pieces of fixed shape so that it compiles once."""
    if checks.is_traced((system, params, mu)):

        def of_member(p: PyTree, states: Array) -> Array:
            return jax.vmap(eqx.tree_at(lambda s: s.params, system, p).energy)(states)

        return jax.vmap(of_member, in_axes=(axes, 0))(params, mu)
    members, times = mu.shape[:2]
    rows = np.arange(members * times + -(members * times) % _STATES).clip(max=members * times - 1)
    parts = []
    for at in rows.reshape(-1, _STATES):
        member, time = at // times, at % times
        parts.append(np.asarray(_energy_rows(system, _own(params, axes, member), axes, mu[member, time])))
    return np.concatenate(parts)[: members * times].reshape(members, times)


def _own(params: PyTree, axes: PyTree, member: np.ndarray) -> PyTree:
    """The parameters of the given members, one after the other."""
    return jax.tree.map(lambda x, a: np.asarray(x)[member] if a == 0 else x, params, axes, is_leaf=_is_none)


@eqx.filter_jit
def _energy_rows(system: System, params: PyTree, axes: PyTree, mu: Array) -> Array:
    def one(p: PyTree, m: Array) -> Array:
        return eqx.tree_at(lambda s: s.params, system, p).energy(m)

    return jax.vmap(one, in_axes=(axes, 0))(params, mu)


def in_order(work: Callable[[int], Any], items: Sequence[int], workers: int) -> Iterator[Any]:
    """The results of `work` on all items, in their order, a few at a time in threads: JAX computes outside the lock."""
    if len(items) == 1 or workers == 1:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(workers) as pool:
        waiting: deque = deque()
        rest = iter(items)
        try:
            for item in itertools.islice(rest, workers + 1):
                waiting.append(pool.submit(work, item))
            while waiting:
                yield waiting.popleft().result()
                for item in itertools.islice(rest, 1):
                    waiting.append(pool.submit(work, item))
        finally:
            for future in waiting:
                future.cancel()


def _run_tile(
    program: TileProgram, path: str, run: Run, tile: Tile, device: Any, keep: Any, bar: Any
) -> tuple[Tally, PyTree]:
    """Run one tile from start to end, handing on what it saves; the tally of its members, and what was made of them."""
    tile = jax.device_put(tile, device)
    points, first = program.start(tile)
    groups, width = tile.member.shape
    one = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[2:], x.dtype), first)
    slots, blocks = slots_for(one, groups * width), run.driver.blocks(run.system.n_noise)
    if keep.reduce is not None:  # accumulators may be larger than what they sum up
        slots = min(slots, slots_for(jax.eval_shape(keep.reduce.init, one.values)))
    done, points = keep.begin(points)
    bar.begin(done * groups * width)
    if done == 0:
        keep.add(0, jax.tree.map(lambda x: x[:, None], first), 1)
    stretch = program.open(tile, points, first, slots)
    stretch = jax.device_put(stretch._replace(n=jnp.full_like(stretch.n, done)), device)
    for n0, n1 in pieces(run.steps, run.save_every, slots, blocks * BLOCK, done):
        slot = n0 // run.save_every
        stretch = program.advance(path, run.window(n0 // BLOCK, blocks), run.clock, tile, slot, n1, stretch)
        keep.add(slot + 1, stretch.slots, n1 // run.save_every - slot)
        bar.add((n1 - n0) * groups * width, stretch.point, tile.mu0)
        if not keep.mark(n1, stretch.point):
            break
    tally = jax.tree.map(lambda x: np.asarray(x).reshape(-1)[: keep.count], stretch.point.tally)
    return tally, keep.result()


class _Keeper:
    """What is done with the results of a tile. `count`: how many members it has, padding apart."""

    count: int
    reduce: Any = None

    def begin(self, points: Point) -> tuple[int, Point]:
        """The step to begin with, and the points before it."""
        return 0, points

    def mark(self, n: int, points: Point) -> bool:
        """All is known up to step n; whether to go on."""
        return True


def _by_member(x: Any, count: int) -> np.ndarray:
    """The first `count` slots of an array that lies (group, slot, member, …), as (member, slot, …)."""
    rows = np.moveaxis(np.asarray(x)[:, :count], 1, 2)
    return rows.reshape(rows.shape[0] * rows.shape[1], *rows.shape[2:])  # of no saved times too


class _Members(_Keeper):
    """Keeps every member: writes its saved values into the result."""

    def __init__(self, values: PyTree, first: int, members: int):
        self.values, self.first, self.members = values, first, members

    def add(self, at: int, slots: Record, count: int) -> None:
        """`count` saved times from `at` on."""

        def put(a: np.ndarray, x: Array) -> None:
            rows = _by_member(x, count)
            self.count = min(len(rows), self.members - self.first)
            a[self.first : self.first + self.count, at : at + count] = rows[: self.count]

        jax.tree.map(put, self.values, slots)

    def result(self) -> None:
        """The members are where they belong already."""


class _Statistics(_Keeper):
    """Keeps accumulators of a reducer along the saved times."""

    def __init__(self, reduce: Any, first: int, members: int):
        self.reduce, self.first, self.members = reduce, first, members
        self.parts: list[PyTree] = []

    def add(self, at: int, slots: Record, count: int) -> None:
        """Fold in the first `count` slots."""
        acc, self.count = _accumulated(self.reduce, slots, self.members - self.first)
        self.parts.append(jax.tree.map(lambda x: np.asarray(x)[:count], acc))

    def result(self) -> PyTree:
        """All saved times in a row."""
        return jax.tree.map(lambda *xs: np.concatenate(xs), *self.parts)


def _accumulated(reduce: Any, slots: Record, left: int) -> tuple[PyTree, int]:
    """The accumulators of the members in the slots, at most `left` of them, and how many they are."""
    rows = jax.tree.map(lambda x: jnp.moveaxis(x, 1, 2).reshape(-1, *x.shape[1:2], *x.shape[3:]), slots.values)
    size = jax.tree.leaves(rows)[0].shape[0]
    weight = jnp.asarray(np.arange(size) < left, jnp.float64)
    return _update(reduce, rows, weight), min(size, left)


class _Stored(_Keeper):
    """Hands the members of a tile, or their accumulators, to its part of a store."""

    def __init__(self, part: Any, reduce: Any, first: int, members: int, throw: bool):
        self.part, self.reduce, self.left, self.throw = part, reduce, members - first, throw

    def begin(self, points: Point) -> tuple[int, Point]:
        """Where the store stands."""
        shape = points.mu.shape[:2]
        self.count = min(shape[0] * shape[1], self.left)
        return self.part.begin(points)

    def add(self, at: int, slots: Record, count: int) -> None:
        """Members along the first axis, then saved times; of accumulators, saved times."""
        if self.reduce is not None:
            acc, _ = _accumulated(self.reduce, slots, self.left)
            self.part.add(at, jax.tree.map(lambda x: np.asarray(x)[:count], acc))
        else:
            self.part.add(at, jax.tree.map(lambda x: _by_member(x, count)[: self.count], slots))

    def mark(self, n: int, points: Point) -> bool:
        """Good up to step n, unless a step was not solved."""
        if self.throw and not np.all(solved(points.tally)):
            return False
        self.part.mark(n, points)
        return True

    def result(self) -> PyTree:
        """The last rows go to the store; of statistics, all of them come back."""
        return self.part.close()


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


def _by_rows(fn: Callable, reduce: Any, *accs: PyTree) -> PyTree:
    """fn(reduce, *accs) along the saved times, in pieces of fixed shape so that it compiles once."""
    count = len(jax.tree.leaves(accs)[0])
    padded = jax.tree.map(lambda x: np.concatenate([x, np.repeat(x[-1:], -count % _ROWS, axis=0)]), accs)
    parts = [fn(reduce, *jax.tree.map(lambda x, i=i: x[i : i + _ROWS], padded)) for i in range(0, count, _ROWS)]
    return jax.tree.map(lambda *xs: np.concatenate([np.asarray(x) for x in xs])[:count], *parts)


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
            acc = _by_rows(_merge, self.reduce, held, acc)
            self.levels[i] = None
        self.levels.append(acc)

    def result(self) -> PyTree:
        """The statistics over all tiles."""
        acc = None
        for held in self.levels:
            if held is not None:
                acc = held if acc is None else _by_rows(_merge, self.reduce, held, acc)
        return _by_rows(_result, self.reduce, acc)


def _open_tile(first: int, size: int, width: int, members: int, mu0, by_member: bool, batch, axes) -> Tile:
    member = np.arange(first, first + size).reshape(-1, width)
    at = np.minimum(member, members - 1)
    states = mu0[at] if by_member else jnp.broadcast_to(mu0, (*member.shape, *mu0.shape))
    params = None if axes is None else jax.tree.map(lambda x, a: x[at] if a == 0 else x, batch, axes, is_leaf=_is_none)
    return Tile(jnp.asarray(member), states, params)


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
    arrays = fit_params(system.params, params)

    def axis(path, a, b):
        if b.shape == a.shape:
            return None
        if b.shape == (members, *a.shape):
            return 0
        name = "params" + jax.tree_util.keystr(path)
        raise ValueError(
            f"{name} must have shape {a.shape}, or {(members, *a.shape)} to lead with members, not {b.shape}."
        )

    return arrays, jax.tree_util.tree_map_with_path(axis, system.params, arrays)


def _check_reducer(reduce: Any) -> None:
    if reduce is None:
        return
    missing = [name for name in ("init", "update", "merge", "result") if not callable(getattr(reduce, name, None))]
    if missing or isinstance(reduce, type):
        what = f"has no {', '.join(missing)}" if missing else f"is a class: write {reduce.__name__}()"
        raise TypeError(f"reduce must be an object with init, update, merge and result, but it {what}.")


def _ensemble_traced(run: Run, mu0, by_member, batch, axes, save_fn, members, reduce, group, throw) -> Ensemble:
    """An ensemble inside a transformation of JAX's: one vmap over plain scans."""
    window = run.window(0, -(-run.steps // BLOCK))

    def one(member, mu, params):
        system = run.system if axes is None else run.system.with_params(params)
        ends = run.steps, run.save_every, group
        return scan_run(system, run.integrator, window, save_fn, run.clock, mu, *ends, member)

    point, values = jax.vmap(one, in_axes=(0, 0 if by_member else None, axes))(jnp.arange(members), mu0, batch)
    if throw:
        values = eqx.error_if(values, ~jnp.all(solved(point.tally)), "a step could not be solved: take a smaller dt.")
    stats = Stats.of(point.tally, run.steps, "scan")
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
        batch,
        axes,
    )
