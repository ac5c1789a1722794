"""Where a system comes from: the call of a model that made it, so that a store can tell."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np

from ..numerics import checks
from ..systems import System

_LARGEST = 4096  # numbers of an argument that are remembered

Factory = TypeVar("Factory", bound=Callable[..., Any])


class Origin(NamedTuple):
    """A model and the arguments it was called with, as plain values."""

    name: str
    arguments: dict[str, Any]


def model(factory: Factory) -> Factory:
    """Mark a function as a model: the very system it returns knows its origin (a copy with other numbers does not)."""
    signature = inspect.signature(factory)

    @functools.wraps(factory)
    def make(*args: Any, **kwargs: Any) -> Any:
        system, mu0 = factory(*args, **kwargs)
        try:
            arguments = {k: _plain(v) for k, v in signature.bind(*args, **kwargs).arguments.items()}
        except TypeError:
            return system, mu0
        object.__setattr__(system, "_origin", Origin(factory.__name__, arguments))
        return system, mu0

    return make  # type: ignore[return-value]


def origin(system: System) -> Origin | None:
    """The call that made a system, if a model did and its arguments are plain numbers and words."""
    return getattr(system, "_origin", None)


def _plain(value: Any) -> Any:
    """A value as numbers, words and lists; TypeError if it is more than that."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, (np.ndarray, np.generic, jax.Array)) and not checks.is_traced(value):
        array = np.asarray(value)
        if array.dtype.kind in "fiub" and array.size <= _LARGEST:
            return array.tolist()
    raise TypeError
