"""Progress of a run: none, a progress bar, or an observer of the user."""

from typing import Any, Protocol

from .health import Health
from .plan import Plan
from .run_state import StepState


class ProgressObserver(Protocol):
    """Receives the progress of a run; a context manager that encloses it."""

    def __enter__(self) -> "ProgressObserver": ...

    def __exit__(self, *exc: Any) -> None: ...

    def begin(self, done: int) -> None:
        """Receive the number of earlier steps, over all members."""
        ...

    def add(self, more: int, points: StepState, mu0: Any) -> None:
        """Receive a number of new steps, the states of the members of a batch, and their initial conditions."""
        ...

    def add_remote(self, more: int, health: Health) -> None:
        """Receive a number of new steps of another process, and the health of its members."""
        ...


class _NoProgress:
    """No progress bar."""

    def __enter__(self) -> "_NoProgress":
        return self

    def __exit__(self, *exc: Any) -> None:
        pass

    def begin(self, done: int) -> None:
        """Do nothing."""

    def add(self, more: int, points: StepState, mu0: Any) -> None:
        """Do nothing."""

    def add_remote(self, more: int, health: Health) -> None:
        """Do nothing."""


def watch(progress: Any, plan: Plan) -> ProgressObserver:
    """Return no observer, a bar for the terminal, or the result of `progress(plan)`."""
    if progress is False:
        return _NoProgress()
    if progress is True:
        from ..command.progress import bar_for as progress
    return progress(plan)
