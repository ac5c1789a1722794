"""Landau–Lifshitz–Gilbert spins against the implicit equation of Gilbert, and numbers of Sunny's tests."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import coadjoint as cj

llg = cj.models.landau_lifshitz_gilbert


@pytest.mark.parametrize("side", ["left", "right"])
def test_against_gilbert_s_implicit_equation(side):
    """S' is solved for from S' = s S×∂h + s (α/|S|) S×S' + (a/|S|) S×(S×p), spin after spin, by SciPy."""
    s, alpha, a, p = (1 if side == "left" else -1), 0.3, 0.2, np.array([0.6, 0.0, 0.8])
    J, d, B = 0.7, -0.4, np.array([0.1, 0.2, 0.5])
    S0 = np.random.default_rng(0).standard_normal((4, 3))
    options = {"coupling": J, "anisotropy": d, "field": B, "S0": S0, "side": side}
    system, mu0 = llg(4, damping=alpha, current=a, polarisation=p, **options)

    def rate(t, mu):
        S = mu.reshape(4, 3)
        slope = -J * (np.roll(S, 1, 0) + np.roll(S, -1, 0)) + d * S * [0, 0, 1] - B
        out = []
        for x, g in zip(S, slope, strict=True):
            length = np.linalg.norm(x)
            cross = np.array([[0, -x[2], x[1]], [x[2], 0, -x[0]], [-x[1], x[0], 0]])
            F = s * np.cross(x, g) + a / length * np.cross(x, np.cross(x, p))
            out.append(np.linalg.solve(np.eye(3) - s * alpha / length * cross, F))
        return np.concatenate(out)

    exact = solve_ivp(rate, (0, 2.0), S0.reshape(-1), method="DOP853", rtol=1e-12, atol=1e-13).y[:, -1]
    sol = cj.solve(system, mu0, t1=2.0, dt=0.01, integrator=cj.RKMK("rk4"))
    np.testing.assert_allclose(sol.mu[-1], exact, atol=2e-8)
    assert sol.casimir_errors().max() < 5e-15
    free, _ = llg(4, damping=alpha, **options)
    energy = cj.solve(free, mu0, t1=2.0, dt=0.01, integrator=cj.RKMK("rk4"), save_every=20).energy()
    assert np.all(np.diff(energy) < 0)


def test_without_damping_it_is_the_lattice():
    S0 = np.random.default_rng(1).standard_normal((4, 3))
    system, mu0 = llg(4, damping=0.0, S0=S0)
    lattice, _ = cj.models.spin_lattice(4, S0=S0)
    rate = lambda x: x.vector_field(mu0, 1.0, jnp.zeros(0))
    np.testing.assert_allclose(rate(system), rate(lattice), atol=1e-15)


def test_gibbs_distribution_of_free_spins():
    """Spins of length 2 in a field: ⟨cos⟩ is Langevin's function of |S| B/T, whatever the damping."""
    n, length, B, T = 512, 2.0, 1.0, 0.8
    S0 = np.tile([0.0, 0.0, length], (n, 1))
    options = {"coupling": 0.0, "field": (0, 0, B), "S0": S0, "temperature": T}
    means = []
    for alpha in (0.5, 1.5):
        system, mu0 = llg(n, damping=alpha, **options)
        sol = cj.solve(system, mu0, t1=40.0, dt=0.04, key=1, integrator=cj.HeunMK(), save_every=50)
        means.append(np.asarray(sol.mu)[8:].reshape(-1, n, 3)[..., 2].mean() / length)
    x = length * B / T
    np.testing.assert_allclose(means, 1 / np.tanh(x) - 1 / x, atol=0.015)


def test_parameters_by_member_and_derivatives():
    system, mu0 = llg(3, damping=0.1, temperature=0.3)
    final = lambda alpha: cj.solve(
        system.with_params(system.params | {"damping": alpha}), mu0, t1=0.1, dt=0.02, key=3, integrator=cj.HeunMK()
    ).mu[-1]
    slope = jax.jacfwd(final)(0.1)
    np.testing.assert_allclose(slope, (final(0.1 + 1e-5) - final(0.1 - 1e-5)) / 2e-5, rtol=1e-5, atol=1e-8)


def test_spiral_of_sunny():
    """A chain with Dzyaloshinskii–Moriya interaction: energy per site −5/4, and the modes at wave number 1/3."""
    n = 12
    angle = 2 * np.pi * np.arange(n) * 3 / 4
    S0 = np.stack([np.cos(angle), np.sin(angle), np.zeros(n)], 1) * np.sqrt(3) / 2 + [0, 0, -0.5]
    arguments = {"coupling": 0.0, "dm": [[0, 0, -1.0]], "field": (0, 0, -1.0), "S0": S0}  # Sunny: g = −1
    system, mu0 = cj.models.spin_lattice(n, **arguments, side="right")
    np.testing.assert_allclose(system.energy(mu0) / n, -1.25, rtol=1e-14)
    flow = lambda mu: system.vector_field(mu, 1.0, jnp.zeros(0))
    np.testing.assert_allclose(flow(mu0), 0.0, atol=1e-14)
    found = np.linalg.eigvals(jax.jacobian(flow)(mu0)).imag
    for frequency in (3.013324931405024, 2.5980762315553148, 1.3228756763031237, 0.647976093500838):
        assert np.min(np.abs(found - frequency)) < 1e-6  # zero modes of spirals split by the square root of round-off


def test_bad_input():
    with pytest.raises(ValueError, match="damping must be 0 or above, not -1"):
        llg(3, damping=-1)
    with pytest.raises(ValueError, match=r"temperature = 1.0 needs damping above 0, not 0"):
        llg(3, damping=0, temperature=1.0)
    with pytest.raises(ValueError, match="no spin of length 0"):
        llg(3, S0=np.zeros((3, 3)))
    with pytest.raises(ValueError, match="side"):
        llg(3, side="up")
