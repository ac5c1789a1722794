"""Arrays that were passed to a run. The store contains them, and the tables of its header contain their names."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr

from .atomic_io import StoreError
from .header_checks import read_header
from .manifest import Manifest
from .zarr_files import Files

if TYPE_CHECKING:
    from .schema import Variable

GIVEN = "given"  # a group of the store


def without_arrays(tables: Any, name: str = "") -> tuple[Any, dict[str, np.ndarray]]:
    """Replace each array in nested tables by `{"stored": name}`; return the tables, and the arrays by name."""
    if isinstance(tables, np.ndarray):
        return {"stored": name}, {name: tables}
    if not isinstance(tables, dict):
        return tables, {}
    plain, arrays = {}, {}
    for key, value in tables.items():
        plain[key], found = without_arrays(value, f"{name}.{key}" if name else key)
        arrays |= found
    return plain, arrays


def with_arrays(path: Path, tables: Any) -> Any:
    """Replace each `{"stored": name}` in nested tables by the array of the store."""
    if not isinstance(tables, dict):
        return tables
    if set(tables) != {"stored"}:
        return {key: with_arrays(path, value) for key, value in tables.items()}
    name = f"{GIVEN}/{tables['stored']}"
    manifest = Manifest(path, read_header(path, "open")["identity"]).load(batches=False)
    try:
        group: Any = zarr.open_group(Files(manifest, read_only=True), mode="r")
        return np.asarray(group[name][...])
    except (KeyError, ValueError, TypeError):
        raise StoreError(f"{path / name} is missing or damaged.") from None


def given_variable(name: str, array: np.ndarray) -> "Variable":
    """Return the array as a variable of the store."""
    from .schema import Variable  # imports JAX, which a reader does not need

    dims = tuple(f"{name}_{i}" for i in range(array.ndim))
    about = {"long_name": f"the argument {name}"}
    return Variable(name, dims, array.shape, array.shape, array.dtype, about, "given", array)
