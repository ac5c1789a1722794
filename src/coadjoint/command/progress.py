"""The progress bar of a run: speed, time left, iterations per step, worst residual, Casimir error."""

import json
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from ..runtime.health import Health, health_of
from ..runtime.plan import Plan
from ..runtime.run_state import StepState

_OFTEN, _SELDOM = 0.5, 10.0  # seconds between updates in a terminal, and elsewhere


class ProgressSnapshot(NamedTuple):
    """The progress of a run, and the state of its solver."""

    done: int  # steps, over all members
    total: int
    rate: float  # steps per second
    members: float  # per second
    iterations: float  # per step
    residual: float  # the largest so far
    casimir_error: float | None  # scaled, of the worst member of the batch
    unsolved: int

    @property
    def left(self) -> float:
        """Seconds left."""
        return (self.total - self.done) / max(self.rate, 1e-9)

    def note(self) -> str:
        """The note beside the bar."""
        words = [f"{self.rate:.3g} steps/s", *([f"{self.members:.3g} members/s"] if self.members else [])]
        words += [f"{self.iterations:.1f} iterations/step", f"residual {self.residual:.0e}"]
        if self.casimir_error is not None:
            words.append(f"Casimirs {self.casimir_error:.0e}")
        if self.unsolved:
            words.append(f"{self.unsolved} not converged")
        return ", ".join(words)


class Bar:
    """A Rich bar in a terminal; otherwise a plain line every ten seconds, and one at the end.

    With `lines` the bar writes lines of JSON to standard output instead. One bar may serve several runs: `total` and
    `members` are the sums over all runs.
    """

    def __init__(self, lines: bool = False):
        self.lines = lines
        self.total = self.members = self.done = self.before = 0
        self.ended: list[Health] = []  # of the runs that are finished
        self.lock = threading.Lock()
        self.console = Console(file=sys.stderr)
        self.shown = self.console.is_terminal and not lines
        self.began = self.last = time.perf_counter()
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=self.console,
            disable=not self.shown,
        )

    def serving(self, plan: Plan) -> "RunBar":
        """The observer of one run, as `solve(progress=...)` requires it."""
        return RunBar(self, plan)

    def __enter__(self) -> "Bar":
        self.began = self.last = time.perf_counter()
        self.progress.start()
        self.task = self.progress.add_task("solving", total=self.total, note="")
        return self

    def __exit__(self, *exc: Any) -> None:
        self.progress.stop()

    def begin(self, done: int) -> None:
        """Count steps of an earlier session, which do not count for the speed."""
        with self.lock:
            self.done += done
            self.before += done

    def count(self, more: int, health: Callable[[], Health], run_ends: bool = False) -> None:
        """Count completed steps; `health` is called when the bar is updated, and at the end of each run."""
        with self.lock:
            self.done += more
            now = time.perf_counter()
            due = self.done >= self.total or now - self.last > (_OFTEN if self.shown else _SELDOM)
            own = health() if due or run_ends else None
            if run_ends and own is not None:
                self.ended.append(own)
            if due and own is not None:
                self.last = now
                self._show(self._snapshot(now, combined_health(self.ended if run_ends else [*self.ended, own])))
            elif self.shown:
                self.progress.update(self.task, completed=self.done)

    def _snapshot(self, now: float, health: Health) -> ProgressSnapshot:
        rate = (self.done - self.before) / max(now - self.began, 1e-9)
        members = rate * self.members / self.total if self.members > 1 else 0.0
        return ProgressSnapshot(self.done, self.total, rate, members, *health)

    def _show(self, snapshot: ProgressSnapshot) -> None:
        if self.lines:
            values = {k: v if v is None or np.isfinite(v) else str(v) for k, v in snapshot._asdict().items()}
            print(json.dumps({"event": "progress", **values, "seconds_left": snapshot.left}), flush=True)
            return
        self.progress.update(self.task, completed=self.done, note=snapshot.note())
        if not self.shown:
            left = "" if snapshot.done >= snapshot.total else f", {snapshot.left:.0f} s left"
            print(
                f"solving: {snapshot.done}/{snapshot.total} steps, {snapshot.note()}{left}", file=sys.stderr, flush=True
            )


class RunBar:
    """The bar of one run; with `only`, the bar begins and ends with the run."""

    def __init__(self, bar: Bar, plan: Plan, only: bool = False):
        self.bar, self.plan, self.only = bar, plan, only
        self.left = plan.steps * (plan.members or 1)

    def __enter__(self) -> "RunBar":
        if self.only:
            self.bar.__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        if self.only:
            self.bar.__exit__(*exc)

    def begin(self, done: int) -> None:
        """Count steps of an earlier session."""
        self.left -= done
        self.bar.begin(done)

    def add(self, more: int, points: StepState, mu0: Array) -> None:
        """Count completed steps."""
        self.left -= more
        self.bar.count(more, lambda: health_of(self.plan, points, mu0), self.left <= 0)

    def add_remote(self, more: int, health: Health) -> None:
        """Count completed steps of a worker."""
        self.left -= more
        self.bar.count(more, lambda: health, self.left <= 0)


def bar_for(plan: Plan) -> RunBar:
    """The bar of one run."""
    bar = Bar()
    bar.total, bar.members = size_of([plan])
    return RunBar(bar, plan, only=True)


def size_of(plans: Sequence[Plan]) -> tuple[int, int]:
    """The numbers of steps and of members, summed over all runs."""
    members = [plan.members or 1 for plan in plans]
    return sum(plan.steps * n for plan, n in zip(plans, members, strict=True)), sum(members)


def combined_health(runs: Sequence[Health]) -> Health:
    """The state of several runs: the mean number of iterations, the largest errors, all steps that did not converge."""
    errors = [h.casimir_error for h in runs if h.casimir_error is not None]
    mean = sum(h.iterations for h in runs) / len(runs)
    return Health(mean, max(h.residual for h in runs), max(errors, default=None), sum(h.unsolved for h in runs))
