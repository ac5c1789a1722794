"""XLA programs that call LAPACK in batches run one at a time: two of them at once wait for each other forever."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import coadjoint as cj
from coadjoint.running.exclusive import uses_lapack

# Steps in small chunks, with Casimirs (eigenvalues) beside them in the threads that write, and in the bar.
PROGRAM = """
import sys
import coadjoint as cj
from coadjoint.command import progress
from coadjoint.running import loop, plan
from coadjoint.store import sink

loop._FIRST_CHUNK = loop._LARGEST_CHUNK = 4
sink._SECONDS, sink._SHARE, progress._SELDOM = 0.0, 0, 0.0
system, W0 = cj.models.sine_euler(n=33)
options = dict(t1=0.2, dt=0.01, key=0, integrator=cj.IsospectralMidpoint(solver="fixed_point"))
cj.ensemble(system, W0, members=20, out=sys.argv[1], progress=True, **options)
plan.LARGEST_TILE = 32  # two tiles in two threads
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
        "PYTHONPATH": str(Path(cj.__file__).parents[1]),
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "PYTHONFAULTHANDLER": "1",
        "OPENBLAS_NUM_THREADS": "1",  # more of them make a busy machine ten times slower, which is another matter
    }
    store = tmp_path_factory.mktemp("lapack") / "run.zarr"
    command = [sys.executable, "-c", pin + PROGRAM, str(store)]
    done = subprocess.run(command, env=environment, timeout=240, capture_output=True, text=True)
    ended = (done.returncode, done.stdout, done.stderr[-4000:])  # what went wrong, not every line of the bar
    assert ended[:2] == (0, "done\n"), ended
    assert cj.open(store)["casimirs"].shape == (20, 21, 4)


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
