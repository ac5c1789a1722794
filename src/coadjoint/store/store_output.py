"""The output of a run in a store: a sink for each batch, the solver statistics, and the result."""

import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import numpy as np

from ..runtime.backends.base import Program
from ..runtime.events import Events
from ..runtime.plan import Plan
from ..runtime.results import RunSummary, make_result
from ..runtime.run_state import Snapshot
from ..runtime.variable_names import event_variables, named_leaves
from .checkpoints import Checkpoint
from .diagnostics import DIAGNOSTICS
from .interrupts import Stopped
from .reading import Stored, contents
from .schema import rows_back
from .store_sink import BatchSink, StoreSink
from .zarr_files import collected

if TYPE_CHECKING:
    from .recorder import Store
    from .remote_writer import StoreDistribution


class StoreOutput:
    """The output of one run in a store.

    `make_sink` is the class of its sinks. Only the process that holds the store writes totals (`writes_totals`).
    """

    in_memory: bool = False

    def __init__(
        self,
        store: "Store",
        run: int,
        plan: Plan,
        program: Program,
        make_sink: Callable[["StoreOutput", int], BatchSink] = StoreSink,
        writes_totals: bool = True,
    ):
        self.store, self.run, self.plan, self.program = store, run, plan, program
        self.make_sink, self.writes_totals = make_sink, writes_totals
        self.where = store.layout.where(run)
        self.last: BatchSink | None = None
        self.n_sinks = 0
        self.lock = threading.Lock()
        self.saves: set[Future] = set()  # commits in progress
        self.totals: dict[int, dict[int, dict[str, np.ndarray]]] = {}  # by group of batches with a common file

    def sink(self, batch: int) -> BatchSink:
        """Return the sink of a batch."""
        self.n_sinks += 1
        self.last = sink = self.make_sink(self, batch)  # another thread may set self.last
        return sink

    def put(self, batches: range, rows: Any) -> None:
        """Not called: batches go through sinks."""

    def submit(self, save: Callable[..., None], *arguments: Any) -> Future:
        """Start a commit in another thread."""
        future = self.store.savers.submit(save, *arguments)
        self.saves.add(future)
        future.add_done_callback(self.saves.discard)
        return future

    def number(self, batch: int) -> int:
        """Return the number of a batch, through all runs."""
        return self.run * self.store.layout.n_batches + batch

    def result(self, outcome: RunSummary) -> Stored:
        """Write what a reducer returned, and events, and return an object that reads the run."""
        if outcome.events is not None:
            self._write_events(outcome.events)
        if outcome.reduced is not None:
            with collected() as files:
                for name, leaf in named_leaves(outcome.reduced, ""):
                    rows = np.asarray(leaf)
                    at = (*self.where, slice(0, len(rows)))
                    self.store.arrays[name][at] = rows.reshape((*(1,) * len(self.where), *rows.shape))
            self.store.commit(files)
        return Stored(self.store.path, outcome.stats, lambda: self._load(outcome))

    def _write_events(self, events: Events) -> None:
        """Write the events of the members that were computed."""
        with collected() as files:
            for name, (_, value, _) in event_variables(events, self.plan.system.algebra, ()).items():
                members = () if self.plan.members is None else (slice(0, len(value)),)
                rows = value.reshape((*(1,) * len(self.where), *value.shape))
                self.store.arrays[name][(*self.where, *members, ...)] = rows
        self.store.commit(files)

    def add_totals(self, batch: int, values: dict[str, np.ndarray]) -> None:
        """Receive the solver statistics of a batch, and write them when all batches of their file have ended."""
        if not self.writes_totals:  # they are in the checkpoint
            return
        size = self.store.layout.totals_group
        first = batch // size * size
        with self.lock:
            group = self.totals.setdefault(first, {})
            group[batch] = values
            if len(group) == len(self._group(first)):
                self._write_totals(first, self.totals.pop(first))

    def flush(self) -> None:
        """Write the solver statistics that are left when a run ends early."""
        with self.lock:
            for first in list(self.totals):
                group = self.totals.pop(first)
                for batch in self._group(first):
                    found = self.checkpoint_of(batch)
                    if batch not in group and found is not None:
                        count = min(self.plan.batch_size, (self.plan.members or 1) - batch * self.plan.batch_size)
                        group[batch] = {name: x[:count] for name, x in found.totals.items()}
                self._write_totals(first, group)

    def _group(self, first: int) -> range:
        """Return the batches with solver statistics in the same file."""
        return range(first, min(first + self.store.layout.totals_group, self.store.layout.n_batches))

    def _write_totals(self, first: int, group: dict[int, dict[str, np.ndarray]]) -> None:
        """Write a whole file of each variable."""
        size, members = self.plan.batch_size, self.plan.members or 1
        stop = min(self._group(first).stop * size, members)
        with collected() as files:
            for name in next(iter(group.values())):
                variable = self.store.layout.variables[name]
                rows = np.full(stop - first * size, variable.fill_value, variable.dtype)
                for batch, values in group.items():
                    rows[(batch - first) * size :][: len(values[name])] = values[name]
                single = self.plan.members is None
                where = self.where if single else (*self.where, slice(first * size, stop))
                rows = rows[0] if single else rows
                self.store.arrays[name][(*where, ...)] = rows.reshape((*(1,) * len(self.where), *rows.shape))
        self.store.commit(files)

    def recovery_hint(self) -> str:
        """Return a sentence on what the store contains."""
        if self.plan.members is None and self.last is not None:
            return f" {self.store.path} contains the run up to {self.last.reached()}."
        return f" {self.store.path} contains each member up to its last checkpoint."

    def distribution(self) -> "StoreDistribution":
        """Return the part of the output that clusters use."""
        from .remote_writer import StoreDistribution

        return StoreDistribution(self)

    def checkpoint_of(self, batch: int) -> Checkpoint | None:
        """Read the checkpoint of a batch that another process may have written."""
        self.store.manifest.load_batch(self.number(batch))
        return self.store.checkpoints.read(self.number(batch))

    def stopped(self, message: str) -> Stopped:
        """Return the error that ends a run, with the signal that was received."""
        return Stopped(message, getattr(self.store.stop, "number", signal.SIGINT))

    def _load(self, outcome: RunSummary) -> Any:
        """Read the whole run into memory."""
        plan, batches = self.plan, self.store.layout.n_batches
        found = contents(self.store.path)
        arrays = found.arrays()
        own = found.checkpoints[self.run * batches : (self.run + 1) * batches]
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
