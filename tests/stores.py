"""Comparison of stores. It excludes their identities, which are random, and the numbers of commits."""

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from coadjoint.store.atomic_io import decode_arrays
from coadjoint.store.manifest import entry_of, manifest_of


def files(store: Path) -> dict[str, bytes]:
    """Return all files of a store but the lock."""
    found = [p for p in sorted(Path(store).rglob("*")) if p.is_file() and p.name != "lock"]
    return {p.relative_to(store).as_posix(): p.read_bytes() for p in found}


def edit_header(store: Path, change: Callable[[dict], Any], name: str = "zarr.json") -> None:
    """Change the header of a store, or other metadata, with its entry in the manifest."""
    identity = json.loads((store / "zarr.json").read_bytes())["attributes"]["coadjoint"]["identity"]
    metadata = json.loads((store / name).read_bytes())
    change(metadata["attributes"]["coadjoint"] if name == "zarr.json" else metadata)
    (store / name).write_text(json.dumps(metadata))
    write_manifest(store, identity)


def write_manifest(store: Path, identity: str = "") -> None:
    """Write the manifest of a store anew, as if the run had written the files as they are."""
    identity = identity or json.loads((store / "zarr.json").read_bytes())["attributes"]["coadjoint"]["identity"]
    entries = {name: entry_of(data) for name, data in files(store).items() if name != "checkpoint/manifest"}
    found = {name: entry for name, entry in entries.items() if entry is not None}
    (store / "checkpoint" / "manifest").write_bytes(manifest_of(identity, found))


def comparable(store: Path) -> dict[str, Any]:
    """Return what two stores of the same run have in common, by file."""
    out: dict[str, Any] = files(store)
    identity = json.loads(out["zarr.json"])["attributes"]["coadjoint"]["identity"]
    for name, data in out.items():
        if name == "zarr.json":
            out[name] = data.replace(identity.encode(), b"")
        elif name.endswith(".npz"):
            out[name] = _arrays(name, data)
        elif name.endswith(".zip"):
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                out[name] = {own: _arrays(own, archive.read(own)) for own in archive.namelist()}
        elif name == "checkpoint/manifest":
            out[name] = _listed(data)
    return out


def _arrays(name: str, data: bytes) -> tuple[dict[str, Any], list[bytes]]:
    header, arrays = decode_arrays(Path(name), data)
    return {k: v for k, v in header.items() if k not in ("store", "commit")}, [x.tobytes() for x in arrays]


def _listed(manifest: bytes) -> dict[str, Any]:
    """Return the entries of all files that do not contain the identity."""
    records = [json.loads(line.rpartition(b"\t")[0]) for line in manifest.splitlines()]
    listed = {name: entry for record in records for name, entry in record.get("files", {}).items()}
    own = ("zarr.json", "checkpoint/all.zip")
    return {k: None if k in own or k.endswith(".npz") else v for k, v in listed.items()}


def assert_same_store(one: Path, other: Path) -> None:
    """Assert that two stores hold the same run, bitwise."""
    a, b = comparable(one), comparable(other)
    assert a.keys() == b.keys()
    assert [name for name in a if a[name] != b[name]] == []
