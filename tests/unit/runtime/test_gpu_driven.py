"""Time, torques, attitude, control and other drivers on the GPU backend, emulated: the bits are those of a CPU."""

import jax.numpy as jnp
import numpy as np
import pytest
from test_gpu import RUN, emulated, same_on_both  # noqa: F401, the fixture

import coadjoint as cj

INERTIA = np.array([1.0, 2.0, 3.0])


def test_a_controlled_body(emulated):  # noqa: F811
    """Inputs by member, a law with a state, a torque of the attitude, and noise."""
    times, bursts = np.array([0.0, 0.06, 0.12, 0.3]), np.linspace(-1.0, 1.0, 37 * 3).reshape(37, 3)
    law = cj.hold(lambda mu, z, p: (-0.3 * mu - z, z + 0.1 * mu), every=3, state=np.zeros(3))
    push = lambda p, t: jnp.cos(3.0 * t) * cj.inputs.piecewise(times, p)(t)
    system = cj.System(
        cj.SO3(),
        lambda mu, p: 0.5 * mu @ (mu / INERTIA),
        [cj.salt([0.1, 0.2, 0.3])],
        torque=lambda mu, p, t, g, u: u + push(p, t) * g[0],
        control=law,
        params=bursts[0],
    )
    gpu = same_on_both(system, np.array([0.5, -0.3, 0.8]), **RUN, params=bursts, integrator=cj.HeunMK())
    assert gpu.stats.reason == ""


@pytest.mark.parametrize(
    "driver",
    [
        cj.OU(0.1, key=3),
        cj.drivers.join(cj.Brownian(1), cj.Jumps(20.0, 0.3, key=2)),
    ],
    ids=["OU", "Brownian and jumps"],
)
def test_drivers(emulated, driver):  # noqa: F811
    noises = [cj.salt([0.1, 0.2, 0.3]), cj.salt([0.0, 0.3, 0.1])]
    system = cj.System(cj.SO3(), lambda mu: 0.5 * mu @ (mu / INERTIA), noises)
    same_on_both(system, np.array([0.5, -0.3, 0.8]), **(RUN | {"key": None}), driver=driver, integrator=cj.HeunMK())
