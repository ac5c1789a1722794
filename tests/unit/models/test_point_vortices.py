"""Point vortices on the sphere against the equation of motion, exact rotations, and invariants."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import coadjoint as cj

vortices = cj.models.point_vortices


def velocity(x, strengths):
    """The sum over pairs, as loops."""
    out = np.zeros_like(x)
    for i in range(len(x)):
        for j in range(len(x)):
            if i != j:
                out[i] += strengths[j] * np.cross(x[j], x[i]) / (1 - x[i] @ x[j]) / (4 * np.pi)
    return out


def test_against_the_sum_over_pairs():
    G = np.array([1.0, -0.5, 2.0, 0.7, -1.3])
    system, mu0 = vortices(G, key=3)
    x0 = np.asarray(mu0).reshape(-1, 3) / G[:, None]
    np.testing.assert_allclose(np.linalg.norm(x0, axis=1), 1.0)
    rate = np.asarray(system.vector_field(mu0, 1.0, jnp.zeros(0))).reshape(-1, 3) / G[:, None]
    np.testing.assert_allclose(rate, velocity(x0, G), atol=1e-14)
    pairs = [(i, j) for i in range(5) for j in range(i)]
    energy = -sum(G[i] * G[j] * np.log(1 - x0[i] @ x0[j]) for i, j in pairs) / (4 * np.pi)
    np.testing.assert_allclose(system.energy(mu0), energy, rtol=1e-13)
    field = lambda t, x: velocity(x.reshape(-1, 3), G).reshape(-1)
    exact = solve_ivp(field, (0, 4.0), x0.reshape(-1), method="DOP853", rtol=1e-12, atol=1e-13).y[:, -1]
    sol = cj.solve(system, mu0, t1=4.0, dt=0.02, integrator=cj.RKMK("rk4"))
    np.testing.assert_allclose((np.asarray(sol.mu[-1]).reshape(-1, 3) / G[:, None]).reshape(-1), exact, atol=1e-7)
    poisson = cj.solve(system, mu0, t1=4.0, dt=0.02, integrator=cj.LieMidpoint(), save_every=20)
    moment = np.asarray(poisson.mu).reshape(-1, 5, 3).sum(axis=1)
    assert np.max(np.abs(moment - moment[0])) < 1e-13
    assert poisson.casimir_errors().max() < 5e-15


@pytest.mark.parametrize("strength", [1.0, -2.0])
def test_a_ring_rotates_at_the_known_rate(strength):
    n, theta = 5, 0.7
    angle = 2 * np.pi * np.arange(n) / n
    ring = np.stack([np.sin(theta) * np.cos(angle), np.sin(theta) * np.sin(angle), np.full(n, np.cos(theta))], 1)
    system, mu0 = vortices(np.full(n, strength), positions=3.0 * ring)
    sol = cj.solve(system, mu0, t1=1.0, dt=0.01, integrator=cj.RKMK("rk4"))
    x = np.asarray(sol.mu[-1]).reshape(n, 3) / strength
    rate = strength * (n - 1) * np.cos(theta) / (4 * np.pi * np.sin(theta) ** 2)
    np.testing.assert_allclose(np.arctan2(x[0, 1], x[0, 0]), rate, rtol=1e-8)


def test_common_noise():
    """Rotations of the sphere conserve distances; a straining flow is the gradient of its stream function."""
    G = np.array([1.0, -0.5, 2.0])
    rotated, mu0 = vortices(G, key=1, alpha=[0.3, 0.1, 0.2])
    still, _ = vortices(G, key=1)
    gram = lambda sol: np.einsum("ti a, tja -> tij", *[np.asarray(sol.mu).reshape(-1, 3, 3)] * 2)
    run = {"t1": 0.5, "dt": 0.005, "save_every": 20}
    noisy = cj.solve(rotated, mu0, key=2, **run)
    np.testing.assert_allclose(gram(noisy), gram(cj.solve(still, mu0, **run)), atol=2e-5)
    A = np.diag([0.2, -0.3, 0.1])
    strained, _ = vortices(G, key=1, strain=A)
    x = np.asarray(mu0).reshape(3, 3) / G[:, None]
    step = strained.vector_field(mu0, 0.0, jnp.ones(1)).reshape(3, 3) / G[:, None]
    np.testing.assert_allclose(step, -np.cross(x, x @ A), atol=1e-14)
    assert cj.solve(strained, mu0, key=2, **run).casimir_errors().max() < 5e-15


def test_derivative_with_respect_to_strengths():
    system, mu0 = vortices([1.0, 2.0, -0.5], key=4)
    x = mu0.reshape(3, 3) / np.array([1.0, 2.0, -0.5])[:, None]

    def end(G):
        run = cj.solve(
            system.with_params({"strength": G}), (G[:, None] * x).reshape(-1), t1=0.2, dt=0.02, integrator=cj.HeunMK()
        )
        return jnp.sum(run.mu[-1] ** 3)

    G, d = jnp.array([1.0, 2.0, -0.5]), jnp.array([0.3, -0.2, 0.5])
    slope = jax.grad(end)(G) @ d
    np.testing.assert_allclose(slope, (end(G + 1e-5 * d) - end(G - 1e-5 * d)) / 2e-5, rtol=1e-6)


def test_bad_input():
    with pytest.raises(ValueError, match="strengths must be finite and not 0"):
        vortices([1.0, 0.0])
    with pytest.raises(ValueError, match="two numbers or more"):
        vortices([1.0])
    with pytest.raises(ValueError, match="vortices 0 and 1 have the same"):
        vortices([1.0, 1.0], positions=[[0, 0, 1.0], [0, 0, 2.0]])
    with pytest.raises(ValueError, match="strain must be symmetric"):
        vortices(strain=[[0, 1.0, 0], [0, 0, 0], [0, 0, 0]])
    with pytest.raises(ValueError, match="alpha must be finite and have shape"):
        vortices(alpha=[1.0, 2.0])
