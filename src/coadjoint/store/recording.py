"""Recording runs into a store while they run, so that no power cut can take them away (docs/stores.md).

All arrays have their final shape from the start. Every second or so, rows that are new are written, files and folders
are synced, and then a checkpoint with the step and the whole carry of the integrator takes the place of the last one.
What lies beyond the checkpoint is ignored, and written again, when the run goes on.
"""

import contextlib
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import zarr

from ..running.backends.base import Program
from ..running.loop import execute
from ..running.plan import Plan
from .checkpoints import Checkpoints
from .creating import create, reopen
from .durable import THREADS, Files, StoreError
from .layout import Axis, Layout
from .reading import Stored, read_header
from .sink import StoreOutput
from .tables import as_tables


def record_run(plan: Plan, program: Program, out: Any, resume: bool, progress: Any) -> Stored:
    """Run a plan into a store. If a model made its system, the store says so: `coadjoint.resume` can go on with it."""
    experiment = None if resume else as_tables(plan)
    with recording([plan], [program], (), Path(out), resume, experiment) as store:
        return store.execute(0, progress)


@contextlib.contextmanager
def recording(
    plans: Sequence[Plan],
    programs: Sequence[Program],
    axes: tuple[Axis, ...],
    path: Path,
    resume: bool,
    experiment: dict[str, Any] | None = None,
) -> Iterator["Store"]:
    """A store for these plans, new or gone on with, locked as long as the `with` statement lasts."""
    layout = Layout.of(plans, axes, read_header(path, "resume") if resume else None)
    if resume:
        lock = reopen(path, plans, programs, layout)
    else:
        lock = create(path, plans, programs, layout, experiment)
    try:
        with _interrupts() as stop, ThreadPoolExecutor() as savers, ThreadPoolExecutor(THREADS) as writers:
            yield Store(path, layout, plans, programs, stop, savers, writers)
        with contextlib.suppress(OSError):  # then there are more files, and nothing is lost
            Checkpoints(path).pack(len(plans) * layout.tiles)
    finally:
        lock.release()  # when all that was under way is written


@contextlib.contextmanager
def _interrupts() -> Iterator[threading.Event]:
    """An event that is set by Ctrl-C; a second Ctrl-C interrupts at once."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = signal.getsignal(signal.SIGINT)

    def handle(number: int, frame: Any) -> None:
        stop.set()
        signal.signal(signal.SIGINT, before)

    try:
        signal.signal(signal.SIGINT, handle)
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


class Store:
    """A store that is being written."""

    def __init__(
        self,
        path: Path,
        layout: Layout,
        plans: Sequence[Plan],
        programs: Sequence[Program],
        stop: threading.Event,
        savers: Executor,
        writers: Executor,
    ):
        self.path, self.layout, self.plans, self.programs, self.stop = path, layout, plans, programs, stop
        self.savers, self.writers = savers, writers  # threads for commits, and for the files of each
        self.checkpoints = Checkpoints(path)
        root = zarr.open_group(Files(path, required=lambda key: True), mode="r+", use_consolidated=False)
        self.arrays: dict[str, Any] = {
            name: root[name].with_config({"write_empty_chunks": True})  # type: ignore[union-attr]
            for name in layout.variables
        }

    def execute(self, run: int, progress: Any = False) -> Stored:
        """A run, from where it stands."""
        output = StoreOutput(self, run)
        try:
            return execute(self.plans[run], self.programs[run], output, progress)
        except BaseException:
            with contextlib.suppress(OSError, StoreError):
                output.flush()
            raise

    def how_to_go_on(self) -> str:
        """For messages."""
        experiment = read_header(self.path, "resume")["experiment"]
        if experiment is not None:
            name = experiment["model"]["name"]
            return f"coadjoint resume {self.path}" + (f" --model {name}" if ":" in name else "")
        call = "solve" if self.layout.members is None else "ensemble"
        return f'{call}(..., out="{self.path}", resume=True)'
