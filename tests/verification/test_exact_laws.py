"""Item 7: laws of the solution that are known exactly, and the Stratonovich correction."""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chi2

import coadjoint as cj

from .measurement import exp_action, measured_order, slope

LIMIT = 1e-6  # probability of a false alarm, about five standard errors; the keys are fixed
MEMBERS, T, DT = 8192, 1.0, 1 / 64
STATE = np.array([0.6, -0.3, 0.8, 0.5, 0.7, -0.4])
BETAS = np.array([[0.5, -0.3, 0.8, 0.4, 0.7, -0.6], [-0.6, 0.7, 0.3, 0.8, -0.5, 0.4], [0.4, 0.6, -0.5, -0.3, 0.6, 0.7]])
ALGEBRAS = {"so(3)": cj.SO3(), "se(3)": cj.SE3()}


def ad_star(beta):
    """The matrix of μ ↦ ad*_β μ, by hand: μ×ω on so(3), (π×ω + γ×v, γ×ω) on se(3)."""
    omega = np.cross(np.eye(3), beta[:3]).T
    if len(beta) == 3:
        return omega
    return np.block([[omega, np.cross(np.eye(3), beta[3:]).T], [np.zeros((3, 3)), omega]])


def generator(betas):
    """½ Σ (ad*_β)²; the same for left and right."""
    return 0.5 * sum(ad_star(b) @ ad_star(b) for b in betas)


def scheme_mean(betas, mu0):
    """The mean of the scheme itself: (E exp(ad*_σ))ⁿ μ₀, σ = Σ β_i ΔW^i, by Gauss–Hermite quadrature."""
    x, w = np.polynomial.hermite_e.hermegauss(8)
    grid = np.stack(np.meshgrid(x, x, x, indexing="ij"), axis=-1).reshape(-1, 3) * np.sqrt(DT)
    weights = np.einsum("i,j,k->ijk", w, w, w).ravel() / np.sum(w) ** 3
    sigmas = np.tensordot(grid, np.array([ad_star(b) for b in betas]), axes=1)
    columns = [weights @ exp_action(sigmas, e) for e in np.eye(len(mu0))]
    return np.linalg.matrix_power(np.stack(columns, axis=1), round(T / DT)) @ mu0


def endpoints(name, betas, key, side="left"):
    """μ_T of many members with h = 0 and SALT noise, and μ₀; without h the methods are one."""
    algebra = ALGEBRAS[name]
    system = cj.System(algebra, lambda mu: 0.0, [cj.salt(betas)], side=side)
    mu0 = STATE[: algebra.dim]
    run = {"t1": T, "dt": DT, "key": key, "save_every": 64, "integrator": cj.EulerMaruyamaMK()}
    return cj.ensemble(system, mu0, members=MEMBERS, **run).mu[:, -1], mu0


def quadratic_form(difference, covariance):
    """dᵀ Σ⁻¹ d on the directions in which Σ is not null, and their number.

    There are null directions: the Casimirs.
    """
    eigenvalues, vectors = np.linalg.eigh(covariance)
    real = eigenvalues > 1e-10 * eigenvalues[-1]
    projected = vectors.T @ difference
    np.testing.assert_allclose(projected[~real], 0, atol=1e-12)
    return np.sum(projected[real] ** 2 / eigenvalues[real]), real.sum()


def improbability(difference, covariance):
    """The probability of so large a difference by chance."""
    return chi2.sf(*quadratic_form(difference, covariance))


FIRST = [("so(3)", "right"), ("se(3)", "left")]
OTHERS = [pytest.param(*p, marks=pytest.mark.slow) for p in (("so(3)", "left"), ("se(3)", "right"))]


@pytest.mark.parametrize(("name", "side"), FIRST + OTHERS)
def test_mean(name, side):
    """E μ_t = exp(½ t Σ (ad*_β)²) μ₀ within its error bar, for three noises that do not commute."""
    betas = BETAS[:, : ALGEBRAS[name].dim]
    mu, mu0 = endpoints(name, betas, key=1, side=side)
    exact = exp_action(T * generator(betas), mu0)
    covariance = np.cov(mu.T) / MEMBERS
    errors = np.sqrt(np.diag(covariance))
    assert np.all(np.abs(scheme_mean(betas, mu0) - exact) < 0.5 * errors)  # dt is small enough
    assert improbability(mu.mean(axis=0) - scheme_mean(betas, mu0), covariance) > LIMIT
    assert np.all(np.abs(mu.mean(axis=0) - exact) < 5 * errors)
    # The test has teeth: the start, or noise stronger by a tenth, would be seen.
    assert improbability(mu.mean(axis=0) - mu0, covariance) < LIMIT
    assert improbability(mu.mean(axis=0) - exp_action(1.21 * T * generator(betas), mu0), covariance) < LIMIT


def moments(mu):
    """First and second moments of each member: their means are what the law is compared by."""
    i, j = np.triu_indices(mu.shape[1])
    return np.concatenate([mu, mu[:, i] * mu[:, j]], axis=1)


def two_samples(a, b):
    """The probability that two samples of one law have means and second moments so different."""
    a, b = moments(a), moments(b)
    return improbability(a.mean(axis=0) - b.mean(axis=0), np.cov(a.T) / len(a) + np.cov(b.T) / len(b))


@pytest.mark.parametrize("name", ALGEBRAS)
def test_law_under_orthogonal_mixing(name):
    """β_i mixed by an orthogonal matrix drive the same distribution; by another matrix, another."""
    betas = BETAS[:, : ALGEBRAS[name].dim]
    orthogonal = np.linalg.qr(np.random.default_rng(0).standard_normal((3, 3)))[0]
    assert np.abs(orthogonal).min() > 0.05  # a real mixture
    sample, _ = endpoints(name, betas, key=2)
    mixed, _ = endpoints(name, orthogonal @ betas, key=3)
    sheared, _ = endpoints(name, (orthogonal + 0.2 * np.eye(3)) @ betas, key=4)
    assert two_samples(sample, mixed) > LIMIT
    assert two_samples(sample, sheared) < LIMIT


# ------------------------------------------------------------------------- the Stratonovich correction


class Uncorrected(cj.Integrator):
    """Euler–Maruyama in the Lie algebra without the Stratonovich correction."""

    claims: ClassVar[cj.Claims] = cj.Claims(order=1, strong_commuting=1.0, strong=0.5, casimirs=True)

    def init(self, system, mu):
        return None

    def step(self, system, mu, t, dt, dS, carry):
        _, _, info = cj.Heun().step(system, mu, t, dt, dS, None)
        return system.algebra.flow(system.sign * system.zeta(mu, dt, dS.S), mu), None, info


def distances(integrators, side, levels=(5, 6, 7, 8)):
    """Distances of end states from those of the first on the finest grid, (integrator, step size, path)."""
    inertia = jnp.array([1.0, 2.0, 3.0])
    system = cj.System(
        cj.SO3(), lambda pi: 0.5 * pi @ (pi / inertia), [lambda pi: 0.4 * pi[0] * pi[1] + 0.3 * pi[2] ** 2], side=side
    )
    driver = cj.Brownian(5, grid=2.0**-12)

    def ends(integrator, level):
        run = {"t1": 1.0, "dt": 2.0**-level, "save_every": 2**level, "driver": driver, "integrator": integrator}
        return cj.ensemble(system, [0.6, -0.7, 0.9], members=256, **run).mu[:, -1]

    reference = ends(integrators[0], 12)
    errors = [[np.linalg.norm(ends(i, level) - reference, axis=1) for level in levels] for i in integrators]
    return np.array(errors), 2.0 ** -np.array(levels)


@pytest.mark.parametrize("side", ["left", pytest.param("right", marks=pytest.mark.slow)])
def test_nonlinear_noise(side):
    """One nonlinear noise: four methods, one of them direct, go to one limit with order 1.

    Euler–Maruyama without the correction goes to another one, far away. The median error is measured: an implicit
    method cuts an increment in 10⁴ to 10⁶, and the rms would measure that.
    """
    integrators = [cj.HeunMK(), cj.TMK(), cj.EulerMaruyamaMK(), cj.Heun(), Uncorrected()]
    errors, dts = distances(integrators, side)
    for error in errors[:4]:
        order, spread = measured_order(dts, error, np.median)
        assert abs(order - 1.0) < 0.1 and spread < 0.05
        assert np.sqrt(np.mean(error[-1] ** 2)) < 0.01
    wrong = np.sqrt(np.mean(errors[4] ** 2, axis=1))
    assert wrong.min() > 0.05
    assert abs(slope(np.log(dts), np.log(wrong))) < 0.2
