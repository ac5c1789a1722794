"""A store as a worker sees it, which runs batches for the process that holds the store."""

from collections.abc import Iterator
from concurrent.futures import wait
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from jaxtyping import PyTree

from ..runtime.backends.base import Program
from ..runtime.plan import Plan
from .locks import batch_lock
from .recorder import opened
from .schema import Layout
from .store_output import StoreOutput


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
