"""Who watches a run: nobody, a progress bar, or what the user gave."""

from typing import Any, Protocol

from .health import Health
from .plan import Plan
from .run_state import StepState


class ProgressObserver(Protocol):
    """Sees a run go on; used as a context around it."""

    def __enter__(self) -> "ProgressObserver": ...

    def __exit__(self, *exc: Any) -> None: ...

    def begin(self, done: int) -> None:
        """So many steps, over all members, were done before."""
        ...

    def add(self, more: int, points: StepState, mu0: Any) -> None:
        """So many more are done; where the members of a tile are now, and where they began."""
        ...

    def add_remote(self, more: int, health: Health) -> None:
        """So many more are done in another process, and how members are there."""
        ...


class _Nobody:
    """No progress bar."""

    def __enter__(self) -> "_Nobody":
        return self

    def __exit__(self, *exc: Any) -> None:
        pass

    def begin(self, done: int) -> None:
        """Nothing."""

    def add(self, more: int, points: StepState, mu0: Any) -> None:
        """Nothing."""

    def add_remote(self, more: int, health: Health) -> None:
        """Nothing."""


def watch(progress: Any, plan: Plan) -> ProgressObserver:
    """Nobody, a bar for the terminal, or what `progress(plan)` returns."""
    if progress is False:
        return _Nobody()
    if progress is True:
        from ..command.progress import bar_for as progress
    return progress(plan)
