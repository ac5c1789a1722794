"""Fluids on torus and sphere: fields in and out, exact solutions, units, noise, and errors."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coadjoint as cj
from coadjoint.fluids import Flow, Sphere, Torus, index, jet, random_field, vortices

RNG = np.random.default_rng(7)


def some_field(surface, largest=None):
    """Random coefficients of a real field, up to a shell."""
    if isinstance(surface, Torus):
        c = np.array(surface.from_values(RNG.standard_normal((surface.n, surface.n))))
    else:
        c = RNG.standard_normal(surface.shape)
        c[0] = 0.0
    return c if largest is None else np.where(surface.shells <= largest, c, 0.0)


def along_longitude(sphere, c):
    """∂f/∂φ: cos mφ ↦ −m sin mφ, sin mφ ↦ m cos mφ."""
    out = np.zeros_like(c)
    for l in range(sphere.n):
        for m in range(-l, l + 1):
            out[index(l, m)] = m * c[index(l, -m)]
    return out


def rate(system, W):
    return eqx.filter_jit(system.vector_field)(W, 1.0, np.zeros(system.n_noise))


@pytest.mark.parametrize("surface", [Torus(9), Torus(17), Torus(17, "paper"), *map(Sphere, (2, 5, 16))], ids=repr)
def test_fields_go_in_and_out(surface):
    """Coefficients, matrices and values on a grid are the same field; ‖W‖² and Σ|f_k|² its mean square."""
    c = some_field(surface)
    W = surface.matrix(c)
    np.testing.assert_allclose(surface.coefficients(W), c, atol=5e-15)
    if surface.n > 9 or isinstance(surface, Sphere):
        np.testing.assert_array_equal(W, -np.conj(W).T)
    size = surface.weight * np.sum(np.abs(c) ** 2)
    np.testing.assert_allclose(surface.norm * np.linalg.norm(W) ** 2, size, rtol=1e-13)
    fine = 2 * surface.n
    np.testing.assert_allclose(surface.from_values(surface.values(c, fine)), c, atol=1e-13)
    inverse = surface.inverse(W, 0.5)
    back = 0.5 * np.asarray(inverse) - np.asarray(surface.laplacian(inverse))
    np.testing.assert_allclose(back, W, atol=1e-12 * np.abs(W).max())
    if isinstance(surface, Sphere):
        on_gauss = surface.values(c, surface.gauss_grid()[0])
        np.testing.assert_allclose(surface.from_values(on_gauss), c, atol=1e-13)
    else:
        np.testing.assert_allclose(np.mean(surface.values(c) ** 2), size, rtol=1e-13)
        turned = c if surface.orientation == "paper" else np.roll(c[:, ::-1], 1, axis=1)
        np.testing.assert_allclose(W, cj.models.fourier_to_matrix(turned, "paper"), atol=1e-14 * np.abs(W).max())


@pytest.mark.parametrize("surface", [Torus(9), Torus(17, "paper"), Sphere(5)], ids=repr)
def test_fields_on_grids_can_be_traced(surface):
    """`jit` and `grad` of all three. The fields are linear in the state, so the slope of their squares is known."""
    flow = Flow(surface)
    W = np.stack([flow.state(some_field(surface)) for _ in range(2)])
    fields = lambda W: (flow.vorticity(W, 19), flow.stream_function(W, 19), *flow.velocity(W, 19))
    squares = lambda a: sum(jnp.sum(x**2) for x in fields(a * W))
    (value, slope), traced = jax.jit(lambda a: (jax.value_and_grad(squares)(a), fields(a * W)))(1.0)
    np.testing.assert_allclose(slope, 2 * value, rtol=1e-12)
    for found, right in zip(traced, fields(W), strict=True):
        assert isinstance(right, np.ndarray)
        np.testing.assert_allclose(found, right, atol=1e-12 * np.abs(right).max())


@pytest.mark.parametrize("n", [2, 5, 64])
def test_the_coordinates_of_the_sphere_are_spin_matrices(n):
    """x, y, z ↦ iħ S_a: to round-off at every n."""
    j = np.arange(n - 1)
    raising = np.diag(np.sqrt((j + 1.0) * (n - 1 - j)), 1)
    spins = {(1, 1): (raising + raising.T) / 2, (1, -1): (raising - raising.T) / 2j}
    spins[1, 0] = np.diag((n - 1) / 2 - np.arange(n))
    for lm, S in spins.items():
        c = np.zeros(n * n)
        c[index(*lm)] = np.sqrt(4 * np.pi / 3)
        np.testing.assert_allclose(Sphere(n).matrix(c), 2j / np.sqrt(n * n - 1) * S, atol=1e-15)


@pytest.mark.parametrize(
    "surface", [Torus(129), pytest.param(Torus(129, "paper"), marks=pytest.mark.slow), Sphere(33)], ids=repr
)
def test_the_equation_is_eulers_in_the_orientation_that_is_said(surface):
    """rate [P, W] is −u·∇ω, up to O(1/n²) for smooth fields; in the paper's orientation u·∇ω."""
    c = some_field(surface, 2)
    flow = Flow(surface)
    W = flow.state(c)
    P = flow.stream(W)
    found = surface.values(surface.coefficients(P @ W - W @ P))
    u, v = flow.velocity(W)
    a, b = surface.gradient(c)
    exact = -(u * a + v * b) if isinstance(surface, Torus) else -(u * b + v * a)
    exact = exact if getattr(surface, "orientation", "") != "paper" else -exact
    assert np.abs(found - exact).max() < 0.05 * np.abs(exact).max()
    assert np.abs(found + exact).max() > np.abs(exact).max()


@pytest.mark.parametrize("surface", [Torus(17), Sphere(16)], ids=repr)
def test_energy_and_enstrophy_are_means_over_the_surface(surface):
    """½|u|² and ½ω², from fields on a grid; sums of E(k); h is the energy times rate/norm; Π(k) ends with 0."""
    flow = Flow(surface)
    W = flow.state(some_field(surface))
    if isinstance(surface, Torus):
        points, weights = 64, np.full((64, 64), 1 / 64**2)
    else:
        z, w = np.polynomial.legendre.leggauss(40)
        points, weights = np.arcsin(z[::-1]), np.repeat(w[::-1, None] / 160, 80, axis=1)
    u, v = flow.velocity(W, points)
    energy, enstrophy = (np.sum(weights * f) for f in (0.5 * (u**2 + v**2), 0.5 * flow.vorticity(W, points) ** 2))
    np.testing.assert_allclose([flow.energy(W), flow.enstrophy(W)], [energy, enstrophy], rtol=1e-12)
    np.testing.assert_allclose(np.sum(flow.spectrum(W)), energy, rtol=1e-12)
    np.testing.assert_allclose(flow.hamiltonian(W), flow.energy(W) * surface.rate / surface.norm, rtol=1e-12)
    flux = np.asarray(flow.flux(W))
    assert abs(flux[-1]) < 1e-12 * np.abs(flux).max() and np.abs(flux).max() > 0


@pytest.mark.parametrize("n", [5, 16, pytest.param(33, marks=pytest.mark.slow)])
def test_rossby_haurwitz_waves_are_exact_at_every_n(n):
    """ω = 2a cos θ + Y, Y of one degree l: the wave turns at a − 2(a + Ω)/(l(l + 1)), the right-hand side to 1e-13."""
    sphere, a, Omega, l = Sphere(n), 0.7, 1.3, 4
    Y = np.where(sphere.shells == l, RNG.standard_normal(n * n), 0.0)
    zonal = np.zeros(n * n)
    zonal[index(1, 0)] = 2 * a * np.sqrt(4 * np.pi / 3)
    system, W = cj.models.euler_sphere(n, rotation=Omega, omega=zonal + Y)
    speed = a - 2 * (a + Omega) / (l * (l + 1))
    exact = np.asarray(sphere.matrix(-speed * along_longitude(sphere, Y)))
    np.testing.assert_allclose(rate(system, W), exact, atol=1e-13 * np.abs(exact).max())


def test_a_rossby_haurwitz_wave_turns_at_its_rate_up_to_the_square_of_the_step():
    """After t = 2, halving dt takes a quarter of the error; Casimirs of ω + 2Ω cos θ are conserved."""
    n, a, Omega, l = 9, 0.7, 1.3, 3
    sphere = Sphere(n)
    Y = np.where(sphere.shells == l, RNG.standard_normal(n * n), 0.0)
    zonal = np.zeros(n * n)
    zonal[index(1, 0)] = 2 * a * np.sqrt(4 * np.pi / 3)
    system, W = cj.models.euler_sphere(n, rotation=Omega, omega=zonal + Y)
    angle = 2 * (a - 2 * (a + Omega) / (l * (l + 1)))
    exact = zonal.copy()
    for m in range(-l, l + 1):
        exact[index(l, m)] = Y[index(l, m)] * np.cos(m * angle) - Y[index(l, -m)] * np.sin(m * angle)
    errors = []
    for dt in (0.1, 0.05, 0.025, 0.0125):
        sol = cj.solve(system, W, t1=2.0, dt=dt, save_every=round(2.0 / dt))
        errors.append(np.abs(cj.fluids.of(sol).vorticity_coefficients(sol.mu[-1]) - exact).max())
        assert sol.orbit_error().max() < 5e-15
    np.testing.assert_allclose(np.log2(np.divide(errors[:-1], errors[1:])), 2.0, atol=0.05)


@pytest.mark.parametrize("make", [cj.models.euler_sphere, cj.models.sine_euler], ids=lambda f: f.__name__)
def test_zonal_flows_are_steady(make):
    """A jet, with rotation on the sphere, with screening on the torus."""
    torus = make is cj.models.sine_euler
    surface = Torus(17) if torus else Sphere(16)
    options = {"screening": 2.0, "noise_modes": None} if torus else {"rotation": 1.0}
    system, W = make(surface.n, omega=jet(surface, at=0.0, width=0.6), **options)
    assert np.abs(rate(system, W)).max() < 1e-13 * np.abs(W).max() ** 2
    u = cj.fluids.of(system).velocity(W, 128)[0]
    assert abs(u.max() - u.min() - 1.0) < 0.05  # on the torus less its mean


def test_screening_and_topography_are_part_of_potential_vorticity():
    """q = (Δ − F)ψ + b moves; vorticity, energy and the equation are those of ψ."""
    torus = Torus(9)
    omega, b = some_field(torus), some_field(torus)
    system, W = cj.models.sine_euler(9, omega=omega, topography=b, screening=3.0)
    flow = cj.fluids.of(system)
    np.testing.assert_allclose(flow.vorticity_coefficients(W), omega, atol=1e-14)
    psi = np.asarray(flow.stream_coefficients(W))
    np.testing.assert_allclose(-torus.eigenvalues * psi, omega, atol=1e-14)
    np.testing.assert_allclose(torus.coefficients(W), -(torus.eigenvalues + 3.0) * psi + b, atol=1e-13)
    u, v = flow.velocity(W, 32)
    mean = np.mean(0.5 * (u**2 + v**2 + 3.0 * flow.stream_function(W, 32) ** 2))
    np.testing.assert_allclose(flow.energy(W), mean, rtol=1e-12)
    P, q = np.asarray(torus.matrix(-psi)), np.asarray(W)
    np.testing.assert_allclose(rate(system, W), P @ q - q @ P, atol=1e-12)


@pytest.mark.parametrize("surface", [Torus(33), Sphere(24)], ids=repr)
def test_initial_fields_are_what_was_asked_for(surface):
    """A spectrum with its peak and slope, of the asked size; vortices with their circulation where they were put."""
    flow = Flow(surface)
    c = random_field(surface, 1, peak=4, slope=2.0, rms=0.3)
    W = flow.state(c)
    np.testing.assert_allclose(np.sqrt(2 * flow.enstrophy(W)), 0.3, rtol=1e-12)
    E, k = np.asarray(flow.spectrum(W))[1:15], np.arange(1, 15)
    np.testing.assert_allclose(E / E[3], 2 / ((k / 4) ** -4.0 + (k / 4) ** 2.0), rtol=1e-10)
    assert not np.array_equal(c, random_field(surface, 2, peak=4, slope=2.0, rms=0.3))
    field = surface.values(vortices(surface, [(0.5, 1.0)], 2.0, 0.35), 96)
    x, y = (axis[i] for axis, i in zip(surface.grid(96), np.unravel_index(np.argmax(field), field.shape), strict=True))
    assert abs(x - 0.5) < 0.05 and abs(y - 1.0) < 0.05
    area = 4 * np.pi**2 if isinstance(surface, Torus) else 4 * np.pi
    assert abs(field.max() + 2.0 / area - 2.0 / (2 * np.pi * 0.35**2)) < 0.1 * field.max()


@pytest.mark.parametrize("orientation", ["paper", "physical"])
def test_noise_on_modes_is_the_sum_of_its_fields(orientation):
    """Many fields, never formed one by one, give what the stack of their matrices gives."""
    n = 33
    modes = [(a, b) for a in range(-5, 6) for b in range(1, 7)] + [(2, 0), (-3, 0), (4, -9), (-16, -16)]
    amplitude = RNG.standard_normal(len(modes)) + 1j * RNG.standard_normal(len(modes))
    system, W = cj.models.sine_euler(n, noise_modes=modes, amplitude=amplitude, orientation=orientation)
    assert type(system.noises[0]).__name__ == "ModeNoise" and system.n_noise == len(modes)
    dS = RNG.standard_normal(len(modes))
    zeta = np.zeros((n, n), complex)
    for (a, b), z, s in zip(modes, amplitude, dS, strict=True):
        zeta[a % n, b % n] += z * s
        zeta[-a % n, -b % n] += np.conj(z) * s
    np.testing.assert_allclose(eqx.filter_jit(system.noise)(W, dS), Torus(n, orientation).matrix(zeta), atol=1e-11)


@pytest.mark.parametrize("make, surface", [(cj.models.sine_euler, Torus(9)), (cj.models.euler_sphere, Sphere(9))])
def test_noise_on_shells_is_isotropic_and_fields_are_taken_as_they_are(make, surface):
    """Cosine and sine of all modes of a shell: Σ ζ_i(x)² does not depend on x. The same by given fields."""
    system, W = make(surface.n, noise_shells=(1, 2), amplitude=(0.3, 0.1))
    count = np.isin(surface.shells, (1, 2)).sum()
    assert system.n_noise == count
    fields = [np.asarray(surface.coefficients(system.noise(W, e))) / surface.rate for e in np.eye(count)]
    variance = sum(surface.values(c, 12) ** 2 for c in fields)
    np.testing.assert_allclose(variance, variance.mean(), rtol=1e-12)
    given, _ = make(surface.n, noise_fields=np.array(fields))
    dS = RNG.standard_normal(count)
    np.testing.assert_allclose(given.noise(W, dS), system.noise(W, dS), atol=1e-13)


def test_diagnostics_are_streamed_and_labelled():
    """save=flow.diagnostics has the results of the saved states, without saving states."""
    system, W = cj.models.euler_sphere(9, noise_shells=(1, 1))
    flow = cj.fluids.of(system)
    run = {"t1": 1.0, "dt": 0.1, "key": 0, "integrator": cj.HeunMK(), "backend": "xla"}  # soon compiled
    kept = cj.solve(system, W, **run)
    streamed = cj.solve(system, W, save=flow.diagnostics, **run)
    a, b = flow.to_xarray(kept), flow.to_xarray(streamed)
    assert dict(a.sizes) == {"time": 11, "wavenumber": 9} == dict(b.sizes)
    for name in ("energy", "enstrophy", "spectrum", "flux"):
        np.testing.assert_allclose(a[name], b[name], atol=1e-12)
    for name in ("energy", "spectrum"):  # of several states at once
        np.testing.assert_allclose(getattr(flow, name)(kept.mu[:4].reshape(2, 2, 9, 9))[1, 0], a[name][2], atol=1e-12)
    with pytest.raises(ValueError, match="a state of this flow has 2 axes, but energy received"):
        flow.energy(kept.mu[0, 0])


@pytest.mark.slow
def test_diagnostics_of_an_ensemble_have_members():
    system, W = cj.models.euler_sphere(9, noise_shells=(1, 1))
    flow = cj.fluids.of(system)
    members = cj.ensemble(system, W, members=3, t1=1.0, dt=0.1, key=0, save_every=5, save=flow.diagnostics)
    assert flow.to_xarray(members)["spectrum"].dims == ("member", "time", "wavenumber")


TORUS, SPHERE = cj.models.sine_euler, cj.models.euler_sphere
FIELD = np.asarray(Torus(9).from_values(np.random.default_rng(0).standard_normal((9, 9))))
BAD = {
    "even n": (lambda: TORUS(8), "n must be odd"),
    "not real": (lambda: TORUS(3, omega=np.triu(np.ones((3, 3)), 1)), "not a real field"),
    "complex values": (lambda: TORUS(9, vorticity=np.ones((9, 9)) * 1j), "vorticity must be real numbers"),
    "coarse values": (lambda: TORUS(9, vorticity=np.ones((8, 8))), r"at least 9 × 9 points, not of shape \(8, 8\)"),
    "fft2 as it comes": (lambda: TORUS(9, omega=FIELD * 81), "norm='forward'"),
    "two starts": (lambda: TORUS(9, omega=FIELD, vorticity=np.zeros((9, 9))), "give one of them"),
    "mode": (lambda: TORUS(9, noise_modes=[(5, 0)]), r"\(5, 0\) is not a mode of n = 9"),
    "mode on the sphere": (lambda: SPHERE(9, noise_modes=[(2, 3)]), r"\(2, 3\) is no \(l, m\) of n = 9"),
    "mode twice": (lambda: SPHERE(9, noise_modes=[(2, 1), (2, 1)]), "make the same field"),
    "phase on the sphere": (lambda: SPHERE(9, noise_modes=[(2, 1)], amplitude=1j), "a finite real number"),
    "amplitudes": (lambda: TORUS(9, noise_modes=[(1, 1)], amplitude=[1, 2]), "one for each of the 1 noise_modes"),
    "shells": (lambda: TORUS(9, noise_shells=(3, 7)), r"1 <= k1 <= k2 <= 4, not \(3, 7\)"),
    "shell amplitudes": (lambda: TORUS(9, noise_shells=(1, 3), amplitude=[1, 2]), "one for each of the 3 shells"),
    "noise fields": (lambda: TORUS(9, noise_fields=FIELD[None, :3]), r"noise_fields\[0\] must have shape"),
    "orientation": (lambda: TORUS(9, orientation="up"), "orientation must be one of 'physical', 'paper'"),
    "screening": (lambda: TORUS(9, screening=-1.0), "screening must not be below 0"),
    "coefficients": (lambda: SPHERE(9, omega=np.ones(80)), r"81 coefficients .* not of shape \(80,\)"),
    "mean": (lambda: SPHERE(9, omega=np.ones(81)), r"the mean vorticity \(l = 0\), must be 0"),
    "grid": (lambda: SPHERE(9, vorticity=np.ones((12, 24))), "9 × 18, or on an equiangular grid of N × 2N"),
    "rotation": (lambda: SPHERE(9, rotation=np.nan), "rotation must be finite"),
    "spectrum": (lambda: random_field(Torus(9), peak=0), "peak must be above 0"),
    "no fluid": (lambda: cj.fluids.of(cj.models.heavy_top()[0]), "there is no fluid in this"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_a_sentence(case):
    make, message = BAD[case]
    with pytest.raises((ValueError, TypeError), match=message):
        make()
