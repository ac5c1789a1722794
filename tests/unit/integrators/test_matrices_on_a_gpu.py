"""Steps of matrices as a GPU takes them, computed on a CPU."""

import jax
import numpy as np
import pytest
from matrix_flows import skew

import coadjoint as cj
from coadjoint.fluids import laplacians as dg
from coadjoint.integrators import su_n_series, su_n_solver
from coadjoint.integrators.su_n_solver import Rule, products_step
from coadjoint.numerics import split_complex as sc
from coadjoint.runtime.backends import placement, xla
from coadjoint.runtime.planning import plan_solve
from coadjoint.store.fingerprint import configuration
from stepcompiler.jaxprs.interning import primitives


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
