"""Sinks on disk: what each tile of a run saves is committed to a store every second or so."""

import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxtyping import PyTree

from ..integrators.dissipative import user_method
from ..runtime.backends.base import Program
from ..runtime.multiprocess import agreed
from ..runtime.plan import Plan
from ..runtime.results import RunSummary, make_result
from ..runtime.run_state import Snapshot, StepState
from ..runtime.variable_names import named_leaves
from .atomic_io import StoreError, in_parallel, reason, sync
from .diagnostics import DIAGNOSTICS, Diagnostics
from .header import totals_of
from .interrupts import Stopped
from .locks import tile_locks
from .reading import Stored, contents
from .schema import rows_back, rows_of

if TYPE_CHECKING:
    from .recorder import Store
    from .remote_writer import RemoteStore

_SECONDS = 1.0  # between checkpoints, at least …
_SHARE = 40  # … and so many times what one takes
_ROWS = ".rows."  # begins the names of rows in a checkpoint
_BUFFER = 2**25  # bytes of rows that wait to be written, at most
SETTLE, COMMIT, STOP = 1, 2, 4  # what is to be done now, in all processes; one, several or none
_PATIENCE = 10.0  # seconds that others have to commit what they hold


class StoreOutput:
    """The place of one run in a store."""

    def __init__(self, store: "Store", run: int, plan: Plan, program: Program):
        self.store, self.run, self.plan, self.program = store, run, plan, program
        self.where = store.layout.where(run)
        self.last: StoreSink | None = None
        self.lock = threading.Lock()
        self.totals: dict[int, dict[int, dict[str, np.ndarray]]] = {}  # of tiles that are written together

    def sink(self, tile: int) -> "StoreSink":
        """The place of a tile."""
        self.last = sink = StoreSink(self, tile)  # not `return self.last`: another thread may have set it meanwhile
        return sink

    def result(self, outcome: RunSummary) -> Stored:
        """What reads the run when asked; what a reducer made of the members is written first."""
        if outcome.reduced is not None:
            for name, leaf in named_leaves(outcome.reduced, ""):
                rows = np.asarray(leaf)
                at = (*self.where, slice(0, len(rows)))
                self.store.arrays[name][at] = rows.reshape((*(1,) * len(self.where), *rows.shape))
                sync(self.store.path / name)
        return Stored(self.store.path, outcome.stats, lambda: self._load(outcome))

    def add_totals(self, tile: int, values: dict[str, np.ndarray]) -> None:
        """How the steps of a tile were solved: written when all tiles of its file are there."""
        together = self.store.layout.together
        first = tile // together * together
        with self.lock:
            group = self.totals.setdefault(first, {})
            group[tile] = values
            if len(group) == len(self._neighbours(first)):
                self._write_totals(first, self.totals.pop(first))

    def flush(self) -> None:
        """The run ends early: the totals of tiles that have neighbours which are not done, and theirs as they are."""
        with self.lock:
            for first in list(self.totals):
                group = self.totals.pop(first)
                for tile in self._neighbours(first):
                    found = self.store.checkpoints.read(self.run * self.store.layout.tiles + tile)
                    if tile not in group and found is not None:
                        count = min(self.plan.batch_size, (self.plan.members or 1) - tile * self.plan.batch_size)
                        group[tile] = {name: x[:count] for name, x in found.totals.items()}
                self._write_totals(first, group)

    def _neighbours(self, first: int) -> range:
        """The tiles whose totals are in one file."""
        return range(first, min(first + self.store.layout.together, self.store.layout.tiles))

    def _write_totals(self, first: int, group: dict[int, dict[str, np.ndarray]]) -> None:
        """A whole file of each variable."""
        size, members = self.plan.batch_size, self.plan.members or 1
        stop = min(self._neighbours(first).stop * size, members)

        def write(name: str) -> None:
            variable = self.store.layout.variables[name]
            rows = np.full(stop - first * size, variable.fill_value, variable.dtype)
            for tile, values in group.items():
                rows[(tile - first) * size :][: len(values[name])] = values[name]
            single = self.plan.members is None
            where = self.where if single else (*self.where, slice(first * size, stop))
            rows = rows[0] if single else rows
            self.store.arrays[name][(*where, ...)] = rows.reshape((*(1,) * len(self.where), *rows.shape))
            sync(self.store.path / name)

        in_parallel(write, list(next(iter(group.values()))), self.store.writers)

    def recovery_hint(self) -> str:
        """What is safe."""
        if self.plan.members is None and self.last is not None:
            return f" {self.store.path} holds the run up to {self.last.reached()}."
        return f" {self.store.path} holds each member up to its last checkpoint."

    def remote(self) -> "RemoteStore":
        """The same store, which must be seen there under the same name."""
        from .remote_writer import RemoteStore

        return RemoteStore(self.store.path.absolute(), self.store.layout.bare(), self.run, self.store.token)

    def collect(self, tile: int, rows: PyTree) -> None:
        """What was computed is in the store; how steps were solved is to be written together with others."""
        found = self.store.checkpoints.read(self.run * self.store.layout.tiles + tile)
        assert found is not None
        count = self.plan.count_members(range(tile, tile + 1))
        self.add_totals(tile, {name: np.atleast_1d(x)[:count] for name, x in found.totals.items()})

    def mark_failed(self, tile: int) -> None:
        """The store holds the tile up to its last checkpoint."""

    def check(self) -> None:
        """Raise if the run is to end."""
        if self.store.stop.is_set():
            raise self.stopped(f"stopped;{self.recovery_hint()} Go on with: {self.store.resume_command()}")

    def stopped(self, message: str) -> Stopped:
        """The error that ends a run, with the signal that was received."""
        return Stopped(message, getattr(self.store.stop, "number", signal.SIGINT))

    def drain(self) -> None:
        """Wait until those who write have committed, and nobody has begun since."""
        end, quiet = time.monotonic() + _PATIENCE, 0
        while quiet < 3 and time.monotonic() < end:
            quiet = 0 if any(lock.owner() for lock in tile_locks(self.store.path)) else quiet + 1
            time.sleep(0.1)

    def _load(self, outcome: RunSummary) -> Any:
        """The whole run in memory."""
        plan, tiles = self.plan, self.store.layout.tiles
        found = contents(self.store.path)
        arrays = found.arrays()
        own = found.checkpoints[self.run * tiles : (self.run + 1) * tiles]
        saved = max((c.rows for c in own if c is not None), default=0)
        lead = () if plan.members is None else (slice(None),)

        def read(name: str) -> np.ndarray:
            data = np.asarray(arrays[name][(*self.where, *lead, slice(0, saved))])
            return data.reshape(data.shape[len(self.where) :])

        if plan.reduce is not None:
            return make_result(plan, outcome, Snapshot(None, None), plan.times(0, saved))
        stored = [name for name in self.store.layout.of_kind("rows") if name not in DIAGNOSTICS]
        return make_result(
            plan, outcome, Snapshot(*rows_back(plan, {n: read(n) for n in stored})), plan.times(0, saved)
        )


class StoreSink:
    """The place of one tile: takes what is saved, and commits it every second or so.

    Rows are kept as (member, saved time, …); accumulators have an axis of length one in the place of members.
    """

    def __init__(self, output: StoreOutput, tile: int):
        self.output, self.store, self.plan, self.tile = output, output.store, output.plan, tile
        layout = self.store.layout
        self.number = output.run * layout.tiles + tile
        self.names = layout.of_kind("rows")
        self.diagnostics = None if self.plan.reduce is not None else Diagnostics(self.plan, tile, layout)
        self.fresh: list[tuple[dict[str, np.ndarray], np.ndarray | None]] = []  # rows since the last commit, and states
        self.saved = 0  # rows in all commits, the one under way included …
        self.tail: dict[str, np.ndarray] = {}  # … of which these are in a file that is not full
        self.marked: tuple[int, Callable[[], StepState] | None] = (0, None)
        self.committed = -1
        self.saving: tuple[int, Future[None]] | None = None  # the commit under way, up to which step
        self.last, self.cost = time.perf_counter(), 0.0
        self.agreed = agreed(self.plan)

    # What the loop sees.

    def restore(self, points: StepState) -> tuple[int, StepState]:
        """The step to begin with and the points before it: as they are given, or from the checkpoint."""
        found = self.store.checkpoints.read(self.number)
        if found is None:
            self.marked = (0, lambda: points)
            return 0, points
        expected, there = self._leaves(points), self.store.checkpoints.whole(found)
        kept = {name.removeprefix(_ROWS): x[None] for name, x in there.items() if name.startswith(_ROWS)}
        leaves = {name: x for name, x in there.items() if not name.startswith(_ROWS)}
        kinds = lambda named: {name: (x.shape, x.dtype) for name, x in named.items()}
        if kinds(leaves) != kinds(expected):
            raise StoreError(
                f"{self.store.checkpoints.path(self.number)} does not fit this run: it holds another state of the "
                f"integrator than {type(user_method(self.plan.integrator)).__name__} has."
            )
        shapes, structure = jax.tree.flatten(points)
        arrays = [leaves[name].reshape(x.shape) for name, x in zip(expected, shapes, strict=True)]
        found_points = jax.tree.unflatten(structure, arrays)
        self.saved = found.rows
        if self.store.layout.keeps_rows:
            self.tail = kept
        elif self._base() < self.saved:
            self.tail = {name: self._read(name, self._base(), self.saved) for name in self.names}
        self.marked, self.committed = (found.step, lambda: found_points), found.step
        return found.step, found_points

    def add(self, at: int, rows: PyTree) -> None:
        """What was saved from the saved time `at` on."""
        named, states = rows_of(self.plan, rows)
        if self.diagnostics is not None and states is not None and at == 0:
            scales = self.diagnostics.scales(states[:, 0])
            self._guard(lambda: [self._write_once(name, x) for name, x in scales.items()])
        if next(iter(named.values())).shape[1]:
            self.fresh.append(self._own(named, states))

    def _own(self, named: dict[str, np.ndarray], states: np.ndarray | None) -> tuple:
        """What of rows is written here, and the states of which there are diagnostics."""
        return named, states

    def checkpoint(self, n: int, points: Callable[[], StepState]) -> None:
        """All is well up to step n. Commits when it is time to, and when Ctrl-C was pressed."""
        self.marked = (n, points)
        wanted = int(self.agreed(self._wanted()))
        if wanted & SETTLE:
            self._settle()
        if wanted & (COMMIT | STOP):
            self.commit()
        if wanted & STOP:
            self._end()
            raise self.output.stopped(f"stopped at {self.reached()}; go on with: {self.store.resume_command()}")

    def _wanted(self) -> int:
        settle = SETTLE if self.saving is not None and self.saving[1].done() else 0
        due = time.perf_counter() - self.last >= max(_SECONDS, _SHARE * self.cost)
        waiting = sum(x.nbytes for rows, _ in self.fresh for x in rows.values())
        due = (due and (self.saving is None or settle)) or waiting >= _BUFFER
        return settle | (COMMIT if due else 0) | (STOP if self.store.stop.is_set() else 0)

    def close(self) -> PyTree:
        """Commit the rest, and how the steps were solved; of accumulators, all there are."""
        self._settle()
        if self.agreed(COMMIT if self.marked[0] != self.committed else 0):
            self.commit()
        return self._end()

    def _end(self) -> PyTree:
        """After the last commit."""
        self._settle()
        n, points = self.marked
        assert points is not None
        count = self._members.stop - self._members.start
        values = totals_of(n, {name: np.asarray(x)[:count] for name, x in points().totals._asdict().items()})
        self._guard(lambda: self.output.add_totals(self.tile, values))
        if self.plan.reduce is None:
            return None
        if self.store.layout.keeps_rows:
            leaves = [x[0] for x in self.tail.values()]
        else:
            leaves = [self._read(name, 0, 1 + n // self.plan.save_every)[0] for name in self.names]
        return jax.tree.unflatten(jax.tree.structure(self.plan.accumulator_shape), leaves)

    def reached(self) -> str:
        """How far the store holds the run."""
        n = max(self.committed, 0)
        return f"step {n} (t = {self.plan.t0 + n * self.plan.dt:g})"

    # Commits.

    def commit(self) -> None:
        """Write what is new and a checkpoint, while the run goes on; but wait for the commit before."""
        began = time.perf_counter()
        self._settle()
        n, points = self.marked
        if n == self.committed or points is None:
            return
        saved = 1 + n // self.plan.save_every
        self.saving = n, self.store.savers.submit(self._save, n, saved, self.fresh, self._leaves(points()))
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
        """The first row of the file that comes next."""
        rows = self.store.layout.rows
        return 0 if self.store.layout.keeps_rows else self.saved // rows * rows

    def _save(self, n: int, saved: int, fresh: list, leaves: dict[str, np.ndarray]) -> None:
        """Rows up to `saved`, then the checkpoint: each durable before the next."""
        self._save_rows(saved, fresh)
        if self.store.layout.keeps_rows:
            leaves = leaves | {f"{_ROWS}{name}": x[0] for name, x in self.tail.items()}
        self.store.checkpoints.save(self.number, n, saved, self.output.program.backend, leaves)

    def _save_rows(self, saved: int, fresh: list) -> None:
        """Those that are new, durably."""
        if saved > self.saved:
            in_file = self.store.layout.rows
            base, stop = self._base(), min(-(-saved // in_file) * in_file, self.store.layout.saved)
            rows = self._rows(fresh, saved - self.saved)

            def write(name: str) -> None:
                self._write(name, rows[name], base, stop)
                sync(self.store.path / name)

            in_parallel(write, self.names, self.store.writers)
            self.saved = saved
            self.tail = {name: x[:, self._base() - base : saved - base].copy() for name, x in rows.items()}

    def _rows(self, fresh: list, new: int) -> dict[str, np.ndarray]:
        """All rows from the file that comes next on, `new` ones of them fresh, with their diagnostics."""
        rows = {name: np.concatenate([named[name] for named, _ in fresh], 1)[:, :new] for name in fresh[0][0]}
        if self.diagnostics is not None:
            states = np.concatenate([states for _, states in fresh], 1)[:, :new]
            rows |= self.diagnostics.of(self.saved, states)
        return {name: np.concatenate([self.tail[name], x], 1) if self.tail else x for name, x in rows.items()}

    def _guard(self, work: Callable[[], Any]) -> None:
        """Do it; if the disk will not, say what is safe and how to go on."""
        try:
            work()
        except OSError as error:
            if not (self.store.path / "zarr.json").exists():
                raise StoreError(
                    f"{self.store.path} was moved or removed while the run wrote to it. It held the run up to "
                    f"{self.reached()}. Put it back under this name, and resume with: {self.store.resume_command()}"
                ) from error
            raise StoreError(
                f"{self.store.path} cannot be written: {reason(error)}. It holds the run up to {self.reached()}. "
                f"When that is put right, go on with: {self.store.resume_command()}"
            ) from error

    # Arrays.

    @property
    def _members(self) -> slice:
        """The members of the tile."""
        first = self.tile * self.plan.batch_size
        return slice(first, min(first + self.plan.batch_size, self.plan.members or 1))

    def _lead(self, name: str) -> tuple[slice, ...]:
        """Where this tile is in an array, along the axes before time."""
        dims = self.store.layout.variables[name].dims
        if "member" in dims:
            return (*self.output.where, self._members)
        if "tile" in dims:
            return (*self.output.where, slice(self.tile, self.tile + 1))
        return self.output.where

    def _put(self, name: str, where: tuple, data: np.ndarray) -> None:
        """Write (member, …) to a place in an array, which has no axis of members for a single trajectory."""
        lead = self._lead(name)
        data = data if len(lead) > len(self.output.where) else data[0]
        self.store.arrays[name][(*lead, *where)] = data.reshape((*(1,) * len(self.output.where), *data.shape))

    def _write(self, name: str, rows: np.ndarray, base: int, stop: int) -> None:
        """Whole files from row `base` on, filled up, so that nothing need be read."""
        shape = len(rows), stop - base - rows.shape[1], *rows.shape[2:]
        rest = np.full(shape, self.store.layout.variables[name].fill_value, rows.dtype)
        self._put(name, (slice(base, stop), *self._part(name)), np.concatenate([rows, rest], 1))

    def _part(self, name: str) -> tuple[slice, ...]:
        """Where in a row of a variable that is which is written here, if it is not all of it."""
        return ()

    def _write_once(self, name: str, value: np.ndarray) -> None:
        """What has no axis of times."""
        self._put(name, (...,), value)
        sync(self.store.path / name)

    def _read(self, name: str, first: int, last: int) -> np.ndarray:
        lead = self._lead(name)
        data = np.asarray(self.store.arrays[name][(*lead, slice(first, last), *self._part(name))])
        data = data.reshape(data.shape[len(self.output.where) :])
        return data if len(lead) > len(self.output.where) else data[None]

    def _leaves(self, points: StepState) -> dict[str, np.ndarray]:
        """The numbers of points by their names; those of a single trajectory have no axis of members."""
        named = jax.tree_util.tree_leaves_with_path(points)
        single = self.plan.members is None
        return {jax.tree_util.keystr(k): np.asarray(x)[0] if single else np.asarray(x) for k, x in named}
