"""Sinks: where results go while a run is computed. This file has the protocol, and memory; `store` has the disk."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import jax
import numpy as np
from jaxtyping import PyTree

from .backends.base import Program
from .plan import Plan
from .results import Ensemble, RunSummary, Solution, make_result
from .run_state import Snapshot, StepState


class Sink(Protocol):
    """Where the results of one tile go. Rows lead with the members of the tile, padding left out, then saved times.

    With a reducer rows are its accumulators, which have no axis of members.
    """

    def restore(self, points: StepState) -> tuple[int, StepState]:
        """The step to begin with and the points before it: as they are given, or from a checkpoint."""
        ...

    def add(self, at: int, rows: PyTree) -> None:
        """What was saved from the saved time `at` on."""
        ...

    def checkpoint(self, n: int, points: Callable[[], StepState]) -> None:
        """All is well up to step n, where the members are at these points; to ask for them may take time."""
        ...

    def close(self) -> PyTree:
        """The run of the tile is over; accumulators come back, whole."""
        ...


class Output(Protocol):
    """Where the results of a run go: a sink for each tile, and what the user gets."""

    def sink(self, batch: int) -> Sink:
        """The sink of a tile."""
        ...

    def result(self, outcome: RunSummary) -> Any:
        """What `solve` or `ensemble` returns."""
        ...

    def recovery_hint(self) -> str:
        """What an error should say besides."""
        ...

    # For tiles that another process runs.

    def remote(self) -> "Remote":
        """What that process must know. It is pickled."""
        ...

    def collect(self, batch: int, rows: PyTree) -> None:
        """The process has computed a tile, and sent back its rows."""
        ...

    def mark_failed(self, batch: int) -> None:
        """The tile could not be computed."""
        ...

    def check(self) -> None:
        """Raise if the user wants to stop."""
        ...

    def drain(self) -> None:
        """Nothing more is wanted of other processes: wait a little until they have put away what they have."""
        ...


class Remote(Protocol):
    """The output of a run, in another process."""

    def output(self, plan: Plan, program: Program, numbers: range, stop: Any) -> AbstractContextManager[Any]:
        """An `Output` for some tiles, which nobody else has meanwhile. The run is to end when `stop.is_set()`."""
        ...

    def rows(self, output: Any) -> list[PyTree]:
        """What is to be sent back of the rows of each tile."""
        ...


class Memory:
    """Results in memory: every member, or the accumulators of a reducer."""

    def __init__(self, plan: Plan):
        self.plan = plan
        self.values: PyTree = (
            None if plan.reduce is not None else _empty(plan.snapshot_shape, plan.members or 1, plan.n_saved)
        )

    def sink(self, batch: int) -> "MemorySink":
        """A place in the result; accumulators have one of their own."""
        plan = self.plan
        if plan.reduce is None:
            first = batch * plan.batch_size
            room = jax.tree.map(lambda a: a[first : first + plan.batch_size], self.values)
            self.last = sink = MemorySink(room, 1)  # not `return self.last`: another thread may have set it meanwhile
            return sink
        return MemorySink(_empty(plan.accumulator_shape, plan.n_saved), 0)

    def result(self, outcome: RunSummary) -> Solution | Ensemble:
        """A Solution, or an Ensemble."""
        plan, values, saved = self.plan, self.values, self.plan.n_saved
        if plan.reduce is not None:
            values = Snapshot(None, None)
        elif plan.members is None:  # which may have stopped early
            saved = self.last.saved
            values = jax.tree.map(lambda a: a[0, :saved], values)
        return make_result(plan, outcome, values, plan.times(0, saved))

    def recovery_hint(self) -> str:
        """Nothing: what was computed is in the error's solution."""
        return ""

    def remote(self) -> "RemoteMemory":
        """Each tile in memory of its own."""
        return RemoteMemory()

    def collect(self, batch: int, rows: PyTree) -> None:
        """Put the rows where they belong."""
        if self.plan.reduce is None:
            sink = self.sink(batch)
            sink.add(0, jax.tree.unflatten(jax.tree.structure(self.values), rows))
            sink.close()

    def mark_failed(self, batch: int) -> None:
        """Mark that there is nothing."""
        if self.plan.reduce is None:
            self.sink(batch).close()

    def check(self) -> None:
        """Ctrl-C interrupts at once."""

    def drain(self) -> None:
        """Nothing is lost."""


class RemoteMemory:
    """The memory of another process: what is in it is sent back."""

    def output(self, plan: Plan, program: Program, numbers: range, stop: Any) -> "AbstractContextManager[RemoteOutput]":
        """A place of its own."""
        return nullcontext(RemoteOutput(plan, stop))

    def rows(self, output: "RemoteOutput") -> list[PyTree]:
        """The rows of the members, as far as they were computed; accumulators come back by themselves."""
        return [[x[:, : s.saved] for x in jax.tree.leaves(s.arrays)] if s.axis else None for s in output.sinks]


class RemoteOutput:
    """Memory for some tiles only."""

    def __init__(self, plan: Plan, stop: Any):
        self.plan, self.stop, self.sinks = plan, stop, []

    def sink(self, tile: int) -> "RemoteSink":
        """A place of its own for each, in their order."""
        plan = self.plan
        if plan.reduce is None:
            room, axis = _empty(plan.snapshot_shape, plan.count_members(range(tile, tile + 1)), plan.n_saved), 1
        else:
            room, axis = _empty(plan.accumulator_shape, plan.n_saved), 0
        sink = RemoteSink(room, axis, self.stop)
        self.sinks.append(sink)
        return sink


def _empty(shapes: PyTree, *lead: int) -> PyTree:
    """Room for so many of each."""
    return jax.tree.map(lambda s: np.empty((*lead, *s.shape), s.dtype), shapes)


class MemorySink:
    """Arrays of one tile, with the axis of saved times as given."""

    def __init__(self, arrays: PyTree, axis: int):
        self.arrays, self.axis, self.saved = arrays, axis, 0
        self.leaves = jax.tree.leaves(arrays)

    def restore(self, points: StepState) -> tuple[int, StepState]:
        """At the beginning."""
        return 0, points

    def add(self, at: int, rows: PyTree) -> None:
        """Put the rows where they belong."""
        for a, x in zip(self.leaves, jax.tree.leaves(rows), strict=True):
            self.saved = at + x.shape[self.axis]
            a[(slice(None),) * self.axis + (slice(at, self.saved),)] = x

    def checkpoint(self, n: int, points: Callable[[], StepState]) -> None:
        """Memory needs no checkpoint."""

    def close(self) -> PyTree:
        """Accumulators; where the run was stopped early, what was not reached is marked as such."""
        for a in self.leaves:
            if self.saved < a.shape[self.axis]:
                a[(slice(None),) * self.axis + (slice(self.saved, None),)] = np.nan if a.dtype.kind in "fc" else 0
        return self.arrays if self.axis == 0 else None


class Cancelled(Exception):
    """A tile that nobody waits for any more."""


class RemoteSink(MemorySink):
    """Memory of another process, which is left when it is no longer wanted."""

    def __init__(self, arrays: PyTree, axis: int, stop: Any):
        super().__init__(arrays, axis)
        self.stop = stop

    def checkpoint(self, n: int, points: Callable[[], StepState]) -> None:
        """Look whether it is still wanted."""
        if self.stop.is_set():
            raise Cancelled
