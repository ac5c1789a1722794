"""The round-off correction removes a few ulps per step, and cannot change a state by more."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from algebras import ALGEBRAS

import coadjoint as cj
from coadjoint.algebras.casimirs import clip_correction, project_casimirs

EPS = np.finfo(float).eps
ULPS = 16 * EPS
ROWS = 200
CURED = ["SO3", "SE3", "so(4)", "sl(2,R)"]
rng = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def seeded(monkeypatch):
    """The states of a test do not depend on the tests before it."""
    monkeypatch.setitem(globals(), "rng", np.random.default_rng(0))


def test_cap():
    """What is small passes as it is; what is large is cut to 16 ulps of |μ| in its direction; nonsense is dropped."""
    mu = jnp.array([3.0, 4.0, 0.0])
    small, large = jnp.array([1e-15, 0.0, 2e-15]), jnp.array([1e-3, -1e-3, 0.0])
    capped = lambda x, mu: clip_correction(x, x @ x, mu @ mu)
    np.testing.assert_array_equal(capped(small, mu), small)
    np.testing.assert_allclose(capped(large, mu), large / np.linalg.norm(large) * ULPS * 5, rtol=1e-14)
    for nonsense in (np.nan, np.inf):
        np.testing.assert_array_equal(capped(large.at[0].set(nonsense), mu), np.zeros(3))
    np.testing.assert_array_equal(capped(large, jnp.zeros(3)), np.zeros(3))


@cache
def _compiled(name):
    algebra = ALGEBRAS[name].algebra

    def one(sigma, mu, other):
        """From μ, with the anchor of another state: transport, flow, and the correction alone; Casimirs before and
        after."""
        moved = algebra.drift_free_flow(sigma, mu, algebra.orbit_memory(other))[0]
        states = jnp.stack([mu, other, moved, project_casimirs(algebra, mu, algebra.casimirs(other))])
        gradients = jax.jacrev(algebra.casimirs)(mu)
        return moved, algebra.flow(sigma, mu), jax.vmap(algebra.casimirs)(states), jnp.linalg.norm(gradients, axis=1)

    return jax.jit(jax.vmap(one))


def steps(name, sigma, mu, other):
    """`_compiled` on arrays of rows, padded to a fixed number of them."""
    n = len(mu)
    rows = (np.concatenate([x, np.repeat(x[-1:], ROWS - n, axis=0)]) for x in (sigma, mu, other))
    return [np.asarray(x)[:n] for x in _compiled(name)(*rows)]


def random_states(name):
    sigma, mu = rng.standard_normal((2, ROWS, ALGEBRAS[name].algebra.dim))
    return 0.3 * sigma, mu


@pytest.mark.parametrize("name", CURED)
def test_round_off_is_removed(name):
    """An error of a few ulps in the state shrinks in the Casimirs, to what the last bit of a double leaves."""
    sigma, mu = random_states(name)
    wrong = mu * (1 + 4 * EPS * rng.standard_normal(mu.shape))
    *_, casimirs, gradients = steps(name, sigma, wrong, mu)
    before, wanted, moved, cured = np.moveaxis(casimirs, 1, 0)

    def error(values):
        return np.sqrt(np.mean(((values - wanted) / gradients) ** 2))

    assert error(before) > 2 * EPS
    assert error(cured) < 0.4 * error(before)
    assert error(moved) < 0.6 * error(before)


@pytest.mark.parametrize("name", CURED)
@pytest.mark.parametrize("size", [1e-8, 0.1])
def test_a_real_error_stays(name, size):
    """With the Casimirs of a state off by `size`, transport is still flow but for 16 ulps, and the error remains."""
    sigma, mu = random_states(name)
    moved, plain, casimirs, gradients = steps(name, sigma, mu, mu * (1 + size))
    # Transport and flow may round differently, too.
    assert np.max(np.linalg.norm(moved - plain, axis=1) / np.linalg.norm(plain, axis=1)) < 1.5 * ULPS
    own, false, after, cured = np.moveaxis(casimirs, 1, 0)
    # Round-off of a Casimir is relative to its gradient: near a cone, where it is almost zero, no error stands out.
    relevant = abs(false - own) > 0.1 * size * gradients * np.linalg.norm(mu, axis=1, keepdims=True)
    assert np.mean(relevant) > 0.5
    for values in after, cured:
        assert np.all(abs((values - false)[relevant] / (own - false)[relevant] - 1) < 1e-3)


DEGENERATE = {
    "SO3": [np.zeros(3), 1e-200 * np.ones(3)],
    "SE3": [np.zeros(6), np.array([1.0, 2, 3, 0, 0, 0]), np.array([1.0, 2, 3, 1e-9, 0, 1e-9]), 1e-160 * np.ones(6)],
    # self-dual: the two Casimirs have parallel gradients
    "so(4)": [np.array([1.0, 0, 0, 0, 0, 1.0]), np.array([1.0, 0, 0, 0, 0, 1.0 + 1e-9]), np.zeros(6)],
}


@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_states_are_left_in_peace(name):
    """Where gradients of Casimirs vanish or are parallel, a step still changes no more than round-off."""
    mu = np.array(DEGENERATE[name])
    moved, plain, *_ = steps(name, rng.standard_normal(mu.shape), mu, mu)
    assert np.all(np.isfinite(moved))
    assert np.all(np.linalg.norm(moved - plain, axis=1) <= 1.5 * ULPS * np.linalg.norm(plain, axis=1))


@pytest.mark.parametrize("noisy", [False, True])
def test_low_order_words_are_kept_for_the_energy_alone(noisy):
    """With noise there is no energy to keep: a run remembers the Casimirs, and these stay as they are."""
    system, mu0 = cj.models.heavy_top(alpha=(0.1, 0.2, 0.3) if noisy else None)
    assert len(jax.tree.leaves(cj.TMK().init(system, jnp.asarray(mu0)).orbit_memory)) == (1 if noisy else 2)
    sol = cj.solve(system, mu0, t1=1000.0, dt=0.01, key=0 if noisy else None, save_every=1000)
    assert sol.casimir_errors().max() < 2e-15
