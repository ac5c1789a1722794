"""The spectrum of a fluid over many stochastic steps, and a steady flow, inversion-free."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coadjoint as cj

STEPS = 10_000
METHODS = {
    "isospectral": cj.IsospectralMidpoint(tol=1e-12),
    "Cayley": cj.TMK(tol=1e-12, tau=cj.Cayley()),
    "exp": cj.TMK(tol=1e-12),
    "mean state": cj.LieMidpoint(tol=1e-12),
}


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_eigenvalues_over_1e4_stochastic_steps(method):
    """n = 65, 96 noise fields, operator norms of dt P and of the noise in a step about 0.1."""
    n = 65
    modes = [(a, b) for a in range(-5, 6) for b in range(6) if b > 0 or a > 0][:48]
    both = [m for m in modes for _ in range(2)]
    sizes = np.array([phase / np.hypot(*m) for m in modes for phase in (1, 1j)])
    system, W0 = cj.models.sine_euler(n, noise_modes=both, amplitude=sizes)
    dt = 0.1 / np.linalg.norm(np.asarray(system.drift(W0)), 2)
    draw = np.random.default_rng(0).normal(size=system.n_noise)
    noise = np.sqrt(dt) * np.linalg.norm(np.asarray(system.noise(W0, draw)), 2)
    system, W0 = cj.models.sine_euler(n, noise_modes=both, amplitude=0.1 / noise * sizes)
    sol = cj.solve(system, W0, t1=STEPS * dt, dt=dt, key=0, save_every=STEPS // 4, integrator=METHODS[method])
    assert sol.stats.unsolved == 0 and sol.stats.iterations < 3
    before, *after = (np.linalg.eigvalsh(-1j * np.asarray(W)) for W in sol.mu)
    assert max(np.abs(x - before).max() for x in after) <= 1e-13 * np.abs(before).max()


@pytest.mark.slow
@pytest.mark.parametrize("n", [17, 65, 129])
@pytest.mark.parametrize("h", [0.05, 0.2, 0.5])
@pytest.mark.parametrize("noise", [True, False], ids=["noise", "no noise"])
@pytest.mark.parametrize("surface", ["torus", "sphere"])
@pytest.mark.parametrize("method", METHODS)
def test_the_spectrum_does_not_drift_linearly(method, surface, noise, h, n):
    """dt‖P‖₂ = h: round-off adds up as a random walk from 10³ to 10⁴ steps, with the default tolerance."""
    if surface == "torus":
        system, W0 = cj.models.sine_euler(
            n, amplitude=0.05 if noise else 0.1, noise_modes=((1, 1), (1, -1))[: 2 * noise]
        )
    else:
        system, W0 = cj.models.euler_sphere(n, noise_shells=(2, 3) if noise else None, amplitude=0.05)
    dt = h / np.linalg.norm(np.asarray(system.drift(W0)), 2)
    integrator = type(METHODS[method])(**({"tau": cj.Cayley()} if method == "Cayley" else {}))
    key = 0 if noise else None
    steps = 10_000 if n < 100 else 3_000
    sol = cj.solve(system, W0, t1=steps * dt, dt=dt, key=key, save_every=steps // 20, integrator=integrator)
    before, *after = (np.linalg.eigvalsh(-1j * np.asarray(W)) for W in sol.mu)
    errors = np.array([np.abs(x - before).max() for x in after]) / np.abs(before).max()
    assert errors.max() <= 3e-14
    late = slice(1, None)  # from a tenth of the steps
    slope = np.polyfit(np.log(np.arange(2, 21)), np.log(errors[late]), 1)[0]
    assert slope <= 0.6 or errors.max() <= 5e-15  # a plateau has any slope


@pytest.mark.slow
@pytest.mark.parametrize("noise", [True, False], ids=["noise", "no noise"])
@pytest.mark.parametrize("method", ["isospectral", "exp"])
def test_the_spectra_of_layers_do_not_drift_linearly(method, noise):
    """Two coupled layers, of which one is a tenth of the other: each keeps its own spectrum to round-off.

    The slope of one start is a random number with a standard deviation of about 0.16, so the mean over starts counts.
    """
    sphere = cj.fluids.Sphere(33)
    flow, algebra = cj.fluids.Flow.create(sphere, 1.0), cj.SU(33) ** 2
    stream = lambda mu: jax.vmap(flow.stream)(algebra.to_matrices(mu))

    def gradient(mu):
        P = stream(mu)
        return algebra.from_matrices(P + 0.3 * P[::-1])

    fields = [sphere.matrix(cj.fluids.random_field(sphere, key=k, peak=3, rms=0.05)) for k in (5, 6)]
    noises = [cj.salt(jnp.stack([algebra.join(*fields), algebra.join(*fields[::-1])]))] if noise else []
    options = {"side": "right", "gradient": gradient}
    system = cj.System(algebra, lambda mu: 0.5 * mu @ gradient(mu), noises, **options)
    slopes, largest = [], 0.0
    for start in range(5):
        keys = 2 * start, 2 * start + 1
        W = [sphere.matrix(cj.fluids.random_field(sphere, key=k, peak=4, rms=10.0 ** (keys[0] - k))) for k in keys]
        mu0 = algebra.join(*W)
        dt = 0.2 / np.linalg.norm(np.asarray(stream(mu0)[0]), 2)
        options = {"key": start if noise else None, "integrator": type(METHODS[method])(), "save_every": 500}
        sol = cj.solve(system, mu0, t1=10_000 * dt, dt=dt, **options)
        assert sol.stats.unsolved == 0
        spectra = np.linalg.eigvalsh(-1j * np.stack([algebra.to_matrices(x) for x in sol.mu]))
        errors = np.abs(spectra[1:] - spectra[0]).max(axis=2) / np.abs(spectra[0]).max(axis=1)
        largest = max(largest, errors.max())
        slopes.append(np.polyfit(np.log(np.arange(2, 21)), np.log(errors[1:].max(axis=1)), 1)[0])
    error = np.std(slopes, ddof=1) / np.sqrt(len(slopes))
    assert largest <= 3e-14
    assert np.mean(slopes) <= 0.6 or largest <= 5e-15
    assert np.mean(slopes) + 2 * error < 1.0 or largest <= 5e-15  # no linear growth


@pytest.mark.slow
def test_a_flow_of_one_shell_is_steady_with_tmk():
    """|m|² = 25 for all of its modes; the midpoint rule moves it at O(dt²)."""
    n = 33
    omega = np.zeros((n, n), complex)
    for a, b in ((5, 0), (3, 4), (4, -3)):
        omega[a % n, b % n] = omega[-a % n, -b % n] = 1.0
    system, W0 = cj.models.sine_euler(n, omega=omega, noise_modes=None)
    dt = 0.1 / np.linalg.norm(np.asarray(system.drift(W0)), 2)
    for name, moved in (("exp", 1e-13), ("Cayley", 1e-13)):
        sol = cj.solve(system, W0, t1=50 * dt, dt=dt, save_every=50, integrator=METHODS[name])
        assert np.abs(sol.mu[-1] - sol.mu[0]).max() <= moved * np.abs(sol.mu[0]).max()
