"""Inputs: functions of time made of numbers."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from scipy.integrate import solve_ivp
from scipy.interpolate import CubicSpline

import coadjoint as cj

INERTIA = np.array([1.0, 2.0, 3.0])
START = np.array([0.6, -0.3, 0.8])
TIMES = np.array([0.0, 0.5, 0.75, 2.0])
VALUES = np.array([0.3, -0.2, 0.9, 0.4])


def spun(u):
    """A rigid body with a rotor along the first axis."""
    return cj.System(cj.SO3(), lambda m, t: 0.5 * m @ (m / INERTIA) + u(t) * m[0])


@pytest.mark.parametrize("n", [4, 60, 61])
def test_values(n):
    """Against NumPy and SciPy, at inner times, switches and both ends; few pieces, many, and an equal grid."""
    rng = np.random.default_rng(n)
    times = np.linspace(1.0, 3.0, n) if n == 60 else np.cumsum(rng.uniform(0.1, 1.0, n))
    values = rng.standard_normal((n, 2))
    t = np.concatenate([times, rng.uniform(times[0], times[-1], 50)])
    held = jax.vmap(cj.inputs.piecewise(times, values[:-1]))(t)
    k = np.minimum(np.searchsorted(times, t, side="right") - 1, n - 2)
    np.testing.assert_array_equal(held, values[k])
    lines = jax.vmap(cj.inputs.linear(times, values))(t)
    np.testing.assert_allclose(lines, np.stack([np.interp(t, times, y) for y in values.T], 1), atol=1e-13)
    spline = jax.vmap(cj.inputs.cubic(times, values))(t)
    np.testing.assert_allclose(spline, CubicSpline(times, values)(t), atol=1e-12)


def test_outside_of_its_times_an_input_is_no_number():
    u = cj.inputs.linear(TIMES, VALUES)
    assert np.isnan(u(-0.1)) and np.isnan(u(2.1)) and u(2.0) == VALUES[-1]


def test_sums_products_and_periods():
    u = cj.inputs.linear([0, 1], [1.0, 3.0])
    pulse = cj.inputs.modulated(u, lambda t: jnp.cos(9 * t))
    np.testing.assert_allclose(pulse(0.5), 2 * np.cos(4.5), rtol=1e-15)
    np.testing.assert_allclose((2 * u + cj.inputs.constant(1.0))(0.25), 4.0, rtol=1e-15)
    saw = cj.inputs.periodic(u, 1.0)
    np.testing.assert_allclose([saw(3.25), saw(-0.75)], [1.5, 1.5], rtol=1e-14)
    with pytest.raises(ValueError, match="must cover the times 0 to 2 of one period"):
        cj.inputs.periodic(u, 2.0)


def test_tables(tmp_path):
    np.save(tmp_path / "u.npy", np.stack([TIMES, VALUES], 1))
    np.testing.assert_allclose(cj.inputs.table(tmp_path / "u.npy")(0.25), 0.05, atol=1e-15)
    data = xr.Dataset({"speed": ("time", VALUES), "other": ("time", VALUES)}, {"time": TIMES})
    data.to_netcdf(tmp_path / "u.nc", engine="scipy")
    u = cj.inputs.table(tmp_path / "u.nc", value="speed", kind="cubic")
    np.testing.assert_allclose(u(0.3), CubicSpline(TIMES, VALUES)(0.3), rtol=1e-13)
    with pytest.raises(ValueError, match=r"must have the variables .* but it has: speed, other, time"):
        cj.inputs.table(tmp_path / "u.nc")


def by_parts(u):
    """The state at time 2 by DOP853, which starts anew at each switch."""
    field = jax.jit(lambda m, t: jnp.cross(m, m / INERTIA + jnp.array([1.0, 0, 0]) * u(t)))
    mu = START
    for a, b in pairwise(TIMES):
        ode = lambda t, y, a=a, b=b: np.asarray(field(y, min(max(t, a + 1e-13), b - 1e-13)))
        mu = solve_ivp(ode, (a, b), mu, method="DOP853", rtol=3e-14, atol=1e-15).y[:, -1]
    return mu


@pytest.mark.parametrize("kind", ["piecewise", "linear"])
@pytest.mark.parametrize("method", [cj.RKMK("rk4"), cj.CommutatorFree(4), cj.TMK(), cj.HeunMK()], ids=str)
def test_a_switch_on_the_grid_costs_no_order(kind, method):
    """The start of a step takes the right limit and its end the left limit, also where t is not 0 at the start."""
    u = cj.inputs.piecewise(TIMES, VALUES[:-1]) if kind == "piecewise" else cj.inputs.linear(TIMES, VALUES)
    exact, errors, counts = by_parts(u), [], (16, 32, 64, 128)
    for n in counts:
        sol = cj.solve(spun(u), START, t1=2.0, dt=2.0 / n, integrator=method)
        errors.append(np.max(np.abs(sol.mu[-1] - exact)))
    assert sol.stats.backend == "native", sol.stats.reason
    slope = -np.polyfit(np.log(counts), np.log(errors), 1)[0]
    assert abs(slope - method.claims.order) < 0.25, errors


def test_a_switch_at_time_zero_of_a_run_that_starts_before():
    """Round-off of t₀ + n dt near 0 is that of t₀; the switch is met all the same."""
    u = cj.inputs.piecewise([-1000.0, 0.0, 1000.0], [0.0, 0.7])
    whole = cj.solve(spun(u), START, t0=-100.1, t1=0.1, dt=0.1, integrator=cj.RKMK("rk4"))
    before = cj.solve(spun(lambda t: 0.0 * t), START, t0=-100.1, t1=0.0, dt=0.1, integrator=cj.RKMK("rk4"))
    after = cj.solve(spun(lambda t: 0.7 + 0.0 * t), before.mu[-1], t1=0.1, dt=0.1, integrator=cj.RKMK("rk4"))
    np.testing.assert_allclose(whole.mu[-1], after.mu[-1], atol=1e-12)


def test_inputs_are_checked_before_a_run():
    u = cj.inputs.piecewise(TIMES, VALUES[:-1])
    with pytest.raises(ValueError, match="input of hamiltonian covers the times 0 to 2, but the run goes from 0 to 3"):
        cj.solve(spun(u), START, t1=3.0, dt=0.25)
    with pytest.warns(UserWarning, match=r"input of hamiltonian switches at t = 0\.5, inside a time step"):
        cj.solve(spun(u), START, t1=1.6, dt=0.2)
    saw = cj.inputs.periodic(cj.inputs.linear([0, 0.3], [0.0, 1.0]), 0.3)
    with pytest.warns(UserWarning, match=r"switches at t = 0\.3"):
        cj.solve(spun(saw), START, t1=1.0, dt=0.2)
    cj.solve(spun(saw), START, t1=1.2, dt=0.1)
    late = cj.System(cj.SO3(), lambda m, t: u(2 * t) * m[0])
    with pytest.raises(cj.UnsolvedStepError):  # nothing is made up outside of the times
        cj.solve(late, START, t1=1.5, dt=0.25)


SHORT = cj.inputs.linear([0.0, 1.0], [1.0, 2.0])
FREE, SHAKEN = (cj.System(cj.SO3(), lambda m: m @ m, noise) for noise in ((), cj.salt(np.eye(3))))
WAYS = {  # a name, and a system with an input, or options of a run with one
    "noise": cj.vary(SHAKEN, noise=lambda t: SHORT(t)),
    "hamiltonian": cj.vary(cj.System(cj.SO3(), lambda m, p, t: p * SHORT(t) * m[0], params=1.0), params=lambda t: t),
    "temperature": cj.heat_bath(FREE, temperature=SHORT, friction=0.1),
    "friction": cj.double_bracket(FREE, friction=SHORT),
    "control": cj.System(cj.SO3(), lambda m: m[0], torque=lambda m, u: u * m, control=cj.hold(lambda m, t: SHORT(t))),
    "scale": cj.System(cj.SO3(), lambda m: m[0], cj.salt(np.eye(3), scale=lambda t: SHORT(t))),
    "torque": cj.System(cj.SO3(), lambda m: m[0], torque=lambda m, t: SHORT(t) * m),
    "dissipation": cj.System(cj.SO3(), lambda m: m[0], dissipation=lambda m, dt, t: m * (1 - dt * SHORT(t))),
    "save": {"save": lambda m, t: SHORT(t) * m},
    "until": {"until": lambda m, t: SHORT(t) - 3.0},
}


@pytest.mark.parametrize("name", WAYS)
def test_an_input_that_ends_before_the_run_is_an_error(name):
    """Wherever a system or a run uses it."""
    way = WAYS[name]
    system, options = (FREE, way) if isinstance(way, dict) else (way, {})
    key = {"key": 0} if system.n_noise else {}
    with pytest.raises(ValueError, match=f"an input of {name} covers the times 0 to 1, but the run goes from 0 to 2"):
        cj.solve(system, START, t1=2.0, dt=0.1, **key, **options)


def test_inputs_as_params():
    """Values can be differentiated and vary by member; times are part of the program."""
    system = cj.System(
        cj.SO3(), lambda m, u, t: 0.5 * m @ (m / INERTIA) + u(t) * m[0], params=cj.inputs.linear(TIMES, VALUES)
    )
    end = lambda y: cj.solve(system.with_params(cj.inputs.linear(TIMES, y)), START, t1=2.0, dt=0.25).mu[-1, 0]
    slope = jax.jit(jax.grad(end))(jnp.asarray(VALUES))
    step = 1e-5 * np.eye(4)
    differences = [(end(VALUES + d) - end(VALUES - d)) / 2e-5 for d in step]
    np.testing.assert_allclose(slope, differences, atol=1e-9)
    two = jax.vmap(lambda y: cj.inputs.linear(TIMES, y))(jnp.stack([VALUES, 2 * VALUES]))
    members = cj.ensemble(system, START, members=2, params=two, t1=2.0, dt=0.25)
    np.testing.assert_allclose(members.mu[1, -1, 0], end(2 * VALUES), atol=1e-14)
    with pytest.raises(TypeError, match="derivatives with respect to times"):
        jax.grad(lambda t: cj.inputs.linear(t, VALUES)(0.1))(jnp.asarray(TIMES))


BAD = {
    "order": (lambda: cj.inputs.linear([0, 2, 1], [1, 2, 3]), ValueError, "increase from one to the next"),
    "count": (lambda: cj.inputs.piecewise([0, 1, 2], [1, 2, 3]), ValueError, "must have 2 entries"),
    "nan": (lambda: cj.inputs.cubic([0, 1], [1, np.nan]), ValueError, "values must be finite"),
    "words": (lambda: cj.inputs.linear(["a", "b"], [1, 2]), TypeError, "times must be"),
    "period": (lambda: cj.inputs.periodic(lambda t: t, 0), ValueError, "period must be"),
    "function": (lambda: cj.inputs.modulated(lambda a, b: a, 1.0), TypeError, "signature"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    make, error, message = BAD[case]
    with pytest.raises(error, match=message):
        make()


def test_which_end_of_a_run_an_input_misses():
    late = cj.System(cj.SO3(), lambda m, t: m[0] * cj.inputs.linear([0.7, 9.0], [0.0, 1.0])(t))
    with pytest.raises(ValueError, match=r"give the input more times, or start the run at t0 = 0\.7\."):
        cj.solve(late, np.ones(3), t1=2.0, dt=0.1)
    with pytest.raises(ValueError, match=r"or start the run at t0 = 0\.7 and end the run at t1 = 9\."):
        cj.solve(late, np.ones(3), t1=10.0, dt=0.1)


def test_switches_inside_steps_are_counted():
    pulses = cj.System(cj.SO3(), lambda m, t: m[0] * cj.inputs.piecewise([0.0, 0.33, 1.05, 3.0], [0.0, 1.0, 2.0])(t))
    with pytest.warns(UserWarning, match=r"switches at t = 0\.33, inside a time step, the first of 2 such switches"):
        cj.solve(pulses, np.ones(3), t1=2.0, dt=0.1, integrator=cj.HeunMK())
