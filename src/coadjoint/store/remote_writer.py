"""A store whose batches the workers of a cluster write: the parts of the client and of a worker."""

import time
from collections.abc import Iterator
from concurrent.futures import wait
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import PyTree

from ..runtime.backends.base import Program
from ..runtime.plan import Plan
from .locks import batch_lock, batch_locks
from .recorder import opened
from .schema import Layout
from .store_output import StoreOutput

_PATIENCE = 10.0  # seconds that workers have to commit


class StoreDistribution:
    """The part of a store's output that the client of a cluster uses. Workers write their rows to the store."""

    def __init__(self, output: StoreOutput):
        self.output = output

    def remote(self) -> "RemoteStore":
        """Return the same store for a worker, which must see it under the same name."""
        store = self.output.store
        return RemoteStore(store.path.absolute(), store.layout.bare(), self.output.run, store.token)

    def collect(self, batch: int, rows: PyTree) -> None:
        """Receive a batch from a worker, which has written its rows to the store."""
        found = self.output.checkpoint_of(batch)
        assert found is not None
        count = self.output.plan.count_members(range(batch, batch + 1))
        self.output.add_totals(batch, {name: np.atleast_1d(x)[:count] for name, x in found.totals.items()})

    def mark_failed(self, batch: int) -> None:
        """Keep the batch up to its last checkpoint."""

    def check(self) -> None:
        """Raise if the run was interrupted."""
        if self.output.store.stop.is_set():
            raise self.output.stopped(
                f"stopped;{self.output.recovery_hint()} Resume with: {self.output.store.resume_command()}"
            )

    def drain(self) -> None:
        """Wait until all workers have committed and released their locks."""
        end, quiet = time.monotonic() + _PATIENCE, 0
        while quiet < 3 and time.monotonic() < end:
            quiet = 0 if any(lock.owner() for lock in batch_locks(self.output.store.path)) else quiet + 1
            time.sleep(0.1)


class RemoteStore:
    """A run in a store that another process holds. The owner of a batch's lock writes that batch."""

    def __init__(self, path: Path, layout: Layout, run: int, token: str):
        self.path, self.layout, self.run, self.token = path, layout, run, token

    @contextmanager
    def output(self, plan: Plan, program: Program, numbers: range, stop: Any) -> Iterator[StoreOutput]:
        """Return the output for some batches, after a worker that lost its connection has released them."""
        with ExitStack() as stack:
            for batch in numbers:
                lock = batch_lock(self.path, self.run * self.layout.n_batches + batch)
                lock.wait(stop)
                stack.callback(lock.remove)
            store = opened(self.path, self.layout, self.token, stop)
            output = StoreOutput(store, self.run, plan, program, writes_totals=False)
            try:
                yield output
            finally:
                wait(list(output.saves))

    def rows(self, output: StoreOutput) -> list[PyTree]:
        """Return no rows: they are in the store."""
        return [None] * output.n_sinks
