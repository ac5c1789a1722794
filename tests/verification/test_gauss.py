"""Gauss methods: their order on every kind of algebra, Poisson maps, bounded energy; and the discrete Moser–Veselov."""

import dataclasses
from functools import lru_cache, partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import coadjoint as cj
from coadjoint.drivers import Increment

from .measurement import fitted_order, slope, worst
from .test_poisson_maps import SYSTEMS, defect


def quiet(made):
    """A model without its noise, of norm 1 if it is made of matrices."""
    system, mu0 = made
    scale = np.linalg.norm(mu0, 2) if np.ndim(mu0) == 2 else 1.0
    return cj.System(system.algebra, system.energy, side=system.side), np.asarray(mu0) / scale


MODELS = {
    "se(3)": lambda: quiet(cj.models.heavy_top()),
    "spins": lambda: quiet(cj.models.spin_chain(4)),
    "su(3)": lambda: quiet(cj.models.sine_euler(3, key=0)),
    "su(9)": lambda: quiet(cj.models.sine_euler(9, key=0)),
}
KINDS = {"LieGauss": cj.LieGauss, "IsospectralGauss": cj.IsospectralGauss}
CASES = [(case, "LieGauss") for case in MODELS] + [(case, "IsospectralGauss") for case in ("su(3)", "su(9)")]


@lru_cache
def reference(case):
    """A model, its start, and its state at t = 2 by a composition of order 8 with small steps."""
    system, mu0 = MODELS[case]()
    method = cj.Composed(cj.IsospectralMidpoint() if case.startswith("su") else cj.LieMidpoint(), "kahan-li8")
    return system, mu0, cj.solve(system, mu0, t1=2.0, dt=1 / 64, save_every=128, integrator=method).mu[-1]


@pytest.mark.slow
@pytest.mark.parametrize("order", [4, 6])
@pytest.mark.parametrize(("case", "kind"), CASES)
def test_order(case, kind, order):
    """4 and 6, over four step sizes."""
    method = KINDS[kind](order)
    system, mu0, exact = reference(case)
    dts = [0.5, 0.25, 0.2, 0.125] if case != "su(9)" else [0.25, 0.2, 0.125, 0.1]
    sols = [cj.solve(system, mu0, t1=2.0, dt=dt, integrator=method) for dt in dts]
    errors = [worst(np.asarray(sol.mu[-1]) - exact) for sol in sols]
    measured, spread = fitted_order(dts, errors)
    assert min(errors) > 1e-12 and abs(measured - order) < 0.2 and spread < 0.1
    assert sols[0].casimir_errors().max() < 5e-15


@pytest.mark.slow
@pytest.mark.parametrize("order", [4, 6])
def test_order_on_large_matrices(order):
    """n = 65: a fluid on the sphere."""
    system, W0 = cj.models.euler_sphere(65, noise_shells=None)
    t1 = 4.0 / np.linalg.norm(np.asarray(system.drift(W0)), 2)
    run = partial(cj.solve, system, W0, t1=t1)
    exact = run(dt=t1 / 48, save_every=48, integrator=cj.Composed(cj.IsospectralMidpoint(), "kahan-li8")).mu[-1]
    counts = [8, 12, 16, 24]
    sols = [run(dt=t1 / n, save_every=n, integrator=cj.IsospectralGauss(order)) for n in counts]
    errors = [worst(np.asarray(sol.mu[-1]) - exact) / worst(exact) for sol in sols]
    measured, spread = fitted_order(1.0 / np.array(counts), errors)
    assert abs(measured - order) < 0.3 and spread < 0.15
    assert sols[0].casimir_errors().max() < 1e-13


# ---------------------------------------------------------------------------------------------- Poisson maps


@pytest.mark.slow
@pytest.mark.parametrize("order", [4, 6])
def test_isospectral_gauss_is_a_poisson_map(order):
    """On su(3), with SALT noise."""
    assert defect(SYSTEMS["su(3)"], cj.IsospectralGauss(order)) < 1e-12


def brackets(system, method, seeds, dt=0.2):
    """<J DΦᵀa, DΦᵀb> and J(Φ)(a, b) for random covectors, on an algebra too large for the matrix DΦ."""
    algebra = system.algebra
    method = eqx.tree_at(lambda i: i.solve, method, dataclasses.replace(method.solve, fallbacks=False))

    @jax.jit
    def both(c, a, b):
        def step(c):
            mu = algebra.element(c)
            dS = Increment(jnp.zeros(0), jnp.full((), jnp.inf))
            mu, *_ = method.step(system, mu, jnp.zeros(()), jnp.asarray(dt), dS, method.init(system, mu))
            return algebra.coordinates(mu)

        end, pull = jax.vjp(step, c)
        bracket = lambda c, a, b: algebra.pairing(algebra.element(c), algebra.bracket(*map(algebra.element, (a, b))))
        return bracket(c, pull(a)[0], pull(b)[0]), bracket(end, a, b)

    rng = np.random.default_rng(seeds)
    c, a, b = rng.standard_normal((3, algebra.dim))
    return both(0.5 * c, a, b)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "order"), [("LieGauss", 4), ("IsospectralGauss", 4), ("IsospectralGauss", 6)])
def test_poisson_map_by_covectors(kind, order):
    """On su(9), of dimension 80."""
    method = KINDS[kind](order)
    system, _ = MODELS["su(9)"]()
    for seed in range(3):
        before, after = brackets(system, method, seed, dt=0.05)
        assert abs(before - after) < 1e-11 * (1.0 + abs(after))


@pytest.mark.parametrize("n", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_isospectral_gauss_is_symmetric_and_conserves_the_spectrum(n):
    """Time symmetry to round-off; the spectrum even if the equation is solved to 1e-2."""
    algebra = cj.SU(n)
    weights = np.arange(1.0, n * n) / n
    h = lambda W, sign: sign * jnp.sum(weights * algebra.coordinates(W) ** 2 + 0.1 * algebra.coordinates(W) ** 4)
    system = cj.System(algebra, h, side="right", params=1.0)
    W0 = np.asarray(algebra.element(jnp.cos(jnp.arange(n * n - 1.0))))
    run = {"t1": 0.2, "dt": 0.2, "integrator": cj.IsospectralGauss(6, fallbacks=False)}
    there = cj.solve(system, W0, **run).mu[-1]
    assert worst(there - W0) > 0.1 and worst(cj.solve(system.with_params(-1.0), there, **run).mu[-1] - W0) < 1e-13
    loose = cj.IsospectralGauss(4, tol=1e-2, fallbacks=False)
    assert cj.solve(system, W0, t1=20.0, dt=0.2, integrator=loose).casimir_errors().max() < 5e-15


@pytest.mark.slow
@pytest.mark.parametrize("order", [4, 6])
def test_energy_over_ten_million_steps(order):
    """The error of the energy does not grow, and |π| is conserved to round-off."""
    inertia = np.array([1.0, 2.0, 3.0])
    system = cj.System(cj.SO3(), lambda m: 0.5 * m @ (m / inertia) + 0.2 * m[0] ** 3 + 0.3 * m[2] ** 4)
    sol = cj.solve(system, [0.6, 0.1, 0.8], t1=2.5e6, dt=0.25, save_every=1000, integrator=cj.LieGauss(order))
    error = sol.energy() - sol.energy()[0]
    assert sol.stats.steps == 10_000_000 and worst(error) < (1e-6 if order == 4 else 2e-9)
    assert abs(slope(np.linspace(-0.5, 0.5, len(error)), error)) < 2e-2 * worst(error)
    assert sol.casimir_errors().max() < 5e-15


# ------------------------------------------------------------------------------------------- Moser–Veselov

INERTIA, START = np.array([0.6, 0.8, 1.0]), np.array([1.8, 0.4, -0.9])


def free_body(side="left", inertia=INERTIA):
    return cj.System(cj.SO3(), lambda m: 0.5 * m @ (m / inertia), side=side)


@pytest.mark.parametrize("side", ["left", pytest.param("right", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "order", [2, pytest.param(4, marks=pytest.mark.slow), pytest.param(6, marks=pytest.mark.slow), 8]
)
def test_moser_veselov_has_its_order(order, side):
    """The momentum and the attitude, against DOP853; energy and |π| exactly."""
    sign = 1.0 if side == "left" else -1.0

    def rate(_, y):
        omega, g = y[:3] / INERTIA, y[3:].reshape(3, 3)
        turn = np.cross(np.eye(3), omega)  # η ↦ −ω×η as rows: the matrix of ω×
        return np.concatenate([sign * np.cross(y[:3], omega), (g @ turn if side == "left" else turn @ g).ravel()])

    tolerances = {"rtol": 3e-14, "atol": 1e-15}
    exact = solve_ivp(rate, (0.0, 4.0), np.append(START, np.eye(3)), "DOP853", **tolerances).y[:, -1]
    counts = np.array([16, 20, 32, 40] if order > 4 else [32, 64, 128, 256])
    errors = []
    for n in counts:
        sol = cj.solve(free_body(side), START, t1=4.0, dt=4.0 / n, integrator=cj.MoserVeselov(order), group=True)
        errors.append([worst(sol.mu[-1] - exact[:3]), worst(np.asarray(sol.g[-1]).ravel() - exact[3:])])
        assert sol.stats.backend == "native" and np.ptp(sol.energy()) < 1e-14 and sol.casimir_errors().max() < 2e-15
    for error in np.transpose(errors):
        assert abs(fitted_order(1.0 / counts, error)[0] - order) < 0.35


@pytest.mark.parametrize("order", [pytest.param(2, marks=pytest.mark.slow), 8])
def test_moser_veselov_is_a_symmetric_poisson_map(order):
    """Also conserved: the momentum along the axis of a symmetric top."""
    system, method = free_body(), cj.MoserVeselov(order)
    assert defect(system, method, seed=3) < 1e-13
    run = {"t1": 0.3, "dt": 0.3, "integrator": method}
    there = cj.solve(system, START, **run).mu[-1]
    # h ↦ −h turns time round, which so does the other side
    assert worst(cj.solve(free_body("right"), there, **run).mu[-1] - START) < 1e-14
    top = cj.solve(free_body(inertia=np.array([0.7, 0.7, 1.0])), START, t1=30.0, dt=0.3, integrator=method)
    assert np.ptp(top.mu[:, 2]) < 2e-14 and np.ptp(top.mu[:, 0]) > 1.0
