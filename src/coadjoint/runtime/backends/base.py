"""The interface of a backend: `prepare(plan, reason)` returns a program, or a `NotSupported` with the reason."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, Protocol, TypeVar

import jax
import numpy as np
from jaxtyping import PyTree

from stepcompiler.errors import NotCompilable

from ..plan import Batch, Plan
from ..run_state import StepState


class NotSupported(NamedTuple):
    """Why a backend does not take a plan, in a sentence. What is `expected` is not worth a word unless it was asked."""

    reason: str
    expected: bool = False
    cause: Exception | None = None  # what went wrong, if it was not foreseen


T = TypeVar("T")


def attempt_native(make: Callable[[], T]) -> T | NotSupported:
    """make(), or why a faster backend does not take the run: the one place where errors of such backends end.

    An error of the user's own program, too: it is raised anew when XLA takes the run. Only the keyboard and a lack of
    memory end the run from here.
    """
    try:
        with np.errstate(all="ignore"):  # of known numbers: 1/0 and the like are what they are in the code
            return make()
    except NotCompilable as refused:
        return NotSupported(str(refused))
    except MemoryError:
        raise
    except Exception as error:
        text = " ".join(str(error).split())[:200]
        return NotSupported(
            f"An error occurred while native code was made ({type(error).__name__}: {text}).", cause=error
        )


class Stepper(Protocol):
    """The members of a tile on their way."""

    def advance(self, n1: int, every: int) -> PyTree:
        """Step on to step n₁, and save after every so many steps.

        What was saved on the way comes back: records (member, saved time, …) without padding. With a
        reducer, its accumulators (tile, saved time, …).
        """
        ...

    def points(self) -> StepState:
        """Where the members are, padding included."""
        ...


class Program(Protocol):
    """What computes the tiles of a plan."""

    backend: str
    reason: str  # why no faster backend was taken, where that is so
    batches_per_launch: int  # tiles that should be stepped as one
    short_runs: Callable[[Batch], Any] | None  # several short batches at once, as `ShortRuns`
    max_concurrency: int | None  # that should be at work at a time; None: as many as there are cores or devices
    merge: Callable[[PyTree, PyTree], PyTree] | None  # of accumulators, if the program has one of its own

    def device_context(self) -> AbstractContextManager[Any]:
        """The context in which a tile runs: JAX's default device inside it is the program's."""
        ...

    def renewed(self, plan: Plan) -> "Program":
        """The program of a plan that differs in values only."""
        ...

    def slots(self, batch: Batch) -> int:
        """How many saved times it can hold, if that is fewer than the plan's."""
        ...

    def initial_state(self, batch: Batch) -> tuple[StepState, PyTree]:
        """The points before the first step, padding included, and what is saved of them, as `advance` has it."""
        ...

    def stepper(self, batch: Batch, points: StepState, n: int) -> Stepper:
        """The members at these points before step n, ready to go on."""
        ...


class Backend(Protocol):
    """What makes programs."""

    def __call__(self, plan: Plan, reason: str) -> Program | NotSupported:
        """Return a program for the plan, ready to run, or why there is none.

        `reason` states why no faster backend runs the plan; the program has it as an attribute.
        """
        ...


def on_cpu() -> AbstractContextManager[Any]:
    """The CPU, whatever JAX's default device is."""
    try:
        return jax.default_device(jax.local_devices(backend="cpu")[0])
    except RuntimeError:  # JAX was told to know no CPU
        return nullcontext()
