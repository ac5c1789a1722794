"""What lies where in a store: its variables, their dimensions and chunks, and the parts that are written one by one.

A part is one trajectory, or one tile of an ensemble, at one point of a sweep. It has its own place in every array, made
of whole chunks, and its own checkpoint.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from ..running.solving import Job

_CHUNK_BYTES = 2**21  # of the largest variable
_LONGEST_CHUNK = 2**16  # saved times
TIMES = 2**16  # saved times in a chunk of the coordinate
_STATES = ""  # the name of states that are not stored
STATISTICS = {
    "steps": ("steps done", np.int64),
    "iterations": ("iterations of the solver, in all", np.int64),
    "most_iterations": ("most iterations in one step", np.int64),
    "residual": ("worst residual of a step", np.float64),
    "unsolved": ("steps that were not solved", np.int64),
    "first_unsolved": ("the first step that was not solved, or -1", np.int64),
    "substeps": ("sub-steps, in all", np.int64),
}


@dataclass(frozen=True)
class Axis:
    """A parameter that is swept: its full name, the name of its dimension, and its values."""

    parameter: str
    name: str
    values: tuple[Any, ...]

    @property
    def labels(self) -> np.ndarray:
        """Numbers if they are numbers, else words; what is neither is written as JSON."""
        if all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in self.values):
            return np.asarray(self.values)
        words = [v if isinstance(v, str) else json.dumps(v, ensure_ascii=False) for v in self.values]
        return np.asarray(words, object)


@dataclass(frozen=True)
class Variable:
    """One array of a store."""

    name: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: Any
    attrs: dict[str, Any]
    kind: str  # "coordinate", "rows" (written along time by each part), "once" (by each part), "statistic" (at the end)
    data: np.ndarray | None = None  # of a coordinate other than time

    @property
    def fill_value(self) -> Any:
        """What is read where nothing was written."""
        kind = np.dtype(self.dtype).kind
        return {"f": np.nan, "c": complex(np.nan, np.nan), "i": -1, "b": False, "O": ""}.get(kind, 0)


@dataclass(frozen=True)
class Layout:
    """All variables of a store, for runs of one kind."""

    axes: tuple[Axis, ...]
    members: int | None
    tile: int
    saved: int  # saved times, of the longest run
    rows: int  # saved times in a chunk
    time: str  # the dimension along saved times
    variables: dict[str, Variable]

    @staticmethod
    def of(jobs: Sequence[Job], axes: tuple[Axis, ...] = ()) -> "Layout":
        """The layout for these runs, which differ in what the axes say (in the order of their combinations)."""
        job = jobs[0]
        saved = max(j.run.n_saved for j in jobs)
        clocks = {(j.run.t0, j.run.dt * j.run.save_every, j.run.n_saved) for j in jobs}
        shared = len(clocks) == 1
        time = "time" if shared else "sample"
        inner = dict(_inner(job))
        lead = job.tile if job.members is not None and job.reduce is None else 1
        largest = max(lead * int(np.prod(shape)) * np.dtype(dtype).itemsize for _, shape, dtype, _ in inner.values())
        rows = 1 << (max(1, min(_LONGEST_CHUNK, _CHUNK_BYTES // largest)).bit_length() - 1)
        bare = Layout(axes, job.members, job.tile, saved, rows, time, {})
        found = [*bare._coordinates(job), *bare._rows(job, inner), *bare._statistics(job), *bare._once(job)]
        return replace(bare, variables={v.name: v for v in found})

    @property
    def tiles(self) -> int:
        """Parts of each run."""
        return 1 if self.members is None else -(-self.members // self.tile)

    @property
    def parts(self) -> int:
        """All parts."""
        return int(np.prod([len(a.values) for a in self.axes], dtype=int)) * self.tiles

    def place(self, part: int) -> tuple[tuple[slice, ...], int]:
        """Where a part is along the axes of a sweep, and which tile of its run it is."""
        run, tile = divmod(part, self.tiles)
        at = np.unravel_index(run, [len(a.values) for a in self.axes]) if self.axes else ()
        return tuple(slice(int(i), int(i) + 1) for i in at), tile

    def header(self) -> dict[str, Any]:
        """What a reader must know."""
        return {
            "axes": {a.name: list(a.values) for a in self.axes},
            "members": self.members,
            "tile": self.tile,
            "tiles": self.tiles,
            "rows": self.rows,
            "time": self.time,
            "variables": {v.name: {"kind": v.kind, "dimensions": list(v.dims)} for v in self.variables.values()},
        }

    def of_kind(self, kind: str) -> list[str]:
        """Names of variables."""
        return [v.name for v in self.variables.values() if v.kind == kind]

    def _sweep(self) -> tuple[tuple[str, ...], tuple[int, ...], tuple[int, ...]]:
        return tuple(a.name for a in self.axes), tuple(len(a.values) for a in self.axes), (1,) * len(self.axes)

    def _lead(self, reduced: bool = False) -> tuple[tuple[str, ...], tuple[int, ...], tuple[int, ...]]:
        dims, sizes, chunks = self._sweep()
        if self.members is None:
            return dims, sizes, chunks
        if reduced:
            return (*dims, "tile"), (*sizes, self.tiles), (*chunks, 1)
        return (*dims, "member"), (*sizes, self.members), (*chunks, self.tile)

    def _coordinates(self, job: Job) -> Iterator[Variable]:
        def line(name: str, data: Any, long_name: str, **attrs: Any) -> Variable:
            values = np.asarray(data)
            kind = str if values.dtype.kind == "O" else values.dtype
            attrs = {"long_name": long_name, **attrs}
            return Variable(name, (name,), values.shape, (max(len(values), 1),), kind, attrs, "coordinate", values)

        dims, sizes, ones = self._sweep() if self.time != "time" else ((), (), ())
        shape, chunks = (*sizes, self.saved), (*ones, TIMES)
        about = {"long_name": "time", "units": "1"}
        yield Variable("time", (*dims, self.time), shape, chunks, np.dtype(float), about, "coordinate")
        for axis in self.axes:
            yield line(axis.name, axis.labels, axis.parameter, units="1")
        if self.members is not None:
            yield line("member", np.arange(self.members), "member of the ensemble")
        if not job.custom:
            algebra = job.run.system.algebra
            for name, size in zip(_state_dims(algebra), algebra.shape, strict=True):
                yield line(name, np.arange(size), f"{name} of the state")
        if job.reduce is None and job.run.system.algebra.casimir_names:
            yield line("casimir", np.asarray(job.run.system.algebra.casimir_names, object), "Casimir")

    def _rows(self, job: Job, inner: dict) -> Iterator[Variable]:
        lead = self._lead(job.reduce is not None)
        for name, (dims, shape, dtype, long_name) in inner.items():
            yield self._along_time(name, lead, dims, shape, dtype, long_name, "rows")

    def _statistics(self, job: Job) -> Iterator[Variable]:
        """What a reducer returns."""
        if job.reduce is None:
            return
        result = jax.eval_shape(lambda x: job.reduce.result(job.reduce.init(x)), job.record.values)
        algebra = job.run.system.algebra
        for name, leaf in named_leaves(result, ""):
            like_state = leaf.shape == algebra.shape and not job.custom
            dims = _state_dims(algebra) if like_state else tuple(f"{name}_{i}" for i in range(leaf.ndim))
            about = f"{name} over members"
            yield self._along_time(name, self._sweep(), dims, leaf.shape, np.dtype(leaf.dtype), about, "statistic")

    def _along_time(
        self, name: str, lead: tuple, dims: tuple, shape: tuple, dtype: Any, about: str, kind: str
    ) -> Variable:
        before, sizes, ones = lead
        attrs = {"long_name": about, "units": "1"} | ({} if self.time == "time" else {"coordinates": "time"})
        whole, chunks = (*sizes, self.saved, *shape), (*ones, self.rows, *shape)
        return Variable(name, (*before, self.time, *dims), whole, chunks, dtype, attrs, kind)

    def _once(self, job: Job) -> Iterator[Variable]:
        lead, sizes, ones = self._lead()
        names = job.run.system.algebra.casimir_names
        if names and job.reduce is None:
            k = len(names)
            attrs = {"long_name": "what each Casimir could be at the start; errors are divided by it", "units": "1"}
            yield Variable("casimir_scale", (*lead, "casimir"), (*sizes, k), (*ones, k), np.dtype(float), attrs, "once")
        for name, (long_name, dtype) in STATISTICS.items():
            yield Variable(name, lead, sizes, ones, np.dtype(dtype), {"long_name": long_name, "units": "1"}, "once")


def _inner(job: Job) -> Iterator[tuple[str, tuple[tuple[str, ...], tuple[int, ...], Any, str]]]:
    """Name, and (dimensions, shape, type, meaning) at one saved time, of all that is stored along time."""
    algebra, record = job.run.system.algebra, job.record
    if job.reduce is not None:
        for i, leaf in enumerate(jax.tree.leaves(jax.eval_shape(job.reduce.init, record.values))):
            dims = tuple(f"partial_{i}_{k}" for k in range(leaf.ndim))
            yield f"partial_{i}", (dims, leaf.shape, np.dtype(leaf.dtype), "accumulator of the statistics")
        return
    if job.custom:
        for name, leaf in named_leaves(record.values[0]):
            dims = tuple(f"{name}_{k}" for k in range(leaf.ndim))
            yield name, (dims, leaf.shape, np.dtype(leaf.dtype), "saved function of the state")
    else:
        yield "mu", (_state_dims(algebra), algebra.shape, np.dtype(algebra.dtype), "state")
    if record.g is not None:
        dims = ("group_row", "group_column")
        yield "g", (dims, record.g.shape, np.dtype(record.g.dtype), "group element")
    yield "energy", ((), (), np.dtype(float), "Hamiltonian")
    if algebra.casimir_names:
        yield "casimirs", (("casimir",), (len(algebra.casimir_names),), np.dtype(float), "Casimirs")


def _state_dims(algebra: Any) -> tuple[str, ...]:
    return ("component",) if len(algebra.shape) == 1 else ("row", "column")


def named_leaves(saved: Any, prefix: str = "saved") -> list[tuple[str, Any]]:
    """The leaves of what a function returned, with names fit for a variable."""
    named: dict[str, Any] = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(saved):
        words = re.findall(r"\w+", jax.tree_util.keystr(path))
        name = "_".join([prefix, *words] if prefix or not words else words) or "value"
        while name in named:
            name += "_"
        named[name] = leaf
    return list(named.items())


def rows_of(job: Job, record: Any) -> dict[str, np.ndarray]:
    """What was saved, by the names of the variables, and the states, if they are known (see `states_in`)."""
    if job.reduce is not None:
        return {f"partial_{i}": np.asarray(x) for i, x in enumerate(jax.tree.leaves(record))}
    if job.custom:
        saved, states = record.values
        rows = {name: np.asarray(x) for name, x in named_leaves(saved)} | {_STATES: np.asarray(states)}
    else:
        rows = {"mu": np.asarray(record.values)}
    return rows if record.g is None else rows | {"g": np.asarray(record.g)}


def states_in(rows: dict[str, np.ndarray]) -> np.ndarray | None:
    """The states among the rows, from which Casimirs and energy follow."""
    return rows.get(_STATES, rows.get("mu"))
