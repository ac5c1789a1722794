"""A store for a run of several processes: the first holds and writes it, the others keep step with it."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from ..running.backends.base import Program
from ..running.hosts import first, said
from ..running.loop import execute
from ..running.plan import Plan
from .durable import StoreError
from .layout import Layout
from .reading import Stored, read_header
from .recording import Store, interrupts, recording
from .sink import STOP, Stopped, StoreOutput, StoreSink
from .tables import as_tables


def record_together(plan: Plan, program: Program, out: Any, resume: bool, progress: Any) -> Stored:
    """Run a plan into a store, which all processes must see under one name."""
    path = Path(out)
    if not first():
        return _follow(plan, program, path)
    experiment = None if resume else as_tables(plan)
    with ExitStack() as stack:
        try:
            store = stack.enter_context(recording([plan], [program], (), path, resume, experiment))
        except BaseException:
            said(False)
            raise
        said(True)
        result = store.execute([0], progress)[0]
    said(True)
    return result


def _follow(plan: Plan, program: Program, path: Path) -> Stored:
    if not said(True):
        raise StoreError(f"{path}: the first process cannot write it, and says why.")
    layout = Layout.of([plan], (), read_header(path, "resume"))
    with interrupts(), ThreadPoolExecutor(1) as pool:  # Ctrl-C is heard by the first
        store = Store(path, layout, threading.Event(), pool, pool, [plan], [program])
        result = execute(plan, program, _Following(store, 0, plan, program))
    said(True)
    return result


class _Following(StoreOutput):
    """What the others have of a store: they begin where it says, and write nothing."""

    def sink(self, tile: int) -> "_FollowingSink":
        """One that keeps step."""
        return _FollowingSink(self, tile)


class _FollowingSink(StoreSink):
    def add(self, at: int, rows: PyTree) -> None:
        """The first process has the same."""

    def mark(self, n: int, points: Any) -> None:
        """Where the first process commits, matrices are gathered, in which all take part."""
        self.marked = (n, points)
        wanted = self.agreed(0)
        if wanted:
            jax.tree.map(np.asarray, points())
        if wanted == STOP:
            raise Stopped(f"stopped at step {n}, as the first process was.")

    def close(self) -> PyTree:
        """The last commit."""
        _, points = self.marked
        if self.agreed(0) and points is not None:
            jax.tree.map(np.asarray, points())
