"""Shared by the unit tests: a counter of what XLA compiles."""

from contextlib import contextmanager

import jax.monitoring
import pytest

_EVENT = "/jax/core/compile/backend_compile_duration"
_counts = [0]


def _listen(event, seconds, **_):
    if event == _EVENT:
        _counts[0] += 1


jax.monitoring.register_event_duration_secs_listener(_listen)


class Counter:
    n = 0


@pytest.fixture
def compilations():
    """`with compilations() as count: …` and then `count.n` programs were compiled."""

    @contextmanager
    def counting():
        counter, before = Counter(), _counts[0]
        yield counter
        counter.n = _counts[0] - before

    return counting
