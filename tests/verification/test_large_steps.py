"""Item 5: the implicit equation at large steps: solved, for the right root, or reported."""

import numpy as np
import pytest

import coadjoint as cj

from .measurement import INERTIAS, casimir_errors, exp_action, worst

MEMBERS, T = 20, 200.0
ALPHA = np.array([0.01, 0.02, 0.03])
SOLVED = [(i, dt) for i in INERTIAS for dt in (0.25, 0.5, 1.0, 1.5)]
WITH_FALLBACKS = [((4, 4, 1), dt) for dt in (2.0, 2.5, 3.0, 4.0, 5.0)] + [((4, 2, 1), dt) for dt in (1.75, 2.0)]


def realisations(inertia, dt, key=0, **kw):
    """20 realisations to the multiple of dt nearest to T = 200."""
    system, mu0 = cj.models.heavy_top(inertia=inertia)
    return cj.ensemble(system, mu0, members=MEMBERS, t1=dt * round(T / dt), dt=dt, key=key, **kw)


@pytest.mark.parametrize(("inertia", "dt"), SOLVED + WITH_FALLBACKS)
def test_no_unsolved_step(inertia, dt):
    """None for dt ≤ 1.5, nor, with the fallbacks, up to dt = 5 for diag(4, 4, 1) and dt = 2 for diag(4, 2, 1)."""
    ens = realisations(inertia, dt)  # raises if a step does not converge
    assert ens.stats.unsolved == 0 and ens.stats.first_unsolved == -1
    assert ens.stats.steps == round(T / dt) and ens.mu.shape == (20, round(T / dt) + 1, 6)
    assert ens.stats.residual <= (1e-14 if dt <= 2 else 1e-11)  # the latter where it meets round-off, near a fold
    assert worst(casimir_errors(ens)) <= 5e-15


@pytest.mark.slow
@pytest.mark.parametrize("key", range(1, 11))
@pytest.mark.parametrize(("inertia", "dt"), [((4, 4, 1), 1.5), ((4, 4, 1), 5.0), ((4, 2, 1), 1.5), ((4, 2, 1), 2.0)])
def test_no_unsolved_step_on_other_paths(inertia, dt, key):
    """It was not the luck of one key: ten more."""
    assert realisations(inertia, dt, key).stats.unsolved == 0


# ------------------------------------------------------------------------------- the equation, in numpy


def hat(a):
    zero = np.zeros_like(a[..., 0])
    rows = [[zero, -a[..., 2], a[..., 1]], [a[..., 2], zero, -a[..., 0]], [-a[..., 1], a[..., 0], zero]]
    return np.moveaxis(np.array(rows), (0, 1), (-2, -1))


def flow(sigma, mu):
    """exp(ad*_σ) μ with ad*_(ω,v) (π, γ) = (π×ω + γ×v, γ×ω), for one σ or a stack of them."""
    omega, v = hat(sigma[..., :3]), hat(sigma[..., 3:])
    return exp_action(-np.block([[omega, v], [np.zeros_like(omega), omega]]), mu)


def zeta(inertia, m, dt, dS):
    gravity = np.broadcast_to([0.0, 0.0, -dt], m[..., 3:].shape)
    return np.concatenate([dt * m[..., :3] / np.array(inertia) + dS * ALPHA, gravity], axis=-1)


def continued(inertia, mu, dt, dS, steps=50):
    """The root at λ = 1 continued from σ = 0 at λ = 0 by small steps of λ; fails if the curve turns back."""

    def f(sigma, lam):
        return sigma - lam * zeta(inertia, 0.5 * (mu + flow(sigma, mu)), dt, dS)

    h = 1e-6
    around = np.concatenate([np.zeros((1, 6)), h * np.eye(6), -h * np.eye(6)])
    sigma = np.zeros(6)
    for lam in np.linspace(0, 1, steps + 1)[1:]:
        for _ in range(20):
            values = f(sigma + around, lam)
            change = np.linalg.solve((values[1:7] - values[7:]).T / (2 * h), values[0])
            assert np.linalg.norm(change) < 0.2  # it stays near: no jump to another root
            sigma = sigma - change
            if np.linalg.norm(change) < 1e-11:
                break
        else:
            raise AssertionError(f"Newton's method failed at λ = {lam}.")
    return sigma


def increments(dt, steps):
    return np.sqrt(dt) * np.random.default_rng(0).standard_normal(steps)


def path(inertia, dt, steps):
    """States and increments of one trajectory."""
    dS = increments(dt, steps)
    system, mu0 = cj.models.heavy_top(inertia=inertia)
    return cj.solve(system, mu0, t1=dt * steps, dt=dt, driver=cj.Increments(dS)).mu, dS


@pytest.mark.parametrize(("inertia", "dt"), [((4, 4, 1), 1.5), ((4, 4, 1), 5.0), ((4, 2, 1), 1.5), ((4, 2, 1), 2.0)])
def test_roots_are_roots(inertia, dt):
    """μ_{n+1} = flow(σ, μ_n) with σ = ζ(½(μ_n + μ_{n+1})): the scheme, checked from the outside."""
    mu, dS = path(inertia, dt, 100)
    for n in range(100):
        sigma = zeta(inertia, 0.5 * (mu[n] + mu[n + 1]), dt, dS[n])
        np.testing.assert_allclose(flow(sigma, mu[n]), mu[n + 1], rtol=0, atol=1e-12)
    moved = np.linalg.norm(np.diff(mu, axis=0), axis=1)
    assert np.median(moved) > 0.5  # large steps indeed


@pytest.mark.parametrize(("inertia", "dt"), [((4, 4, 1), 1.0), ((4, 4, 1), 1.5), ((4, 2, 1), 1.0), ((4, 2, 1), 1.5)])
def test_the_root_is_the_one_continued_from_zero(inertia, dt):
    """At large steps the root need not be unique; the one meant is followed here in 50 steps of λ."""
    mu, dS = path(inertia, dt, 100)
    for n in range(0, 100, 25):
        sigma = continued(inertia, mu[n], dt, dS[n])
        np.testing.assert_allclose(mu[n + 1], flow(sigma, mu[n]), rtol=0, atol=1e-9)


# ----------------------------------------------------------------------------------- steps that are not solved


def assert_casimirs_kept(sol):
    """To the round-off of an action by |σ| ~ dt; and π has no more than gravity can give it, |γ| |χ| a unit of time."""
    gravity = np.max(np.linalg.norm(np.asarray(sol.mu)[..., 3:], axis=-1)) * sol.dt * sol.stats.steps
    assert np.all(np.isfinite(sol.mu)) and worst(sol.mu) < 1 + gravity
    assert worst(casimir_errors(sol)) < 1e-15 * sol.dt


def test_unsolved_steps_are_counted_and_raised():
    """dt = 500: steps that do not converge raise, with all results up to there; told not to, they are counted,
    Casimirs kept."""
    steps, dt = 40, 500.0
    system, mu0 = cj.models.heavy_top(inertia=(4, 2, 1))
    run = {"t1": steps * dt, "dt": dt, "driver": cj.Increments(increments(dt, steps))}
    with pytest.raises(cj.UnsolvedStepError, match="steps could not be solved, first at step") as raised:
        cj.solve(system, mu0, **run)
    assert raised.value.solution.stats.unsolved > 0
    sol = cj.solve(system, mu0, throw=False, **run)
    assert 0 < sol.stats.unsolved < steps == sol.stats.steps
    first = sol.stats.first_unsolved
    assert first == raised.value.solution.stats.first_unsolved and f"first at step {first} " in str(raised.value)
    assert sol.stats.residual > 1e-3  # nowhere near a root
    assert_casimirs_kept(sol)


def test_unsolved_steps_are_counted_over_members():
    """The same for an ensemble: the count is over all members, and over them alone."""
    system, mu0 = cj.models.heavy_top(inertia=(4, 2, 1))
    run = {"members": MEMBERS, "t1": 2000.0, "dt": 500.0, "key": 0}
    with pytest.raises(cj.UnsolvedStepError, match="over 20 members"):
        cj.ensemble(system, mu0, **run)
    ens = cj.ensemble(system, mu0, throw=False, **run)
    assert 0 < ens.stats.unsolved < 4 * MEMBERS and ens.stats.steps == 4
    assert ens.stats.residual > 1e-3
    assert_casimirs_kept(ens)


@pytest.mark.slow
def test_every_unsolved_step_is_counted():
    """One iteration solves no step: the count is the number of steps, and the Casimirs do not mind."""
    system, mu0 = cj.models.heavy_top()
    sol = cj.solve(system, mu0, t1=100.0, dt=0.5, key=0, integrator=cj.TMK(max_steps=1, fallbacks=False), throw=False)
    assert sol.stats.unsolved == sol.stats.steps == 200 and sol.stats.first_unsolved == 0
    assert worst(casimir_errors(sol)) <= 5e-15


@pytest.mark.slow
@pytest.mark.parametrize(("inertia", "dt"), [((4, 4, 1), 0.8), ((4, 2, 1), 0.6)])
def test_chord_alone(inertia, dt):
    """With the Jacobian's sign consistent the chord method needs no help at the paper's critical steps."""
    assert realisations(inertia, dt, integrator=cj.TMK(fallbacks=False)).stats.unsolved == 0
