"""Products of 2 to 9 copies of every algebra, with small and large steps beside each other, against NumPy and XLA."""

from functools import cache

import jax.numpy as jnp
import numpy as np
import pytest
from algebras import ALGEBRAS
from scipy.linalg import expm

import coadjoint as cj

MEMBERS, STEPS, DT = 8, 2, 0.1
SIZES = np.geomspace(0.01, 6.0, 7)  # of a step, |σ| of one copy


@cache
def generators(name):
    """A_i with ad*_σ μ = Σ_i σ_i A_i μ, in coordinates."""
    algebra = ALGEBRAS[name].algebra
    basis = [algebra.element(e) for e in jnp.eye(algebra.dim)]
    return np.array([[algebra.coordinates(algebra.ad_star(x, m)) for m in basis] for x in basis]).swapaxes(1, 2)


def turned(name, sigma, mu):
    """exp(ad*_σ) μ, copy by copy."""
    A = generators(name)
    return np.stack([expm(np.einsum("i,iab->ab", s, A)) @ m for s, m in zip(sigma, mu, strict=True)])


def by_numpy(name, mu, p):
    """Steps of Heun's method with the forcing p cos μ."""
    mu, p = mu.reshape(-1, len(generators(name))), p.reshape(-1, len(generators(name)))
    field = lambda mu: DT * p * np.cos(mu)
    for _ in range(STEPS):
        first = field(mu)
        mu = turned(name, 0.5 * (first + field(turned(name, first, mu))), mu)
    return mu.ravel()


def given(name, copies):
    """States of members, and the forcing by member, of which each copy has a size of its own."""
    dim, rng = len(generators(name)), np.random.default_rng(copies)
    mu, p = rng.standard_normal((2, MEMBERS, copies, dim))
    sizes = rng.choice(SIZES, (MEMBERS, copies, 1))
    return mu.reshape(MEMBERS, -1), (sizes / DT * p / np.linalg.norm(p, axis=2, keepdims=True)).reshape(MEMBERS, -1)


def explicit(name, copies):
    """Groups of eight members, and a single trajectory."""
    mu, p = given(name, copies)
    algebra = cj.Product(ALGEBRAS[name].algebra, copies=copies)
    system = cj.System(algebra, lambda m, p: 0.0 * m[0], forcing=lambda m, p: p * jnp.cos(m), params=p[0])
    options = {"t1": STEPS * DT, "dt": DT, "integrator": cj.HeunMK(drift_free=False)}
    together = cj.ensemble(system, mu, members=MEMBERS, params=p, **options)
    alone = cj.solve(system, mu[0], **options)
    truth = np.array([by_numpy(name, m, q) for m, q in zip(mu, p, strict=True)])
    bound = 1e-11 * np.max(np.abs(truth), axis=1, keepdims=True)
    assert np.all(np.abs(np.asarray(together.mu)[:, -1] - truth) <= bound), (name, copies)
    assert np.all(np.abs(np.asarray(alone.mu)[-1] - truth[0]) <= bound[0]), (name, copies)
    return alone.stats.backend


@pytest.mark.parametrize("name, copies", [("SE3", 4), ("SO3", 3)])
def test_copies(name, copies):
    assert explicit(name, copies) == "native"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The state has grown")  # on orbits that are not compact
@pytest.mark.parametrize("name", ALGEBRAS)
def test_all_copies(name):
    for copies in range(2, 10):
        explicit(name, copies)


METHODS = {"TMK": cj.TMK(), "gauss2": cj.RKMK("gauss2"), "rk4": cj.RKMK("rk4"), "Cayley": cj.TMK(tau=cj.Cayley())}


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("copies", [2, 3, 4])
@pytest.mark.parametrize("name", ["SO3", "SE3", "e(2)", "sl(2,R)"])
def test_implicit_steps(name, copies, method):
    """Native code against XLA: where both converge, they agree."""
    dim = len(generators(name))
    weights = np.random.default_rng(0).uniform(0.5, 2.0, copies * dim)
    h = lambda m, p: p * (0.5 * jnp.sum(weights * m**2) + 0.2 * jnp.sum(jnp.sin(m) * jnp.roll(m, dim)))
    system = cj.System(cj.Product(ALGEBRAS[name].algebra, copies=copies), h, params=1.0)
    mu, p = given(name, copies)[0], SIZES[np.arange(MEMBERS) % len(SIZES)]
    options = {"t1": STEPS * DT, "dt": DT, "integrator": METHODS[method], "throw": False, "params": p}
    native, xla = (cj.ensemble(system, mu, members=MEMBERS, backend=b, **options) for b in ("auto", "xla"))
    assert native.stats.unsolved == xla.stats.unsolved
    scale = np.max(np.abs(xla.mu), axis=(1, 2), keepdims=True)
    assert np.all(np.abs(native.mu - xla.mu) <= 1e-9 * scale), np.abs(native.mu - xla.mu).max(axis=(1, 2))
