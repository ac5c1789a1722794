"""Signals that end a run: Ctrl-C, and SIGTERM where the program decides so. The run commits what it has first."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any


class Stopped(KeyboardInterrupt):
    """A run that was interrupted: its store is whole, and the message tells how to resume."""

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
    """Inside, SIGTERM interrupts as Ctrl-C does. A program decides this for its whole process; a library does not."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _terminated)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _terminated(number: int, frame: Any) -> None:
    raise Stopped("stopped by SIGTERM; a store that was begun is as its last checkpoint has it.", number)
