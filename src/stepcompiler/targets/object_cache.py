"""Compiled kernels on disk, so that another process need not compile them again.

A file contains the machine code of one text, for one processor, one version of LLVM and one level of optimisation. It
begins with a hash of its contents: a damaged file is compiled again. Files are written under another name and then
renamed, so that several processes can share the folder. The environment variable `STEPCOMPILER_CACHE` names another
folder, or switches the cache off with "off".
"""

import hashlib
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

_VARIABLE = "STEPCOMPILER_CACHE"
_MOST = 2**28  # bytes of a folder, beyond which the files that were read longest ago are deleted
_HASH = 32  # bytes


def cached_object(identity: str, make: Callable[[], bytes]) -> bytes:
    """Return the machine code with this identity: from the folder, or else from `make`, and then written there."""
    folder = _folder()
    if folder is None:
        return make()
    path = folder / f"{hashlib.sha256(identity.encode()).hexdigest()}.o"
    found = _read(path)
    if found is not None:
        return found
    code = make()
    _write(path, code)
    return code


def _folder() -> Path | None:
    """The folder, if it can be used: executable code is read from a folder of this user alone."""
    chosen = os.environ.get(_VARIABLE, "")
    if chosen.lower() in ("off", "0", "false", "no"):
        return None
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join("~", ".cache")
    try:
        folder = Path(chosen or os.path.join(base, "stepcompiler")).expanduser()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = folder.stat()
    except (OSError, RuntimeError):  # no home folder, or one that cannot be written
        return None
    if hasattr(os, "getuid") and (about.st_uid != os.getuid() or about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)):
        return None
    return folder


def _read(path: Path) -> bytes | None:
    """Return the code in a file, if it is complete."""
    try:
        data = path.read_bytes()
        os.utime(path)
    except OSError:
        return None
    code = data[_HASH:]
    return code if hashlib.sha256(code).digest() == data[:_HASH] else None


def _write(path: Path, code: bytes) -> None:
    """Write a file that is never seen in part; a full or read-only disk is no error."""
    try:
        _prune(path.parent, len(code))
        handle, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(code).digest() + code)
            os.replace(name, path)
        except OSError:
            Path(name).unlink(missing_ok=True)
    except OSError:
        return


def _prune(folder: Path, more: int) -> None:
    """Delete the files that were read longest ago, until the folder is small enough."""
    files = []
    for path in folder.glob("*.o"):
        try:
            about = path.stat()
        except OSError:  # another process has deleted it
            continue
        files.append((about.st_mtime, about.st_size, path))
    total = more + sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
        if total <= _MOST:
            return
        path.unlink(missing_ok=True)
        total -= size
