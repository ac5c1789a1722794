"""su(n) ⋉ su(n)*: magnetohydrodynamics and stratified flows, their Casimirs, steady states and waves."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import coadjoint as cj
from coadjoint.fluids import Sphere, Torus, index, random_field

RNG = np.random.default_rng(3)


def rate(system, mu):
    return np.asarray(eqx.filter_jit(system.vector_field)(mu, 1.0, jnp.zeros(system.n_noise)))


@pytest.mark.parametrize("surface", [Sphere(8), Torus(17)], ids=repr)
@pytest.mark.parametrize("sign", [1, pytest.param(-1, marks=pytest.mark.slow)])
def test_vorticity_equal_to_the_current_is_steady(surface, sign):
    """W = ±ΔΘ, at every n."""
    a = np.asarray(random_field(surface, 1, rms=0.1))
    name = "torus" if isinstance(surface, Torus) else "sphere"
    system, mu = cj.models.mhd(surface.n, surface=name, potential=a, omega=-sign * surface.eigenvalues * a)
    assert np.abs(rate(system, mu)).max() < 1e-13 * np.abs(mu).max() ** 2 * surface.n**2
    moved = rate(system, mu.at[0].multiply(0.5))
    assert np.abs(moved).max() > 1e-3 * np.abs(mu).max() ** 2


def malkus(n, l, m, Omega, alpha):
    """a = α cos θ and on it a wave of one (l, m), with its speed round the axis: an exact solution at every n."""
    lam = l * (l + 1)
    speed = -Omega / lam + np.sqrt((Omega / lam) ** 2 + alpha**2 * (1 - 2 / lam))
    psi, a = np.zeros(n * n), np.zeros(n * n)
    psi[index(l, m)] = 0.3
    a[index(1, 0)] = alpha * np.sqrt(4 * np.pi / 3)
    return -lam * psi, a + alpha / speed * psi, speed


@pytest.mark.parametrize("n", [6, pytest.param(33, marks=pytest.mark.slow)])
def test_malkus_waves_have_their_frequency(n):
    """s = m(−Ω/λ ± √(Ω²/λ² + α²(1 − 2/λ))), λ = l(l + 1): the right-hand side to 1e-13."""
    l, m = 4, 3
    omega, a, speed = malkus(n, l, m, Omega=0.8, alpha=0.5)
    system, mu = cj.models.mhd(n, surface="sphere", rotation=0.8, omega=omega, potential=a)
    sphere, found = Sphere(n), rate(system, mu)
    for part, field in zip(found, (omega, a), strict=True):
        turned = np.zeros(n * n)  # −s/m ∂/∂φ of cos mφ is s sin mφ
        turned[index(l, -m)] = speed * m * field[index(l, m)]
        exact = np.asarray(sphere.matrix(turned))
        np.testing.assert_allclose(part, exact, atol=1e-13 * np.abs(exact).max())


@pytest.mark.slow
def test_a_malkus_wave_turns_at_its_rate_up_to_the_square_of_the_step():
    n, l, m = 6, 3, 2
    omega, a, speed = malkus(n, l, m, Omega=0.8, alpha=0.5)
    system, mu = cj.models.mhd(n, surface="sphere", rotation=0.8, omega=omega, potential=a)
    exact, wave = np.array(a), a[index(l, m)]
    exact[index(l, m)], exact[index(l, -m)] = wave * np.cos(2 * m * speed), wave * np.sin(2 * m * speed)
    errors = []
    for dt in (0.1, 0.05, 0.025, 0.0125):
        sol = cj.solve(system, mu, t1=2.0, dt=dt, save_every=round(2 / dt), integrator=cj.IsospectralMidpoint())
        errors.append(np.abs(cj.fluids.of(sol).advected_coefficients(sol.mu[-1]) - exact).max())
    np.testing.assert_allclose(np.log2(np.divide(errors[:-1], errors[1:])), 2.0, atol=0.1)


@pytest.mark.parametrize("make", [cj.models.mhd, pytest.param(cj.models.boussinesq, marks=pytest.mark.slow)])
def test_the_equations_are_those_of_the_plane(make):
    """∂a/∂t = −u·∇a; ∂ω/∂t = −u·∇ω + J(a, Δa), or + ∂b/∂x where h = y: on the grid, up to O(1/n²)."""
    n = 129
    torus = Torus(n)
    low = np.where(torus.shells <= 2, 1.0, 0.0)
    omega, a = (low * np.asarray(torus.from_values(RNG.standard_normal((n, n)))) * n for _ in range(2))
    system, mu = make(n, omega=omega, **{"potential" if make is cj.models.mhd else "buoyancy": a})
    flow = cj.fluids.of(system)
    found = [torus.values(torus.coefficients(x)) for x in rate(system, mu)]
    u, v = flow.velocity(mu)
    (ox, oy), (ax, ay) = torus.gradient(omega), torus.gradient(a)
    if make is cj.models.mhd:
        jx, jy = torus.gradient(-torus.eigenvalues * a)
        force = ax * jy - ay * jx
    else:
        force = np.cos(torus.grid()[1]) * ax  # −J(sin y, b)
    for x, exact in zip(found, (-(u * ox + v * oy) + force, -(u * ax + v * ay)), strict=True):
        assert np.abs(x - exact).max() < 0.05 * np.abs(exact).max()
    potential = flow.advected_energy(mu)
    mean = (
        np.mean(0.5 * (ax**2 + ay**2)) if make is cj.models.mhd else -np.mean(np.sin(torus.grid()[1]) * torus.values(a))
    )
    np.testing.assert_allclose(potential, mean, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("method", [pytest.param(cj.TMK(), marks=pytest.mark.slow), cj.IsospectralMidpoint()])
def test_all_casimirs_are_kept_with_noise(method):
    """Eigenvalues of Θ and Tr(WΘᵏ), to round-off, in 200 steps."""
    system, mu = cj.models.mhd(9, noise_shells=(1, 1), amplitude=0.3)
    sol = cj.solve(system, mu, t1=10.0, dt=0.05, key=0, save_every=20, integrator=method)
    assert sol.casimir_errors().max() < 1e-14 and sol.orbit_error().max() < 1e-14
    assert sol.stats.unsolved == 0 and np.abs(sol.mu[-1] - sol.mu[0]).max() > 0.1 * np.abs(sol.mu[0]).max()


def test_what_is_refused():
    for make, message in {
        lambda: cj.models.mhd(9, surface="cube"): "surface must be one of 'torus', 'sphere'",
        lambda: cj.models.mhd(9, rotation=1.0): "rotation is for surface='sphere'",
        lambda: cj.models.mhd(9, potential=np.ones((3, 3))): "potential must be values on a square grid",
        lambda: cj.models.boussinesq(8): "n must be odd",
    }.items():
        with pytest.raises(ValueError, match=message):
            make()
    system, mu = cj.models.mhd(9)
    with pytest.raises(ValueError, match="Θ: it is not skew-Hermitian"):
        cj.solve(system, np.asarray(mu) + np.array([0, 1])[:, None, None] * np.eye(9), t1=1.0, dt=0.1)
