"""Checkpoints of a store: a file for each tile while it runs, and one file for all tiles when all runs are over.

The tiles of an ensemble are many and their checkpoints small. A tile's own file is newer than what is packed, and is
removed only when the pack is on disk.

Where several processes run a tile, each writes what it has of large matrices to a piece of its own, under a name with
the step. The tile's file names the pieces, and is written when all of them are on disk; until then the one before it
counts, whose pieces are still there. So whoever dies when, there is a checkpoint that is whole.
"""

import io
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .atomic_io import StoreError, damaged_checkpoint, load_checkpoint, save_checkpoint, sync, write
from .header import totals_of
from .locks import CHECKPOINTS

_TOTALS = ".totals."  # begins the names of the fields of SolverTotals
_PACK, _ENDING = "all.zip", ".npz"
_AT = "@"  # in the name of a block, before the row it begins with
_LARGEST_PACK = 2**27  # bytes; what is larger has large files, which may stay as they are


def piece_name(number: int, step: int, process: int) -> str:
    """The file of a piece."""
    return f"piece-{number:06d}-{step}-{process}{_ENDING}"


def block_name(leaf: str, row: int) -> str:
    """A block of rows in a piece."""
    return f"{leaf}{_AT}{row}"


class Checkpoint(NamedTuple):
    """Where a tile stands."""

    step: int
    rows: int  # saved times on disk
    backend: str
    numerics_version: int
    leaves: dict[str, np.ndarray]  # of its points, by their names, and of its rows where these are kept here
    pieces: tuple[str, ...] = ()  # files with the rest of its points, which are read when asked for
    spread: tuple = ()  # that rest: names, shapes, kinds of numbers

    @property
    def totals(self) -> dict[str, np.ndarray]:
        """How its steps were solved, by the names of the variables."""
        return totals_of(
            self.step,
            {k.removeprefix(_TOTALS): x for k, x in self.leaves.items() if k.startswith(_TOTALS)},
        )


class Checkpoints:
    """Those of a store, by the numbers of its tiles."""

    def __init__(self, store: Path):
        self.folder = store / CHECKPOINTS
        self._packed: dict[str, bytes] | None = None

    def path(self, number: int) -> Path:
        """The file of a tile while it runs."""
        return self.folder / f"part-{number:06d}{_ENDING}"

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
        header, values = found
        leaves = {name: x for (name, *_), x in zip(header["leaves"], values, strict=False)}
        about = header["step"], header["rows"], header["backend"], header["numerics_version"], leaves
        return Checkpoint(*about, *(tuple(header.get(name, ())) for name in ("pieces", "spread")))

    def read_all(self, count: int) -> list[Checkpoint | None]:
        """Those of all tiles."""
        return [self.read(k) for k in range(count)]

    def save(
        self, number: int, step: int, rows: int, backend: str, leaves: dict[str, np.ndarray], **pieces: Any
    ) -> None:
        """Replace that of a tile, durably; with the names of its pieces, which are on disk, and what is in them."""
        from .provenance import numerics_version  # imports JAX, which a reader does not need

        about: dict[str, Any] = {"step": step, "rows": rows, "backend": backend, "numerics_version": numerics_version()}
        about["leaves"] = [[name, list(x.shape), str(x.dtype)] for name, x in leaves.items()]
        save_checkpoint(self.path(number), about | pieces, list(leaves.values()))

    # Pieces.

    def save_piece(self, number: int, step: int, process: int, blocks: dict[str, np.ndarray]) -> None:
        """What a process has, by names and first rows (`block_name`), durably."""
        header = {"step": step, "leaves": list(blocks)}
        save_checkpoint(self.folder / piece_name(number, step, process), header, list(blocks.values()))

    def whole(self, found: Checkpoint) -> dict[str, np.ndarray]:
        """The leaves of a checkpoint, those in pieces put together."""
        out = {name: np.empty(shape, dtype) for name, shape, dtype in found.spread}
        rows = dict.fromkeys(out, 0)
        for piece in found.pieces:
            read = load_checkpoint(self.folder / piece)
            if read is None:
                raise StoreError(f"{self.folder / piece} is missing: it is a piece of the checkpoint.")
            for block, x in zip(read[0]["leaves"], read[1], strict=True):
                name, _, at = block.rpartition(_AT)
                *_, height, _ = x.shape
                out[name][..., int(at) : int(at) + height, :] = x
                rows[name] += height
        if any(rows[name] != shape[-2] for name, shape, _ in found.spread):
            raise StoreError(f"{self.folder}: pieces of the checkpoint are damaged: they have not all rows.")
        return found.leaves | out

    def remove_orphans(self, count: int) -> None:
        """Remove pieces that no checkpoint names: of commits that were replaced, or did not come about."""
        pieces = list(self.folder.glob(f"piece-*{_ENDING}"))
        if pieces:
            named = {name for found in self.read_all(count) if found is not None for name in found.pieces}
            for path in pieces:
                if path.name not in named:
                    path.unlink()

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
        write(self.folder / _PACK, out.getvalue())
        sync(self.folder)
        for path in own:
            path.unlink()
        sync(self.folder)
