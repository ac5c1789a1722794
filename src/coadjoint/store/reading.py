"""Stores: runs on disk, as Zarr folders that anyone can read (docs/guides/stores.md)."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import zarr

from ..numerics.html import as_html
from .atomic_io import Files, StoreError, reason
from .checkpoints import Checkpoint, Checkpoints
from .header import FORMAT, TOTALS, flat

if TYPE_CHECKING:
    import xarray

    from ..runtime.results import Stats


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


class Contents(NamedTuple):
    """A store that is open for reading."""

    header: dict[str, Any]
    files: Files
    checkpoints: list[Checkpoint | None]  # of all tiles of all runs

    @property
    def saved(self) -> int:
        """Saved times of the run that is farthest."""
        return max((c.rows for c in self.checkpoints if c is not None), default=0)

    def arrays(self) -> Any:
        """As Zarr has them."""
        return zarr.open_group(self.files, mode="r", use_consolidated=False)


def contents(path: Path, what: str = "open") -> Contents:
    """Header, files and checkpoints; a file that must be there and is not, or is damaged, is named when it is read."""
    header = read_header(path, what)
    tiles, sizes = header["tiles"], [len(values) for values in header["axes"].values()]
    found = Checkpoints(path).read_all(len(header["steps"]) * tiles)

    def required(key: str) -> bool:
        name, _, last = key.partition("/")
        at = [int(i) for i in last.split(".")[1:]]
        kind, dims = (header["variables"].get(name, {}).get(k) for k in ("kind", "dimensions"))
        if kind != "rows":
            return kind == "coordinate"
        where = dict(zip(dims, at, strict=True))
        run = int(np.ravel_multi_index([where[a] for a in header["axes"]], sizes)) if sizes else 0
        checkpoint = found[run * tiles + where.get("member", where.get("tile", 0))]
        return checkpoint is not None and where[header["time"]] * header["rows"] < checkpoint.rows

    return Contents(header, Files(path, read_only=True, required=required), found)


class Stored:
    """A run whose results are in a store.

    `open()` gives them as an xarray Dataset, read piece by piece; `load()` reads all of them into memory. All that a
    `Solution` or an `Ensemble` has (`mu`, `casimirs()`, …) is there as well, read when first asked for.
    """

    def __init__(self, path: Path, stats: "Stats | None", load: Callable[[], Any] | None):
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

    def _repr_html_(self) -> str:
        return as_html(self)

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
    found = contents(path)
    header = found.header
    try:
        data = xr.open_zarr(found.files, consolidated=False, chunks=None, decode_times=False, mask_and_scale=False)
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path} is damaged, or just being extended: {error}") from None
    shown = [name for name in header["variables"] if name in data and not name.startswith("partial_")]
    data = data[shown].isel({header["time"]: slice(0, found.saved)})
    data = data.assign({k: (data[k].dims, v, data[k].attrs) for k, v in totals(found).items()})
    data.attrs = {k: _plain(v) for k, v in flat({k: v for k, v in header.items() if k in _SHOWN})}
    data.attrs["backend"] = ", ".join(dict.fromkeys(about["backend"] for about in header["backends"]))
    return data


_SHOWN = ("format", "kind", "model", "configuration", "experiment", "versions", "platform", "numerics_version")


def totals(found: Contents) -> dict[str, np.ndarray]:
    """How steps were solved, from the checkpoints, which are ahead of the arrays while a run goes on."""
    header, arrays = found.header, found.arrays()
    out = {name: np.full(arrays[name].shape, arrays[name].fill_value, arrays[name].dtype) for name in TOTALS}
    sizes = [len(v) for v in header["axes"].values()]
    for k, checkpoint in enumerate(found.checkpoints):
        if checkpoint is None:
            continue
        run, tile = divmod(k, header["tiles"])
        at: tuple = tuple(int(i) for i in np.unravel_index(run, sizes)) if sizes else ()
        for name, value in checkpoint.totals.items():
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
