"""Weak order 2: means by quadrature over a step, by ensembles, and the error of the invariant measure."""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coadjoint as cj
from coadjoint.drivers import Increment

from .tools import slope

A2 = (1 / 2, 1 / 4, 1 / 8, 1 / 16)
ERRORS = {
    "TMK": (-1.631e-2, -7.907e-3, -3.892e-3, -1.931e-3),
    "TMKWeak": (-3.282e-3, -7.235e-4, -1.699e-4, -4.118e-5),
}


def factor(integrator, dt):
    """What a step multiplies the mean of a vector by, under isotropic noise on so(3): Gauss–Hermite, all coins."""
    system = cj.System(cj.SO3(), lambda mu: 0.0 * mu[0], [cj.salt(np.eye(3))])
    x, w = np.polynomial.hermite_e.hermegauss(16)
    points = np.sqrt(dt) * np.stack(np.meshgrid(x, x, x, indexing="ij"), -1).reshape(-1, 3)
    weights = np.einsum("i,j,k->ijk", w, w, w).reshape(-1) / w.sum() ** 3
    coins = integrator.needs(system).signs
    signs = jnp.asarray(list(product((1.0, -1.0), repeat=coins)))
    mu = jnp.array([0.0, 0.0, 1.0])

    def end(S, sign):
        dS = Increment(S, jnp.full((), jnp.inf), signs=sign if coins else None)
        return integrator.step(system, mu, 0.0, dt, dS, integrator.init(system, mu))[0][2]

    means = jax.jit(jax.vmap(lambda S: jnp.mean(jax.vmap(lambda sign: end(S, sign))(signs))))(points)
    return weights @ np.asarray(means)


@pytest.mark.parametrize("name", ERRORS)
def test_isotropic_noise_to_the_digits(name):
    """The error of the mean at σ²t = 1 by one exponential of increments, and of increments, coins and level 3."""
    got = [factor(cj.integrators.ALL[name].fast(), a2) ** round(1 / a2) - np.exp(-1) for a2 in A2]
    np.testing.assert_allclose(got, ERRORS[name], rtol=3e-4)


def test_one_rotation_after_the_other_is_exact():
    """A product of rotations about the axes has the exact mean, so this problem can refute an order, not confirm it."""
    assert abs(factor(cj.NinomiyaVictoir(), 0.5) - np.exp(-0.5)) < 1e-13


# ------------------------------------------------------------------------------------------------- ensembles


def body(bath):
    """A rigid body with a quadratic energy: three noises that do not commute, with a bath's friction or without."""
    I = jnp.array([1.0, 2.0, 3.0])
    beta = np.array([[0.5, 0.2, 0.0], [0.0, 0.4, -0.3], [0.2, 0.0, 0.6]])
    forcing = [lambda m: 0.4 * jnp.cross(m, m / I)] if bath else []
    return cj.System(cj.SO3(), lambda m: 1.5 * m @ (m / I), [cj.salt(beta)], forcing=forcing)


@pytest.mark.slow
@pytest.mark.parametrize("bath", [False, True])
@pytest.mark.parametrize("name", ["TMKWeak", "NinomiyaVictoir", "BathSplitting"])
def test_weak_order_by_ensembles(name, bath):
    """E f at t = 2 with steps 1, ½, ¼ against ⅛, which is of order 2 as well: errors are dt² − 1/64."""
    system, members, total = body(bath), 2**16, 2**21
    dts = np.array([1.0, 0.5, 0.25, 0.125])

    def mean(dt):
        values = []
        for key in range(total // members):
            ens = cj.ensemble(
                system, [0.6, 0.0, 0.8], members=members, t1=2.0, dt=dt, driver=cj.Brownian(key, grid=0.125),
                integrator=cj.integrators.ALL[name], save_every=round(2 / dt), save=lambda m: m[0] + m[1] * m[2],
                throw=False,
            )  # fmt: skip
            values.append(np.asarray(ens.saved)[:, -1].mean())
        return np.array(values)

    means = np.array([mean(dt) for dt in dts])
    errors = np.abs((means[:3] - means[3]).mean(axis=1))
    spread = (means[:3] - means[3]).std(axis=1, ddof=1) / np.sqrt(total // members)
    assert np.all(spread < 0.1 * errors), (errors, spread)
    order = slope(np.log(dts[1:3] ** 2 - dts[3] ** 2), np.log(errors[1:])) * 2
    uncertain = 2 * np.hypot(*(spread[1:] / errors[1:])) / np.log(5.0)
    assert abs(order - 2.0) < 0.1 + 3 * uncertain, (order, uncertain, errors, spread)


INVARIANT = {"HeunMK": 2.0, "NinomiyaVictoir": 2.0, "BathSplitting": 2.0}


@pytest.mark.slow
@pytest.mark.parametrize("name", INVARIANT)
def test_error_of_the_invariant_measure(name):
    """⟨h⟩ of a rigid body in a bath, I = (1, 2, 3), T = 0.1, θ = 1: exactly 0.2459640; order 2, with HeunMK too."""
    I = np.array([1.0, 2.0, 3.0])
    bath = cj.heat_bath(cj.System(cj.SO3(), lambda m: 0.5 * m @ (m / I)), temperature=0.1, friction=1.0)
    errors, spread, dts = [], [], np.array([1.6, 0.8])
    for dt in dts:
        ens = cj.ensemble(
            bath, [0.0, 0.6, 0.8], members=2**14, t1=1280.0, dt=dt, key=5, save_every=round(1.6 / dt),
            integrator=cj.integrators.ALL[name], save=lambda m: 0.5 * m @ (m / I),
        )  # fmt: skip
        means = np.asarray(ens.saved)[:, 12:].mean(axis=1)
        errors.append(means.mean() - 0.2459640)
        spread.append(means.std() / np.sqrt(len(means)))
    order = np.log2(errors[0] / errors[1])
    uncertain = np.hypot(*(np.array(spread) / np.array(errors))) / np.log(2)
    assert abs(order - INVARIANT[name]) < 0.3 + 3 * uncertain, (order, uncertain, errors, spread)
