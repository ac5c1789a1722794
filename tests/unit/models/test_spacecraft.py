"""The spacecraft against Newton's and Euler's equations, written with wheel speeds and quaternions; its sensors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.spatial.transform import Rotation
from scipy.stats import multivariate_normal

import coadjoint as cj

INERTIA = np.array([[2.0, 0.1, -0.2], [0.1, 3.0, 0.3], [-0.2, 0.3, 1.5]])
WHEELS = np.array([[1.0, 0.0, 0.7], [0.0, 1.0, 0.7], [-1.0, 0.0, 0.7], [0.0, -1.0, 0.7]])
AXES = WHEELS / np.linalg.norm(WHEELS, axis=1, keepdims=True)
THRUSTERS = np.array([[0.1, 0.0, 0.3], [0.0, -0.2, 0.1]])
ORBIT = 1.3, 0.3, 1.1, 0.4, 0.7, -0.5
GRAVITY, FIELD, DIPOLE = 1.2, 0.8, np.array([0.1, -0.3, 0.2])
START = np.array([0.9, -0.6, 0.4, 0.2, -0.1, 0.3, 0.05])
EVERY, HOLD = 8, 0.4  # steps and time between samples


def wheel_law(mu, p, g):
    """PD."""
    return (-p["k"] * cj.rotation_to_quaternion(g[0])[1:] - cj.models.body_rate(mu, p)) @ p["wheels"].T / 2


def thruster_law(mu, p, t):
    """Both throttles."""
    return jnp.stack([jnp.clip(mu[0], 0.0, 1.0), 0.5 + 0.5 * jnp.cos(t)])


def dipole_law(mu, p, t, g):
    """The cross-product law."""
    return 0.3 * jnp.cross(mu[:3], g[0].T @ cj.models.magnetic_field(p, t))


LAWS = {"wheels": wheel_law, "thrusters": thruster_law, "dipole": dipole_law}


def craft(every=EVERY, **more):
    """All of its parts."""
    control = {name: cj.hold(law, every=every) for name, law in LAWS.items()}
    return cj.models.spacecraft(
        INERTIA, wheels=WHEELS, thrusters=THRUSTERS, orbit=ORBIT, gravity=GRAVITY, field=FIELD, dipole=DIPOLE,
        control=control, params={"k": 1.5}, start=START, **more,
    )  # fmt: skip


def kepler_start():
    """Position and velocity by the orbital elements, with E from bisection in NumPy."""
    a, e, i, node, pericentre, anomaly = ORBIT
    low, high = anomaly - 1.0, anomaly + 1.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if middle - e * np.sin(middle) < anomaly else (low, middle)
    E, n = 0.5 * (low + high), np.sqrt(GRAVITY / a**3)
    x = np.array([a * (np.cos(E) - e), a * np.sqrt(1 - e * e) * np.sin(E), 0.0])
    v = np.array([-a * np.sin(E), a * np.sqrt(1 - e * e) * np.cos(E), 0.0]) * n / (1 - e * np.cos(E))
    turn = Rotation.from_euler("ZXZ", [node, i, pericentre])
    return turn.apply(x), turn.apply(v)


def field_at(x):
    """That of a dipole which points to the south."""
    r, moment = np.linalg.norm(x), np.array([0.0, 0.0, -1.0])
    return FIELD / r**3 * (3 * (moment @ x) * x / r**2 - moment)


def rates(t, y, u):
    """The rate of the body, the momenta of wheels about their axes, the quaternion (x, y, z, w), the orbit."""
    w, h, q, x, v = y[:3], y[3:7], y[7:11], y[11:14], y[14:]
    R, r = Rotation.from_quat(q), np.linalg.norm(x)
    o, B = R.inv().apply(x / r), R.inv().apply(field_at(x))
    torque = 3 * GRAVITY / r**3 * np.cross(o, INERTIA @ o) + np.cross(DIPOLE + u[2], B) + u[1] @ THRUSTERS
    total = INERTIA @ w + h @ AXES
    dw = np.linalg.solve(INERTIA, u[0] @ AXES + np.cross(total, w) + torque)
    dq = 0.5 * np.array([*(q[3] * w + np.cross(q[:3], w)), -q[:3] @ w])
    return np.concatenate([dw, -u[0], dq, v, -GRAVITY * x / r**3])


def reference(holds):
    """DOP853 from sample to sample."""
    params, x = {"k": 1.5, "wheels": AXES}, kepler_start()
    y = np.concatenate([np.linalg.solve(INERTIA, START[:3] - START[3:] @ AXES), START[3:], [0, 0, 0, 1], *x])
    for k in range(holds):
        R = Rotation.from_quat(y[7:11]).as_matrix()
        pi, b = INERTIA @ y[:3] + y[3:7] @ AXES, R.T @ field_at(y[11:14])
        q = Rotation.from_matrix(R).as_quat(canonical=True)[:3]
        u = (
            (-params["k"] * q - y[:3]) @ AXES.T / 2,
            np.array([np.clip(pi[0], 0, 1), 0.5 + 0.5 * np.cos(HOLD * k)]),
            0.3 * np.cross(pi, b),
        )
        y = solve_ivp(rates, (0, HOLD), y, "DOP853", args=(u,), rtol=1e-12, atol=1e-13).y[:, -1]
    return np.concatenate([INERTIA @ y[:3] + y[3:7] @ AXES, y[3:7]]), Rotation.from_quat(y[7:11]).as_matrix(), y[11:14]


def test_wheels_thrusters_torquers_and_the_orbit():
    """Order 4 towards DOP853; position and field on the orbit."""
    mu, R, x = reference(5)
    errors = []
    for factor in (1, 2):
        system, mu0 = craft(EVERY * factor)
        sol = cj.solve(system, mu0, t1=5 * HOLD, dt=HOLD / EVERY / factor, integrator=cj.RKMK("rk4"))
        assert sol.stats.backend == "native", sol.stats.reason
        errors.append(max(np.abs(sol.mu[-1] - mu).max(), np.abs(sol.attitude()[-1] - R).max()))
    assert errors[0] < 1e-6 and 11 < errors[0] / errors[1] < 22, errors
    p = system.params
    np.testing.assert_allclose(cj.models.orbit_position(p, 5 * HOLD), x, atol=1e-10)
    np.testing.assert_allclose(cj.models.magnetic_field(p, 5 * HOLD), field_at(x), atol=1e-10)
    np.testing.assert_allclose(cj.models.body_rate(START, p), np.linalg.solve(INERTIA, START[:3] - START[3:] @ AXES))


@pytest.mark.slow
def test_members_orbits_as_params_and_derivatives():
    """Members with their own elements, inertias and gains are those of systems of their own; a gradient by elements."""
    system, mu0 = craft()
    run = {"t1": 2 * HOLD, "dt": HOLD / EVERY, "integrator": cj.RKMK("rk4"), "save_every": 2 * EVERY}
    elements = np.array([ORBIT, (2.0, 0.6, 0.2, 0.0, 0.0, 1.0)])
    p = jax.tree.map(lambda x: np.broadcast_to(x, (2, *np.shape(x))), system.params) | {"orbit": elements}
    ens = cj.ensemble(system, mu0, members=2, params=p, **run)
    np.testing.assert_allclose(ens.mu[0, -1], cj.solve(system, mu0, **run).mu[-1], atol=1e-14)

    def end(eccentricity, size=2.0):
        p = system.params | {"orbit": jnp.asarray([size, eccentricity, 0.2, 0.0, 0.0, 1.0])}
        return cj.solve(system.with_params(p), mu0, **run).mu[-1, 1]

    np.testing.assert_allclose(end(0.6), ens.mu[1, -1, 1], atol=1e-14)
    slope = (end(0.6 + 1e-4) - end(0.6 - 1e-4)) / 2e-4
    np.testing.assert_allclose(jax.jit(jax.grad(end))(0.6), slope, rtol=1e-5)


def test_eccentric_anomalies():
    """Kepler's equation for all eccentricities that are allowed."""
    M = np.linspace(-10, 10, 2001)
    for e in (0.0, 0.3, 0.9, 0.99):
        p = {"orbit": (1.0, e, 0.0, 0.0, 0.0, 0.0), "gravity": 1.0}
        x = np.asarray(jax.vmap(lambda t, p=p: cj.models.orbit_position(p, t))(M))
        E = np.arctan2(x[:, 1] / np.sqrt(1 - e * e), x[:, 0] + e)
        np.testing.assert_allclose(np.sin(E - e * np.sin(E) - M), 0.0, atol=2e-13 / (1 - e))


def test_without_wheels_and_orbit_it_is_a_rigid_body():
    """|π|² is conserved, and g is a matrix; noise and drift have their variances."""
    system, mu0 = cj.models.spacecraft(wheels=None, start=(1.0, 2.0, 3.0))
    assert system.algebra == cj.SO3() and cj.solve(system, mu0, t1=1.0, dt=0.1).casimir_errors().max() < 1e-15
    noisy, mu0 = cj.models.spacecraft(disturbance=0.3, gyro_drift=(0.1, 0.2, 0.3), alpha=(0.0, 0.0, 1e-3))
    assert noisy.n_noise == 7 and mu0.shape == (9,)
    ens = cj.ensemble(noisy, mu0, members=4000, t1=1.0, dt=0.1, key=0, save_every=10, integrator=cj.HeunMK())
    deviations = ens.mu[:, -1].std(axis=0)
    np.testing.assert_allclose(deviations[[0, 1, 2, 6, 7, 8]], [0.3, 0.3, 0.3, 0.1, 0.2, 0.3], rtol=0.05)
    assert np.all(deviations[3:6] == 0.0)


def test_sensors():
    """Densities of SciPy; errors with the stated deviations; the posterior of a bias by particles."""
    sd, rng = np.array([0.1, 0.2, 0.3]), np.random.default_rng(0)
    gyro, tracker = cj.models.Gyro(sd), cj.models.StarTracker(0.02 * sd)
    rate, bias, y = rng.standard_normal((3, 3))
    exact = multivariate_normal(rate + bias, np.diag(sd**2)).logpdf(y)
    np.testing.assert_allclose(gyro.log_density(y, rate, bias), exact)
    R = Rotation.random(random_state=1)
    keys = jax.random.split(jax.random.key(0), 4000)
    q = np.asarray(jax.jit(jax.vmap(lambda k: tracker.measure(k, R.as_matrix())))(keys))
    errors = (R.inv() * Rotation.from_quat(q, scalar_first=True)).as_rotvec()
    np.testing.assert_allclose(errors.std(axis=0), 0.02 * sd, rtol=0.05)
    found = jax.jit(jax.vmap(tracker.log_density, (0, None)))(-q[:5], R.as_matrix())
    np.testing.assert_allclose(found, multivariate_normal(np.zeros(3), np.diag((0.02 * sd) ** 2)).logpdf(errors[:5]))
    truth, prior = np.array([0.1, -0.2, 0.3]), 0.3 * rng.standard_normal((40_000, 3))
    data = np.stack([gyro.measure(k, np.zeros(3), truth) for k in range(4)])
    logs = np.asarray(jax.jit(jax.vmap(lambda b: sum(gyro.log_density(y, 0.0 * b, b) for y in data)))(prior))
    weights = np.exp(logs - logs.max())
    kalman = data.sum(axis=0) / sd**2 / (4 / sd**2 + 1 / 0.3**2)
    np.testing.assert_allclose(weights @ prior / weights.sum(), kalman, atol=0.01)


LAW = cj.hold(lambda mu: mu[:3])
BAD = {
    "actuator": ({"control": {"wheel": LAW}}, ValueError, "names no actuator. Actuators are wheels, thrusters"),
    "no thrusters": ({"control": {"thrusters": LAW}}, ValueError, "needs thrusters="),
    "no orbit": ({"control": {"dipole": LAW}}, ValueError, "needs orbit="),
    "no law": ({"control": LAW}, TypeError, "dict of laws by actuator"),
    "dipole": ({"dipole": (0, 0, 1)}, ValueError, "needs the magnetic field of an orbit"),
    "orbit": ({"orbit": (7e6, 1.1, 0, 0, 0, 0)}, ValueError, "eccentricity between 0 and 0.99"),
    "elements": ({"orbit": (7e6,)}, ValueError, "orbit must be 6 numbers"),
    "wheels": ({"wheels": (1, 0, 0)}, ValueError, r"wheels must have shape \(n, 3\)"),
    "axis": ({"wheels": [(0, 0, 0)]}, ValueError, "axes of a length above 0"),
    "params": ({"params": {"inertia": 1}}, ValueError, "argument inertia= of the model"),
    "drift": ({"gyro_drift": np.eye(2)}, ValueError, "gyro_drift must be one number or three"),
    "start": ({"start": (1, 2, 3)}, ValueError, "start must be 6 numbers"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    options, error, words = BAD[case]
    with pytest.raises(error, match=words):
        cj.models.spacecraft(**options)
    with pytest.raises(ValueError, match="noise must be one number above 0"):
        cj.models.Gyro(-1.0)
