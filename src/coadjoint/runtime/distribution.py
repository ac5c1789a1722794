"""Outputs of runs whose batches other processes run, such as the workers of a Dask cluster."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import jax
from jaxtyping import PyTree

from .backends.base import Program
from .plan import Plan
from .run_state import StepState
from .sinks import Memory, MemorySink, Sink, empty_arrays


class Distribution(Protocol):
    """The part of an output that the client of a cluster uses."""

    def remote(self) -> "Remote":
        """Return the output for a worker. It is pickled."""
        ...

    def collect(self, batch: int, rows: PyTree) -> None:
        """Receive the rows of a batch that a worker has run."""
        ...

    def mark_failed(self, batch: int) -> None:
        """Record that a batch could not be computed."""
        ...

    def check(self) -> None:
        """Raise an error if the user interrupted the run."""
        ...

    def drain(self) -> None:
        """Wait a little until workers have committed, when the run ends early."""
        ...


class Remote(Protocol):
    """The output of a run, in a worker."""

    def output(self, plan: Plan, program: Program, numbers: range, stop: Any) -> AbstractContextManager[Any]:
        """Return the output for some batches, which no other process runs meanwhile; `stop.is_set()` ends the run."""
        ...

    def rows(self, output: Any) -> list[PyTree]:
        """Return the rows of each batch that are sent to the client."""
        ...


class MemoryDistribution:
    """Results in the memory of the client."""

    def __init__(self, memory: Memory):
        self.memory = memory

    def remote(self) -> "RemoteMemory":
        """Return memory for each batch."""
        return RemoteMemory()

    def collect(self, batch: int, rows: PyTree) -> None:
        """Copy the rows of a batch; accumulators arrive with its result."""
        if self.memory.plan.reduce is None:
            sink = self.memory.sink(batch)
            sink.add(0, jax.tree.unflatten(jax.tree.structure(self.memory.values), rows))
            sink.close()

    def mark_failed(self, batch: int) -> None:
        """Fill the rows of the batch with NaN."""
        if self.memory.plan.reduce is None:
            self.memory.sink(batch).close()

    def check(self) -> None:
        """Ctrl-C raises an error by itself."""

    def drain(self) -> None:
        """Do nothing: no commit is pending."""


class RemoteMemory:
    """Memory of a worker, whose content is sent to the client."""

    def output(self, plan: Plan, program: Program, numbers: range, stop: Any) -> "AbstractContextManager[RemoteOutput]":
        """Return memory for some batches."""
        return nullcontext(RemoteOutput(plan, stop))

    def rows(self, output: "RemoteOutput") -> list[PyTree]:
        """Return the rows of the members, as far as they were computed; accumulators are in the result of the batch."""
        return [[x[:, : s.saved] for x in jax.tree.leaves(s.arrays)] if s.axis else None for s in output.memory]


class RemoteOutput:
    """Memory for some batches."""

    in_memory: bool = False

    def __init__(self, plan: Plan, stop: Any):
        self.plan, self.stop = plan, stop
        self.memory: list[MemorySink] = []

    def sink(self, batch: int) -> "CancellableSink":
        """Return memory for a batch."""
        plan = self.plan
        if plan.reduce is None:
            shape = plan.snapshot_shape, plan.count_members(range(batch, batch + 1)), plan.n_saved
            self.memory.append(MemorySink(empty_arrays(*shape), 1))
        else:
            self.memory.append(MemorySink(empty_arrays(plan.accumulator_shape, plan.n_saved), 0))
        return CancellableSink(self.memory[-1], self.stop)


class Cancelled(Exception):
    """The client no longer waits for a batch."""


class CancellableSink:
    """A sink that ends the run when the client no longer waits for it."""

    def __init__(self, sink: Sink, stop: Any):
        self.stop, self._checkpoint = stop, sink.checkpoint
        self.restore, self.add, self.close, self.accumulators = sink.restore, sink.add, sink.close, sink.accumulators

    def checkpoint(self, n: int, points: Callable[[], StepState]) -> None:
        """Raise an error if the batch was cancelled."""
        if self.stop.is_set():
            raise Cancelled
        self._checkpoint(n, points)
