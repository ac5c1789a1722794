"""Thermal quasi-geostrophic flow: its equations on a grid, linear theory, Casimirs and energy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import sph_legendre_p

import coadjoint as cj
from coadjoint.fluids import Sphere, index, random_field


def rate(system, mu):
    return system.vector_field(mu, 1.0, jnp.zeros(system.n_noise))


def zonal(n, *, cosine=0.0, cube=0.0):
    """Coefficients of cosine z + cube z³, z = cos θ."""
    c = np.zeros(n * n)
    c[index(1, 0)] = (cosine + 0.6 * cube) * np.sqrt(4 * np.pi / 3)
    c[index(3, 0)] = 0.4 * cube * np.sqrt(4 * np.pi / 7)
    return c


@pytest.mark.parametrize("surface, n, bound", [
    ("sphere", 33, 0.04), pytest.param("torus", 65, 0.06, marks=pytest.mark.slow),
])  # fmt: skip
def test_the_equations_are_those_of_holm_luesink_and_pan(surface, n, bound):
    """∂b/∂t + u·∇b = 0 and ∂ω/∂t + u·∇(ω − b) = −½ {h₁, b} on a grid, up to O(1/n²)."""
    on = Sphere(n) if surface == "sphere" else cj.fluids.Torus(n)
    omega, b, h = (np.asarray(random_field(on, k, peak=2, slope=12.0)) for k in range(3))
    spin = {"rotation": 0.7} if surface == "sphere" else {}
    system, mu = cj.models.thermal_qg(n, surface=surface, screening=2.0, omega=omega, buoyancy=b, topography=h, **spin)
    flow = cj.fluids.of(system)
    dW, db = (np.asarray(on.coefficients(x)) for x in rate(system, mu))
    psi = np.asarray(flow.stream_coefficients(mu))
    np.testing.assert_allclose(psi, -on.inverse_eigenvalues() * omega, atol=1e-13)
    q = -(on.eigenvalues + 2.0) * psi
    if surface == "sphere":
        q = q + zonal(n, cosine=1.4)
    # on the torus a gradient is (∂x, ∂y), on the sphere (north, east), so that u·∇f = ± (first × second)
    sign = 1 if surface == "torus" else -1

    def advected(a, f):
        (ax, ay), (fx, fy) = on.gradient(a, 2 * n), on.gradient(f, 2 * n)
        return sign * (ax * fy - ay * fx)

    u, v = flow.velocity(mu, 2 * n)
    along = on.gradient(b, 2 * n) if surface == "torus" else on.gradient(b, 2 * n)[::-1]
    np.testing.assert_allclose(advected(psi, b), u * along[0] + v * along[1], atol=1e-10)
    for found, exact in (
        (db, -advected(psi, b)), (dW - db, -advected(psi, q - b) - 0.5 * advected(h, b)),
    ):  # fmt: skip
        assert np.abs(on.values(found, 2 * n) - exact).max() < bound * np.abs(exact).max()


def linear(l, U, B, H, Omega, F):
    """s = c − U of both waves: the quadratic equation of the docstring."""
    return np.roots([l * (l + 1) + F, (2 + F) * U + 2 * Omega - B, -(U + H / 2) * B])


def linearised(system, mu, on, pairs):
    """The matrix of the vector field, linearised at μ, on the coefficients k of parts p."""

    @jax.jit
    def image(c):
        change = jnp.stack([on.matrix(x) for x in c])
        moved = jax.jvp(lambda x: rate(system, x), (mu,), (change,))[1]
        return jnp.stack([on.coefficients(x) for x in moved])

    unit = lambda p, k: jnp.asarray(np.arange(2 * on.n**2).reshape(2, -1) == p * on.n**2 + k, float)
    images = [np.asarray(image(unit(p, k))) for p, k in pairs]
    return np.array([[x[p, k] for p, k in pairs] for x in images]).T


STATE = {"U": 0.4, "B": -1.5, "H": 0.6, "Omega": 0.3, "F": 2.0}


def test_waves_on_a_thermal_shear_are_exact():
    """The vector field at solid rotation, linearised about it, has the frequencies of linear theory at every n."""
    n, l, m = 7, 5, 4
    U, B, H, Omega, F = STATE.values()
    system, mu = cj.models.thermal_qg(
        n, screening=F, rotation=Omega, topography=zonal(n, cosine=H), omega=zonal(n, cosine=2 * U),
        buoyancy=zonal(n, cosine=B),
    )  # fmt: skip
    assert np.abs(rate(system, mu)).max() < 1e-13
    pairs = [(p, index(l, order)) for p in (0, 1) for order in (m, -m)]
    found = np.linalg.eigvals(linearised(system, mu, Sphere(n), pairs))
    s = linear(l, **STATE)
    assert np.abs(s.imag).max() > 0.1  # unstable
    expected = np.concatenate([1j * m * (U + s), -1j * m * (U + s)])
    distance = np.abs(found[:, None] - expected)
    assert distance.min(axis=0).max() < 1e-12 and distance.min(axis=1).max() < 1e-12


@pytest.mark.slow
def test_growth_rate_of_a_run():
    """A disturbance of one degree grows at the rate of linear theory, up to the square of the step."""
    n, l = 9, 6
    U, B, H, Omega, F = STATE.values()
    omega = zonal(n, cosine=2 * U)
    omega[index(l, l)] = 1e-9
    system, mu = cj.models.thermal_qg(
        n, screening=F, rotation=Omega, topography=zonal(n, cosine=H), omega=omega, buoyancy=zonal(n, cosine=B)
    )
    expected, errors, steps = l * linear(l, **STATE).imag.max(), [], np.array([0.08, 0.04, 0.02, 0.01])
    for dt in steps:
        sol = cj.solve(system, mu, t1=12.0, dt=dt, save_every=round(4 / dt), integrator=cj.IsospectralMidpoint())
        psi = np.asarray(cj.fluids.of(system).stream_coefficients(sol.mu))
        size = np.linalg.norm(psi[:, [index(l, l), index(l, -l)]], axis=1)
        errors.append(abs(np.log(size[-1] / size[-2]) / 4.0 - expected))
    assert abs(np.polyfit(np.log(steps), np.log(errors), 1)[0] - 2.0) < 0.1 and errors[-1] < 2e-4, errors


def spherical_operator(m, degrees, F, profiles):
    """The linear operator of order m in harmonics of degrees ≥ m, by quadrature: profiles of z are ψ̄', q̄', b̄', h₁'."""
    l = np.arange(m, degrees)
    z, w = np.polynomial.legendre.leggauss(2 * degrees)
    P = np.array([sph_legendre_p(k, m, np.arccos(z))[0] for k in l]) * np.sqrt(2 * np.pi)
    times = lambda f: (P * (w * f(z))) @ P.T
    psi, q, b, h = map(times, profiles)
    inverse = -np.diag(1 / (l * (l + 1) + F))  # ψ of q − b
    on_q = 1j * m * np.block([psi + (b - q) @ inverse, -(b - q) @ inverse - psi + 0.5 * h])
    on_b = 1j * m * np.block([-b @ inverse, b @ inverse + psi])
    return np.concatenate([on_q, on_b])


@pytest.mark.slow
def test_growth_rate_of_a_jet():
    """A zonal jet with a front of buoyancy: the matrices tend to the dense eigenproblem in harmonics at order 2."""
    m, F, U, B = 3, 2.0, 0.5, -1.0
    slope = lambda z: -U * (1 + 3 * z**2)  # ψ̄ = −U (z + z³): then ω̄ = Δψ̄ = U (2z + 12z³ − 6z)
    b = lambda z: B * (1 + 3 * z**2)
    q = lambda z: U * (-4 + 36 * z**2) - F * slope(z) + b(z)
    expected = np.linalg.eigvals(spherical_operator(m, 40, F, (slope, q, b, lambda z: 0 * z))).real.max()
    assert expected > 0.1
    errors, sizes = [], (17, 25, 33, 49)
    for n in sizes:
        omega = zonal(n, cosine=-4 * U, cube=12 * U)
        system, mu = cj.models.thermal_qg(n, screening=F, omega=omega, buoyancy=zonal(n, cosine=B, cube=B))
        pairs = [(p, index(l, o)) for p in (0, 1) for l in range(m, n) for o in (m, -m)]
        found = np.linalg.eigvals(linearised(system, mu, Sphere(n), pairs))
        errors.append(abs(found.real.max() - expected))
    order = -np.polyfit(np.log(sizes), np.log(errors), 1)[0]
    assert order > 1.7 and errors[-1] < 0.02 * expected, (order, errors, expected)


def test_casimirs_and_energy():
    """Casimirs to round-off with SALT; the energy to order 2 without."""
    topography = zonal(5, cosine=0.3, cube=0.2)
    noisy, mu = cj.models.thermal_qg(5, rotation=1.0, topography=topography, noise_shells=(1, 2), amplitude=0.2)
    sol = cj.solve(noisy, mu, t1=4.0, dt=0.05, key=0, save_every=20, integrator=cj.IsospectralMidpoint())
    assert sol.casimir_errors().max() < 1e-14 and sol.orbit_error().max() < 1e-14
    assert np.abs(sol.mu[-1] - sol.mu[0]).max() > 0.1 * np.abs(sol.mu[0]).max()


@pytest.mark.slow
def test_energy():
    """Its error has the order 2 of the isospectral midpoint rule. Its parts are means over the sphere."""
    h = zonal(9, cosine=0.3, cube=0.2)
    system, mu = cj.models.thermal_qg(9, rotation=1.0, screening=2.0, topography=h)
    flow, on = cj.fluids.of(system), Sphere(9)
    energies, steps = [], np.array([0.1, 0.05, 0.025, 0.0125])
    total = lambda mu: float(flow.energy(mu) + flow.advected_energy(mu))
    for dt in steps:
        sol = cj.solve(system, mu, t1=4.0, dt=dt, save_every=round(4 / dt), integrator=cj.IsospectralMidpoint())
        energies.append(abs(total(sol.mu[-1]) - total(mu)))
    assert abs(np.polyfit(np.log(steps), np.log(energies), 1)[0] - 2.0) < 0.15, energies
    b = np.asarray(flow.advected_coefficients(mu))
    np.testing.assert_allclose(flow.advected_energy(mu), -0.5 * on.weight * (b @ h), rtol=1e-12)
    np.testing.assert_allclose(float(system.energy(mu)), on.rate / on.norm * total(mu), rtol=1e-12)
