"""The folder of a store as Zarr reads and writes it: reading checks the manifest, and writing collects files."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from zarr.core.buffer import default_buffer_prototype
from zarr.storage import LocalStore

from .manifest import Manifest

_collected: ContextVar[dict[str, bytes] | None] = ContextVar("collected", default=None)


@contextmanager
def collected() -> Iterator[dict[str, bytes]]:
    """Collect the files that Zarr writes inside the `with` statement, by their names."""
    files: dict[str, bytes] = {}
    token = _collected.set(files)
    try:
        yield files
    finally:
        _collected.reset(token)


class Files(LocalStore):
    """The files of a store. Each file that is read must agree with the manifest."""

    def __init__(self, manifest: Manifest, *, read_only: bool = False):
        super().__init__(manifest.store, read_only=read_only)
        self.manifest = manifest

    def with_read_only(self, read_only: bool = False) -> "Files":
        """Return the same files with another mode."""
        return Files(self.manifest, read_only=read_only)

    async def set(self, key: str, value: Any) -> None:
        """Collect a file."""
        self.set_sync(key, value)

    async def set_if_not_exists(self, key: str, value: Any) -> None:
        """Collect a file that does not exist yet."""
        if not (self.root / key).exists():
            self.set_sync(key, value)

    def set_sync(self, key: str, value: Any) -> None:
        """Collect a file."""
        self._check_writable()
        files = _collected.get()
        assert files is not None, f"{key} is written outside a commit"
        files[key] = value.to_bytes()

    async def get(self, key: str, prototype: Any = None, byte_range: Any = None) -> Any:
        """Read a file and check it."""
        if byte_range is not None:
            return await super().get(key, prototype, byte_range)
        return await asyncio.to_thread(self.get_sync, key, prototype=prototype)

    def get_sync(self, key: str, *, prototype: Any = None, byte_range: Any = None) -> Any:
        """Read a file and check it."""
        if byte_range is not None:
            return super().get_sync(key, prototype=prototype, byte_range=byte_range)
        data = self.manifest.read(key)
        return None if data is None else (prototype or default_buffer_prototype()).buffer.from_bytes(data)
