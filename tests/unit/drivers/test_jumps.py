"""Jumps in the sense of Marcus, and drivers side by side."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.linalg import expm

import coadjoint as cj
from coadjoint.drivers import join

INERTIA = jnp.array([1.0, 2.0, 3.0])
MU0 = jnp.array([0.0, 0.6, 0.8])
KICKS = cj.Jumps(3.0, lambda u: 0.8 * (2 * u - 1), key=3, grid=0.1)


def hamiltonian(m):
    return 0.5 * (m @ (m / INERTIA))


@pytest.fixture(scope="module")
def system():
    return cj.System(cj.SO3(), hamiltonian, [cj.salt(jnp.eye(3)[:2])])


def jumps_of(driver, dt, steps, channels=2, member=0):
    """Times and sizes of all jumps of a path."""
    window = driver.window(channels, dt, 0, 1)
    rows = jax.jit(lambda b: window.block(member, b))
    found = [rows(b).jumps for b in range(-(-steps // 32))]
    times, sizes = (
        np.concatenate([np.asarray(getattr(r, name)) for r in found])[:steps] for name in ("times", "sizes")
    )
    inside = times < 1.0
    return ((np.arange(steps)[:, None] + times) * dt)[inside], sizes[inside]


def test_jumps_are_a_poisson_process_with_the_distribution():
    times, sizes = jumps_of(cj.Jumps(2.0, lambda u: u**2, key=1), 0.25, 4096)
    waits = np.diff(times)
    n = len(times)
    assert abs(n - 2048) < 4 * np.sqrt(2048)
    assert abs(waits.mean() - 0.5) < 4 * 0.5 / np.sqrt(n)
    assert abs(np.mean(np.exp(-2.0 * waits)) - 0.5) < 4 * np.sqrt(1 / 12 / n)
    assert np.all(np.abs(sizes.mean(axis=0) - 1 / 3) < 4 * np.sqrt((1 / 5 - 1 / 9) / n))


@pytest.mark.parametrize("factor", [3, 0.25])
def test_other_steps_have_the_same_jumps(factor):
    times, sizes = jumps_of(KICKS, 0.1, 96)
    others = jumps_of(KICKS, 0.1 * factor, int(96 / factor))
    np.testing.assert_allclose(others[0], times, atol=1e-13)
    np.testing.assert_array_equal(others[1], sizes)


def test_the_solution_is_that_of_flows_and_jumps_in_order(system):
    """Rotation about a fixed axis between jumps: products of matrix exponentials, whatever dt."""
    free = cj.System(cj.SO3(), lambda m: 1.3 * m[2], [cj.salt(jnp.eye(3)[:2])])
    sol = cj.solve(free, MU0, t1=9.6, dt=0.1, driver=KICKS)
    assert sol.stats.backend == "native"
    cross = lambda x: np.cross(np.eye(3), x)  # row i: e_i × x, so that μ @ cross(x) = μ × x
    flow = lambda x, mu: mu @ expm(cross(np.asarray(x)))
    mu, at = np.asarray(MU0), 0.0
    for t, size in zip(*jumps_of(KICKS, 0.1, 96), strict=True):
        mu = flow([*size, 0.0], flow([0.0, 0.0, 1.3 * (t - at)], mu))
        at = t
    np.testing.assert_allclose(sol.mu[-1], flow([0.0, 0.0, 1.3 * (9.6 - at)], mu), atol=1e-12)
    assert np.ptp(sol.casimirs()) < 2e-15


def test_poisson_kicks_follow_the_exponential_of_the_generator():
    """E μ(t) = exp(tG) μ₀ with G = drift + rate (E flow(kick) − 1), here on the vector μ itself."""
    rate, angle, omega, members = 1.5, 0.9, 0.7, 16384
    free = cj.System(cj.SO3(), lambda m: omega * m[2], [cj.salt([1.0, 0.0, 0.0])])
    driver = cj.Jumps(rate, angle, key=8)
    ens = cj.ensemble(free, MU0, members=members, t1=2.0, dt=0.1, driver=driver, save_every=20)
    generator = lambda x: np.cross(np.eye(3), x).T
    G = generator([0, 0, omega]) + rate * (expm(generator([angle, 0, 0])) - np.eye(3))
    end = ens.mu[:, -1]
    assert np.all(np.abs(end.mean(axis=0) - expm(2.0 * G) @ MU0) < 3.0 * end.std(axis=0) / np.sqrt(members))


@pytest.mark.slow
def test_orders_hold_across_jumps(system):
    ends = lambda method, dts: [
        cj.solve(system, MU0, t1=6.4, dt=dt, driver=KICKS, integrator=method).mu[-1] for dt in dts
    ]
    (exact,) = ends(cj.RKMK("rk4"), [0.1 / 32])
    for method, order in ((cj.RKMK("rk4"), 4), (cj.TMK(), 2)):
        errors = [np.linalg.norm(e - exact) for e in ends(method, [0.2, 0.1, 0.05, 0.025])]
        assert -np.polyfit(np.arange(4), np.log2(errors), 1)[0] == pytest.approx(order, abs=0.25)


def test_nonlinear_noise_jumps_along_the_jump_equation():
    h = lambda m: 0.3 * m[0] * m[1] + 0.2 * m[2] ** 3
    system = cj.System(cj.SO3(), lambda m: 0.0 * m[0], [h])
    driver = cj.Jumps(1.0, 1.7, key=1)
    times, _ = jumps_of(driver, 0.1, 64, channels=1)
    sol = cj.solve(system, MU0, t1=6.4, dt=0.1, driver=driver)
    assert sol.stats.backend == "native"
    slope = jax.jit(jax.grad(h))
    right = lambda _, m: np.cross(m, 1.7 * np.asarray(slope(m)))
    exact = solve_ivp(right, (0, len(times)), MU0, method="DOP853", rtol=1e-12, atol=1e-13).y[:, -1]
    assert len(times) > 2
    np.testing.assert_allclose(sol.mu[-1], exact, atol=1e-9)


def test_members_and_resumed_runs_are_bitwise_equal(system, tmp_path):
    driver = join(cj.Brownian(1), KICKS)
    whole = cj.ensemble(system, MU0, members=9, t1=6.4, dt=0.1, driver=driver, save_every=32)
    one = cj.solve(system, MU0, t1=6.4, dt=0.1, driver=driver)
    np.testing.assert_array_equal(one.mu[::32], whole.mu[0])
    assert len(np.unique(whole.mu[:, -1, 0])) == 9
    path = tmp_path / "run"
    cj.solve(system, MU0, t1=3.0, dt=0.1, driver=driver, out=path)
    other = join(cj.Brownian(1), cj.Jumps(3.0, lambda u: 0.9 * u, key=3, grid=0.1))
    with pytest.raises(Exception, match="distribution"):
        cj.solve(system, MU0, t1=6.4, dt=0.1, driver=other, out=path, resume=True)
    again = cj.solve(system, MU0, t1=6.4, dt=0.1, driver=driver, out=path, resume=True)
    np.testing.assert_array_equal(again.mu, one.mu)


@pytest.mark.slow
def test_derivatives(system):
    """Of the state and of the sizes, in reverse; jump times have none."""

    def end(mu0, size):
        driver = cj.Jumps(3.0, lambda u: size * (2 * u - 1), key=3, grid=0.1)
        return cj.solve(system, mu0, t1=1.6, dt=0.1, driver=driver, integrator=cj.HeunMK()).mu[-1, 0]

    slope, by_size = jax.grad(end, argnums=(0, 1))(MU0, 0.8)
    h = 1e-6
    assert slope[1] == pytest.approx((end(MU0.at[1].add(h), 0.8) - end(MU0.at[1].add(-h), 0.8)) / (2 * h), abs=1e-8)
    assert by_size == pytest.approx((end(MU0, 0.8 + h) - end(MU0, 0.8 - h)) / (2 * h), abs=1e-8)
    with pytest.raises(TypeError, match="rate must be a number known before the run"):
        jax.grad(lambda rate: cj.solve(system, MU0, t1=1.0, dt=0.1, driver=cj.Jumps(rate, 0.1)).mu[-1, 0])(1.0)


@pytest.mark.parametrize(
    ("driver", "error", "message"),
    [
        (lambda: cj.Jumps(np.inf, 1.0), ValueError, "rate must be finite"),
        (lambda: cj.Jumps(0.0, 1.0), ValueError, "rate must be above 0"),
        (lambda: cj.Jumps(1.0, np.nan), ValueError, "distribution must be finite"),
        (lambda: cj.Jumps(1.0, [1.0, 2.0, 3.0]), ValueError, "distribution has 3 numbers"),
        (lambda: cj.Jumps(1.0, lambda u: u[:1]), ValueError, "must return 2 numbers"),
        (lambda: cj.Jumps(1.0, lambda u: u / 0.0), ValueError, "must return finite numbers"),
        (lambda: cj.Jumps(1e4, 1.0), ValueError, "jumps per step are too many"),
        (lambda: join(cj.Brownian(1), cj.OU(1.0), cj.OU(2.0, key=1)), ValueError, "have 3 channels"),
        (lambda: join(cj.OU(1.0), cj.OU(2.0)), ValueError, "the same key"),
        (lambda: join(cj.OU(1.0), 3), TypeError, "part 1 of join must be a driver"),
        (lambda: join(), ValueError, "at least one"),
    ],
)
def test_invalid_arguments(system, driver, error, message):
    with pytest.raises(error, match=message):
        cj.solve(system, MU0, t1=1.0, dt=0.1, driver=driver())


def test_methods_that_need_more_than_increments_raise(system):
    for method in (cj.TMK15(), cj.Adaptive(cj.TMK()), cj.NinomiyaVictoir()):
        with pytest.raises(ValueError, match=r"Jumps|joins several"):
            cj.solve(system, MU0, t1=1.0, dt=0.1, driver=KICKS, integrator=method)
        with pytest.raises(ValueError, match=r"Jumps|joins several"):
            cj.solve(system, MU0, t1=1.0, dt=0.1, driver=join(cj.Brownian(1), KICKS), integrator=method)


# Join.


def test_each_channel_follows_its_own_driver():
    """Against prescribed increments of the parts."""
    system = cj.System(cj.SO3(), hamiltonian, [cj.salt(0.5 * jnp.eye(3))])
    given = np.random.default_rng(0).normal(size=(64, 1)) * 0.1
    parts = cj.Brownian(1), cj.OU(0.3, key=2), cj.Increments(given)
    sol = cj.solve(system, MU0, t1=3.2, dt=0.05, driver=join(*parts))
    rows = [np.concatenate([np.asarray(p.window(1, 0.05, b, 1).block(0, b).S) for b in range(2)]) for p in parts[:2]]
    same = cj.solve(system, MU0, t1=3.2, dt=0.05, driver=cj.Increments(np.hstack([*rows, given])))
    np.testing.assert_allclose(sol.mu, same.mu, rtol=0, atol=1e-13)


def test_brownian_increments_are_divided_at_jumps_with_their_exact_distribution():
    """Commuting noises: only the sum counts, which is the same whether the path is divided or not."""
    system = cj.System(cj.SO3(), lambda m: 0.4 * m[2], [cj.salt(np.array([[0, 0, 1.0], [0, 0, 0.5]]))])
    driver = join(cj.Brownian(1), cj.Jumps(3.0, 0.3, key=2))
    end = cj.solve(system, MU0, t1=3.2, dt=0.1, driver=driver).mu[-1]
    times, _ = jumps_of(cj.Jumps(3.0, 0.3, key=2), 0.1, 32, channels=1)
    dS = np.asarray(cj.Brownian(1).window(1, 0.1, 0, 1).block(0, 0).S)
    angle = 0.4 * 3.2 + dS.sum() + 0.5 * 0.3 * len(times)
    c, s = np.cos(angle), np.sin(angle)
    np.testing.assert_allclose(end, [s * 0.6, c * 0.6, 0.8], atol=1e-12)


@pytest.mark.slow
def test_gradient_through_jumps():
    """With a torque, the attitude, noise and jumps, beside central differences."""
    system = cj.System(
        cj.SO3(),
        lambda mu, p: 0.5 * mu @ (mu / np.array([1.0, 2.0, 3.0])),
        [cj.salt([0.1, 0.2, 0.3]), cj.salt([0.0, 0.3, 0.1])],
        torque=lambda mu, p, g, t: -p * mu + 0.3 * jnp.cos(t) * g[0],
        params=0.4,
    )
    path = cj.drivers.join(cj.Brownian(1), cj.Jumps(4.0, 0.5, key=2))
    run = {"t1": 2.0, "dt": 0.02, "driver": path, "integrator": cj.HeunMK()}

    def end(p, mu0):
        return jnp.sum(cj.solve(system.with_params(p), mu0, **run).mu[-1] ** 3)

    mu0, e = jnp.array([0.5, -0.3, 0.8]), 1e-5
    by_p, by_mu = jax.grad(end, (0, 1))(0.4, mu0)
    np.testing.assert_allclose(by_p, (end(0.4 + e, mu0) - end(0.4 - e, mu0)) / (2 * e), rtol=1e-7)
    shifted = [(end(0.4, mu0.at[k].add(e)) - end(0.4, mu0.at[k].add(-e))) / (2 * e) for k in range(3)]
    np.testing.assert_allclose(by_mu, shifted, rtol=1e-7)
