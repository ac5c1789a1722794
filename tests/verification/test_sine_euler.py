"""Sine-Euler on su(n): the Fourier equation, high-precision values, and all Casimirs without drift."""

import json
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import pytest

import coadjoint as cj

REFERENCE = json.loads((Path(__file__).parents[1] / "reference" / "sine_euler.json").read_text())


def numbers(pair: dict) -> np.ndarray:
    return np.array(pair["re"], float) + 1j * np.array(pair["im"], float)


def fourier_equation(omega: np.ndarray, stream: np.ndarray) -> np.ndarray:
    """Σ_k (1/ε) sin(ε m∧k) ω_{m+k} ψ_{−k}, written as in the paper, sums mod n."""
    n = len(omega)
    eps, K = 2 * np.pi / n, n // 2
    rate = np.zeros_like(omega)
    modes = [(a, b) for a in range(-K, K + 1) for b in range(-K, K + 1)]
    for m in modes:
        for k in modes:
            weight = np.sin(eps * (m[0] * k[1] - m[1] * k[0])) / eps
            shifted = omega[(m[0] + k[0]) % n, (m[1] + k[1]) % n]
            rate[m[0] % n, m[1] % n] += weight * shifted * stream[-k[0] % n, -k[1] % n]
    return rate


@pytest.mark.parametrize("n", [3, 5, 7])
def test_matrix_form_is_the_fourier_form(n):
    """W' = [P, W] and the noise's [β_i, W] are the paper's Fourier sums, to 1e-14."""
    given = cj.fluids.Torus(n, "paper").from_values(np.random.default_rng(n).standard_normal((n, n)))
    system, W = cj.models.sine_euler(n, omega=given, orientation="paper")
    omega = np.asarray(cj.models.matrix_to_fourier(W, "paper"))
    m = np.fft.fftfreq(n, 1 / n)
    squared = m[:, None] ** 2 + m**2
    stream = np.divide(omega, squared, out=np.zeros_like(omega), where=squared > 0)
    noise = np.zeros((n, n), complex)
    noise[1, 1] = noise[-1, -1] = 0.1
    vector_field = eqx.filter_jit(system.vector_field)
    for dt, dS, field in ((1.0, [0.0, 0.0], stream), (0.0, [1.0, 0.0], noise)):
        rate = cj.models.matrix_to_fourier(vector_field(W, np.asarray(dt), np.array(dS)), "paper")  # one program
        np.testing.assert_allclose(rate, fourier_equation(omega, field), atol=1e-14)


def test_the_hamiltonian_has_the_stream_matrix_as_its_derivative():
    """P = ∂h/∂W for h = −½ Tr(WP): by autodiff under the pairing of su(n), not by the given gradient."""
    system, W = cj.models.sine_euler(5)
    gradient = jax.jit(lambda W: system.algebra.gradient(system.energy, W))
    np.testing.assert_allclose(gradient(W), eqx.filter_jit(system.drift)(W), atol=1e-14)
    omega = cj.models.matrix_to_fourier(W)
    m = np.fft.fftfreq(5, 1 / 5)
    squared = m[:, None] ** 2 + m**2
    squared[0, 0] = np.inf
    eps = 2 * np.pi / 5
    np.testing.assert_allclose(system.energy(W), 5 / (8 * eps**2) * np.sum(np.abs(omega) ** 2 / squared), rtol=1e-13)


@pytest.mark.parametrize("case", REFERENCE["cases"], ids=lambda c: f"su({c['n']})")
@pytest.mark.parametrize(
    "solver", ["fixed_point", *(pytest.param(s, marks=pytest.mark.slow) for s in ("chord", "newton"))]
)
def test_tmk_agrees_with_fifty_digits(case, solver):
    """Ten steps of dt = 0.5 with prescribed increments: 1e-13."""
    given = {"omega": numbers(case["omega0"]), "noise_modes": REFERENCE["noise_modes"]}
    system, W0 = cj.models.sine_euler(case["n"], orientation="paper", **given)
    np.testing.assert_allclose(W0, numbers(case["W0"]), atol=1e-15)
    path = cj.Increments(np.array(case["increments"]))
    sol = cj.solve(system, W0, t1=5.0, dt=0.5, driver=path, integrator=cj.TMK(solver=solver))
    for step, state in case["states"].items():
        np.testing.assert_allclose(sol.mu[int(step)], numbers(state["W"]), atol=1e-13)
        omega = cj.models.matrix_to_fourier(sol.mu[int(step)], "paper")
        np.testing.assert_allclose(omega, numbers(state["omega"]), atol=1e-13)


def kept_without_growth(system, W0) -> None:
    sol = cj.solve(system, W0, t1=5e4, dt=0.5, key=0, save_every=100)
    errors = sol.casimir_errors()
    assert errors.max() < 5e-14
    assert errors[-300:].mean() < 2 * errors[1:301].mean() + 1e-16


def test_casimirs_over_1e5_steps():
    """n = 3, complex coefficients, dt = 0.5: C₂ and C₃ within 5e-14 of ‖Ω‖ᵏ, no growth."""
    kept_without_growth(*cj.models.sine_euler(3))


def test_casimirs_near_repeated_eigenvalues():
    """The same where two eigenvalues of Ω are 1e-9 apart."""
    system, W0 = cj.models.sine_euler(3)
    _, v = np.linalg.eigh(-1j * np.asarray(W0))
    spectrum = np.array([0.3, 0.3 + 1e-9, -0.6 - 1e-9])
    kept_without_growth(system, (v * (1j * spectrum)) @ v.conj().T)


@pytest.mark.slow
def test_casimirs_at_repeated_eigenvalues():
    """The same where they are equal."""
    system, W0 = cj.models.sine_euler(3)
    _, v = np.linalg.eigh(-1j * np.asarray(W0))
    kept_without_growth(system, (v * (1j * np.array([0.3, 0.3, -0.6]))) @ v.conj().T)


def test_all_casimirs_of_su9():
    """C₂ … C₉ with noise, and none of them by a classical method of the same order."""
    system, W0 = cj.models.sine_euler(9, key=1)
    W0 = 0.3 * W0
    assert cj.solve(system, W0, t1=50.0, dt=0.1, key=0, save_every=50).casimir_errors().max() < 5e-14
    direct = cj.solve(system, W0, t1=5.0, dt=0.1, key=0, save_every=50, integrator=cj.Heun(), backend="xla")
    assert direct.casimir_errors()[-1].min() > 1e-9


def test_bad_input():
    """Each a sentence that names the argument."""
    for call, words in [
        (lambda: cj.models.sine_euler(4), "n must be odd"),
        (lambda: cj.models.sine_euler(1), "at least 3"),
        (lambda: cj.models.sine_euler(3, omega=np.ones((2, 2))), r"shape \(3, 3\)"),
        (lambda: cj.models.sine_euler(3, omega=np.triu(np.ones((3, 3)), 1)), "not a real field"),
        (lambda: cj.models.sine_euler(3, omega=np.ones((3, 3))), "mean vorticity"),
        (lambda: cj.models.sine_euler(3, noise_modes=((0, 0),)), "not a mode"),
        (lambda: cj.models.sine_euler(3, noise_modes=((2, 0),)), "not a mode"),
        (lambda: cj.models.sine_euler(3, noise_modes=(1, 1)), "noise_modes must be pairs"),
    ]:
        with pytest.raises(ValueError, match=words):
            call()
    system, W0 = cj.models.sine_euler(3)
    for state, words in [
        (np.eye(3), "not skew-Hermitian"),
        (1j * np.eye(3), "trace"),
        (W0[:2, :2], r"shape \(3, 3\)"),
    ]:
        with pytest.raises(ValueError, match=words):
            cj.solve(system, state, t1=1.0, dt=0.5, key=0)


@pytest.mark.slow
def test_steady_states_move_with_the_isospectral_midpoint():
    """Two crossed waves, ψ = ω: over a fixed time they move by O(dt²) with it, and not at all with TMK."""
    omega = np.zeros((5, 5), complex)
    omega[1, 0] = omega[-1, 0] = 0.5
    omega[0, 1] = omega[0, -1] = 0.4
    system, W0 = cj.models.sine_euler(5, omega=omega, noise_modes=())
    moved = {}
    for method, dt in (("IsospectralMidpoint", 0.1), ("IsospectralMidpoint", 0.05), ("TMK", 0.1)):
        sol = cj.solve(system, W0, t1=2.0, dt=dt, integrator=getattr(cj, method)(), save_every=20)
        moved[method, dt] = np.abs(sol.mu[-1] - sol.mu[0]).max() / np.abs(sol.mu[0]).max()
    assert moved["TMK", 0.1] < 1e-13 and moved["IsospectralMidpoint", 0.1] > 1e-5
    assert abs(moved["IsospectralMidpoint", 0.1] / moved["IsospectralMidpoint", 0.05] - 4) < 0.2
