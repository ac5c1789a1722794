"""The variables of a store, their dimensions, and their chunks.

A store holds one run, or the runs of a sweep. A run consists of batches of members; a trajectory is one batch. Each
batch of each run has a region of its own in every array, which consists of whole files, and a checkpoint. Batches are
numbered through all runs.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree

from ..integrators.until import Until
from ..runtime import tuning
from ..runtime.events import Events
from ..runtime.multiprocess import count_processes
from ..runtime.plan import Plan
from ..runtime.variable_names import event_variables, group_variables, leaf_dims, named_leaves, reduced_dims, state_dims
from .header import TOTALS

_FILE_BYTES = 2**21  # size of a chunk of the largest variable
_MEMBERS = 2**17  # members whose solver statistics are in one file
_KEPT_BYTES = 2**20  # accumulators up to this size are saved in the checkpoint of their batch
STATE = "mu"  # the variable of states
TIMES = 2**16  # saved times in a chunk of the coordinate


@dataclass(frozen=True)
class Axis:
    """A swept parameter: its full name, the name of its dimension, and its values."""

    parameter: str
    name: str
    values: tuple[Any, ...]

    @property
    def labels(self) -> np.ndarray:
        """The values as numbers if they are numbers, else as text; other values as JSON."""
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
    in_file: tuple[int, ...]  # the shape of a chunk
    dtype: Any
    attrs: dict[str, Any]
    kind: str  # "coordinate", "rows" (along time, by batch), "once" (by batch), "reduced" (at the end)
    data: np.ndarray | None = None  # values of a coordinate other than time

    @property
    def fill_value(self) -> Any:
        """The value of elements that were not written."""
        kind = np.dtype(self.dtype).kind
        return {"f": np.nan, "c": complex(np.nan, np.nan), "i": -1, "b": False, "O": ""}.get(kind, 0)


class _Lead(NamedTuple):
    """The axes before time."""

    dims: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()
    in_file: tuple[int, ...] = ()

    def then(self, dim: str, size: int, in_file: int) -> "_Lead":
        """Return the axes with one more."""
        return _Lead((*self.dims, dim), (*self.sizes, size), (*self.in_file, in_file))


class _Inner(NamedTuple):
    """A variable along time: its dimensions and shape at one saved time of one member."""

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: Any
    about: str


@dataclass(frozen=True)
class Layout:
    """All variables of a store."""

    axes: tuple[Axis, ...]
    members: int | None
    batch_size: int
    n_batches: int  # of each run
    saved: int  # saved times of the longest run
    rows: int  # saved times in a chunk
    time: str  # the dimension along saved times
    variables: dict[str, Variable]
    processes: int = 1  # each writes some rows of every state

    @staticmethod
    def of(plans: Sequence[Plan], axes: tuple[Axis, ...] = (), header: dict[str, Any] | None = None) -> "Layout":
        """Return the layout for runs that differ along the axes, in the order of their combinations.

        `header` is that of an existing store: small accumulators stay where they are.
        """
        plan = plans[0]
        clocks = {p.saved.clock for p in plans}
        time = "time" if len(clocks) == 1 else "sample"
        inner = dict(_inner(plan))
        members = plan.batch_size if plan.reduce is None else 1
        largest = max(members * int(np.prod(x.shape)) * np.dtype(x.dtype).itemsize for x in inner.values())
        rows = 1 << (max(1, min(tuning.current().saved_times_per_file, _FILE_BYTES // largest)).bit_length() - 1)
        if header is None:
            own = sum(int(np.prod(x.shape)) * np.dtype(x.dtype).itemsize for x in inner.values())
            kept = plan.reduce is not None and own * max(p.n_saved for p in plans) <= _KEPT_BYTES
        else:
            kept = plan.reduce is not None and not inner.keys() <= header["variables"].keys()
        inner = {} if kept else inner
        saved = max(p.n_saved for p in plans)
        bare = Layout(axes, plan.members, plan.batch_size, plan.n_batches, saved, rows, time, {}, count_processes(plan))
        found = [*bare._coordinates(plan), *bare._rows(plan, inner), *bare._reduced(plan), *bare._once(plan)]
        return replace(bare, variables={v.name: v for v in found})

    def bare(self) -> "Layout":
        """Return the layout without the values of coordinates, some of which grow with the members."""
        return replace(self, variables={k: replace(v, data=None) for k, v in self.variables.items()})

    def where(self, run: int) -> tuple[slice, ...]:
        """Return the position of a run along the axes of a sweep."""
        at = np.unravel_index(run, [len(a.values) for a in self.axes]) if self.axes else ()
        return tuple(slice(int(i), int(i) + 1) for i in at)

    def header(self) -> dict[str, Any]:
        """Return the part of the header that describes the layout."""
        return {
            "axes": {a.name: list(a.values) for a in self.axes},
            "members": self.members,
            "batch_size": self.batch_size,
            "n_batches": self.n_batches,
            "rows": self.rows,
            "time": self.time,
            "variables": {v.name: {"kind": v.kind, "dimensions": list(v.dims)} for v in self.variables.values()},
        }

    def of_kind(self, kind: str) -> list[str]:
        """Return the names of the variables of a kind."""
        return [v.name for v in self.variables.values() if v.kind == kind]

    @property
    def totals_group(self) -> int:
        """The number of batches whose solver statistics are in one file."""
        return max(1, _MEMBERS // self.batch_size)

    @property
    def keeps_rows(self) -> bool:
        """Whether the rows of a batch are small accumulators, which its checkpoint contains in place of arrays."""
        return not self.of_kind("rows")

    def _sweep(self) -> _Lead:
        sizes = tuple(len(a.values) for a in self.axes)
        return _Lead(tuple(a.name for a in self.axes), sizes, (1,) * len(sizes))

    def _lead(self, reduced: bool = False) -> _Lead:
        lead = self._sweep()
        if self.members is None:
            return lead
        return lead.then("batch", self.n_batches, 1) if reduced else lead.then("member", self.members, self.batch_size)

    def _coordinates(self, plan: Plan) -> Iterator[Variable]:
        def line(name: str, data: Any, long_name: str, **attrs: Any) -> Variable:
            values = np.asarray(data)
            kind = str if values.dtype.kind == "O" else values.dtype
            attrs = {"long_name": long_name, **attrs}
            return Variable(name, (name,), values.shape, (max(len(values), 1),), kind, attrs, "coordinate", values)

        lead = (self._sweep() if self.time != "time" else _Lead()).then(self.time, self.saved, TIMES)
        about = {"long_name": "time", "units": "1"}
        yield Variable("time", *lead, np.dtype(float), about, "coordinate")
        for axis in self.axes:
            yield line(axis.name, axis.labels, axis.parameter, units="1")
        if self.members is not None:
            yield line("member", np.arange(self.members), "member of the ensemble")
        algebra = plan.system.algebra
        if not plan.custom:
            for name, size in zip(state_dims(algebra), algebra.shape, strict=True):
                yield line(name, np.arange(size), f"{name} of the state")
        if plan.reduce is None and algebra.casimir_names:
            yield line("casimir", np.asarray(algebra.casimir_names, object), "Casimir")

    def _rows(self, plan: Plan, inner: dict[str, _Inner]) -> Iterator[Variable]:
        lead = self._lead(plan.reduce is not None)
        for name, about in inner.items():
            yield self._along_time(name, lead, about, "rows")

    def _reduced(self, plan: Plan) -> Iterator[Variable]:
        """Yield the variables that a reducer returns."""
        if plan.reduce is None:
            return
        for name, leaf in named_leaves(jax.eval_shape(plan.reduce.result, plan.accumulator_shape), ""):
            dims = reduced_dims(name, leaf.shape, plan.system.algebra, plan.custom)
            inner = _Inner(dims, leaf.shape, np.dtype(leaf.dtype), f"{name} over members")
            yield self._along_time(name, self._sweep(), inner, "reduced")

    def _along_time(self, name: str, lead: _Lead, inner: _Inner, kind: str) -> Variable:
        attrs = {"long_name": inner.about, "units": "1"} | ({} if self.time == "time" else {"coordinates": "time"})
        dims, sizes, in_file = lead.then(self.time, self.saved, self.rows)
        own = inner.shape
        if self.processes > 1 and name == STATE:
            own = (*own[:-2], -(-own[-2] // self.processes), own[-1])
        shapes = (*sizes, *inner.shape), (*in_file, *own)
        return Variable(name, (*dims, *inner.dims), *shapes, inner.dtype, attrs, kind)

    def _once(self, plan: Plan) -> Iterator[Variable]:
        names = plan.system.algebra.casimir_names
        if names and plan.reduce is None:
            attrs = {"long_name": "scale of each Casimir, by which its errors are divided", "units": "1"}
            lead = self._lead().then("casimir", len(names), len(names))
            yield Variable("casimir_scale", *lead, np.dtype(float), attrs, "once")
        if isinstance(plan.integrator, Until):
            algebra = plan.system.algebra
            event = Events(np.zeros(()), np.zeros(algebra.shape, algebra.dtype))
            for name, (dims, value, attrs) in event_variables(event, algebra, ()).items():
                lead = self._lead()
                for dim, size in zip(dims, value.shape, strict=True):
                    lead = lead.then(dim, size, size)
                yield Variable(name, *lead, value.dtype, attrs | {"units": "1"}, "once")
        lead = self._lead()
        if self.members is not None:
            lead = self._sweep().then("member", self.members, self.batch_size * self.totals_group)
        for name, about in TOTALS.items():
            dtype = np.dtype(float if name == "residual" else np.int64)
            yield Variable(name, *lead, dtype, {"long_name": about, "units": "1"}, "once")


def _inner(plan: Plan) -> Iterator[tuple[str, _Inner]]:
    """Yield the variables along time."""

    def like(leaf: Any, dims: tuple[str, ...], about: str) -> _Inner:
        return _Inner(dims, leaf.shape, np.dtype(leaf.dtype), about)

    algebra, record = plan.system.algebra, plan.snapshot_shape
    if plan.reduce is not None:
        for i, leaf in enumerate(jax.tree.leaves(plan.accumulator_shape)):
            name = f"partial_{i}"
            yield name, like(leaf, leaf_dims(name, leaf.ndim), "accumulator of the statistics")
        return
    if plan.custom:
        for name, leaf in named_leaves(record.values[0]):
            yield name, like(leaf, leaf_dims(name, leaf.ndim), "saved function of the state")
    else:
        yield STATE, like(record.values, state_dims(algebra), "state")
    for name, dims, leaf in group_variables(record.g):
        yield name, like(leaf, dims, "group element")
    if "u" not in plan.system.h_receives:  # the control is not saved
        yield "energy", _Inner((), (), np.dtype(float), "Hamiltonian")
    if algebra.watches_orbit:
        yield "orbit_error", _Inner((), (), np.dtype(float), "scaled distance from the initial orbit")
    if algebra.casimir_names:
        yield "casimirs", _Inner(("casimir",), (len(algebra.casimir_names),), np.dtype(float), "Casimirs")


def rows_of(plan: Plan, rows: PyTree) -> tuple[dict[str, np.ndarray], np.ndarray | None]:
    """Return rows by the names of their variables, as (member, saved time, …), and the states, if they are saved.

    Accumulators get an axis of length one for members. Rows are copied: they may be a view of a large array.
    """
    if plan.reduce is not None:
        return {f"partial_{i}": np.array(x)[None] for i, x in enumerate(jax.tree.leaves(rows))}, None
    saved, states = rows.values if plan.custom else (None, rows.values)
    named = dict(named_leaves(saved)) if plan.custom else {STATE: states}
    named |= dict(named_leaves(rows.g, "g"))
    return {name: np.array(x) for name, x in named.items()}, np.array(states)


def rows_back(plan: Plan, named: dict[str, np.ndarray]) -> tuple[PyTree, PyTree]:
    """Return values and group elements from rows by the names of their variables."""

    values = _tree(plan.snapshot_shape.values[0], "saved", named) if plan.custom else named[STATE]
    return values, group_back(plan, named)


def group_back(plan: Plan, named: dict[str, np.ndarray]) -> PyTree:
    """Return group elements from rows by the names of their variables."""
    return _tree(plan.snapshot_shape.g, "g", named)


def _tree(like: PyTree, prefix: str, named: dict[str, np.ndarray]) -> PyTree:
    return jax.tree.unflatten(jax.tree.structure(like), [named[name] for name, _ in named_leaves(like, prefix)])
