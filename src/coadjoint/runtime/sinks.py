"""Sinks receive the results of a run. This file has the protocols, and memory; `store/store_sink.py` has the disk."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import jax
import numpy as np
from jaxtyping import PyTree

from .plan import Plan
from .results import Ensemble, RunSummary, Solution, make_result
from .run_state import Snapshot, StepState

if TYPE_CHECKING:
    from .distribution import Distribution


class Sink(Protocol):
    """Receives the results of one batch.

    Rows have the shape (member, saved time, …), without padding. With a reducer, rows are its accumulators, which have
    no axis of members.
    """

    def restore(self, initial: Callable[[], StepState]) -> tuple[int, StepState]:
        """Return the first step and the states before it: those of the checkpoint, or step 0 and `initial()`."""
        ...

    def add(self, at: int, rows: PyTree) -> None:
        """Receive the rows from the saved time `at` on."""
        ...

    def checkpoint(self, n: int, points: Callable[[], StepState]) -> None:
        """Receive a valid step n; `points()` are the states before it, and may take time to fetch."""
        ...

    def close(self) -> None:
        """End the batch."""
        ...

    def accumulators(self) -> PyTree:
        """Return the accumulators of all saved times, after `close`; only with a reducer."""
        ...


class Output(Protocol):
    """The destination of a run: a sink for each batch, and the object that the user receives."""

    def sink(self, batch: int) -> Sink:
        """Return the sink of a batch."""
        ...

    in_memory: bool  # whether `put` supports complete batches, without checkpoints

    def put(self, batches: range, rows: PyTree) -> None:
        """Receive all rows of some consecutive batches, instead of `sink`."""
        ...

    def result(self, outcome: RunSummary) -> Any:
        """Return what `solve` or `ensemble` returns."""
        ...

    def recovery_hint(self) -> str:
        """Return a sentence for error messages: the part of the run that is saved."""
        ...

    def distribution(self) -> "Distribution":
        """Return the part of the output that clusters use."""
        ...


class Memory:
    """Results in memory: every member, or the accumulators of a reducer."""

    in_memory: bool = True

    def __init__(self, plan: Plan):
        self.plan = plan
        self.values: PyTree = (
            None if plan.reduce is not None else empty_arrays(plan.snapshot_shape, plan.members or 1, plan.n_saved)
        )
        self.last: MemorySink | None = None

    def put(self, batches: range, rows: PyTree) -> None:
        """Copy the rows of some batches into the result."""
        first = batches.start * self.plan.batch_size
        for a, x in zip(jax.tree.leaves(self.values), jax.tree.leaves(rows), strict=True):
            a[first : first + len(x)] = x

    def sink(self, batch: int) -> "MemorySink":
        """Return the part of the result for a batch; accumulators have separate arrays."""
        plan = self.plan
        if plan.reduce is None:
            first = batch * plan.batch_size
            room = jax.tree.map(lambda a: a[first : first + plan.batch_size], self.values)
            self.last = sink = MemorySink(room, 1)  # not `return self.last`: another thread may have set it meanwhile
            return sink
        return MemorySink(empty_arrays(plan.accumulator_shape, plan.n_saved), 0)

    def result(self, outcome: RunSummary) -> Solution | Ensemble:
        """Return a Solution or an Ensemble."""
        plan, values, saved = self.plan, self.values, self.plan.n_saved
        if plan.reduce is not None:
            values = Snapshot(None, None)
        elif plan.members is None:  # which may have stopped early
            saved = self.last.saved if self.last is not None else saved
            values = jax.tree.map(lambda a: a[0, :saved], values)
        return make_result(plan, outcome, values, plan.times(0, saved))

    def recovery_hint(self) -> str:
        """Return no hint: the error's solution contains the steps computed."""
        return ""

    def distribution(self) -> "Distribution":
        """Return the part that clusters use."""
        from .distribution import MemoryDistribution

        return MemoryDistribution(self)


def empty_arrays(shapes: PyTree, *lead: int) -> PyTree:
    """Return empty arrays with the given numbers of entries."""
    return jax.tree.map(lambda s: np.empty((*lead, *s.shape), s.dtype), shapes)


class MemorySink:
    """The arrays of one batch, with saved times along the given axis."""

    def __init__(self, arrays: PyTree, axis: int):
        self.arrays, self.axis, self.saved = arrays, axis, 0
        self.leaves = jax.tree.leaves(arrays)

    def restore(self, initial: Callable[[], StepState]) -> tuple[int, StepState]:
        """Begin with the initial state."""
        return 0, initial()

    def add(self, at: int, rows: PyTree) -> None:
        """Copy the rows into the result."""
        for a, x in zip(self.leaves, jax.tree.leaves(rows), strict=True):
            self.saved = at + x.shape[self.axis]
            a[(slice(None),) * self.axis + (slice(at, self.saved),)] = x

    def checkpoint(self, n: int, points: Callable[[], StepState]) -> None:
        """Memory needs no checkpoint."""

    def close(self) -> None:
        """Fill the rows that the run did not reach with NaN, or 0 for integers."""
        for a in self.leaves:
            if self.saved < a.shape[self.axis]:
                a[(slice(None),) * self.axis + (slice(self.saved, None),)] = np.nan if a.dtype.kind in "fc" else 0

    def accumulators(self) -> PyTree:
        """Return the accumulators of all saved times."""
        return self.arrays
