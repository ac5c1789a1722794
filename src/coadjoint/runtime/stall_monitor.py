"""The watchdog: a run that makes no progress for minutes reports its step and phase on standard error.

Runs record their phase and step, at negligible cost. One thread checks all runs at intervals, and sleeps while
there is none. It only reports.
"""

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import stepcompiler

from .plan import Plan

VARIABLE = "COADJOINT_WATCHDOG"
_SECONDS = 120.0  # without progress, unless the variable sets another limit
_OFTEN = 0.5  # seconds between checks
_OURS = (str(Path(__file__).parents[1]), str(Path(stepcompiler.__file__).parent))
_COMPILERS = {
    os.path.join("jax", "_src", "compiler.py"): "XLA is compiling",
    "llvmlite": "LLVM is compiling native code",
    os.path.join("jax", "_src", "interpreters", "mlir.py"): "JAX is lowering a program",
    os.path.join("jax", "_src", "interpreters", "partial_eval.py"): "JAX is tracing a program",
    os.path.join("stepcompiler", "lowering", "evaluator.py"): "native code is being written",
}


class Position(NamedTuple):
    """The phase and step of a batch."""

    batch: int | None  # None: before the first
    phase: str
    step: int
    since: float
    thread: int


class MonitoredRun:
    """A run that is under way; used as a context around it."""

    def __init__(self, plan: Plan, say: Callable[[str], None] | None = None):
        self.plan, self.limit, self.say = plan, _seconds(), say or log
        self.places: dict[int | None, Position] = {}
        self.since, self.next = 0.0, self.limit  # since when the oldest position is unchanged; the next report
        self.seen, self.used = 0.0, 0.0  # the first check of this position, and the processor time at that check
        self.compiled = 0.0  # the last check at which a compiler was running

    def __enter__(self) -> "MonitoredRun":
        if self.limit:
            _runs[id(self)] = self
            if not _awake.is_set():
                _wake()
        return self

    def __exit__(self, *exc: Any) -> None:
        _runs.pop(id(self), None)

    def set_phase(self, batch: int | None, phase: str, step: int = 0) -> None:
        """Record that a batch is in a phase, before a step."""
        self.places[batch] = Position(batch, phase, step, time.monotonic(), threading.get_ident())

    def finish(self, batch: int | None) -> None:
        """Record that a batch is complete."""
        self.places.pop(batch, None)

    def poll(self) -> None:
        """Report if the time has come."""
        places = list(self.places.values())
        if not places:
            return
        oldest = min(places, key=lambda place: place.since)
        now = time.monotonic()
        frame = sys._current_frames().get(oldest.thread)
        compiling = _compiling(frame)
        if oldest.since != self.since or (compiling is None and self.compiled > self.seen):  # steps begin after it
            self.since, self.next = oldest.since, self.limit
            self.seen, self.used = now, time.process_time()
        if compiling is not None:
            self.compiled = now
        begun = oldest.since if compiling is not None else max(oldest.since, self.compiled)
        if now - begun >= self.next:
            self.next *= 2
            self.say(self._words(oldest, now - begun, frame, compiling))

    def _words(self, place: Position, stands: float, frame: FrameType | None, compiling: str | None) -> str:
        plan = self.plan
        began = time.strftime("%H:%M:%S", time.localtime(time.time() - stands))
        where = (
            "the run is being prepared" if place.batch is None else f"batch {place.batch + 1} of {plan.n_batches} is"
        )
        if place.batch is not None:
            where += f" before step {place.step} of {plan.steps} (t = {plan.t0 + place.step * plan.dt:g})"
        where += f" since {began}, in the phase {place.phase}"
        if compiling is not None:
            return f"{compiling} for {stands:.3g} s now: {where}. This may take minutes. Then the run continues."
        meanwhile, used = time.monotonic() - self.seen, time.process_time() - self.used
        waits = "it waits" if used < 0.05 * meanwhile else "it computes, so its steps may be slow"
        return (
            f"no progress for {stands:.3g} s: {where}{_line(frame)}. The process used {used:.2g} s of processor time "
            f"in the last {meanwhile:.3g} s: {waits}. {VARIABLE} sets the seconds before this message; 0 disables it."
        )


def log(words: str) -> None:
    """Print a message on standard error."""
    print(f"coadjoint: {words}", file=sys.stderr, flush=True)


def _compiling(frame: FrameType | None) -> str | None:
    """Return which compiler a thread is in, from the files of its frames."""
    while frame is not None:
        for part, words in _COMPILERS.items():
            if part in frame.f_code.co_filename:
                return words
        frame = frame.f_back
    return None


def _line(frame: FrameType | None) -> str:
    """Return the innermost line of coadjoint that a thread is in."""
    while frame is not None and not frame.f_code.co_filename.startswith(_OURS):
        frame = frame.f_back
    if frame is None:
        return ""
    return f" ({Path(frame.f_code.co_filename).name}:{frame.f_lineno}, {frame.f_code.co_name})"


_runs: dict[int, MonitoredRun] = {}
_awake = threading.Event()
_first = threading.Lock()  # acquired once, by the caller that starts the thread


def _wake() -> None:
    """Wake the thread; at the first call, start it."""
    _awake.set()
    if _first.acquire(blocking=False):
        threading.Thread(target=_watch, name="coadjoint-watchdog", daemon=True).start()


def _watch() -> None:
    """Check all runs at intervals; sleep while there are none."""
    while True:
        _awake.wait()
        if not _runs:
            _awake.clear()
            if _runs:  # one began meanwhile
                _awake.set()
        for run in list(_runs.values()):
            run.poll()
        time.sleep(min([_OFTEN, *(run.limit / 4 for run in list(_runs.values()))]))


def _seconds() -> float:
    """Return the seconds without progress after which a run is reported; 0: never."""
    text = os.environ.get(VARIABLE)
    if text is None:
        return _SECONDS
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not value >= 0:
        raise ValueError(f"{VARIABLE} must be a number of seconds, or 0 for no message, not {text!r}.")
    return value
