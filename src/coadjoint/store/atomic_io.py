"""Files that survive a power cut: durable writes, a lock, checkpoints, and a Zarr store made of such files."""

import asyncio
import errno
import io
import json
import os
import zipfile
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
from zarr.storage import LocalStore

THREADS = 8  # that write files
PARTIAL = ".partial"  # the name of a file ends so while it is being written


class StoreError(RuntimeError):
    """Something about a store that stands in the way; the message says what, and what to do."""


def reason(error: OSError) -> str:
    """Why the disk refuses, in words."""
    words = {
        errno.ENOSPC: "the disk is full",
        errno.EDQUOT: "the quota of the disk is used up",
        errno.EACCES: "permission is denied",
        errno.EPERM: "permission is denied",
        errno.EROFS: "the disk is read-only",
    }
    where = f" ({error.filename})" if error.filename else ""
    return words.get(error.errno or 0, error.strerror or str(error)) + where


def write(path: Path, data: Any) -> None:
    """Write a file so that after a power cut it is the old one or the new one, whole; then sync its folder."""
    partial = path.with_name(path.name + PARTIAL)
    try:
        with open(partial, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        with suppress(OSError):
            partial.unlink()
        raise


def sync(path: Path) -> None:
    """Make a file, or the names in a folder, last."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_tree(root: Path) -> None:
    """Make all below a folder last, the folder included: files first, then the folders that name them."""
    found = [(Path(folder), [Path(folder) / name for name in files]) for folder, _, files in os.walk(root)]
    with ThreadPoolExecutor(THREADS) as pool:
        in_parallel(sync, [path for _, files in found for path in files], pool)
        in_parallel(sync, [folder for folder, _ in found], pool)


def in_parallel(work: Callable[[Any], None], items: Sequence[Any], pool: Executor) -> None:
    """Do it for all: disks write many files in little more time than one. Ends when all have, with the first error."""
    futures = [pool.submit(work, item) for item in items]
    wait(futures)
    for future in futures:
        future.result()


def save_checkpoint(path: Path, header: dict[str, Any], leaves: Sequence[np.ndarray]) -> None:
    """Arrays and a JSON header as one .npz file, written durably."""
    out = io.BytesIO()
    text = np.frombuffer(json.dumps(header).encode(), np.uint8)
    np.savez(out, allow_pickle=False, header=text, **{f"leaf_{i}": x for i, x in enumerate(leaves)})
    write(path, out.getvalue())  # no view of the buffer: in a traceback it would outlive the buffer
    sync(path.parent)


def load_checkpoint(path: Path, data: bytes | None = None) -> tuple[dict[str, Any], list[np.ndarray]] | None:
    """The header and the arrays of a checkpoint, of which the bytes may be known; None if there is none."""
    try:
        source = open(path, "rb") if data is None else io.BytesIO(data)
        with source as file, np.load(file, allow_pickle=False) as archive:
            if archive.zip.testzip() is not None:
                raise ValueError
            header = json.loads(archive["header"].tobytes())
            return header, [archive[f"leaf_{i}"] for i in range(len(archive.files) - 1)]
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError, EOFError, OSError, zipfile.BadZipFile, zlib.error):
        raise damaged_checkpoint(path) from None


def damaged_checkpoint(path: Path) -> StoreError:
    """What to say of one."""
    return StoreError(
        f"{path} is damaged: it was cut off or changed after it was written, and the run cannot go on from it. "
        "What the store holds can still be read; put the file back from a copy, or start the run anew."
    )


class Files(LocalStore):
    """Zarr's folder of files, with durable writes; reading says which file is damaged or missing.

    `required(key)` tells whether a file of an array must be there. Elsewhere one that is missing means that nothing was
    written yet.
    """

    def __init__(
        self, root: Path | str, *, read_only: bool = False, required: Callable[[str], bool] = lambda key: False
    ):
        super().__init__(Path(root), read_only=read_only)
        self.required = required

    def with_read_only(self, read_only: bool = False) -> "Files":
        """The same files, to be read only or not."""
        return Files(self.root, read_only=read_only, required=self.required)

    async def set(self, key: str, value: Any) -> None:
        """Write durably."""
        await asyncio.to_thread(self.set_sync, key, value)

    async def set_if_not_exists(self, key: str, value: Any) -> None:
        """Write durably what is not there yet; there is one writer."""
        if not (self.root / key).exists():
            await self.set(key, value)

    def set_sync(self, key: str, value: Any) -> None:
        """Write durably."""
        self._check_writable()
        write(self.root / key, value.as_buffer_like())

    async def get(self, key: str, prototype: Any = None, byte_range: Any = None) -> Any:
        """Read, and check."""
        return self._checked(key, byte_range, await super().get(key, prototype, byte_range))

    def get_sync(self, key: str, *, prototype: Any = None, byte_range: Any = None) -> Any:
        """Read, and check."""
        return self._checked(key, byte_range, super().get_sync(key, prototype=prototype, byte_range=byte_range))

    def _checked(self, key: str, byte_range: Any, value: Any) -> Any:
        if byte_range is not None or not holds_numbers(key):
            return value
        if value is None:
            if self.required(key):
                raise StoreError(f"{self.root / key} is missing: it was there when the run was stored.")
            return None
        data = value.to_bytes()
        if len(data) < 4 or google_crc32c.value(data[:-4]) != int.from_bytes(data[-4:], "little"):
            raise StoreError(f"{self.root / key} is damaged: its checksum is wrong (the file was cut off or changed).")
        return value


def holds_numbers(key: str) -> bool:
    """Whether a key names a file of an array (Zarr: a chunk), name/c.0.1, or name/c for a single number."""
    last = key.rsplit("/", 1)[-1]
    return last == "c" or last.startswith("c.")


def remove_partial(root: Path) -> None:
    """Remove what a killed writer left behind in the folders of a store."""
    for path in [*root.glob(f"*{PARTIAL}"), *root.glob(f"*/*{PARTIAL}")]:
        path.unlink(missing_ok=True)
