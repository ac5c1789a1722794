"""XLA programs that call LAPACK in batches run one at a time: two of them at once wait for each other forever."""

import os
import threading
import time

import jax
import jax.numpy as jnp
import pytest
from processes import Process

import coadjoint as cj
from coadjoint.runtime.lapack_lock import run_exclusive, uses_lapack

# Steps in small chunks, with Casimirs (eigenvalues) beside them in the threads that write, and in the bar.
PROGRAM = """
import sys
import coadjoint as cj
from coadjoint.command import progress
from coadjoint.runtime import tuning

progress._SELDOM = 0.0
tuning._current = tuning.Tuning(first_chunk=4, largest_chunk=4, checkpoint_seconds=0.0, checkpoint_share=0)
system, W0 = cj.models.sine_euler(n=17)  # steps by LU, of as many matrices as larger ones would be
options = dict(t1=0.2, dt=0.01, key=0, integrator=cj.IsospectralMidpoint(solver="fixed_point"))
cj.ensemble(system, W0, members=20, out=sys.argv[1], progress=True, **options)
tuning._current = tuning.replace(tuning.current(), max_batch_size=32)  # two tiles in two threads
cj.ensemble(system, W0, members=64, save_every=20, **options)
print("done")
"""


@pytest.mark.parametrize("cores", ["all", "one"])
def test_a_stored_ensemble_of_matrices_ends(cores, tmp_path_factory):
    """Without the lock this hung in every run on two cores while steps were solved by LU; today it ends without."""
    if cores == "one" and not hasattr(os, "sched_setaffinity"):
        pytest.skip("this system cannot pin a process to a core")
    pin = "" if cores == "all" else "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
    cache = tmp_path_factory.getbasetemp() / "lapack-cache"
    environment = os.environ | {
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    store = tmp_path_factory.mktemp("lapack") / "run.zarr"
    done = Process(pin + PROGRAM, str(store), env=environment)
    out, err = done.communicate(timeout=240)
    ended = (done.returncode, out, err[-4000:])  # what went wrong, not every line of the bar
    assert ended[:2] == (0, "done\n"), ended
    assert cj.open(store)["casimirs"].shape == (20, 21, 4)


def test_nobody_else_computes_meanwhile():
    """Of programs that run alone, in four threads, each ends before the next begins."""
    seen: list[tuple[str, int]] = []

    def program(k):
        seen.append(("begins", k))
        time.sleep(0.01)
        seen.append(("ends", k))
        return k

    threads = [threading.Thread(target=run_exclusive, args=(program, k)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 8
    for first, second in zip(seen[::2], seen[1::2], strict=True):
        assert first == ("begins", second[1]) and second[0] == "ends"


@pytest.mark.parametrize(
    "fn, calls",
    [
        (lambda a: a @ a, False),
        (lambda a: jnp.linalg.solve(a, a), True),
        (jnp.linalg.eigvalsh, True),
        (lambda a: jax.lax.cond(a[0, 0] > 0, jnp.linalg.inv, lambda x: x, a), True),
        (lambda a: jax.lax.fori_loop(0, 3, lambda _, x: jnp.linalg.cholesky(x), a), True),
        (lambda a: jax.lax.fori_loop(0, 3, lambda _, x: jnp.sin(x), a), False),
        (jax.jit(lambda a: jnp.linalg.svd(a)[1]), True),
    ],
)
def test_calls_of_lapack_are_found(fn, calls):
    assert uses_lapack(fn, jnp.eye(3)) is calls
