"""Stores seen from a process that runs tiles for the one that holds the store."""

from collections.abc import Iterator
from concurrent.futures import wait
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import PyTree

from ..runtime.backends.base import Program
from ..runtime.plan import Plan
from .locks import tile_lock
from .recorder import Store, opened
from .schema import Layout
from .store_sink import StoreOutput, StoreSink


class RemoteStore:
    """A run in a store that another process holds. Here a tile is written by who has the tile's own lock."""

    def __init__(self, path: Path, layout: Layout, run: int, token: str):
        self.path, self.layout, self.run, self.token = path, layout, run, token

    @contextmanager
    def output(self, plan: Plan, program: Program, numbers: range, stop: Any) -> "Iterator[WorkerOutput]":
        """The places of some tiles, once nobody else is at them: who was cut off from the cluster may still be."""
        with ExitStack() as stack:
            for tile in numbers:
                lock = tile_lock(self.path, self.run * self.layout.tiles + tile)
                lock.wait(stop)
                stack.callback(lock.remove)
            output = WorkerOutput(opened(self.path, self.layout, self.token, stop), self.run, plan, program)
            try:
                yield output
            finally:
                wait([sink.saving[1] for sink in output.sinks if sink.saving is not None])

    def rows(self, output: "WorkerOutput") -> list[PyTree]:
        """Nothing: what was computed is in the store."""
        return [None for _ in output.sinks]


class WorkerOutput(StoreOutput):
    """The place of some tiles: what is written together with others is left to who holds the store."""

    def __init__(self, store: Store, run: int, plan: Plan, program: Program):
        super().__init__(store, run, plan, program)
        self.sinks: list[StoreSink] = []

    def sink(self, tile: int) -> StoreSink:
        """The place of a tile."""
        sink = super().sink(tile)
        self.sinks.append(sink)
        return sink

    def add_totals(self, tile: int, values: dict[str, np.ndarray]) -> None:
        """They are in the checkpoint."""
