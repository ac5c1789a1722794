"""Weak order 2: means and invariant measures by quadrature over a step, without sampling."""

from itertools import product
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coadjoint as cj
from coadjoint.drivers import Increment

from .measurement import slope
from .transfer import Sphere, exact_mean, invariant

A2 = (1 / 2, 1 / 4, 1 / 8, 1 / 16)
ERRORS = {
    "TMK": (-1.631e-2, -7.907e-3, -3.892e-3, -1.931e-3),
    "TMKWeak": (-3.282e-3, -7.235e-4, -1.699e-4, -4.118e-5),
}


def factors(integrator, dts):
    """What a step multiplies the mean of a vector by, under isotropic noise on so(3): Gauss–Hermite, all Rademacher
    variables."""
    system = cj.System(cj.SO3(), lambda mu: 0.0 * mu[0], [cj.salt(np.eye(3))])
    x, w = np.polynomial.hermite_e.hermegauss(16)
    points = np.stack(np.meshgrid(x, x, x, indexing="ij"), -1).reshape(-1, 3)
    weights = np.einsum("i,j,k->ijk", w, w, w).reshape(-1) / w.sum() ** 3
    coins = integrator.needs(system).signs
    signs = np.array(list(product((1.0, -1.0), repeat=coins)))
    mu = np.array([0.0, 0.0, 1.0])

    def end(dt, S, sign):
        dS = Increment(S, jnp.full((), jnp.inf), signs=sign if coins else None)
        return integrator.step(system, jnp.asarray(mu), 0.0, dt, dS, integrator.init(system, jnp.asarray(mu)))[0][2]

    mean = jax.jit(jax.vmap(lambda dt, S: jnp.mean(jax.vmap(lambda sign: end(dt, S, sign))(signs)), (None, 0)))
    return np.array([weights @ np.asarray(mean(dt, np.sqrt(dt) * points)) for dt in dts])


@pytest.mark.parametrize("name", ERRORS)
def test_isotropic_noise_to_the_digits(name):
    """The error of the mean at σ²t = 1 by one exponential of increments, and of increments, Rademacher variables and
    level 3."""
    got = factors(cj.integrators.ALL[name].fast(), A2) ** np.round(1 / np.array(A2)) - np.exp(-1)
    np.testing.assert_allclose(got, ERRORS[name], rtol=3e-4)


def test_one_rotation_after_the_other_is_exact():
    """A product of rotations about the axes has the exact mean, so this problem can refute an order, not confirm it."""
    assert abs(factors(cj.NinomiyaVictoir(), [0.5])[0] - np.exp(-0.5)) < 1e-13


# ------------------------------------------------------- the distribution of a step on the sphere, without sampling

SPHERE = Sphere(14)
WEAK = {name: i for name, i in cj.integrators.ALL.items() if i.claims.weak == 2.0}
I = jnp.array([1.0, 2.0, 3.0])


def body(kind):
    """A rigid body with a quadratic energy; noises that do not commute, with friction or without, or that commute."""
    beta = np.array([[0.5, 0.2, 0.0], [0.0, 0.4, -0.3], [0.2, 0.0, 0.6]])
    if kind == "commuting":
        beta = np.array([[0.5, 0.2, 0.3], [0.25, 0.1, 0.15]])
    forcing = [lambda m: 0.4 * jnp.cross(m, m / I)] if kind == "friction" else []
    return cj.System(cj.SO3(), lambda m: 1.5 * m @ (m / I), [cj.salt(beta)], forcing=forcing)


def weak_order(integrator, kind):
    """Of E f at t = 1, against the mean by the generator: the exponent between the steps, and all errors."""
    system = body(kind)
    f, x = SPHERE.of(lambda m: m[0] + m[1] * m[2]), SPHERE.at([0.6, 0.0, 0.8])
    exact = exact_mean(SPHERE.generator(system), 1.0, x, f)
    dts = np.array([1 / 8, 1 / 16, 1 / 32, 1 / 64])
    P = SPHERE.step(system, integrator)
    errors = np.array([x @ np.linalg.matrix_power(P(dt), round(1 / dt)) @ f - exact for dt in dts])
    return slope(np.log(dts[1:]), np.log(np.abs(errors[1:]))), errors


def test_weak_order_2():
    """Non-commuting noises, friction: what a heat bath is."""
    order, errors = weak_order(cj.NinomiyaVictoir(), "friction")
    assert abs(order - 2.0) < 0.1, (order, errors)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", "friction", "commuting"])
@pytest.mark.parametrize("name", WEAK)
def test_weak_orders(name, kind):
    """2 for all that claim it, on three problems."""
    order, errors = weak_order(WEAK[name], kind)
    assert abs(order - 2.0) < 0.1, (order, errors)


@pytest.mark.slow
def test_weak_order_1_is_seen():
    """TMK has order 1 where noises do not commute: so the quadrature can tell."""
    order, errors = weak_order(cj.TMK(), "plain")
    assert abs(order - 1.0) < 0.1, (order, errors)


INVARIANT = {  # the error of ⟨h⟩ at dt = 0.8, 0.4, 0.2, as docs/guides/temperature.md has it
    "HeunMK": (4.94e-3, 1.27e-3, 4.14e-4),
    "TMK": (9.79e-5, -1.02e-4, -9.06e-5),
    "TMKWeak": (1.09e-3, 2.61e-4, 6.49e-5),
    "NinomiyaVictoir": (-1.07e-3, -2.75e-4, -6.94e-5),
    "BathSplitting": (8.13e-4, 1.20e-4, 2.41e-5),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", INVARIANT)
def test_error_of_the_invariant_measure(name):
    """⟨h⟩ of a rigid body in a bath, I = (1, 2, 3), T = 0.1, θ = 1, in the law that steps leave as it is."""
    bath = cj.heat_bath(cj.System(cj.SO3(), lambda m: 0.5 * m @ (m / I)), temperature=0.1, friction=1.0)
    h, one = SPHERE.of(lambda m: 0.5 * m @ (m / I)), SPHERE.of(lambda m: jnp.ones(()))
    exact = invariant(SPHERE.generator(bath), h, one, at=0.0)
    assert abs(exact - 0.245964) < 1e-6
    P = SPHERE.step(bath, cj.integrators.ALL[name])
    errors = np.array([invariant(P(dt), h, one) - exact for dt in (0.8, 0.4, 0.2, 0.1, 0.05)])
    np.testing.assert_allclose(errors[:3], INVARIANT[name], rtol=0.006)
    order = np.log2(abs(errors[-2] / errors[-1]))
    assert abs(order - 2.0) < 0.1 if name in WEAK else order < 1.5, (order, errors)
    row = f"| `{name}` | " + " | ".join(f"{e:.2e}" for e in INVARIANT[name]) + " |"
    assert row in (Path(__file__).parents[2] / "docs" / "explanation" / "heat_baths.md").read_text()
