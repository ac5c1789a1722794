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


def ramp(p, t):
    """Inertia and orbit of a spacecraft, which change in time."""
    return p | {"inertia": p["inertia"] * (1.0 + 0.2 * jnp.sin(t)), "dipole": p["dipole"] * t}


@pytest.mark.slow
def test_a_spacecraft_by_member():
    """Params that change in time, of functions of the attitude and of a law; members have their own."""
    law = cj.hold(lambda mu, z, p, g: (p["gain"] * (g[0][0] - cj.models.body_rate(mu, p)), z), every=2, state=0.0)
    orbit = (1.0, 0.2, 0.3, 0.0, 0.0, 0.0)
    craft, _ = cj.models.spacecraft(
        INERTIA, orbit=orbit, gravity=1.0, field=0.5, dipole=(0.1, 0.2, 0.3), control={"wheels": law},
        params={"gain": 0.4}, alpha=0.3 * np.eye(3),
    )  # fmt: skip
    start = np.concatenate([START, np.zeros(3)])
    varied = cj.vary(craft, noise=lambda t: jnp.exp(-t), params=ramp)
    p = {"system": craft.params | {"gain": np.array([0.4, 0.8])}}
    ens = cj.ensemble(varied, start, members=2, params=p, **RUN)
    assert ens.stats.backend == "native", ens.stats.reason
    for k, gain in enumerate((0.4, 0.8)):
        by_hand = slow_craft(orbit, gain)
        np.testing.assert_allclose(ens.mu[k], cj.ensemble(by_hand, start, members=2, **RUN).mu[k], atol=1e-13)


def slow_craft(orbit, gain):
    """The same, written out."""
    size = lambda t: INERTIA * (1.0 + 0.2 * jnp.sin(t))
    own = lambda mu: mu[:3] - mu[3:]

    def torque(mu, t, g, u):
        R, o = g[0], cj.models.orbit_position({"orbit": orbit, "gravity": 1.0}, t)
        r = jnp.sqrt(o @ o)
        o, B = R.T @ o / r, R.T @ cj.models.magnetic_field({"orbit": orbit, "gravity": 1.0, "field": 0.5}, t)
        outside = 3.0 / r**3 * jnp.cross(o, size(t) * o) + jnp.cross(t * jnp.array([0.1, 0.2, 0.3]), B)
        return jnp.concatenate([outside, -u])

    return cj.System(
        cj.Product(cj.SO3(), cj.StructureConstants(np.zeros((3, 3, 3)))),
        lambda mu, t: 0.5 * own(mu) @ (own(mu) / size(t)),
        [cj.salt(np.concatenate([BETA, np.zeros((3, 3))], axis=1), scale=lambda t: jnp.exp(-t))],
        torque=torque,
        control=cj.hold(lambda mu, t, g: gain * (g[0][0] - own(mu) / size(t)), every=2),
    )


def test_inputs_stay_known():
    """Those of the system inside are checked before a run."""
    u = cj.inputs.linear([0.0, 1.0], [0.0, 1.0])
    inside = cj.System(cj.SO3(), lambda m, p, t: p * u(t) * kinetic(m), params=1.0)
    with pytest.raises(ValueError, match="covers the times 0 to 1"):
        cj.solve(cj.vary(inside, params=lambda t: 1.0 + t), START, t1=2.0, dt=0.1)


@pytest.mark.slow
def test_baths_and_fluids():
    """The temperature of a bath, and the stirring and noise of a fluid by member and in time."""
    bath = cj.heat_bath(cj.System(cj.SO3(), kinetic), temperature=0.2, friction=0.1)
    ramp = cj.vary(bath, params=lambda t: {"temperature": 0.2 + t, "friction": 0.1})
    other = cj.heat_bath(cj.System(cj.SO3(), kinetic), temperature=lambda t: 0.2 + t, friction=0.1)
    np.testing.assert_allclose(cj.solve(ramp, START, **RUN).mu, cj.solve(other, START, **RUN).mu, atol=1e-14)
    cooled = cj.vary(bath, params=lambda p, t: p | {"temperature": p["temperature"] + t})
    members = {"system": {"temperature": np.array([0.2, 0.5]), "friction": 0.1}}
    ens = cj.ensemble(cooled, START, members=2, params=members, **RUN)
    last = cj.heat_bath(cj.System(cj.SO3(), kinetic), temperature=lambda t: 0.5 + t, friction=0.1)
    np.testing.assert_allclose(ens.mu[1], cj.ensemble(last, START, members=2, **RUN).mu[1], atol=1e-14)
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
    for amplitude, system in ((1.0, fluid), (2.0, double)):  # of time, constant here
        ramps = {"noise": lambda t, a=amplitude: a + 0 * t, "stirring": lambda t, a=amplitude: (3 - a) / 2 + 0 * t}
        same = cj.solve(cj.vary(fluid, **ramps), W0, **run)
        np.testing.assert_allclose(same.mu, cj.solve(system, W0, **run).mu, atol=1e-12)


PLAIN = cj.System(cj.SO3(), kinetic)
TIMED = cj.System(cj.SO3(), lambda m, p: p * kinetic(m), params=1.0)
GROUP = cj.System(cj.SO3(), kinetic, [lambda m, g: g[0] @ m])
BAD = {
    "none": (lambda: cj.vary(PLAIN, noise=1.0), ValueError, "has no noise"),
    "params": (lambda: cj.vary(PLAIN, params=lambda t: t), ValueError, "has none"),
    "number": (lambda: cj.vary(cj.System(cj.SO3(), kinetic, [cj.salt(BETA)]), noise=[1.0]), ValueError, "finite"),
    "signature": (lambda: cj.vary(TIMED, params=lambda t, speed: t), TypeError, r"params\(t\) or params\(params, t\)"),
    "group": (lambda: cj.vary(GROUP, noise=1.0), ValueError, "noise that depends on g or u"),
    "system": (lambda: cj.vary(3.0), TypeError, "vary takes a System"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    make, error, message = BAD[case]
    with pytest.raises(error, match=message):
        make()
