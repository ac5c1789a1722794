"""The Landau–Lifshitz chain: lengths and energy over long runs, a magnon that is exact, the random fields."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coadjoint as cj

from .measurement import fitted_order

FIGURE = 5e-15  # of the issue, for every |S_i|


def lengths(sol, n):
    return np.linalg.norm(sol.mu.reshape(-1, n, 3), axis=2)


@pytest.mark.parametrize("alpha", [None, 0.1], ids=["no noise", "noise"])
def test_64_spins_over_100_000_steps(alpha):
    """Every |S_i| within 5e-15 of 1. The energy: kept to round-off without noise, bounded with it."""
    n, J, d, B = 64, 1.0, 0.5, 0.2
    system, mu0 = cj.models.spin_chain(n, coupling=J, anisotropy=d, field=(0, 0, B), alpha=alpha)
    sol = cj.solve(system, mu0, t1=1000.0, dt=0.01, key=None if alpha is None else 1, save_every=100)
    assert sol.stats.steps == 100_000 and sol.stats.unsolved == 0
    assert np.max(abs(lengths(sol, n) - 1)) <= FIGURE
    assert np.max(sol.casimir_errors()) <= 2 * FIGURE  # of the squares
    bound = n * (J + d / 2 + B)
    energy = sol.energy()
    if alpha is None:
        assert np.max(abs(energy - energy[0])) <= 1e-14 * bound
    else:
        assert np.max(abs(energy)) <= bound
        assert np.std(energy) > 1.0  # it was heated
    assert np.max(abs(sol.mu[-1] - sol.mu[0])) > 0.5


def landau_lifshitz(S, J, d, B):
    """dS_i/dt = −S_i × H_i, spin by spin."""
    n = len(S)
    J, d, B = np.broadcast_to(J, n), np.broadcast_to(d, n), np.broadcast_to(B, (n, 3))
    H = [J[i] * S[(i + 1) % n] + J[i - 1] * S[i - 1] - [0, 0, d[i] * S[i, 2]] + B[i] for i in range(n)]
    return -np.cross(S, H)


@pytest.mark.parametrize("sites", [False, True], ids=["uniform", "site by site"])
def test_the_equation_of_motion(sites):
    n = 5
    rng = np.random.default_rng(0)
    J, d, B = (
        (rng.standard_normal(n), rng.standard_normal(n), rng.standard_normal((n, 3)))
        if sites
        else (0.7, -0.3, (1, 2, 3))
    )
    S = rng.standard_normal((n, 3))
    alpha = rng.standard_normal((n, 3)) if sites else 0.4
    system, mu0 = cj.models.spin_chain(n, coupling=J, anisotropy=d, field=B, alpha=alpha, S0=S)
    np.testing.assert_array_equal(mu0, S.reshape(-1))
    dW = rng.standard_normal((n, 3))
    assert system.n_noise == 3 * n and system.additive
    drift = system.vector_field(mu0, 1.0, np.zeros(3 * n)).reshape(n, 3)
    np.testing.assert_allclose(drift, landau_lifshitz(S, J, d, B), atol=1e-14)
    noise = system.vector_field(mu0, 0.0, dW.reshape(-1)).reshape(n, 3)
    np.testing.assert_allclose(noise, -np.cross(S, alpha * dW), atol=1e-14)


def test_a_magnon_is_exact():
    """A spiral that precesses about z at the rate B + cos θ (2J(1 − cos q) − d): second order, measured."""
    n, J, d, B, theta = 16, 1.3, 0.4, 0.25, 0.8
    q = 2 * np.pi * 3 / n
    rate = B + np.cos(theta) * (2 * J * (1 - np.cos(q)) - d)

    def magnon(t):
        phase = q * np.arange(n) + rate * t
        S = [np.sin(theta) * np.cos(phase), np.sin(theta) * np.sin(phase), np.full(n, np.cos(theta))]
        return np.stack(S, axis=1).reshape(-1)

    system, mu0 = cj.models.spin_chain(
        n, coupling=J, anisotropy=d, field=(0, 0, B), alpha=None, S0=magnon(0.0).reshape(n, 3)
    )
    dts = 10.0 / 2.0 ** np.arange(5, 10)
    errors = [np.max(abs(cj.solve(system, mu0, t1=10.0, dt=dt).mu[-1] - magnon(10.0))) for dt in dts]
    order, standard_error = fitted_order(dts, errors)
    assert abs(order - 2) < max(3 * standard_error, 0.02)
    assert errors[-1] < 1e-2


def test_a_spin_turns_counterclockwise_about_the_field():
    system, mu0 = cj.models.spin_chain(3, coupling=0.0, field=(0, 0, 2.0), alpha=None, S0=[[1.0, 0, 0]] * 3)
    S = cj.solve(system, mu0, t1=0.5, dt=0.5 / 2**10, save_every=2**10).mu[-1, :3]
    np.testing.assert_allclose(S, [np.cos(1.0), np.sin(1.0), 0.0], atol=1e-6)


def test_random_fields_make_spins_diffuse_on_the_sphere():
    """Without coupling the mean of S decays as exp(−α² t): generator (α²/2) Δ, Δ = −l(l + 1) with l = 1."""
    n, alpha = 4000, 0.5
    system, mu0 = cj.models.spin_chain(n, coupling=0.0, alpha=alpha, S0=np.tile([0.0, 0.0, 1.0], (n, 1)))
    sol = cj.solve(system, mu0, t1=4.0, dt=0.02, key=3, save_every=50, integrator=cj.HeunMK())  # native, by sweeps
    S = sol.mu.reshape(-1, n, 3)
    means, errors = S.mean(axis=1), S.std(axis=1) / np.sqrt(n)
    expected = np.stack([0 * sol.t, 0 * sol.t, np.exp(-(alpha**2) * sol.t)], axis=1)
    assert np.all(abs(means - expected) <= 4 * errors + 1e-12)


def test_the_start_depends_on_the_key_alone():
    starts = {n: np.asarray(cj.models.spin_chain(n, key=5)[1]).reshape(n, 3) for n in (7, 64)}
    np.testing.assert_array_equal(starts[7], starts[64][:7])
    np.testing.assert_allclose(np.linalg.norm(starts[64], axis=1), 1.0, atol=3e-16)
    assert np.linalg.norm(starts[64].mean(axis=0)) < 0.4  # uniform on the sphere: 0.125 on average
    assert not np.allclose(starts[64], np.asarray(cj.models.spin_chain(64, key=6)[1]).reshape(64, 3))


def test_derivatives_with_respect_to_the_parameters():
    """Through the implicit steps on a product, to central differences."""
    system, mu0 = cj.models.spin_chain(3, anisotropy=0.3, field=(0.1, 0.2, 0.3), alpha=0.2)
    weights = np.arange(9.0)

    @jax.jit
    @jax.value_and_grad  # the differences are of the values that come with it: one program
    def observe(params):
        options = {"t1": 0.5, "dt": 0.05, "key": 2, "save_every": 10, "integrator": cj.TMK(fallbacks=False)}
        return weights @ cj.solve(system.with_params(params), mu0, **options).mu[-1]

    _, gradient = observe(system.params)
    eps = 1e-5
    for name in ("coupling", "anisotropy", "alpha"):
        shifted = [observe({**system.params, name: system.params[name] + s * eps})[0] for s in (1, -1)]
        np.testing.assert_allclose(gradient[name], (shifted[0] - shifted[1]) / (2 * eps), rtol=1e-6, err_msg=name)


@pytest.mark.parametrize(
    "kwargs, error, message",
    [
        ({"n": 2}, ValueError, "n must be at least 3"),
        ({"n": 4.5}, TypeError, "n must be a whole number"),
        (
            {"n": 4, "coupling": [1, 2, 3]},
            ValueError,
            r"coupling must have one number or shape \(4,\), not shape \(3,\)",
        ),
        ({"n": 4, "anisotropy": "easy"}, TypeError, "anisotropy must be numbers"),
        ({"n": 4, "field": 1.0}, ValueError, r"field must have shape \(3,\) or shape \(4, 3\), not shape \(\)"),
        ({"n": 4, "field": (0, 0, np.nan)}, ValueError, "field must be finite"),
        ({"n": 4, "alpha": [1, 2]}, ValueError, r"alpha must have one number or shape \(3,\) or shape \(4, 3\)"),
        ({"n": 4, "S0": np.zeros((3, 3))}, ValueError, r"S0 must have shape \(4, 3\), not shape \(3, 3\)"),
        ({"n": 4, "S0": np.full((4, 3), np.inf)}, ValueError, "S0 must be finite"),
        ({"key": -1}, ValueError, "key must be at least 0"),
        ({"key": "a"}, TypeError, "key must be an integer or a JAX key"),
    ],
)
def test_what_is_wrong_is_said(kwargs, error, message):
    with pytest.raises(error, match=message):
        cj.models.spin_chain(**kwargs)


def test_parameters_can_be_traced():
    energy = jax.jit(lambda J: (lambda s, m: s.energy(m))(*cj.models.spin_chain(4, coupling=J, alpha=None)))
    system, mu0 = cj.models.spin_chain(4, coupling=2.0, alpha=None)
    np.testing.assert_allclose(energy(jnp.asarray(2.0)), system.energy(mu0), rtol=1e-14)
