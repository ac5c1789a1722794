"""A store for a run of several processes: the first holds it and decides, each writes what it has.

A commit: every process writes its band of the states that were saved, and what it has of the matrices of the checkpoint
as a piece; when all say that theirs is on disk, the first writes the checkpoint, which names the pieces. Whoever dies
before that leaves the checkpoint of the commit before, whole.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import jax
import numpy as np

from ..runtime.backends.base import Program
from ..runtime.backends.sharded_backend import LazyMatrix
from ..runtime.loop import execute
from ..runtime.multiprocess import (
    PROCESS_LOST,
    allgather,
    broadcast,
    count_processes,
    is_coordinator,
    translate_collective_errors,
)
from ..runtime.plan import Plan
from ..runtime.run_state import StepState
from ..runtime.stall_monitor import log
from .atomic_io import THREADS, StoreError
from .checkpoints import block_name, piece_name
from .experiment_export import as_tables
from .interrupts import interrupts
from .locks import tile_lock
from .reading import Stored, read_header
from .recorder import Store, recording
from .schema import STATE, Layout
from .store_sink import StoreOutput, StoreSink

_OFTEN = 1.0  # seconds between two looks at the locks of the others
_GRACE = 5.0  # seconds in which JAX may say itself that another process is gone


def record_together(plan: Plan, program: Program, out: Any, resume: bool, progress: Any) -> Stored:
    """Run a plan into a store, which all processes must see under one name."""
    path = Path(out)
    with ExitStack() as stack:
        store = _held(stack, plan, program, path, resume) if is_coordinator() else _followed(stack, plan, program, path)
        output = ShardOutput(store, 0, plan, program)

        def kept() -> str:
            return f"{output.recovery_hint()} Go on, on as many as there are, with: {store.resume_command()}"

        broadcast(True)  # all have their locks
        with _listening(path, count_processes(plan), kept), translate_collective_errors(kept):
            result = execute(plan, program, output, progress)
    broadcast(True)
    return result


@contextmanager
def _listening(path: Path, processes: int, kept: Callable[[], str]) -> Iterator[None]:
    """Say on standard error that another process is gone, and what is kept, while this one waits for it in vain.

    A collective may wait for the dead until JAX ends this process, in its own words, for want of heartbeats. The locks
    tell earlier: the system lets go of a lock when its process ends; a process that is done removes the file as well.
    The first has none of these, but the service of jax.distributed, and with that all processes end.
    """
    over = Event()
    others = {k: tile_lock(path, k) for k in range(1, processes) if k != jax.process_index()}

    def listen() -> None:
        while not over.wait(_OFTEN):
            gone = [k for k, lock in others.items() if lock.owner() is None and lock.path.exists()]
            if gone:
                if not over.wait(_GRACE):
                    log(PROCESS_LOST.format(f"process {gone[0]} let go of its lock") + kept())
                return

    thread = Thread(target=listen, name="coadjoint-listening", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _held(stack: ExitStack, plan: Plan, program: Program, path: Path, resume: bool) -> Store:
    """The store, by the process that holds it."""
    try:
        experiment = None if resume else as_tables(plan)
        store = stack.enter_context(recording([plan], [program], (), path, resume, experiment))
    except BaseException:
        broadcast(False)
        raise
    broadcast(True)
    return store


def _followed(stack: ExitStack, plan: Plan, program: Program, path: Path) -> Store:
    """The store, by the others. Each has a lock, so that one that outlives the first is not taken for dead."""
    if not broadcast(True):
        raise StoreError(f"{path}: the first process cannot write it, and says why.")
    lock = tile_lock(path, jax.process_index())
    lock.acquire()
    stack.callback(lock.remove)
    stack.enter_context(interrupts())  # Ctrl-C is heard by the first
    savers, writers = (stack.enter_context(ThreadPoolExecutor(threads)) for threads in (1, THREADS))
    layout = Layout.of([plan], (), read_header(path, "resume"))
    return Store(path, layout, Event(), savers, writers, [plan], [program])


class ShardOutput(StoreOutput):
    """The place of the run, in each process."""

    def sink(self, tile: int) -> "ShardSink":
        """The part of this process."""
        self.last = sink = ShardSink(self, tile)
        return sink

    def add_totals(self, tile: int, values: dict[str, np.ndarray]) -> None:
        """The first writes them."""
        if is_coordinator():
            super().add_totals(tile, values)


class ShardSink(StoreSink):
    """What a process writes: a band of states, a piece of checkpoints; the first also all that is small."""

    def __init__(self, output: StoreOutput, tile: int):
        super().__init__(output, tile)
        self.me, self.all = jax.process_index(), count_processes(self.plan)
        self.replicated: dict[str, np.ndarray] = {}  # of the checkpoint under way: what all have alike …
        self.spread: list = []  # … and what is in pieces: names, shapes, kinds of numbers
        if not is_coordinator():
            self.diagnostics = None
            self.names = [name for name in self.names if name == STATE]

    def _part(self, name: str) -> tuple[slice, ...]:
        """Files of a band of rows; there are as many as there were processes when the store was made."""
        if name != STATE:
            return ()
        array = self.store.arrays[STATE]
        height, n = array.chunks[-2], array.shape[-2]
        files = -(-n // height)
        at = [min(n, files * k // self.all * height) for k in (self.me, self.me + 1)]
        return (*(slice(None),) * (len(self.plan.system.algebra.shape) - 2), slice(*at))

    def _own(self, named: dict[str, np.ndarray], states: np.ndarray | None) -> tuple:
        own = {name: named[name][:, :, *self._part(name)].copy() for name in named if name in self.names}
        return own, states if is_coordinator() else None

    def _leaves(self, points: StepState) -> dict[str, np.ndarray]:
        """Of matrices that are spread, the blocks that are here."""
        named = {jax.tree_util.keystr(k): x for k, x in jax.tree_util.tree_leaves_with_path(points)}
        later = {name: x for name, x in named.items() if isinstance(x, LazyMatrix)}
        self.replicated = {name: np.asarray(x)[0] for name, x in named.items() if name not in later}
        self.spread = [(name, x.shape[1:], str(x.dtype)) for name, x in later.items()]
        blocks = {block_name(name, row): b[0] for name, x in later.items() for row, b in x.blocks()}
        return self.replicated | blocks

    def _save(self, n: int, saved: int, fresh: list, leaves: dict[str, np.ndarray]) -> None:
        """What is written here, each durable before the next."""
        self._save_rows(saved, fresh)
        blocks = {name: x for name, x in leaves.items() if name not in self.replicated}
        self.store.checkpoints.save_piece(self.number, n, self.me, blocks)

    def _settle(self) -> None:
        """Wait for the commit under way, of all; then it counts."""
        if self.saving is None:
            return
        (n, future), self.saving = self.saving, None
        self._all_did(future.exception())
        self._all_did(self._count(n) if is_coordinator() else None)
        self.committed = n

    def _count(self, n: int) -> BaseException | None:
        """The checkpoint that names the pieces, and away with those of the one before."""
        pieces = [piece_name(self.number, n, k) for k in range(self.all)]
        saved, backend = 1 + n // self.plan.save_every, self.output.program.backend
        try:
            save = self.store.checkpoints.save
            save(self.number, n, saved, backend, self.replicated, pieces=pieces, spread=self.spread)
            self.store.checkpoints.remove_orphans(1)
        except BaseException as error:
            return error
        return None

    def _all_did(self, error: BaseException | None) -> None:
        """Go on if no process has an error; if one has, all end, and that one says why."""
        failed = [k for k, bad in enumerate(allgather(error is not None)) if bad]

        def look() -> None:
            if error is not None:
                raise error

        self._guard(look)
        if failed:
            raise StoreError(
                f"{self.store.path}: process {failed[0]} cannot write its part, and says why. It holds the run up to "
                f"{self.reached()}. When that is put right, go on with: {self.store.resume_command()}"
            )
