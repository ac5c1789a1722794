"""Executors run batches: here, in threads of this process. A cluster is another `Executor`."""

import itertools
import os
from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Protocol

import jax

if TYPE_CHECKING:
    from .loop import BatchResult, RunContext
    from .plan import Plan


class ClusterError(RuntimeError):
    """A cluster that cannot be used, or is lost; the message contains the reason and the fix."""


class Executor(Protocol):
    """Runs batches."""

    def __call__(
        self, jobs: "Sequence[RunContext]", batches: Sequence[tuple[int, range]]
    ) -> "Generator[list[BatchResult]]":
        """Yield the results of batches (job, range of numbers) in order. A range runs in one launch."""
        ...


def threads(jobs: "Sequence[RunContext]", batches: Sequence[tuple[int, range]]) -> "Generator[list[BatchResult]]":
    """Run some batches at a time, one per core or device: compiled code runs without Python's global lock."""

    def work(batch: tuple[int, range]) -> "list[BatchResult]":
        job, numbers = batch
        return jobs[job].batches(numbers)

    workers = min(len(batches), jobs[0].program.max_concurrency or max(len(jax.local_devices()), cores()))
    if workers == 1:
        yield from map(work, batches)
        return
    with ThreadPoolExecutor(workers) as pool:
        waiting: deque = deque()
        rest = iter(batches)
        try:
            for batch in itertools.islice(rest, workers + 1):
                waiting.append(pool.submit(work, batch))
            while waiting:
                yield waiting.popleft().result()
                for batch in itertools.islice(rest, 1):
                    waiting.append(pool.submit(work, batch))
        finally:
            for future in waiting:
                future.cancel()


def executor_for(on: Any, plans: "Sequence[Plan]", programs: Sequence[Any], out: Any, progress: Any) -> Any:
    """Return the executor of `on=` as a context: None for threads, or a cluster that can run these plans."""
    if on is None:
        return nullcontext()
    from ..clusters.connect import connected

    return connected(on, plans, programs, out, progress)


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
