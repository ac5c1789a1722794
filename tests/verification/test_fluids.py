"""Fluids at the sizes that people use: no drift, convergence to Euler's equation, runs that were interrupted."""

import runpy
from pathlib import Path

import numpy as np
import pytest

import coadjoint as cj
from coadjoint.fluids import Flow, Sphere, Torus, random_field

EXAMPLES = Path(__file__).parents[2] / "examples"
METHODS = [cj.TMK(tol=1e-13), cj.IsospectralMidpoint(tol=1e-13)]


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS, ids=lambda m: type(m).__name__)
def test_no_eigenvalue_drifts_in_1e4_stochastic_steps(method):
    """n = 65: the largest change of an eigenvalue over ‖W‖₂ is at most 1e-13."""
    system, W = cj.models.sine_euler(65, omega=random_field(Torus(65), 1), noise_shells=(1, 3), amplitude=0.02)
    sol = cj.solve(system, W, t1=200.0, dt=0.02, key=0, save_every=2000, integrator=method)
    assert sol.stats.unsolved == 0
    assert sol.orbit_error().max() <= 1e-13


@pytest.mark.slow
def test_no_casimir_of_mhd_drifts_in_1e4_stochastic_steps():
    """n = 17: eigenvalues of Θ and cross-helicities, at most 1e-13."""
    system, start = cj.models.mhd(17, surface="sphere", noise_shells=(1, 2), amplitude=0.05)
    sol = cj.solve(system, start, t1=200.0, dt=0.02, key=0, save_every=2000, integrator=METHODS[1])
    assert sol.stats.unsolved == 0
    assert sol.orbit_error().max() <= 1e-13


def pseudo_spectral(omega, points, t1, steps):
    """∂ω/∂t = −u·∇ω by Fourier transforms, two thirds of the modes, Runge–Kutta 4; coefficients [m1, m2] of a grid."""
    m = np.fft.fftfreq(points, 1 / points)
    mx, my = np.meshgrid(m, m, indexing="ij")
    squared = mx**2 + my**2
    inverse = np.divide(1.0, squared, out=np.zeros_like(squared), where=squared > 0)
    kept = np.maximum(abs(mx), abs(my)) < points / 3

    def rate(w):
        def at(c):
            return np.fft.ifft2(c, norm="forward").real

        psi = -inverse * w
        advected = at(-1j * my * psi) * at(1j * mx * w) + at(1j * mx * psi) * at(1j * my * w)
        return np.where(kept, -np.fft.fft2(advected, norm="forward"), 0.0)

    w, h = np.array(omega), t1 / steps
    for _ in range(steps):
        a = rate(w)
        b = rate(w + 0.5 * h * a)
        c = rate(w + 0.5 * h * b)
        w = w + h / 6 * (a + 2 * b + 2 * c + rate(w + h * c))
    return w


@pytest.mark.slow
def test_the_matrices_converge_to_eulers_equation():
    """Early, from a smooth field: the error of low modes falls as 1/n², against a pseudo-spectral solution."""
    t1, low = 0.5, 8
    m = np.arange(-2, 3)
    c = np.random.default_rng(5).standard_normal((5, 5, 2)) @ [1, 1j]
    c = c + np.conj(c[::-1, ::-1])
    c[2, 2] = 0.0
    reference = np.zeros((96, 96), complex)
    reference[np.ix_(m % 96, m % 96)] = 0.1 * c
    reference = pseudo_spectral(reference, 96, t1, 100)
    at = np.arange(-low, low + 1)
    errors = []
    for n in (33, 65, 129):
        omega = np.zeros((n, n), complex)
        omega[np.ix_(m % n, m % n)] = 0.1 * c
        system, W = cj.models.sine_euler(n, omega=omega, noise_modes=None, orientation="physical")
        W = cj.solve(system, W, t1=t1, dt=0.05, save_every=10, integrator=cj.TMK(tol=1e-11)).mu[-1]
        found = np.asarray(cj.fluids.of(system).vorticity_coefficients(W))
        difference = found[np.ix_(at % n, at % n)] - reference[np.ix_(at % 96, at % 96)]
        errors.append(np.linalg.norm(difference) / np.linalg.norm(0.1 * c))
    slopes = np.log2(np.divide(errors[:-1], errors[1:]))
    assert np.all(slopes > 1.7) and errors[-1] < 0.01
    page = (Path(__file__).parents[2] / "docs" / "explanation" / "zeitlin.md").read_text(encoding="utf-8")
    first, second, third = (f"{e:.1e}".replace("e-0", "e-") for e in errors)
    assert f"{first}, {second} and {third} at n = 33, 65 and 129" in " ".join(page.split())


@pytest.mark.slow
def test_a_run_at_n_129_is_gone_on_with_bit_for_bit(tmp_path):
    """Stored, interrupted, resumed; the same through an experiment file with an own initial field."""
    n = 129
    omega = np.asarray(random_field(Torus(n), 1))
    system, W = cj.models.sine_euler(n, omega=omega, noise_shells=(1, 2), amplitude=0.01, orientation="physical")
    options = {"dt": 0.02, "key": 0, "integrator": METHODS[1], "save_every": 2}
    cj.solve(system, W, t1=0.16, out=tmp_path / "whole.zarr", **options)
    cj.solve(system, W, t1=0.08, out=tmp_path / "half.zarr", **options)
    cj.resume(tmp_path / "half.zarr", t1=0.16)
    np.save(tmp_path / "omega.npy", omega)
    model = 'name = "sine_euler"\nn = 129\nomega = "omega.npy"\nnoise_shells = [1, 2]\namplitude = 0.01\n'
    model += 'orientation = "physical"\n'
    run = 't1 = 0.16\ndt = 0.02\nkey = 0\nsave_every = 2\nintegrator = { name = "IsospectralMidpoint", tol = 1e-13 }\n'
    (tmp_path / "own.toml").write_text(f"[model]\n{model}[run]\n{run}")
    cj.run(tmp_path / "own.toml", tmp_path / "own.zarr")
    whole = cj.open(tmp_path / "whole.zarr")["mu"].values
    for name in ("half", "own"):
        np.testing.assert_array_equal(cj.open(tmp_path / f"{name}.zarr")["mu"].values, whole)


@pytest.mark.slow
def test_decaying_turbulence_looks_as_published():
    """n = 129: energy stays within 1e-3, enstrophy goes to small scales, where the spectrum falls as k⁻³ or steeper."""
    n = 129
    torus = Torus(n)
    omega = random_field(torus, 2, peak=6, slope=6.0)
    system, W = cj.models.sine_euler(n, omega=omega, noise_modes=None, orientation="physical")
    sol = cj.solve(system, W, t1=20.0, dt=0.05, save_every=400, integrator=cj.IsospectralMidpoint(tol=1e-11))
    flow = Flow(torus)
    E0, E1 = (np.asarray(flow.spectrum(x)) for x in (sol.mu[0], sol.mu[-1]))
    k = np.arange(12, 40)
    slope = np.polyfit(np.log(k), np.log(E1[12:40]), 1)[0]
    assert abs(E1.sum() / E0.sum() - 1) < 1e-3
    assert E1[30:50].sum() > 10 * E0[30:50].sum()
    assert -5.0 < slope < -2.0


def tendencies(torus, omega):
    """∂ω/∂t of the model and of Euler's equation, without aliasing, and |m|."""
    n, m = torus.n, np.fft.fftfreq(torus.n, 1 / torus.n)
    W = np.asarray(torus.matrix(omega))
    P = np.asarray(torus.inverse(W))
    k2 = m[:, None] ** 2 + m**2
    psi = np.where(k2 > 0, -omega / np.where(k2 > 0, k2, 1), 0)
    at = np.ix_(m.astype(int) % (3 * n), m.astype(int) % (3 * n))

    def values(c):
        fine = np.zeros((3 * n, 3 * n), complex)
        fine[at] = c
        return np.fft.ifft2(fine, norm="forward").real

    ddx, ddy = (lambda c: values(1j * m[:, None] * c)), (lambda c: values(1j * m * c))
    exact = -np.fft.fft2(ddx(psi) * ddy(omega) - ddy(psi) * ddx(omega), norm="forward")[at]
    return np.asarray(torus.coefficients(P @ W - W @ P)), exact, np.sqrt(k2)


@pytest.mark.slow
def test_resolved_scales():
    """The table of docs/explanation/zeitlin.md: errors of ∂ω/∂t up to a wavenumber, n = 129."""
    for peak, shown in ((6, (0.18, 0.52, 0.88, 0.98)), (2, (0.021, 0.089, 0.23, 0.68))):
        torus = Torus(129)
        found, exact, k = tendencies(torus, np.asarray(random_field(torus, key=1, peak=peak, slope=5.0)))
        norms = [np.linalg.norm((found - exact)[k <= K]) / np.linalg.norm(exact[k <= K]) for K in (5, 10, 20, 129)]
        np.testing.assert_allclose(norms, shown, rtol=0.03)
    unresolved = runpy.run_path(str(EXAMPLES / "fluids.py"))["unresolved"]
    for peak, shown in ((6, (0.007, 0.026, 0.089, 0.68)), (4, (0.003, 0.012, 0.045, 0.52))):
        sphere = Sphere(129)
        flow = Flow(sphere)
        W = flow.state(random_field(sphere, key=1, peak=peak, slope=5.0))
        np.testing.assert_allclose(unresolved(flow, W)[[5, 10, 20, 128]], shown, rtol=0.1)
