"""Creating a store, and resuming one that exists."""

import contextlib
import copy
import math
import os
import shutil
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.codecs import BloscCodec, Crc32cCodec, ZstdCodec
from zarr.storage import LocalStore

from ..models.origin import origin
from ..numerics import validation
from ..runtime.backends.base import Program
from ..runtime.plan import Plan
from .atomic_io import THREADS, StoreError, reason, remove_partial, sync, sync_tree, write
from .checkpoints import Checkpoints
from .fingerprint import configuration, differences, digest
from .header import FORMAT
from .header_checks import read_header
from .input_arrays import GIVEN, given_variable, without_arrays
from .locks import CHECKPOINTS, Lock, batch_locks, store_lock
from .manifest import MANIFEST, manifest_of_folder
from .provenance import numerics_version, versions
from .reading import Contents, contents
from .schema import TIMES, Layout, Variable
from .zarr_files import Files, collected

_SAME_BITS = {"native-gpu": "native"}  # backends with bitwise identical results

# Creating a store.


def create(
    path: Path,
    plans: Sequence[Plan],
    programs: Sequence[Program],
    layout: Layout,
    experiment: dict[str, Any] | None,
    platform: dict[str, Any],
) -> Lock:
    """Create the store under another name and rename it, so that it exists completely or not at all."""
    if os.path.lexists(path):
        raise StoreError(
            f"{path} exists already: resume it (resume=True, or `coadjoint resume {path}`), remove it, or choose "
            "another name."
        )
    fresh = path.with_name(path.name + ".new")
    lock = store_lock(fresh)
    try:
        if not path.parent.is_dir():
            raise StoreError(f"{path} cannot be created: there is no folder {path.parent}.")
        _check_room(path, layout)
        if fresh.is_dir():  # of a process that was killed, or that still runs
            lock.acquire()
            lock.release()
            shutil.rmtree(fresh)
        lock.path.parent.mkdir(parents=True)
        lock.acquire()
        experiment, given = without_arrays(experiment)
        made, more = without_arrays(_model(plans[0]))
        header = {"identity": uuid.uuid4().hex} | _header(plans, programs, layout, experiment, platform) | made
        root = zarr.create_group(LocalStore(fresh), attributes={"coadjoint": header})
        root.create_group(CHECKPOINTS)
        kept = root.create_group(GIVEN)
        for name, array in (given | more).items():
            _create_array(kept, given_variable(name, array))
        for variable in layout.variables.values():
            _create_array(root, variable)
        _write_times(root["time"], plans, layout, 0)
        write(fresh / MANIFEST, manifest_of_folder(fresh, header["identity"]))
        sync_tree(fresh)
        os.rename(fresh, path)
        sync(path.parent)
    except OSError as error:
        lock.release()
        with contextlib.suppress(OSError):
            shutil.rmtree(fresh)
        raise StoreError(f"{path} cannot be created: {reason(error)}.") from error
    return lock


def _check_room(path: Path, layout: Layout) -> None:
    """Raise if the store cannot fit on the disk, before the run starts."""
    needed = sum(math.prod(v.shape) * np.dtype(v.dtype).itemsize for v in layout.variables.values())
    free = shutil.disk_usage(path.parent).free
    if needed > free:
        raise StoreError(
            f"{path} would take {needed / 1e9:.3g} GB ({layout.saved} saved times), and the disk has "
            f"{free / 1e9:.3g} GB free: save fewer times, save less with save=, or write to another disk."
        )


def _create_array(root: Any, v: Variable) -> None:
    array = root.create_array(
        v.name,
        shape=v.shape,
        chunks=v.in_file,
        dtype=v.dtype,
        fill_value=v.fill_value,
        dimension_names=v.dims,
        attributes=v.attrs,
        compressors=[_compressor(v), Crc32cCodec()],
        chunk_key_encoding={"name": "default", "separator": "."},  # one folder per array
        config={"write_empty_chunks": True},
    )
    if v.data is not None:
        array[...] = v.data


def _compressor(v: Variable) -> Any:
    """Return a fast compressor that groups bytes of equal weight for real numbers, and Zstandard for other values."""
    return BloscCodec(cname="lz4", shuffle="shuffle") if np.dtype(v.dtype).kind == "f" else ZstdCodec(level=1)


def _header(
    plans: Sequence[Plan],
    programs: Sequence[Program],
    layout: Layout,
    experiment: dict[str, Any] | None,
    platform: dict[str, Any],
) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "kind": "sweep" if layout.axes else "solve" if layout.members is None else "ensemble",
        **layout.header(),
        **_about(plans),
        "plans": [digest(configuration(plan)) for plan in plans],  # extensions do not change them
        "experiment": experiment,
        "versions": versions(),
        "platform": platform,
        "numerics_version": numerics_version(),
        "backends": [_backend(program) for program in programs],
        "history": [],
    }


def _model(plan: Plan) -> dict[str, Any]:
    """Return the model that made the system, with its arguments, which plots of its states need."""
    made = origin(plan.system)
    return {"model": None if made is None else {"name": made.name, **made.arguments}}


def _about(plans: Sequence[Plan]) -> dict[str, Any]:
    """Return the fields that a longer t1 changes."""
    configurations = [configuration(plan) for plan in plans]
    return {
        "steps": [plan.steps for plan in plans],
        "saved": max(plan.n_saved for plan in plans),
        "configuration": configurations[0],
        "fingerprints": [digest(c) for c in configurations],
    }


def _backend(program: Program) -> dict[str, str]:
    return {"backend": program.backend, "reason": program.reason}


def _write_times(array: Any, plans: Sequence[Plan], layout: Layout, first: int) -> None:
    """Write the coordinate of saved times in whole chunks, from the one that contains row `first` on."""
    for k, plan in enumerate(plans if layout.time != "time" else plans[:1]):
        where = layout.where(k) if layout.time != "time" else ()
        for a in range(first // TIMES * TIMES, layout.saved, TIMES):
            b = min(a + TIMES, layout.saved)
            row = np.full(b - a, np.nan)
            own = plan.times(a, min(b, plan.n_saved))
            row[: len(own)] = own
            array[(*where, slice(a, b))] = row.reshape(*(1,) * len(where), -1)


# Resuming a store.


def reopen(
    path: Path,
    plans: Sequence[Plan],
    programs: Sequence[Program],
    layout: Layout,
    platform: dict[str, Any],
    remote: bool,
) -> Lock:
    """Lock the store, compare configurations, and extend the arrays if t1 is larger now.

    A worker may still write a batch for a client that is gone. With `remote`, other workers wait for it; else this
    is an error.
    """
    read_header(path, "resume")
    lock = store_lock(path)
    try:
        lock.acquire()
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {reason(error)}.") from error
    try:
        for batch in batch_locks(path):
            if not remote:
                batch.acquire()
                batch.remove()
        found = contents(path, "resume")  # now that no other process changes it
        _compare(path, found.header, plans)
        remove_partial(path)
        Checkpoints(found.manifest, found.header["plans"], layout.n_batches).remove_orphans()
        with collected() as files:
            root = zarr.open_group(Files(found.manifest), mode="r+", use_consolidated=False)
            _update_header(path, root, found, plans, programs, platform)
            _extend(root, plans, layout)
        if files:
            with ThreadPoolExecutor(THREADS) as pool:
                found.manifest.commit(files, pool)
    except OSError as error:
        lock.release()
        raise StoreError(f"{path} cannot be written: {reason(error)}.") from error
    except BaseException:
        lock.release()
        raise
    return lock


def _compare(path: Path, header: dict[str, Any], plans: Sequence[Plan]) -> None:
    if len(header["steps"]) != len(plans):
        raise StoreError(f"{path} contains {len(header['steps'])} run(s), not {len(plans)}.")
    now = [configuration(plan, steps) for plan, steps in zip(plans, header["steps"], strict=True)]
    different = differences(header["configuration"], now[0])
    fingerprints = [digest(c) for c in now]
    if not different and fingerprints != header["fingerprints"]:
        k = next(k for k, f in enumerate(fingerprints) if f != header["fingerprints"][k])
        different = [f"run {k} of the sweep differs"]
    if different:
        changed = differences(header["versions"], versions())
        note = f" Versions differ too, and fingerprints with them: {'; '.join(changed)}." if changed else ""
        raise StoreError(f"{path} has another configuration. " + "; ".join(different) + "." + note)
    for plan, steps in zip(plans, header["steps"], strict=True):
        if plan.steps < steps:
            t1 = plan.t0 + steps * plan.dt
            raise StoreError(f"t1 must be at least {t1:g}, the t1 of {path}: a run can only be extended.")


def _update_header(
    path: Path,
    root: Any,
    found: Contents,
    plans: Sequence[Plan],
    programs: Sequence[Program],
    platform: dict[str, Any],
) -> None:
    """Write what has changed: t1, and the provenance, with a warning. This is repeated if it is interrupted."""
    before = found.header
    header: dict[str, Any] = copy.deepcopy(before)
    extended = [plan.steps for plan in plans] != before["steps"]
    if extended:
        header |= _about(plans)
    if extended and header["experiment"] is not None:
        header["experiment"]["run"]["t1"] = header["configuration"]["t1"]
    changed = _changed_provenance(found, plans, programs, platform)
    for k, own in enumerate(_unfinished(found, plans)):
        if own is not None:
            header["backends"][k] = _backend(programs[k])
    if changed:
        note = {"versions": versions(), "platform": platform, "numerics_version": numerics_version()}
        note |= {"backends": header["backends"], "steps": [_stands(found, k) for k in range(len(plans))]}
        header["history"] = [*header["history"], note]
    if header != before:
        root.attrs["coadjoint"] = header
    if changed:
        validation.warn(
            f"{path} resumes under other conditions, so its last bits may differ from an uninterrupted run: "
            + "; ".join(changed)
            + "."
        )


def _changed_provenance(
    found: Contents, plans: Sequence[Plan], programs: Sequence[Program], platform: dict[str, Any]
) -> list[str]:
    """Describe each difference that affects the last bits; backends count only where steps are left."""
    last = (found.header["history"] or [found.header])[-1]
    now = {"versions": versions(), "platform": platform}
    changed = [d for name in now for d in differences({name: last[name]}, {name: now[name]})]
    left = [(c, program) for own, program in zip(_unfinished(found, plans), programs, strict=True) for c in own or ()]
    for c, program in left:
        if _SAME_BITS.get(c.backend, c.backend) != _SAME_BITS.get(program.backend, program.backend):
            changed += differences({"backend": c.backend}, {"backend": program.backend})
        changed += differences({"numerics version": c.numerics_version}, {"numerics version": numerics_version()})
    return list(dict.fromkeys(changed))


def _unfinished(found: Contents, plans: Sequence[Plan]) -> list:
    """Return for each run the checkpoints from which it resumes; None if no steps are left."""
    out, batches = [], found.header["n_batches"]
    for k, plan in enumerate(plans):
        own = found.checkpoints[k * batches : (k + 1) * batches]
        left = [c for c in own if c is None or c.step < plan.steps]
        out.append([c for c in left if c is not None] if left else None)
    return out


def _stands(found: Contents, run: int) -> int:
    """Return the step from which a run resumes: the first one of its batches."""
    batches = found.header["n_batches"]
    return min(0 if c is None else c.step for c in found.checkpoints[run * batches : (run + 1) * batches])


def _extend(root: Any, plans: Sequence[Plan], layout: Layout) -> None:
    """Give all arrays their new length."""
    for name, variable in layout.variables.items():
        array = root[name]
        if array.shape != variable.shape:
            first = array.shape[variable.dims.index(layout.time)]
            array.resize(variable.shape)
            if name == "time":
                _write_times(array, plans, layout, first)
