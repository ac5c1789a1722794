"""A store for a run of several processes. The first process, the coordinator, holds the lock.

In a commit every process writes its rows of the saved states, and its rows of the matrices of the checkpoint as a
piece. When all pieces are on disk, the coordinator writes the checkpoint, which names them. If a process ends before
that, the checkpoint of the last commit is still complete.
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
from ..runtime.backends.placement import LazyMatrix
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
from .atomic_io import THREADS, StoreError, write_all
from .checkpoints import block_name, piece_name
from .experiment_export import as_tables
from .header_checks import read_header
from .interrupts import interrupts
from .locks import batch_lock
from .recorder import Store, recording
from .schema import STATE, Layout
from .store_output import StoreOutput
from .store_sink import BatchSink

_OFTEN = 1.0  # seconds between checks of the other processes' locks
_GRACE = 5.0  # seconds in which JAX itself may report that another process has ended


@contextmanager
def multiprocess_output(plan: Plan, program: Program, out: Any, resume: bool) -> Iterator[StoreOutput]:
    """Create or resume the store of a run of several processes, which all must see under one name."""
    path = Path(out)
    with ExitStack() as stack:
        store = (
            _opened_by_coordinator(stack, plan, program, path, resume)
            if is_coordinator()
            else _opened_by_others(stack, plan, program, path)
        )
        output = StoreOutput(store, 0, plan, program, ShardSink, is_coordinator())

        def kept() -> str:
            return f"{output.recovery_hint()} Resume, on any number of processes, with: {store.resume_command()}"

        broadcast(True)  # all processes have their locks
        with _watching_locks(path, count_processes(plan), kept), translate_collective_errors(kept):
            yield output
    broadcast(True)


@contextmanager
def _watching_locks(path: Path, processes: int, kept: Callable[[], str]) -> Iterator[None]:
    """Report on standard error that another process has ended, and what the store contains.

    A collective waits for a process that has ended until JAX ends this process. The locks show it earlier: the
    operating system releases a lock when its process ends, and a process that succeeds also removes the file. The
    coordinator has no such lock; when it ends, the service of jax.distributed ends all processes.
    """
    over = Event()
    others = {k: batch_lock(path, k) for k in range(1, processes) if k != jax.process_index()}

    def watch() -> None:
        while not over.wait(_OFTEN):
            gone = [k for k, lock in others.items() if lock.owner() is None and lock.path.exists()]
            if gone:
                if not over.wait(_GRACE):
                    log(PROCESS_LOST.format(f"process {gone[0]} released its lock") + kept())
                return

    thread = Thread(target=watch, name="coadjoint-locks", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _opened_by_coordinator(stack: ExitStack, plan: Plan, program: Program, path: Path, resume: bool) -> Store:
    """Create or resume the store in the coordinator."""
    try:
        experiment = None if resume else as_tables(plan)
        store = stack.enter_context(recording([plan], [program], (), path, resume, experiment))
    except BaseException:
        broadcast(False)
        raise
    broadcast(True)
    return store


def _opened_by_others(stack: ExitStack, plan: Plan, program: Program, path: Path) -> Store:
    """Open the store in the other processes. Each has a lock, which shows that it runs."""
    if not broadcast(True):
        raise StoreError(f"{path}: the first process cannot write it; its own message gives the reason.")
    lock = batch_lock(path, jax.process_index())
    lock.acquire()
    stack.callback(lock.remove)
    stack.enter_context(interrupts())  # the first process handles Ctrl-C
    savers, writers = (stack.enter_context(ThreadPoolExecutor(threads)) for threads in (1, THREADS))
    layout = Layout.of([plan], (), read_header(path, "resume"))
    return Store(path, layout, Event(), savers, writers, [plan], [program])


class ShardSink(BatchSink):
    """The sink of one of several processes: some rows of each state, and a piece of each checkpoint.

    The coordinator also writes all small arrays, and the checkpoint that names the pieces.
    """

    def __init__(self, output: StoreOutput, batch: int):
        super().__init__(output, batch, jax.process_index())
        self.process, self.processes = jax.process_index(), count_processes(self.plan)
        self.replicated: dict[str, np.ndarray] = {}  # arrays that all processes have, of the checkpoint in progress
        self.sharded: list = []  # names, shapes and dtypes of the arrays in pieces
        self.files: dict[str, bytes] = {}  # of the commit in progress
        if not is_coordinator():
            self.diagnostics = None
            self.names = [name for name in self.names if name == STATE]

    def _part(self, name: str) -> tuple[slice, ...]:
        """Return whole chunks; there are as many as there were processes when the store was created."""
        if name != STATE:
            return ()
        array = self.store.arrays[STATE]
        height, n = array.chunks[-2], array.shape[-2]
        chunks = -(-n // height)
        at = [min(n, chunks * k // self.processes * height) for k in (self.process, self.process + 1)]
        return (*(slice(None),) * (len(self.plan.system.algebra.shape) - 2), slice(*at))

    def _own(self, named: dict[str, np.ndarray], states: np.ndarray | None) -> tuple:
        own = {name: named[name][:, :, *self._part(name)].copy() for name in named if name in self.names}
        return own, states if is_coordinator() else None

    def _leaves(self, points: StepState) -> dict[str, np.ndarray]:
        named = {jax.tree_util.keystr(k): x for k, x in jax.tree_util.tree_leaves_with_path(points)}
        lazy = {name: x for name, x in named.items() if isinstance(x, LazyMatrix)}
        self.replicated = {name: np.asarray(x)[0] for name, x in named.items() if name not in lazy}
        self.sharded = [(name, x.shape[1:], str(x.dtype)) for name, x in lazy.items()]
        blocks = {block_name(name, row): b[0] for name, x in lazy.items() for row, b in x.blocks()}
        return self.replicated | blocks

    def _save(self, n: int, saved: int, fresh: list, leaves: dict[str, np.ndarray]) -> None:
        self.files = self._encode_rows(saved, fresh)
        self.log.announce(self.commits, self.files)
        write_all(self.store.path, self.files, self.store.writers)
        blocks = {name: x for name, x in leaves.items() if name not in self.replicated}
        self.store.checkpoints.save_piece(self.number, n, self.process, blocks)

    def _wait_for_commit(self) -> None:
        """Wait until all processes have written, and the coordinator has written the checkpoint."""
        if self.saving is None:
            return
        (n, future), self.saving = self.saving, None
        self._all_succeeded(future.exception())
        self._all_succeeded(self._complete(n) if is_coordinator() else None)
        self.log.confirm(self.commits, self.files)
        self.committed = n

    def _complete(self, n: int) -> BaseException | None:
        """Write the checkpoint that names the pieces, and remove the pieces of the last one."""
        pieces = [piece_name(self.number, n, k) for k in range(self.processes)]
        saved, backend = self.plan.saved.up_to(n), self.output.program.backend
        checkpoints, more = self.store.checkpoints, {"pieces": pieces, "sharded": self.sharded}
        try:
            data = checkpoints.encode(self.number, n, saved, self.commits, backend, self.replicated, **more)
            self._commit_files({}, data)
            checkpoints.remove_orphans()
        except BaseException as error:
            return error
        return None

    def _all_succeeded(self, error: BaseException | None) -> None:
        """Return if no process has an error; else all raise one, and the process that has it describes it."""
        failed = [k for k, bad in enumerate(allgather(error is not None)) if bad]

        def poll() -> None:
            if error is not None:
                raise error

        self._guard(poll)
        if failed:
            raise StoreError(
                f"{self.store.path}: process {failed[0]} cannot write its part; its own message gives the reason. The "
                f"store contains the run up to {self.reached()}. When that is fixed, resume with: "
                f"{self.store.resume_command()}"
            )
