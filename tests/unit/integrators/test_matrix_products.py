"""Steps of matrices by products alone: the same as with exponentials and inverses, and on the orbit to round-off."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coadjoint as cj
from coadjoint.fluids import laplacians as dg
from coadjoint.integrators import extrapolation, matrix_products, su_n_series, su_n_solver
from coadjoint.integrators.su_n_solver import Rule, _Step, products_step, tanh
from coadjoint.numerics import split_complex as sc
from coadjoint.runtime import lapack_lock, results
from coadjoint.runtime.backends import placement, xla
from coadjoint.runtime.planning import plan_ensemble, plan_solve
from coadjoint.store.fingerprint import configuration
from stepcompiler.jaxprs import mixed_precision
from stepcompiler.jaxprs.interning import primitives

METHODS = {
    "isospectral": cj.IsospectralMidpoint,
    "Cayley": lambda **options: cj.TMK(tau=cj.Cayley(), **options),
    "exp": cj.TMK,
    "mean state": cj.LieMidpoint,
}


def skew(n, size, seed=0):
    """A random skew-Hermitian matrix without trace, of operator norm `size`, smooth as fields are."""
    rng = np.random.default_rng(seed)
    m = np.abs(np.where(np.arange(n) <= n // 2, np.arange(n), np.arange(n) - n))
    a = (rng.standard_normal((n, n)) + 1j * rng.standard_normal((n, n))) / (1.0 + m[:, None] + m)
    a = np.fft.ifft2(a)
    a = a - a.conj().T
    a = a - np.trace(a) / n * np.eye(n)
    return jnp.asarray(size * a / np.linalg.norm(a, 2))


def system(n, size, noise=True, side="right", params=None):
    """A quartic energy, so that the gradient is not linear, and SALT noise."""

    def h(W, p=1.0):
        P = dg.apply_symbol(dg.inverse_squared, W)
        energy = 0.5 * jnp.sum((jnp.conj(W) * P).real)
        return p * size * (energy + 0.01 * energy**2)

    fields = [cj.salt(jnp.stack([skew(n, size, seed) for seed in (1, 2)]))] if noise else []
    return cj.System(cj.SU(n), h, fields, side=side, params=params)


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


def test_steps_too_large_for_products_do_not_drift():
    """Those are taken by exponentials, which must be unitary: else the spectrum drifts, always one way."""
    system, W0 = cj.models.euler_sphere(9, noise_shells=(2, 3), amplitude=0.3)
    sol = cj.solve(system, W0, t1=60.0, dt=0.2, key=0, save_every=30)
    assert sol.stats.iterations > 4, "so that there are such steps"
    assert sol.orbit_error().max() < 5e-15


@pytest.mark.slow
def test_a_step_too_large_for_products_is_taken_all_the_same():
    """Products cannot solve it; the fallback solver does, and says how many iterations it took."""
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


def test_tanh_and_its_reach():
    n = 20
    for size, exact in ((0.05, True), (0.2, True), (0.6, False)):
        S = skew(n, size)
        lam, v = np.linalg.eigh(-1j * np.asarray(S))
        want = (v * (1j * np.tan(lam))) @ v.conj().T
        a, left = jax.jit(tanh)(sc.pair(S))
        error = np.abs(np.asarray(sc.unpair(a, n)) - want).max() / np.abs(want).max()
        assert (error < 1e-12) == exact == (float(left) < 1e-12), (size, error, left)


@jax.jit
def _mean_state(W, S, both):
    got, left = _Step(Rule(False, True, 1e-13, 30), W, lambda X: X, None).mean_state(sc.pair(S), sc.pair(both))
    return sc.unpair(got, len(W)), left


@pytest.mark.parametrize(("size", "exact"), [(0.02, True), (0.1, True), (0.5, False), (1.3, False)])
def test_the_mean_state_and_its_reach(size, exact):
    """φ₁(2 ad_S) W from the mean of the ends, by eigenvalues λ of −iS: (e^{id} − 1)/id of entries, d = 2(λ_i − λ_j)."""
    n = 20
    S, W = skew(n, size), skew(n, 2.0, 1)
    lam, v = np.linalg.eigh(-1j * np.asarray(S))
    d = 2 * (lam[:, None] - lam) + 1e-300
    inside = v.conj().T @ np.asarray(W) @ v
    turned = v @ (np.exp(1j * d) * inside) @ v.conj().T
    want = v @ (np.where(abs(d) < 1e-9, 1, np.expm1(1j * d) / (1j * d)) * inside) @ v.conj().T
    got, left = _mean_state(W, S, (turned - np.asarray(W)) / 2)
    error = np.abs(np.asarray(W) + np.asarray(got) - want).max() / np.abs(want).max()
    assert (error < 3e-13) == exact == (float(left) < 1e-13), (error, left)


def test_products_of_pairs():
    n = 70
    levels = sc.Level.DOUBLE, sc.Level.FINE, sc.Level.LOW, sc.Level.LEAST

    @jax.jit
    def products(A, B):
        a, b = sc.pair(A), sc.pair(B)
        square = sc.symmetric_product(a, a, sc.Level.DOUBLE, 1)
        return [sc.unpair(x, n) for x in (*(sc.product(a, b, level) for level in levels), square)]

    A, B = np.asarray(skew(n, 1.0, 1)), np.asarray(skew(n, 1.0, 2))
    got, *roughly, square = products(A, B)
    want = A @ B
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-15)
    assert len(roughly) == 3
    for rough in roughly:
        assert np.abs(np.asarray(rough) - want).max() < 1e-2 * np.abs(want).max()
    np.testing.assert_allclose(square, A @ A, rtol=0, atol=1e-15)
    np.testing.assert_array_equal(np.asarray(square), np.asarray(square).conj().T)


@pytest.mark.parametrize("rest", [0, 4])
@pytest.mark.parametrize(("sign", "right"), [(-1, -1), (1, -1), (1, 1), (-1, 1)])
def test_symmetric_products_by_panels_as_a_gpu_takes_them(sign, right, rest, monkeypatch):
    """Four panels, and rows beyond them."""
    n = 24
    monkeypatch.setattr(sc, "_PANELS", n - rest)
    S, W = np.asarray(skew(n, 1.0, 1)), np.asarray(skew(n, 1.0, 2))
    A, B = {(-1, -1): (S @ W, S), (1, -1): (S, S), (1, 1): (S @ S, S @ S @ S @ S), (-1, 1): (S, S @ S)}[sign, right]
    product = lambda A, B: sc.unpair(sc._by_panels(sc.pair(A), sc.pair(B), sign, right), n)
    got = np.asarray(jax.jit(product)(A, B))
    np.testing.assert_allclose(got, A @ B, rtol=0, atol=1e-15)
    np.testing.assert_array_equal(got, sign * got.conj().T)


@pytest.mark.parametrize(("sign", "right"), [(-1, -1), (1, -1), (1, 1), (-1, 1)])
def test_symmetric_products_by_two_real_ones(sign, right):
    """As exact as any product, and symmetric to the last bit, at an odd size and in both precisions."""
    n = 23
    S, W = np.asarray(skew(n, 1.0, 1)), np.asarray(skew(n, 1.0, 2))
    A, B = {(-1, -1): (S @ W, S), (1, -1): (S, S), (1, 1): (S @ S, S @ S @ S @ S), (-1, 1): (S, S @ S)}[sign, right]
    levels = {sc.Level.DOUBLE: 1e-15, sc.Level.LOW: 1e-6}

    @jax.jit
    def products(A, B):
        a, b = sc.pair(A), sc.pair(B)
        return [sc.unpair(sc.symmetric_product(a, b, level, sign, right), n) for level in levels]

    for got, error in zip(map(np.asarray, products(A, B)), levels.values(), strict=True):
        np.testing.assert_allclose(got, A @ B, rtol=0, atol=error)
        np.testing.assert_array_equal(got, sign * got.conj().T)


@jax.jit
def _one_less(s):
    E, digits, _ = su_n_series.inverse_minus_one(sc.pair(s).astype(sc.F32), False)
    return sc.unpair(E, len(s)), digits


@pytest.mark.parametrize("size", [0.02, 0.3])
def test_the_inverse_that_corrections_use_says_how_exact_it_is(size):
    """(1 − s)⁻¹ − 1 by three products: not further off than the error that is told, and that is not told too large."""
    n = 33
    s = skew(n, size, 5)
    E, digits = _one_less(s)
    want = np.linalg.inv(np.eye(n) - np.asarray(s)) - np.eye(n)
    error = np.linalg.norm(np.asarray(E) - want) / np.linalg.norm(want)
    assert error < 3 * float(digits) and (size < 0.1 or float(digits) < 100 * error)


def test_fields_of_corrections_are_in_single_precision():
    """If they have no loops: the same to seven digits; with one, in double."""
    x = np.asarray(skew(9, 1.0, 1)).astype(np.complex64)
    field = lambda X: dg.apply_symbol(dg.inverse_squared, X)
    got = jax.jit(lambda X: mixed_precision.single_precision(field, X))(x)
    assert got.dtype == np.complex64
    np.testing.assert_allclose(got, jax.jit(field)(x.astype(complex)), rtol=0, atol=1e-6)
    looped = lambda X: jax.lax.fori_loop(0, 2, lambda _, Y: 2.0 * Y, X)
    assert jax.jit(lambda X: mixed_precision.single_precision(looped, X))(x).dtype == np.complex128


def test_a_trace_is_left_out():
    """By its n entries: what is left has none, and is X elsewhere."""
    X = np.asarray(skew(9, 1.0, 1)) + 0.7j * np.eye(9)
    got = np.asarray(matrix_products._without_trace(jnp.asarray(X)))
    np.testing.assert_allclose(got, X - np.trace(X) / 9 * np.eye(9), rtol=0, atol=1e-15)


def test_a_step_as_a_gpu_takes_it(monkeypatch):
    """Products in float16 and bfloat16, fields in single precision: the same state, and the spectrum stays."""
    n = 33
    W, N = skew(n, 1.0, 1), skew(n, 0.05, 2)
    field = lambda X: 0.05 * dg.apply_symbol(dg.inverse_squared, X, gpu=sc.on_gpu())
    rule = Rule(mean=False, exp=False, tol=1e-12, most=10)
    step = lambda: jax.jit(lambda W: products_step(rule, W, field, N))(W)
    want = step()
    for module in (sc, dg, su_n_solver, su_n_series):
        monkeypatch.setattr(module, "on_gpu", lambda: True)
    monkeypatch.setattr(sc, "_LARGE", 8)
    monkeypatch.setattr(su_n_solver, "_SMOOTH", 8)
    got = step()
    assert got.converged and got.residual < 1e-12
    np.testing.assert_allclose(got.S, want.S, rtol=0, atol=1e-12)
    np.testing.assert_allclose(got.change, want.change, rtol=0, atol=1e-12)
    before, after = (np.linalg.eigvalsh(-1j * np.asarray(x)) for x in (W, W + got.change))
    np.testing.assert_allclose(after, before, rtol=0, atol=5e-15)
    E = np.asarray(skew(n, 1e-9, 3))  # a range that float16 would not have
    low = jax.jit(lambda E: sc.unpair(sc.product(sc.pair(E), sc.pair(W), sc.Level.LOW), n))(E)
    assert 1e-5 < np.linalg.norm(low - E @ np.asarray(W)) / np.linalg.norm(E @ np.asarray(W)) < 1e-3


def test_what_a_store_records_of_a_flow_is_the_same_on_a_gpu(monkeypatch):
    """The flow is traced alike for all devices, and anew where that is faster."""
    flow = lambda: cj.models.sine_euler(33, noise_modes=[(1, 2), (0, 3)], key=0)
    given = {"t1": 0.1, "dt": 0.1, "key": 0, "integrator": cj.TMK(), "t0": 0.0, "driver": None, "save_every": 1}
    about = {"backend": "auto", "stored": True, "save": None, "group": False, "throw": True}
    on_cpu = plan_solve(*flow(), **given, **about)
    for module in (sc, dg, placement, xla):
        monkeypatch.setattr(module, "on_gpu", lambda: True)
    on_gpu = plan_solve(*flow(), **given, **about)
    assert configuration(on_gpu) == configuration(on_cpu)
    here = xla.XlaProgram(on_gpu).definition.system
    assert "optimization_barrier" in primitives(here.grad_h.code.jaxpr)
    assert "optimization_barrier" not in primitives(on_gpu.system.grad_h.code.jaxpr)


def test_without_noise_a_step_starts_from_the_last_ones(tmp_path):
    """One evaluation is enough where dt resolves the path, which goes on from a store bit for bit."""
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


def test_the_polynomial_through_the_last_steps():
    """Exact for the polynomial whose degree fits, and where a path is rough not of a high degree."""
    n, dt, one = 5, np.asarray(0.1), np.ones(())
    append_step, extrapolate = jax.jit(extrapolation.append_step), jax.jit(extrapolation.extrapolate)
    matrix = lambda t: np.stack([np.full((n, n), t), np.full((n, n), t**3 - t)])

    def after(path):
        kept = extrapolation.empty_history(n)
        for k, x in enumerate(path):
            kept = append_step(kept, extrapolation.Prediction(x, x, x, one, one, np.asarray(k)), dt)
        return kept

    times = 0.1 * np.arange(13)
    found = extrapolate(after(map(matrix, times)), dt, one)
    np.testing.assert_allclose(found.D, matrix(1.3), rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.S, found.D)
    assert bool(found.near)
    other = extrapolate(after(map(matrix, times)), 2 * dt, one)
    assert int(other.known) == 0 and not bool(other.near)
    rough = [np.random.default_rng(k).normal(size=(2, n, n)) for k in range(13)]
    found = extrapolate(after(rough), dt, one)
    assert not bool(found.near) and float(jnp.abs(found.D).max()) < 10


def test_what_is_not_saved_is_not_sent():
    class SaveBuffer:
        shape, dtype, nbytes = (1, 3, 4, 4), np.dtype(complex), 2**30
        __len__ = lambda self: 1
        __getitem__ = lambda self, at: np.ones(self.shape, complex)[at]

    device = placement.SingleDevice(None)
    assert device.rows(SaveBuffer(), 0).shape == (1, 0, 4, 4)
    assert device.rows(SaveBuffer(), 2).shape == (1, 2, 4, 4)


def test_a_defect_is_driven_to_round_off_and_reported():
    n = 9
    W = skew(n, 2.0)
    field = lambda X: 0.3 * dg.apply_symbol(dg.inverse_squared, X)
    step = jax.jit(lambda most: products_step(Rule(True, False, 1e-3, most), W, field))  # one program for both
    few = step(1)
    assert not bool(few.converged)  # one evaluation leaves a defect that its correction does not bring to round-off
    many = step(30)
    assert bool(many.converged) and float(many.residual) < 1e-3


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


FLOWS = {
    "torus": lambda: cj.models.sine_euler(45, noise_shells=(1, 4), amplitude=0.02, key=0),
    "sphere": lambda: cj.models.euler_sphere(17, noise_shells=(1, 2), amplitude=0.02, key=0),
}


def test_runs_as_a_gpu_takes_them(monkeypatch):
    """Made, traced anew and compiled for one: the same runs, and they keep the spectrum.

    What is traced is forgotten, before and after; so all flows are run together, after the other tests of this file.
    On a CPU the same equations are solved by fixed points, which is compiled in half the time.
    """
    given = {"t1": 0.1, "dt": 0.02, "key": 0, "save_every": 5}
    method = lambda **options: cj.TMK(tau=cj.Cayley(), tol=1e-12, **options)
    runs = lambda **options: {k: cj.solve(*flow(), integrator=method(**options), **given) for k, flow in FLOWS.items()}
    on_cpu = runs(solver="fixed_point")
    for module in (sc, dg, su_n_solver, su_n_series, placement, xla):
        monkeypatch.setattr(module, "on_gpu", lambda: True)
    monkeypatch.setattr(sc, "_LARGE", 8)
    jax.clear_caches()  # what was traced for a CPU
    on_gpu = runs()
    jax.clear_caches()
    for surface, got in on_gpu.items():
        assert got.stats.unsolved == 0 and got.stats.residual < 1e-12, surface
        np.testing.assert_allclose(got.mu[-1], on_cpu[surface].mu[-1], rtol=0, atol=1e-10, err_msg=surface)
        assert np.max(got.casimir_errors()) < 1e-13, surface
