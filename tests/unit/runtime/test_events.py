"""Events: members stop where a function of the state changes its sign, with the order of the method."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from tuned import tune

import coadjoint as cj
from coadjoint.runtime.backends import gpu_runtime
from coadjoint.runtime.gradients.info import last_gradient_info

INERTIA = np.array([1.0, 2.0, 3.0])
STARTS = np.array([[0.1, 0.9, 0.4], [0.6, 0.2, 0.5], [0.0, 0.0, 1.0], [0.3, -0.4, 0.6], [0.2, 0.7, -0.3]])
RUN = {"t1": 10.0, "dt": 0.05, "integrator": cj.RKMK("rk4")}


def energy(m):
    return 0.5 * m @ (m / INERTIA)


def middle(m):
    return m[1]


FREE = cj.System(cj.SO3(), energy)
TURNING = cj.System(cj.SO3(), lambda m, p: p * m[2], params=1.0)  # about the third axis, at the rate p
SHAKEN = cj.System(cj.SO3(), lambda m: 0.0 * m[0], [cj.salt([0.0, 0.0, 1.0])])  # by the angle W


def first_event(field, mu0, fn, t1, direction=0):
    """The first event of SciPy's DOP853."""
    event = lambda t, x: fn(x)
    event.terminal, event.direction = True, direction
    run = solve_ivp(field, (0.0, t1), mu0, method="DOP853", rtol=1e-13, atol=1e-14, events=event)
    return (run.t_events[0][0], run.y_events[0][0]) if len(run.t_events[0]) else (np.nan, np.full(len(mu0), np.nan))


@pytest.fixture(scope="module")
def whole():
    return cj.ensemble(FREE, STARTS, members=5, until=middle, **RUN)


def test_events_of_members_are_those_of_scipy(whole):
    free = lambda t, m: np.cross(m, m / INERTIA)
    for k in (0, 1, 3, 4):  # of member 2 the function is 0 all the time
        time, state = first_event(free, STARTS[k], middle, 10.0)
        np.testing.assert_allclose(whole.event_time[k], time, atol=2e-6)
        np.testing.assert_allclose(whole.event_state[k], state, atol=2e-6)
    assert np.isnan(whole.event_time[2]) and np.all(np.isnan(whole.event_state[2]))
    assert "4 of 5 stopped" in repr(whole)
    data = whole.to_xarray()
    assert data.event_time.dims == ("member",) and data.event_state.dims == ("member", "component")


def test_states_are_held_from_the_event_on_and_the_same_before(whole):
    """Those of a run without `until` before the event, on the same orbit, at the function's zero."""
    plain = cj.ensemble(FREE, STARTS, members=5, **RUN)
    for k, time in enumerate(whole.event_time):
        before = whole.t < time if np.isfinite(time) else whole.t >= 0
        np.testing.assert_allclose(whole.mu[k, before], plain.mu[k, before], atol=1e-14)
        assert np.all(whole.mu[k, ~before] == whole.event_state[k])
    assert np.nanmax(np.abs(whole.event_state[:, 1])) < 1e-14
    assert whole.casimir_errors().max() < 1e-15


@pytest.mark.parametrize(("method", "order"), [(cj.RKMK("rk4"), 4), (cj.TMK(), 2)])
def test_the_time_has_the_order_of_the_method(method, order):
    exact, _ = first_event(lambda t, m: np.cross(m, m / INERTIA), STARTS[0], middle, 10.0)
    steps = np.array([0.4, 0.2, 0.1, 0.05])
    runs = [cj.solve(FREE, STARTS[0], t1=12.0, dt=dt, integrator=method, until=middle) for dt in steps]
    errors = [abs(run.event_time - exact) for run in runs]
    slopes = np.diff(np.log(errors)) / np.diff(np.log(steps))
    assert np.all(np.abs(slopes - order) < 0.35), slopes


@pytest.mark.parametrize("direction", ["up", "down"])
def test_a_heavy_top(direction):
    """The axis passes the height of its start, upwards and downwards."""
    chi, start = np.array([0.0, 0.3, 1.0]), np.array([0.4, 0.1, 0.9, 0.6, 0.0, 0.8])
    top = cj.System(cj.SE3(), lambda m: energy(m[:3]) - chi @ m[3:])
    field = lambda t, x: np.concatenate([np.cross(x[:3], x[:3] / INERTIA) + np.cross(chi, x[3:]),
                                         np.cross(x[3:], x[:3] / INERTIA)])  # fmt: skip
    height = lambda m: m[5] - 0.7
    time, state = first_event(field, start, height, 8.0, {"up": 1, "down": -1}[direction])
    run = cj.solve(top, start, t1=8.0, dt=0.005, integrator=cj.RKMK("rk4"), until=height, direction=direction)
    assert 0.1 < time < 8.0
    np.testing.assert_allclose(run.event_time, time, atol=1e-8)
    np.testing.assert_allclose(run.event_state, state, atol=1e-8)


def test_native_code_and_xla_agree_and_batches_do_not_matter(whole, monkeypatch):
    xla = cj.ensemble(FREE, STARTS, members=5, until=middle, backend="xla", **RUN)
    np.testing.assert_allclose(xla.event_time, whole.event_time, atol=1e-12)
    alone = cj.solve(FREE, STARTS[3], until=middle, **RUN)
    assert (alone.stats.backend, alone.stats.reason) == ("native", "")
    assert alone.event_time == whole.event_time[3]
    tune(monkeypatch, max_batch_size=2)
    small = cj.ensemble(FREE, STARTS, members=5, until=middle, **RUN)
    np.testing.assert_array_equal(small.event_time, whole.event_time)
    np.testing.assert_array_equal(small.mu, whole.mu)
    tune(monkeypatch, max_batch_size=8, gpu_launch_members=16)
    monkeypatch.setattr(gpu_runtime, "detect", lambda: gpu_runtime.EmulatedGpu(2))
    gpu = cj.ensemble(FREE, STARTS, members=5, until=middle, backend="native-gpu", **RUN)
    np.testing.assert_array_equal(gpu.event_time, whole.event_time)
    np.testing.assert_array_equal(gpu.event_state, whole.event_state)


def test_a_prepared_run_and_reducers(whole):
    """Reducers receive the state at the event from the event on."""
    prepared = cj.prepare(FREE, dt=0.05, t1=10.0, members=5, integrator=cj.RKMK("rk4"), until=middle)
    np.testing.assert_array_equal(prepared(STARTS).event_time, whole.event_time)
    np.testing.assert_array_equal(prepared(STARTS[::-1]).event_time, whole.event_time[::-1])
    mean = cj.ensemble(FREE, STARTS, members=5, until=middle, reduce=cj.Mean(), **RUN)
    np.testing.assert_array_equal(mean.event_time, whole.event_time)
    np.testing.assert_allclose(mean.reduced["mean"], whole.mu.mean(axis=0), atol=1e-14)


def test_a_resumed_store_has_the_same_bits(whole, tmp_path):
    options = {"members": 5, "until": middle, **RUN}
    cj.ensemble(FREE, STARTS, out=tmp_path / "run.zarr", **(options | {"t1": 6.0}))
    stored = cj.ensemble(FREE, STARTS, out=tmp_path / "run.zarr", resume=True, **options)
    np.testing.assert_array_equal(stored.event_time, whole.event_time)
    np.testing.assert_array_equal(stored.mu, whole.mu)
    data = stored.open()
    np.testing.assert_array_equal(data.event_time, whole.event_time)
    np.testing.assert_array_equal(data.event_state, whole.event_state)
    with pytest.raises(cj.StoreError, match="until"):
        cj.ensemble(FREE, STARTS, out=tmp_path / "run.zarr", resume=True, members=5, **RUN)
    cj.solve(FREE, STARTS[0], until=middle, out=tmp_path / "one.zarr", **RUN)
    assert float(cj.open(tmp_path / "one.zarr").event_time) == whole.event_time[0]


def test_arguments_of_the_function():
    """Params by member, time, the group element, and the value of the control."""
    rates = np.array([0.5, 1.0, 2.0])
    ens = cj.ensemble(
        TURNING, [1.0, 0.0, 0.2], members=3, t1=4.0, dt=0.1, params=rates,
        until=lambda m, p, t: t - 1.5 / p,
    )  # fmt: skip
    np.testing.assert_allclose(ens.event_time, 1.5 / rates, rtol=1e-13)
    turned = cj.solve(TURNING, [1.0, 0.0, 0.2], t1=4.0, dt=0.1, until=lambda m, g: g[0, 0])  # a quarter of a turn
    np.testing.assert_allclose(turned.event_time, np.pi / 2, rtol=1e-13)
    with pytest.raises(AttributeError, match="group"):
        turned.attitude()
    ramp = cj.hold(lambda m, state: (state, state + 0.1), every=5, state=np.zeros(()))
    held = cj.System(cj.SO3(), energy, forcing=lambda m, u: u * jnp.zeros(3), control=ramp)
    run = cj.solve(held, [0.1, 0.9, 0.4], t1=4.0, dt=0.1, until=lambda m, u: u - 0.25)
    np.testing.assert_allclose(run.event_time, 1.5, atol=1e-12)  # held from then on


def test_mean_exit_time_of_a_shaken_spin():
    """The angle W leaves (−1, 1) after the mean time 1; observed every dt, it leaves (−b, b), b = 1 + 0.5826 √dt."""
    members, dt = 8192, 0.01
    start = [1.0, 0.0, 0.0]
    ens = cj.ensemble(
        SHAKEN, start, members=members, t1=14.0, dt=dt, key=1, save_every=1400, integrator=cj.HeunMK(),
        until=lambda m: m[0] - np.cos(1.0),
    )  # fmt: skip
    assert ens.stats.backend == "native" and np.all(np.isfinite(ens.event_time))
    mean, error = ens.event_time.mean(), ens.event_time.std() / np.sqrt(members)
    assert abs(mean + 0.5 * dt - (1 + 0.5826 * np.sqrt(dt)) ** 2) < 3 * error
    assert abs(ens.event_time.var() / (2 / 3 * (1 + 0.5826 * np.sqrt(dt)) ** 4) - 1) < 0.1
    np.testing.assert_allclose(ens.event_state[:, 0], np.cos(1.0), atol=1e-12)


def test_the_time_along_a_path_is_interpolated():
    """Between two steps the path is linear: the time is that of NumPy's interpolation of the angle."""
    dS = 0.3 * np.random.default_rng(3).standard_normal((40, 1))
    run = cj.solve(SHAKEN, [1.0, 0.0, 0.0], t1=4.0, dt=0.1, driver=cj.Increments(dS), integrator=cj.HeunMK(),
                   until=lambda m: m[0] - np.cos(1.0))  # fmt: skip
    angle = np.abs(np.concatenate([[0.0], np.cumsum(dS)]))
    n = int(np.argmax(angle >= 1.0))
    np.testing.assert_allclose(
        run.event_time, 0.1 * (n - 1 + (1 - angle[n - 1]) / (angle[n] - angle[n - 1])), rtol=1e-12
    )


def test_an_event_at_a_jump():
    """The time is that of the jump, for any step size."""
    times = []
    for dt in (0.2, 0.1):
        kicks = cj.Jumps(rate=0.5, distribution=0.7, key=2, grid=0.2)
        run = cj.ensemble(SHAKEN, [1.0, 0.0, 0.0], members=16, t1=8.0, dt=dt, driver=kicks, integrator=cj.RKMK("rk4"),
                          until=lambda m: m[0] - np.cos(1.0))  # fmt: skip
        angle = np.arctan2(run.mu[:, -1, 1], run.mu[:, -1, 0])
        stopped = np.isfinite(run.event_time)
        np.testing.assert_allclose(np.abs(angle[stopped]), 1.4, rtol=1e-12)  # the second kick
        times.append(run.event_time)
    assert 8 < stopped.sum() < 16
    np.testing.assert_allclose(times[0], times[1], rtol=1e-12)


def test_derivatives_of_the_event():
    """Exact ones, of first and second order, also of states held after it; jit and vmap."""

    def time(p):
        return cj.solve(
            TURNING.with_params(p),
            jnp.array([1.0, 0.0, 0.2]),
            t1=3.0,
            dt=0.1,
            save_every=10,
            until=lambda m: m[0] - 0.5,
        ).event_time

    p = 1.3
    exact = np.arccos(0.5) / p
    np.testing.assert_allclose(jax.jit(time)(p), exact, rtol=1e-12)
    np.testing.assert_allclose(jax.grad(time)(p), -exact / p, rtol=1e-10)
    assert "until=" in last_gradient_info().reason
    np.testing.assert_allclose(jax.grad(jax.grad(time))(p), 2 * exact / p**2, rtol=1e-8)
    found = jax.vmap(time)(jnp.array([0.1, 1.3]))
    assert np.isnan(found[0])
    np.testing.assert_allclose(found[1], exact, rtol=1e-12)


def test_what_is_not_supported():
    run = {"t1": 1.0, "dt": 0.1}
    two = cj.System(cj.SO3(), energy, [cj.salt([0.1, 0.2, 0.3]), cj.salt([0.3, 0.0, 0.1])])
    for until, error, words in (
        (lambda m, speed: m[0], TypeError, "until must have the signature"),
        (lambda m, t=0.0: m[0], TypeError, "default"),
        (1.0, TypeError, "until must be a function of the state, not a float"),
        (lambda m: m, ValueError, r"until must return one real number, not shape \(3,\)"),
        (lambda m: m[0] > 0, ValueError, "changes its sign at the event, not one of type bool"),
        (lambda m: m[0] + 1j, ValueError, "complex"),
        (lambda m: (m[0], m[1]), ValueError, "not a tuple"),
        (lambda m: jnp.log(m[0] - 1.0), ValueError, "finite, but it returns nan at the initial state"),
        (lambda m: m[0] / (m[1] - 0.9), ValueError, "finite, but it returns inf"),
    ):
        with pytest.raises(error, match=words):
            cj.solve(FREE, STARTS[0], until=until, **run)
    with pytest.raises(ValueError, match="direction must be"):
        cj.solve(FREE, STARTS[0], until=middle, direction="left", **run)
    with pytest.raises(ValueError, match="give until="):
        cj.solve(FREE, STARTS[0], direction="up", **run)
    with pytest.raises(TypeError, match="NinomiyaVictoir does not follow"):
        cj.solve(two, STARTS[0], until=middle, key=0, integrator=cj.NinomiyaVictoir(), **run)
    with pytest.raises(AttributeError, match="give until="):
        cj.solve(FREE, STARTS[0], integrator=cj.RKMK("rk4"), **run).event_time  # noqa: B018
    with pytest.raises(ValueError, match="at the initial state of member 2"):
        cj.ensemble(FREE, STARTS, members=5, until=lambda m: 1.0 / m[0], **run)


def test_a_value_that_is_not_finite_later_is_an_error():
    """The function causes it, and the message names the function."""
    with pytest.raises(cj.UnsolvedStepError, match="until= returned a value that is not finite"):
        cj.solve(TURNING, [1.0, 0.0, 0.2], t1=4.0, dt=0.1, until=lambda m: jnp.sqrt(m[0]) + 1.0)
