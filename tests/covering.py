"""All pairs of features in few cases, chosen greedily and always alike; and a time limit for what may hang."""

import faulthandler
import itertools
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

LONGEST = 600.0  # seconds that a process goes on for after something in it hung


def covering(
    features: Mapping[str, Sequence], allowed: Callable[[dict], bool], given: Iterable[dict] = ()
) -> list[dict]:
    """Cases such that each pair of values of two features that some allowed case has is in one of them.

    `given` cases are there already and come first. Greedy: each new case has the most pairs that were missing, the
    first such in the order of the table.
    """
    names, sizes = list(features), [len(values) for values in features.values()]
    places = [range(size) for size in sizes]
    every = [
        at for at in itertools.product(*places) if allowed({k: features[k][i] for k, i in zip(names, at, strict=True)})
    ]
    numbers, first = np.array(every), 0
    ids = []  # of the pairs of each case, one column for two features
    for a, b in itertools.combinations(range(len(names)), 2):
        ids.append(first + numbers[:, a] * sizes[b] + numbers[:, b])
        first += sizes[a] * sizes[b]
    ids = np.stack(ids, axis=1)
    missing = np.zeros(first, bool)
    missing[ids] = True
    cases = list(given)
    for case in cases:
        at = [features[k].index(case[k]) for k in names]
        missing[ids[np.flatnonzero((numbers == at).all(axis=1))]] = False
    while missing.any():
        best = int(np.argmax(missing[ids].sum(axis=1)))
        missing[ids[best]] = False
        cases.append({k: features[k][i] for k, i in zip(names, every[best], strict=True)})
    return cases


def pairs_of(case: dict) -> list[tuple]:
    """The pairs of values that a case has, with the names of their features."""
    return list(itertools.combinations(case.items(), 2))


_hung: list[str] = []


def within(seconds: float, work: Callable[[], Any], name: str) -> Any:
    """work(), or a failure with the stacks of all threads when it takes longer.

    What hangs may stand in compiled code, which no signal reaches: it is left behind in its thread. Nothing that comes
    after it in the same process can be trusted to end, so it fails at once, and the process is ended after a while.
    """
    if _hung:
        pytest.fail(f"not run: {_hung[0]} hung in this process.")
    done: list[Any] = []

    def target() -> None:
        try:
            done.append((work(), None))
        except BaseException as error:
            done.append((None, error))

    thread = threading.Thread(target=target, name=name, daemon=True)
    thread.start()
    thread.join(seconds)
    if not done:
        _hung.append(name)
        faulthandler.dump_traceback_later(LONGEST, exit=True)
        with tempfile.TemporaryFile("w+") as file:
            faulthandler.dump_traceback(file, all_threads=True)
            file.seek(0)
            pytest.fail(f"{name} did not end within {seconds:g} s; the threads stand at\n{file.read()}")
    value, error = done[0]
    if error is not None:
        raise error
    return value
