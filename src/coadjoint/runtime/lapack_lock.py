"""A lock for XLA programs that deadlock if two of them run at once.

XLA's CPU backend divides the matrices of a batched LAPACK call (LU, eigenvalues, …) among the threads of its only
pool, and waits for them on such a thread. Two such programs can fill the pool with waiting threads and never finish.
Therefore a program that calls LAPACK excludes the others.
"""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any

import jax

from stepcompiler.jaxprs.interning import primitives

_LAPACK = {
    "cholesky", "eig", "eigh", "geqp3", "geqrf", "hessenberg", "householder_product", "lu", "ormqr", "qr", "schur",
    "svd", "symmetric_product", "triangular_solve", "tridiagonal", "tridiagonal_solve",
}  # fmt: skip
LARGE = 512  # size of matrices from which threads of BLAS help
_running = threading.RLock()


def uses_lapack(program: Callable, *args: Any) -> bool:
    """Return whether a program of such arguments (arrays or shapes) calls LAPACK."""
    return not _LAPACK.isdisjoint(primitives(jax.make_jaxpr(program)(*args).jaxpr))


@contextmanager
def exclusive_xla(needed: bool = True, small: bool = True) -> Iterator[None]:
    """Exclude other threads, if needed. The body must wait for its results.

    `small`: matrices are too small for threads of BLAS to help.
    """
    if not needed:
        yield
        return
    with _running, _one_blas_thread() if small else nullcontext():
        yield


def run_exclusive(program: Callable, *args: Any) -> Any:
    """Return program(*args), computed completely while no other such program runs."""
    with exclusive_xla():
        return jax.block_until_ready(program(*args))


def _one_blas_thread() -> AbstractContextManager[Any]:
    """Limit BLAS to the calling thread, and restore its threads afterwards.

    jaxlib calls SciPy's LAPACK from the threads of XLA, one matrix per thread. OpenBLAS would divide each small matrix
    among further threads. On a busy machine a step with n = 65 then takes ten to thirty times as long.
    """
    if "scipy.linalg.cython_lapack" not in sys.modules:
        return nullcontext()
    return blas_libraries().limit(limits=1, user_api="blas")


@cache
def blas_libraries() -> Any:
    """Return the threads of the libraries of this process; call it after JAX has loaded LAPACK."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
