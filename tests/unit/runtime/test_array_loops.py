"""Steps of large arrays as native loops: point vortices whose energy is a sum over all pairs."""

import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tuned import tune

import coadjoint as cj

N = 20
OPTIONS = {"t1": 0.08, "dt": 0.02}


def vortices(n=N, write="products", seed=0):
    """Vortices on a sphere: h = −Σ Γᵢ Γⱼ log(1 − xᵢ·xⱼ) / 4π over pairs, written in one of several ways."""
    rng = np.random.default_rng(seed)
    strength = jnp.asarray(rng.uniform(0.5, 1.5, n) * rng.choice([-1, 1], n)) / n
    i, j = jnp.triu_indices(n, 1)
    products = jnp.outer(strength, strength)
    energies = {
        "products": lambda x: jnp.sum(jnp.triu(products * jnp.log(1.0 + jnp.eye(n) - x @ x.T), 1)),
        "listed": lambda x: jnp.sum(products[i, j] * jnp.log(1.0 - jnp.sum(x[i] * x[j], axis=1))),
        "distances": lambda x: 0.5 * jnp.sum(
            products * jnp.log(jnp.where(jnp.eye(n, dtype=bool), 1.0, jnp.sum((x[:, None] - x[None]) ** 2, -1) / 2))
        ),
    }  # fmt: skip
    energy = energies[write]
    system = cj.System(cj.SO3() ** n, lambda mu: -energy(mu.reshape(-1, 3)) / (4 * jnp.pi))
    x = rng.normal(size=(n, 3))
    return system, (x / np.linalg.norm(x, axis=1, keepdims=True)).ravel()


@pytest.fixture
def loops(monkeypatch):
    """Steps are too large to be written number by number."""
    tune(monkeypatch, native_operations=10)


@pytest.mark.parametrize(
    ("write", "method"),
    [("products", cj.RKMK("rk4")), ("listed", cj.TMK()), ("distances", cj.HeunMK())],
    ids=["rk4", "TMK", "HeunMK"],
)
def test_all_pairs_run_natively_and_agree_with_xla(loops, write, method):
    system, start = vortices(write=write)
    native, xla = (cj.solve(system, start, integrator=method, backend=b, **OPTIONS) for b in ("auto", "xla"))
    assert native.stats.backend == "native"
    np.testing.assert_allclose(native.mu, xla.mu, rtol=0, atol=1e-13)
    assert abs(native.stats.iterations - xla.stats.iterations) < 1.0
    assert system.algebra.orbit_error(native.mu[-1], native.mu[0]) < 5e-15


def test_members_chunks_and_threads_change_no_bit(loops, tmp_path):
    system, start = vortices()
    bath = cj.heat_bath(system, temperature=0.1, friction=0.1)
    options = OPTIONS | {"key": 3, "integrator": cj.HeunMK()}
    many, few = (cj.ensemble(bath, start, members=members, **options) for members in (9, 2))
    assert many.stats.backend == "native"
    assert many.mu[:2].tobytes() == few.mu.tobytes()
    alone = cj.solve(bath, start, **options)
    cj.solve(bath, start, out=tmp_path / "run.zarr", **options | {"t1": 0.04})
    cj.solve(bath, start, out=tmp_path / "run.zarr", resume=True, **options)
    np.testing.assert_array_equal(cj.open(tmp_path / "run.zarr").mu, alone.mu)


def test_what_loops_do_not_support_goes_by_xla_with_the_reason(loops):
    system = cj.System(cj.SO3() ** N, lambda mu: jnp.sum(jnp.sort(mu) * jnp.arange(3 * N)))
    sol = cj.solve(system, vortices()[1], integrator=cj.HeunMK(), **OPTIONS)
    assert sol.stats.backend == "xla"
    assert "`sort`, of arrays of this size" in sol.stats.reason


@pytest.mark.slow
def test_a_hundred_vortices_cost_less_than_with_numpy():
    """Beside NumPy in one process, in processor time; about 40 µs against 400 µs per step on one core."""
    system, start = vortices(100)
    run = lambda: cj.solve(system, start, t1=40.0, dt=0.02, save_every=2000, integrator=cj.RKMK("rk4"))
    assert run().stats.backend == "native"
    begin = time.process_time()
    run()
    native = (time.process_time() - begin) / 2000
    x, strength = start.reshape(-1, 3), np.ones((100, 100))
    begin = time.process_time()
    for _ in range(200):
        d = 1.0 - x @ x.T
        np.fill_diagonal(d, np.inf)
        np.cross(x, (strength / d) @ x)
    numpy = 4 * (time.process_time() - begin) / 200
    assert native < 60e-6
    assert native < numpy


@pytest.mark.slow
@pytest.mark.parametrize(("write", "method"), [("products", cj.RKMK("rk4")), ("distances", cj.HeunMK())])
def test_gradients_are_native_and_agree_with_xla(loops, write, method):
    """With respect to the start, params and increments; beside a scan of XLA."""
    system, start = vortices(8, write)

    def number(x, adjoint):
        here = cj.System(
            system.algebra, lambda mu, p: p * system.h(mu), [cj.salt(np.linspace(0, 0.1, 24))], params=x[1]
        )
        run = cj.solve(
            here, x[0], dt=0.02, steps=6, save_every=2, driver=cj.Increments(x[2]), integrator=method, adjoint=adjoint
        )
        return jnp.sum(jnp.sin(run.mu))

    x = jnp.asarray(start), jnp.asarray(1.2), jnp.full((6, 1), 0.1)
    native, xla = (jax.jit(jax.value_and_grad(partial(number, adjoint=a)))(x) for a in ("native", "xla"))
    for a, b in zip(jax.tree.leaves(native), jax.tree.leaves(xla), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-13)
