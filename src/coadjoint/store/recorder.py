"""Recording runs into a store while they run, so that no power cut can take them away (docs/guides/stores.md).

All arrays have their final shape from the start. Every second or so, rows that are new are written, files and folders
are synced, and then a checkpoint with the step and the whole carry of the integrator takes the place of the last one.
What lies beyond the checkpoint is ignored, and written again, when the run goes on.
"""

import contextlib
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import zarr

from stepcompiler.cache import LRUCache

from ..runtime.backends.base import Program
from ..runtime.loop import execute_all
from ..runtime.plan import Plan
from .atomic_io import THREADS, Files, StoreError
from .checkpoints import Checkpoints
from .create import create, reopen
from .experiment_export import as_tables
from .interrupts import interrupts
from .provenance import machine
from .reading import Stored, read_header
from .schema import Axis, Layout
from .store_sink import StoreOutput


def record_run(plan: Plan, program: Program, out: Any, resume: bool, progress: Any, place: Any = None) -> Stored:
    """Run a plan into a store. If a model made its system, the store says so: `coadjoint.resume` can go on with it."""
    experiment = None if resume else as_tables(plan)
    with recording([plan], [program], (), Path(out), resume, experiment, place) as store:
        return store.execute([0], progress)[0]


@contextlib.contextmanager
def recording(
    plans: Sequence[Plan],
    programs: Sequence[Program],
    axes: tuple[Axis, ...],
    path: Path,
    resume: bool,
    experiment: dict[str, Any] | None = None,
    place: Any = None,
) -> Iterator["Store"]:
    """A store for these plans, new or gone on with, locked as long as the `with` statement lasts.

    Tiles run in threads, or at a place, which has a `platform`: the machines that compute.
    """
    layout = Layout.of(plans, axes, read_header(path, "resume") if resume else None)
    platform = machine() if place is None else place.platform
    if len(plans[0].devices) > 1:
        platform = platform | {"devices": len(plans[0].devices)}
    if resume:
        lock = reopen(path, plans, programs, layout, platform, place is not None)
    else:
        lock = create(path, plans, programs, layout, experiment, platform)
    try:
        with interrupts() as stop, ThreadPoolExecutor() as savers, ThreadPoolExecutor(THREADS) as writers:
            yield Store(path, layout, stop, savers, writers, plans, programs, place)
        with contextlib.suppress(OSError):  # then there are more files, and nothing is lost
            Checkpoints(path).remove_orphans(len(plans) * layout.tiles)
            Checkpoints(path).pack(len(plans) * layout.tiles)
    finally:
        lock.release()  # when all that was under way is written


_opened: LRUCache["Store"] = LRUCache(4)


def opened(path: Path, layout: Layout, token: str, stop: Any) -> "Store":
    """A store that another process has locked, for tiles that this one runs; opened once for a run, by its token."""
    make = lambda: Store(path, layout, stop, ThreadPoolExecutor(), ThreadPoolExecutor(THREADS))
    return _opened.get((path, token), make)


class Store:
    """A store that is being written."""

    def __init__(
        self,
        path: Path,
        layout: Layout,
        stop: Any,
        savers: Executor,
        writers: Executor,
        plans: Sequence[Plan] = (),
        programs: Sequence[Program] = (),
        place: Any = None,
    ):
        self.path, self.layout, self.stop, self.token = path, layout, stop, uuid.uuid4().hex
        self.savers, self.writers = savers, writers  # threads for commits, and for the files of each
        self.checkpoints = Checkpoints(path)
        self.plans, self.programs, self.place = plans, programs, place
        self.experiment = read_header(path, "resume")["experiment"]
        root = zarr.open_group(Files(path, required=lambda key: True), mode="r+", use_consolidated=False)
        self.arrays: dict[str, Any] = {
            name: root[name].with_config({"write_empty_chunks": True})  # type: ignore[union-attr]
            for name in layout.variables
        }

    def execute(self, runs: Sequence[int], progress: Any = False) -> list[Stored]:
        """Some of the runs, from where they stand."""
        of = [(self.plans[run], self.programs[run]) for run in runs]
        outputs = [(*own, StoreOutput(self, run, *own)) for run, own in zip(runs, of, strict=True)]
        try:
            return execute_all(outputs, progress, self.place)
        finally:
            with contextlib.suppress(OSError, StoreError):
                for *_, output in outputs:
                    output.flush()

    def resume_command(self) -> str:
        """For messages."""
        experiment = self.experiment
        if experiment is not None:
            name = experiment["model"]["name"]
            return f"coadjoint resume {self.path}" + (f" --model {name}" if ":" in name else "")
        call = "solve" if self.layout.members is None else "ensemble"
        return f'{call}(..., out="{self.path}", resume=True)'
