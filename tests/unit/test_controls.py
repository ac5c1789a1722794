"""Sample-and-hold control."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coadjoint as cj

INERTIA, START = np.array([1.0, 2.0, 3.0]), np.array([0.6, -0.3, 0.8])
EVERY, DT = 4, 0.05
RUN = {"t1": 1.0, "dt": DT, "integrator": cj.RKMK("rk4")}


def kinetic(m):
    """½ π·I⁻¹π."""
    return 0.5 * m @ (m / INERTIA)


def law(m, z, gain, t):
    """A PI law: the integral of the momentum is the discrete state."""
    new = z + EVERY * DT * m
    return -gain * m - 0.3 * new + 0.1 * jnp.sin(t), new


def system(**control):
    """A body whose torque is held."""
    return cj.System(cj.SO3(), lambda m, p: kinetic(m), torque=lambda m, p, u: u, params=0.8, **control)


HELD = system(control=cj.hold(law, every=EVERY, state=np.zeros(3)))


def by_hand(start, gain=0.8, method=RUN["integrator"]):
    """Legs of constant torque, and the values of the control law."""
    constant = cj.System(cj.SO3(), lambda m, p: kinetic(m), torque=lambda m, p: p, params=np.zeros(3))
    m, z, states, values = np.asarray(start), np.zeros(3), [np.asarray(start)], []
    for k in range(5):
        u, z = law(m, z, gain, k * EVERY * DT)
        leg = cj.solve(constant.with_params(u), m, t1=EVERY * DT, dt=DT, integrator=method)
        m = np.asarray(leg.mu[-1])
        states.extend(np.asarray(leg.mu[1:]))
        values.append(np.asarray(u))
    return np.array(states), np.array(values)


@pytest.fixture(scope="module")
def alone():
    return cj.solve(HELD, START, **RUN)


def test_the_law_is_held_between_its_steps(alone):
    states, values = by_hand(START)
    assert alone.stats.backend == "native", alone.stats.reason
    np.testing.assert_allclose(alone.mu, states, atol=1e-14)
    for backend in ("native", "xla"):
        sol = cj.solve(HELD, START, **RUN, save=lambda m, u: (m, u), backend=backend)
        np.testing.assert_allclose(sol.saved[0], states, atol=1e-14)
        np.testing.assert_allclose(sol.saved[1][:-1], np.repeat(values, EVERY, axis=0), atol=1e-14)
    np.testing.assert_allclose(alone.energy(), [kinetic(m) for m in alone.mu], rtol=1e-14)
    assert "with control" in repr(HELD)


def test_members_resumed_runs_and_derivatives(alone, tmp_path):
    gains = np.array([0.8, 0.4, 0.1])
    ens = cj.ensemble(HELD, START, members=3, params=gains, **RUN)
    for k, gain in enumerate(gains):
        np.testing.assert_allclose(ens.mu[k], by_hand(START, gain)[0], atol=1e-14)
    cj.solve(HELD, START, **(RUN | {"t1": 0.3}), out=tmp_path / "legs.zarr")  # in the middle of a held value
    legs = cj.solve(HELD, START, **RUN, out=tmp_path / "legs.zarr", resume=True)
    assert np.asarray(legs.mu).tobytes() == np.asarray(alone.mu).tobytes()
    other = system(control=cj.hold(law, every=2 * EVERY, state=np.zeros(3)))
    with pytest.raises(cj.StoreError, match="control"):
        cj.solve(other, START, **(RUN | {"t1": 2.0}), out=tmp_path / "legs.zarr", resume=True)
    end = jax.jit(lambda gain: cj.solve(HELD.with_params(gain), START, **RUN).mu[-1] @ jnp.arange(3.0))
    e = 1e-5
    np.testing.assert_allclose(jax.grad(end)(0.8), (end(0.8 + e) - end(0.8 - e)) / (2 * e), rtol=1e-8)


def test_several_laws_and_the_group_element():
    """An attitude controller every step, and a switch every five; implicit steps, and noise."""
    control = {
        "attitude": cj.hold(lambda m, g: -2.0 * cj.rotation_to_quaternion(g)[1:] - m),
        "push": cj.hold(lambda m, t: jnp.where(t < 0.5, 1.0, 0.0), every=5),
    }
    axis = np.array([0.0, 0.1, 0.0])
    pointing = cj.System(
        cj.SO3(),
        kinetic,
        [cj.salt([0.0, 0.0, 0.01])],
        torque=lambda m, u: u["attitude"] + u["push"] * axis,
        control=control,
    )
    g0 = cj.quaternion_to_rotation([0.9, 0.3, -0.2, 0.1])
    sol = cj.solve(pointing, START, t1=20.0, dt=0.1, key=1, g0=g0, save=lambda m, u: u["push"])
    np.testing.assert_array_equal(sol.saved, np.where(np.arange(201) < 5, 1.0, 0.0))
    quiet = cj.solve(pointing, START, t1=20.0, dt=0.1, driver=cj.Increments(np.zeros((200, 1))), g0=g0)
    assert np.linalg.norm(quiet.attitude("quaternion")[-1, 1:]) < 1e-3
    assert np.linalg.norm(quiet.mu[-1]) < 1e-3


BAD = {
    "law": (lambda: cj.hold(3.0), TypeError, "law must be a function"),
    "every": (lambda: cj.hold(lambda m: m, every=0), ValueError, "every"),
    "no hold": (lambda: cj.System(cj.SO3(), kinetic, control=lambda m: m), TypeError, r"control must be hold"),
    "state": (
        lambda: cj.System(cj.SO3(), kinetic, control=cj.hold(lambda m, z: m, state=1.0)),
        ValueError,
        r"must return \(u, state\)",
    ),
    "signature": (
        lambda: cj.System(cj.SO3(), kinetic, control=cj.hold(lambda m, z: m)),
        TypeError,
        r"control must have the signature control\(mu\)",
    ),
    "u": (
        lambda: cj.System(cj.SO3(), lambda u, m: m @ m, control=cj.hold(lambda m: m)),
        TypeError,
        r"write hamiltonian\(mu, u\)",
    ),
    "energy": (
        lambda: cj.solve(
            cj.System(cj.SO3(), lambda m, u: u * m[0], control=cj.hold(lambda m: m[1])), START, t1=0.2, dt=0.1
        ).energy(),
        AttributeError,
        "control u",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    make, error, message = BAD[case]
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize("name", ["g", "u"])
def test_a_step_that_fails_is_reported_as_such(name):
    """With functions of the attitude or the control, too: the size of ∂h is not known there."""
    if name == "u":
        held = {"torque": lambda mu, u: u, "control": cj.hold(lambda mu: jnp.sqrt(-mu))}
    else:
        held = {"torque": lambda mu, g: -1e6 * mu + jnp.exp(1e3 * g[0] @ mu) * g[0]}
    unstable = cj.System(cj.SO3(), lambda m: 0.5 * m @ m, **held)
    with pytest.raises(cj.UnsolvedStepError, match=r"\|σ\| is not known"):
        cj.solve(unstable, [0.1, 0.2, 0.8], t1=10.0, dt=1.0)


def test_an_argument_u_needs_a_control():
    with pytest.raises(TypeError, match=r"An argument u receives the held control: give System\(\.\.\., control="):
        cj.System(cj.SO3(), kinetic, torque=lambda mu, u: u)
