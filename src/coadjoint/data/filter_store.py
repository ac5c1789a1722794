"""The folder of a filter: its configuration, the results of each cycle, and the state for the next one."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np

from .filtering_state import FilterState, Segment

_ABOUT, _STATE = "filter.json", "state.npz"


class FilterStore:
    """The rows and the state of a filter in memory and, if there is a folder, on disk."""

    def __init__(self, root: Path | None, rows: list[dict[str, np.ndarray]], state: FilterState):
        self.root, self.rows, self.state = root, rows, state

    def add(self, row: dict[str, np.ndarray], state: FilterState) -> None:
        """Write the results of a cycle, and then the state after it. `rows` has the row already."""
        if self.root is None:
            return
        from ..store.atomic_io import encode_arrays, sync, write

        cycle = len(self.rows) - 1
        write(self.root / _row_name(cycle), encode_arrays({"names": list(row)}, [np.asarray(x) for x in row.values()]))
        leaves = [np.asarray(x) for x in jax.tree.leaves(state)]
        header = {"cycles": cycle + 1, "segments": len(state.segments)}
        write(self.root / _STATE, encode_arrays(header, leaves))
        sync(self.root)


def _row_name(cycle: int) -> str:
    return f"cycle_{cycle:06d}.npz"


@contextmanager
def open_store(out: Any, resume: bool, config: dict[str, Any], start: FilterState) -> Iterator[FilterStore]:
    """The store of a run: new, or with the cycles of an earlier run of the same configuration."""
    if out is None:
        if resume:
            raise ValueError("resume=True resumes the run in a folder: give its name as out.")
        yield FilterStore(None, [], start)
        return
    from ..store.atomic_io import StoreError, sync, write
    from ..store.locks import CHECKPOINTS, store_lock

    if not isinstance(out, str | os.PathLike):
        raise TypeError(f"out must be the name of a folder, not {out!r}.")
    root = Path(out)
    about = root / _ABOUT
    if root.exists() and not resume:
        raise StoreError(f"{root} exists: give resume=True to resume its run, or another name.")
    if resume and root.exists() and not about.is_file():
        raise StoreError(f"{root} is not the folder of a filter: {_ABOUT} is missing.")
    (root / CHECKPOINTS).mkdir(parents=True, exist_ok=True)
    lock = store_lock(root)
    lock.acquire()
    try:
        if about.is_file():
            _compare(root, _read_about(about), config)
        rows, state = _read(root, start)
        write(about, json.dumps(config, indent=1, ensure_ascii=False).encode())
        sync(root)
        yield FilterStore(root, rows, state)
    finally:
        lock.remove()


def _read_about(path: Path) -> dict:
    """The configuration of the run in a folder."""
    from ..store.atomic_io import StoreError

    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except ValueError as error:
        raise StoreError(f"{path} is damaged ({error}): put it back from a copy, or start the run anew.") from None


def _compare(root: Path, stored: dict, given: dict) -> None:
    """Raise if the run in a folder is another one. Further observations may follow those of the stored run."""
    from ..store.atomic_io import StoreError
    from ..store.fingerprint import differences

    given = json.loads(json.dumps(given))
    count = len(stored["times"])
    if len(given["times"]) < count:
        raise StoreError(
            f"{root} has a run with {count} observations, but there are {len(given['times'])} now: give all of them."
        )
    found = differences(stored, given | {name: given[name][:count] for name in ("times", "observations")})
    if found:
        raise StoreError(f"{root} has the results of another run:\n  " + "\n  ".join(found))


def _read(root: Path, start: FilterState) -> tuple[list[dict[str, np.ndarray]], FilterState]:
    """The rows and the state of the completed cycles."""
    from ..store.atomic_io import StoreError, decode_arrays, remove_partial

    remove_partial(root)
    path = root / _STATE
    if not path.is_file():
        return [], start
    header, leaves = decode_arrays(path, path.read_bytes())
    empty = np.zeros(())
    segment = Segment(empty, empty, start.members, empty, empty)
    like = start._replace(segments=(segment,) * header["segments"])
    state = jax.tree.unflatten(jax.tree.structure(like), leaves)
    rows = []
    for cycle in range(header["cycles"]):
        path = root / _row_name(cycle)
        if not path.is_file():
            raise StoreError(f"{path} is missing: put it back from a copy, or start the run anew.")
        names, arrays = decode_arrays(path, path.read_bytes())
        rows.append(dict(zip(names["names"], arrays, strict=True)))
    return rows, state
