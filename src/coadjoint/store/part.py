"""One part of a store: a trajectory, or a tile of members, that is committed every second or so."""

import math
import time
import warnings
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..numerics.functions import Constant
from ..running.chunk import Point, Record
from ..running.solution import Solution, Stats, mapped
from ..running.solving import Job
from .durable import StoreError, in_parallel, load_checkpoint, save_checkpoint, sync
from .layout import STATISTICS, rows_of, states_in
from .reading import FORMAT, Stored, checkpoint_path, reason

if TYPE_CHECKING:
    from .recording import Place

_SECONDS = 1.0  # between checkpoints, at least …
_SHARE = 40  # … and so many times what one takes
_BUFFER = 2**25  # bytes of rows that wait to be written, at most
_BATCH = 2**19  # Casimirs and energies of b states with d numbers are computed together as long as b d² is below


class Stopped(KeyboardInterrupt):
    """A run that was interrupted: its store is whole, and the message says how to go on."""


class Part:
    """One part of a store: takes what is saved, and commits it every second or so."""

    def __init__(self, place: "Place", number: int, path: str):
        self.place, self.store, self.path = place, place.store, path
        self.job: Job = place.job
        layout = self.store.layout
        self.where, self.tile = layout.place(number)
        self.first = self.tile * layout.tile
        last = self.first + layout.tile
        self.members = None if layout.members is None else slice(self.first, min(last, layout.members))
        self.checkpoint = checkpoint_path(self.store.path, number)
        self.chunk = layout.rows
        self.names = layout.of_kind("rows")
        self.time = 0 if self.members is None or self.job.reduce is not None else 1  # the axis; members come first
        self.fresh: list[dict[str, np.ndarray]] = []  # rows since the last commit
        self.saved = 0  # rows in all commits, the one under way included …
        self.tail: dict[str, np.ndarray] = {}  # … of which these are in a chunk that is not full
        self.marked: tuple[int, Point | None] = (0, None)
        self.committed = -1
        self.saving: tuple[int, Future[None]] | None = None  # the commit under way, up to which step
        self.last, self.cost = time.perf_counter(), 0.0

    def begin(self, point: Point) -> tuple[int, Point]:
        """The step to begin with and the point before it: as they are given, or from the checkpoint."""
        found = load_checkpoint(self.checkpoint)
        if found is None:
            self.marked = (0, point)
            return 0, point
        header, leaves = found
        expected = self._leaves(point)
        given = [(n, list(x.shape), str(x.dtype)) for n, x in expected]
        if header.get("leaves") != [list(g) for g in given] or len(leaves) != len(given):
            raise StoreError(
                f"{self.checkpoint} does not fit this run: it holds another state of the integrator than "
                f"{type(self.job.run.integrator).__name__} has."
            )
        if header["path"] != self.path:
            warnings.warn(
                f"{self.store.path} was computed on the path {header['path']!r}, and goes on on {self.path!r}: its "
                "last bits may differ from an uninterrupted run.", RuntimeWarning, stacklevel=2,
            )  # fmt: skip
        shapes, structure = jax.tree.flatten(point)
        arrays = [jnp.asarray(x.reshape(s.shape)) for x, s in zip(leaves, shapes, strict=True)]
        point = jax.tree.unflatten(structure, arrays)
        n, self.saved = header["step"], header["rows"]
        if self._base() < self.saved:
            self.tail = {name: self._read(name, self._base(), self.saved) for name in self.names}
        self.marked, self.committed = (n, point), n
        return n, point

    def add(self, at: int, record: Any) -> None:
        """What was saved from the saved time `at` on."""
        rows = rows_of(self.job, record)
        if self.members is None:
            rows = {name: x.copy() for name, x in rows.items()}  # not the slots they lie in
        states = states_in(rows)
        if states is not None and at == 0:
            self._write_scales(states.take(0, self.time))
        if next(iter(rows.values())).shape[self.time]:
            self.fresh.append(rows)

    def mark(self, n: int, point: Point) -> None:
        """All is well up to step n. Commits when it is time to, and when Ctrl-C was pressed."""
        self.marked = (n, point)
        if self.store.stop.is_set():
            self.close()
            raise Stopped(f"stopped at {self._reached()}; go on with: {self.store.how_to_go_on()}")
        if self.saving is not None and self.saving[1].done():
            self._settle()
        due = time.perf_counter() - self.last >= max(_SECONDS, _SHARE * self.cost)
        waiting = sum(x.nbytes for rows in self.fresh for x in rows.values())
        if (due and self.saving is None) or waiting >= _BUFFER:
            self.commit()

    def note(self) -> str:
        """For an error: what is safe."""
        return f" {self.store.path} holds the run up to {self._reached()}."

    def _reached(self) -> str:
        n = max(self.committed, 0)
        return f"step {n} (t = {self.job.run.t0 + n * self.job.run.dt:g})"

    def result(self, integrator: Any, stats: Stats, custom: bool) -> "Stored":
        """What `solve` returns."""
        self.close()
        run = self.job.run

        def build(values: Record, times: np.ndarray) -> Solution:
            return Solution(run.system, integrator, times, values.values, values.g, stats, run.dt, custom)

        return Stored(self.store.path, stats, self.place.loader(build))

    def close(self) -> PyTree:
        """Commit the rest, and the statistics of the solver; of accumulators, all there are."""
        self.commit()
        self._settle()
        n, point = self.marked
        assert point is not None
        values = self._statistics(n, point)
        write = lambda name: self._write_once(name, values[name])
        self._guard(lambda: in_parallel(write, list(values), self.store.writers))
        if self.job.reduce is None:
            return None
        shapes = jax.eval_shape(self.job.reduce.init, self.job.record.values)
        leaves = [self._read(name, 0, 1 + n // self.job.run.save_every) for name in self.names]
        return jax.tree.unflatten(jax.tree.structure(shapes), leaves)

    def commit(self) -> None:
        """Write what is new and a checkpoint, while the run goes on; but wait for the commit before."""
        began = time.perf_counter()
        self._settle()
        n, point = self.marked
        if n == self.committed or point is None:
            return
        saved = 1 + n // self.job.run.save_every
        self.saving = n, self.store.savers.submit(self._save, n, saved, self.fresh, self._leaves(point))
        self.fresh = []
        self.last = time.perf_counter()
        self.cost = self.last - began

    def _settle(self) -> None:
        """Wait for the commit under way."""
        if self.saving is not None:
            (n, future), self.saving = self.saving, None
            self._guard(future.result)
            self.committed = n

    def _base(self) -> int:
        """The first row of the chunk that comes next."""
        return self.saved // self.chunk * self.chunk

    def _save(self, n: int, saved: int, fresh: list[dict[str, np.ndarray]], leaves: list) -> None:
        """Rows up to `saved`, then the checkpoint: each durable before the next."""
        if saved > self.saved:
            base, stop = self._base(), min(-(-saved // self.chunk) * self.chunk, self.store.layout.saved)
            rows = self._rows(fresh, saved)

            def write(name: str) -> None:
                self._write(name, rows[name], base, stop)
                sync(self.store.path / name)

            in_parallel(write, self.names, self.store.writers)
            self.saved = saved
            self.tail = {name: self._between(x, self._base() - base, saved - base).copy() for name, x in rows.items()}
        header = {
            "format": FORMAT,
            "step": n,
            "rows": saved,
            "path": self.path,
            "leaves": [[name, list(x.shape), str(x.dtype)] for name, x in leaves],
        }
        save_checkpoint(self.checkpoint, header, [x for _, x in leaves])

    def _rows(self, fresh: list[dict[str, np.ndarray]], saved: int) -> dict[str, np.ndarray]:
        """All rows from the chunk that comes next on, up to `saved`; Casimirs and energy of the fresh ones included."""
        new = saved - self.saved

        def joined(name: str, parts: list[np.ndarray]) -> np.ndarray:
            parts = [self.tail[name], *parts] if name in self.tail else parts
            before = parts[0].shape[self.time] if name in self.tail else 0
            return self._between(np.concatenate(parts, self.time), 0, before + new)

        rows = {name: joined(name, [x[name] for x in fresh]) for name in fresh[0]}
        states = states_in(rows)
        if states is not None:
            count = states.shape[self.time]
            derived = self._derived(self.saved, self._between(states, count - new, count))
            rows |= {name: joined(name, [x]) for name, x in derived.items()}
        return {name: rows[name] for name in self.names}

    def _between(self, rows: np.ndarray, first: int, last: int) -> np.ndarray:
        """Saved times first … last − 1."""
        return rows[(slice(None),) * self.time + (slice(first, last),)]

    def _guard(self, work: Callable[[], None]) -> None:
        """Do it; if the disk will not, say what is safe and how to go on."""
        try:
            work()
        except OSError as error:
            raise StoreError(
                f"{self.store.path} cannot be written: {reason(error)}. It holds the run up to {self._reached()}. "
                f"When that is put right, go on with: {self.store.how_to_go_on()}"
            ) from error

    # Arrays.

    def _lead(self, name: str) -> tuple[slice, ...]:
        """Where this part is along the axes before time."""
        dims = self.store.layout.variables[name].dims
        if "member" in dims:
            return (*self.where, self.members)  # type: ignore[return-value]
        if "tile" in dims:
            return (*self.where, slice(self.tile, self.tile + 1))
        return self.where

    def _write(self, name: str, rows: np.ndarray, base: int, stop: int) -> None:
        """Whole chunks from row `base` on, filled up, so that nothing need be read."""
        variable = self.store.layout.variables[name]
        lead = self._lead(name)
        shape = list(rows.shape)
        shape[self.time] = stop - base - shape[self.time]
        whole = np.concatenate([rows, np.full(shape, variable.fill_value, rows.dtype)], self.time)
        if "tile" in variable.dims:
            whole = whole[None]
        where = len(self.where)
        self.store.arrays[name][(*lead, slice(base, stop))] = whole.reshape(*(1,) * where, *whole.shape)

    def _read(self, name: str, first: int, last: int) -> np.ndarray:
        dims = self.store.layout.variables[name].dims
        data = np.asarray(self.store.arrays[name][(*self._lead(name), slice(first, last))])
        data = data.reshape(data.shape[len(self.where) :])
        return data[0] if "tile" in dims else data

    def _write_once(self, name: str, value: np.ndarray) -> None:
        """What has no axis of times."""
        lead = (*self.where, self.members) if self.members is not None else self.where
        self.store.arrays[name][(*lead, ...)] = value.reshape((*(1,) * len(self.where), *value.shape))
        sync(self.store.path / name)

    def _leaves(self, point: Point) -> list[tuple[str, np.ndarray]]:
        """The numbers of a point by their names; the members of a tile stand in a row, whatever their groups."""
        out = []
        for path, leaf in jax.tree_util.tree_leaves_with_path(point):
            x = np.asarray(leaf)
            out.append((jax.tree_util.keystr(path), x if self.members is None else x.reshape(-1, *x.shape[2:])))
        return out

    def _statistics(self, n: int, point: Point) -> dict[str, np.ndarray]:
        tally = [np.asarray(x) for x in point.tally]
        if self.members is not None:
            tally = [x.reshape(-1)[: self.members.stop - self.members.start] for x in tally]
        return dict(zip(STATISTICS, [np.full_like(tally[0], n), *tally], strict=True))

    # Casimirs and energy.

    def _derived(self, at: int, states: np.ndarray) -> dict[str, np.ndarray]:
        """Of each state in a batch of fixed shape, at a place that depends on its time and member alone."""
        layout = self.store.layout
        width = layout.tile
        shape = self.job.run.system.algebra.shape
        height = min(layout.rows, 1 << (max(1, _BATCH // (width * math.prod(shape) ** 2)).bit_length() - 1))
        states = states if self.members is not None else states[None]
        count, new = states.shape[:2]
        member = np.minimum(self.first + np.arange(width), (layout.members or 1) - 1).repeat(height)
        out: dict[str, list[np.ndarray]] = {}
        row, stop = at, at + new
        while row < stop:
            start = row // height * height
            end = min(start + height, stop)
            batch = states[:, row - at : end - at]
            if batch.shape[:2] != (width, height):
                batch = np.broadcast_to(states[0, row - at], (width, height, *shape)).copy()
                batch[:count, row - start : end - start] = states[:, row - at : end - at]
            for name, value in self._values(jnp.asarray(batch.reshape(-1, *shape)), member).items():
                value = np.asarray(value).reshape(width, height, *np.shape(value)[1:])
                value = value[:count, row - start : end - start]
                out.setdefault(name, []).append(value if self.members is not None else value[0])
            row = end
        return {name: np.concatenate(parts, self.time) for name, parts in out.items()}

    def _values(self, states: Any, member: np.ndarray) -> dict[str, Any]:
        algebra = self.job.run.system.algebra
        values = {"energy": self.job.energy(states, member)}
        if algebra.casimir_names:
            values["casimirs"] = mapped(Constant(algebra.casimirs), states)
        return values

    def _write_scales(self, states: np.ndarray) -> None:
        algebra = self.job.run.system.algebra
        if not algebra.casimir_names:
            return
        rows = states if self.members is not None else states[None]
        width = self.store.layout.tile
        batch = np.concatenate([rows, np.repeat(rows[:1], width - len(rows), axis=0)])
        scales = np.asarray(mapped(Constant(algebra.casimir_scales), jnp.asarray(batch)))[: len(rows)]
        self._guard(lambda: self._write_once("casimir_scale", scales if self.members is not None else scales[0]))
