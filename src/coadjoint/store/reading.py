"""Reading stores: runs on disk, as Zarr folders that any Zarr library can read (docs/guides/stores.md)."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import zarr

from ..numerics.html import as_html
from .atomic_io import StoreError
from .checkpoints import Checkpoint, Checkpoints
from .header import TOTALS, flat
from .header_checks import check_arrays, read_header
from .locks import store_lock
from .manifest import Manifest
from .zarr_files import Files

if TYPE_CHECKING:
    import xarray

    from ..runtime.stats import Stats

_TRIES, _PAUSE = 4, 0.1  # repetitions, and seconds between them, while a run writes to the store


class Contents(NamedTuple):
    """A store that is open for reading."""

    header: dict[str, Any]
    manifest: Manifest
    checkpoints: list[Checkpoint | None]  # of all batches of all runs

    @property
    def saved(self) -> int:
        """The largest number of saved times of any batch."""
        return max((c.rows for c in self.checkpoints if c is not None), default=0)

    def files(self) -> Files:
        """The files, which are checked when they are read."""
        return Files(self.manifest, read_only=True)

    def arrays(self) -> Any:
        """The arrays as a Zarr group."""
        return zarr.open_group(self.files(), mode="r", use_consolidated=False)


def contents(path: Path, action: str = "open") -> Contents:
    """Return header, manifest and checkpoints of a store; raise `StoreError` if a file is missing or foreign.

    Contents of chunks are checked when they are read. If a run writes to the store meanwhile, errors may be those of
    a file that is being replaced: then the store is read again.
    """
    for _ in range(_TRIES if action == "open" else 0):
        try:
            return _contents(path, action)
        except StoreError:
            if not path.is_dir() or store_lock(path).owner() is None:
                raise
            time.sleep(_PAUSE)
    return _contents(path, action)


def _contents(path: Path, action: str) -> Contents:
    header = read_header(path, action)
    manifest = Manifest(path, header["identity"], live=action == "open").load()
    for name in [name for name in manifest.files if name.endswith("zarr.json")]:
        manifest.read(name)
    found = Checkpoints(manifest, header["plans"], header["n_batches"]).read_all()
    manifest.check_sizes()
    check_arrays(path, header, manifest, lengths=action == "open")  # an interrupted extension can be resumed
    return Contents(header, manifest, found)


class Stored:
    """A run whose results are in a store.

    `open()` returns an xarray Dataset, which reads chunks when needed. `load()` reads all results into memory. All
    attributes of a `Solution` or an `Ensemble` (`mu`, `casimirs()`, …) are available, and call `load()` when first
    used.

    Parameters
    ----------
    path : Path
        The store.
    stats : Stats or None
        The statistics of the solver; None for a sweep.
    load : callable or None
        The function that reads all results; None for a sweep.
    """

    def __init__(self, path: Path, stats: "Stats | None", load: Callable[[], Any] | None):
        self.path, self.stats, self._load = path, stats, load
        self._loaded: Any = None

    def open(self) -> "xarray.Dataset":
        """Return the store as an xarray Dataset."""
        return open(self.path)

    def load(self) -> Any:
        """Read all results into memory; return a `Solution` or an `Ensemble`."""
        if self._load is None:
            raise StoreError(f"{self.path} is a sweep, which has no single solution: use open().")
        if self._loaded is None:
            self._loaded = self._load()
        return self._loaded

    def to_xarray(self) -> "xarray.Dataset":
        """Return the store as an xarray Dataset."""
        return self.open()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.load(), name)

    def _repr_html_(self) -> str:
        return as_html(self)

    def __repr__(self) -> str:
        """Show the path, and the statistics of the solver."""
        solver = "" if self.stats is None else f"\n  solver    {self.stats!r}"
        return f"Stored: {self.path}{solver}"


def open(path: Any) -> "xarray.Dataset":
    """Open a store as an xarray Dataset, which reads chunks when needed.

    The Dataset contains all saved times up to the last checkpoint. Its attributes contain the configuration. In an
    ensemble or a sweep that is not finished, missing values are NaN, and `steps` contains the steps of each member.

    Parameters
    ----------
    path : str or Path
        The folder of the store.

    Returns
    -------
    xarray.Dataset

    Raises
    ------
    StoreError
        If the folder is not a store, or a file is missing, damaged, or of another store. The message names the file.

    Examples
    --------
    >>> import coadjoint as cj
    >>> system, mu0 = cj.models.rigid_body()
    >>> run = cj.solve(system, mu0, t1=1.0, dt=0.1, key=0, out="run.zarr")
    >>> cj.open("run.zarr")["mu"].dims
    ('time', 'component')
    """
    import xarray as xr

    path = Path(path)
    found = contents(path)
    header = found.header
    try:
        data = xr.open_zarr(found.files(), consolidated=False, chunks=None, decode_times=False, mask_and_scale=False)
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
    """Return the solver statistics from the checkpoints, which are ahead of the arrays during a run."""
    header, arrays = found.header, found.arrays()
    out = {name: np.full(arrays[name].shape, arrays[name].fill_value, arrays[name].dtype) for name in TOTALS}
    sizes = [len(v) for v in header["axes"].values()]
    for k, checkpoint in enumerate(found.checkpoints):
        if checkpoint is None:
            continue
        run, batch = divmod(k, header["n_batches"])
        at: tuple = tuple(int(i) for i in np.unravel_index(run, sizes)) if sizes else ()
        for name, value in checkpoint.totals.items():
            if header["members"] is None:
                out[name][at] = value
            else:
                first = batch * header["batch_size"]
                own = out[name][at][first : first + header["batch_size"]]
                own[...] = value[: len(own)]
    return out


def _plain(value: Any) -> Any:
    """Return a value that an attribute of any format can have."""
    if value is None or isinstance(value, bool):
        return str(value)
    return json.dumps(value) if isinstance(value, list) and any(isinstance(v, list) for v in value) else value
