"""One XLA program at a time where two at once may wait for each other forever.

XLA's CPU backend hands the matrices of a batched LAPACK call (LU, eigenvalues, …) to the threads of its one pool, and
waits for them on such a thread. Two programs that do so at once can fill the pool with waiting threads: then neither
goes on. So a program that calls LAPACK runs alone.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax

from stepcompiler.jaxprs.interning import primitives

from .blas import one_blas_thread

_LAPACK = {
    "cholesky", "eig", "eigh", "geqp3", "geqrf", "hessenberg", "householder_product", "lu", "ormqr", "qr", "schur",
    "svd", "symmetric_product", "triangular_solve", "tridiagonal", "tridiagonal_solve",
}  # fmt: skip
LARGE = 512  # size of matrices from which threads of BLAS help
_running = threading.RLock()


def uses_lapack(program: Callable, *args: Any) -> bool:
    """Whether a program of such arguments (arrays or shapes) has operations that LAPACK does."""
    return not _LAPACK.isdisjoint(primitives(jax.make_jaxpr(program)(*args).jaxpr))


@contextmanager
def exclusive_xla(needed: bool = True, small: bool = True) -> Iterator[None]:
    """If needed, nobody else is inside meanwhile. Results must be waited for before leaving.

    `small`: matrices are not so large that threads of BLAS would help.
    """
    if not needed:
        yield
        return
    with _running, one_blas_thread(small):
        yield


def run_exclusive(program: Callable, *args: Any) -> Any:
    """program(*args), computed to its end, while nobody else computes here."""
    with exclusive_xla():
        return jax.block_until_ready(program(*args))
