"""Kirchhoff's equations: Casimirs and energy over long runs, and what is known of a body in a fluid."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import coadjoint as cj

from .measurement import fitted_order

FIGURE = 5e-15  # of the issue, for the Casimirs
ENERGY_FIGURE = 2e-14


def full_matrix():
    """A symmetric positive definite 6×6 matrix with coupling of rotation and translation."""
    a = np.random.default_rng(0).standard_normal((6, 6))
    return a @ a.T / 6 + np.eye(6)


BODIES = {
    "spheroid": {},
    "three axes": {"inertia": (0.5, 1.2, 1.6), "mass": (1.1, 1.5, 2.1)},
    "full": {"matrix": full_matrix()},
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("noisy", [False, True], ids=["no noise", "noise"])
def test_100_000_steps(body, noisy):
    """Both Casimirs within 5e-15 (scaled); without noise the energy within 2e-14."""
    system, mu0 = cj.models.kirchhoff(**body) if noisy else cj.models.kirchhoff(**body, alpha=None)
    sol = cj.solve(system, mu0, t1=5000.0, dt=0.05, key=1 if noisy else None, save_every=100)
    assert sol.stats.steps == 100_000 and sol.stats.unsolved == 0 and sol.stats.backend == "native"
    assert system.algebra.casimir_names == ("π·γ", "|γ|²")
    assert np.max(sol.casimir_errors()) <= FIGURE
    if not noisy:
        energy = sol.energy()
        assert np.max(abs(energy / energy[0] - 1)) <= ENERGY_FIGURE
    assert np.max(abs(sol.mu[:, 3:] - sol.mu[0, 3:])) > 0.5


def right_hand_side(mu, matrix):
    velocity = np.linalg.solve(matrix, mu)
    (Pi, P), (Omega, V) = np.split(mu, 2), np.split(velocity, 2)
    return np.concatenate([np.cross(Pi, Omega) + np.cross(P, V), np.cross(P, Omega)])


def block(body):
    if "matrix" in body:
        return body["matrix"]
    params = cj.models.kirchhoff(**body)[0].params
    return np.diag(np.concatenate([params["inertia"], params["mass"]]))


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_order_two_against_another_solver(body):
    system, mu0 = cj.models.kirchhoff(**body, alpha=None)
    matrix = block(body)
    np.testing.assert_allclose(
        system.vector_field(mu0, 1.0, np.zeros(0)), right_hand_side(np.asarray(mu0), matrix), atol=1e-15
    )
    truth = solve_ivp(
        lambda t, mu: right_hand_side(mu, matrix), (0, 8), np.asarray(mu0), method="DOP853", rtol=1e-13, atol=1e-14
    ).y[:, -1]
    dts = 8.0 / 2.0 ** np.arange(6, 11)
    errors = [np.max(abs(cj.solve(system, mu0, t1=8.0, dt=dt).mu[-1] - truth)) for dt in dts]
    order, standard_error = fitted_order(dts, errors)
    assert abs(order - 2) < max(3 * standard_error, 0.03)
    assert errors[-1] < 1e-3


def test_an_elongated_body_does_not_keep_its_course():
    """Along its long axis, Munk's moment: a small error grows at the rate p √((1/M₁ − 1/M₃)/A₂)."""
    p, seed = 1.5, 1e-7
    system, _ = cj.models.kirchhoff()
    A, M = (np.asarray(system.params[k]) for k in ("inertia", "mass"))
    rate = p * np.sqrt((1 / M[0] - 1 / M[2]) / A[1])
    # The growing direction: P₃' = p Π₂/A₂ = rate P₃.
    system, mu0 = cj.models.kirchhoff(alpha=None, pi0=(0, seed * rate * A[1] / p, 0), p0=(p, 0, seed))
    t = 10.0
    P3 = cj.solve(system, mu0, t1=t, dt=2.0**-9 * t, save_every=512).mu[-1, 5]
    assert np.log(P3 / seed) / t == pytest.approx(rate, rel=1e-4)
    # Broadside it is stable.
    system, mu0 = cj.models.kirchhoff(alpha=None, pi0=(0, 0, 0), p0=(seed, 0, p))
    assert np.max(abs(cj.solve(system, mu0, t1=50.0, dt=0.05).mu[:, 3])) < 10 * seed


def test_the_default_is_lambs_spheroid():
    """Added masses of a prolate spheroid of aspect ratio 2 (lamb1932hydrodynamics, 114–115)."""
    a, b = 2.0, 1.0
    e = np.sqrt(1 - b**2 / a**2)
    log = np.log((1 + e) / (1 - e))
    alpha = 2 * (1 - e**2) / e**3 * (log / 2 - e)
    beta = 1 / e**2 - (1 - e**2) / (2 * e**3) * log
    along, across = alpha / (2 - alpha), beta / (2 - beta)
    turning = e**4 * (beta - alpha) / ((2 - e**2) * (2 * e**2 - (2 - e**2) * (beta - alpha)))
    params = cj.models.kirchhoff()[0].params
    np.testing.assert_allclose(params["mass"], [1 + along, 1 + across, 1 + across], atol=1e-4)
    I = (a**2 + b**2) / 5
    np.testing.assert_allclose(params["inertia"], [0.4 * b**2, I * (1 + turning), I * (1 + turning)], atol=1e-4)


def test_a_body_of_equal_added_masses_is_a_free_rigid_body():
    """P×V = 0, so Π does not feel P: in the equation exactly, in a step to second order."""
    inertia = (4.0, 2.0, 1.0)
    free, pi0 = cj.models.rigid_body(inertia, alpha=None, pi0=(-0.6, 0.8, 0.3))
    swimming, mu0 = cj.models.kirchhoff(inertia, (2.0, 2.0, 2.0), alpha=None, pi0=pi0, p0=(0.5, 1.0, -1.0))
    none = np.zeros(0)
    np.testing.assert_allclose(
        swimming.vector_field(mu0, 1.0, none)[:3], free.vector_field(pi0, 1.0, none), rtol=0, atol=1e-15
    )
    dts = 4.0 / 2.0 ** np.arange(5, 9)
    errors = [
        np.max(abs(cj.solve(swimming, mu0, t1=4.0, dt=dt).mu[-1, :3] - cj.solve(free, pi0, t1=4.0, dt=dt).mu[-1]))
        for dt in dts
    ]
    order, standard_error = fitted_order(dts, errors)
    assert abs(order - 2) < max(3 * standard_error, 0.05)


def test_three_ways_to_give_the_same_body():
    A, M = np.diag([0.5, 1.2, 1.6]), np.diag([1.1, 1.5, 2.1])
    ways = [
        {"inertia": np.diag(A), "mass": np.diag(M)},
        {"inertia": A, "mass": M},
        {"matrix": np.block([[A, np.zeros((3, 3))], [np.zeros((3, 3)), M]])},
    ]
    ends = []
    for way in ways:
        system, mu0 = cj.models.kirchhoff(**way)
        ends.append(cj.solve(system, mu0, t1=5.0, dt=0.05, key=4).mu[-1])
    np.testing.assert_allclose(ends[1:], [ends[0]] * 2, rtol=0, atol=1e-13)


def test_noise_of_rotation_and_translation():
    alpha = np.random.default_rng(1).standard_normal((2, 6))
    system, mu0 = cj.models.kirchhoff(alpha=alpha)
    dW = np.array([0.3, -0.7])
    (Pi, P), (rotation, translation) = np.split(np.asarray(mu0), 2), np.split(dW @ alpha, 2)
    expected = np.concatenate([np.cross(Pi, rotation) + np.cross(P, translation), np.cross(P, rotation)])
    np.testing.assert_allclose(system.vector_field(mu0, 0.0, dW), expected, atol=1e-15)


def test_derivatives_with_respect_to_the_matrices():
    system, mu0 = cj.models.kirchhoff(alpha=None)

    @jax.jit
    @jax.value_and_grad  # the differences are of the values that come with it: one program
    def observe(params):
        options = {"t1": 2.0, "dt": 0.1, "save_every": 20, "integrator": cj.TMK(fallbacks=False)}
        return jnp.arange(6.0) @ cj.solve(system.with_params(params), mu0, **options).mu[-1]

    params = {name: np.asarray(x) for name, x in system.params.items()}
    _, gradient = observe(params)
    eps = 1e-5
    for name, i in (("inertia", 1), ("mass", 0)):
        shifted = [observe({**params, name: params[name] + s * eps * np.eye(3)[i]})[0] for s in (1, -1)]
        np.testing.assert_allclose(gradient[name][i], (shifted[0] - shifted[1]) / (2 * eps), rtol=1e-6, err_msg=name)


@pytest.mark.parametrize(
    "kwargs, error, message",
    [
        ({"inertia": (1, 2)}, ValueError, r"inertia must have shape \(3,\) or \(3, 3\), not \(2,\)"),
        ({"inertia": (1, 2, 0)}, ValueError, "inertia must be 3 numbers above 0"),
        ({"mass": "heavy"}, TypeError, "mass must be an array of numbers"),
        ({"mass": (1, np.inf, 1)}, ValueError, "mass must be finite"),
        ({"mass": np.triu(np.ones((3, 3)))}, ValueError, "mass must be symmetric, .* by 1"),
        ({"mass": np.diag([1, 1, -2])}, ValueError, "mass must be positive definite, .* eigenvalue -2"),
        ({"matrix": np.eye(3)}, ValueError, r"matrix must have shape \(6, 6\), not \(3, 3\)"),
        ({"matrix": np.eye(6), "mass": (1, 1, 1)}, ValueError, "give matrix, or inertia and mass, not both"),
        ({"alpha": (1, 2, 3)}, ValueError, r"alpha must be one vector of 6 numbers, .* not of shape \(3,\)"),
        ({"alpha": [np.nan] * 6}, ValueError, "alpha must be finite"),
        ({"alpha": "loud"}, TypeError, "alpha must be an array of numbers"),
        ({"pi0": (1, 2)}, ValueError, "pi0 must be 3 numbers"),
        ({"p0": (1, 2, np.nan)}, ValueError, "p0 must be finite"),
    ],
)
def test_what_is_wrong_is_said(kwargs, error, message):
    with pytest.raises(error, match=message):
        cj.models.kirchhoff(**kwargs)
