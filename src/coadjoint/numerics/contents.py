"""Keys of values by their contents: equal for two values that do the same, in this process or another one."""

import functools
import hashlib
import pickle
import sys
import types
from collections.abc import Hashable
from typing import Any

import jax
import jax.core
import numpy as np


def content_key(value: Any) -> Hashable:
    """A key that is equal for two values with the same contents.

    The contents of a function are its code, the values that it has captured and the global values that it uses. A value
    that can be imported is identified by its name. An object that can neither be imported nor pickled equals itself.
    """
    found = _Contents()
    text = repr(found.of(value))
    digest = hashlib.sha256(text.encode()).hexdigest()
    return (digest, *map(_Itself, found.alone)) if found.alone else digest


class _Itself:
    """Equal only to itself; keeps its object alive, so that its identity stays unique."""

    def __init__(self, value: Any):
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and self.value is other.value


class _Contents:
    """Takes values apart into plain tuples."""

    def __init__(self):
        self.alone: list[Any] = []  # without contents to compare
        self.inside: list[int] = []  # functions on the way to the one at hand, which may call themselves

    def of(self, x: Any) -> tuple:
        """A value as nested tuples of plain values."""
        if x is None or x is Ellipsis or isinstance(x, (bool, int, float, complex, str, bytes)):
            return type(x).__name__, repr(x)
        if isinstance(x, (np.ndarray, np.generic, jax.Array)) and not isinstance(x, jax.core.Tracer):
            array = np.asarray(x)
            return "array", array.shape, str(array.dtype), array.tobytes()
        if isinstance(x, (tuple, list)):
            return type(x).__name__, *map(self.of, x)
        if isinstance(x, (set, frozenset)):
            return type(x).__name__, *sorted(map(self.of, x), key=repr)
        if isinstance(x, dict):
            return "dict", *((self.of(k), self.of(v)) for k, v in x.items())
        if isinstance(x, functools.partial):
            return "partial", self.of(x.func), self.of(x.args), self.of(x.keywords)
        if isinstance(x, types.MethodType):
            return "method", self.of(x.__self__), self.of(x.__func__)
        if isinstance(x, types.ModuleType):
            return "module", x.__name__
        if isinstance(x, types.CodeType):
            return self._code(x)
        return self._object(x)

    def _object(self, x: Any) -> tuple:
        module, name = getattr(x, "__module__", None), getattr(x, "__qualname__", None)
        if _imported(module, name) is x and module != "__main__":
            return "name", module, name
        if isinstance(x, types.FunctionType):
            return self._function(x)
        if hasattr(x, "__wrapped__") and name is not None:  # by jit, custom_jvp and the like
            return "wrapped", type(x).__qualname__, self.of(x.__wrapped__)
        if not callable(x) or isinstance(x, type):
            try:
                return "pickled", type(x).__qualname__, pickle.dumps(x)
            except Exception:  # whatever an object raises that cannot be pickled
                pass
        self.alone.append(x)
        return "alone", len(self.alone)

    def _function(self, f: types.FunctionType) -> tuple:
        if id(f) in self.inside:
            return "itself", self.inside.index(id(f))
        self.inside.append(id(f))
        captured = tuple(self._cell(cell) for cell in f.__closure__ or ())
        used = sorted(_names(f.__code__) & set(f.__globals__))
        around = tuple((name, self.of(f.__globals__[name])) for name in used)
        out = "function", self._code(f.__code__), self.of(f.__defaults__), self.of(f.__kwdefaults__), captured, around
        self.inside.pop()
        return out

    def _cell(self, cell: Any) -> tuple:
        try:
            return self.of(cell.cell_contents)
        except ValueError:  # not filled yet
            return ("empty",)

    def _code(self, code: types.CodeType) -> tuple:
        arguments = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags
        return "code", code.co_code, arguments, code.co_names, code.co_varnames, tuple(map(self.of, code.co_consts))


def _names(code: types.CodeType) -> set[str]:
    """Return the names that a function and its nested functions look up."""
    inner = (c for c in code.co_consts if isinstance(c, types.CodeType))
    return set(code.co_names).union(*map(_names, inner))


def _imported(module: Any, name: Any) -> Any:
    """Return the object that another process would import under a name of a module."""
    found = sys.modules.get(module) if isinstance(module, str) else None
    for part in str(name).split("."):
        found = getattr(found, part, None)
    return found
