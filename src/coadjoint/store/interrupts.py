"""Signals that end a run: Ctrl-C, and SIGTERM if the program enables it. The run commits its results first."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any


class Stopped(KeyboardInterrupt):
    """A run was interrupted: its store is complete up to a checkpoint. The message has the command to resume."""

    def __init__(self, message: str, number: int = signal.SIGINT):
        super().__init__(message)
        self.number = number  # of the signal


@contextlib.contextmanager
def interrupts() -> Iterator["Stop"]:
    """An event that is set by Ctrl-C, and by SIGTERM inside `terminable`; a second signal interrupts at once."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {signal.SIGINT: signal.getsignal(signal.SIGINT)}
    if signal.getsignal(signal.SIGTERM) is _terminated:
        before[signal.SIGTERM] = _terminated

    def handle(number: int, frame: Any) -> None:
        stop.number = number
        stop.set()
        signal.signal(number, before[signal.Signals(number)])

    try:
        for number in before:
            signal.signal(number, handle)
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Stop(threading.Event):
    """Set when the run is to end, by the signal of this number."""

    number: int = signal.SIGINT


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM interrupts like Ctrl-C in this context, which is for programs and not for libraries."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _terminated)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _terminated(number: int, frame: Any) -> None:
    raise Stopped("stopped by SIGTERM; the store contains the run up to its last checkpoint.", number)
