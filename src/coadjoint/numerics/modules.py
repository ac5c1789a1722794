"""Equinox modules in short runs, without the checks of Equinox, which take longer than the rest of such a run."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import equinox as eqx

M = TypeVar("M", bound=eqx.Module)


def method_of(module: Any, name: str) -> Callable[..., Any]:
    """Return a method without the wrapper that Equinox makes at each access."""
    return partial(getattr(type(module), name), module)


def made(cls: type[M], **fields: Any) -> M:
    """Return a module with these fields, which must be all fields of the class, known to be valid."""
    new = object.__new__(cls)
    vars(new).update(fields)
    return new


def with_fields(module: M, **changes: Any) -> M:
    """Return a copy of a module with other fields, known to be valid. Attributes that are no fields are not copied."""
    own = vars(module)
    return made(type(module), **{name: own[name] for name in type(module).__dataclass_fields__} | changes)
