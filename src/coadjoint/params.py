"""Parameters of a system: a pytree whose numbers are parameters and whose other leaves are part of the program."""

from collections.abc import Hashable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from .numerics import validation
from .numerics.contents import content_key

_PLAIN = (bool, int, float, complex, np.ndarray, np.generic, jax.Array)


class Context(NamedTuple):
    """The params of a system with what its functions receive by name: the last argument of its traced functions.

    What none of them receives is None. A system whose functions receive nothing by name has the params alone in place
    of this.
    """

    params: PyTree
    t: Any = None
    g: PyTree = None  # the group element
    u: PyTree = None  # the held control


class Fixed(tuple):
    """The leaves of params that are not numbers: the name, a key of the contents and the text of each.

    `rest`, the leaves themselves, is not compared, and no process sends it to another.
    """

    rest: PyTree = None

    @classmethod
    def of(cls, rest: PyTree) -> "Fixed":
        """From the part of params without numbers."""
        leaves = jax.tree_util.tree_leaves_with_path(rest)
        fixed = cls((_name(path), content_key(x), _shown(x)) for path, x in leaves)
        fixed.rest = rest
        return fixed

    def __reduce__(self) -> tuple:
        """For pickling: functions are traced before they are sent."""
        return type(self), (tuple(self),)

    def check(self, rest: PyTree) -> None:
        """Raise if other leaves are passed. Leaves may be missing, as in `eqx.filter(params, eqx.is_array)`."""
        own: dict[str, tuple[Hashable, str]] = {name: (key, shown) for name, key, shown in self}
        for name, key, shown in Fixed.of(rest):
            before, what = own.get(name, (None, "None"))
            if key != before:
                raise ValueError(
                    f"{name} is {shown}, but the system was made with {what}, and its functions are traced with that: "
                    "make a new System(..., params=...)."
                )


def split(params: PyTree) -> tuple[PyTree, PyTree]:
    """The parameters as arrays, and the other leaves. Each tree has None in place of the leaves of the other."""
    numbers = jax.tree_util.tree_map_with_path(lambda path, x: _as_array(path, x) if _is_number(x) else None, params)
    return numbers, jax.tree.map(lambda x: None if _is_number(x) else x, params)


def whole(numbers: PyTree, rest: PyTree) -> PyTree:
    """The inverse of `split`."""
    return eqx.combine(numbers, rest)


def fit_params(old: PyTree, fixed: Fixed, new: PyTree, on_host: bool = False) -> PyTree:
    """New parameters as arrays with the types of the old ones. The caller checks shapes.

    `on_host`: those that JAX did not make remain NumPy's. JAX takes longer to copy them than a short run.
    """
    if old is None:
        raise ValueError("params was given, but the system has none: give System(..., params=...) first.")
    rest = jax.tree.map(lambda x: None if _is_number(x) else x, new)
    new = jax.tree.map(lambda x: x if _is_number(x) else None, new)
    structures = jax.tree.structure(old), jax.tree.structure(new)
    if structures[0] != structures[1]:
        raise ValueError(
            f"params must have the structure of the system's params, {structures[0]}, not {structures[1]}."
        )
    fixed.check(rest)

    def fit(path: tuple, a: Array, b: Any) -> Any:
        b = validation.numbers(_name(path), b, kinds="fiucb")
        if not np.can_cast(b.dtype, a.dtype, "same_kind"):
            raise TypeError(
                f"{_name(path)} is of type {b.dtype}, but the system was made with {a.dtype}: "
                "give System(..., params=...) numbers of the kind that is meant, such as 1.0 in place of 1."
            )
        if isinstance(b, jax.Array):
            return jnp.asarray(b, a.dtype)
        own = b.astype(a.dtype)  # NumPy compiles nothing
        own.flags.writeable = False  # like an array of JAX's
        return own if on_host else jnp.asarray(own)

    return jax.tree_util.tree_map_with_path(fit, old, new)


def _is_number(x: Any) -> bool:
    """Whether a leaf is a parameter: a number, an array, or an object that converts to an array."""
    return isinstance(x, _PLAIN) or (not isinstance(x, type) and hasattr(x, "__array__"))


def _as_array(path: tuple, x: Any) -> Array:
    """A leaf of params as a strongly typed array, so that a number and an array compile to the same code."""
    if isinstance(x, jax.Array):
        if jnp.issubdtype(x.dtype, jax.dtypes.extended):
            raise TypeError(f"{_name(path)} is a JAX key, which cannot be a parameter: give jax.random.key_data(key).")
        return x
    return jnp.asarray(validation.numbers(_name(path), x, kinds="fiucb"))


def _name(path: tuple) -> str:
    return "params" + jax.tree_util.keystr(path)


def _shown(x: Any) -> str:
    """The text of a leaf in a message."""
    name = getattr(x, "__qualname__", getattr(x, "__name__", None))
    return f"the function {name}" if callable(x) and name else repr(x)[:60]
