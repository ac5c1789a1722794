"""The watchdog: a run that makes no progress for minutes says where it stands, on standard error.

Runs say in which room they are and at which step, which costs them nothing to speak of. One thread for all of them
looks now and then, and sleeps while there is none. It says what it sees, and does nothing about it.
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
_SECONDS = 120.0  # without progress, unless the variable says otherwise
_OFTEN = 0.5  # seconds between two looks
_OURS = (str(Path(__file__).parents[1]), str(Path(stepcompiler.__file__).parent))
_COMPILERS = {
    os.path.join("jax", "_src", "compiler.py"): "XLA is compiling",
    "llvmlite": "LLVM is compiling native code",
    os.path.join("jax", "_src", "interpreters", "mlir.py"): "JAX is lowering a program",
    os.path.join("jax", "_src", "interpreters", "partial_eval.py"): "JAX is tracing a program",
    os.path.join("stepcompiler", "lowering", "evaluator.py"): "native code is being written",
}


class Position(NamedTuple):
    """Where a tile stands."""

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
        self.since, self.next = 0.0, self.limit  # of the oldest place: since when, and when to speak of it
        self.seen, self.used = 0.0, 0.0  # when it was first seen, and what processor time was used before

    def __enter__(self) -> "MonitoredRun":
        if self.limit:
            _runs[id(self)] = self
            if not _awake.is_set():
                _wake()
        return self

    def __exit__(self, *exc: Any) -> None:
        _runs.pop(id(self), None)

    def set_phase(self, batch: int | None, phase: str, step: int = 0) -> None:
        """A tile is in this room now, before this step."""
        self.places[batch] = Position(batch, phase, step, time.monotonic(), threading.get_ident())

    def finish(self, batch: int | None) -> None:
        """The tile is done."""
        self.places.pop(batch, None)

    def poll(self) -> None:
        """Speak if it is time to."""
        places = list(self.places.values())
        if not places:
            return
        oldest = min(places, key=lambda place: place.since)
        now = time.monotonic()
        if oldest.since != self.since:
            self.since, self.next = oldest.since, self.limit
            self.seen, self.used = now, time.process_time()
        if now - oldest.since >= self.next:
            self.next *= 2
            self.say(self._words(oldest, now - oldest.since))

    def _words(self, place: Position, stands: float) -> str:
        plan, frame = self.plan, sys._current_frames().get(place.thread)
        began = time.strftime("%H:%M:%S", time.localtime(time.time() - stands))
        where = (
            "the run is being prepared"
            if place.batch is None
            else f"batch {place.batch + 1} of {plan.n_batches} stands"
        )
        if place.batch is not None:
            where += f" before step {place.step} of {plan.steps} (t = {plan.t0 + place.step * plan.dt:g})"
        where += f" since {began}, in the phase {place.phase}"
        compiling = _compiling(frame)
        if compiling is not None:
            return f"{compiling} for {stands:.3g} s now: {where}. That may take long, and the run goes on after it."
        meanwhile, used = time.monotonic() - self.seen, time.process_time() - self.used
        waits = "it waits for something" if used < 0.05 * meanwhile else "it computes, so its steps may be slow"
        return (
            f"no progress for {stands:.3g} s: {where}{_line(frame)}. The process used {used:.2g} s of processor time "
            f"in the last {meanwhile:.3g} s: {waits}. {VARIABLE} sets after how many seconds this is said, 0 for never."
        )


def log(words: str) -> None:
    """A word on standard error."""
    print(f"coadjoint: {words}", file=sys.stderr, flush=True)


def _compiling(frame: FrameType | None) -> str | None:
    """What a thread compiles, judged by the files it is in."""
    while frame is not None:
        for part, words in _COMPILERS.items():
            if part in frame.f_code.co_filename:
                return words
        frame = frame.f_back
    return None


def _line(frame: FrameType | None) -> str:
    """The innermost line of ours that a thread is in."""
    while frame is not None and not frame.f_code.co_filename.startswith(_OURS):
        frame = frame.f_back
    if frame is None:
        return ""
    return f" ({Path(frame.f_code.co_filename).name}:{frame.f_lineno}, {frame.f_code.co_name})"


_runs: dict[int, MonitoredRun] = {}
_awake = threading.Event()
_first = threading.Lock()  # held for ever by who started the thread


def _wake() -> None:
    """Let the thread look; the first time, start it."""
    _awake.set()
    if _first.acquire(blocking=False):
        threading.Thread(target=_watch, name="coadjoint-watchdog", daemon=True).start()


def _watch() -> None:
    """Look at all runs now and then, for ever; sleep while there are none."""
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
    """After how many seconds without progress a run says so; 0: never."""
    text = os.environ.get(VARIABLE)
    if text is None:
        return _SECONDS
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not value >= 0:
        raise ValueError(f"{VARIABLE} must be a number of seconds, or 0 for no word, not {text!r}.")
    return value
