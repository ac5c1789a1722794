"""Names of saved variables, the same in `to_xarray()` and in a store."""

import re
from typing import Any

import jax

from ..algebras.base import LieAlgebra


def state_dims(algebra: LieAlgebra) -> tuple[str, ...]:
    """The dimensions of a state."""
    return {1: ("component",), 2: ("row", "column")}.get(len(algebra.shape), ("matrix", "row", "column"))


def event_variables(events: Any, algebra: LieAlgebra, lead: tuple[str, ...]) -> dict[str, tuple]:
    """Return dimensions, values and attributes of the variables of events, after the dimensions `lead`."""
    return {
        "event_time": (lead, events.time, {"long_name": "time of the event"}),
        "event_state": ((*lead, *state_dims(algebra)), events.state, {"long_name": "state at the event"}),
    }


def leaf_dims(name: str, count: int) -> tuple[str, ...]:
    """Return the dimensions of a variable, derived from its name."""
    own = name.removeprefix("saved_")
    return (f"{own}_index",) if count == 1 else tuple(f"{own}_{i}" for i in range(count))


def group_variables(g: Any, lead: int = 0) -> list[tuple[str, tuple[str, ...], Any]]:
    """Yield name, dimensions after the first `lead`, and array of each part of a group element: one, or one per factor.

    Equal factors share an array, with an axis of factors before rows and columns.
    """

    def dims(name: str, count: int) -> tuple[str, ...]:
        return (*leaf_dims(f"{name}_factor", count - 2), "group_row", "group_column")

    named = named_leaves(g, "g")
    if len(named) > 1:  # factors need not be of one size
        own = lambda name, count: tuple(f"{d}_{name}" if d.startswith("group") else d for d in dims(name, count))
        return [(name, own(name, leaf.ndim - lead), leaf) for name, leaf in named]
    return [(name, dims(name, leaf.ndim - lead), leaf) for name, leaf in named]


def reduced_dims(name: str, shape: tuple[int, ...], algebra: LieAlgebra, custom: bool) -> tuple[str, ...]:
    """Return the dimensions of a reducer's result at one time; `custom`: it received a function of the state."""
    return state_dims(algebra) if shape == algebra.shape and not custom else leaf_dims(name, len(shape))


def named_leaves(tree: Any, prefix: str = "saved") -> list[tuple[str, Any]]:
    """Return the leaves of the result of a function, with names suitable for variables."""
    named: dict[str, Any] = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        words = re.findall(r"\w+", jax.tree_util.keystr(path))
        name = "_".join([prefix, *words] if prefix or not words else words) or "value"
        while name in named:
            name += "_"
        named[name] = leaf
    return list(named.items())
