"""The Kalman update as a group action: against the exact posterior, Casimirs, several algebras, errors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from exact_filter import exact_filter, von_mises_fisher

import coadjoint as cj
from coadjoint.data import group_kalman
from coadjoint.data.anomalies import elements_of_anomalies, elements_of_group

AXIS = np.array([1.0, 0, 0])


def test_small_angles_agree_with_the_exact_filter():
    """Where the sphere is nearly flat, mean and spread are those of the exact posterior, up to sampling errors."""
    case = {"sigma": 0.2, "dt": 0.1, "steps": 5, "kappa": 60.0, "start": AXIS, "start_kappa": 60.0}
    y = von_mises_fisher(AXIS, 30.0, 3, np.random.default_rng(2))
    exact = exact_filter(y, **case, top=48, latitudes=104)
    system = cj.System(cj.SO3(), lambda m: 0.0 * m[0], cj.salt(0.2 * np.eye(3)))
    start = von_mises_fisher(AXIS, 60.0, 400, np.random.default_rng(1))
    sensor = cj.data.Gaussian(lambda m: m, std=60**-0.5)
    found = cj.data.GroupKalman(sensor, 400, lag=1).run(system, start, y, times=[0.5, 1.0, 1.5], dt=0.1, key=0)
    assert np.abs(found.mean - exact.means).max() < 0.02
    assert np.abs(np.linalg.norm(found.states, axis=1) - 1).max() < 1e-15 * 4
    assert np.all(found.smoothed_spread[:2, 1] < found.spread[:2, 1])
    assert found.ess is None


def kalman(y, P, Q, R):
    """Means, standard deviations and log evidence of the Kalman filter of a random walk from 0."""
    m, total, rows = np.zeros(len(P)), 0.0, []
    for one in y:
        P = P + Q
        S, error = P + R, one - m
        total -= 0.5 * (error @ np.linalg.solve(S, error) + np.linalg.slogdet(2 * np.pi * S)[1])
        K = P @ np.linalg.inv(S)
        m, P = m + K @ error, P - K @ P
        rows.append((m, np.sqrt(np.diag(P)), total))
    return tuple(np.array(x) for x in zip(*rows, strict=True))


def test_the_limit_of_small_angles_is_the_kalman_filter():
    """A random walk in the tangent plane: means, spreads and evidence, up to sampling errors of 1/√N."""
    N, size, rng = 400, 1e-3, np.random.default_rng(0)
    system = cj.System(cj.SO3(), lambda m: 0.0 * m[0], cj.salt(size * np.array([[0, 1.0, 0], [0, 0, 1.5]])))
    R, Q = size**2 * np.array([[0.5, 0.1], [0.1, 0.3]]), 0.5 * size**2 * np.diag([1.5**2, 1.0])
    x, y = size * rng.standard_normal((N, 2)), size * rng.standard_normal((4, 2))
    start = np.column_stack([np.sqrt(1 - np.sum(x * x, axis=1)), x])
    found = cj.data.GroupKalman(cj.data.Gaussian(lambda m: m[1:], covariance=R), N).run(
        system, start, y, times=[0.5, 1.0, 1.5, 2.0], dt=0.25, key=0
    )
    mean, spread, evidence = kalman(y, size**2 * np.eye(2), Q, R)
    assert np.sqrt(np.mean((found.mean[:, 1:] - mean) ** 2)) < 0.04 * size
    np.testing.assert_allclose(found.spread[:, 1:], spread, rtol=0.12)
    np.testing.assert_allclose(found.log_evidence, evidence, atol=0.3)


def test_blocks_of_members(monkeypatch):
    """Responses of a few members at a time give the same update."""
    y, start = [[0.9, 0.1], [0.8, 0.3]], von_mises_fisher(AXIS, 20.0, 11, np.random.default_rng(0))
    system = cj.System(cj.SO3(), lambda m: 0.0 * m[0], cj.salt(0.3 * np.eye(3)))
    run = cj.data.GroupKalman(cj.data.Gaussian(lambda m: m[1:], std=0.1), 11).run
    whole = run(system, start, y, times=[0.1, 0.2], dt=0.1, key=0)
    monkeypatch.setattr(group_kalman, "_AT_ONCE", 4 * 11 * 2)
    np.testing.assert_allclose(run(system, start, y, times=[0.1, 0.2], dt=0.1, key=0).states, whole.states, atol=1e-14)


@pytest.mark.parametrize("algebra", [cj.SU(3), cj.SE3(), cj.SO3() ** 2], ids=["su3", "se3", "product"])
def test_orbits(algebra):
    """Casimirs of every member after several updates."""
    rng = np.random.default_rng(0)
    beta = [algebra.element(jnp.asarray(c)) for c in 0.3 * np.eye(algebra.dim)]
    system = cj.System(algebra, lambda m: 0.5 * jnp.sum(algebra.coordinates(m)[:2] ** 2), cj.salt(jnp.stack(beta)))
    sensor = cj.data.Gaussian(lambda m: algebra.coordinates(m)[:2], std=0.1)
    start = algebra.element(jnp.asarray(rng.standard_normal(algebra.dim)))
    y = rng.standard_normal((4, 2))
    found = cj.data.GroupKalman(sensor, 12).run(
        system, start, y, times=[0.1, 0.2, 0.4, 0.5], dt=0.1, key=0, integrator=cj.TMK()
    )
    errors = [float(algebra.orbit_error(jnp.asarray(m), start)) for m in found.states]
    assert max(errors) < 4e-15
    assert found.spread.shape == (4, *algebra.shape)


def test_elements_of_anomalies():
    """Tangent anomalies are reproduced by ad*_η μ for a small ridge, in both ways to compute them."""
    algebra, rng = cj.SU(3), np.random.default_rng(1)
    W0 = algebra.element(jnp.asarray(rng.standard_normal(8)))
    steps = [algebra.element(jnp.asarray(1e-4 * rng.standard_normal(8))) for _ in range(20)]
    mu = np.stack([np.asarray(algebra.flow(s, W0)) for s in steps])
    eta = elements_of_anomalies(algebra, mu, 1e-10) * np.sqrt(19)
    moved = np.stack(
        [np.asarray(algebra.ad_star(jnp.asarray(e), jnp.asarray(m))) for e, m in zip(eta, mu, strict=True)]
    )
    anomalies = mu - mu.mean(axis=0)
    assert np.abs(moved - anomalies).max() < 1e-3 * np.abs(anomalies).max()


def test_errors():
    """Other distributions, group elements and few members are not supported."""
    sensor = cj.data.Gaussian(lambda m: m, std=0.1)
    with pytest.raises(TypeError, match=r"normally distributed errors.*VonMisesFisher"):
        cj.data.GroupKalman(cj.data.VonMisesFisher(lambda m: m, 8.0))
    with pytest.raises(ValueError, match="members must be at least 3, not 2"):
        cj.data.GroupKalman(sensor, 2)
    turned = (np.array([np.eye(3), np.diag([-1.0, -1, 1]), np.diag([1.0, -1, -1])]), np.tile(np.eye(3), (3, 1, 1)))
    with pytest.raises(cj.data.FilterError, match="group elements of the members are too far apart"):
        elements_of_group(SATELLITE.algebra, turned, 1)


SIZE = 1e-3
STARS = cj.models.StarTracker(0.5 * SIZE)
SATELLITE, _ = cj.models.spacecraft((1.0, 1.0, 1.0), wheels=None, disturbance=0.3 * SIZE, gyro_drift=0.2 * SIZE)
TRACKER = cj.data.GaussianError(
    lambda mu, y, p, g: jnp.concatenate([STARS.error(y[:4], g[0]), y[4:] - mu[:3] - mu[3:]]), std=0.5 * SIZE
)


def test_attitude_rate_and_bias_are_those_of_the_kalman_filter():
    """At small angles a tumbling body with white torques is linear; no motion along orbits changes rate and bias."""
    N, rng = 400, np.random.default_rng(3)
    x, y = SIZE * rng.standard_normal((N, 9)), SIZE * rng.standard_normal((3, 6))
    attitude = np.asarray(jax.vmap(cj.SO3().group_exp)(x[:, :3]))
    quaternions = np.stack([cj.rotation_to_quaternion(cj.SO3().group_exp(v)) for v in y[:, :3]])
    found = cj.data.GroupKalman(TRACKER, N).run(
        SATELLITE, x[:, 3:], np.hstack([quaternions, y[:, 3:]]), times=[2.0, 4.0, 6.0], dt=1.0, key=0,
        g0=(attitude, np.tile(np.eye(3), (N, 1, 1))),
        save=lambda mu, g: jnp.concatenate([2 * cj.rotation_to_quaternion(g[0])[1:], mu]),
    )  # fmt: skip
    I, Z = np.eye(3), np.zeros((3, 3))
    F = np.block([[I, I, Z], [Z, I, Z], [Z, Z, I]])  # of a step; θ moves by the mean of the rates at both ends
    root = SIZE * np.block([[0.15 * I, Z], [0.3 * I, Z], [Z, 0.2 * I]])
    H = np.block([[I, Z, Z], [Z, I, I]])
    m, P, evidence, rows = np.zeros(9), SIZE**2 * np.eye(9), 0.0, []
    for one in y:
        for _ in range(2):
            m, P = F @ m, F @ P @ F.T + root @ root.T
        S, error = H @ P @ H.T + (0.5 * SIZE) ** 2 * np.eye(6), one - H @ m
        evidence -= 0.5 * (error @ np.linalg.solve(S, error) + np.linalg.slogdet(2 * np.pi * S)[1])
        K = P @ H.T @ np.linalg.inv(S)
        m, P = m + K @ error, P - K @ H @ P
        rows.append((m, np.sqrt(np.diag(P)), evidence))
    mean, spread, total = (np.array(x) for x in zip(*rows, strict=True))
    assert np.sqrt(np.mean(((found.mean - mean) / spread) ** 2)) < 0.15
    np.testing.assert_allclose(found.spread, spread, rtol=0.15)
    np.testing.assert_allclose(found.log_evidence, total, atol=0.6)


@pytest.mark.parametrize("sign", [1, -1])
def test_elements_of_the_group(sign):
    """g_j = ḡ exp(ζ_j) or exp(ζ_j) ḡ with ζ of mean 0, in a product with a factor whose group is trivial."""
    algebra, rng = SATELLITE.algebra, np.random.default_rng(0)
    z = 0.5 * rng.standard_normal((8, 6))
    z[:, 3:] = 0.0
    exp = jax.vmap(algebra.group_exp)
    base = algebra.group_exp(jnp.array([1.0, -2.0, 0.5, 0, 0, 0]))
    product = algebra.group_product
    g = jax.vmap(lambda e: product(base, e) if sign == 1 else product(e, base))(exp(jnp.asarray(z)))
    zeta = elements_of_group(algebra, g, sign)
    assert np.abs(zeta.mean(axis=0)).max() < 1e-12 and np.all(zeta[:, 3:] == 0)
    R, E = np.asarray(g[0]), np.asarray(exp(jnp.asarray(zeta))[0])
    centres = R @ np.swapaxes(E, 1, 2) if sign == 1 else np.swapaxes(E, 1, 2) @ R
    np.testing.assert_allclose(centres, np.tile(centres[0], (8, 1, 1)), atol=1e-12)
