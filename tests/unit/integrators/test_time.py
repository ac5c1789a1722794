"""Systems that depend on time: the time reaches every function, and every method keeps its order."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import coadjoint as cj
from coadjoint.integrators import ALL

INERTIA, W = np.array([1.0, 2.0, 3.0]), np.array([0.3, -0.2, 0.5])
START, T0, T1 = np.array([0.6, -0.3, 0.8]), 0.4, 1.4


def h(mu, t):
    """Not quadratic, and it depends on time in two places."""
    return 0.5 * mu @ (mu / INERTIA) + 0.1 * jnp.sum(mu**4) + jnp.sin(2 * t + 0.3) * (W @ mu) + 0.2 * t * mu[0] * mu[1]


def axis(k):
    """The part of a split Hamiltonian along an axis."""
    return lambda m, t: (0.5 / INERTIA[k]) * m[k] ** 2 + jnp.cos(3 * t + k) * m[k]


SYSTEM = cj.System(cj.SO3(), h)
SPLIT = cj.System(cj.SO3(), [axis(k) for k in range(3)])
METHODS = {
    "TMK": cj.TMK(),
    "HeunMK": cj.HeunMK(),
    "EulerMaruyamaMK": cj.EulerMaruyamaMK(),
    "rk4": cj.RKMK("rk4"),
    "gauss4": cj.RKMK("gauss4"),
    "cayley": cj.RKMK("heun", tau=cj.Cayley()),
    "CommutatorFree 3": cj.CommutatorFree(3),
    "CommutatorFree 4": cj.CommutatorFree(4),
    "LieMidpoint": cj.LieMidpoint(),
    "DiscreteGradient": cj.DiscreteGradient(),
    "ImplicitMidpoint": cj.ImplicitMidpoint(),
    "Trapezoidal": cj.Trapezoidal(),
    "Heun": cj.Heun(),
    "NinomiyaVictoir": cj.NinomiyaVictoir(),
    "BathSplitting": cj.BathSplitting(),
    "LieTrotter": cj.LieTrotter(),
    "Strang": cj.Strang(),
}
REST = {name: method for name, method in ALL.items() if type(method) not in set(map(type, METHODS.values()))}
REST |= {name: method for name, method in ALL.items() if name.startswith("RKMK")} | {
    f"Composed {scheme}": cj.Composed(cj.TMK(), scheme) for scheme in ("yoshida4", "suzuki4")
}
REFERENCES = {}


def exact(system):
    """The state at T1 by DOP853."""
    field = jax.jit(lambda m, t: jnp.cross(m, jax.grad(lambda m: system.at(t).energy(m))(m)))
    ode = lambda t, y: np.asarray(field(y, t))
    return solve_ivp(ode, (T0, T1), START, method="DOP853", rtol=3e-14, atol=1e-15).y[:, -1]


@pytest.mark.parametrize("name", [*METHODS, *(pytest.param(name, marks=pytest.mark.slow) for name in REST)])
def test_every_method_keeps_its_order(name):
    method, system = (
        (METHODS | REST)[name],
        SPLIT if name.startswith(("LieTrotter", "Strang", "BlanesMoan")) else SYSTEM,
    )
    reference = REFERENCES.setdefault(id(system), None)
    if reference is None:
        reference = REFERENCES[id(system)] = exact(system)
    errors, counts = [], (10, 20, 40, 80)
    for n in counts:
        sol = cj.solve(system, START, t0=T0, t1=T1, dt=1.0 / n, integrator=method)
        assert sol.stats.backend == "native", sol.stats.reason
        errors.append(np.max(np.abs(sol.mu[-1] - reference)))
    slope = -np.polyfit(np.log(counts), np.log(errors), 1)[0]
    assert abs(slope - method.claims.order) < 0.25, errors


def test_a_time_dependent_system_without_time_is_an_error():
    with pytest.raises(ValueError, match=r"depends on time: call at\(t\)"):
        SYSTEM.energy(START)
    assert "time-dependent" in repr(SYSTEM)
    np.testing.assert_allclose(SYSTEM.at(0.5).energy(START), h(START, 0.5), rtol=1e-15)
    still = cj.models.rigid_body()[0]
    assert still.at(0.5) is still


BAD = {
    "default": (lambda mu, t=0.0: mu @ mu, None, r"argument t with the default 0\.0"),
    "first": (lambda t, mu: mu @ mu, None, r"write hamiltonian\(mu, t\)"),
    "in place of params": (lambda mu, t: mu @ mu, 1.0, r"write hamiltonian\(mu, params, t\)"),
    "unknown": (lambda mu, t, q: mu @ mu, None, r"must have the signature hamiltonian\(mu, t\)"),
}


@pytest.mark.parametrize("case", BAD)
def test_signatures(case):
    fn, params, message = BAD[case]
    with pytest.raises(TypeError, match=message):
        cj.System(cj.SO3(), fn, params=params)


class Turning(cj.Noise):
    """A field of the user's that turns in time."""

    size: int = 1
    additive: bool = True

    def apply(self, mu, dS, params, t):
        """cos t e₁ + sin t e₂, times an amplitude."""
        return params["a"] * dS[0] * jnp.array([jnp.cos(t), jnp.sin(t), 0.0])


def test_all_functions_receive_the_time():
    """One system with everything that takes the time, natively and by XLA, alone and as members."""
    system = cj.System(
        cj.SO3(),
        [lambda m, p, t: p["a"] * jnp.sin(t) * m[0] ** 2, lambda m, p: m @ (m / INERTIA)],
        noise=[
            cj.salt(np.eye(3), scale=lambda t: 0.1 * jnp.cos(t)),
            cj.salt(lambda p, t: p["a"] * t * jnp.ones(3)),
            lambda m, p, t: 0.1 * t * m[2],
            Turning(),
        ],
        params={"a": 0.3},
        gradient=lambda m, p, t: jnp.array([2 * p["a"] * jnp.sin(t) * m[0], 0.0, 0.0]) + 2 * m / INERTIA,
        forcing=lambda m, p, t: 0.1 * jnp.cross(m, jnp.array([t, 0.0, 0.0])),
    )
    at, a = 0.7, 0.3
    noise = system.at(at).noise(START, jnp.ones(6))
    by_hand = 0.1 * np.cos(at) + a * at + np.array([0, 0, 0.1 * at]) + a * np.array([np.cos(at), np.sin(at), 0])
    np.testing.assert_allclose(noise, by_hand, rtol=1e-14)
    run = {"t0": T0, "t1": T1, "dt": 0.1, "key": 3, "integrator": cj.HeunMK()}
    native, xla = (cj.solve(system, START, **run, backend=b) for b in ("native", "xla"))
    np.testing.assert_allclose(native.mu, xla.mu, atol=1e-14)
    members = cj.ensemble(system, START, members=3, params={"a": np.array([0.3, 0.2, 0.3])}, **run)
    np.testing.assert_allclose(members.mu[0], native.mu, atol=1e-14)
    one = system.with_params({"a": 0.2}).at(members.t[-1]).energy(members.mu[1, -1])
    np.testing.assert_allclose(members.energy()[1, -1], one, rtol=1e-14)


def test_resumed_and_stored(tmp_path):
    """A run in two legs has the bits of one; the stored energy is that at the saved times."""
    run = {"t0": T0, "dt": 0.05, "save_every": 2}
    whole = cj.solve(SYSTEM, START, t1=1.4, **run, out=tmp_path / "whole.zarr")
    cj.solve(SYSTEM, START, t1=0.9, **run, out=tmp_path / "legs.zarr")
    legs = cj.solve(SYSTEM, START, t1=1.4, **run, out=tmp_path / "legs.zarr", resume=True)
    assert np.asarray(whole.mu).tobytes() == np.asarray(legs.mu).tobytes()
    by_hand = [h(m, t) for m, t in zip(np.asarray(whole.mu), np.asarray(whole.t), strict=True)]
    np.testing.assert_allclose(np.asarray(cj.open(tmp_path / "whole.zarr").energy), by_hand, rtol=1e-13)


def test_derivatives():
    """By the start and by a frequency, against central differences."""
    system = cj.System(cj.SO3(), lambda m, w, t: 0.5 * m @ (m / INERTIA) + jnp.sin(w * t) * m[0], params=2.0)
    end = lambda m, w: cj.solve(system.with_params(w), m, t0=T0, t1=T1, dt=0.1).mu[-1] @ jnp.arange(3.0)
    by_state, by_frequency = jax.jit(jax.grad(end, argnums=(0, 1)))(jnp.asarray(START), 2.0)
    e = 1e-5
    np.testing.assert_allclose(by_frequency, (end(START, 2.0 + e) - end(START, 2.0 - e)) / (2 * e), rtol=1e-8)
    step = e * np.eye(3)[1]
    np.testing.assert_allclose(by_state[1], (end(START + step, 2.0) - end(START - step, 2.0)) / (2 * e), rtol=1e-8)


def test_a_large_lattice_in_a_turning_field():
    """The native code of one site receives the time as well."""
    n = 1030
    spins = lambda m: m.reshape(n, 3)
    field = lambda t: jnp.array([jnp.cos(t), jnp.sin(t), 0.0])
    h = lambda m, t: -jnp.sum(spins(m) * jnp.roll(spins(m), 1, 0)) + jnp.sum(spins(m) @ field(t))
    system = cj.System(cj.SO3() ** n, h)
    start = np.random.default_rng(0).standard_normal(3 * n)
    run = {"t0": T0, "t1": 0.6, "dt": 0.05, "integrator": cj.RKMK("rk4")}
    native, xla = (cj.solve(system, start, **run, backend=b) for b in ("native", "xla"))
    np.testing.assert_allclose(native.mu, xla.mu, atol=1e-13)


@pytest.mark.parametrize("name", ["temperature", "friction"])
def test_baths_whose_rates_change(name):
    """A constant function is a constant; a ramp reaches the motion."""
    system = cj.System(cj.SO3(), lambda m, t: 0.5 * m @ (m / INERTIA) + jnp.sin(t) * m[0])
    rates = {"temperature": 0.1, "friction": 0.2}
    run = {"t1": 1.0, "dt": 0.1, "key": 3, "integrator": cj.HeunMK()}
    plain = cj.solve(cj.heat_bath(system, **rates), START, **run).mu
    constant = cj.heat_bath(system, **(rates | {name: lambda t: rates[name] + 0.0 * t}))
    np.testing.assert_allclose(cj.solve(constant, START, **run).mu, plain, atol=1e-14)
    ramp = cj.heat_bath(system, **(rates | {name: lambda t: rates[name] * (1 + t)}))
    assert np.max(np.abs(cj.solve(ramp, START, **run).mu - plain)) > 1e-3


def test_means_over_time_need_a_system_that_stays_the_same():
    with pytest.raises(ValueError, match="do not depend on time"):
        cj.sample(SYSTEM, START, temperature=0.1, friction=0.1, members=8, t1=10.0, dt=0.1, key=0)


def test_noise_that_changes_in_time():
    """∫ β(t) ∘ dW about one axis is an angle. TMK15 has its term (ΔZ − ½ dt ΔW) ∂β/∂t, so order 2 and not 1."""
    system = cj.System(cj.SO3(), lambda m: 0.0 * m[0], [cj.salt(lambda t: jnp.array([jnp.sin(9 * t), 0.0, 0.0]))])
    steps, slopes = (0.125, 0.0625, 0.03125, 0.015625), []
    run = {"members": 64, "t1": 0.5, "driver": cj.Brownian(5, grid=steps[0], depth=6)}
    ends = lambda dt, method: cj.ensemble(system, START, dt=dt, save_every=round(0.5 / dt), integrator=method, **run)
    reference = ends(steps[0] / 2**6, cj.TMK15()).mu[:, -1]
    for method in (cj.TMK15(), cj.TMK()):
        errors = [np.sqrt(np.mean((ends(dt, method).mu[:, -1] - reference) ** 2)) for dt in steps]
        slopes.append(np.polyfit(np.log(steps), np.log(errors), 1)[0])
    assert abs(slopes[0] - 2.0) < 0.2 and abs(slopes[1] - 1.0) < 0.2, slopes


def test_increments_limit_the_order():
    """A smooth field by its increments has order 2 in RKMK4; as a function of t in the Hamiltonian it has order 4."""
    start, axis = [0.6, -0.7, 0.9], jnp.array([0.2, 0.9, -0.4])
    body = lambda m: 0.5 * m @ (m / jnp.array([1.0, 2.0, 3.0]))
    timed = cj.System(cj.SO3(), lambda m, t: body(m) + jnp.cos(3.0 * t) * (axis @ m))
    given = cj.System(cj.SO3(), body, [cj.salt(axis)])
    exact = cj.solve(timed, start, t1=2.0, dt=1e-3, integrator=cj.RKMK(), save_every=2000).mu[-1]
    steps, errors = np.array([20, 40, 80, 160]), {"timed": [], "given": []}
    for n in steps:
        run = {"t1": 2.0, "dt": 2.0 / n, "integrator": cj.RKMK(), "save_every": int(n)}
        path = np.diff(np.sin(3.0 * np.linspace(0.0, 2.0, n + 1)) / 3.0)
        errors["timed"].append(np.abs(cj.solve(timed, start, **run).mu[-1] - exact).max())
        errors["given"].append(np.abs(cj.solve(given, start, driver=cj.Increments(path), **run).mu[-1] - exact).max())
    order = {name: -np.polyfit(np.log(steps), np.log(e), 1)[0] for name, e in errors.items()}
    assert abs(order["timed"] - 4) < 0.2 and abs(order["given"] - 2) < 0.2
