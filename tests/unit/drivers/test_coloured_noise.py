"""Ornstein–Uhlenbeck noise: its exact distribution, one path at every step size, and everything that runs use."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import dblquad

import coadjoint as cj
from coadjoint.drivers import Needs

TAU, GRID = 0.3, 0.1
INERTIA = jnp.array([1.0, 2.0, 3.0])


@eqx.filter_jit
def _blocks(window, members, count):
    one = lambda member: jax.vmap(lambda b: window.block(member, b))(jnp.arange(count))
    return jax.vmap(one)(members)


def increments(driver, dt, blocks=2, members=3, channels=2, needs=Needs()):
    """Increments of the first blocks, (members, steps, …)."""
    driver.check(channels, 32 * blocks, dt, needs)
    found = _blocks(driver.window(channels, dt, 0, blocks, needs), jnp.arange(members), blocks)
    return jax.tree.map(lambda x: np.asarray(x).reshape(members, -1, *x.shape[3:]), found)


def joined(path, m, h):
    """ΔS and ΔZ of m steps together."""
    S, Z = (x.reshape(len(x), -1, m, 2) for x in (path.S, path.Z))
    return S.sum(2), (Z + h * (np.cumsum(S, 2) - S)).sum(2)


def same(a, b):
    np.testing.assert_allclose(a, b, rtol=0, atol=2e-15)


@pytest.mark.parametrize(("grid", "depth"), [(GRID, None), (16 * GRID, 4)], ids=["grid", "bridged"])
def test_increments_have_the_exact_covariances(grid, depth):
    needs = Needs(Z=True)
    path = increments(cj.OU(TAU, key=1, grid=grid, depth=depth), GRID, members=4000, needs=needs)
    kernel = lambda f: dblquad(lambda s, u: f(s, u) * np.exp(-abs(s - u) / TAU) / (2 * TAU), 0, GRID, 0, GRID)[0]
    rho = np.exp(-GRID / TAU)
    exact = {
        "SS": kernel(lambda s, u: 1.0),
        "SZ": kernel(lambda s, u: GRID - u),
        "ZZ": kernel(lambda s, u: (GRID - s) * (GRID - u)),
        "next": 0.5 * TAU * (1 - rho) ** 2,
        "tenth": 0.5 * TAU * (1 - rho) ** 2 * rho**9,
    }
    S, Z = path.S, path.Z
    found = {
        "SS": S * S,
        "SZ": S * Z,
        "ZZ": Z * Z,
        "next": S[:, :-1] * S[:, 1:],
        "tenth": S[:, :-10] * S[:, 10:],
    }
    for name, products in found.items():
        means = products.mean(axis=(1, 2))  # one of each member: independent
        assert abs(means.mean() - exact[name]) < 4 * means.std() / np.sqrt(len(means)), name
    between = (S[..., 0] * S[..., 1]).mean(axis=1)
    assert abs(between.mean()) < 4 * between.std() / np.sqrt(len(between))


@pytest.mark.slow
@pytest.mark.parametrize("m", [3])
def test_coarse_and_fine_steps_follow_one_path(m):
    needs = Needs(Z=True)
    driver = cj.OU([TAU, 5 * TAU], key=3, grid=GRID, depth=2)
    base = increments(driver, GRID, 6, needs=needs)
    S, Z = joined(base, m, GRID)
    coarse = increments(driver, m * GRID, 2, needs=needs)
    same(coarse.S, S[:, :64])
    same(coarse.Z, Z[:, :64])
    S, Z = joined(increments(driver, GRID / 4, 4, needs=needs), 4, GRID / 4)
    same(base.S[:, :32], S)
    same(base.Z[:, :32], Z)
    halves = increments(driver, GRID, 1, needs=Needs(halvings=2)).S
    same(halves.reshape(3, -1, 2), increments(driver, GRID / 4, 4).S)


def test_a_stretch_is_a_function_of_the_counters_alone():
    window = cj.OU(TAU, key=3).window(2, GRID, 0, 4)
    whole = _blocks(window, jnp.arange(2), 4).S.reshape(2, -1, 2)
    parts = eqx.filter_jit(jax.vmap(lambda n: window.steps(jnp.asarray(1), n, 8)))(jnp.arange(0, 128, 8))
    same(parts.S.reshape(-1, 2), whole[1])


def test_independent_points_do_not_depend_on_the_height_of_the_tree():
    """So that a run which differentiates τ follows the path of one that does not."""
    window = cj.OU(TAU, key=3).window(2, GRID, 0, 1)
    higher = eqx.tree_at(lambda w: w.processes.top, window, np.asarray(48))
    same(_blocks(window, jnp.arange(2), 2).S, _blocks(higher, jnp.arange(2), 2).S)


@pytest.fixture(scope="module")
def system():
    return cj.System(cj.SO3(), lambda m: 0.5 * (m @ (m / INERTIA)), [cj.salt(0.3 * jnp.eye(3)[:2])])


MU0 = jnp.array([0.0, 0.6, 0.8])


def test_native_code_members_and_resumed_runs_are_bitwise_equal(system, tmp_path):
    options = {"dt": 0.02, "driver": cj.OU(TAU, key=2)}
    whole = cj.ensemble(system, MU0, members=9, t1=2.0, save_every=50, **options)
    assert whole.stats.backend == "native"
    one = cj.solve(system, MU0, t1=2.0, **options)
    np.testing.assert_array_equal(one.mu[::50], whole.mu[0])
    xla = cj.solve(system, MU0, t1=2.0, backend="xla", **options)
    np.testing.assert_allclose(xla.mu, one.mu, rtol=0, atol=1e-13)
    path = tmp_path / "run"
    cj.solve(system, MU0, t1=0.98, out=path, **options)
    again = cj.solve(system, MU0, t1=2.0, out=path, resume=True, **options)
    np.testing.assert_array_equal(again.mu, one.mu)
    with pytest.raises(Exception, match="tau"):
        cj.solve(system, MU0, t1=3.0, out=path, resume=True, dt=0.02, driver=cj.OU(2 * TAU, key=2))


@pytest.mark.slow
def test_tau_can_be_differentiated(system):
    end = lambda tau: cj.solve(system, MU0, t1=1.0, dt=0.05, driver=cj.OU(tau, key=2), integrator=cj.HeunMK()).mu[-1, 0]
    slope = jax.grad(end)(TAU)
    h = 1e-5
    assert slope == pytest.approx((float(end(TAU + h)) - float(end(TAU - h))) / (2 * h), rel=1e-6)


@pytest.mark.parametrize("method", [cj.TMK15(), cj.TMKWeak(), cj.TMKLevy(), cj.NinomiyaVictoir(), cj.BathSplitting()])
def test_methods_with_terms_for_brownian_motion_raise(system, method):
    with pytest.raises(ValueError, match="the driver is OU"):
        cj.solve(system, MU0, t1=1.0, dt=0.1, driver=cj.OU(TAU), integrator=method)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"tau": 0.0}, ValueError, "tau must be finite and above 0"),
        ({"tau": np.inf}, ValueError, "tau must be finite"),
        ({"tau": "fast"}, TypeError, "tau must be a number"),
        ({"tau": [1.0, 1.0, 1.0]}, ValueError, "tau has 3 numbers, but the driver has 2 channels"),
        ({"tau": 1.0, "correlation": [[1.0, 2.0], [2.0, 1.0]]}, ValueError, "positive semidefinite"),
        ({"tau": 1.0, "correlation": [[1.0, 0.5], [0.0, 1.0]]}, ValueError, "symmetric"),
        ({"tau": 1.0, "correlation": [[2.0, 0.0], [0.0, 1.0]]}, ValueError, "ones on its diagonal"),
        ({"tau": 1.0, "correlation": np.eye(3)}, ValueError, "of 3 channels, but the driver has 2"),
    ],
)
def test_invalid_arguments(system, options, error, message):
    with pytest.raises(error, match=message):
        cj.solve(system, MU0, t1=1.0, dt=0.1, driver=cj.OU(**options))


def test_correlated_channels_are_mixed_noises(system):
    """dS = L dB with the independent path dB of the same key, whatever the method: also with ΔZ and areas."""
    c = 0.6
    L = np.array([[1.0, 0.0], [c, 0.8]])
    beta = 0.3 * np.eye(3)[:2]
    other = cj.System(cj.SO3(), lambda m: 0.5 * (m @ (m / INERTIA)), [cj.salt(L.T @ beta)])
    for method in (cj.TMK(), cj.TMK15()):
        correlated = cj.Brownian(1, correlation=[[1.0, c], [c, 1.0]])
        a = cj.solve(system, MU0, t1=0.5, dt=0.05, driver=correlated, integrator=method)
        b = cj.solve(other, MU0, t1=0.5, dt=0.05, driver=cj.Brownian(1), integrator=method)
        np.testing.assert_allclose(a.mu, b.mu, rtol=0, atol=1e-14)


def test_correlated_channels_of_nonlinear_noise_follow_the_mixed_path():
    system = cj.System(
        cj.SO3(), lambda m: 0.5 * (m @ (m / INERTIA)), [cj.salt(0.3 * jnp.eye(3)[:1]), lambda m: 0.1 * m[1] * m[2]]
    )
    singular = cj.Brownian(1, correlation=np.ones((2, 2)))
    a = cj.solve(system, MU0, t1=0.5, dt=0.05, driver=singular)
    dS = np.random.default_rng(0).normal(size=0)  # the first motion drives both
    dS = np.asarray(_blocks(cj.Brownian(1).window(2, 0.05, 0, 1), jnp.arange(1), 1).S).reshape(-1, 2)[:10, :1]
    b = cj.solve(system, MU0, t1=0.5, dt=0.05, driver=cj.Increments(np.repeat(dS, 2, axis=1)))
    np.testing.assert_allclose(a.mu, b.mu, rtol=0, atol=1e-13)


def test_experiment_files(tmp_path):
    file = tmp_path / "x.toml"
    text = '[model]\nname = "rigid_body"\n[run]\nt1 = 1.0\ndt = 0.1\nkey = 1\ndriver = {{ name = "OU", {} }}\n'
    file.write_text(text.format("tau = 0.3"))
    stored = cj.run(file, out=tmp_path / "run")
    system, mu0 = cj.models.rigid_body()
    np.testing.assert_array_equal(stored.mu, cj.solve(system, mu0, t1=1.0, dt=0.1, driver=cj.OU(0.3, key=1)).mu)
    file.write_text(text.format("tau = -1.0"))
    with pytest.raises(cj.ExperimentError, match=r"run\.driver\.tau must be finite and above 0"):
        cj.run(file, out=tmp_path / "other")
