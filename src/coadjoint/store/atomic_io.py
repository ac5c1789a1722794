"""Files that survive a power cut: durable writes, and arrays with a JSON header in one file."""

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

import numpy as np

THREADS = 8  # threads that write files
PARTIAL = ".partial"  # suffix of a file that is being written


class StoreError(RuntimeError):
    """A store cannot be created, read, or resumed. The message names the file and the remedy."""


def reason(error: OSError) -> str:
    """Describe why a file operation failed."""
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
    """Replace a file atomically: after a power cut it has the old or the new contents. The caller syncs the folder."""
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


def append(path: Path, data: bytes, durable: bool) -> None:
    """Append to a file; with `durable`, the data are on disk when this returns."""
    with open(path, "ab") as file:
        file.write(data)
        if durable:
            file.flush()
            os.fsync(file.fileno())


def sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_tree(root: Path) -> None:
    """Flush everything below a folder: the files first, then the folders."""
    found = [(Path(folder), [Path(folder) / name for name in files]) for folder, _, files in os.walk(root)]
    with ThreadPoolExecutor(THREADS) as pool:
        in_parallel(sync, [path for _, files in found for path in files], pool)
        in_parallel(sync, [folder for folder, _ in found], pool)


def write_all(root: Path, files: dict[str, bytes], pool: Executor) -> None:
    """Write files durably, by their names below `root`: data first, then the metadata that describe them."""
    metadata = [name for name in files if name.endswith("zarr.json")]
    for names in ([name for name in files if name not in metadata], metadata):
        in_parallel(lambda name: write(root / name, files[name]), names, pool)
        in_parallel(sync, sorted({(root / name).parent for name in names}), pool)


def in_parallel(work: Callable[[Any], Any], items: Sequence[Any], pool: Executor) -> list[Any]:
    """Call a function for all items in threads, wait for all calls, and raise the first error."""
    futures = [pool.submit(work, item) for item in items]
    wait(futures)
    return [future.result() for future in futures]


def encode_arrays(header: dict[str, Any], arrays: Sequence[np.ndarray]) -> bytes:
    """Return an .npz file with a JSON header and arrays, as bytes."""
    out = io.BytesIO()
    text = np.frombuffer(json.dumps(header).encode(), np.uint8)
    np.savez(out, allow_pickle=False, header=text, **{f"leaf_{i}": x for i, x in enumerate(arrays)})
    return out.getvalue()  # no view of the buffer: in a traceback it would outlive the buffer


def decode_arrays(path: Path, data: bytes) -> tuple[dict[str, Any], list[np.ndarray]]:
    """Return the header and the arrays of such a file, whose `path` is named in errors."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            if archive.zip.testzip() is not None:
                raise ValueError
            header = json.loads(archive["header"].tobytes())
            return header, [archive[f"leaf_{i}"] for i in range(len(archive.files) - 1)]
    except (ValueError, KeyError, TypeError, AttributeError, EOFError, OSError, zipfile.BadZipFile, zlib.error):
        raise damaged_checkpoint(path) from None


def damaged_checkpoint(path: Path) -> StoreError:
    """Return the error for a checkpoint that cannot be read."""
    return StoreError(
        f"{path} is damaged: it was cut off or changed after it was written, and the run cannot resume from it. "
        "Put the file back from a copy, or start the run anew. The arrays can still be read with xarray.open_zarr."
    )


def remove_partial(root: Path) -> None:
    """Remove the unfinished files of a killed writer."""
    for path in [*root.glob(f"*{PARTIAL}"), *root.glob(f"*/*{PARTIAL}")]:
        path.unlink(missing_ok=True)
