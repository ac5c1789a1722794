"""Runs that write to a store, which survives a power cut (docs/guides/stores.md).

All arrays have their final shape from the start. About every second, new rows are written and synced, and then a
checkpoint with the step and the state of the integrator replaces the last one. A resumed run ignores rows after the
checkpoint and writes them again.
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
from .atomic_io import THREADS, StoreError
from .checkpoints import Checkpoints
from .create import create, reopen
from .experiment_export import as_tables
from .header_checks import read_header
from .interrupts import interrupts
from .manifest import Manifest
from .provenance import machine
from .reading import Stored
from .schema import Axis, Layout
from .store_output import StoreOutput
from .zarr_files import Files


@contextlib.contextmanager
def store_output(plan: Plan, program: Program, out: Any, resume: bool, executor: Any = None) -> Iterator[StoreOutput]:
    """Create or resume the store of one run. `coadjoint.resume` can resume it if a model made its system."""
    experiment = None if resume else as_tables(plan)
    with (
        recording([plan], [program], (), Path(out), resume, experiment, executor) as store,
        store.outputs([0]) as found,
    ):
        yield found[0]


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
    """Create or resume a store for these plans, and hold its lock during the `with` statement.

    `place` is an executor other than threads; its `platform` describes the machines that compute.
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
            store = Store(path, layout, stop, savers, writers, plans, programs, place)
            yield store
            with contextlib.suppress(OSError):  # then there are more files, and nothing is lost
                store.checkpoints.remove_orphans()
                store.checkpoints.finish(writers)
    finally:
        lock.release()  # after all writing


_opened: LRUCache["Store"] = LRUCache(4)


def opened(path: Path, layout: Layout, token: str, stop: Any) -> "Store":
    """Return a store that another process holds, opened once per run, by its token."""
    make = lambda: Store(path, layout, stop, ThreadPoolExecutor(), ThreadPoolExecutor(THREADS))
    return _opened.get((path, token), make)


class Store:
    """A store that a run writes to."""

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
        self.plans, self.programs, self.place = plans, programs, place
        header = read_header(path, "resume")
        self.experiment = header["experiment"]
        self.manifest = Manifest(path, header["identity"], live=False).load()
        self.checkpoints = Checkpoints(self.manifest, header["plans"], layout.n_batches)
        root = zarr.open_group(Files(self.manifest), mode="r+", use_consolidated=False)
        self.arrays: dict[str, Any] = {
            name: root[name].with_config({"write_empty_chunks": True})  # type: ignore[union-attr]
            for name in layout.variables
        }

    def execute(self, runs: Sequence[int], progress: Any = False) -> list[Stored]:
        """Run some of the plans from their last checkpoints."""
        with self.outputs(runs) as outputs:
            return execute_all([(x.plan, x.program, x) for x in outputs], progress, self.place)

    @contextlib.contextmanager
    def outputs(self, runs: Sequence[int]) -> Iterator[list[StoreOutput]]:
        """Open the outputs of some of the plans."""
        outputs = [StoreOutput(self, run, self.plans[run], self.programs[run]) for run in runs]
        try:
            yield outputs
        finally:
            with contextlib.suppress(OSError, StoreError):
                for output in outputs:
                    output.flush()

    def commit(self, files: dict[str, bytes]) -> None:
        """Write files of the store itself."""
        self.manifest.commit(files, self.writers)

    def resume_command(self) -> str:
        """Return the command that resumes the run, for messages."""
        experiment = self.experiment
        if experiment is not None:
            name = experiment["model"]["name"]
            return f"coadjoint resume {self.path}" + (f" --model {name}" if ":" in name else "")
        call = "solve" if self.layout.members is None else "ensemble"
        return f'{call}(..., out="{self.path}", resume=True)'
