"""Heat baths against quadratures of exp(−h/T) on the orbits, with standard errors; Casimirs over a million steps."""

import jax.numpy as jnp
import numpy as np
import pytest

import coadjoint as cj

I = jnp.array([1.0, 2.0, 3.0])


def means(system, mu0, save, *, dt, t1, members, burn, key=1, every=10, **options):
    """Means over members and times of what is saved, and their standard errors, from the spread of the members."""
    ens = cj.ensemble(
        system, mu0, members=members, t1=t1, dt=dt, key=key, save_every=every, save=save,
        **({"integrator": cj.NinomiyaVictoir()} | options),
    )  # fmt: skip
    rows = np.asarray(ens.saved)[:, round(burn / (dt * every)) :].mean(axis=1)
    return rows.mean(axis=0), rows.std(axis=0, ddof=1) / np.sqrt(members)


def agree(got, error, exact, relative=1e-3, scale=0.0):
    """Within four standard errors, which are small beside what is measured, or beside its scale if that is larger.

    An energy, whose zero means nothing, has the scale T.
    """
    exact = np.asarray(exact)
    print(got, error, exact)
    assert np.all(error < relative * np.maximum(np.abs(exact), scale)), (got, error, exact)
    assert np.all(np.abs(got - exact) < 4 * error), (got, error, exact)


def test_rigid_body_small():
    """I = (1, 2, 3), |Π| = 1, 2θ/σ² = 10: ⟨h⟩ and ⟨Πᵢ²⟩, at a hundredth of the work of the study below."""
    bath = cj.heat_bath(cj.System(cj.SO3(), lambda m: 0.5 * m @ (m / I)), temperature=0.1, friction=1.0)
    save = lambda m: jnp.append(m**2, 0.5 * m @ (m / I))
    options = {"dt": 0.1, "t1": 120.0, "members": 512, "burn": 20.0}
    got, error = means(bath, [0.0, 0.6, 0.8], save, integrator=cj.HeunMK(), **options)
    agree(got, error, [0.151147, 0.346978, 0.501874, 0.245964], 1e-2)


@pytest.mark.slow
def test_rigid_body():
    """The same to 1e-3 and better."""
    bath = cj.heat_bath(cj.System(cj.SO3(), lambda m: 0.5 * m @ (m / I)), temperature=0.1, friction=1.0)
    save = lambda m: jnp.append(m**2, 0.5 * m @ (m / I))
    got, error = means(bath, [0.0, 0.6, 0.8], save, dt=0.1, t1=1020.0, members=8192, burn=20.0, every=20)
    agree(got, error, [0.151147, 0.346978, 0.501874, 0.245964])


@pytest.mark.slow
def test_spin_in_a_field():
    """coth x − 1/x at x = 1, 2, 5."""
    bath = cj.heat_bath(cj.System(cj.SO3(), lambda m: -m[2]), temperature=1.0, friction=1.0)
    for x, exact in ((1.0, 0.313035), (2.0, 0.537315), (5.0, 0.800091)):
        params = {"temperature": np.full(8192, 1 / x), "friction": 1.0}
        got, error = means(
            bath, [0.0, 0.6, 0.8], lambda m: m[2], dt=0.1 / x, t1=820.0, members=8192, burn=20.0, params=params
        )
        agree(got, error, exact)


def heavy_top_means(inertia, chi, c, T):
    """⟨h⟩, ⟨γ₃⟩, ⟨γ₁²⟩ on the orbit |γ| = 1, π·γ = c, whose Liouville measure is dγ d²π⊥: Gaussian in π given γ.

    The least kinetic energy given γ is ½c²/(γ·Iγ); det of the quadratic form on γ⊥ is γ·Iγ/det I; two degrees of
    freedom have T of energy.
    """
    z, w = np.polynomial.legendre.leggauss(80)
    phi = 2 * np.pi * np.arange(160) / 160
    rho = np.sqrt(1 - z**2)[:, None]
    gamma = np.stack(np.broadcast_arrays(rho * np.cos(phi), rho * np.sin(phi), z[:, None]), axis=-1)
    spread = gamma**2 @ inertia
    lowest = 0.5 * c**2 / spread - gamma @ chi
    p = w[:, None] * np.exp(-lowest / T) / np.sqrt(spread)
    values = np.stack([T + lowest, gamma[..., 2], gamma[..., 0] ** 2])
    return np.sum(p * values, axis=(1, 2)) / p.sum()


@pytest.mark.slow
def test_heavy_top():
    """A non-compact orbit of se(3)."""
    inertia, chi, T = np.array([4.0, 2.0, 1.0]), np.array([0.3, 0.0, 1.0]), 0.5
    start = np.array([0.3, -0.4, 0.7, 0.48, 0.36, 0.8])
    exact = heavy_top_means(inertia, chi, start[:3] @ start[3:], T)
    system, _ = cj.models.heavy_top(inertia=inertia, chi=chi, alpha=None)

    def save(m):
        h = 0.5 * m[:3] @ (m[:3] / inertia) - m[3:] @ chi
        return jnp.stack([h, m[5], m[3] ** 2])

    bath = cj.heat_bath(system, temperature=T, friction=0.5)
    got, error = means(bath, start, save, dt=0.05, t1=1020.0, members=8192, burn=20.0, every=40)
    agree(got, error, exact, scale=np.array([T, 0.0, 0.0]))


@pytest.mark.slow
def test_su3():
    """Pure states of su(3), the orbit CP²: the populations in any basis are uniform on the simplex where h = 0."""
    rng = np.random.default_rng(7)
    U = np.linalg.qr(rng.standard_normal((3, 3)) + 1j * rng.standard_normal((3, 3)))[0]
    a, b, T = np.array([0.0, 0.7, -0.4]), np.array([0.5, -0.8, 0.3]), 0.4

    def populations(W):  # of the pure state in the basis U; W = −i(|z><z| − 1/3)
        return jnp.real(jnp.diagonal(U.conj().T @ (1j * W) @ U)) + 1 / 3

    def h(W):
        p = populations(W)
        return a @ p + b @ p**2

    x, w = np.polynomial.legendre.leggauss(60)
    u, v = np.meshgrid(0.5 * (1 + x), 0.5 * (1 + x), indexing="ij")
    p = np.stack([u, (1 - u) * v, (1 - u) * (1 - v)], axis=-1)
    energy = p @ a + p**2 @ b
    weight = np.outer(w, w) * (1 - u) * np.exp(-energy / T)
    exact = np.array([np.sum(weight * f) for f in (energy, p[..., 0], p[..., 1])]) / weight.sum()
    start = -1j * (np.outer(PURE, PURE.conj()) - np.eye(3) / 3)
    bath = cj.heat_bath(cj.System(cj.SU(3), h), temperature=T, friction=1.0)
    save = lambda W: jnp.append(h(W), populations(W)[:2])
    got, error = means(bath, start, save, dt=0.05, t1=410.0, members=2048, burn=10.0, every=20)
    agree(got, error, exact, scale=np.array([T, 0.0, 0.0]))


@pytest.mark.slow
def test_two_spins():
    """h = −S₁·S₂ at kT = 0.1: ⟨E⟩ = −(coth 10 − 1/10)."""
    pair = cj.System(cj.SO3() ** 2, lambda m: -m[:3] @ m[3:])
    bath = cj.heat_bath(pair, temperature=0.1, friction=1.0)
    start = [0.0, 0.6, 0.8, 0.6, 0.0, 0.8]
    got, error = means(bath, start, lambda m: -m[:3] @ m[3:], dt=0.05, t1=220.0, members=2048, burn=20.0)
    agree(got, error, -(1 / np.tanh(10.0) - 0.1))


def ring_energy(n, K):
    """⟨E⟩/nJ of the classical Heisenberg ring at K = J/T: Z = Σ_l (2l+1) λ_lⁿ, λ_l = ½∫ P_l(x) e^{Kx} dx (Fisher)."""
    x, w = np.polynomial.legendre.leggauss(60)
    P = np.stack([np.polynomial.legendre.Legendre.basis(k)(x) for k in range(20)])
    lam, slope = 0.5 * P @ (w * np.exp(K * x)), 0.5 * P @ (w * x * np.exp(K * x))
    weights = (2 * np.arange(20) + 1) * (lam / lam[0]) ** n
    return -np.sum(weights * slope / lam) / np.sum(weights)


@pytest.mark.slow
def test_chain_of_100():
    """A ring of 100 spins against its transfer matrix, at T = 0.5 J."""
    system, S0 = cj.models.spin_chain(100, alpha=None)
    bath = cj.heat_bath(system, temperature=0.5, friction=1.0)

    def energy(m):
        S = m.reshape(100, 3)
        return -jnp.sum(S * jnp.roll(S, 1, axis=0)) / 100

    got, error = means(bath, S0, energy, dt=0.025, t1=100.0, members=128, burn=20.0, every=20)
    agree(got, error, ring_energy(100, 2.0))
    assert abs(ring_energy(10**6, 2.0) + (1 / np.tanh(2.0) - 0.5)) < 1e-12


PURE = np.array([0.6, 0.48j, 0.64])
BATHS = {
    "so(3)": (cj.SO3(), lambda m: 0.5 * m @ (m / I), np.array([0.36, 0.48, 0.8])),
    "se(3)": (cj.SE3(), lambda m: 0.5 * m[:3] @ (m[:3] / I) - m[5], np.array([0.3, -0.4, 0.7, 0.48, 0.36, 0.8])),
    "so(3)²": (cj.SO3() ** 2, lambda m: -m[:3] @ m[3:], np.array([0.36, 0.48, 0.8, 0.6, 0.0, 0.8])),
    "su(3)": (
        cj.SU(3),
        lambda W: W[0, 0].imag * W[1, 1].imag + 0.3 * W[0, 1].real,
        -1j * (np.outer(PURE, PURE.conj()) - np.eye(3) / 3),
    ),
}
METHODS = cj.TMK(), cj.HeunMK(), cj.NinomiyaVictoir(), cj.BathSplitting(), cj.TMKWeak()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["friction", "heat", "heat by two fields"])
@pytest.mark.parametrize("name", BATHS)
@pytest.mark.parametrize("method", METHODS, ids=lambda m: type(m).__name__)
def test_casimirs_over_a_million_steps(name, kind, method):
    """To 5e-15, with every bath."""
    algebra, h, start = BATHS[name]
    system = cj.System(algebra, h)
    bath, options = cj.double_bracket(system, friction=0.01), {}
    if kind != "friction":
        fields = None if kind == "heat" else jnp.stack([algebra.element(e) for e in jnp.eye(algebra.dim)[:2]])
        bath, options = cj.heat_bath(system, temperature=0.2, friction=0.5, fields=fields), {"key": 2}
    sol = cj.solve(bath, start, t1=2e4, dt=0.02, save_every=10_000, integrator=method, **options)
    assert sol.casimir_errors().max() < 5e-15
