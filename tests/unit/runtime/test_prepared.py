"""`prepare`: repeated runs are those of solve and ensemble, bitwise; short runs of matrices in one call."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tuned import tune

import coadjoint as cj

MEMBERS = 5
RNG = np.random.default_rng(0)


def same(a, b):
    """Both runs are bitwise identical."""
    assert np.array_equal(a.t, b.t)
    leaves = jax.tree.leaves((a.values, a.g, getattr(a, "reduced", None)))
    for x, y in zip(leaves, jax.tree.leaves((b.values, b.g, getattr(b, "reduced", None))), strict=True):
        np.testing.assert_array_equal(x, y)
    assert a.stats == b.stats


@pytest.fixture(scope="module")
def body():
    """A spinning body with inertia as params, and noise."""
    h = lambda mu, p: 0.5 * mu @ (p["a"] * mu)
    return cj.System(cj.SO3(), h, [cj.salt(0.1 * np.eye(3)[:2])], params={"a": np.array([1.0, 2.0, 3.0])})


@pytest.fixture(scope="module")
def fluid():
    """A stirred fluid of matrices, and states of members."""
    system, W0 = cj.models.sine_euler(n=9, noise_modes=((1, 1),), amplitude=0.1, key=0)
    return system, np.asarray(W0) * np.linspace(0.5, 1.0, MEMBERS)[:, None, None]


def rotations(count):
    """Rotations by an angle each."""
    angle = RNG.uniform(0, 6, count)
    g = np.zeros((count, 3, 3))
    g[:, 2, 2] = 1.0
    g[:, 0, 0] = g[:, 1, 1] = np.cos(angle)
    g[:, 0, 1], g[:, 1, 0] = -np.sin(angle), np.sin(angle)
    return g


@pytest.mark.parametrize("backend", ["auto", "xla"])
def test_a_prepared_trajectory_is_that_of_solve(body, backend):
    """With other states, keys, params, group elements and initial times."""
    run = cj.prepare(body, dt=0.1, steps=4, save_every=2, group=True, backend=backend)
    for key, t0 in ((0, 0.0), (1, 0.3)):
        mu0, g0, params = RNG.standard_normal(3), rotations(1)[0], {"a": RNG.uniform(1, 2, 3)}
        options = {"t0": t0, "t1": t0 + 0.4, "dt": 0.1, "save_every": 2, "group": True, "backend": backend}
        expected = cj.solve(body.with_params(params), mu0, key=key, g0=g0, **options)
        same(run(mu0, key=key, params=params, g0=g0, t0=t0), expected)
    same(run(mu0, driver=cj.Increments(np.ones((4, 2)))),
         cj.solve(body, mu0, t1=0.4, dt=0.1, save_every=2, group=True, backend=backend,
                  driver=cj.Increments(np.ones((4, 2)))))  # fmt: skip


def test_a_prepared_ensemble_is_that_of_ensemble(body):
    """States, params, group elements and paths by member or for all, in one prepared run."""
    run = cj.prepare(body, dt=0.1, t1=0.3, members=MEMBERS, group=True)
    options = {"members": MEMBERS, "t1": 0.3, "dt": 0.1, "group": True}
    states, g0 = RNG.standard_normal((MEMBERS, 3)), rotations(MEMBERS)
    paths = cj.Increments(RNG.standard_normal((MEMBERS, 3, 2)))
    a = {"a": RNG.uniform(1, 2, (MEMBERS, 3))}
    for given in (
        {"mu0": states, "key": 1},
        {"mu0": states[0], "key": 2, "g0": g0},
        {"mu0": states, "driver": paths, "g0": g0, "params": a},
        {"mu0": states, "driver": cj.Increments(np.ones((3, 2))), "params": {"a": np.ones(3)}},
        {"mu0": states, "key": 1},
    ):
        same(run(**given), cj.ensemble(body, **given, **options))


def test_a_warm_call_follows_what_its_arguments_are_now(body):
    """Copies of a system with other arrays, and arrays of NumPy's that were changed in place, between equal calls."""
    options = {"t1": 0.3, "dt": 0.1, "key": 1, "group": True}
    beta, mu0, a, g0 = 0.1 * np.eye(3)[:2], RNG.standard_normal(3), np.array([1.0, 2.0, 3.0]), rotations(1)[0]
    h = lambda mu, p: 0.5 * mu @ (p["a"] * mu)
    fresh = lambda: cj.System(cj.SO3(), h, [cj.salt(beta)], params={"a": a})
    prepared = cj.prepare(body, t1=0.3, dt=0.1, group=True)
    first = cj.solve(body, mu0, g0=g0, **options)
    same(prepared(mu0, key=1, g0=g0), first)
    before = jax.tree.map(np.copy, (first.mu, first.g, first.system.params))
    for array, new in ((mu0, 1.5 * mu0), (g0, rotations(1)[0]), (a, a + 1.0), (beta, 2.0 * beta)):
        array[:] = new
        expected = cj.solve(fresh(), mu0, g0=g0, **options)
        copy = eqx.tree_at(lambda s: s.noises[0].beta, body, jnp.asarray(beta)).with_params({"a": a})
        same(cj.solve(copy, mu0, g0=g0, **options), expected)
        if array is not beta:
            same(prepared(mu0, key=1, g0=g0, params={"a": a}), expected)
    jax.tree.map(np.testing.assert_array_equal, (first.mu, first.g, first.system.params), before)


def test_reducers_save_and_derivatives(body):
    """Statistics, functions of the state, and runs inside of JAX's transformations."""
    run = cj.prepare(body, dt=0.1, steps=2, members=4, reduce=cj.Mean(), save=lambda mu: mu[:2])
    options = {"t1": 0.2, "dt": 0.1, "key": 0, "reduce": cj.Mean(), "save": lambda mu: mu[:2]}
    same(run([1.0, 0, 0], key=0), cj.ensemble(body, [1.0, 0, 0], members=4, **options))
    free = cj.System(cj.SO3(), lambda mu: 0.5 * mu @ (jnp.array([1.0, 2.0, 3.0]) * mu))
    step = cj.prepare(free, dt=0.1, steps=2)
    end = lambda mu: cj.solve(free, mu, t1=0.2, dt=0.1).mu[-1] @ jnp.ones(3)
    mu0 = jnp.array([0.3, 0.5, 0.7])
    np.testing.assert_array_equal(jax.grad(lambda mu: step(mu).mu[-1] @ jnp.ones(3))(mu0), jax.grad(end)(mu0))


def test_saved_times_inputs_and_mistakes(body):
    """Given times, and errors that name the argument."""
    run = cj.prepare(body, dt=0.1, steps=4, save_at=[0.1, 0.4])
    same(run(np.ones(3), key=0), cj.solve(body, np.ones(3), t1=0.4, dt=0.1, save_at=[0.1, 0.4], key=0))
    with pytest.raises(ValueError, match="save_at"):
        run(np.ones(3), key=0, t0=5.0)
    with pytest.raises(ValueError, match="steps or t1"):
        cj.prepare(body, dt=0.1)
    with pytest.raises(ValueError, match="steps or t1"):
        cj.prepare(body, dt=0.1, steps=2, t1=0.2)
    with pytest.raises(ValueError, match="steps must be at least 1"):
        cj.prepare(body, dt=0.1, steps=0)
    with pytest.raises(ValueError, match="members="):
        cj.prepare(body, dt=0.1, steps=1, reduce=cj.Mean())
    with pytest.raises(ValueError, match="mu0 must be finite"):
        run([np.nan, 0, 0], key=0)
    with pytest.raises(ValueError, match="key"):
        run(np.ones(3))
    with pytest.raises(ValueError, match="params"):
        run(np.ones(3), key=0, params={"a": np.ones(2)})
    with pytest.raises(ValueError, match="dS has the paths of 3 members"):
        cj.prepare(body, dt=0.1, steps=1, members=2)(np.ones(3), driver=cj.Increments(np.zeros((3, 1, 2))))
    with pytest.raises(ValueError, match="g0 of member 1 is not in the group"):
        cj.prepare(body, dt=0.1, steps=1, members=2, group=True)(np.ones(3), key=0, g0=[np.eye(3), -np.eye(3)])
    assert "4 steps of dt = 0.1, TMK" in repr(run)


@pytest.mark.parametrize("more", [{"group": True}, {"save": lambda W: W.imag[0]}], ids=["group", "save"])
def test_short_runs_of_matrices_have_the_bits_of_long_ones(fluid, monkeypatch, more):
    """All members in one call, or each separately in chunks: solve and ensemble, with a path of each member."""
    system, states = fluid
    driver = cj.Increments(RNG.standard_normal((MEMBERS, 4, 1)) * 0.1)
    options = {"t1": 0.2, "dt": 0.05, "save_every": 2, "integrator": cj.HeunMK(), **more}
    run = lambda: cj.ensemble(system, states, members=MEMBERS, driver=driver, **options)
    short = run()
    one = cj.solve(system, states[1], driver=cj.Increments(driver.dS[1]), **options)
    for x, y in zip(jax.tree.leaves((one.values, one.g)), jax.tree.leaves((short.values, short.g)), strict=True):
        np.testing.assert_array_equal(x, y[1])
    same(cj.prepare(system, members=MEMBERS, **options)(states, driver=driver), short)
    tune(monkeypatch, short_run_steps=0)
    same(short, run())


@pytest.mark.slow
def test_a_member_with_a_hard_step_runs_again_by_itself(fluid, monkeypatch):
    """A step that needs a fallback ends a short run. The other members keep their results."""
    system, states = fluid
    states = states.copy()
    states[2] *= 400.0
    run = lambda: cj.ensemble(
        system, states, members=MEMBERS, t1=0.1, dt=0.05, key=0, throw=False, integrator=cj.TMK(max_steps=12)
    )  # fmt: skip
    short = run()
    tune(monkeypatch, short_run_steps=0)
    same(short, run())
    assert short.stats.most_iterations > 12 or short.stats.unsolved


def test_states_of_a_run_are_not_changed(fluid):
    """A state that a run returns is taken as it is: its round-off is not removed again."""
    system, states = fluid
    run = lambda mu: cj.solve(system, mu, t1=0.1, dt=0.1, key=0, integrator=cj.HeunMK())
    end = run(states[0]).mu[1]
    np.testing.assert_array_equal(run(end).mu[0], end)
