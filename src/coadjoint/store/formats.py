"""Formats of stores. Those of earlier versions are read as if they were of today's, and go on as such.

| format | coadjoint | |
|---|---|---|
| 1 | 0.1 | checkpoints have `tally`, `plain_until`, `path`; the solver has `in_lanes`, noises other names |
| 2 | 0.2 | checkpoints have `totals` and a `backend`; stores have `arithmetic` and `backends` |
"""

import warnings
from typing import Any

import numpy as np

from .configuration import digest

FORMAT = 2  # a store with a higher number is not read

_BACKENDS = {"lanes": "native", "plain": "xla"}  # by the path of format 1
_TALLY = "iterations", "most", "residual", "unsolved", "first_unsolved", "substeps"
_LEAVES = {f".tally.{name}": f".totals.{name}" for name in _TALLY} | {".tally.most": ".totals.most_iterations"}
_GONE = (".plain_until",)
_MEMORY = ".carry.anchor"  # what an integrator remembers of the starting orbit, or of earlier steps
_NOISES = "_HamiltonianNoise", "_ObjectNoise"  # as they were called


def checkpoint_now(header: dict[str, Any], leaves: list) -> tuple[dict[str, Any], dict[str, Any]]:
    """The header and the leaves of a checkpoint, these by their names of today."""
    named: dict[str, Any] = dict(zip((name for name, *_ in header["leaves"]), leaves, strict=False))
    if header["format"] > 1:
        return header, named
    header = header | {"backend": _BACKENDS[header["path"]], "arithmetic": 1}
    return header, {_LEAVES.get(name, name): x for name, x in named.items() if name not in _GONE}


def state_now(leaves: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> dict[str, np.ndarray] | None:
    """The leaves of a checkpoint, if a run that expects these can go on from them.

    Large matrices are stepped by products, which need no memory of the starting orbit, and to which that of earlier
    steps is a start and no more: where a checkpoint of another version has another one, they go on without it.
    """

    def fit(names: set[str]) -> bool:
        kind = lambda x: (x.shape, x.dtype)
        return names == {name for name in names if name in leaves and kind(leaves[name]) == kind(expected[name])}

    memory = {name for name in expected if name.startswith(_MEMORY)}
    more = leaves.keys() - expected.keys()
    lean = memory and all(name.startswith(_MEMORY) for name in more)  # with noise, low-order words are no longer kept
    if fit(set(expected)) and (lean or not more):
        return {name: leaves[name] for name in expected}
    others = {name for name in leaves if not name.startswith(_MEMORY)}
    by_products = not memory or f"{_MEMORY}.known" in memory
    if not by_products or others != expected.keys() - memory or not fit(others):
        return None
    warnings.warn(
        "what the checkpoint remembers of earlier steps is of another version of coadjoint: the run goes on without "
        "it, and last digits may differ from those of a run that was never stopped.",
        stacklevel=2,
    )
    return {name: leaves[name] for name in others} | {name: expected[name] for name in memory}


def header_now(header: dict[str, Any], backends: list[str]) -> dict[str, Any]:
    """What a store says of itself, with the names of today; `backends`: of each run, as its checkpoints have it."""
    if header["format"] > 1:
        return header
    named = [{"backend": name, "reason": ""} for name in backends]
    return header | {"configuration": _without(header["configuration"]), "arithmetic": 1, "backends": named}


def _without(tables: Any) -> Any:
    """Tables of format 1 as those of today are."""
    if isinstance(tables, list):
        return [_without(x) for x in tables]
    if not isinstance(tables, dict):
        return tables
    now = {k: _without(v) for k, v in tables.items() if k != "in_lanes"}
    if now.get("type") in _NOISES:
        now["type"] = now["type"][1:]
    return now | ({"takes_params": False} if now.get("type") == "ObjectNoise" else {})


def _with(tables: Any) -> Any:
    """Tables of today as those of format 1 were."""
    if isinstance(tables, list):
        return [_with(x) for x in tables]
    if not isinstance(tables, dict):
        return tables
    then = {k: _with(v) for k, v in tables.items()}
    kind = then.get("type")
    if f"_{kind}" in _NOISES:
        then["type"] = f"_{kind}"
    if kind == "ObjectNoise":
        del then["takes_params"]
    return then | ({"in_lanes": False} if kind == "ImplicitSolve" else {})


def fingerprint(config: dict[str, Any], form: int = FORMAT) -> str:
    """The hash of a configuration, as a store of the given format has it."""
    return digest(_with(config) if form == 1 else config)
