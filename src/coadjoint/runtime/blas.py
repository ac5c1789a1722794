"""Threads of BLAS, which stand in the way of ours and of XLA's.

jaxlib calls LAPACK in the OpenBLAS of SciPy, from threads of XLA's pool, one matrix a thread. OpenBLAS then
divides each small matrix among threads of its own, which wait for each other longer than they compute: a step with
n = 65 takes ten to thirty times as long on a busy machine. So small matrices get one thread while a program runs.
"""

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

_NAMES = [f"{a}openblas_{{}}_num_threads{b}" for a in ("scipy_", "") for b in ("", "64_")]


class _Library(NamedTuple):
    get: Any
    set: Any


@contextmanager
def one_blas_thread(wanted: bool = True) -> Iterator[None]:
    """Inside, BLAS computes in the thread that calls it; afterwards it has the threads that it had before."""
    libraries = _libraries("scipy.linalg.cython_lapack" in sys.modules) if wanted else ()
    before = [library.get() for library in libraries]
    for library in libraries:
        library.set(1)
    try:
        yield
    finally:
        for library, threads in zip(libraries, before, strict=True):
            library.set(threads)


@lru_cache(maxsize=2)
def _libraries(scipy: bool) -> tuple[_Library, ...]:
    """What sets the threads of each OpenBLAS in this process, where the system tells which there are."""
    if not scipy or not os.path.exists("/proc/self/maps"):
        return ()
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        paths = {line.split(maxsplit=5)[-1].strip() for line in file if "openblas" in line}
    libraries = []
    for path in sorted(filter(os.path.isfile, paths)):
        library = ctypes.CDLL(path)
        name = next((name for name in _NAMES if hasattr(library, name.format("set"))), None)
        if name is not None:
            libraries.append(_Library(getattr(library, name.format("get")), getattr(library, name.format("set"))))
    return tuple(libraries)
