"""Arrays that a user names by a file."""

from pathlib import Path
from typing import Any

import numpy as np


def array_from(name: str, value: Any, folder: Path | None = None) -> Any:
    """Return the array in a file if `value` is a path, relative to `folder`; return other values unchanged.

    A .npy file; a Zarr array, or a Zarr group that holds a single one ("field.zarr", or "field.zarr/omega" for one of
    several); a NetCDF file in the same way ("field.nc", "field.nc/vorticity").
    """
    if not isinstance(value, (str, Path)):
        return value
    path = Path(value) if folder is None else folder / value
    file = next((p for p in (path, *path.parents) if p.suffix in _READERS), None)
    if file is None:
        raise ValueError(f"{name} must be numbers, or the path of a .npy, .zarr or .nc, not {str(value)!r}.")
    if not file.exists():
        raise ValueError(f"{name}: {file} does not exist.")
    try:
        return np.asarray(_READERS[file.suffix](name, file, str(path.relative_to(file)).strip(".")))
    except (OSError, ImportError) as error:
        raise ValueError(f"{name}: {file} cannot be read: {error}.") from None


def _npy(name: str, file: Path, inner: str) -> Any:
    try:
        return np.load(file, allow_pickle=False)
    except ValueError as error:
        raise ValueError(f"{name}: {file} is no .npy file of numbers: {error}") from None


def _zarr(name: str, file: Path, inner: str) -> Any:
    import zarr

    found: Any = zarr.open(str(file), mode="r")
    if isinstance(found, zarr.Array):
        return found[...]
    return _one_of(name, file, {key: array for key, array in found.arrays()}, inner)[...]


def _netcdf(name: str, file: Path, inner: str) -> Any:
    import xarray

    with xarray.open_dataset(file, decode_times=False) as found:
        return np.array(_one_of(name, file, dict(found.data_vars), inner))


def _one_of(name: str, file: Path, found: dict[Any, Any], inner: str) -> Any:
    if inner in found:
        return found[inner]
    if inner or len(found) != 1:
        words = ", ".join(map(str, found)) or "nothing"
        raise ValueError(f"{name}: {file} has {words}: name one of them, as in {file}/{next(iter(found), 'omega')}.")
    return next(iter(found.values()))


_READERS = {".npy": _npy, ".zarr": _zarr, ".nc": _netcdf}
