"""Recording a run into a store, while it runs, so that no power cut can take it away (docs/stores.md).

All arrays have their final shape from the start. Every second or so, rows that are new are written, files and folders
are synced, and then a checkpoint with the step and the whole carry of the integrator takes the place of the last one.
What lies beyond the checkpoint is ignored, and written again, when the run goes on.
"""

import contextlib
import math
import os
import shutil
import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
import zarr
from jaxtyping import PyTree
from zarr.codecs import BloscCodec, Crc32cCodec, ZstdCodec
from zarr.storage import LocalStore

from ..running.chunk import Record
from ..running.solution import Stats
from ..running.solving import Job
from .configuration import configuration, differences, digest, this_platform, versions
from .durable import THREADS, Files, Lock, StoreError, remove_partial, sync, sync_tree
from .layout import TIMES, Axis, Layout, Variable, named_leaves
from .part import Part
from .reading import CHECKPOINTS, FORMAT, LOCK, Stored, contents, read_header, reason


def record_run(job: Job, out: Any, resume: bool) -> "Stored":
    """Run a job into a store. If a model made its system, the store says so: `coadjoint.resume` can go on with it."""
    from ..experiments.experiment import as_experiment

    with recording([job], (), Path(out), resume, None if resume else as_experiment(job)) as store:
        return store.execute(0)


@contextlib.contextmanager
def recording(
    jobs: Sequence[Job],
    axes: tuple[Axis, ...],
    path: Path,
    resume: bool,
    experiment: dict[str, Any] | None = None,
) -> Iterator["Store"]:
    """A store for these jobs, new or gone on with, locked as long as the `with` statement lasts."""
    layout = Layout.of(jobs, axes)
    lock = _resume(path, jobs, layout) if resume else _create(path, jobs, layout, experiment)
    try:
        with _interrupts() as stop, ThreadPoolExecutor() as savers, ThreadPoolExecutor(THREADS) as writers:
            yield Store(path, layout, jobs, stop, savers, writers)
    finally:
        lock.release()  # when all that was under way is written


# Creating a store, and going on with one.


def _create(path: Path, jobs: Sequence[Job], layout: Layout, experiment: dict[str, Any] | None) -> Lock:
    """Make the store under another name, whole, and rename it: it is there completely or not at all."""
    if os.path.lexists(path):
        raise StoreError(
            f"{path} exists already: go on with it (resume=True, or `coadjoint resume {path}`), remove it, or choose "
            "another name."
        )
    fresh = path.with_name(path.name + ".new")
    lock = Lock(fresh / CHECKPOINTS / LOCK)
    try:
        if not path.parent.is_dir():
            raise StoreError(f"{path} cannot be made: there is no folder {path.parent}.")
        _check_room(path, layout)
        if fresh.is_dir():  # of a process that was killed, or is at work
            lock.acquire()
            lock.release()
            shutil.rmtree(fresh)
        lock.path.parent.mkdir(parents=True)
        lock.acquire()
        group = zarr.create_group(LocalStore(fresh), attributes={"coadjoint": _header(jobs, layout, experiment)})
        group.create_group(CHECKPOINTS)
        for variable in layout.variables.values():
            _create_array(group, variable)
        _write_times(group, jobs, layout, 0)
        sync_tree(fresh)
        os.rename(fresh, path)
        sync(path.parent)
    except OSError as error:
        lock.release()
        with contextlib.suppress(OSError):
            shutil.rmtree(fresh)
        raise StoreError(f"{path} cannot be made: {reason(error)}.") from error
    return lock


def _check_room(path: Path, layout: Layout) -> None:
    """Refuse what cannot fit on the disk, before a day is spent on it."""
    needed = sum(math.prod(v.shape) * np.dtype(v.dtype).itemsize for v in layout.variables.values())
    free = shutil.disk_usage(path.parent).free
    if needed > free:
        raise StoreError(
            f"{path} would take {needed / 1e9:.3g} GB ({layout.saved} saved times), and the disk has "
            f"{free / 1e9:.3g} GB free: raise save_every, save less with save=, or write to another disk."
        )


def _create_array(group: Any, v: Variable) -> None:
    array = group.create_array(
        v.name,
        shape=v.shape,
        chunks=v.chunks,
        dtype=v.dtype,
        fill_value=v.fill_value,
        dimension_names=v.dims,
        attributes=v.attrs,
        compressors=[_compressor(v), Crc32cCodec()],
        chunk_key_encoding={"name": "default", "separator": "."},  # one folder an array
        config={"write_empty_chunks": True},
    )
    if v.data is not None:
        array[...] = v.data


def _compressor(v: Variable) -> Any:
    """For real numbers a fast one, bytes of equal weight side by side; for others one that sees what is there twice."""
    return BloscCodec(cname="lz4", shuffle="shuffle") if np.dtype(v.dtype).kind == "f" else ZstdCodec(level=1)


def _header(jobs: Sequence[Job], layout: Layout, experiment: dict[str, Any] | None) -> dict[str, Any]:
    configurations = [configuration(job) for job in jobs]
    return {
        "format": FORMAT,
        "kind": "sweep" if layout.axes else "solve" if layout.members is None else "ensemble",
        "steps": [job.run.steps for job in jobs],
        **layout.header(),
        "configuration": configurations[0],
        "fingerprints": [digest(c) for c in configurations],
        "experiment": experiment,
        "versions": versions(),
        "platform": this_platform(),
        "history": [],
    }


def _write_times(group: Any, jobs: Sequence[Job], layout: Layout, first: int) -> None:
    """The coordinate of saved times, in whole chunks from the one that holds row `first` on."""
    array = group["time"]
    for k, job in enumerate(jobs if layout.time != "time" else jobs[:1]):
        where = layout.place(k * layout.tiles)[0] if layout.time != "time" else ()
        for a in range(first // TIMES * TIMES, layout.saved, TIMES):
            b = min(a + TIMES, layout.saved)
            row = np.full(b - a, np.nan)
            own = job.run.times_between(a, min(b, job.run.n_saved))
            row[: len(own)] = own
            array[(*where, slice(a, b))] = row.reshape(*(1,) * len(where), -1)


def _resume(path: Path, jobs: Sequence[Job], layout: Layout) -> Lock:
    """Lock the store, compare configurations, and make room if t1 is larger now."""
    read_header(path, "resume")
    lock = Lock(path / CHECKPOINTS / LOCK)
    try:
        lock.acquire()
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {reason(error)}.") from error
    try:
        header = read_header(path, "resume")  # again: now nobody else changes it
        _compare(path, header, jobs)
        remove_partial(path)
        group = zarr.open_group(Files(path), mode="r+", use_consolidated=False)
        _extend(path, group, header, jobs, layout)
        _note_changes(path, group, header)
    except OSError as error:
        lock.release()
        raise StoreError(f"{path} cannot be written: {reason(error)}.") from error
    except BaseException:
        lock.release()
        raise
    return lock


def _compare(path: Path, header: dict[str, Any], jobs: Sequence[Job]) -> None:
    if len(header["steps"]) != len(jobs):
        raise StoreError(f"{path} holds {len(header['steps'])} run(s), but this is about {len(jobs)}.")
    now = [configuration(job, steps) for job, steps in zip(jobs, header["steps"], strict=True)]
    different = differences(header["configuration"], now[0])
    if not different and [digest(c) for c in now] != header["fingerprints"]:
        k = next(k for k, c in enumerate(now) if digest(c) != header["fingerprints"][k])
        different = [f"run {k} of the sweep is another one"]
    if different:
        changed = differences(header["versions"], versions())
        note = f" Versions differ too, and fingerprints with them: {'; '.join(changed)}." if changed else ""
        raise StoreError(f"{path} was made with another configuration. " + "; ".join(different) + "." + note)
    for job, steps in zip(jobs, header["steps"], strict=True):
        if job.run.steps < steps:
            t1 = job.run.t0 + steps * job.run.dt
            raise StoreError(f"t1 must be at least {t1:g}, which {path} was made for; a run can only be extended.")


def _extend(path: Path, group: Any, header: dict[str, Any], jobs: Sequence[Job], layout: Layout) -> None:
    """Give all arrays their new length. The header goes first: if this is interrupted, it is done again."""
    before = header["steps"]
    steps = [job.run.steps for job in jobs]
    if steps != before:
        configurations = [configuration(job) for job in jobs]
        header |= {
            "steps": steps,
            "configuration": configurations[0],
            "fingerprints": [digest(c) for c in configurations],
        }
        if header["experiment"] is not None:
            header["experiment"]["run"]["t1"] = configurations[0]["t1"]
        group.attrs["coadjoint"] = header
        sync(path)
    for name, variable in layout.variables.items():
        try:
            array = group[name]
        except (KeyError, ValueError, TypeError):
            raise StoreError(f"{path / name / 'zarr.json'} is missing or damaged.") from None
        if array.shape != variable.shape:
            first = array.shape[variable.dims.index(layout.time)]
            array.resize(variable.shape)
            if name == "time":
                _write_times(group, jobs, layout, first)
            sync(path / name)


def _note_changes(path: Path, group: Any, header: dict[str, Any]) -> None:
    """Warn when versions or the machine are others than before, and write it down."""
    now = {"versions": versions(), "platform": this_platform()}
    last = (header["history"] or [header])[-1]
    changed = [d for part in now for d in differences({part: last[part]}, {part: now[part]})]
    if changed:
        warnings.warn(
            f"{path} goes on under other conditions, so its last bits may differ from an uninterrupted run: "
            + "; ".join(changed) + ".", RuntimeWarning, stacklevel=6,
        )  # fmt: skip
        group.attrs["coadjoint"] = header | {"history": [*header["history"], now]}
        sync(path)


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


# Writing.


class Store:
    """A store that is being written."""

    def __init__(
        self,
        path: Path,
        layout: Layout,
        jobs: Sequence[Job],
        stop: threading.Event,
        savers: Executor,
        writers: Executor,
    ):
        self.path, self.layout, self.jobs, self.stop = path, layout, jobs, stop
        self.savers, self.writers = savers, writers  # threads for commits, and for the files of each
        group = zarr.open_group(Files(path, required=lambda key: True), mode="r+", use_consolidated=False)
        self.arrays: dict[str, Any] = {
            name: group[name].with_config({"write_empty_chunks": True})  # type: ignore[union-attr]
            for name in layout.variables
        }

    def execute(self, k: int) -> "Stored":
        """Run job k, from where it stands."""
        return self.jobs[k].execute(Place(self, k))

    def how_to_go_on(self) -> str:
        """For messages."""
        experiment = read_header(self.path, "resume")["experiment"]
        if experiment is not None:
            name = experiment["model"]["name"]
            return f"coadjoint resume {self.path}" + (f" --model {name}" if ":" in name else "")
        call = "solve" if self.layout.members is None else "ensemble"
        return f'{call}(..., out="{self.path}", resume=True)'


class Place:
    """The place of one job in a store: what `solve` and `ensemble` see of it."""

    def __init__(self, store: Store, k: int):
        self.store, self.k, self.job = store, k, store.jobs[k]

    def part(self, path: str, first: int = 0) -> Part:
        """The part of the run, or of the tile whose first member is given; `path` says how steps are computed."""
        layout = self.store.layout
        return Part(self, self.k * layout.tiles + first // layout.tile, path)

    def result(self, build: Callable[[Record, np.ndarray], Any], stats: Stats, reduced: PyTree) -> "Stored":
        """What `ensemble` returns; statistics over members are written too, once all of them are there."""
        if reduced is not None:
            self._write_statistics(reduced)
        return Stored(self.store.path, stats, self.loader(build))

    def note(self) -> str:
        """For an error: what is safe."""
        return f" {self.store.path} holds each member up to its last checkpoint."

    def _write_statistics(self, reduced: PyTree) -> None:
        layout = self.store.layout
        where, _ = layout.place(self.k * layout.tiles)
        for name, leaf in named_leaves(reduced, ""):
            rows = np.asarray(leaf)
            self.store.arrays[name][(*where, slice(0, len(rows)))] = rows.reshape((*(1,) * len(where), *rows.shape))
            sync(self.store.path / name)

    def loader(self, build: Callable[[Record, np.ndarray], Any]) -> Callable[[], Any]:
        """Reads the whole run, and builds what is returned of it."""
        job, layout, path = self.job, self.store.layout, self.store.path
        where, _ = layout.place(self.k * layout.tiles)

        def load() -> Any:
            found = contents(path)
            group = found.arrays()
            own = found.parts[self.k * layout.tiles : (self.k + 1) * layout.tiles]
            saved = max((r.rows for r in own if r is not None), default=0)
            lead = () if layout.members is None else (slice(None),)

            def read(name: str) -> Any:
                data = np.asarray(group[name][(*where, *lead, slice(0, saved))])  # type: ignore[index]
                return data.reshape(data.shape[len(where) :])

            times = job.run.times_between(0, saved)
            if job.reduce is not None:
                return build(Record(None, None), times)
            if job.custom:
                tree = job.record.values[0]
                leaves = [read(name) for name, _ in named_leaves(tree)]
                values = jax.tree.unflatten(jax.tree.structure(tree), leaves)
            else:
                values = read("mu")
            return build(Record(values, None if job.record.g is None else read("g")), times)

        return load
