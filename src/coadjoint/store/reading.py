"""Stores: runs on disk, as Zarr folders that anyone can read (docs/stores.md)."""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import zarr

from ..running.solution import Stats
from .configuration import flat
from .durable import Files, StoreError, load_checkpoint
from .layout import STATISTICS

if TYPE_CHECKING:
    import xarray

FORMAT = 1  # of stores; one with a higher number is not read
CHECKPOINTS, LOCK = "checkpoint", "lock"  # a folder, and a file in it


def read_header(path: Path, what: str) -> dict[str, Any]:
    """What the store says of itself, or an error that says what is wrong with it."""
    if not os.path.lexists(path):
        new = path.with_name(path.name + ".new")
        begun = f" ({new} is what is left of one that was stopped before it began.)" if new.exists() else ""
        hint = ": there is nothing to go on with; start the run without resume" if what == "resume" else ""
        raise StoreError(f"{path} does not exist{hint}.{begun}")
    try:
        attributes = json.loads((path / "zarr.json").read_bytes())["attributes"]
    except (FileNotFoundError, NotADirectoryError):
        raise StoreError(f"{path} is no store: it is not a Zarr folder (there is no zarr.json in it).") from None
    except (ValueError, KeyError, TypeError):
        raise StoreError(f"{path / 'zarr.json'} is damaged: it was cut off or changed.") from None
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {reason(error)}.") from None
    header = attributes.get("coadjoint") if isinstance(attributes, dict) else None
    if not isinstance(header, dict) or not isinstance(header.get("format"), int):
        raise StoreError(f"{path} is a Zarr folder of something else: it was not written by coadjoint.")
    if header["format"] > FORMAT:
        made = header.get("versions", {}).get("coadjoint", "a later version")
        raise StoreError(
            f"{path} has format {header['format']}, and this version of coadjoint reads formats up to {FORMAT}: "
            f"upgrade coadjoint (the store was written by {made})."
        )
    missing = [k for k in _REQUIRED if k not in header]
    if missing:
        raise StoreError(f"{path / 'zarr.json'} is damaged: it lacks {', '.join(missing)}.")
    return header


_REQUIRED = ("kind", "steps", "axes", "members", "tile", "tiles", "rows", "time", "variables")
_REQUIRED += ("configuration", "fingerprints", "experiment", "versions", "platform", "history")


def reason(error: OSError) -> str:
    """Why the disk refuses, in words."""
    words = {
        errno.ENOSPC: "the disk is full",
        errno.EDQUOT: "the quota of the disk is used up",
        errno.EACCES: "permission is denied",
        errno.EPERM: "permission is denied",
        errno.EROFS: "the disk is read-only",
    }
    where = f" ({error.filename})" if error.filename else ""
    return words.get(error.errno or 0, error.strerror or str(error)) + where


class Progress(NamedTuple):
    """Where a part stands, as its checkpoint has it."""

    step: int
    rows: int
    statistics: dict[str, np.ndarray]


def checkpoint_path(path: Path, part: int) -> Path:
    """The checkpoint of a part."""
    return path / CHECKPOINTS / f"part-{part:06d}.npz"


def _progress(path: Path, part: int) -> Progress | None:
    found = load_checkpoint(checkpoint_path(path, part))
    if found is None:
        return None
    header, leaves = found
    tally = [x for (name, *_), x in zip(header["leaves"], leaves, strict=True) if name.startswith(".tally")]
    values = [np.full_like(tally[0], header["step"]), *tally]
    return Progress(header["step"], header["rows"], dict(zip(STATISTICS, values, strict=True)))


class Contents(NamedTuple):
    """A store that is open for reading."""

    header: dict[str, Any]
    files: Files
    parts: list[Progress | None]

    def arrays(self) -> Any:
        """As a Zarr group."""
        return zarr.open_group(self.files, mode="r", use_consolidated=False)


def contents(path: Path) -> Contents:
    """Header, files and checkpoints; a chunk that must be there and is not, or is damaged, is named when it is read."""
    header = read_header(path, "open")
    tiles = header["tiles"]
    parts = [_progress(path, k) for k in range(len(header["steps"]) * tiles)]
    sizes = [len(values) for values in header["axes"].values()]

    def required(key: str) -> bool:
        name, _, last = key.partition("/")
        at = [int(i) for i in last.split(".")[1:]]
        kind, dims = (header["variables"].get(name, {}).get(k) for k in ("kind", "dimensions"))
        if kind != "rows":
            return kind == "coordinate"
        where = dict(zip(dims, at, strict=True))
        run = int(np.ravel_multi_index([where[a] for a in header["axes"]], sizes)) if sizes else 0
        part = parts[run * tiles + where.get("member", where.get("tile", 0))]
        return part is not None and where[header["time"]] * header["rows"] < part.rows

    return Contents(header, Files(path, read_only=True, required=required), parts)


class Stored:
    """A run whose results are in a store.

    `open()` gives them as an xarray Dataset, read piece by piece; `load()` reads all of them into memory. All that a
    `Solution` or an `Ensemble` has (`mu`, `casimirs()`, …) is there as well, read when first asked for.
    """

    def __init__(self, path: Path, stats: Stats | None, load: Callable[[], Any] | None):
        self.path, self.stats, self._load = path, stats, load
        self._loaded: Any = None

    def open(self) -> "xarray.Dataset":
        """The store as an xarray Dataset."""
        return open(self.path)

    def load(self) -> Any:
        """All of it in memory: a `Solution` or an `Ensemble`."""
        if self._load is None:
            raise StoreError(f"{self.path} is a sweep, which is no single run: see open().")
        if self._loaded is None:
            self._loaded = self._load()
        return self._loaded

    def to_xarray(self) -> "xarray.Dataset":
        """The store as an xarray Dataset."""
        return self.open()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.load(), name)

    def __repr__(self) -> str:
        """Where it is, and how it went."""
        solver = "" if self.stats is None else f"\n  solver    {self.stats!r}"
        return f"Stored: {self.path}{solver}"


def open(path: Any) -> "xarray.Dataset":
    """A store as an xarray Dataset, read piece by piece: as much of the run as its last checkpoint holds.

    Dimensions and coordinates are named; attributes hold the whole configuration. Of an ensemble or a sweep that is
    not finished, what is missing reads as NaN, and `steps` says how far each member is.
    """
    import xarray as xr

    path = Path(path)
    header, files, parts = found = contents(path)
    try:
        data = xr.open_zarr(files, consolidated=False, chunks=None, decode_times=False, mask_and_scale=False)
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path} is damaged, or just being extended: {error}") from None
    saved = max((p.rows for p in parts if p is not None), default=0)
    shown = [name for name in header["variables"] if name in data and not name.startswith("partial_")]
    data = data[shown].isel({header["time"]: slice(0, saved)})
    data = data.assign({k: (data[k].dims, v, data[k].attrs) for k, v in statistics(found).items()})
    data.attrs = {k: _plain(v) for k, v in flat({k: v for k, v in header.items() if k in _SHOWN})}
    return data


_SHOWN = ("format", "kind", "configuration", "experiment", "versions", "platform")


def statistics(found: Contents) -> dict[str, np.ndarray]:
    """The statistics of the solver from the checkpoints, which are ahead of the arrays while a run goes on."""
    header, _, parts = found
    group = found.arrays()
    out = {name: np.full(group[name].shape, group[name].fill_value, dtype) for name, (_, dtype) in STATISTICS.items()}
    sizes = [len(v) for v in header["axes"].values()]
    for k, part in enumerate(parts):
        if part is None:
            continue
        run, tile = divmod(k, header["tiles"])
        at: tuple = tuple(int(i) for i in np.unravel_index(run, sizes)) if sizes else ()
        for name, value in part.statistics.items():
            if header["members"] is None:
                out[name][at] = value
            else:
                first = tile * header["tile"]
                own = out[name][at][first : first + header["tile"]]
                own[...] = value[: len(own)]
    return out


def _plain(value: Any) -> Any:
    """For attributes that any format can hold."""
    if value is None or isinstance(value, bool):
        return str(value)
    return json.dumps(value) if isinstance(value, list) and any(isinstance(v, list) for v in value) else value
