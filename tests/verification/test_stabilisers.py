"""The part of ∂h in the stabiliser of the state: what methods gain by leaving it out, and what they keep."""

import importlib.util
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import coadjoint as cj

from .measurement import fitted_order, worst

ROOT = Path(__file__).parents[2]
_spec = importlib.util.spec_from_file_location("reduced_gradient", ROOT / "benchmarks" / "reduced_gradient.py")
assert _spec is not None and _spec.loader is not None
reduced_gradient = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(reduced_gradient)

METHODS = {
    "TMK": cj.TMK,
    "HeunMK": cj.HeunMK,
    "RKMK": cj.RKMK,
    "CommutatorFree": cj.CommutatorFree,
    "LieMidpoint": cj.LieMidpoint,
    "DiscreteGradient": cj.DiscreteGradient,
    "LieGauss": cj.LieGauss,
}
INERTIA = np.array([1.0, 2.0, 3.0])
START = np.array([0.6, -0.7, 0.9])
PAIR = cj.Product(cj.SO3(), copies=2)


def pair(mu, p=1.0):
    """Two unequal spins with exchange, anisotropy, a quartic term and a field."""
    a, b = mu[:3], mu[3:]
    return 0.7 * a @ b + 0.2 * a[2] ** 2 + p * (0.3 * a[0] - 0.4 * b[1]) + 0.1 * b[0] ** 4


PAIR_START = np.array([0.6, -0.7, 0.9, 0.1, 0.5, -0.4])


@pytest.mark.parametrize("name", METHODS)
def test_uniform_spins_precess_in_a_field(name):
    """Whatever the exchange, all spins turn about the field, by the exact angle."""
    S0 = np.broadcast_to([0.6, 0.0, 0.8], (4, 3))
    system, mu0 = cj.models.spin_lattice(4, coupling=3.0, field=(0.0, 0.0, 0.5), S0=S0)
    sol = cj.solve(system, mu0, t1=10.0, dt=0.05, integrator=METHODS[name]())
    angle = 0.5 * sol.t
    exact = np.stack([0.6 * np.cos(angle), 0.6 * np.sin(angle), np.full_like(angle, 0.8)], axis=1)
    assert worst(np.asarray(sol.mu).reshape(-1, 4, 3) - exact[:, None]) < 1e-13


def spins(shape, S0):
    """A lattice with exchange J = 1 in a field along z."""
    return cj.models.spin_lattice(shape, field=(0.0, 0.0, 0.5), S0=S0 / np.linalg.norm(S0, axis=-1, keepdims=True))


def nearly_aligned(*shape):
    """Directions that differ by about 0.1 from site to site."""
    return np.array([0.6, 0.0, 0.8]) + 0.1 * np.random.default_rng(0).standard_normal((*shape, 3))


def long_wave(n):
    """A wave as long as the chain."""
    x = 2 * np.pi * np.arange(n) / n
    return np.stack([0.4 + 0.1 * np.cos(x), 0.1 * np.sin(x), np.ones(n)], axis=1)


def test_the_initial_state_selects_the_gradient():
    """The reduced one of parallel spins and long waves; all of ∂h of spins that differ by site, or are at rest."""
    random = np.random.default_rng(1).standard_normal((4, 4, 3))
    parallel, upright = (np.broadcast_to(x, (4, 4, 3)) for x in ([0.6, 0.0, 0.8], [0.0, 0.0, 1.0]))
    cases = [(4, 4), parallel, 1], [24, long_wave(24), 1], [(6, 6), nearly_aligned(6, 6), 0]
    for shape, S0, weight in (*cases, [(4, 4), random, 0], [(4, 4), upright, 0]):
        system, mu0 = spins(shape, S0)
        assert (np.asarray(cj.TMK().init(system, mu0).weights) == weight).all()
        assert cj.TMK(remove_stabiliser=True).init(system, mu0).weights is None


def test_the_selected_gradient_is_one_of_the_two():
    """With weights 0 the steps are bitwise those without the option, with 1 those with it up to round-off."""
    for S0, used in ((nearly_aligned(4, 4), False), (np.broadcast_to([0.6, 0.0, 0.8], (4, 4, 3)), True)):
        system, mu0 = spins((4, 4), S0 + 0.0)
        for method in (cj.HeunMK, cj.LieMidpoint):
            default, chosen = (
                np.asarray(cj.solve(system, mu0, t1=0.5, dt=0.1, integrator=method(remove_stabiliser=r)).mu)
                for r in (None, used)
            )
            assert worst(default - chosen) <= (1e-15 if used else 0.0)


@pytest.mark.parametrize(("name", "more"), [("TMK", 1), ("LieMidpoint", 1), ("LieGauss", 2)])
def test_iterations_do_not_grow(name, more):
    """Nearly aligned spins at a step where c μ as a part of the iteration would need more than 30 iterations.

    Between the stages of LieGauss a part of c μ remains in the iteration.
    """
    S0 = nearly_aligned(6)
    system, mu0 = cj.models.spin_lattice(6, coupling=2.0, field=(0.0, 0.0, 0.5), S0=S0)
    run = lambda remove: cj.solve(system, mu0, t1=0.3, dt=0.1, integrator=METHODS[name](remove_stabiliser=remove))
    full, reduced = (run(remove).stats.most_iterations for remove in (False, True))
    assert 15 < full and reduced <= full + more


def test_dissipation_in_a_product():
    """By default it leaves all of ∂h, because each step begins on another orbit."""
    system, mu0 = cj.models.spin_lattice(4, field=(0.0, 0.0, 0.5), S0=np.broadcast_to([0.6, 0.0, 0.8], (4, 3)))
    damped = cj.System(
        system.algebra, lambda m, p: system.h(m, p), params=system.params, dissipation=lambda m, dt, p: m
    )
    default, off = (
        cj.solve(damped, mu0, t1=0.5, dt=0.05, integrator=cj.HeunMK(remove_stabiliser=r)).mu for r in (None, False)
    )
    assert (np.asarray(default) == np.asarray(off)).all()


def test_fields_that_start_later():
    """The comparison is at t0: with the field off nothing moves, and all of ∂h remains."""
    S0 = np.broadcast_to([0.6, 0.0, 0.8], (4, 3)).reshape(-1)

    def energy(m, t):
        S = m.reshape(4, 3)
        return -jnp.sum(S * jnp.roll(S, 1, axis=0)) - jnp.where(t > 0.5, 0.5, 0.0) * jnp.sum(S[:, 2])

    system = cj.System(cj.Product(cj.SO3(), copies=4), energy)
    for t0, used in ((0.0, False), (1.0, True)):
        default, chosen = (
            np.asarray(cj.solve(system, S0, t0=t0, t1=t0 + 1.0, dt=0.1, integrator=cj.HeunMK(remove_stabiliser=r)).mu)
            for r in (None, used)
        )
        assert worst(default - chosen) < 1e-15


@pytest.mark.slow
@pytest.mark.parametrize("case", ["parallel", "one long wave", "nearly aligned", "thermal", "random"])
def test_the_selected_gradient_is_the_more_accurate_one(case):
    """Within a factor of two of the better one in the mean over all methods, and of four for each method."""
    system, mu0, dt, t1 = reduced_gradient.cases()[case]
    weights = np.asarray(system.reduction_weights(mu0))
    both = np.array(list(reduced_gradient.errors(system, mu0, dt, t1).values())) + 1e-13
    ratio = both[:, int(weights[0])] / both.min(axis=1)
    assert np.exp(np.log(ratio).mean()) < 2.0
    assert ratio.max() < 4.0


def test_the_table_is_that_of_the_record():
    """The page has the numbers of benchmarks/results/reduced_gradient.json."""
    record = json.loads(reduced_gradient.RESULTS.read_text(encoding="utf-8"))
    page = (ROOT / "docs" / "reference" / "methods.md").read_text(encoding="utf-8")
    marks = "<!-- reduced gradient -->\n", "<!-- /reduced gradient -->"
    assert page.split(marks[0])[1].split(marks[1])[0] == reduced_gradient.table(record)


@pytest.mark.parametrize("name", METHODS)
def test_linear_hamiltonians_stay_exact(name):
    """One spin in a field that also depends on params."""
    system = cj.System(cj.SO3(), lambda m, b: b @ m, params=np.array([0.3, -0.2, 0.9]))
    sol = cj.solve(system, START, t1=7.0, dt=0.25, integrator=METHODS[name]())
    exact = cj.SO3().flow(7.0 * jnp.array([0.3, -0.2, 0.9]), jnp.asarray(START))
    assert worst(sol.mu[-1] - exact) < 1e-13


def test_salt_noise_stays_exact():
    """σ is the whole increment of a field along one axis."""
    system = cj.System(cj.SO3(), lambda m: 0.0 * m[0], [cj.salt([0.3, -0.2, 0.9])])
    dS = np.random.default_rng(0).standard_normal((20, 1))
    sol = cj.solve(system, START, t1=2.0, dt=0.1, driver=cj.Increments(dS))
    exact = cj.SO3().flow(dS.sum() * jnp.array([0.3, -0.2, 0.9]), jnp.asarray(START))
    assert worst(sol.mu[-1] - exact) < 1e-13


@pytest.mark.parametrize("name", ["TMK", "HeunMK", "RKMK", "LieMidpoint"])
def test_orders_on_a_product(name):
    """Against DOP853, with a term of degree four and a field."""
    system, integrator = cj.System(PAIR, pair), METHODS[name]()
    dt = np.array([0.2, 0.1, 0.05, 0.025])
    exact = _dop853(jax.grad(pair), PAIR_START, 2.0)
    errors = [worst(cj.solve(system, PAIR_START, t1=2.0, dt=h, integrator=integrator).mu[-1] - exact) for h in dt]
    order, error = fitted_order(dt, errors)
    assert abs(order - integrator.claims.order) < 0.15 + 2 * error


def _dop853(gradient, start, t1):
    gradient = jax.jit(gradient)

    def rate(t, mu):
        return np.cross(mu.reshape(-1, 3), np.asarray(gradient(mu)).reshape(-1, 3)).reshape(-1)

    return solve_ivp(rate, (0.0, t1), start, method="DOP853", rtol=1e-13, atol=1e-13).y[:, -1]


def test_rigid_bodies_gain():
    """The error of Heun's method is smaller by a factor above ten, that of RKMK4 by a factor above four."""
    system, mu0 = cj.models.rigid_body(alpha=None)
    exact = cj.solve(system, mu0, t1=10.0, dt=1e-3, integrator=cj.RKMK(), save_every=10_000).mu[-1]

    def error(method, remove):
        return worst(cj.solve(system, mu0, t1=10.0, dt=0.1, integrator=method(remove_stabiliser=remove)).mu[-1] - exact)

    assert error(cj.HeunMK, True) < 0.1 * error(cj.HeunMK, False)
    assert error(cj.RKMK, True) < 0.25 * error(cj.RKMK, False)


def test_energy_and_momentum_on_a_product():
    """TMK keeps a quadratic energy, LieMidpoint the total spin of an isotropic chain."""
    start = np.random.default_rng(1).standard_normal((5, 3))
    exchange = lambda m: -jnp.sum(m.reshape(-1, 3) * jnp.roll(m.reshape(-1, 3), 1, axis=0))
    system = cj.System(cj.Product(cj.SO3(), copies=5), exchange)
    mu0 = start.reshape(-1)
    energy = cj.solve(system, mu0, t1=20.0, dt=0.02, integrator=cj.TMK()).energy()
    assert worst(energy - energy[0]) < 1e-13
    spins = np.asarray(cj.solve(system, mu0, t1=20.0, dt=0.02, integrator=cj.LieMidpoint()).mu).reshape(-1, 5, 3)
    assert worst(spins.sum(axis=1) - start.sum(axis=0)) < 1e-12


@pytest.mark.parametrize(
    ("remove", "advice"),
    [
        (None, "or try remove_stabiliser=(True; the initial state has selected False|False; .* True), or throw=False"),
        (True, "or leave out remove_stabiliser=True, or throw=False"),
        (False, "smaller dt, or throw=False"),
    ],
)
def test_steps_that_do_not_converge_name_the_option(remove, advice):
    """In a product; a single body has no such message."""
    method = cj.TMK(max_steps=2, fallbacks=False, remove_stabiliser=remove)
    with pytest.raises(cj.UnsolvedStepError, match=advice):
        cj.solve(cj.System(PAIR, pair), PAIR_START, t1=1.0, dt=0.5, integrator=method, backend="xla")


def test_vortices_with_a_hamiltonian_that_is_not_homogeneous():
    """100 point vortices on the sphere with log(1 − x·y), against DOP853; the error of RKMK4 is less than half."""
    n, rng = 100, np.random.default_rng(0)
    z = 1 - (2 * np.arange(n) + 1) / n
    angle = np.pi * (1 + 5**0.5) * np.arange(n)
    x = np.stack([np.sqrt(1 - z * z) * np.cos(angle), np.sqrt(1 - z * z) * np.sin(angle), z], axis=1)
    x = x + 0.03 * rng.standard_normal((n, 3))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    strength = rng.uniform(0.5, 1.5, n) * rng.choice([-1.0, 1.0], n)

    def energy(mu):
        place = mu.reshape(n, 3) / strength[:, None]
        return -0.5 * jnp.sum(np.outer(strength, strength) * jnp.log(1 - place @ place.T + jnp.eye(n)))

    mu0 = (strength[:, None] * x).reshape(-1)
    system, exact = cj.System(cj.Product(cj.SO3(), copies=n), energy), _dop853(jax.grad(energy), mu0, 0.05)

    def error(steps, remove):
        method = cj.RKMK(remove_stabiliser=remove)
        return worst(cj.solve(system, mu0, t1=0.05, dt=0.05 / steps, integrator=method).mu[-1] - exact)

    errors = [error(steps, None) for steps in (10, 20, 40, 80)]
    order, spread = fitted_order(1.0 / np.array([10, 20, 40, 80]), errors)
    assert abs(order - 4) < 0.3 + 2 * spread
    assert errors[2] < 0.5 * error(40, False)


def test_hamiltonians_without_a_gradient_at_zero():
    """h(μ/|μ|) has none: 0 takes its place, and derivatives by params are right."""
    system = cj.System(cj.SO3(), lambda m, p: p * (m[0] ** 2 + 0.3 * m[1]) / jnp.sqrt(m @ m), params=0.7)

    def end(p):
        return cj.solve(system.with_params(p), START, t1=1.0, dt=0.1, integrator=cj.RKMK()).mu[-1]

    exact = _dop853(jax.grad(lambda m: system.energy(m)), START, 1.0)
    assert worst(end(jnp.asarray(0.7)) - exact) < 1e-6
    slope = jax.jacrev(end)(jnp.asarray(0.7))
    assert worst(slope - (end(jnp.asarray(0.7 + 1e-6)) - end(jnp.asarray(0.7 - 1e-6))) / 2e-6) < 1e-8


@pytest.mark.slow
def test_derivatives_by_a_field():
    """The linear part of h depends on params; forward, reverse and second derivatives agree with differences."""
    system = cj.System(PAIR, pair, params=1.0)

    def end(p):
        return cj.solve(system.with_params(p), PAIR_START, t1=1.0, dt=0.1).mu[-1, 0]

    p = jnp.asarray(0.8)
    centred = (end(p + 1e-5) - end(p - 1e-5)) / 2e-5
    assert abs(jax.grad(end)(p) - centred) < 1e-8
    assert abs(jax.jvp(end, (p,), (jnp.ones(()),))[1] - centred) < 1e-8
    second = (jax.grad(end)(p + 1e-5) - jax.grad(end)(p - 1e-5)) / 2e-5
    assert abs(jax.grad(jax.grad(end))(p) - second) < 1e-7


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize(("name", "order"), [("TMK", 2), ("HeunMK", 2), ("LieMidpoint", 2), ("RKMK", 4)])
def test_group_element(name, order, side):
    """The state is bitwise the same with it, and the element has the order of the method."""
    body = lambda m: 0.5 * m @ (m / INERTIA) + 0.3 * m[0] + 0.05 * m[1] ** 4
    system, method = cj.System(cj.SO3(), body, side=side), METHODS[name]()
    dt, elements = np.array([0.2, 0.1, 0.05, 0.025]), []
    for h in dt:
        sol = cj.solve(system, START, t1=2.0, dt=h, integrator=method, group=True)
        assert (np.asarray(sol.mu) == np.asarray(cj.solve(system, START, t1=2.0, dt=h, integrator=method).mu)).all()
        g = np.asarray(sol.g[-1])
        assert worst((g.T if side == "left" else g) @ START - sol.mu[-1]) < 1e-14
        elements.append(g)
    exact = _attitude(jax.jit(jax.grad(body)), side)
    slope, error = fitted_order(dt, [worst(g - exact) for g in elements])
    assert abs(slope - order) < 0.2 + 2 * error


def _attitude(gradient, side):
    """R' = R ω̂ (left), R' = ω̂ R (right), with ω = ∂h(μ)."""

    def rate(t, y):
        R, mu = y[:9].reshape(3, 3), y[9:]
        x = np.asarray(gradient(mu))
        hat = np.cross(x, np.eye(3)).T
        turned = np.cross(mu, x)
        return np.concatenate([(R @ hat if side == "left" else hat @ R).ravel(), turned if side == "left" else -turned])

    y0 = np.concatenate([np.eye(3).ravel(), START])
    return solve_ivp(rate, (0.0, 2.0), y0, method="DOP853", rtol=1e-13, atol=1e-13).y[:9, -1].reshape(3, 3)


def test_where_it_is_left_alone():
    """With noise in a product, with a torque, in other algebras: bitwise the steps without the option."""
    chain, mu0 = cj.models.spin_lattice(4, field=(0.0, 0.0, 0.5), key=1)
    bath = cj.heat_bath(chain, temperature=0.3, friction=0.2)
    pushed = cj.System(cj.SO3(), lambda m: 0.5 * m @ (m / INERTIA), torque=lambda m: -0.1 * m)
    top, top0 = cj.models.heavy_top()
    for system, start in ((bath, mu0), (pushed, START), (top, top0)):
        key = 0 if system.n_noise else None
        default, off = (
            cj.solve(system, start, t1=0.5, dt=0.05, key=key, integrator=i)
            for i in (cj.HeunMK(), cj.HeunMK(remove_stabiliser=False))
        )
        assert (np.asarray(default.mu) == np.asarray(off.mu)).all()


def test_fields_of_time():
    """In a field that depends on time the option changes nothing but round-off if h is linear."""
    system = cj.System(cj.SO3(), lambda m, t: m @ jnp.stack([jnp.cos(3.0 * t), 0.4 * t, 1.0 + 0.0 * t]))
    for method in (cj.TMK, cj.RKMK):
        on, off = (
            cj.solve(system, START, t1=2.0, dt=0.1, integrator=method(remove_stabiliser=r)).mu for r in (True, False)
        )
        assert worst(on - off) < 1e-14
