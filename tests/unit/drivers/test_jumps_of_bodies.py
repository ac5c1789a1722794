"""Jumps together with torques, the attitude and dissipation."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import expm

import coadjoint as cj

MU0 = np.array([0.0, 0.6, 0.8])
KICKS = cj.Jumps(3.0, 0.4, key=2, grid=0.1)


def angle_of(steps):
    rows = KICKS.bound(1).window(1, 0.1, 0, 1).block(0, 0).jumps
    return 0.4 * int(np.sum(np.asarray(rows.times)[:steps] < 1.0))


def turned(angle):
    return np.array([np.sin(angle) * 0.6, np.cos(angle) * 0.6, 0.8])


@pytest.mark.parametrize("has", ["torque", "attitude", "dissipation", "classical"])
def test_jumps_of_one_axis_turn_the_state_by_their_sum(has):
    """Rotations about one axis commute with an axial torque, with damping, and with a potential that turns along."""
    beta = [cj.salt([0.0, 0.0, 1.0])]
    free = lambda m: 0.3 * m[2]
    method = cj.Heun() if has == "classical" else cj.TMK()
    if has == "torque":
        system = cj.System(cj.SO3(), free, beta, torque=lambda m: jnp.array([0.0, 0.0, 0.5]))
    elif has == "attitude":
        system = cj.System(cj.SO3(), lambda m, g: 0.3 * m[2] + 0.0 * jnp.sum(g), beta)
    elif has == "dissipation":
        system = cj.System(cj.SO3(), free, beta, dissipation=lambda m, dt: m * jnp.exp(-0.1 * dt))
    else:
        system = cj.System(cj.SO3(), free, beta)
    sol = cj.solve(system, MU0, t1=1.6, dt=0.1, driver=KICKS, integrator=method)
    exact = turned(0.3 * 1.6 + angle_of(16))
    if has == "torque":
        exact[2] += 0.5 * 1.6
    if has == "dissipation":
        exact *= np.exp(-0.16)
    np.testing.assert_allclose(sol.mu[-1], exact, atol=2e-4 if has == "classical" else 1e-10)


def test_the_group_element_jumps():
    system = cj.System(cj.SO3(), lambda m: 0.3 * m[2], [cj.salt([0.0, 0.0, 1.0])])
    sol = cj.solve(system, MU0, t1=1.6, dt=0.1, driver=KICKS, group=True)
    angle = 0.3 * 1.6 + angle_of(16)
    exact = expm(angle * np.array([[0.0, -1, 0], [1, 0, 0], [0, 0, 0]]))
    np.testing.assert_allclose(sol.attitude()[-1], exact, atol=1e-12)
