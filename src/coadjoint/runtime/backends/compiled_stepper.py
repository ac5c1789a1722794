"""The stepper of native code, for CPUs, GPUs and large lattices.

The fast kernel runs the method without fallbacks and assumes that `likely` conditions hold. If a step is not valid, the
kernel stops before it. From there on the full kernel, which has all branches, takes the steps. If a step does not
converge there either, the fallback solver takes it, compiled by XLA. A step that does not converge costs time, but
results do not depend on the path taken.

`MemberMemory` is the part that depends on the target: where states are, and how a kernel runs on them.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from jaxtyping import Int, PyTree

from ..plan import Batch, Plan
from ..run_state import Snapshot, StepState
from .base import NotSupported
from .nonconverged_steps import FallbackStepper, Repeater
from .observer import observer_for
from .step_definition import StepDefinition
from .step_kernels import width_of


class MemberMemory(Protocol):
    """The members of a batch in the memory of a target. Their step numbers may differ after a step is not valid."""

    @property
    def next_step(self) -> int:
        """The least number of the next step of a member."""
        ...

    def use(self, kernel: Any) -> None:
        """Continue with this kernel."""
        ...

    def open_slots(self, first: int, count: int) -> None:
        """Allocate memory for `count` saved values; the first is saved after (first + 1) `every` steps."""
        ...

    def run(self, stop: int, every: int) -> bool:
        """Take steps, at most until `stop`; return False if a member stopped before a step that is not valid."""
        ...

    def stopped(self) -> tuple[Int[np.ndarray, " k"], Int[np.ndarray, " k"]]:
        """Return the members that stopped in the last `run`, and the step before which each stands."""
        ...

    def states(self) -> StepState:
        """Return copies of the states of all members, padding included."""
        ...

    def states_of(self, lanes: Int[np.ndarray, " k"]) -> StepState:
        """Return the states of some members."""
        ...

    def replace(self, lanes: Int[np.ndarray, " k"], states: StepState, every: int) -> None:
        """Set the states of some members after one more step, and save those for which it is time."""
        ...

    def accumulators(self, count: int) -> PyTree | None:
        """Return the reduced values of `count` saved times; None if the target has no code for the reducer."""
        ...

    def rows(self, count: int, first: int) -> Snapshot:
        """Return the values of `save` at `count` saved times without padding; the first has the number `first`."""
        ...


class CompiledProgram(Protocol):
    """The part of a program of native code that its steppers use."""

    plan: Plan
    definition: StepDefinition

    def full_kernel(self) -> Any:
        """Return the kernel that assumes nothing, or a `NotSupported`."""
        ...

    def reduced(self, batch: Batch, rows: Snapshot, slots: int) -> PyTree:
        """Return the rows of a batch; with a reducer, its accumulators."""
        ...


class CompiledStepper:
    """The members of a batch during a run of native code."""

    def __init__(
        self,
        program: CompiledProgram,
        batch: Batch,
        points: StepState,
        memory: MemberMemory,
        repeater: Callable[[], Repeater] | None = None,
    ):
        """Without a `repeater`, XLA takes all fallback steps."""
        self.program, self.plan, self.batch, self.memory, self.repeater = program, program.plan, batch, memory, repeater
        self.full = False
        self.observer = observer_for(self.plan, batch, width_of(self.plan))
        if self.observer is not None:
            self.observer.states = points.observed

    def points(self) -> StepState:
        """Return the states of the members, padding included."""
        points = self.memory.states()
        return points if self.observer is None else points._replace(observed=self.observer.states)

    def advance(self, n1: int, every: int) -> PyTree:
        """Take native steps, and fallback steps before which a kernel stops; return the saved rows."""
        memory, start = self.memory, self.memory.next_step // every
        count = n1 // every - start
        memory.open_slots(start, count)
        while memory.next_step < n1:
            if not memory.run(n1, every) and not self._use_full_kernel():
                self._take_fallback_steps(every)
        if self.observer is None and (accumulators := memory.accumulators(count)) is not None:
            return accumulators
        first = self.plan.saved.up_to(n1) - count
        rows = memory.rows(count, first)
        if self.observer is not None:
            rows = self.observer.observed(rows, first)
        return self.program.reduced(self.batch, rows, self.plan.call_slots + 1)

    def _use_full_kernel(self) -> bool:
        """Continue with the full kernel; return False if it is in use already, or cannot be compiled."""
        if self.full:
            return False
        self.full = True
        kernel = self.program.full_kernel()
        if isinstance(kernel, NotSupported):
            return False
        self.memory.use(kernel)
        return True

    def _take_fallback_steps(self, every: int) -> None:
        """Take one step of each member that stopped."""
        lanes, n = self.memory.stopped()
        fallback = FallbackStepper(self._repeater, self.program.definition, self.plan, self.batch, int(n.min()))
        self.memory.replace(lanes, fallback.step(lanes, self.memory.states_of(lanes), n), every)

    @cached_property
    def _repeater(self) -> Repeater | None:
        return None if self.repeater is None else self.repeater()
