"""Steps of matrices by products: the same as with exponentials and inverses, and on the orbit to round-off."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matrix_flows import METHODS, skew, system

import coadjoint as cj
from coadjoint.fluids import laplacians as dg
from coadjoint.runtime import lapack_lock, results
from coadjoint.runtime.backends import placement
from coadjoint.runtime.planning import plan_ensemble


@pytest.mark.parametrize(
    ("method", "noise"),
    [
        ("exp", True),
        ("isospectral", False),
        ("mean state", True),
        *(pytest.param(m, x, marks=pytest.mark.slow) for m, x in (("Cayley", True), ("Cayley", False), ("exp", False))),
        *(pytest.param(m, x, marks=pytest.mark.slow) for m, x in (("isospectral", True), ("mean state", False))),
    ],
)
def test_products_give_what_exponentials_and_inverses_give(method, noise):
    n = 9
    made, W0 = system(n, 1.0, noise, side="left" if method == "exp" else "right"), skew(n, 2.0)
    run = {"t1": 0.24, "dt": 0.02, "key": 0 if noise else None}
    new, old = (cj.solve(made, W0, integrator=METHODS[method](solver=s), **run) for s in ("products", "fixed_point"))
    np.testing.assert_allclose(new.mu, old.mu, rtol=0, atol=3e-14 * float(jnp.abs(W0).max()))
    assert new.stats.unsolved == 0
    assert new.stats.iterations < 0.7 * old.stats.iterations
    assert new.orbit_error().max() < 3e-15


@pytest.mark.parametrize(
    "method", ["Cayley", *(pytest.param(m, marks=pytest.mark.slow) for m in ("isospectral", "exp", "mean state"))]
)
def test_whatever_the_tolerance_the_spectrum_stays(method):
    n = 9
    made, W0 = system(n, 1.0), skew(n, 2.0)
    sol = cj.solve(made, W0, t1=2.0, dt=0.02, key=0, integrator=METHODS[method](tol=1e-3, solver="products"))
    assert sol.orbit_error().max() < 1e-14


@pytest.mark.parametrize(
    "method", ["isospectral", *(pytest.param(m, marks=pytest.mark.slow) for m in ("Cayley", "exp", "mean state"))]
)
def test_the_error_of_a_correction_is_known_while_the_noise_moves_it(method):
    """If E were taken to be as exact as at the start of its step, the spectrum would drift by 3e-16 per step."""
    system, W0 = cj.models.sine_euler(17, amplitude=0.1)
    dt = 0.3 / np.linalg.norm(np.asarray(system.drift(W0)), 2)
    method = METHODS[method](solver="products")
    sol = cj.solve(system, W0, t1=200 * dt, dt=dt, key=0, save_every=20, integrator=method)
    assert sol.stats.unsolved == 0
    assert sol.orbit_error().max() < 5e-15


@pytest.mark.slow
def test_steps_too_large_for_products_do_not_drift():
    """Those are taken by exponentials, which must be unitary: else the spectrum drifts, always one way."""
    system, W0 = cj.models.euler_sphere(9, noise_shells=(2, 3), amplitude=0.3)
    sol = cj.solve(system, W0, t1=60.0, dt=0.2, key=0, save_every=30)
    assert sol.stats.iterations > 4, "so that there are such steps"
    assert sol.orbit_error().max() < 5e-15


@pytest.mark.slow
def test_a_step_too_large_for_products_is_taken_all_the_same():
    """Products cannot solve it; the fallback solver converges, and reports its number of iterations."""
    n = 9
    made, W0 = system(n, 8.0), skew(n, 2.0)
    sol = cj.solve(made, W0, t1=0.4, dt=0.2, key=3, throw=False, integrator=cj.TMK(solver="products"))
    assert sol.orbit_error().max() < 1e-14
    old = cj.solve(made, W0, t1=0.4, dt=0.2, key=3, throw=False, integrator=cj.TMK(solver="fixed_point"))
    if old.stats.unsolved == 0:
        np.testing.assert_allclose(sol.mu, old.mu, rtol=0, atol=1e-12)


@pytest.mark.slow
def test_the_group_element_is_followed():
    n = 9
    made, W0 = system(n, 1.0), skew(n, 2.0)
    sol = cj.solve(made, W0, t1=0.1, dt=0.02, key=0, group=True, integrator=cj.TMK(solver="products"))
    g = np.asarray(sol.g[-1])
    np.testing.assert_allclose(g @ np.asarray(W0) @ g.conj().T, sol.mu[-1], rtol=0, atol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["isospectral", "exp", "mean state"])
def test_derivatives_through_products(method):
    n = 5
    made, W0 = system(n, 1.0, params=jnp.asarray(1.0)), skew(n, 2.0)

    def end(p, solver):
        new = made.with_params(p)
        sol = cj.solve(new, W0, t1=0.06, dt=0.02, key=0, integrator=METHODS[method](solver=solver))
        return jnp.sum(jnp.abs(sol.mu[-1] - skew(n, 1.0, 7)) ** 2)

    new, old = (jax.grad(lambda p, s=s: end(p, s))(jnp.asarray(1.0)) for s in ("products", "fixed_point"))
    np.testing.assert_allclose(new, old, rtol=1e-11)


@pytest.mark.slow
def test_energy_is_kept_by_both_maps_of_tmk():
    n = 9
    made = cj.System(cj.SU(n), lambda W: 0.5 * jnp.sum((jnp.conj(W) * dg.apply_symbol(dg.inverse_squared, W)).real))
    W0 = skew(n, 2.0)
    for method in ("exp", "Cayley"):
        sol = cj.solve(made, W0, t1=1.0, dt=0.05, integrator=METHODS[method](solver="products"))
        energy = sol.energy()
        assert np.abs(energy - energy[0]).max() < 1e-14 * abs(energy[0])


def test_products_are_taken_for_matrices_that_are_not_small_and_only_there():
    made = system(9, 1.0)
    assert cj.TMK().products_rule(made) is not None
    assert cj.TMK().products_rule(system(5, 1.0)) is None
    assert cj.TMK(solver="fixed_point").products_rule(made) is None
    assert cj.LieMidpoint().products_rule(made) is not None
    with pytest.raises(ValueError, match="is for matrices that are moved by conjugation"):
        cj.solve(*cj.models.rigid_body(), t1=1.0, dt=0.1, key=0, integrator=cj.TMK(solver="products"))


def test_without_noise_a_step_starts_from_the_last_ones(tmp_path):
    """One evaluation is enough where dt resolves the path, and a run resumed from a store is bitwise identical."""
    flow, W0 = cj.models.euler_sphere(9, noise_modes=None, key=0)
    run = {"dt": 0.002, "save_every": 50, "integrator": cj.IsospectralMidpoint(tol=1e-12)}
    sol = cj.solve(flow, W0, t1=0.2, **run)
    old = cj.solve(flow, W0, t1=0.2, **(run | {"integrator": cj.IsospectralMidpoint(solver="fixed_point")}))
    np.testing.assert_allclose(sol.mu, old.mu, rtol=0, atol=1e-13 * float(jnp.abs(W0).max()))
    assert sol.stats.iterations < 1.4 and sol.stats.most_iterations >= 2, sol.stats
    assert sol.orbit_error().max() < 3e-15
    path = tmp_path / "run.zarr"
    cj.solve(flow, W0, t1=0.1, out=path, **run)
    np.testing.assert_array_equal(cj.solve(flow, W0, t1=0.2, out=path, resume=True, **run).mu[-1], sol.mu[-1])


def test_what_is_not_saved_is_not_sent():
    class SaveBuffer:
        shape, dtype, nbytes = (1, 3, 4, 4), np.dtype(complex), 2**30
        __len__ = lambda self: 1
        __getitem__ = lambda self, at: np.ones(self.shape, complex)[at]

    device = placement.SingleDevice(None)
    assert device.rows(SaveBuffer(), 0).shape == (1, 0, 4, 4)
    assert device.rows(SaveBuffer(), 2).shape == (1, 2, 4, 4)


def test_blas_has_one_thread_inside_and_what_it_had_before_afterwards():
    np.linalg.eigvalsh(np.eye(3))
    jnp.linalg.eigvalsh(jnp.eye(3))  # which loads LAPACK
    libraries = lapack_lock.blas_libraries().select(user_api="blas")
    assert "scipy.linalg.cython_lapack" in sys.modules and len(libraries)
    threads = lambda: {library["num_threads"] for library in libraries.info()}
    with libraries.limit(limits=2):  # as a user's have on two cores; those of the tests have one
        with lapack_lock.exclusive_xla():
            assert threads() == {1}
        with lapack_lock.exclusive_xla(small=False):
            assert threads() == {2}
        assert threads() == {2}


def test_diagnostics_of_two_matrices_are_those_of_two_and_not_of_a_thousand(monkeypatch):
    taken = []
    real = results.mapped
    monkeypatch.setattr(results, "mapped", lambda fn, rows: taken.append(len(rows)) or real(fn, rows))
    states = np.stack([np.asarray(skew(20, 1.0, seed)) for seed in range(3)])
    errors = results.map_rows(lambda W: jnp.sum(jnp.abs(W)), states, 2)
    np.testing.assert_allclose(errors, np.abs(states).sum((1, 2)))
    assert taken == [4]


def test_diagnostics_are_compiled_once_and_leave_threads_of_blas_alone(monkeypatch, compilations):
    """Eigenvalues of two matrices of 129 rows took seconds where others compute, for threads that waited in a loop."""
    made, W0 = system(9, 1.0, noise=False), skew(9, 2.0)
    method = METHODS["isospectral"](solver="products")  # compiled above
    run = lambda: cj.solve(made, W0, t1=0.04, dt=0.02, integrator=method)
    diagnostics = lambda sol: (sol.casimirs(), sol.casimir_errors(), sol.orbit_error(), sol.energy(), repr(sol))
    diagnostics(run())
    libraries, inside, real = lapack_lock.blas_libraries().select(user_api="blas"), [], results.mapped
    threads = lambda: {library["num_threads"] for library in libraries.info()}
    watched = lambda *args: inside.append(threads()) or real(*args)
    monkeypatch.setattr(results, "mapped", watched)
    with libraries.limit(limits=2):  # as a user's have on two cores; those of the tests have one
        with compilations() as count:
            diagnostics(run())
        assert threads() == {2}
    assert count.n == 0 and inside and all(each == {1} for each in inside)


def test_members_of_an_ensemble_of_matrices_are_no_padding():
    made, W0 = system(9, 1.0, side="left"), skew(9, 2.0)
    method = METHODS["exp"](solver="products")  # compiled above
    options = {"t1": 0.04, "dt": 0.02, "key": 0}
    planned = plan_ensemble(
        made, W0, members=17, params=None, reduce=None, stored=False, save=None, group=False, throw=True, t0=0.0,
        driver=None, integrator=method, save_every=1, backend="auto", g0=None, **options,
    )  # fmt: skip
    assert (planned.batch_size, planned.n_batches, planned.single) == (1, 17, True)
    ens = cj.ensemble(made, W0, members=3, integrator=method, **options)
    one = cj.solve(made, W0, driver=cj.Brownian(0), t1=0.04, dt=0.02, integrator=method)
    np.testing.assert_array_equal(ens.mu[0], one.mu)  # not only to round-off: nothing is mapped over members
    assert not np.array_equal(ens.mu[1], ens.mu[0])


def test_large_steps_of_large_matrices_are_solved():
    """The test of convergence by fixed points goes by a matrix's own size, not by that of all its numbers."""
    system, W = cj.models.sine_euler(n=33, noise_modes=((1, 1), (2, -1)), amplitude=1.0, key=0)
    path = cj.Increments(np.ones((4, system.n_noise)))
    sol = cj.solve(system, W, t1=0.02, dt=0.005, driver=path, integrator=cj.TMK(solver="fixed_point"))
    assert sol.stats.most_iterations < 15 and sol.stats.residual < 1e-15
