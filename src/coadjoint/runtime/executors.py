"""Where tiles run: in threads of this process. Another place to run them, such as a cluster, is another `Place`."""

import itertools
import os
from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Protocol

import jax

if TYPE_CHECKING:
    from .loop import Done, Job
    from .plan import Plan


class ClusterError(RuntimeError):
    """A cluster that cannot be used, or is lost; the message says why, and what to do."""


class Place(Protocol):
    """Runs tiles."""

    def __call__(self, jobs: "Sequence[Job]", tiles: Sequence[tuple[int, range]]) -> "Generator[list[Done]]":
        """What became of all tiles, given as (job, numbers), in their order; what stands in one range runs as one."""
        ...


def threads(jobs: "Sequence[Job]", tiles: Sequence[tuple[int, range]]) -> "Generator[list[Done]]":
    """A few tiles at a time, one a core or device: what is compiled computes outside of Python's lock."""

    def work(tile: tuple[int, range]) -> "list[Done]":
        job, numbers = tile
        return jobs[job].tiles(numbers)

    workers = min(len(tiles), jobs[0].program.workers or max(len(jax.local_devices()), cores()))
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


def place_for(on: Any, plans: "Sequence[Plan]", programs: Sequence[Any], out: Any, progress: Any) -> Any:
    """The place that `on=` names, as a context: None for threads, or a cluster, checked for these plans."""
    if on is None:
        return nullcontext()
    from ..clusters.connecting import connected

    return connected(on, plans, programs, out, progress)


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
