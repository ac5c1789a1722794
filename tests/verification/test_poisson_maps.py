"""Poisson maps, with noise too: DΦ J(μ) DΦᵀ = J(Φ(μ)), and the energy error that stays bounded without noise."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coadjoint as cj
from coadjoint.drivers import Increment

from .measurement import INTEGRATORS, quartic_body, slope, worst

# The dual of so(3), se(3), su(3): quartic energies, SALT noise and noise that is not, left and right. All energies and
# noises are sums of exactly solvable parts, so that splittings can be tried too.
INERTIA = jnp.array([1.0, 2.0, 3.0])
BETA = np.random.default_rng(0).standard_normal((3, 8))
WEIGHTS = jnp.arange(1.0, 9.0)


def coordinates(W):
    return cj.SU(3).coordinates(W)


SYSTEMS = {
    "so(3)": cj.System(
        cj.SO3(),
        lambda m: 0.5 * m @ (m / INERTIA) + 0.05 * jnp.sum(m**4),
        [cj.salt(BETA[0, :3]), lambda m: 0.3 * (m[0] - m[1]) ** 3],
    ),
    "se(3)": cj.System(
        cj.SE3(),
        lambda m: 0.5 * m[:3] @ (m[:3] / INERTIA) - m[5] + 0.1 * m[0] ** 2 * m[3] ** 2 + 0.1 * m[4] ** 4,
        [cj.salt(BETA[1:, :6])],
        side="right",
    ),
    "su(3)": cj.System(
        cj.SU(3),
        lambda W: jnp.sum(0.1 * WEIGHTS * coordinates(W) ** 2 + 0.05 * coordinates(W) ** 4),
        [cj.salt(jax.jit(cj.SU(3).element)(BETA[0]))],
        side="right",
    ),
}


def defect(system, integrator, seed=1):
    """Of one large step from a random state, with large increments."""
    c = np.random.default_rng(seed).standard_normal(system.algebra.dim)
    S = 0.4 * np.cos(1.0 + np.arange(system.n_noise))
    D, end, before, after = map(np.asarray, _derivative(system, _plain(integrator), jnp.asarray(c), jnp.asarray(S)))
    assert worst(end - c) > 0.05  # it moved
    return worst(D @ before @ D.T - after)


def _plain(integrator):
    """Without fallbacks, which take long to compile."""
    solve = getattr(integrator, "solve", None)
    if solve is None:
        return integrator
    return eqx.tree_at(lambda i: i.solve, integrator, dataclasses.replace(solve, fallbacks=False))


@eqx.filter_jit
def _derivative(system, integrator, c, S):
    """DΦ and Φ at a state with coordinates c, and J there and at Φ."""

    def step(c):
        mu = system.algebra.element(c)
        dS = Increment(S, jnp.full((), jnp.inf))
        mu, *_ = integrator.step(system, mu, jnp.zeros(()), jnp.asarray(0.2), dS, integrator.init(system, mu))
        end = system.algebra.coordinates(mu)
        return end, end

    D, end = jax.jacfwd(step, has_aux=True)(c)
    before, after = jax.vmap(lambda x: system.algebra.poisson(system.algebra.element(x)))(jnp.stack([c, end]))
    return D, end, before, after


CLAIMED = [name for name, i in INTEGRATORS.items() if i.claims.symplectic]


def fast(where, name):
    return (where, name) in (("so(3)", "LieMidpoint"), ("so(3)", "Strang"), ("su(3)", "IsospectralMidpoint"))


PAIRS = [(where, name) for where in SYSTEMS for name in CLAIMED]
PAIRS = [pair if fast(*pair) else pytest.param(*pair, marks=pytest.mark.slow) for pair in PAIRS]


@pytest.mark.parametrize(("where", "name"), PAIRS)
def test_poisson_map(where, name):
    """To 1e-12, with noise, for every method that claims it."""
    assert defect(SYSTEMS[where], INTEGRATORS[name]) < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("name", ["TMK", 'RKMK("gauss2")'])
def test_not_a_poisson_map(name):
    """The same defect of methods that are none: it is not the test that is blind."""
    assert defect(SYSTEMS["so(3)"], INTEGRATORS[name]) > 1e-5


@pytest.mark.parametrize("name", CLAIMED)
def test_bounded_energy_error(name):
    """10⁶ steps with a quartic energy: the error of the second half is that of the first, without a trend."""
    system, mu0 = quartic_body()
    order = INTEGRATORS[name].claims.order
    dt = {4: 0.5, 6: 1.0}.get(order, 0.1)  # so long that the error is not round-off
    sol = cj.solve(system, mu0, t1=1e6 * dt, dt=dt, integrator=INTEGRATORS[name], save_every=100)
    assert sol.stats.steps == 1_000_000
    error = sol.energy() - sol.energy()[0]
    assert 5e-7 < worst(error) < 0.01 * 5 ** (2 - order)
    assert worst(error[5000:]) < 1.02 * worst(error[:5000])
    assert abs(slope(np.linspace(-0.5, 0.5, len(error)), error)) < 1e-2 * worst(error)


def test_an_energy_error_that_grows():
    """Heun's method in the algebra is no Poisson map and not symmetric: it ends far away."""
    system, mu0 = quartic_body()
    method = cj.HeunMK(remove_stabiliser=False)
    energy = cj.solve(system, mu0, t1=1e5, dt=0.1, integrator=method, save_every=100).energy()
    assert worst(energy - energy[0]) > 0.1
