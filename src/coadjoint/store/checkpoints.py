"""Checkpoints of a store: a file for each batch while it runs, and one file for all batches when all runs are over.

A batch's own file is newer than the packed one, and is removed only when the pack is on disk.

If several processes run a batch, each writes its rows of large matrices to a piece. The name of a piece contains the
step. The batch's file names the pieces, and is written when all of them are on disk. Until then the previous
checkpoint counts, whose pieces still exist.
"""

import io
import zipfile
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .atomic_io import StoreError, damaged_checkpoint, decode_arrays, encode_arrays, sync, write
from .header import totals_of
from .locks import CHECKPOINTS
from .manifest import Manifest, checkpoint_name, log_name

_PACK = f"{CHECKPOINTS}/all.zip"
_TOTALS = ".totals."  # prefix of the fields of SolverTotals
_AT = "@"  # in the name of a block, before its first row
_LARGEST_PACK = 2**27  # bytes; larger checkpoints stay in files of their own


def piece_name(number: int, step: int, process: int) -> str:
    """Return the file name of a piece."""
    return f"piece-{number:06d}-{step}-{process}.npz"


def block_name(leaf: str, row: int) -> str:
    """Return the name of a block of rows in a piece."""
    return f"{leaf}{_AT}{row}"


class Checkpoint(NamedTuple):
    """The state of a batch at a step."""

    step: int
    rows: int  # saved times on disk
    commit: int  # number of the commit that wrote it
    backend: str
    numerics_version: int
    leaves: dict[str, np.ndarray]  # arrays of the step state by name, and small accumulators
    pieces: tuple[str, ...] = ()  # files with the rest of the step state
    sharded: tuple = ()  # names, shapes and dtypes of the arrays in pieces

    @property
    def totals(self) -> dict[str, np.ndarray]:
        """The solver statistics by the names of their variables."""
        fields = {k.removeprefix(_TOTALS): x for k, x in self.leaves.items() if k.startswith(_TOTALS)}
        return totals_of(self.step, fields)


class Checkpoints:
    """The checkpoints of a store, by the number of the batch.

    Each is bound to the store by its identity, and to the plan by the fingerprint of its run at creation.
    """

    def __init__(self, manifest: Manifest, plans: list[str], n_batches: int):
        self.manifest, self.folder = manifest, manifest.store / CHECKPOINTS
        self.plans, self.n_batches = plans, n_batches
        self._packed: dict[str, bytes] | None = None

    @property
    def count(self) -> int:
        """The number of batches of all runs."""
        return len(self.plans) * self.n_batches

    def path(self, number: int) -> Path:
        """Return the file of a batch while it runs."""
        return self.manifest.store / checkpoint_name(number)

    def packed(self) -> dict[str, bytes]:
        """Return the packed checkpoints by the names of their former files."""
        if self._packed is None:
            data = self.manifest.read(_PACK)
            if data is None:
                return {}
            try:
                with zipfile.ZipFile(io.BytesIO(data)) as archive:
                    self._packed = {name: archive.read(name) for name in archive.namelist()}
            except zipfile.BadZipFile:
                raise damaged_checkpoint(self.manifest.store / _PACK) from None
        return self._packed

    def read(self, number: int) -> Checkpoint | None:
        """Return the checkpoint of a batch; None if there is none."""
        name, path = checkpoint_name(number), self.path(number)
        packed = self.packed().get(path.name)
        if packed is not None and name not in self.manifest.files and path.exists():
            if self._decode(number, path, path.read_bytes()).commit > self._decode(number, path, packed).commit:
                raise self._unlisted(number)
            data = packed  # of before the checkpoints were packed
        else:
            try:
                data = self.manifest.read(name)
            except StoreError:
                if not path.exists():
                    raise
                self._decode(number, path, path.read_bytes())  # a damaged one, or of another store
                raise self._unlisted(number) from None
            data = packed if data is None else data
        return None if data is None else self._decode(number, path, data)

    def _unlisted(self, number: int) -> StoreError:
        log = self.manifest.store / log_name(number)
        return StoreError(
            f"{self.path(number)} is not the file that the run wrote last: it is an older version or damaged, or "
            f"{log} is missing or an older version. Put both back from a copy of this store."
        )

    def _decode(self, number: int, path: Path, data: bytes) -> Checkpoint:
        header, values = decode_arrays(path, data)
        try:
            bound = header["store"], header["plan"], header["batch"]
            found = Checkpoint(
                **{name: header[name] for name in Checkpoint._fields[:5]},
                leaves={name: x for (name, *_), x in zip(header["leaves"], values, strict=True)},
                pieces=tuple(header.get("pieces", ())),
                sharded=tuple(header.get("sharded", ())),
            )
        except (KeyError, TypeError, ValueError):
            raise damaged_checkpoint(path) from None
        if bound != self._bound(number):
            raise StoreError(f"{path} is the checkpoint of another store, run or batch: put back that of this store.")
        return found

    def _bound(self, number: int) -> tuple[str, str, int]:
        return self.manifest.identity, self.plans[number // self.n_batches], number

    def read_all(self) -> list[Checkpoint | None]:
        """Return the checkpoints of all batches."""
        return [self.read(k) for k in range(self.count)]

    def encode(
        self, number: int, step: int, rows: int, commit: int, backend: str, leaves: dict[str, np.ndarray], **more: Any
    ) -> bytes:
        """Return the contents of a checkpoint; `more` names the pieces and their arrays."""
        from .provenance import numerics_version  # imports JAX, which a reader does not need

        store, plan, batch = self._bound(number)
        about: dict[str, Any] = {"store": store, "plan": plan, "batch": batch, "step": step, "rows": rows}
        about |= {"commit": commit, "backend": backend, "numerics_version": numerics_version()}
        about["leaves"] = [[name, list(x.shape), str(x.dtype)] for name, x in leaves.items()]
        return encode_arrays(about | more, list(leaves.values()))

    # Pieces.

    def save_piece(self, number: int, step: int, process: int, blocks: dict[str, np.ndarray]) -> None:
        """Write the blocks of a process, by names and first rows (`block_name`), durably."""
        header = {"store": self.manifest.identity, "step": step, "leaves": list(blocks)}
        write(self.folder / piece_name(number, step, process), encode_arrays(header, list(blocks.values())))
        sync(self.folder)

    def whole(self, found: Checkpoint) -> dict[str, np.ndarray]:
        """Return the arrays of a checkpoint, those in pieces put together."""
        out = {name: np.empty(shape, dtype) for name, shape, dtype in found.sharded}
        rows = dict.fromkeys(out, 0)
        for piece in found.pieces:
            path = self.folder / piece
            if not path.exists():
                raise StoreError(f"{path} is missing: it is a piece of the checkpoint.")
            header, blocks = decode_arrays(path, path.read_bytes())
            if header.get("store") != self.manifest.identity or header.get("step") != found.step:
                raise StoreError(f"{path} is a piece of another checkpoint: put back that of this store.")
            for block, x in zip(header["leaves"], blocks, strict=True):
                name, _, at = block.rpartition(_AT)
                *_, height, _ = x.shape
                out[name][..., int(at) : int(at) + height, :] = x
                rows[name] += height
        if any(rows[name] != shape[-2] for name, shape, _ in found.sharded):
            raise StoreError(f"{self.folder}: pieces of the checkpoint are damaged: rows are missing.")
        return found.leaves | out

    def remove_orphans(self) -> None:
        """Remove pieces that no checkpoint names, and checkpoints that were packed."""
        packed = self.packed()
        for name in packed:
            if f"{CHECKPOINTS}/{name}" not in self.manifest.files:
                (self.folder / name).unlink(missing_ok=True)
        pieces = list(self.folder.glob("piece-*.npz"))
        if pieces:
            named = {name for found in self.read_all() if found is not None for name in found.pieces}
            for path in pieces:
                if path.name not in named:
                    path.unlink()

    def finish(self, pool: Executor) -> None:
        """Merge the logs into the manifest, and pack small checkpoints into one file if there are several."""
        self.manifest.load()
        names = [checkpoint_name(k) for k in range(self.count)]
        own = [name for name in names if self.count > 1 and self.manifest.files.get(name, [None]) != [None]]
        old = self.packed()
        size = sum((self.manifest.store / name).stat().st_size for name in own) + sum(map(len, old.values()))
        if not own or size > _LARGEST_PACK:
            return self.manifest.fold()
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            for name in names:
                short = name.rpartition("/")[2]
                data = self.manifest.read(name) if name in own else old.get(short)
                if data is None:  # a batch that failed
                    return self.manifest.fold()
                archive.writestr(zipfile.ZipInfo(short), data)
        self.manifest.commit({_PACK: out.getvalue()}, pool)
        self.manifest.fold(names)
        self._packed = None
        for name in own:
            (self.manifest.store / name).unlink()
        sync(self.folder)
        return None
