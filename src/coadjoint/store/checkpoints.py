"""Checkpoints of a store: a file for each tile while it runs, and one file for all tiles when all runs are over.

The tiles of an ensemble are many and their checkpoints small. A tile's own file is newer than what is packed, and is
removed only when the pack is on disk.
"""

import io
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..running.points import Totals
from .durable import damaged_checkpoint, load_checkpoint, save_checkpoint, sync, write
from .formats import checkpoint_now
from .layout import totals_of
from .locks import CHECKPOINTS

_PACK = "all.zip"
_LARGEST_PACK = 2**27  # bytes; what is larger has large files, which may stay as they are


class Checkpoint(NamedTuple):
    """Where a tile stands."""

    step: int
    rows: int  # saved times on disk
    backend: str
    arithmetic: int
    leaves: dict[str, np.ndarray]  # of its points, by their names, and of its rows where these are kept here

    @property
    def totals(self) -> dict[str, np.ndarray]:
        """How its steps were solved, by the names of the variables."""
        return totals_of(self.step, {name: self.leaves[f".totals.{name}"] for name in Totals._fields})


class Checkpoints:
    """Those of a store, by the numbers of its tiles."""

    def __init__(self, store: Path):
        self.folder = store / CHECKPOINTS
        self._packed: dict[str, bytes] | None = None

    def path(self, number: int) -> Path:
        """The file of a tile while it runs."""
        return self.folder / f"part-{number:06d}.npz"

    def packed(self) -> dict[str, bytes]:
        """What is packed, by the names of the files it was; read when it is first there."""
        if self._packed is None:
            try:
                with zipfile.ZipFile(io.BytesIO((self.folder / _PACK).read_bytes())) as archive:
                    self._packed = {name: archive.read(name) for name in archive.namelist()}
                if not all(name.startswith("part-") for name in self._packed):  # of one that was cut off, the last part
                    raise zipfile.BadZipFile
            except FileNotFoundError:
                return {}
            except zipfile.BadZipFile:
                raise damaged_checkpoint(self.folder / _PACK) from None
        return self._packed

    def read(self, number: int) -> Checkpoint | None:
        """The checkpoint of a tile; None if there is none."""
        path = self.path(number)
        found = load_checkpoint(path)
        if found is None:
            packed = self.packed()
            if not packed:
                return None
            found = load_checkpoint(self.folder / _PACK, packed.get(path.name, b""))
            assert found is not None
        header, leaves = checkpoint_now(*found)
        return Checkpoint(header["step"], header["rows"], header["backend"], header["arithmetic"], leaves)

    def read_all(self, count: int) -> list[Checkpoint | None]:
        """Those of all tiles."""
        return [self.read(k) for k in range(count)]

    def save(self, number: int, header: dict[str, Any], leaves: Sequence[np.ndarray]) -> None:
        """Replace that of a tile, durably."""
        save_checkpoint(self.path(number), header, leaves)

    def pack(self, count: int) -> None:
        """All in one file, if there are several, they are small, and one of them is new."""
        paths = [self.path(k) for k in range(count)]
        own = [path for path in paths if path.exists()]
        old = self.packed()
        size = sum(path.stat().st_size for path in own) + sum(map(len, old.values()))
        if count == 1 or not own or size > _LARGEST_PACK:
            return
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            for path in paths:
                data = path.read_bytes() if path in own else old.get(path.name)
                if data is None:  # a run that was stopped
                    return
                archive.writestr(zipfile.ZipInfo(path.name), data)
        write(self.folder / _PACK, out.getbuffer())
        sync(self.folder)
        for path in own:
            path.unlink()
        sync(self.folder)
