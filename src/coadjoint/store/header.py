"""Names and tables of the store format that need no JAX, so that `coadjoint info` starts quickly."""

from collections.abc import Iterator
from typing import Any

import numpy as np

FORMAT = 1  # version of the store format
TOTALS = {
    "steps": "steps done",
    "iterations": "iterations of the solver, in total",
    "most_iterations": "most iterations in one step",
    "residual": "worst residual of a step",
    "unsolved": "steps that did not converge",
    "first_unsolved": "the first step that did not converge, or -1",
    "substeps": "sub-steps, in total",
}  # the steps, and the fields of `SolverTotals`


def totals_of(step: int, totals: dict[str, Any]) -> dict[str, np.ndarray]:
    """Return the solver statistics as variables of a store, from the fields of `SolverTotals`."""
    values = {name: np.asarray(x) for name, x in totals.items()}
    return {"steps": np.full_like(values["iterations"], step), **values}


def flat(tree: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the fields of nested tables by their dotted names; lists of plain values stay whole."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from flat(value, f"{name}.{key}" if name else str(key))
    elif isinstance(tree, list) and any(isinstance(v, dict) for v in tree):
        for i, value in enumerate(tree):
            yield from flat(value, f"{name}[{i}]")
    else:
        yield name, tree
