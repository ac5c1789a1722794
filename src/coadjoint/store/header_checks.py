"""The header of a store, the attribute `coadjoint` of its root: reading it, and checking it against a schema."""

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .atomic_io import StoreError, reason
from .header import FORMAT
from .manifest import Manifest

KINDS = ("coordinate", "rows", "once", "reduced")


def _count(least: int) -> Callable[[Any], bool]:
    return lambda x: isinstance(x, int) and not isinstance(x, bool) and x >= least


def _list_of(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda x: isinstance(x, list) and all(check(item) for item in x)


def _table_of(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda x: isinstance(x, dict) and all(check(item) for item in x.values())


def _fields(**checks: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda x: isinstance(x, dict) and all(key in x and check(x[key]) for key, check in checks.items())


def _optional(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda x: x is None or check(x)


def _text(x: Any) -> bool:
    return isinstance(x, str)


def _number(x: Any) -> bool:
    return isinstance(x, (int, float)) and not isinstance(x, bool) and math.isfinite(x)


def _any_list(x: Any) -> bool:
    return isinstance(x, list) and len(x) > 0


def _table(x: Any) -> bool:
    return isinstance(x, dict)


_TYPE = _fields(type=_text)
_CONFIGURATION = _fields(
    system=_fields(algebra=_TYPE, noise=_list_of(_table)), integrator=_TYPE, t0=_number, t1=_number, dt=_number,
    save_every=_count(1),
)  # fmt: skip
_BACKEND = _fields(backend=_text, reason=_text)
_VARIABLE = _fields(kind=lambda x: x in KINDS, dimensions=_list_of(_text))
_PLATFORM = _fields(processor=_text)
SCHEMA: dict[str, Callable[[Any], bool]] = {
    "identity": _text,
    "kind": lambda x: x in ("solve", "ensemble", "sweep"),
    "axes": _table_of(_any_list),
    "members": _optional(_count(1)),
    "batch_size": _count(1),
    "n_batches": _count(1),
    "rows": _count(1),
    "time": lambda x: x in ("time", "sample"),
    "variables": _table_of(_VARIABLE),
    "steps": _list_of(_count(0)),
    "saved": _count(1),
    "configuration": _CONFIGURATION,
    "fingerprints": _list_of(_text),
    "plans": _list_of(_text),
    "model": _optional(_fields(name=_text)),
    "experiment": _optional(_fields(model=_fields(name=_text), run=_table)),
    "versions": _table_of(_text),
    "platform": _PLATFORM,
    "numerics_version": _count(1),
    "backends": _list_of(_BACKEND),
    "history": _list_of(
        _fields(
            versions=_table_of(_text), platform=_PLATFORM, numerics_version=_count(1), backends=_list_of(_BACKEND),
            steps=_list_of(_count(0)),
        )
    ),
}  # fmt: skip


def read_header(path: Path, action: str) -> dict[str, Any]:
    """Return the header of a store after all checks. `action` is "open" or "resume"."""
    if not os.path.lexists(path):
        new = path.with_name(path.name + ".new")
        begun = f" ({new} remains of a run that was stopped before its store was complete.)"
        hint = ": there is nothing to resume; start the run without resume" if action == "resume" else ""
        raise StoreError(f"{path} does not exist{hint}.{begun if new.exists() else ''}")
    file = path / "zarr.json"
    try:
        data = file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise StoreError(f"{path} is not a store: {file} is missing.") from None
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {reason(error)}.") from None
    try:
        attributes = json.loads(data)["attributes"]
    except (ValueError, KeyError, TypeError):
        raise StoreError(f"{file} is damaged: it was cut off or changed.") from None
    header = attributes.get("coadjoint") if isinstance(attributes, dict) else None
    if not isinstance(header, dict) or not _count(1)(header.get("format")):
        raise StoreError(f"{path} is a Zarr folder of something else: coadjoint did not write {file}.")
    if header["format"] != FORMAT:
        raise StoreError(
            f"{path} has format {header['format']}, and this version of coadjoint reads format {FORMAT}: use the "
            "version of coadjoint that wrote it."
        )
    _validate(file, header)
    Manifest(path, header["identity"]).load(batches=False).read("zarr.json")
    return header


def _validate(file: Path, header: dict[str, Any]) -> None:
    for name, check in SCHEMA.items():
        if name not in header:
            raise StoreError(f"{file} is damaged: it lacks {name}.")
        if not check(header[name]):
            shown = json.dumps(header[name])
            shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
            raise StoreError(f"{file} is damaged: {name} must not be {shown}.")
    runs = math.prod(len(values) for values in header["axes"].values())
    for name in ("steps", "fingerprints", "plans", "backends"):
        if len(header[name]) != runs:
            raise StoreError(f"{file} is damaged: {name} must have an entry for each of {runs} runs.")
    if header["n_batches"] != -(-(header["members"] or 1) // header["batch_size"]):
        raise StoreError(f"{file} is damaged: n_batches does not agree with members and batch_size.")


def check_arrays(path: Path, header: dict[str, Any], manifest: Manifest, lengths: bool) -> None:
    """Check that the shapes of all arrays agree with the header; with `lengths` also along time."""
    sizes = {name: len(values) for name, values in header["axes"].items()}
    if lengths:
        sizes[header["time"]] = header["saved"]
    if header["members"] is not None:
        sizes |= {"member": header["members"], "batch": header["n_batches"]}
    for name, about in header["variables"].items():
        data = manifest.read(f"{name}/zarr.json")
        if data is None:
            raise StoreError(f"{path / 'zarr.json'} is damaged: it lists the array {name}, which does not exist.")
        try:
            found = json.loads(data)
            shape = dict(zip(found.get("dimension_names") or (), found["shape"], strict=True))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise StoreError(f"{path / name / 'zarr.json'} is damaged: it was cut off or changed.") from None
        expected = {dim: sizes.get(dim, shape.get(dim)) for dim in about["dimensions"]}
        if shape != expected:
            raise StoreError(
                f"{path / name / 'zarr.json'} is damaged, or just being extended: the shape is {shape}, and "
                f"{path / 'zarr.json'} requires {expected}."
            )
