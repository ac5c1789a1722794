"""What depends on what, and steps that solve only for what must be solved for."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coadjoint as cj
from coadjoint.integrators.implicit import Unknowns, explicit_coordinates
from coadjoint.runtime.backends import xla
from stepcompiler.cache import LRUCache
from stepcompiler.jaxprs.sparsity import depends_on

X = jnp.arange(4.0)
CASES = {
    "a slice": (lambda x: jnp.concatenate([x[:2] ** 2, jnp.ones(2)]), [1, 1, 0, 0]),
    "a sum": (lambda x: jnp.stack([jnp.sum(x), jnp.sum(jnp.ones(3))]), [1, 0]),
    "a branch": (lambda x: jnp.where(x > 1.0, 2.0, 3.0), [1, 1, 1, 1]),
    "a product of matrices": (lambda x: jnp.ones((3, 4)) @ x, [1, 1, 1]),
    "a pad": (lambda x: jnp.pad(x[1:2], (1, 1)), [0, 1, 0]),
    "a gradient": (jax.grad(lambda x: x[0] ** 3 + 2.0 * x[1] + jnp.sin(x[2]) * x[3]), [1, 0, 1, 1]),
    "a loop": (lambda x: jax.lax.fori_loop(0, 3, lambda i, y: y + x, jnp.zeros(4)), [1, 1, 1, 1]),
    "inside a jit": (lambda x: jax.jit(lambda y: jnp.stack([y[0], 1.0]))(x), [1, 0]),
    "nothing": (lambda x: jnp.zeros(2), [0, 0]),
}


@pytest.mark.parametrize("case", CASES)
def test_what_depends(case):
    f, expected = CASES[case]
    assert depends_on(f, X).tolist() == [bool(e) for e in expected]


def test_what_does_not_depend_does_not_change():
    same = jax.jit(lambda x: {case: f(x) == f(3.0 + 2.0 * x) for case, (f, _) in CASES.items()})(X)
    for case, (f, _) in CASES.items():
        assert np.all(np.asarray(same[case]) | depends_on(f, X)), case


def test_gravity_need_not_be_solved_for():
    system, _ = cj.models.heavy_top()
    assert explicit_coordinates(system).tolist() == [False] * 3 + [True] * 3
    assert not explicit_coordinates(cj.models.kirchhoff()[0]).any()
    assert explicit_coordinates(cj.System(cj.SO3(), lambda m: m[0], noise=[cj.salt([0, 0, 1.0])])).all()


def test_unknowns_among_all_coordinates():
    u = Unknowns(np.array([True, False, False, True, True]))
    given = jnp.arange(10.0, 15.0)
    x = u.restrict(given)
    assert x.tolist() == [10, 13, 14] and u.count == 3 and not u.all
    assert u.embed(x + 1, given).tolist() == [11, 11, 12, 14, 15]


@pytest.mark.parametrize("method", [cj.TMK(), cj.LieMidpoint(), cj.TMK(solver="newton"), cj.TMKLevy()], ids=repr)
@pytest.mark.parametrize("backend", ["native", "xla"])
def test_the_step_is_the_same_as_with_all_solved_for(monkeypatch, method, backend):
    system, mu0 = cj.models.heavy_top(alpha=[(0.1, 0.2, 0.3), (0.3, 0.0, 0.1)])
    run = lambda: cj.solve(system, mu0, t1=1.0, dt=0.05, key=1, integrator=method, backend=backend).mu
    fewer, asked = run(), []
    for module in ("tmk", "midpoint"):
        everything = lambda system: asked.append(system) or np.zeros(6, bool)
        monkeypatch.setattr(f"coadjoint.integrators.{module}.explicit_coordinates", everything)
    monkeypatch.setattr("coadjoint.runtime.backends.step_kernels._kernels", LRUCache())
    advance = xla.advance_steps
    monkeypatch.setattr(xla, "_advance", eqx.filter_jit(lambda *args: advance(*args)))  # that was not traced before
    all_of_them = run()
    assert asked
    np.testing.assert_allclose(fewer, all_of_them, rtol=0, atol=1e-14)


@pytest.mark.parametrize("backend", ["native", "xla"])
def test_nothing_to_solve_for(backend):
    """A linear energy and SALT noise: σ is known, and a step without noise turns by exactly |b| dt."""
    b, mu0 = np.array([0.3, -0.4, 1.2]), np.array([1.0, 2.0, 3.0])
    system = cj.System(cj.SO3(), lambda mu: b @ mu)
    sol = cj.solve(system, mu0, t1=2.0, dt=0.5, backend=backend)
    assert sol.stats.iterations == 0 and sol.stats.backend == backend
    axis, angle = b / 1.3, -2.0 * 1.3  # μ' = μ × b, by Rodrigues
    along = (axis @ mu0) * axis
    end = along + np.cos(angle) * (mu0 - along) + np.sin(angle) * np.cross(axis, mu0)
    np.testing.assert_allclose(sol.mu[-1], end, rtol=0, atol=2e-15)


def test_derivatives_pass_through_what_is_not_solved_for():
    system, mu0 = cj.models.heavy_top()

    @jax.jit
    @jax.value_and_grad  # the differences are of the values that come with it: one program
    def height(chi):
        moved = system.with_params({**system.params, "chi": chi})
        return cj.solve(moved, mu0, t1=0.3, dt=0.1, key=1, save_every=3).mu[-1, 5]

    chi, e = np.array([0.1, 0.2, 1.0]), 1e-6
    by_differences = [(height(chi + d)[0] - height(chi - d)[0]) / (2 * e) for d in e * np.eye(3)]
    np.testing.assert_allclose(height(chi)[1], by_differences, rtol=0, atol=1e-9)
