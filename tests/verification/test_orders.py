"""Items 2 and 7: the orders of convergence that integrators claim, measured on shared paths.

The claims are data: an integrator added to the library is measured without further ado, and a false claim fails.
Methods that claim more than the increments of the path can give are measured in test_strong_orders.
"""

from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import coadjoint as cj

from .measurement import INTEGRATORS, fitted_order, measured_order, quartic_body

SIDES = ["left", "right"]
INCREMENTS_ONLY = {name: i for name, i in INTEGRATORS.items() if i.claims.strong == 0.5}


# ------------------------------------------------------------------------------------------ deterministic


def exact_end(system, mu0, t1):
    """The solution by an independent method of order 8, to 1e-13."""

    def rate(_, pi):
        energy_gradient = pi / np.array([1.0, 2.0, 3.0]) + 0.2 * np.array([pi[0] ** 3, pi[1] ** 3, 0.0])
        return system.sign * np.cross(pi, energy_gradient)

    return solve_ivp(rate, (0.0, t1), mu0, method="DOP853", rtol=1e-13, atol=1e-14).y[:, -1]


@pytest.mark.parametrize("side", ["left", pytest.param("right", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", INTEGRATORS)
def test_deterministic_order(name, side):
    """Without noise, for a quartic energy: the order claimed, over four step sizes or more.

    On the right leading errors of order 4 cancel between t = 2 and 6, so such methods stop before.
    """
    system, mu0 = quartic_body(side)
    claim = INTEGRATORS[name].claims.order
    dts = 2.0 ** -np.arange(3, 8) if claim <= 2 else 2.0 ** -np.arange(1, 6)
    t1 = 4.0
    if claim > 4:
        dts = t1 / np.array([6, 8, 10, 12, 16])
    elif side == "right" and claim > 2:
        t1, dts = 1.5, dts[1:]
    exact = exact_end(system, mu0, t1)
    assert np.linalg.norm(exact - mu0) > 0.5
    ends = [cj.solve(system, mu0, t1=t1, dt=dt, integrator=INTEGRATORS[name]).mu[-1] for dt in dts]
    errors = np.linalg.norm(np.array(ends) - exact, axis=1)
    assert errors.min() > (1e-9 if claim <= 2 else 1e-11)  # far from round-off
    order, spread = fitted_order(dts, errors)
    assert abs(order - claim) < 0.1 and spread < 0.05


# ------------------------------------------------------------------------------------------------- strong

DTS = 2.0 ** -np.arange(4, 8)
FAST, SLOW = (2.0**-11, 128), (2.0**-12, 512)  # grid of the path and of the reference, paths
E = np.array([0.48, -0.36, 0.64])  # of length 0.877
NIL = 1e-200  # a field that does nothing, but not a zero that the compiler knows of: all noises are one program
NOISES = {
    "one": [[0.5, -0.3, 0.8, 0.4, 0.7, -0.6], [NIL] * 6, [NIL] * 6],
    "commuting": [[*E, NIL, NIL, NIL], [*0.2 * E, *0.7 * E], [NIL] * 6],
    "three": [[0.5, -0.3, 0.8, 0.4, 0.7, -0.6], [-0.6, 0.7, 0.3, 0.8, -0.5, 0.4], [0.4, 0.6, -0.5, -0.3, 0.6, 0.7]],
}


def top(side, noise):
    """A heavy top with strong SALT noise."""
    inertia = jnp.array([4.0, 2.0, 1.0])
    noise = cj.salt(np.array(NOISES[noise]))
    system = cj.System(cj.SE3(), lambda mu: 0.5 * mu[:3] @ (mu[:3] / inertia) - mu[5], [noise], side=side)
    return system, np.array([-0.7, 0.7, 0.3, -0.7, 0.6, 0.2])


def nonlinear_body(side, _=None):
    """A rigid body with one nonlinear noise."""
    inertia = jnp.array([1.0, 2.0, 3.0])
    system = cj.System(
        cj.SO3(), lambda pi: 0.5 * pi @ (pi / inertia), [lambda pi: 0.3 * pi[0] * pi[1] + 0.2 * pi[2] ** 2], side=side
    )
    return system, np.array([0.6, -0.7, 0.9])


def solvable_body(side, _=None):
    """The same with a noise φ(<μ, a>), which splittings take."""
    inertia = jnp.array([1.0, 2.0, 3.0])
    noise = [lambda pi: 0.4 * (pi[0] + 0.5 * pi[1] - 0.3 * pi[2]) ** 2]
    return cj.System(cj.SO3(), lambda pi: 0.5 * pi @ (pi / inertia), noise, side=side), np.array([0.6, -0.7, 0.9])


@lru_cache
def strong_ends(problem, side, noise, size, integrator, dt, key=7):
    """μ at T = 1 of every path."""
    system, mu0 = problem(side, noise)
    grid, paths = size
    run = {"t1": 1.0, "dt": dt, "save_every": round(1 / dt), "driver": cj.Brownian(key, grid=grid)}
    return cj.ensemble(system, mu0, members=paths, integrator=integrator, **run).mu[:, -1]


def strong_errors(problem, side, noise, size, integrator, judge=cj.TMK()):
    """|μ − reference| at T = 1 on shared paths, (step sizes, paths); the reference is on the finest grid."""
    reference = strong_ends(problem, side, noise, size, judge, size[0])
    ends = [strong_ends(problem, side, noise, size, integrator, dt) for dt in DTS]
    return np.linalg.norm(np.array(ends) - reference, axis=2)


def assert_order(errors, claim, typical=np.mean, largest=0.12):
    """±0.1 or three standard errors, whichever is more, with standard errors too small for that to be no claim."""
    order, spread = measured_order(DTS, errors, typical)
    assert spread < 0.06
    assert abs(order - claim) < max(0.1, 3 * spread)
    assert np.sqrt(np.mean(errors[-1] ** 2)) < largest  # convergent, and to the reference


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("name", ["EulerMaruyamaMK", "HeunMK", "TMK"])
def test_strong_order(name, noise):
    """One SALT noise and two commuting ones: 1.0; three that do not commute: 0.5."""
    claims = INTEGRATORS[name].claims
    assert (claims.strong_commuting, claims.strong) == (1.0, 0.5)
    errors = strong_errors(top, "left", noise, FAST, INTEGRATORS[name])
    assert_order(errors, claims.strong if noise == "three" else claims.strong_commuting)


@pytest.mark.slow
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", INCREMENTS_ONLY)
def test_strong_order_of_all(name, side, noise):
    """The same for every method that reads only the increments of the path, left and right, with more paths.

    Such steps are too large for classical methods, which may seem better than they are (0.64 for Heun's); with
    smaller ones test_strong_orders has them on both sides. What coins do has the variance of the areas that TMK leaves
    out, and knows nothing of them: √2 times its error.
    """
    claims = INTEGRATORS[name].claims
    claim = claims.strong if noise == "three" else claims.strong_commuting
    coins = noise == "three" and name in ("TMKWeak", "NinomiyaVictoir")
    errors = strong_errors(top, side, noise, SLOW, INTEGRATORS[name])
    if claims.casimirs:
        assert_order(errors, claim, largest=0.12 * np.sqrt(2.0 if coins else 1.0))
    else:
        assert measured_order(DTS, errors)[0] > claim - 0.1


@pytest.mark.slow
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", INCREMENTS_ONLY)
def test_strong_order_nonlinear_noise(name, side):
    """One nonlinear noise: the order for one noise. (In every run for four of them, and why the median: exact_laws.)"""
    solvable = ("LieTrotter", "Strang", "NinomiyaVictoir", "BathSplitting")
    problem = solvable_body if name in solvable else nonlinear_body
    if name in ('RKMK("euler")', "TMKWeak"):
        with pytest.raises(ValueError, match="made for SALT noise"):
            INTEGRATORS[name].check(problem(side)[0])
        return
    errors = strong_errors(problem, side, None, SLOW, INTEGRATORS[name], cj.HeunMK())
    assert_order(errors, INTEGRATORS[name].claims.strong_commuting, np.median)


def test_the_noises_are_what_they_are_called():
    """The brackets of the fields vanish, or do not."""
    for noise, commute in (("one", True), ("commuting", True), ("three", False)):
        betas = jnp.array(NOISES[noise])
        brackets = jax.vmap(jax.vmap(cj.SE3().bracket, (None, 0)), (0, None))(betas, betas)
        assert (np.abs(brackets).max() < 1e-15) == commute
