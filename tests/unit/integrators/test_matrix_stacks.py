"""Steps of several large matrices at once, that is of copies of su(n): inversion-free, as for one matrix."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matrix_flows import METHODS, skew, system

import coadjoint as cj
from coadjoint.fluids import laplacians as dg
from coadjoint.integrators import su_n_series, su_n_solver
from coadjoint.integrators.su_n_solver import Rule, products_step
from coadjoint.numerics import split_complex as sc
from coadjoint.runtime.planning import plan_ensemble

N = 9
RUN = {"t1": 0.12, "dt": 0.02}


def pair_of_layers(noise=True, side="right", coupling=0.3, params=None, **options):
    """Two layers with a quartic energy that couples them, and SALT noise that differs between them."""
    algebra = cj.SU(N) ** 2

    def h(mu, p=1.0):
        W = algebra.to_matrices(mu)
        P = jax.vmap(lambda X: dg.apply_symbol(dg.inverse_squared, X))(W)
        energy = 0.5 * jnp.sum((jnp.conj(W) * P).real) + p * coupling * jnp.sum((jnp.conj(W[0]) * P[1]).real)
        return energy + 0.01 * energy**2

    fields = [algebra.join(skew(N, 1.0, 1), skew(N, 0.5, 2)), algebra.join(skew(N, 1.0, 3), skew(N, 1.0, 3))]
    noises = [cj.salt(jnp.stack(fields))] if noise else []
    made = cj.System(algebra, h, noises, side=side, params=params, **options)
    return made, algebra.join(skew(N, 2.0), skew(N, 1.0, 5))


@pytest.mark.parametrize(
    ("method", "noise"),
    [
        ("exp", True),
        ("isospectral", False),
        *(pytest.param(m, x, marks=pytest.mark.slow) for m in METHODS for x in (True, False)),
    ],
)
def test_they_give_what_exponentials_and_inverses_give(method, noise):
    made, W0 = pair_of_layers(noise, side="left" if method == "exp" else "right")
    key = 0 if noise else None
    new, old = (
        cj.solve(made, W0, key=key, integrator=METHODS[method](solver=s), **RUN) for s in ("auto", "fixed_point")
    )
    np.testing.assert_allclose(new.mu, old.mu, rtol=0, atol=1e-13)
    assert new.stats.unsolved == 0 and new.stats.iterations < 0.7 * old.stats.iterations
    assert new.orbit_error().max() < 3e-15


@pytest.mark.slow
def test_matrices_without_coupling_are_as_if_alone():
    """Also beside a matrix that is zero, which no test of convergence may divide by."""
    made, _ = pair_of_layers(noise=False, coupling=0.0)
    alone, W = system(N, 1.0, noise=False), skew(N, 2.0)
    run = RUN | {"integrator": cj.IsospectralMidpoint()}
    start = made.algebra.join(W, np.zeros((N, N), complex))
    got = cj.solve(made, start, **run)
    np.testing.assert_allclose(made.algebra.split(got.mu[-1])[0], cj.solve(alone, W, **run).mu[-1], rtol=0, atol=1e-13)
    assert not np.asarray(made.algebra.split(got.mu[-1])[1]).any() and got.stats.unsolved == 0


@pytest.mark.slow
def test_runs_resume_bitwise_and_members_are_runs_of_their_own(tmp_path):
    made, W0 = pair_of_layers()
    options = {"dt": 0.02, "integrator": cj.TMK(), "save_every": 3}
    whole = cj.ensemble(made, W0, members=2, key=0, t1=0.24, **options)
    one = cj.solve(made, W0, driver=cj.Brownian(0), t1=0.24, **options)
    np.testing.assert_array_equal(whole.mu[0], one.mu)
    assert not np.array_equal(whole.mu[1], whole.mu[0])
    path = tmp_path / "run.zarr"
    cj.ensemble(made, W0, members=2, key=0, t1=0.12, out=path, **options)
    resumed = cj.ensemble(made, W0, members=2, key=0, t1=0.24, out=path, resume=True, **options)
    np.testing.assert_array_equal(resumed.mu, whole.mu)
    planned = plan_ensemble(
        made, W0, members=17, params=None, reduce=None, stored=False, save=None, group=False, throw=True, t0=0.0,
        driver=None, g0=None, backend="auto", key=0, t1=0.24, **options,
    )  # fmt: skip
    assert planned.single  # a core has one member


def test_dissipation_is_split_off():
    """Linear damping at the rate γ, of a system without dynamics of its own: e^{−γt}."""
    algebra = cj.SU(N) ** 2
    damp = lambda mu, dt: mu * jnp.exp(-0.5 * dt)
    made = cj.System(algebra, lambda mu: 0.5 * mu @ mu, side="right", dissipation=damp)
    W0 = algebra.join(skew(N, 1.0), skew(N, 2.0, 1))
    sol = cj.solve(made, W0, integrator=cj.IsospectralMidpoint(), **RUN)
    np.testing.assert_allclose(sol.mu[-1], W0 * np.exp(-0.06), rtol=0, atol=1e-14)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["isospectral", "exp", "mean state"])
def test_derivatives(method):
    made, W0 = pair_of_layers(params=jnp.asarray(1.0))

    def end(p, solver):
        run = {"key": 0, "integrator": METHODS[method](solver=solver)} | RUN
        return jnp.sum(jnp.abs(cj.solve(made.with_params(p), W0, **run).mu[-1] - 0.1) ** 2)

    new, old = (jax.grad(lambda p, s=s: end(p, s))(jnp.asarray(1.0)) for s in ("auto", "fixed_point"))
    np.testing.assert_allclose(new, old, rtol=1e-10)


@pytest.mark.slow
def test_the_group_elements_are_followed():
    made, W0 = pair_of_layers()
    sol = cj.solve(made, W0, key=0, group=True, integrator=cj.TMK(), **RUN)
    g, W = np.asarray(sol.g[-1]), np.asarray(made.algebra.to_matrices(W0))
    moved = g @ W @ np.conj(np.swapaxes(g, 1, 2))
    np.testing.assert_allclose(moved, made.algebra.to_matrices(sol.mu[-1]), rtol=0, atol=1e-13)


def test_copies_of_large_su_n_alone_are_stacks():
    for algebra, shape in (
        (cj.SU(9) ** 3, (3, 9, 9)),
        (cj.SU(5) ** 8, None),
        (cj.SU(9) * cj.SU(10), None),
        (cj.SU(9) * cj.SO3(), None),
    ):
        assert algebra.conjugated_shape == shape
        made = cj.System(algebra, lambda mu: 0.5 * mu @ mu)
        assert (cj.TMK().products_rule(made) is not None) == (shape is not None)
    algebra, x = cj.SU(9) ** 2, np.arange(160.0)
    np.testing.assert_allclose(algebra.from_matrices(algebra.to_matrices(x)), x, rtol=0, atol=1e-13)
    np.testing.assert_array_equal(algebra.to_matrices(x), np.stack(algebra.split(x)))
    with pytest.raises(ValueError, match="copies of one SU"):
        cj.solve(made, np.ones(83), t1=0.1, dt=0.1, integrator=cj.TMK(solver="products"))


@pytest.mark.slow
def test_a_step_of_a_stack_as_a_gpu_takes_it(monkeypatch):
    n = 17
    W = jnp.stack([skew(n, 1.0, 1), skew(n, 0.7, 4)])
    symbol = lambda X: dg.apply_symbol(dg.inverse_squared, X, gpu=sc.on_gpu())
    field = lambda X: 0.05 * jax.vmap(symbol)(X) + 0.01 * X[::-1]
    step = lambda rule: jax.jit(lambda W: products_step(rule, W, field))(W)
    rules = Rule(mean=False, exp=False, tol=1e-12, most=10), Rule(mean=True, exp=True, tol=1e-12, most=10)
    want = [step(rule) for rule in rules]
    for module in (sc, dg, su_n_solver, su_n_series):
        monkeypatch.setattr(module, "on_gpu", lambda: True)
    for rule, on_cpu in zip(rules, want, strict=True):
        got = step(rule)
        assert got.converged and on_cpu.converged
        np.testing.assert_allclose(got.change, on_cpu.change, rtol=0, atol=1e-12)
        after = np.linalg.eigvalsh(-1j * np.asarray(W + got.change))
        np.testing.assert_allclose(after, np.linalg.eigvalsh(-1j * np.asarray(W)), rtol=0, atol=5e-15)
