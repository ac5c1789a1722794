"""Making a store, and going on with one that is there."""

import contextlib
import math
import os
import shutil
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.codecs import BloscCodec, Crc32cCodec, ZstdCodec
from zarr.storage import LocalStore

from ..models.origin import origin
from ..runtime.backends.base import Program
from ..runtime.plan import Plan
from .atomic_io import Files, StoreError, reason, remove_partial, sync, sync_tree
from .checkpoints import Checkpoints
from .fingerprint import configuration, differences, digest
from .header import FORMAT
from .input_arrays import GIVEN, given_variable, without_arrays
from .locks import CHECKPOINTS, Lock, store_lock, tile_locks
from .provenance import numerics_version, versions
from .reading import Contents, contents, read_header
from .schema import TIMES, Layout, Variable

_SAME_BITS = {"native-gpu": "native"}  # backends whose arithmetic is another's

# Making a store.


def create(
    path: Path,
    plans: Sequence[Plan],
    programs: Sequence[Program],
    layout: Layout,
    experiment: dict[str, Any] | None,
    platform: dict[str, Any],
) -> Lock:
    """Make the store under another name, whole, and rename it: it is there completely or not at all."""
    if os.path.lexists(path):
        raise StoreError(
            f"{path} exists already: go on with it (resume=True, or `coadjoint resume {path}`), remove it, or choose "
            "another name."
        )
    fresh = path.with_name(path.name + ".new")
    lock = store_lock(fresh)
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
        experiment, given = without_arrays(experiment)
        made, more = without_arrays(_model(plans[0]))
        header = _header(plans, programs, layout, experiment, platform) | made
        root = zarr.create_group(LocalStore(fresh), attributes={"coadjoint": header})
        root.create_group(CHECKPOINTS)
        kept = root.create_group(GIVEN)
        for name, array in (given | more).items():
            _create_array(kept, given_variable(name, array))
        for variable in layout.variables.values():
            _create_array(root, variable)
        _write_times(root, plans, layout, 0)
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
        chunk_key_encoding={"name": "default", "separator": "."},  # one folder an array
        config={"write_empty_chunks": True},
    )
    if v.data is not None:
        array[...] = v.data


def _compressor(v: Variable) -> Any:
    """For real numbers a fast one, bytes of equal weight side by side; for others one that sees what is there twice."""
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
        "experiment": experiment,
        "versions": versions(),
        "platform": platform,
        "numerics_version": numerics_version(),
        "backends": [_backend(program) for program in programs],
        "history": [],
    }


def _model(plan: Plan) -> dict[str, Any]:
    """The model that made the system, with its arguments: what its states mean, and how they are drawn."""
    made = origin(plan.system)
    return {"model": None if made is None else {"name": made.name, **made.arguments}}


def _about(plans: Sequence[Plan]) -> dict[str, Any]:
    """What a longer t1 changes."""
    configurations = [configuration(plan) for plan in plans]
    return {
        "steps": [plan.steps for plan in plans],
        "configuration": configurations[0],
        "fingerprints": [digest(c) for c in configurations],
    }


def _backend(program: Program) -> dict[str, str]:
    return {"backend": program.backend, "reason": program.reason}


def _write_times(root: Any, plans: Sequence[Plan], layout: Layout, first: int) -> None:
    """The coordinate of saved times, in whole files from the one that holds row `first` on."""
    array = root["time"]
    for k, plan in enumerate(plans if layout.time != "time" else plans[:1]):
        where = layout.where(k) if layout.time != "time" else ()
        for a in range(first // TIMES * TIMES, layout.saved, TIMES):
            b = min(a + TIMES, layout.saved)
            row = np.full(b - a, np.nan)
            own = plan.times(a, min(b, plan.n_saved))
            row[: len(own)] = own
            array[(*where, slice(a, b))] = row.reshape(*(1,) * len(where), -1)


# Going on.


def reopen(
    path: Path,
    plans: Sequence[Plan],
    programs: Sequence[Program],
    layout: Layout,
    platform: dict[str, Any],
    remote: bool,
) -> Lock:
    """Lock the store, compare configurations, and make room if t1 is larger now.

    Tiles that a cluster still writes, for somebody who is gone, can be waited for by other processes (`remote`) only.
    """
    read_header(path, "resume")
    lock = store_lock(path)
    try:
        lock.acquire()
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {reason(error)}.") from error
    try:
        for tile in tile_locks(path):
            if not remote:
                tile.acquire()
                tile.remove()
        found = contents(path, "resume")  # now that nobody else changes it
        _compare(path, found.header, plans)
        remove_partial(path)
        Checkpoints(path).remove_orphans(len(found.checkpoints))
        root = zarr.open_group(Files(path), mode="r+", use_consolidated=False)
        _update_header(path, root, found, plans, programs, platform)
        _extend(path, root, plans, layout)
    except OSError as error:
        lock.release()
        raise StoreError(f"{path} cannot be written: {reason(error)}.") from error
    except BaseException:
        lock.release()
        raise
    return lock


def _compare(path: Path, header: dict[str, Any], plans: Sequence[Plan]) -> None:
    if len(header["steps"]) != len(plans):
        raise StoreError(f"{path} holds {len(header['steps'])} run(s), but this is about {len(plans)}.")
    now = [configuration(plan, steps) for plan, steps in zip(plans, header["steps"], strict=True)]
    different = differences(header["configuration"], now[0])
    fingerprints = [digest(c) for c in now]
    if not different and fingerprints != header["fingerprints"]:
        k = next(k for k, f in enumerate(fingerprints) if f != header["fingerprints"][k])
        different = [f"run {k} of the sweep is another one"]
    if different:
        changed = differences(header["versions"], versions())
        note = f" Versions differ too, and fingerprints with them: {'; '.join(changed)}." if changed else ""
        raise StoreError(f"{path} was made with another configuration. " + "; ".join(different) + "." + note)
    for plan, steps in zip(plans, header["steps"], strict=True):
        if plan.steps < steps:
            t1 = plan.t0 + steps * plan.dt
            raise StoreError(f"t1 must be at least {t1:g}, which {path} was made for; a run can only be extended.")


def _update_header(
    path: Path,
    root: Any,
    found: Contents,
    plans: Sequence[Plan],
    programs: Sequence[Program],
    platform: dict[str, Any],
) -> None:
    """What has changed since the store was written: t1, and the conditions, of which there is a warning.

    This comes before arrays get their new length: if that is interrupted, it is done again.
    """
    before = read_header(path, "resume")
    header = found.header | {"backends": [dict(x) for x in found.header["backends"]]}
    extended = [plan.steps for plan in plans] != before["steps"]
    if extended:
        header |= _about(plans)
    if extended and header["experiment"] is not None:
        header["experiment"]["run"]["t1"] = header["configuration"]["t1"]
    changed = _changed_conditions(found, plans, programs, platform)
    for k, own in enumerate(_unfinished(found, plans)):
        if own is not None:
            header["backends"][k] = _backend(programs[k])
    if changed:
        note = {"versions": versions(), "platform": platform, "numerics_version": numerics_version()}
        note |= {"backends": header["backends"], "steps": [_stands(found, k) for k in range(len(plans))]}
        header["history"] = [*header["history"], note]
    if header != before:
        root.attrs["coadjoint"] = header
        sync(path)
    if changed:
        warnings.warn(
            f"{path} goes on under other conditions, so its last bits may differ from an uninterrupted run: "
            + "; ".join(changed) + ".", RuntimeWarning, stacklevel=8,
        )  # fmt: skip


def _changed_conditions(
    found: Contents, plans: Sequence[Plan], programs: Sequence[Program], platform: dict[str, Any]
) -> list[str]:
    """What the last bits depend on and is not as it was, a sentence each; of backends, where steps are left to do."""
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
    """Of each run, the checkpoints from which it goes on; None where nothing is left to do."""
    out, tiles = [], found.header["tiles"]
    for k, plan in enumerate(plans):
        own = found.checkpoints[k * tiles : (k + 1) * tiles]
        left = [c for c in own if c is None or c.step < plan.steps]
        out.append([c for c in left if c is not None] if left else None)
    return out


def _stands(found: Contents, run: int) -> int:
    """The step from which a run goes on; of several tiles, the first."""
    tiles = found.header["tiles"]
    return min(0 if c is None else c.step for c in found.checkpoints[run * tiles : (run + 1) * tiles])


def _extend(path: Path, root: Any, plans: Sequence[Plan], layout: Layout) -> None:
    """Give all arrays their new length."""
    for name, variable in layout.variables.items():
        try:
            array = root[name]
        except (KeyError, ValueError, TypeError):
            raise StoreError(f"{path / name / 'zarr.json'} is missing or damaged.") from None
        if array.shape != variable.shape:
            first = array.shape[variable.dims.index(layout.time)]
            array.resize(variable.shape)
            if name == "time":
                _write_times(root, plans, layout, first)
            sync(path / name)
