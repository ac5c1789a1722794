"""Density matrices against SciPy: the matrix exponential, von Neumann's equation, and Lindblad's equation."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.linalg import expm

import coadjoint as cj

RNG = np.random.default_rng(0)


def hermitian(n):
    A = RNG.standard_normal((n, n)) + 1j * RNG.standard_normal((n, n))
    return (A + A.conj().T) / 2


def test_constant_hamiltonian():
    H, psi = hermitian(3), RNG.standard_normal(3) + 1j * RNG.standard_normal(3)
    system, mu0 = cj.models.density_matrix(H, psi)
    sol = cj.solve(system, mu0, t1=1.0, dt=0.1, integrator=cj.HeunMK())
    U = expm(-1j * H)
    rho0 = np.outer(psi, psi.conj()) / np.vdot(psi, psi)
    np.testing.assert_allclose(cj.models.density(sol.mu[-1]), U @ rho0 @ U.conj().T, atol=1e-13)
    np.testing.assert_allclose(sol.energy(), np.trace(rho0 @ H).real, atol=1e-13)


def test_driven_with_a_mean_field():
    n, (H, V) = 3, (hermitian(3), hermitian(3))
    rho0 = np.diag([0.7, 0.2, 0.1])
    f, g = (lambda t: jnp.sin(3 * t)), 0.8
    system, mu0 = cj.models.density_matrix(
        H, rho0, drives=[(f, V)], mean_field=lambda rho: 0.5 * g * jnp.sum(jnp.real(jnp.diagonal(rho)) ** 2)
    )

    def rate(t, y):
        rho = y.reshape(n, n)
        total = H + np.sin(3 * t) * V + g * np.diag(np.diagonal(rho).real)
        return (-1j * (total @ rho - rho @ total)).reshape(-1)

    exact = solve_ivp(rate, (0, 2), rho0.astype(complex).reshape(-1), method="DOP853", rtol=1e-12, atol=1e-13).y[:, -1]
    sol = cj.solve(system, mu0, t1=2.0, dt=0.02, integrator=cj.RKMK("rk4"))
    np.testing.assert_allclose(cj.models.density(sol.mu[-1]).reshape(-1), exact, atol=3e-7)
    assert sol.orbit_error().max() < 1e-14


def test_the_mean_follows_lindblad_s_equation():
    n, H, L = 2, hermitian(2), np.stack([0.5 * hermitian(2), 0.3 * hermitian(2)])
    psi = np.array([1.0, 0.3j])
    system, mu0 = cj.models.density_matrix(H, psi, noise=L)
    run = {"members": 4096, "t1": 1.0, "dt": 0.02, "key": 1, "save_every": 50}
    ens = cj.ensemble(system, mu0, integrator=cj.HeunMK(), **run)
    end = np.asarray(cj.models.density(ens.mu[:, -1]))
    one = np.eye(n)
    act = lambda A: np.kron(A, one) - np.kron(one, A.T)  # [A, ρ] of the rows of ρ, one after the other
    generator = -1j * act(H) - 0.5 * sum(act(x) @ act(x) for x in L)
    rho0 = np.outer(psi, psi.conj()) / np.vdot(psi, psi)
    exact = (expm(generator) @ rho0.reshape(-1)).reshape(n, n)
    for part in (np.real, np.imag):
        error = part(end).std(axis=0) / np.sqrt(len(end))
        assert np.all(np.abs(part(end).mean(axis=0) - part(exact)) < 4 * error + 2e-3)  # and the bias of the step
    purity = np.einsum("kij,kji->k", end, end).real
    np.testing.assert_allclose(purity, 1.0, atol=1e-13)


def test_bad_input():
    make = cj.models.density_matrix
    with pytest.raises(ValueError, match=r"H must be Hermitian\. Pass the matrix itself"):
        make(-1j * np.diag([1.0, -1.0]))
    with pytest.raises(ValueError, match=r"noise must have shape \(2, 2\), not \(3, 3\)"):
        make(noise=np.eye(3))
    with pytest.raises(ValueError, match="rho0 must have trace 1, not 2"):
        make(rho0=np.eye(2))
    with pytest.raises(ValueError, match="no eigenvalue below 0"):
        make(rho0=np.diag([1.5, -0.5]))
    with pytest.raises(TypeError, match=r"drives must be pairs \(f, V\) with a function"):
        make(drives=[(1.0, np.eye(2))])
    with pytest.raises(TypeError, match="function of the time alone"):
        make(drives=[(lambda t, p: t, np.eye(2))])
