"""A progress bar for long runs: steps a second, time left, iterations a step, worst residual."""

import sys
import threading
import time
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from .chunk import Tally


class Bar:
    """A Rich bar in a terminal; elsewhere a plain line every ten seconds, and one at the end."""

    def __init__(self, steps: int, members: int = 1):
        self.total, self.done = steps * members, 0
        self.lock = threading.Lock()
        self.console = Console(file=sys.stderr)
        self.began = self.last = time.perf_counter()
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=self.console,
            disable=not self.console.is_terminal,
        )

    def __enter__(self) -> "Bar":
        self.progress.start()
        self.task = self.progress.add_task("solving", total=self.total, note="")
        return self

    def __exit__(self, *exc: Any) -> None:
        self.progress.stop()

    def update(self, done: int, tally: Tally) -> None:
        """`done` member-steps are done; the tally is that of the members in hand."""
        with self.lock:
            self.done = done
            self._show(tally)

    def add(self, more: int, tally: Tally) -> None:
        """So many more member-steps are done, by one of several threads."""
        with self.lock:
            self.done += more
            self._show(tally)

    def _show(self, tally: Tally) -> None:
        now = time.perf_counter()
        rate = self.done / max(now - self.began, 1e-9)
        residual, unsolved = float(np.max(tally.residual)), int(np.sum(tally.unsolved))
        note = f"{rate:.3g} steps/s, worst residual {residual:.0e}" + (f", {unsolved} unsolved" if unsolved else "")
        self.progress.update(self.task, completed=self.done, note=note)
        if not self.console.is_terminal and (now - self.last > 10 or self.done >= self.total):
            self.last = now
            print(f"solving: {self.done}/{self.total} steps, {note}", file=sys.stderr, flush=True)
