"""The sink of a store: it commits the rows of a batch, and a checkpoint, about every second."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxtyping import PyTree

from ..integrators.jump_adapted import user_method
from ..runtime import tuning
from ..runtime.multiprocess import agreed
from ..runtime.run_state import StepState
from .atomic_io import StoreError, in_parallel, reason, sync, write, write_all
from .diagnostics import Diagnostics
from .header import totals_of
from .locks import CHECKPOINTS
from .manifest import CommitLog, checkpoint_name, log_name
from .schema import group_back, rows_of
from .zarr_files import collected

if TYPE_CHECKING:
    from .store_output import StoreOutput

_ROWS = ".rows."  # prefix of the names of rows in a checkpoint
SETTLE, COMMIT, STOP = 1, 2, 4  # flags: the actions of all processes at a checkpoint


class BatchSink(ABC):
    """The sink of one batch. A subclass defines which rows and matrices this process writes.

    Rows have the shape (member, saved time, …); accumulators have an axis of length one for members.
    """

    def __init__(self, output: "StoreOutput", batch: int, process: int = 0):
        self.output, self.store, self.plan, self.batch = output, output.store, output.plan, batch
        layout = self.store.layout
        self.number = output.number(batch)
        self.names = layout.of_kind("rows")
        self.diagnostics = None if self.plan.reduce is not None else Diagnostics(self.plan, batch, layout)
        self.fresh: list[tuple[dict[str, np.ndarray], np.ndarray | None]] = []  # rows since the last commit, and states
        self.once: dict[str, bytes] = {}  # files without an axis of times, for the first commit
        self.saved = 0  # rows in all commits, including the one in progress
        self.tail: dict[str, np.ndarray] = {}  # those of them that are in a chunk that is not full
        self.marked: tuple[int, Callable[[], StepState] | None] = (0, None)
        self.committed = -1
        self.commits = 0  # number of the last commit
        self.log = CommitLog(self.store.manifest, log_name(self.number, process))
        self.saving: tuple[int, Future[None]] | None = None  # the commit in progress, and its step
        self.last, self.cost = time.perf_counter(), 0.0
        self.agreed = agreed(self.plan)

    # The differences between one process and several.

    @abstractmethod
    def _own(self, named: dict[str, np.ndarray], states: np.ndarray | None) -> tuple:
        """Return the part of rows that this process writes, and the states for diagnostics."""

    @abstractmethod
    def _part(self, name: str) -> tuple[slice, ...]:
        """Return the part of each row of a variable that this process writes, if not all of it."""

    @abstractmethod
    def _leaves(self, points: StepState) -> dict[str, np.ndarray]:
        """Return the arrays of a step state by name; those of a single trajectory have no axis of members."""

    @abstractmethod
    def _save(self, n: int, saved: int, fresh: list, leaves: dict[str, np.ndarray]) -> None:
        """Write rows up to `saved`, then the checkpoint. The log lists both before any file is touched."""

    @abstractmethod
    def _wait_for_commit(self) -> None:
        """Wait for the commit in progress."""

    # The protocol of a sink.

    def restore(self, initial: Callable[[], StepState]) -> tuple[int, StepState]:
        """Return the first step and the state before it: that of the checkpoint, or step 0 and `initial()`."""
        self.store.manifest.load_batch(self.number)
        found = self.store.checkpoints.read(self.number)
        self.commits = self.store.manifest.numbers[self.number]
        if found is None:
            points = initial()
            self.marked = (0, lambda: points)
            return 0, points
        self.commits = max(self.commits, found.commit)
        shapes, structure = jax.tree_util.tree_flatten_with_path(self.plan.checkpoint_shape)
        lead = () if self.plan.members is None else (self.plan.batch_size,)
        expected = {jax.tree_util.keystr(k): ((*lead, *s.shape), s.dtype) for k, s in shapes}
        there = self.store.checkpoints.whole(found)
        kept = {name.removeprefix(_ROWS): x[None] for name, x in there.items() if name.startswith(_ROWS)}
        leaves = {name: x for name, x in there.items() if not name.startswith(_ROWS)}
        if {name: (x.shape, x.dtype) for name, x in leaves.items()} != expected:
            raise StoreError(
                f"{self.store.checkpoints.path(self.number)} does not fit this run: it contains another state of the "
                f"integrator than {type(user_method(self.plan.integrator)).__name__} has."
            )
        arrays = [leaves[name] if lead else leaves[name][None] for name in expected]
        found_points = jax.tree.unflatten(structure, arrays)
        self.saved = found.rows
        if self.store.layout.keeps_rows:
            self.tail = kept
        elif self._base() < self.saved:
            self.tail = {name: self._read(name, self._base(), self.saved) for name in self.names}
        self.marked, self.committed = (found.step, lambda: found_points), found.step
        return found.step, found_points

    def add(self, at: int, rows: PyTree) -> None:
        """Receive rows from the saved time `at` on."""
        named, states = rows_of(self.plan, rows)
        if self.diagnostics is not None and states is not None and at == 0:
            with collected() as self.once:
                for name, x in self.diagnostics.scales(states[:, 0]).items():
                    self._put(name, (...,), x)
        if next(iter(named.values())).shape[1]:
            self.fresh.append(self._own(named, states))

    def checkpoint(self, n: int, points: Callable[[], StepState]) -> None:
        """Receive the last valid step. Commit if it is time, or if the run was interrupted."""
        self.marked = (n, points)
        wanted = int(self.agreed(self._wanted()))
        if wanted & SETTLE:
            self._wait_for_commit()
        if wanted & (COMMIT | STOP):
            self.commit()
        if wanted & STOP:
            self._end()
            raise self.output.stopped(f"stopped at {self.reached()}; resume with: {self.store.resume_command()}")

    def _wanted(self) -> int:
        settle = SETTLE if self.saving is not None and self.saving[1].done() else 0
        limits = tuning.current()
        due = time.perf_counter() - self.last >= max(limits.checkpoint_seconds, limits.checkpoint_share * self.cost)
        waiting = sum(x.nbytes for rows, _ in self.fresh for x in rows.values())
        due = (due and (self.saving is None or settle)) or waiting >= limits.buffer_bytes
        return settle | (COMMIT if due else 0) | (STOP if self.store.stop.is_set() else 0)

    def close(self) -> None:
        """Commit the rest and the solver statistics."""
        self._wait_for_commit()
        if self.agreed(COMMIT if self.marked[0] != self.committed else 0):
            self.commit()
        self._end()

    def _end(self) -> None:
        """Finish after the last commit."""
        self._wait_for_commit()
        n, points = self.marked
        assert points is not None
        count = self._members.stop - self._members.start
        values = totals_of(n, {name: np.asarray(x)[:count] for name, x in points().totals._asdict().items()})
        self._guard(lambda: self.output.add_totals(self.batch, values))

    def accumulators(self) -> PyTree:
        """Return the accumulators of all saved times."""
        if self.store.layout.keeps_rows:
            empty = (np.zeros((0, *s.shape), s.dtype) for s in jax.tree.leaves(self.plan.accumulator_shape))
            leaves = [x[0] for x in self.tail.values()] or list(empty)  # before the first of given times
        else:
            leaves = [self._read(name, 0, self.plan.saved.up_to(self.marked[0]))[0] for name in self.names]
        return jax.tree.unflatten(jax.tree.structure(self.plan.accumulator_shape), leaves)

    def reached(self) -> str:
        """Return the last step in the store, in words."""
        n = max(self.committed, 0)
        return f"step {n} (t = {self.plan.t0 + n * self.plan.dt:g})"

    # Commits.

    def commit(self) -> None:
        """Write new rows and a checkpoint in another thread, after the commit before."""
        began = time.perf_counter()
        self._wait_for_commit()
        n, points = self.marked
        if n == self.committed or points is None:
            return
        self.commits += 1
        saved = self.plan.saved.up_to(n)
        self.saving = n, self.output.submit(self._save, n, saved, self.fresh, self._leaves(points()))
        self.fresh = []
        self.last = time.perf_counter()
        self.cost = self.last - began

    def _base(self) -> int:
        """Return the first row of the chunk that is written next."""
        rows = self.store.layout.rows
        return 0 if self.store.layout.keeps_rows else self.saved // rows * rows

    def _commit_files(self, files: dict[str, bytes], checkpoint: bytes) -> None:
        """Write a complete commit."""
        name = checkpoint_name(self.number)
        self.log.announce(self.commits, files | {name: checkpoint})
        write_all(self.store.path, files, self.store.writers)
        write(self.store.path / name, checkpoint)
        sync(self.store.path / CHECKPOINTS)
        self.log.confirm(self.commits, files | {name: checkpoint})

    def _encode_rows(self, saved: int, fresh: list) -> dict[str, bytes]:
        """Return the chunks with new rows as files."""
        once, self.once = self.once, {}
        if saved <= self.saved:
            return once
        in_file = self.store.layout.rows
        base, stop = self._base(), min(-(-saved // in_file) * in_file, self.store.layout.saved)
        rows = self._rows(fresh, saved - self.saved)

        def encode(name: str) -> dict[str, bytes]:
            with collected() as files:
                self._write(name, rows[name], base, stop)
            return files

        found = in_parallel(encode, self.names, self.store.writers)
        self.saved = saved
        self.tail = {name: x[:, self._base() - base : saved - base].copy() for name, x in rows.items()}
        return once | {name: data for files in found for name, data in files.items()}

    def _rows(self, fresh: list, new: int) -> dict[str, np.ndarray]:
        """Return all rows of the chunk that is written next: the tail, `new` fresh ones, and their diagnostics."""
        rows = {name: np.concatenate([named[name] for named, _ in fresh], 1)[:, :new] for name in fresh[0][0]}
        if self.diagnostics is not None:
            states = np.concatenate([states for _, states in fresh], 1)[:, :new]
            rows |= self.diagnostics.of(self.saved, states, group_back(self.diagnostics.plan, rows))
        return {name: np.concatenate([self.tail[name], x], 1) if self.tail else x for name, x in rows.items()}

    def _guard(self, work: Callable[[], Any]) -> None:
        """Call a function; if the disk fails, raise an error with the last step in the store and the remedy."""
        try:
            work()
        except OSError as error:
            if not (self.store.path / "zarr.json").exists():
                raise StoreError(
                    f"{self.store.path} was moved or removed while the run wrote to it. It contained the run up to "
                    f"{self.reached()}. Put it back under this name, and resume with: {self.store.resume_command()}"
                ) from error
            raise StoreError(
                f"{self.store.path} cannot be written: {reason(error)}. It contains the run up to {self.reached()}. "
                f"When that is fixed, resume with: {self.store.resume_command()}"
            ) from error

    # Arrays.

    @property
    def _members(self) -> slice:
        """The members of the batch."""
        first = self.batch * self.plan.batch_size
        return slice(first, min(first + self.plan.batch_size, self.plan.members or 1))

    def _lead(self, name: str) -> tuple[slice, ...]:
        """Return the position of this batch in an array, along the axes before time."""
        dims = self.store.layout.variables[name].dims
        if "member" in dims:
            return (*self.output.where, self._members)
        if "batch" in dims:
            return (*self.output.where, slice(self.batch, self.batch + 1))
        return self.output.where

    def _put(self, name: str, where: tuple, data: np.ndarray) -> None:
        """Write (member, …) to an array, which has no axis of members for a single trajectory."""
        lead = self._lead(name)
        data = data if len(lead) > len(self.output.where) else data[0]
        self.store.arrays[name][(*lead, *where)] = data.reshape((*(1,) * len(self.output.where), *data.shape))

    def _write(self, name: str, rows: np.ndarray, base: int, stop: int) -> None:
        """Write whole chunks from row `base` on, padded, so that nothing needs to be read."""
        shape = len(rows), stop - base - rows.shape[1], *rows.shape[2:]
        rest = np.full(shape, self.store.layout.variables[name].fill_value, rows.dtype)
        self._put(name, (slice(base, stop), *self._part(name)), np.concatenate([rows, rest], 1))

    def _read(self, name: str, first: int, last: int) -> np.ndarray:
        lead = self._lead(name)
        data = np.asarray(self.store.arrays[name][(*lead, slice(first, last), *self._part(name))])
        data = data.reshape(data.shape[len(self.output.where) :])
        return data if len(lead) > len(self.output.where) else data[None]


class StoreSink(BatchSink):
    """The sink of a batch that one process runs."""

    def _own(self, named: dict[str, np.ndarray], states: np.ndarray | None) -> tuple:
        """Return the part of rows that this process writes, and the states for diagnostics."""
        return named, states

    def _part(self, name: str) -> tuple[slice, ...]:
        """Return the part of each row that this process writes, if not all of it."""
        return ()

    def _leaves(self, points: StepState) -> dict[str, np.ndarray]:
        """Return the arrays of a step state by name; those of a single trajectory have no axis of members."""
        named = jax.tree_util.tree_leaves_with_path(points)
        single = self.plan.members is None
        return {jax.tree_util.keystr(k): np.asarray(x)[0] if single else np.asarray(x) for k, x in named}

    def _save(self, n: int, saved: int, fresh: list, leaves: dict[str, np.ndarray]) -> None:
        """Write rows up to `saved`, then the checkpoint. The log lists both before any file is touched."""
        files = self._encode_rows(saved, fresh)
        if self.store.layout.keeps_rows:
            leaves = leaves | {f"{_ROWS}{name}": x[0] for name, x in self.tail.items()}
        backend = self.output.program.backend
        data = self.store.checkpoints.encode(self.number, n, saved, self.commits, backend, leaves)
        self._commit_files(files, data)

    def _wait_for_commit(self) -> None:
        """Wait for the commit in progress."""
        if self.saving is not None:
            (n, future), self.saving = self.saving, None
            self._guard(future.result)
            self.committed = n
