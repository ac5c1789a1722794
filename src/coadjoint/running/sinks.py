"""Sinks: where results go while a run is computed. This file has the protocol, and memory; `store` has the disk."""

from collections.abc import Callable
from typing import Any, Protocol

import jax
import numpy as np
from jaxtyping import PyTree

from .plan import Plan
from .points import Point, Record
from .results import Ensemble, Outcome, Solution, built


class Sink(Protocol):
    """Where the results of one tile go. Rows lead with the members of the tile, padding left out, then saved times.

    With a reducer rows are its accumulators, which have no axis of members.
    """

    def begin(self, points: Point) -> tuple[int, Point]:
        """The step to begin with and the points before it: as they are given, or from a checkpoint."""
        ...

    def add(self, at: int, rows: PyTree) -> None:
        """What was saved from the saved time `at` on."""
        ...

    def mark(self, n: int, points: Callable[[], Point]) -> None:
        """All is well up to step n, where the members are at these points; to ask for them may take time."""
        ...

    def close(self) -> PyTree:
        """The run of the tile is over; accumulators come back, whole."""
        ...


class Output(Protocol):
    """Where the results of a run go: a sink for each tile, and what the user gets."""

    def sink(self, tile: int) -> Sink:
        """The sink of a tile."""
        ...

    def result(self, outcome: Outcome) -> Any:
        """What `solve` or `ensemble` returns."""
        ...

    def note(self) -> str:
        """What an error should say besides."""
        ...


class Memory:
    """Results in memory: every member, or the accumulators of a reducer."""

    def __init__(self, plan: Plan):
        self.plan = plan
        self.values: PyTree = None
        if plan.reduce is None:
            lead = plan.members or 1, plan.n_saved
            self.values = jax.tree.map(lambda s: np.empty((*lead, *s.shape), s.dtype), plan.record)

    def sink(self, tile: int) -> "MemorySink":
        """A place in the result; accumulators have one of their own."""
        plan = self.plan
        if plan.reduce is None:
            first = tile * plan.tile
            self.last = MemorySink(jax.tree.map(lambda a: a[first : first + plan.tile], self.values), 1)
            return self.last
        lead = (plan.n_saved,)
        return MemorySink(jax.tree.map(lambda s: np.empty((*lead, *s.shape), s.dtype), plan.accumulator), 0)

    def result(self, outcome: Outcome) -> Solution | Ensemble:
        """A Solution, or an Ensemble."""
        plan, values, saved = self.plan, self.values, self.plan.n_saved
        if plan.reduce is not None:
            values = Record(None, None)
        elif plan.members is None:  # which may have stopped early
            saved = self.last.saved
            values = jax.tree.map(lambda a: a[0, :saved], values)
        return built(plan, outcome, values, plan.times(0, saved))

    def note(self) -> str:
        """Nothing: what was computed is in the error's solution."""
        return ""


class MemorySink:
    """Arrays of one tile, with the axis of saved times as given."""

    def __init__(self, arrays: PyTree, axis: int):
        self.arrays, self.axis, self.saved = arrays, axis, 0

    def begin(self, points: Point) -> tuple[int, Point]:
        """At the beginning."""
        return 0, points

    def add(self, at: int, rows: PyTree) -> None:
        """Put the rows where they belong."""

        def put(a: np.ndarray, x: np.ndarray) -> None:
            self.saved = at + x.shape[self.axis]
            a[(slice(None),) * self.axis + (slice(at, self.saved),)] = x

        jax.tree.map(put, self.arrays, rows)

    def mark(self, n: int, points: Callable[[], Point]) -> None:
        """Memory needs no checkpoint."""

    def close(self) -> PyTree:
        """Accumulators; where the run was stopped early, what was not reached is marked as such."""

        def fill(a: np.ndarray) -> None:
            a[(slice(None),) * self.axis + (slice(self.saved, None),)] = np.nan if a.dtype.kind in "fc" else 0

        jax.tree.map(fill, self.arrays)
        return self.arrays if self.axis == 0 else None
