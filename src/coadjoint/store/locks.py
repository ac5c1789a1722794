"""Locks: one writer at a time for a store, and for a batch that another process runs.

A lock is `flock` on a file. The operating system releases it when the process ends, for any reason. It works between
the processes of a machine, and between machines if the network file system supports locks; `lock_warning` reports
mount options that prevent this.
"""

import errno
import fcntl
import io
import os
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from .atomic_io import StoreError

CHECKPOINTS = "checkpoint"  # a folder of the store
_STORE, _BATCH = "lock", ".lock"  # the file of the store's lock, and the suffix of those of batches
_PATIENCE = 120.0  # seconds to wait for a batch: a file server may keep the lock of a dead machine for 90
_HELD = (errno.EWOULDBLOCK, errno.EACCES)


class Lock:
    """A lock for one writer."""

    def __init__(self, path: Path):
        self.path = path
        self._file: io.BufferedRandom | None = None

    def acquire(self) -> None:
        """Acquire the lock, or raise an error that names its owner."""
        owner = self._try()
        if owner is not None:
            raise StoreError(
                f"{self.path.parent.parent} is being written by {owner}: let it finish, stop it, or write to another "
                "store."
            )

    def wait(self, stop: Any) -> None:
        """Wait for the lock, or raise an error that names its owner."""
        end = time.monotonic() + _PATIENCE
        while (owner := self._try()) is not None:
            if stop.is_set() or time.monotonic() > end:
                raise StoreError(f"{self.path} is held by {owner}, which may hang: end that process.")
            time.sleep(0.1)

    def _try(self) -> str | None:
        """Acquire the lock, or return its owner."""
        while True:
            file = open(self.path, "a+b")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                file.seek(0)
                owner = file.read().decode(errors="replace").strip()
                file.close()
                if error.errno not in _HELD:
                    raise StoreError(
                        f"{self.path.parent.parent} cannot be locked: {error.strerror}. The file system does not "
                        "support locks (on Lustre, mount it with -o flock); write to another one."
                    ) from None
                return owner or "another process"
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file.fileno()), os.stat(self.path)):
                    break
            file.close()  # its owner has removed it meanwhile
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}".encode())
        file.flush()
        self._file = file
        return None

    def owner(self) -> str | None:
        """Return the owner, if there is one."""
        try:
            with open(self.path, "rb") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except OSError:
                    return file.read().decode(errors="replace").strip() or "another process"
        except FileNotFoundError:
            return None
        return None

    def release(self) -> None:
        """Release the lock."""
        if self._file is not None:
            self._file.truncate(0)
            self._file.close()
            self._file = None

    def remove(self) -> None:
        """Release the lock and remove its file."""
        self.path.unlink(missing_ok=True)
        self.release()


def store_lock(path: Path) -> Lock:
    """Return the lock of a store."""
    return Lock(path / CHECKPOINTS / _STORE)


def batch_lock(path: Path, number: int) -> Lock:
    """Return the lock of a batch, numbered through all runs."""
    return Lock(path / CHECKPOINTS / f"part-{number:06d}{_BATCH}")


def batch_locks(path: Path) -> list[Lock]:
    """Return the locks of batches that exist, held or not."""
    return [Lock(found) for found in sorted((path / CHECKPOINTS).glob(f"part-*{_BATCH}"))]


def lock_warning(path: Path) -> str:
    """Return why locks on this folder do not work between machines; empty if they do, or if that is unknown."""
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines()]
    except OSError:
        return ""
    folder = path.resolve()
    above = [m for m in mounts if folder.is_relative_to(m[1].replace("\\040", " "))]
    if not above:
        return ""
    _, where, kind, options, *_ = max(above, key=lambda m: len(m[1]))
    given = set(options.split(","))
    local = {"nolock", "local_lock=all", "local_lock=flock", "localflock"} & given
    if kind.startswith("nfs") or kind == "lustre":
        if local:
            return f"{where} is mounted with {', '.join(sorted(local))}, so that locks hold on one machine only."
        if kind == "lustre" and "flock" not in given:
            return f"{where} is mounted without flock, so that there are no locks on it."
    return ""
