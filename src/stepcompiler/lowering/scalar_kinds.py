"""Lanes: the single numbers of a program.

An array of the program is a NumPy array of lanes. A lane is one of three things:

- known while tracing: a NumPy scalar;
- uniform: the same for all steps and members, since it depends on shared numbers alone. A JAX scalar;
- varying: a `Value` of the code that is being written.
"""

from typing import Any

import jax
import numpy as np

from ..jaxprs.data_movement import Objects, object_array
from .instructions import Value

LaneArray = Objects


def known(x: Any) -> bool:
    """Whether a lane is a number that is known while tracing."""
    return isinstance(x, np.generic) or not isinstance(x, (Value, jax.Array))  # the slow test last


def varies(x: Any) -> bool:
    """Whether a lane differs between steps or members."""
    return isinstance(x, Value)


def same(x: Any, y: Any) -> bool:
    """Whether two lanes are the same known number, to the sign of a zero."""
    return known(x) and known(y) and x.dtype == y.dtype and x.tobytes() == y.tobytes()


def all_known(*xs: LaneArray) -> bool:
    """Whether all lanes of some arrays are known."""
    return all(known(e) for x in xs for e in x.ravel())


def any_varies(*xs: LaneArray) -> bool:
    """Whether some lane of some arrays varies."""
    return any(varies(e) for x in xs for e in x.ravel())


def number(x: Any, dtype: Any) -> Any:
    """A known lane."""
    return np.asarray(x).astype(dtype)[()]


def split(array: Any) -> LaneArray:
    """The lanes of an array: of a traced one uniform, else known."""
    if isinstance(array, jax.Array):
        return object_array([array[index] for index in np.ndindex(*array.shape)], array.shape)
    return object_array(list(np.asarray(array).ravel()), np.shape(array))
