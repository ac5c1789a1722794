"""Pins docs/reference/conventions.md: signs, sides and orders, each with numbers written out by hand or by NumPy."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from algebras import SO4

import coadjoint as cj
from coadjoint.drivers import Increment

SO3, SE3 = cj.SO3(), cj.SE3()
e1, e2, e3 = np.eye(3)
cross = np.cross

rng = np.random.default_rng(1)
sides = pytest.mark.parametrize("side, s", [("left", 1), ("right", -1)])


def same(a, b, tol=1e-14):
    np.testing.assert_allclose(a, b, rtol=0, atol=tol * max(1.0, np.max(np.abs(b))))


def hat(w):
    return np.array([[0, -w[2], w[1]], [w[2], 0, -w[0]], [-w[1], w[0], 0]])


def hat4(xi):
    """The 4×4 matrix of ξ = (ω, v)."""
    m = np.zeros((4, 4))
    m[:3, :3], m[:3, 3] = hat(xi[:3]), xi[3:]
    return m


# so(3)


def test_so3_bracket_is_the_cross_product():
    same(SO3.bracket(e1, e2), e3)
    same(SO3.bracket(e2, e3), e1)
    xi, eta = rng.standard_normal((2, 3))
    same(hat(SO3.bracket(xi, eta)), hat(xi) @ hat(eta) - hat(eta) @ hat(xi))


def test_so3_ad_star_is_mu_cross_xi():
    same(SO3.ad_star(e1, e2), -e3)
    xi, mu = rng.standard_normal((2, 3))
    same(SO3.ad_star(xi, mu), cross(mu, xi))


def test_so3_flow_turns_by_minus_sigma():
    """A quarter turn about e₃ takes e₁ to −e₂: flow(σ, μ) = exp(σ̂)ᵀ μ."""
    same(SO3.flow(np.pi / 2 * e3, e1), -e2)
    sigma, mu = rng.standard_normal((2, 3))
    same(SO3.flow(sigma, mu), scipy.linalg.expm(hat(sigma)).T @ mu)


def test_rigid_body_equation():
    """π' = π × ω, ω = I⁻¹π."""
    system, pi = cj.models.rigid_body(inertia=(4, 2, 1), alpha=None, pi0=(0.3, -0.5, 0.7))
    omega = np.array([0.3 / 4, -0.5 / 2, 0.7])
    same(system.vector_field(pi, 1.0, jnp.zeros(0)), cross(pi, omega))
    same(system.energy(pi), 0.5 * np.asarray(pi) @ omega)


# se(3)


def test_se3_bracket_is_the_commutator_of_matrices():
    xi, eta = rng.standard_normal((2, 6))
    (w, v), (h, u) = (xi[:3], xi[3:]), (eta[:3], eta[3:])
    same(SE3.bracket(xi, eta), np.concatenate([cross(w, h), cross(w, u) - cross(h, v)]))
    same(hat4(SE3.bracket(xi, eta)), hat4(xi) @ hat4(eta) - hat4(eta) @ hat4(xi))


def test_se3_ad_star():
    xi, mu = rng.standard_normal((2, 6))
    (w, v), (pi, gamma) = (xi[:3], xi[3:]), (mu[:3], mu[3:])
    same(SE3.ad_star(xi, mu), np.concatenate([cross(pi, w) + cross(gamma, v), cross(gamma, w)]))


def test_se3_flow_is_closed():
    """With exp ξ = (R, b): flow(ξ, μ) = (Rᵀ(π + γ×b), Rᵀγ)."""
    xi, mu = rng.standard_normal((2, 6))
    g = scipy.linalg.expm(hat4(xi))
    R, b, pi, gamma = g[:3, :3], g[:3, 3], mu[:3], mu[3:]
    same(SE3.flow(xi, mu), np.concatenate([R.T @ (pi + cross(gamma, b)), R.T @ gamma]))


def test_casimirs_and_their_names():
    mu = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    assert SO3.casimir_names == ("|μ|²",)
    same(SO3.casimirs(mu[:3]), [14.0])
    assert SE3.casimir_names == ("π·γ", "|γ|²")
    same(SE3.casimirs(mu), [32.0, 77.0])


def test_heavy_top_equations_of_motion():
    """The paper's (39): π' = π×ω + χ×γ, γ' = γ×ω; the noise adds (π×α, γ×α) ∘ dS."""
    chi, alpha, I = rng.standard_normal((3, 3))
    system, mu = cj.models.heavy_top(inertia=I**2, chi=chi, alpha=alpha, pi0=(0.1, 0.2, 0.3), gamma0=(0.6, 0.0, -0.8))
    pi, gamma = np.asarray(mu[:3]), np.asarray(mu[3:])
    omega = pi / I**2
    assert system.side == "left"
    rate = np.concatenate([cross(pi, omega) + cross(chi, gamma), cross(gamma, omega)])
    kick = np.concatenate([cross(pi, alpha), cross(gamma, alpha)])
    same(system.vector_field(mu, 1.0, jnp.zeros(1)), rate)
    same(system.vector_field(mu, 0.0, jnp.ones(1)), kick)
    same(system.vector_field(mu, 0.2, jnp.array([0.3])), 0.2 * rate + 0.3 * kick)
    same(system.energy(mu), 0.5 * pi @ omega - chi @ gamma)


def test_heavy_top_runs_forward():
    """A short run follows (39) and not its reverse."""
    system, mu = cj.models.heavy_top(alpha=None)
    after = cj.solve(system, mu, t1=1e-3, dt=1e-3, integrator=cj.EulerMaruyamaMK()).mu[-1]
    rate = np.asarray(system.vector_field(mu, 1.0, jnp.zeros(0)))
    np.testing.assert_allclose((after - mu) / 1e-3, rate, atol=1e-3)
    assert np.linalg.norm(rate) > 0.5


# Any algebra: sides, steps, the group, dexpinv, TMK.


def test_structure_constants_are_read_as_written():
    """[e_i, e_j] = Σ_k C[i, j, k] e_k, J(μ)_ij = Σ_k C[i, j, k] μ_k, ad*_ξ μ = −J(μ)ξ."""
    algebra = cj.StructureConstants(SO4)
    basis, mu, xi = np.eye(6), rng.standard_normal(6), rng.standard_normal(6)
    for i in range(6):
        for j in range(6):
            same(algebra.bracket(basis[i], basis[j]), SO4[i, j])
    J = SO4 @ mu
    same(algebra.poisson(mu), J)
    same(algebra.ad_star(xi, mu), -J @ xi)


def test_gradient_is_dual_to_the_pairing():
    """<δμ, ∂h/∂μ> = Dh(μ) δμ, on vectors and on matrices."""
    h = lambda m: jnp.sum(jnp.abs(m) ** 4) + jnp.real(m.ravel()[1])
    for algebra in SE3, cj.SU(3):

        @jax.jit
        def both(mu, delta, algebra=algebra):
            mu, delta = algebra.element(mu), algebra.element(delta)
            return algebra.pairing(delta, algebra.gradient(h, mu)), jax.jvp(h, (mu,), (delta,))[1]

        same(*both(*rng.standard_normal((2, algebra.dim))))


@sides
def test_side_is_the_sign_of_the_equation(side, s):
    """dμ = s ad*_ζ μ, ζ = ∂h dt + Σ ∂h_i dS^i."""
    beta, mu, dS = rng.standard_normal((2, 6)), rng.standard_normal(6), rng.standard_normal(3)
    noise = [cj.salt(beta), lambda m: m[0] * m[5]]
    system = cj.System(SE3, lambda m: 0.5 * m @ m, noise, side=side)
    zeta = mu * 0.1 + dS[:2] @ beta + dS[2] * (mu[5] * np.eye(6)[0] + mu[0] * np.eye(6)[5])
    same(system.zeta(mu, 0.1, dS), zeta)
    same(system.vector_field(mu, 0.1, dS), s * np.asarray(SE3.ad_star(zeta, mu)))
    assert system.sign == s


@sides
@pytest.mark.parametrize(
    "integrator", [cj.TMK(fallbacks=False), cj.EulerMaruyamaMK(), cj.HeunMK()], ids=lambda i: type(i).__name__
)
def test_a_step_is_the_flow_by_s_sigma(side, s, integrator):
    """With ∂h = β constant, σ = β dt exactly, so μ₁ = flow(sσ, μ₀)."""
    beta, mu = rng.standard_normal((2, 3))
    system = cj.System(SO3, lambda m: m @ beta, side=side)
    after, _, _ = jax.jit(integrator.step)(
        system, mu, 0.0, 0.3, Increment(jnp.zeros(0), jnp.inf), integrator.init(system, jnp.asarray(mu))
    )
    same(after, scipy.linalg.expm(s * 0.3 * hat(beta)).T @ mu)


def test_flow_is_the_coadjoint_action_of_the_group():
    """flow(σ, μ) = Ad*_{exp σ} μ with <Ad*_g μ, η> = <μ, Ad_g η>; Ad*_{gh} = Ad*_h Ad*_g."""
    a, b, mu = 0.7 * rng.standard_normal((3, 6))
    g, h = scipy.linalg.expm(hat4(a)), scipy.linalg.expm(hat4(b))

    def Ad_star(g):
        images = [g @ hat4(e) @ np.linalg.inv(g) for e in np.eye(6)]
        Ad = np.array([[m[2, 1], m[0, 2], m[1, 0], *m[:3, 3]] for m in images]).T
        return Ad.T @ mu

    same(SE3.flow(a, mu), Ad_star(g))
    same(SE3.flow(b, SE3.flow(a, mu)), Ad_star(g @ h))


def test_dexpinv_has_bernoulli_number_minus_one_half():
    """dexpinv_u(v) = v − ½[u, v] + (1/12)[u, [u, v]] + O(u⁴)."""
    u, v = rng.standard_normal((2, 6))
    u = 1e-3 * u
    for algebra in SE3, cj.StructureConstants(SO4):
        once = algebra.bracket(u, v)
        expansion = v - 0.5 * once + algebra.bracket(u, once) / 12
        np.testing.assert_allclose(jax.jit(algebra.dexpinv)(u, v), expansion, rtol=0, atol=1e-11)
        assert np.max(np.abs(0.5 * once)) > 1e-4  # so that the sign of the second term was tested


def test_sigma_moves_by_dexpinv_of_minus_s_sigma():
    """If σ' = dexpinv_{−sσ}(ζ), then μ = flow(sσ, μ₀) moves by μ' = s ad*_ζ μ."""
    for algebra in SO3, SE3, cj.StructureConstants(SO4):
        sigma, zeta, mu0 = 0.5 * rng.standard_normal((3, algebra.dim))

        @jax.jit
        def moves(s, sigma, zeta, mu0, algebra=algebra):
            rate = algebra.dexpinv(-s * sigma, zeta)
            mu, dmu = jax.jvp(lambda x: algebra.flow(s * x, mu0), (sigma,), (rate,))
            return dmu, s * algebra.ad_star(zeta, mu)

        for s in (1.0, -1.0):
            same(*moves(s, sigma, zeta, mu0))


class _Spy(eqx.Module):
    """Stands in for TMK's solver, and hands out what it was given to solve."""

    def __call__(self, system, f, start, near, **options):
        return f, start, near


@sides
def test_tmk_freezes_the_jacobian_at_zero(side, s):
    """Df(0) = I + s (dt/2) D²h J(μ) + s Σ (ΔS^i/2) D²h_i J(μ), which is the derivative of the residual."""
    A, B = rng.standard_normal((2, 6, 6))
    h = lambda m: 0.5 * m @ A @ A.T @ m + jnp.sum(m**4)
    h1 = lambda m: 0.5 * m @ (B + B.T) @ m
    system = cj.System(SE3, h, [h1, cj.salt(rng.standard_normal(6))], side=side)
    mu, dt, dS = rng.standard_normal(6), 0.1, np.array([0.2, -0.3])

    tmk = eqx.tree_at(lambda i: i.solve, cj.TMK(), _Spy())

    @jax.jit
    def jacobians(mu):
        f, start, _ = tmk.sigma(system, mu, 0.0, dt, Increment(dS, jnp.inf))
        return start(), jax.jacfwd(lambda x: f(x, 1.0)[0])(jnp.zeros(6)), f(jnp.zeros(6), 1.0)

    start, true, (residual, change) = jacobians(mu)
    same(start.at_zero, residual)
    same(change, np.zeros(6))
    J = np.asarray(jax.jit(SE3.poisson)(mu))
    hessian = A @ A.T + np.diag(12 * mu**2)
    formula = np.eye(6) + s * (dt / 2) * hessian @ J + s * (dS[0] / 2) * (B + B.T) @ J
    same(np.eye(6) - start.G, formula)
    same(true, formula)


@sides
def test_near_the_root_of_tmk(side, s):
    """The explicit start is within O(h⁴) of the root, its derivative of ζ(m) within O(h³) of that there."""
    A, B = rng.standard_normal((2, 6, 6))
    h = lambda m: 0.5 * m @ A @ A.T @ m + jnp.sum(m**4)
    h1 = lambda m: 0.5 * m @ (B + B.T) @ m
    system = cj.System(SE3, h, [h1, cj.salt(rng.standard_normal(6))], side=side)
    mu, dt, dS = 0.3 * rng.standard_normal(6), 0.1, jnp.array([0.2, -0.3])
    tmk = eqx.tree_at(lambda i: i.solve, cj.TMK(), _Spy())

    @jax.jit
    def sizes(h):
        f, _, near = tmk.sigma(system, mu, 0.0, h * dt, Increment(h * dS, jnp.inf))
        x, G, *_ = near()
        there = jax.jacfwd(lambda x: f(x, 1.0)[0])(x)
        return jnp.stack([jnp.linalg.norm(f(x, 1.0)[0]), jnp.linalg.norm(jnp.eye(6) - G - there)])

    orders = np.log2(sizes(0.02) / sizes(0.01))
    assert orders[0] > 3.8 and orders[1] > 2.8


@sides
def test_tmk_solves_its_equation(side, s):
    """σ = ∂h(m) dt + ∂h₁(m) ΔS, m = ½ (μ_n + flow(sσ, μ_n))."""
    beta, mu = rng.standard_normal((2, 3))
    system = cj.System(SO3, lambda m: 0.5 * m @ (m / jnp.array([4.0, 2.0, 1.0])), [cj.salt(beta)], side=side)
    dS = Increment(jnp.array([0.4]), jnp.inf)

    @jax.jit
    def step(mu):
        sigma, info, _ = cj.TMK(fallbacks=False).sigma(system, mu, 0.0, 0.1, dS)
        return sigma, info, system.zeta(0.5 * (mu + SO3.flow(s * sigma, mu)), 0.1, dS.S)

    sigma, info, zeta = step(mu)
    assert info.converged
    same(sigma, zeta)
    assert np.linalg.norm(sigma) > 0.1


REUSES = [(cj.TMK, 1e-14, "left"), (cj.TMK, 1e-4, "right"), (cj.DiscreteGradient, 1e-14, "right")]


@pytest.mark.parametrize(("method", "tol", "side"), REUSES)
def test_the_step_is_the_flow_of_its_sigma(method, tol, side):
    """What the equation knew of the end of the step is flow(sσ, μ) to round-off, whatever the tolerance; g is too."""
    system = cj.System(SE3, lambda m: 0.5 * m @ (m / jnp.arange(1.0, 7.0)), [cj.salt(np.ones(6))], side=side)
    integrator = method(tol=tol, drift_free=False, fallbacks=False)
    mu, tangent = rng.standard_normal((2, 6))
    dS = Increment(np.array([0.2]), np.inf)

    def by_sigma(mu):
        sigma, *_ = integrator.sigma(system, mu, 0.0, 0.1, dS)
        return SE3.flow(system.sign * sigma, mu)

    def by_step(mu):
        carry = integrator.init_group(system, mu, integrator.init(system, mu))
        moved, end, _ = integrator.step(system, mu, 0.0, 0.1, dS, carry)
        return moved, end.g

    @jax.jit
    def both(mu):
        moved, rate, g = jax.jvp(by_step, (mu,), (tangent,), has_aux=True)
        by_group = SE3.coadjoint(g if system.sign == 1 else SE3.group_inverse(g), mu)
        casimirs = SE3.casimirs(moved) - SE3.casimirs(mu)
        return (moved, rate), jax.jvp(by_sigma, (mu,), (tangent,)), casimirs, by_group

    (moved, rate), (there, expected), casimirs, by_group = both(mu)
    np.testing.assert_allclose(moved, there, rtol=0, atol=4e-15)
    np.testing.assert_allclose(rate, expected, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(casimirs, 0.0, rtol=0, atol=1e-14)
    np.testing.assert_allclose(by_group, there, rtol=0, atol=1e-14)
