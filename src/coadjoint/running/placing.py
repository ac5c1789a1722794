"""Where tiles run: in threads of this process. Another place to run them, such as a cluster, is another `Place`."""

import itertools
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import jax


class Place(Protocol):
    """Runs tiles."""

    def __call__(self, work: Callable[[range], Any], tiles: Sequence[range]) -> Iterator[Any]:
        """The results of `work` on all tiles, in their order; what stands in one range runs as one."""
        ...


def threads(work: Callable[[range], Any], tiles: Sequence[range], workers: int | None = None) -> Iterator[Any]:
    """A few tiles at a time, one a core or device: what is compiled computes outside of Python's lock."""
    workers = min(len(tiles), workers or max(len(jax.local_devices()), cores()))
    if workers == 1:
        yield from map(work, tiles)
        return
    with ThreadPoolExecutor(workers) as pool:
        waiting: deque = deque()
        rest = iter(tiles)
        try:
            for tile in itertools.islice(rest, workers + 1):
                waiting.append(pool.submit(work, tile))
            while waiting:
                yield waiting.popleft().result()
                for tile in itertools.islice(rest, 1):
                    waiting.append(pool.submit(work, tile))
        finally:
            for future in waiting:
                future.cancel()


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
