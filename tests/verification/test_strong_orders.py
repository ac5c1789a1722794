"""Items 1, 2 and 4 of the family: strong and weak orders, measured on shared paths, against what is claimed."""

from itertools import product

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coadjoint as cj
from coadjoint.drivers import Increment, mean_third

from .measurement import INTEGRATORS, in_parts, slope

# Every integrator that claims a strong order; a new one is measured without anyone having to add it here.
STOCHASTIC = {name: i for name, i in INTEGRATORS.items() if i.claims.strong}
FAMILY = {name: STOCHASTIC[name] for name in ("TMK", "TMKLevy", "TMK15")}

E = np.array([0.3, -0.5, 0.8]) / np.linalg.norm([0.3, -0.5, 0.8])
NOISES = {
    "one": [np.r_[0.7 * E, 0.3 * np.roll(E, 1)]],
    "commuting": [np.r_[E, np.zeros(3)], np.r_[0.2 * E, 0.7 * E]],  # not one noise in disguise
    "three": 0.7 * np.array([[1, 0, 0, 0.3, 0.2, 0], [0, 1, 0, 0, 0.4, -0.3], [0, 0, 1, 0.2, 0, 0.5]]),
}
INERTIA, CHI = jnp.array([4.0, 2.0, 1.0]), jnp.array([0.0, 0.0, 1.0])
MU0 = np.array([-0.5, 0.7, 0.4, -0.6, 0.6, 0.5])


def quadratic(mu):
    return 0.5 * mu[:3] @ (mu[:3] / INERTIA) - CHI @ mu[3:]


def quartic(mu):
    return quadratic(mu) + 0.3 * mu[0] ** 4 + 0.3 * (mu[1] * mu[4]) ** 2 + 0.2 * mu[3] ** 3


HAMILTONIANS = {"quadratic": quadratic, "quartic": quartic}


def top(noise, h="quadratic", side="left"):
    return cj.System(cj.SE3(), HAMILTONIANS[h], [cj.salt(np.array(NOISES[noise]))], side=side)


def assert_orders(study, claimed):
    """Two-sided: within 0.1, or three standard errors; never less than what is claimed by more than 0.1."""
    for name, order, error in zip(study.names, study.order, study.order_error, strict=True):
        assert order >= claimed[name] - 0.1, f"{name}\n{study}"
        assert abs(order - claimed[name]) <= max(0.1, 3 * error), f"{name}\n{study}"
        assert error < 0.1, f"{name}: too few paths\n{study}"


def claims(integrators, system):
    kind = "strong_commuting" if system.commuting else "strong"
    return {name: getattr(i.claims, kind) for name, i in integrators.items()}


def measure(system, mu0, integrators, dts, paths, t1=1.0):
    return cj.convergence(system, mu0, integrators, dts, paths, key=3, t1=t1)


def test_three_noises():
    """TMK ½, TMK-Lévy 1, TMK 1.5: the fast one of the studies below."""
    system = top("three", "quartic", "right")
    assert_orders(measure(system, MU0, FAMILY, 2.0 ** -np.arange(5, 9), 128, t1=0.25), claims(FAMILY, system))


@pytest.mark.slow
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("h", HAMILTONIANS)
@pytest.mark.parametrize("noise", NOISES)
def test_heavy_top(noise, h, side):
    """One noise, a commuting pair, three that do not commute; left and right, quadratic and quartic."""
    system = top(noise, h, side)
    assert system.commuting == (noise != "three")
    integrators = STOCHASTIC if (h, side) == ("quadratic", "left") else FAMILY
    assert_orders(measure(system, MU0, integrators, 2.0 ** -np.arange(5, 10), 256), claims(integrators, system))


def test_the_parts_of_sine_euler_are_all_of_it():
    system, W0 = cj.models.sine_euler(n=5)
    parts = in_parts(system)
    assert len(parts.parts) == 12
    both = eqx.filter_jit(lambda s: (s.energy(W0), s.drift(W0)))
    (energy, drift), (whole, rate) = both(parts), both(system)
    np.testing.assert_allclose(energy, whole, rtol=1e-14)
    np.testing.assert_allclose(drift, rate, rtol=0, atol=1e-14)


@pytest.mark.slow
@pytest.mark.parametrize("name", STOCHASTIC)
def test_sine_euler(name):
    """The paper's two noises, which do not commute."""
    system, W0 = cj.models.sine_euler(n=3, noise_modes=((1, 1), (1, -1)), amplitude=0.6)
    assert not system.commuting
    if name in ("LieTrotter", "Strang"):
        system = in_parts(system)
    method = {name: STOCHASTIC[name]}
    assert_orders(measure(system, W0, method, 2.0 ** -np.arange(5, 10), 256), claims(method, system))


@pytest.mark.slow
def test_nonlinear_noises():
    """Two nonlinear noises: TMK ½, TMK-Lévy 1, thanks to all of its term: the bracket alone stays at ½."""
    noise = [lambda m: 0.6 * m[0] * m[1] + 0.5 * m[5], lambda m: 0.5 * m[2] ** 2 - 0.6 * m[0]]
    system = cj.System(cj.SE3(), quadratic, noise)
    study = measure(system, MU0, {"TMK": cj.TMK(), "TMKLevy": cj.TMKLevy()}, 2.0 ** -np.arange(5, 10), 256)
    assert_orders(study, {"TMK": 0.5, "TMKLevy": 1.0})


# --------------------------------------------------------------------------------------------- weak order


def linear_top(noise, b):
    """h = <μ, b>: everything is linear in μ, and E μ(t) = exp(tG) μ₀ with G = ad*_b + ½ Σ (ad*_{β_i})²."""
    fields = np.array(NOISES[noise])
    system = cj.System(cj.SE3(), [lambda mu, p: p @ mu], [cj.salt(fields)], params=b)
    ad_star = [np.asarray(system.algebra.ad(jnp.asarray(x))).T for x in (b, *fields)]
    return system, ad_star[0] + 0.5 * sum(a @ a for a in ad_star[1:])


def mean_step(system, integrator, dt, nodes=12):
    """E μ₁ as a matrix on μ₀, for a step that is linear: Gauss–Hermite quadrature over increments, and all Rademacher
    variables."""
    M, coins = system.n_noise, integrator.needs(system).signs
    x, w = np.polynomial.hermite_e.hermegauss(8 if coins else nodes)
    points = np.stack(np.meshgrid(*[x] * M, indexing="ij"), axis=-1).reshape(-1, M) * np.sqrt(dt)
    weights = np.prod(np.stack(np.meshgrid(*[w] * M, indexing="ij"), axis=-1).reshape(-1, M), axis=1)
    signs = jnp.asarray(list(product((1.0, -1.0), repeat=coins))) if coins else None
    out = _steps(system, integrator, jnp.asarray(dt), jnp.asarray(points), signs)
    return np.tensordot(weights / weights.sum(), np.asarray(out), axes=1).T


@eqx.filter_jit
def _steps(system, integrator, dt, points, signs=None):
    """One step from each basis state, for each point, on the average over signs."""

    def step(mu, S, sign):
        dS = Increment(S, jnp.full((), jnp.inf), signs=sign)
        return integrator.step(system, mu, jnp.zeros(()), dt, dS, integrator.init(system, mu))[0]

    def mean(mu, S):
        return step(mu, S, None) if signs is None else jnp.mean(jax.vmap(lambda x: step(mu, S, x))(signs), axis=0)

    return jax.vmap(lambda S: jax.vmap(lambda mu: mean(mu, S))(jnp.eye(system.algebra.dim)))(points)


DRIFTS = {"no drift": np.zeros(6), "a drift": np.array([0.7, -0.4, 0.5, 0.3, 0.6, -0.8])}
BY_INCREMENTS = [name for name, i in STOCHASTIC.items() if not i.needs(top("three")).integrals]
QUICK = ("TMK", "TMKWeak", "NinomiyaVictoir", "IsospectralMidpoint", "Strang")
WEAK = [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in BY_INCREMENTS]


def weak_errors(name, noise, drift, dts):
    """Of the mean after one step and at time 1, as norms of matrices."""
    system, G = linear_top(noise, DRIFTS[drift])
    steps = [mean_step(system, INTEGRATORS[name].fast(), dt) for dt in dts]
    local = [np.linalg.norm(P - exponential(dt * G)) for P, dt in zip(steps, dts, strict=True)]
    ends = [np.linalg.matrix_power(P, round(1 / dt)) for P, dt in zip(steps, dts, strict=True)]
    return np.array(local), np.array([np.linalg.norm(end - exponential(G)) for end in ends])


WEAK_DTS = 2.0 ** -np.arange(3, 8)


@pytest.mark.parametrize("drift", DRIFTS)
@pytest.mark.parametrize("name", WEAK)
def test_weak_order_without_monte_carlo(name, drift):
    """Three noises, with and without a drift: means of a step by quadrature, of many steps as powers of it."""
    local, whole = weak_errors(name, "three", drift, WEAK_DTS)
    claim = INTEGRATORS[name].claims.weak
    assert abs(slope(np.log(WEAK_DTS), np.log(local)) - claim - 1) < 0.1
    assert abs(slope(np.log(WEAK_DTS), np.log(whole)) - claim) < 0.1


def test_weak_errors_with_commuting_noises():
    """TMK has none without a drift, and order 1 with one; Strang has order 2."""
    assert weak_errors("TMK", "commuting", "no drift", WEAK_DTS)[1].max() < 1e-10
    for name, order in (("TMK", 1), ("Strang", 2), ("TMKWeak", 2), ("NinomiyaVictoir", 2)):
        _, whole = weak_errors(name, "commuting", "a drift", WEAK_DTS)
        assert abs(slope(np.log(WEAK_DTS), np.log(whole)) - order) < 0.1


# Two noises, and so one area: given ΔW it is ½(a₁ ΔW₂ − a₂ ΔW₁) + dt G/√12, ΔZ = (dt/2)(ΔW + a), Var a = dt/3, to
# second moments, which is all that counts at order 2; `test_integrals` has that the driver's numbers have them.


def mean_step_with_integrals(system, integrator, dt):
    """E μ₁ as a matrix on μ₀ by quadrature over increments, ΔZ and the area, level 3 in the mean."""
    rules = [np.polynomial.hermite_e.hermegauss(k) for k in (9, 9, 4, 4, 3)]
    w1, w2, a1, a2, G = (x.ravel() for x in np.meshgrid(*(x for x, _ in rules), indexing="ij"))
    weights = np.prod([w.ravel() for w in np.meshgrid(*(w for _, w in rules), indexing="ij")], axis=0)
    W, a = np.sqrt(dt) * np.stack([w1, w2], axis=1), np.sqrt(dt / 3) * np.stack([a1, a2], axis=1)
    area = 0.5 * (a[:, 0] * W[:, 1] - a[:, 1] * W[:, 0]) + dt / np.sqrt(12) * G
    areas = area[:, None, None] * np.array([[0.0, 1.0], [-1.0, 0.0]])
    rows = Increment(*map(jnp.asarray, (W, np.full(len(W), np.inf), 0.5 * dt * (W + a), areas)), mean_third(W, dt))
    out = _steps_along(system, integrator, jnp.asarray(dt), rows)
    return np.tensordot(weights / weights.sum(), np.asarray(out), axes=1).T


@eqx.filter_jit
def _steps_along(system, integrator, dt, rows):
    def step(mu, dS):
        return integrator.step(system, mu, jnp.zeros(()), dt, dS, integrator.init(system, mu))[0]

    return jax.vmap(lambda dS: jax.vmap(lambda mu: step(mu, dS))(jnp.eye(system.algebra.dim)))(rows)


@pytest.mark.parametrize("drift", DRIFTS)
@pytest.mark.parametrize(("name", "without_drift"), [("TMKLevy", 2), ("TMK15", 2), ("BathSplitting", 2)])
def test_weak_order_with_integrals(name, without_drift, drift):
    """Who needs areas, or ΔZ, is of weak order 2 without a drift, and of what it claims with one."""
    system, _ = linear_top("three", DRIFTS[drift])
    system = eqx.tree_at(lambda s: s.noises[0].beta, system, jnp.asarray(NOISES["three"][:2]))
    ad_star = [np.asarray(system.algebra.ad(jnp.asarray(x))).T for x in (DRIFTS[drift], *NOISES["three"][:2])]
    G = ad_star[0] + 0.5 * sum(a @ a for a in ad_star[1:])
    integrator = STOCHASTIC[name]
    assert integrator.needs(system).integrals
    steps = [mean_step_with_integrals(system, integrator.fast(), dt) for dt in WEAK_DTS]
    local = [np.linalg.norm(P - exponential(dt * G)) for P, dt in zip(steps, WEAK_DTS, strict=True)]
    order = without_drift if drift == "no drift" else integrator.claims.weak
    assert abs(slope(np.log(WEAK_DTS), np.log(local)) - order - 1) < 0.1


ISOTROPIC = {"TMKLevy": (-0.0019, -0.0006), "TMK15": (-0.0070, -0.0017)}  # errors of the mean at dt = ½ and ¼


@pytest.mark.slow
@pytest.mark.parametrize("name", ISOTROPIC)
def test_mean_under_isotropic_noise(name):
    """so(3), h = 0, β_i = e_i, t = 1: the mean is e⁻¹; TMK is at −0.0163 and −0.0079, exactly.

    A step turns a vector by a random angle θ about an axis of any direction, so means are multiplied by
    E (1 + 2 cos θ)/3: sampled with control variates, functions of |ΔW|² and |A|² whose means are known.
    """
    system = cj.System(cj.SO3(), lambda mu: 0.0 * mu[0], [cj.salt(np.eye(3))])
    for dt, error in zip((0.5, 0.25), ISOTROPIC[name], strict=True):
        mean, spread = mean_turn(system, STOCHASTIC[name].fast(), dt, 5000)
        n = round(1 / dt)
        assert abs(mean**n - np.exp(-1) - error) < 4 * n * mean ** (n - 1) * spread + 5e-5
        tmk = ((1 + 2 * (1 - dt) * np.exp(-dt / 2)) / 3) ** n
        assert abs(mean**n - np.exp(-1)) < 0.5 * abs(tmk - np.exp(-1))


def mean_turn(system, integrator, dt, blocks):
    """E (1 + 2 cos θ)/3 over steps of the driver, and its standard error."""
    window = cj.Brownian(11).window(3, dt, 0, 1, integrator.needs(system))
    y, r, a = np.concatenate(
        [_turns(system, integrator, window, jnp.asarray(dt), b) for b in jnp.arange(blocks)], axis=1
    )
    left = a - (dt**2 / 4 + dt * r / 6)  # E(|A|² | ΔW) = dt²/4 + dt |ΔW|²/6
    known = [r**k - dt**k * np.prod(np.arange(3, 2 * k + 2, 2)) for k in range(1, 5)]
    controls = np.stack([np.ones_like(r), *known, left, r * left], axis=1)
    fit, *_ = np.linalg.lstsq(controls, y, rcond=None)
    rest = y - controls[:, 1:] @ fit[1:]
    return rest.mean(), rest.std() / np.sqrt(len(rest))


@eqx.filter_jit
def _turns(system, integrator, window, dt, b):
    def one(dS):
        sigma = integrator.sigma(system, jnp.zeros(3), jnp.zeros(()), dt, dS)[0]
        return (1.0 + 2.0 * jnp.cos(jnp.sqrt(sigma @ sigma))) / 3.0, jnp.sum(dS.S**2), 0.5 * jnp.sum(dS.areas**2)

    return jnp.stack(jax.vmap(one)(window.block(jnp.asarray(0), b)))


def exponential(a):
    """exp(a) by its Taylor series, at norms of a few."""
    term = total = np.eye(len(a))
    for k in range(1, 60):
        term = term @ a / k
        total = total + term
    return total
