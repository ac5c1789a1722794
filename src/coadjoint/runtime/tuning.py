"""Sizes and thresholds of the runtime. They affect speed and memory, and users do not set them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from ..drivers import BLOCK


@dataclass(frozen=True)
class Tuning:
    """The sizes and thresholds of the runtime, with the values that measurements suggest."""

    max_batch_size: int = 1024  # members in a batch
    first_chunk: int = 8 * BLOCK  # steps
    largest_chunk: int = 2**26  # steps
    chunk_seconds: float = 0.5  # per chunk: the interval at which progress is shown and Ctrl-C takes effect
    native_operations: int = 20_000  # on single numbers in a step; beyond, compiling native code takes too long
    accumulator_words: int = 256  # of a reducer in native code; beyond, XLA computes it
    short_run_steps: int = 256  # of matrices, up to which several members run in one call of XLA
    batches_per_launch: int = 16  # of short batches on a CPU
    lattice_copies: int = 128  # from which sweeps over sites are faster than XLA
    sites_per_thread: int = 2**14  # that are worth a thread
    gpu_members: int = 2**12  # from which a GPU pays
    gpu_seconds: float = 2.0  # of work on a CPU, from which a GPU pays: kernels take as long to compile and load
    gpu_launch_members: int = 2**18  # per launch; one launch runs while the rows of another are saved
    checkpoint_seconds: float = 1.0  # the least time between checkpoints, …
    checkpoint_share: float = 40  # … also in units of the time that one takes
    buffer_bytes: int = 2**25  # of rows that wait to be written
    saved_times_per_file: int = 2**16
    cluster_reply_seconds: float = 8.0  # for the first answer of a cluster


_current = Tuning()


def current() -> Tuning:
    """Return the values in use."""
    return _current


@contextmanager
def tuned(**changes: Any) -> Iterator[Tuning]:
    """Use other values in this process, also in its other threads, until the context ends. For tests."""
    global _current
    before, _current = _current, replace(_current, **changes)
    try:
        yield _current
    finally:
        _current = before
