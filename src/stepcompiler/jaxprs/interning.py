"""Functions as data: a traced function whose code is interned and whose captured arrays are inputs.

JAX recompiles for every new function object, for example a lambda that is created on every call. Here a function is
traced to a jaxpr. Equal jaxprs (same primitives, same wiring, same literals) become the same object, and captured
arrays become leaves. Compiled code is then reused if only numbers have changed.
"""

import hashlib
import re
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.core
import numpy as np
from jax.extend import core as jex
from jaxtyping import Array, PyTree

from ..cache import LRUCache
from ..device_arrays import to_device
from .equations import eval_equation, inner_programs
from .interpreter import Interpreter, jits_and_hints
from .updates import evaluate


class _Code:
    """The code of a function; two are equal when they do the same with their inputs."""

    def __init__(self, jaxpr: jex.Jaxpr, out_tree: Any, key: Hashable, source: tuple | None = None):
        self.jaxpr, self.out_tree, self._key, self._hash = jaxpr, out_tree, key, hash(key)
        self.call = jax.jit(partial(evaluate, jaxpr))  # traced once, whatever calls it
        self.source = source  # the function and its arguments, if the jaxpr contains functions

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, _Code) and self._hash == other._hash and self._key == other._key)

    def __repr__(self) -> str:
        return f"<{len(self.jaxpr.eqns)} operations>"

    def __deepcopy__(self, memo: dict) -> "_Code":
        return self  # nothing in it changes

    def __reduce__(self) -> tuple:
        from .jaxpr_pickle import by_value, packed

        if self.source is not None and by_value.get():
            return _retraced, self.source
        return _unpacked, (packed(self.jaxpr), *_packed_tree(self.out_tree))

    @property
    def text(self) -> str:
        """Return a description of the program that is equal in every process."""
        return re.sub(r"0x[0-9a-f]+", "0x", repr(self._key))


_codes: LRUCache[_Code] = LRUCache(4096)


def _packed_tree(tree: Any) -> tuple:
    """A structure as an example of it."""
    return (jax.tree.unflatten(tree, range(tree.num_leaves)),)


def _unpacked(program: Any, example: PyTree) -> _Code:
    """The code that was packed, interned."""
    from .jaxpr_pickle import unpacked

    jaxpr, out_tree = unpacked(program), jax.tree.structure(example)
    code = _Code(jaxpr, out_tree, (_jaxpr_key(jaxpr), out_tree))
    return _codes.get(code, lambda: code)


def _retraced(fn: Callable, args: tuple) -> _Code:
    """The code of a function that was sent by value."""
    return intern(fn, *args).code


@partial(jax.tree_util.register_dataclass, data_fields=["consts"], meta_fields=["code"])
@dataclass(frozen=True, eq=False)
class Function:
    """A traced function: interned code and the arrays it has captured."""

    code: _Code
    consts: list[Array]

    def __call__(self, *args: PyTree) -> PyTree:
        """Evaluate at arguments of the same structure as those it was traced with."""
        flat = self.code.call(self.consts, *jax.tree.leaves(args))
        return jax.tree.unflatten(self.code.out_tree, flat)

    @property
    def fingerprint(self) -> str:
        """A hash of code and captured arrays: the same for the same function in another process."""
        digest = hashlib.sha256(self.code.text.encode())
        for x in map(np.asarray, self.consts):
            digest.update(f"{x.shape} {x.dtype}".encode() + x.tobytes())
        return digest.hexdigest()


def intern(fn: Callable[..., PyTree], *args: PyTree) -> Function:
    """Trace `fn` at `args` (arrays or shapes) and intern its program."""
    anew = lambda *xs: fn(*xs)  # JAX traces a function once, though it may use variables that change
    closed, shape = jax.make_jaxpr(anew, return_shape=True)(*args)
    closed = jax.make_jaxpr(lambda *xs: _INLINED.evaluate(closed, xs))(*jax.tree.leaves(args))
    out_tree = jax.tree.structure(shape)
    source = None
    if any(name.startswith("custom_") for name in primitives(closed.jaxpr)):
        source = fn, jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), args)
    code = _Code(closed.jaxpr, out_tree, (_jaxpr_key(closed.jaxpr), out_tree), source)
    code = _codes.get(code, lambda: code)
    return Function(code, [to_device(c) for c in closed.consts])


def primitives(jaxpr: jex.Jaxpr) -> set[str]:
    """The names of all operations in a program, those of loops and branches included."""
    found = {eqn.primitive.name for eqn in jaxpr.eqns}
    return found.union(*(primitives(inner.jaxpr) for eqn in jaxpr.eqns for inner in inner_programs(eqn.params)))


# Evaluates nested `jit`s and hints operation by operation, so that the arrays they capture become visible too.
_INLINED = Interpreter(eval_equation, inline=jits_and_hints)


def _jaxpr_key(jaxpr: jex.Jaxpr) -> Hashable:
    """A hashable value equal for two jaxprs exactly when they are the same code."""
    names: dict[Any, int] = {}

    def name(v):
        return names.setdefault(v, len(names))

    def atom(v):
        if isinstance(v, jex.Literal):
            return ("literal", value_key(v.val), str(v.aval))
        return name(v)

    head = tuple((name(v), str(v.aval)) for v in [*jaxpr.constvars, *jaxpr.invars])
    body = tuple(
        (
            eqn.primitive,
            tuple(atom(v) for v in eqn.invars),
            tuple((name(v), str(v.aval)) for v in eqn.outvars),
            tuple(sorted(((k, value_key(v)) for k, v in eqn.params.items()), key=lambda kv: kv[0])),
        )
        for eqn in jaxpr.eqns
    )
    return (len(jaxpr.constvars), head, body, tuple(atom(v) for v in jaxpr.outvars))


def value_key(value: Any) -> Hashable:
    """A hashable stand-in for a parameter of an operation."""
    if isinstance(value, jex.ClosedJaxpr):
        return ("closed", _jaxpr_key(value.jaxpr), tuple(value_key(c) for c in value.consts))
    if isinstance(value, jex.Jaxpr):
        return ("jaxpr", _jaxpr_key(value))
    if isinstance(value, (tuple, list)):
        return (type(value).__name__, tuple(value_key(v) for v in value))
    if isinstance(value, dict):
        return ("dict", tuple((str(k), value_key(v)) for k, v in sorted(value.items(), key=str)))
    if isinstance(value, (float, complex)):  # 0.0 and −0.0 are equal, and NaN is not
        return (type(value).__name__, np.asarray(value).tobytes())
    if isinstance(value, (np.ndarray, np.generic, jax.Array)) and not isinstance(value, jax.core.Tracer):
        array = np.asarray(value)
        return ("array", array.shape, str(array.dtype), array.tobytes())
    try:
        hash(value)
    except TypeError:
        return _Identity(value)
    return (type(value), value)


class Constant:
    """A static value of the program: opaque to JAX, and equal to values with the same content."""

    def __init__(self, value: Any):
        leaves, structure = jax.tree.flatten(value)
        self.value, self._key = value, (structure, tuple(value_key(x) for x in leaves))

    def __call__(self, *args: PyTree) -> PyTree:
        """Call the value, if it is a function."""
        return self.value(*args)

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Constant) and self._key == other._key)

    def __repr__(self) -> str:
        return repr(self.value)

    def __reduce__(self) -> tuple:
        return Constant, (self.value,)


class _Identity:
    """Equal only to itself; keeps its object alive, so that its identity stays unique."""

    def __init__(self, value: Any):
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and self.value is other.value
