"""Systems and results in other processes: pickled, copied, forked."""

import copy
import os
import pickle
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from processes import Process

import coadjoint as cj

MODELS = {
    "heavy top": cj.models.heavy_top,
    "sine-Euler": cj.models.sine_euler,
    "spin chain": lambda: cj.models.spin_chain(3),
    "Maxwell–Bloch": cj.models.maxwell_bloch,
}


@pytest.mark.parametrize("name", MODELS)
def test_systems(name):
    """The same program comes back, so that nothing is compiled anew."""
    system, _ = MODELS[name]()
    for other in (pickle.loads(pickle.dumps(system)), copy.deepcopy(system)):
        assert jax.tree.structure(other) == jax.tree.structure(system)
        assert other.h.code is system.h.code
        for a, b in zip(jax.tree.leaves(other), jax.tree.leaves(system), strict=True):
            np.testing.assert_array_equal(a, b)


def test_loops_and_branches():
    """Programs inside of operations, numbers of either kind, captured arrays."""
    a = np.array([0.3, 0.2, 0.1])

    def h(mu):
        x = jax.lax.fori_loop(0, 3, lambda i, c: c * jnp.sin(mu[0]), 1.0)
        return x + jax.lax.cond(mu[1] > 0, lambda m: m @ a, lambda m: jnp.linalg.norm(m), mu)

    system = cj.System(cj.SO3(), h, [lambda mu: mu[0] * mu[1]])
    other = pickle.loads(pickle.dumps(system))
    mu = jnp.array([0.4, -0.5, 0.6])
    for sign in (1.0, -1.0):  # both branches
        np.testing.assert_allclose(other.energy(sign * mu), system.energy(sign * mu), rtol=1e-15)
        np.testing.assert_allclose(other.drift(sign * mu), system.drift(sign * mu), rtol=1e-15)


def test_in_another_process(tmp_path):
    """Loaded where nothing was traced before."""
    system, mu0 = cj.models.rigid_body()
    sol = cj.solve(system, mu0, t1=0.2, dt=0.1, key=0)
    path = tmp_path / "system.pickle"
    path.write_bytes(pickle.dumps((system, sol)))
    code = f"""
        import pickle, numpy as np, coadjoint as cj
        system, sol = pickle.load(open({str(path)!r}, "rb"))
        again = cj.solve(system, sol.mu[0], t1=0.2, dt=0.1, key=0)
        assert np.array_equal(again.mu, sol.mu) and sol.stats.backend == "native"
    """
    there = Process(textwrap.dedent(code))
    _, said = there.communicate(timeout=100)
    assert there.returncode == 0, said


def test_errors():
    system = cj.System(cj.SO3(), lambda mu: jnp.exp(20.0 * mu[0]) + mu[1] ** 2)
    with pytest.raises(cj.UnsolvedStepError) as info:
        cj.solve(system, [0.9, 0.4, 0.1], t1=4.0, dt=2.0, integrator=cj.TMK(max_steps=2, fallbacks=False))
    again = pickle.loads(pickle.dumps(info.value))
    assert str(again) == str(info.value)
    np.testing.assert_array_equal(again.solution.mu, info.value.solution.mu)


def test_what_cannot_be_pickled_says_so():
    @jax.custom_jvp
    def f(x):
        return x * x

    f.defjvp(lambda p, t: (f(*p), 2 * p[0] * t[0]))
    system = cj.System(cj.SO3(), lambda mu: f(mu[0]))
    with pytest.raises(TypeError, match=r"custom_jvp_call.* cannot be pickled: make the system in the other process"):
        pickle.dumps(system)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_says_so():
    """A child of a process with a system raises at once; before the first system."""
    code = """
        import os, sys, coadjoint as cj
        def child():
            try:
                cj.models.rigid_body()
            except RuntimeError as error:
                os._exit(7 if "spawn" in str(error) else 1)
            os._exit(3)
        def fork():
            pid = os.fork()
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) if pid else child()
        cj.models.rigid_body()
        sys.exit(fork())
    """
    assert Process(textwrap.dedent(code)).wait(timeout=100) == 7


def test_by_cloudpickle():
    """As joblib and Dask do: a function that calls `solve`, with a system made of lambdas in it, and what it gives."""
    cloudpickle = pytest.importorskip("cloudpickle", reason="it comes with the extra [cluster]")
    inertia = jnp.array([1.0, 2.0, 3.0])
    system = cj.System(cj.SO3(), lambda m: 0.5 * m @ (m / inertia), [cj.salt(0.1 * np.eye(3))])
    run = lambda key: cj.solve(system, np.array([0.3, 0.4, 0.5]), t1=1.0, dt=0.1, key=key)
    here, there = run(3), cloudpickle.loads(cloudpickle.dumps(run))(3)
    np.testing.assert_array_equal(cloudpickle.loads(cloudpickle.dumps(there)).mu, here.mu)
