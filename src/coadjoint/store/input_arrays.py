"""Arrays that a run was given: kept in its store, in the place of which the tables of the header have their names."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr

from .atomic_io import Files, StoreError

if TYPE_CHECKING:
    from .schema import Variable

GIVEN = "given"  # a group of the store


def without_arrays(tables: Any, name: str = "") -> tuple[Any, dict[str, np.ndarray]]:
    """Tables with `{"stored": name}` in the place of each array, and the arrays by their names."""
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
    """The tables with the arrays of the store in their places again."""
    if not isinstance(tables, dict):
        return tables
    if set(tables) != {"stored"}:
        return {key: with_arrays(path, value) for key, value in tables.items()}
    name = f"{GIVEN}/{tables['stored']}"
    try:
        group: Any = zarr.open_group(Files(path, read_only=True, required=lambda key: True), mode="r")
        return np.asarray(group[name][...])
    except (KeyError, ValueError, TypeError):
        raise StoreError(f"{path / name} is missing or damaged.") from None


def given_variable(name: str, array: np.ndarray) -> "Variable":
    """The array as a variable of the store."""
    from .schema import Variable  # imports JAX, which a reader does not need

    dims = tuple(f"{name}_{i}" for i in range(array.ndim))
    about = {"long_name": f"the argument {name}"}
    return Variable(name, dims, array.shape, array.shape, array.dtype, about, "given", array)
