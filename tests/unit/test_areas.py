"""Wong–Zakai area drift: the limit of fast circles, for both sides, linear and nonlinear noise."""

import jax.numpy as jnp
import numpy as np
import pytest

import coadjoint as cj

INERTIA = jnp.array([1.0, 2.0, 3.0])
MU0 = np.array([0.0, 0.6, 0.8])
AREA = 0.7
NOISES = {
    "salt": [cj.salt(jnp.eye(3)[:2])],
    "nonlinear": [lambda m: 0.8 * m[0] * m[1], lambda m: m[2] + 0.3 * m[0] ** 2],
}


def system_with(noise, side, **given):
    return cj.System(cj.SO3(), lambda m, *_: 0.5 * (m @ (m / INERTIA)), noise, side=side, **given)


@pytest.mark.parametrize(
    ("kind", "side"),
    [
        ("salt", "right"),
        ("nonlinear", "left"),
        pytest.param("salt", "left", marks=pytest.mark.slow),
        pytest.param("nonlinear", "right", marks=pytest.mark.slow),
    ],
)
def test_fast_circles_leave_the_area_drift_behind(kind, side):
    """S = r (cos ωt − 1, sin ωt) with r² ω = 2a: it vanishes as 1/√ω, and its area grows as a t."""
    system = system_with(NOISES[kind], side)
    drifting = cj.area_drift(system, [[0, AREA], [-AREA, 0]])
    exact = cj.solve(drifting, MU0, t1=1.0, dt=1 / 256, driver=no_noise(256)).mu[-1]
    without = cj.solve(system, MU0, t1=1.0, dt=1 / 256, driver=no_noise(256)).mu[-1]
    errors = []
    for turns in (32, 128):
        n = 64 * turns
        phase = 2 * np.pi * turns * np.linspace(0, 1, n + 1)
        radius = np.sqrt(2 * AREA / (2 * np.pi * turns))
        S = radius * np.stack([np.cos(phase) - 1, np.sin(phase)], axis=1)
        driver = cj.Increments(np.diff(S, axis=0))
        end = cj.solve(system, MU0, t1=1.0, dt=1 / n, driver=driver, integrator=cj.RKMK("rk4")).mu[-1]
        errors.append(np.linalg.norm(end - exact))
    assert errors[1] < 0.6 * errors[0] < 0.2 * np.linalg.norm(without - exact)


def no_noise(steps):
    return cj.Increments(np.zeros((steps, 2)))


def test_the_drift_stays_on_the_orbit_and_follows_params_and_time():
    noise = [cj.salt(lambda p, t: p["size"] * (1 + t) * jnp.eye(3)[:2])]
    system = system_with(noise, "left", params={"size": 0.3})
    drifting = cj.area_drift(system, [[0, AREA], [-AREA, 0]])
    now = drifting.with_params({"size": 0.5}).at(1.0)
    np.testing.assert_allclose(now.force(jnp.asarray(MU0)), [0, 0, AREA * 0.5**2 * 4])
    sol = cj.solve(drifting, MU0, t1=1.0, dt=0.1, key=0)
    assert np.ptp(sol.casimirs()) < 1e-15


@pytest.mark.parametrize(
    ("areas", "message"),
    [
        (np.zeros((3, 3)), "must have shape"),
        ([[0, 1], [1, 0]], "must be antisymmetric"),
        ([[0, np.nan], [np.nan, 0]], "must be finite"),
    ],
)
def test_invalid_areas(areas, message):
    with pytest.raises(ValueError, match=message):
        cj.area_drift(system_with(NOISES["salt"], "left"), areas)
