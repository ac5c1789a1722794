"""The group element at the start of a run."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from stepcompiler.cache import LRUCache

from ..algebras.base import LieAlgebra
from ..numerics import validation
from ..numerics.modules import method_of

_WHAT = "a matrix of numbers"


def check_group(algebra: LieAlgebra, g0: Any, group: bool, members: int | None = None) -> tuple[PyTree, bool]:
    """Return the initial group element as arrays, and whether it has an axis of members; raise an error if invalid."""
    if g0 is None:
        return None, False
    if not group:
        raise ValueError("g0= is the initial group element, but the run does not compute it. Pass group=True as well.")
    wanted = _shapes.get((jax.tree.structure(algebra), algebra.shape), lambda: _shapes_of(algebra))
    one = jax.tree.structure(wanted) == jax.tree.structure(0)
    whole = validation.numbers("g0", g0, _WHAT) if one else g0  # a matrix may be a list of rows
    if jax.tree.structure(whole) != jax.tree.structure(wanted):
        parts = len(jax.tree.leaves(wanted))
        raise ValueError(f"g0 must be a tuple of {parts} group elements, one for each kind of factor, not {g0!r}.")
    whole = jax.tree.map(lambda x, s: _fit(x, s.dtype), whole, wanted)
    shapes, found = ([x.shape for x in jax.tree.leaves(tree)] for tree in (wanted, whole))
    by_member = members is not None and found == [(members, *s) for s in shapes]
    if not by_member and found != shapes:
        plain = lambda shapes: ", ".join(map(str, shapes))
        lead = "" if members is None else f", or {plain((members, *s) for s in shapes)} to lead with members"
        raise ValueError(f"g0 must have shape {plain(shapes)} for {type(algebra).__name__}{lead}, not {plain(found)}.")
    if not validation.is_traced(whole):
        _check_each(algebra, jax.tree.map(np.asarray, whole), members if by_member else None)
    return whole, by_member


def _shapes_of(algebra: LieAlgebra) -> PyTree:
    """Shapes and types of an element of the group."""
    return jax.eval_shape(algebra.group_exp, jax.ShapeDtypeStruct(algebra.shape, algebra.dtype))


_shapes: LRUCache[PyTree] = LRUCache()


def _fit(value: Any, dtype: Any) -> Any:
    """An array of the type that the group has."""
    array = validation.numbers("g0", value, _WHAT)
    if array.dtype.kind == "c" and not jnp.issubdtype(dtype, jnp.complexfloating):
        raise TypeError("g0 is complex, but elements of this group are real.")
    # JAX takes longer to copy an array of NumPy's than a short run.
    return jnp.asarray(array, dtype) if isinstance(array, jax.Array) else np.array(array, dtype)


def _check_each(algebra: LieAlgebra, g0: PyTree, members: int | None) -> None:
    if not all(np.all(np.isfinite(x)) for x in jax.tree.leaves(g0)):
        raise ValueError("g0 must be finite.")
    if members is not None and method_of(algebra, "in_group")(g0):
        return
    for k in range(members or 1):
        wrong = method_of(algebra, "group_error")(g0 if members is None else jax.tree.map(lambda x, k=k: x[k], g0))
        if wrong is not None:
            which = "" if members is None else f" of member {k}"
            raise ValueError(f"g0{which} is not in the group of {type(algebra).__name__}: {wrong}")
