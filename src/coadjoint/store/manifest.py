"""The manifest of a store: the size and the checksum of every file that a run has committed.

`checkpoint/manifest` lists the files of the store. While a batch runs, its writer appends to a log of its own,
`checkpoint/manifest-<batch>`. When all runs have finished, the logs are merged into the manifest.

Both have one JSON object per line, followed by a tab and the CRC-32 of the object:

    {"store": identity, "lines": n}                 the first line; n lines were written at once
    {"commit": number, "files": {name: [size, crc]}}    these files are about to be written
    {"done": number}                                all of them are on disk

The first two are on disk before the files of a commit are touched. After a crash each file of the last commit may
therefore have its old or its new contents, and both are listed. Any other contents are an error. The last file of
a commit is the checkpoint: if it is new, the commit is complete.
"""

import json
import os
import time
import zlib
from collections.abc import Iterable
from concurrent.futures import Executor
from pathlib import Path
from threading import RLock
from typing import Any

import google_crc32c

from .atomic_io import PARTIAL, StoreError, append, sync, write, write_all
from .locks import CHECKPOINTS, store_lock

MANIFEST = f"{CHECKPOINTS}/manifest"
Entry = tuple[int, int]  # size and CRC-32 of a file
_TRIES, _PAUSE = 5, 0.05  # a reader repeats its reading while a writer replaces files
_FILES_PER_LINE = 256


def checkpoint_name(number: int) -> str:
    """Return the name of the checkpoint of a batch that runs."""
    return f"{CHECKPOINTS}/part-{number:06d}.npz"


def log_name(number: int, process: int = 0) -> str:
    """Return the name of the log of a batch, of which each process that writes it has one."""
    return f"{MANIFEST}-{number:06d}" + (f"-{process}" if process else "")


def entry_of(data: bytes | None) -> Entry | None:
    """Return the entry of a file with these contents."""
    return None if data is None else (len(data), zlib.crc32(data))


def holds_numbers(name: str) -> bool:
    """Return whether a file is a Zarr chunk: name/c.0.1, or name/c for a single number."""
    last = name.rsplit("/", 1)[-1]
    return last == "c" or last.startswith("c.")


class Manifest:
    """The committed files of a store. A file that may be absent has the entry None."""

    def __init__(self, store: Path, identity: str, live: bool = True):
        self.store, self.identity = store, identity
        self.live = live  # another process may write: read the logs again before an error is raised
        self.lock = RLock()
        self.files: dict[str, list[Entry | None]] = {}
        self.numbers: dict[int, int] = {}  # the last commit of each batch
        self.last = 0  # the last commit of the store itself

    def load(self, batches: bool = True) -> "Manifest":
        """Read the manifest, and the logs of all batches."""
        records = _read(self.store / MANIFEST, self.identity)
        if records is None:
            raise StoreError(f"{self.store / MANIFEST} is missing: put it back from a copy of this store.")
        with self.lock:
            self.files = {}
            self._apply(records)
            self.last = max((number for number, _ in records), default=0)
            for number in sorted({int(path.name.split("-")[1]) for path in self._logs("-*")} if batches else ()):
                self.load_batch(number)
        return self

    def load_batch(self, number: int) -> None:
        """Read the logs of a batch. If its checkpoint belongs to the last commit, that commit is complete."""
        paths = [self.store / log_name(number), *self._logs(f"-{number:06d}-*")]
        records = [record for path in paths for record in _read(path, self.identity) or ()]
        records.sort(key=lambda record: (record[0], record[1] is None))
        with self.lock:
            pending = self._apply(records)
            self.numbers[number] = max((commit for commit, _ in records), default=0)
            name = checkpoint_name(number)
            if pending:
                found = entry_of(_contents(self.store / name))
                for commit in [c for c, files in pending.items() if files.get(name) == found]:
                    self._confirm(pending[commit])

    def _logs(self, pattern: str) -> list[Path]:
        """Return the logs with these names, without those that a writer has not finished."""
        return [path for path in self.store.glob(MANIFEST + pattern) if path.suffix != PARTIAL]

    def _apply(self, records: list[tuple[int, dict[str, Entry] | None]]) -> dict[int, dict[str, Entry]]:
        """Apply commits in their order; return those that are not complete."""
        pending: dict[int, dict[str, Entry]] = {}
        for number, files in records:
            if files is None:
                self._confirm(pending.pop(number, {}))
            else:
                pending[number] = pending.get(number, {}) | files
                self._announce(files)
        return pending

    def _announce(self, files: dict[str, Entry]) -> None:
        for name, entry in files.items():
            listed = self.files.setdefault(name, [None])
            if entry not in listed:
                listed.append(entry)

    def _confirm(self, files: dict[str, Entry]) -> None:
        for name, entry in files.items():
            self.files[name] = [entry]

    # Reading.

    def read(self, name: str) -> bytes | None:
        """Return the contents of a file after a check; None if the run has not written it yet."""
        for attempt in range(_TRIES):
            data = _contents(self.store / name)
            found = entry_of(data)
            with self.lock:
                if found in self.files.get(name, [None]):
                    return data
            if not self.live or (attempt and store_lock(self.store).owner() is None):
                break
            time.sleep(_PAUSE * attempt)
            self.load()
        raise self.error(name, data)

    def error(self, name: str, data: bytes | None) -> StoreError:
        """Return the error for a file with contents that are not listed."""
        path, manifest = self.store / name, self.store / MANIFEST
        if data is None:
            return StoreError(
                f"{path} is missing: it was there when the run was stored, and {manifest} lists it. Put it back from "
                "a copy of this store."
            )
        if holds_numbers(name) and not _sound(data):
            return StoreError(f"{path} is damaged: its checksum is wrong (the file was cut off or changed).")
        if name not in self.files:
            return StoreError(
                f"{path} is not a file of this store: {manifest} does not list it. Remove it if it was copied here."
            )
        return StoreError(
            f"{path} is not the file that the run wrote: it is damaged, an older version, or a file of another store. "
            f"Its size and checksum are not those in {manifest}. Put it back from a copy of this store."
        )

    def check_sizes(self) -> None:
        """Check that all files are present and have their sizes."""
        folders: dict[str, dict[str, int]] = {}
        with self.lock:
            listed = [(name, {entry and entry[0] for entry in entries}) for name, entries in self.files.items()]
        for name, sizes in listed:
            folder, _, own = name.rpartition("/")
            if folder not in folders:
                folders[folder] = _sizes(self.store / folder)
            if folders[folder].get(own) not in sizes:
                self.read(name)

    def check_all(self) -> int:
        """Check the contents of all files; return their number."""
        names = [name for name, entries in sorted(self.files.items()) if entries != [None]]
        return sum(self.read(name) is not None for name in names)

    # Writing.

    def commit(self, files: dict[str, bytes], pool: Executor) -> None:
        """Write files of the store itself, which its single holder writes."""
        with self.lock:
            self.last += 1
            log = CommitLog(self, MANIFEST)
            log.announce(self.last, files)
            write_all(self.store, files, pool)
            log.confirm(self.last, files)

    def fold(self, removed: Iterable[str] = ()) -> None:
        """After `load`, write the manifest anew with one entry per file but the `removed` ones, and remove the logs."""
        with self.lock:
            for name in removed:
                self.files.pop(name, None)
            for name, entries in list(self.files.items()):
                if len(entries) > 1:
                    self.files[name] = [entry_of(self.read(name))]
            files = {name: entries[0] for name, entries in self.files.items() if entries[0] is not None}
            write(self.store / MANIFEST, manifest_of(self.identity, files))
            sync(self.store / CHECKPOINTS)
            for path in (self.store / CHECKPOINTS).glob("manifest-*"):
                path.unlink()
            self.last, self.numbers = 0, {}


class CommitLog:
    """A log that one process appends to."""

    def __init__(self, manifest: Manifest, name: str):
        self.manifest, self.path = manifest, manifest.store / name
        self.repaired = False

    def announce(self, number: int, files: dict[str, bytes]) -> None:
        """Record the files of a commit, durably, before any of them is written."""
        entries = {name: (len(data), zlib.crc32(data)) for name, data in files.items()}
        if not self.repaired:
            self._repair()
        append(self.path, _line({"commit": number, "files": entries}), durable=True)
        with self.manifest.lock:
            self.manifest._announce(entries)

    def confirm(self, number: int, files: dict[str, bytes]) -> None:
        """Record that the files of a commit are on disk. A power cut may lose this line; the checkpoint replaces it."""
        append(self.path, _line({"done": number}), durable=False)
        with self.manifest.lock:
            self.manifest._confirm({name: (len(data), zlib.crc32(data)) for name, data in files.items()})

    def _repair(self) -> None:
        """Create the log, or remove a last line that was cut off."""
        data = _contents(self.path)
        whole = b"" if data is None else b"".join(_whole_lines(data))
        if not whole:
            write(self.path, _line({"store": self.manifest.identity, "lines": 1}))
            sync(self.path.parent)
        elif data != whole:
            os.truncate(self.path, len(whole))
        self.repaired = True


def manifest_of(identity: str, files: dict[str, Entry]) -> bytes:
    """Return a manifest with these files."""
    items = sorted(files.items())
    parts = [dict(items[i : i + _FILES_PER_LINE]) for i in range(0, len(items), _FILES_PER_LINE)]
    lines = [_line({"commit": 0, "files": part}) for part in parts] + [_line({"done": 0})]
    return b"".join([_line({"store": identity, "lines": len(lines) + 1}), *lines])


def manifest_of_folder(root: Path, identity: str) -> bytes:
    """Return a manifest with all files of a new store."""
    found = [path for path in root.rglob("*") if path.is_file() and path.parent.name != CHECKPOINTS]
    found.append(root / CHECKPOINTS / "zarr.json")
    entries = {path.relative_to(root).as_posix(): entry_of(path.read_bytes()) for path in found}
    return manifest_of(identity, {name: entry for name, entry in entries.items() if entry is not None})


def _line(record: dict[str, Any]) -> bytes:
    text = json.dumps(record, separators=(",", ":")).encode()
    return b"%s\t%08x\n" % (text, zlib.crc32(text))


def _whole_lines(data: bytes) -> list[bytes]:
    """Return the lines of a log up to the first one that is cut off or changed."""
    lines = data.splitlines(keepends=True)
    for i, line in enumerate(lines):
        text, _, checksum = line.rpartition(b"\t")
        if checksum != b"%08x\n" % zlib.crc32(text):
            return lines[:i] if i == len(lines) - 1 else []
    return lines


def _read(path: Path, identity: str) -> list[tuple[int, dict[str, Entry] | None]] | None:
    """Return the records of a log as (number, files), where files is None for a commit that is complete."""
    data = _contents(path)
    if data is None:
        return None
    damaged = StoreError(f"{path} is damaged: it was cut off or changed. Put it back from a copy of this store.")
    records = [json.loads(line.rpartition(b"\t")[0]) for line in _whole_lines(data)]
    if not records or "store" not in records[0] or len(records) < records[0]["lines"]:
        raise damaged
    if records[0]["store"] != identity:
        raise StoreError(
            f"{path} and {path.parent.parent / 'zarr.json'} are of different stores: put back the one that was "
            "replaced."
        )
    out: list[tuple[int, dict[str, Entry] | None]] = []
    for record in records[1:]:
        if "done" in record:
            out.append((record["done"], None))
        else:
            out.append((record["commit"], {name: (size, crc) for name, (size, crc) in record["files"].items()}))
    return out


def _contents(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _sizes(folder: Path) -> dict[str, int]:
    try:
        with os.scandir(folder) as found:
            return {entry.name: entry.stat().st_size for entry in found if entry.is_file()}
    except (FileNotFoundError, NotADirectoryError):
        return {}


def _sound(chunk: bytes) -> bool:
    """Return whether the checksum at the end of a Zarr chunk is right."""
    return len(chunk) >= 4 and google_crc32c.value(chunk[:-4]) == int.from_bytes(chunk[-4:], "little")
