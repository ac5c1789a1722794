"""Amplitudes and params as functions of time, or by member."""

import jax.numpy as jnp
import numpy as np
import pytest

import coadjoint as cj

INERTIA, START = np.array([1.0, 2.0, 3.0]), np.array([0.6, -0.3, 0.8])
BETA = 0.3 * np.eye(3)
RUN = {"t1": 0.5, "dt": 0.05, "key": 3, "integrator": cj.HeunMK()}


def kinetic(m):
    """½ π·I⁻¹π."""
    return 0.5 * m @ (m / INERTIA)


def test_noise_and_params_that_change_in_time():
    """The same as functions of time that are written out."""
    system = cj.System(
        cj.SO3(), lambda m, p: p["a"] * kinetic(m), [cj.salt(BETA), cj.white_torque(BETA[:1])], params={"a": 1.0}
    )
    by_hand = cj.System(
        cj.SO3(),
        lambda m, t: jnp.cos(t) * kinetic(m),
        [cj.salt(BETA, scale=lambda t: jnp.exp(-t)), cj.white_torque(BETA[:1], scale=lambda t: 1 + t)],
    )
    varied = cj.vary(system, noise=lambda t: jnp.exp(-t), stirring=lambda t: 1 + t, params=lambda t: {"a": jnp.cos(t)})
    found = cj.solve(varied, START, **RUN)
    assert found.stats.backend == "native", found.stats.reason
    np.testing.assert_allclose(found.mu, cj.solve(by_hand, START, **RUN).mu, atol=1e-14)


def test_amplitudes_by_member():
    """A number is a parameter; the params of the system are beside it."""
    system = cj.System(cj.SO3(), lambda m, p: p * kinetic(m), [cj.salt(BETA)], params=1.2)
    amplitudes = np.array([0.0, 0.5, 2.0])
    ens = cj.ensemble(cj.vary(system, noise=1.0), START, members=3, params={"noise": amplitudes, "system": 1.2}, **RUN)
    for k, a in enumerate(amplitudes):
        one = cj.System(cj.SO3(), lambda m, p: p * kinetic(m), [cj.salt(a * BETA)], params=1.2)
        same = cj.ensemble(one, START, members=3, **RUN)
        np.testing.assert_allclose(ens.mu[k], same.mu[k], atol=1e-14)


@pytest.mark.slow
def test_baths_and_fluids():
    """The temperature of a bath, and the stirring and noise of a fluid by member."""
    bath = cj.heat_bath(cj.System(cj.SO3(), kinetic), temperature=0.2, friction=0.1)
    ramp = cj.vary(bath, params=lambda t: {"temperature": 0.2 + t, "friction": 0.1})
    other = cj.heat_bath(cj.System(cj.SO3(), kinetic), temperature=lambda t: 0.2 + t, friction=0.1)
    np.testing.assert_allclose(cj.solve(ramp, START, **RUN).mu, cj.solve(other, START, **RUN).mu, atol=1e-14)
    fluid, W0 = cj.models.sine_euler(5, noise_modes=((1, 1),), stirring_shells=(1, 1), drag=0.1, key=0)
    double, _ = cj.models.sine_euler(
        5, noise_modes=((1, 1),), amplitude=0.2, stirring_shells=(1, 1), stirring_amplitude=0.05, drag=0.1, key=0
    )
    run = {"t1": 0.2, "dt": 0.05, "key": 1}
    params = {"noise": np.array([1.0, 2.0]), "stirring": np.array([1.0, 0.5])}
    varied = cj.vary(fluid, noise=1.0, stirring=1.0)
    assert cj.fluids.of(varied) is not None
    ens = cj.ensemble(varied, W0, members=2, params=params, **run)
    for k, system in enumerate((fluid, double)):
        same = cj.ensemble(system, W0, members=2, **run)
        np.testing.assert_allclose(ens.mu[k], same.mu[k], atol=1e-12)


PLAIN = cj.System(cj.SO3(), kinetic)
BAD = {
    "none": (lambda: cj.vary(PLAIN, noise=1.0), ValueError, "has no noise"),
    "params": (lambda: cj.vary(PLAIN, params=lambda t: t), ValueError, "has none"),
    "number": (lambda: cj.vary(cj.System(cj.SO3(), kinetic, [cj.salt(BETA)]), noise=[1.0]), ValueError, "finite"),
    "system": (lambda: cj.vary(3.0), TypeError, "vary takes a System"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    make, error, message = BAD[case]
    with pytest.raises(error, match=message):
        make()
