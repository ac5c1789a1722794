"""The interface of a backend: `prepare(plan, reason)` returns a program, or a `NotSupported` with the reason."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, Protocol, TypeVar

import jax
import numpy as np
from jaxtyping import PyTree

from stepcompiler.errors import NotCompilable, TooLarge

from ..plan import Batch, Plan
from ..run_state import StepState


class NotSupported(NamedTuple):
    """Why a backend does not support a plan. An `expected` reason is shown only if the user requested the backend."""

    reason: str
    expected: bool = False
    cause: Exception | None = None  # an unexpected error
    too_large: bool = False  # for code number by number


T = TypeVar("T")


def attempt_native(make: Callable[[], T]) -> T | NotSupported:
    """Return make(), or the reason why a faster backend does not support the run.

    This is the only place that catches errors of such backends. If the error is in the user's function, XLA raises it
    again. Only an interrupt or a lack of memory ends the run here.
    """
    try:
        with np.errstate(all="ignore"):  # constants such as 1/0 are valid in compiled code
            return make()
    except NotCompilable as error:
        return NotSupported(str(error), too_large=isinstance(error, TooLarge))
    except MemoryError:
        raise
    except Exception as error:
        text = " ".join(str(error).split())[:200]
        return NotSupported(
            f"An error occurred while native code was made ({type(error).__name__}: {text}).", cause=error
        )


class Stepper(Protocol):
    """The members of a batch during a run."""

    def advance(self, n1: int, every: int) -> PyTree:
        """Advance to step n₁, and save after every `every` steps.

        Return the saved rows (member, saved time, …) without padding. With a
        reducer, return its accumulators (batch, saved time, …).
        """
        ...

    def points(self) -> StepState:
        """Return the states of the members, padding included."""
        ...


class Program(Protocol):
    """The code that runs the batches of a plan."""

    backend: str
    reason: str  # why a faster backend was not used
    batches_per_launch: int  # batches per launch
    short_runs: Callable[[Batch], Any] | None  # several short batches at once, as `ShortRuns`
    max_concurrency: int | None  # that should be at work at a time; None: as many as there are cores or devices
    merge: Callable[[PyTree, PyTree], PyTree] | None  # merges accumulators, if the program has native code for this

    def device_context(self) -> AbstractContextManager[Any]:
        """Return the context for a batch, which sets JAX's default device to that of the program."""
        ...

    def renewed(self, plan: Plan) -> "Program":
        """The program of a plan that differs in values only."""
        ...

    def slots(self, batch: Batch) -> int:
        """How many saved times it can hold, if that is fewer than the plan's."""
        ...

    def initial_state(self, batch: Batch) -> tuple[StepState, PyTree]:
        """Return the states before the first step, padding included, and the rows saved of them, as in `advance`."""
        ...

    def stepper(self, batch: Batch, points: StepState, n: int) -> Stepper:
        """Return a stepper that resumes from these states before step n."""
        ...


class Backend(Protocol):
    """A function that makes programs."""

    def __call__(self, plan: Plan, reason: str) -> Program | NotSupported:
        """Return a program for the plan, ready to run, or why there is none.

        `reason` states why no faster backend runs the plan; the program has it as an attribute.
        """
        ...


def on_cpu() -> AbstractContextManager[Any]:
    """The CPU, whatever JAX's default device is."""
    try:
        return jax.default_device(jax.local_devices(backend="cpu")[0])
    except RuntimeError:  # JAX_PLATFORMS excludes the CPU
        return nullcontext()
