"""The origin of a system: the call of the model that made it, which a store records."""

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, TypeVar

import jax
import numpy as np

from ..numerics import validation
from ..numerics.array_files import array_from
from ..systems import System

_LARGEST = 4096  # numbers of an argument that are written out; a larger one, or a complex one, stays an array

Field = Annotated[Any, "or the path of a file with the array: .npy, Zarr or NetCDF"]
Factory = TypeVar("Factory", bound=Callable[..., Any])


class Origin(NamedTuple):
    """A model and the arguments of its call, as plain values and arrays."""

    name: str
    arguments: dict[str, Any]


def model(factory: Factory) -> Factory:
    """Mark a function as a model. The system that it returns carries its origin; a copy with other numbers does not.

    A parameter annotated as a `Field` may also be the path of a file with the array.
    """
    signature = inspect.signature(factory)
    fields = tuple(name for name, p in signature.parameters.items() if is_field(p))

    @functools.wraps(factory)
    def make(*args: Any, **kwargs: Any) -> Any:
        try:
            given = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(
                f"{factory.__name__}(): {error}. Its arguments are {', '.join(signature.parameters)}."
            ) from None
        for name in fields:
            if name in given.arguments:
                given.arguments[name] = array_from(name, given.arguments[name])
        system, mu0 = factory(*given.args, **given.kwargs)
        try:
            arguments = {k: _plain(v) for k, v in given.arguments.items()}
        except TypeError:
            return system, mu0
        object.__setattr__(system, "_origin", Origin(factory.__name__, arguments))
        return system, mu0

    return make  # type: ignore[return-value]


def is_field(parameter: inspect.Parameter) -> bool:
    """Whether a parameter of a model may be the path of a file."""
    return parameter.annotation == Field


def origin(system: System) -> Origin | None:
    """The call that made a system, if a model did and its arguments are numbers, strings and arrays."""
    return getattr(system, "_origin", None)


def _plain(value: Any) -> Any:
    """A value as numbers, strings, lists and arrays. Other values raise `TypeError`."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        if any(isinstance(v, complex) for v in value):
            return np.asarray(value)
        return [_plain(v) for v in value]
    if isinstance(value, (complex, np.ndarray, np.generic, jax.Array)) and not validation.is_traced(value):
        array = np.asarray(value)
        if array.dtype.kind in "fiub" and array.size <= _LARGEST:
            return array.tolist()
        if array.dtype.kind in "fiubc":
            return array
    raise TypeError
