"""Models against something independent: exact solutions, other formulations, dense sums."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.linalg import expm

import coadjoint as cj
from coadjoint.algebras import product
from coadjoint.models.su_spins import spin_matrices

RK4 = cj.RKMK("rk4")


def vector_field(system, mu):
    return np.asarray(eqx.filter_jit(system.vector_field)(np.asarray(mu), 1.0, np.zeros(system.n_noise)))


def test_gyrostat():
    """I₁ = I₂ and a rotor on the axis: π turns about it at the rate ω₃ − π₃/I₁; without rotors it is a rigid body."""
    A, C, spin, pi0 = 2.0, 1.0, 0.7, np.array([0.6, 0.0, 0.8])
    system, mu0 = cj.models.gyrostat((A, A, C), (0.0, 0.0, spin), pi0=pi0)
    sol = cj.solve(system, mu0, t1=5.0, dt=0.01, integrator=RK4)
    rate = (pi0[2] - spin) / C - pi0[2] / A
    exact = np.array([0.6 * np.cos(5 * rate), -0.6 * np.sin(5 * rate), 0.8])
    np.testing.assert_allclose(sol.mu[-1], exact, atol=1e-9)
    tensor = np.diag([4.0, 2.0, 1.0]) + 0.1
    quiet, body = cj.models.gyrostat(tensor, (0, 0, 0))[0], cj.models.rigid_body(tensor, alpha=None)[0]
    np.testing.assert_allclose(vector_field(quiet, pi0), vector_field(body, pi0), rtol=1e-14)


def test_gravity_gradient():
    """Euler's equations with the torque 3n² γ×Iγ; three Casimirs; the frequency of small pitch."""
    n, I = 0.9, np.array([3.0, 4.0, 2.0])
    system, mu0 = cj.models.gravity_gradient(I, n, start=[0, 4 * n, 0, 0, 0, 1, 0, 1, 0])
    assert np.max(np.abs(vector_field(system, mu0))) < 1e-15 and system.algebra.known_casimirs == 3
    pi, gamma, beta = np.random.default_rng(0).standard_normal((3, 3))
    omega = pi / I
    torque = 3 * n**2 * np.cross(gamma, I * gamma)
    expected = [np.cross(pi, omega) + torque, np.cross(gamma, omega - n * beta), np.cross(beta, omega)]
    np.testing.assert_allclose(vector_field(system, np.concatenate([pi, gamma, beta])), np.concatenate(expected))
    tilt = 1e-4
    frequency = n * np.sqrt(3 * (I[0] - I[2]) / I[1])
    start = np.array([0, 4 * n, 0, -np.sin(tilt), 0, np.cos(tilt), 0, 1, 0])
    sol = cj.solve(system, start, t1=np.pi / frequency, dt=np.pi / frequency / 400, integrator=RK4, backend="xla")
    np.testing.assert_allclose(sol.mu[-1, 3], np.sin(tilt), rtol=1e-6)  # half a period later, on the other side


def test_rigid_body_in_three_and_four_dimensions():
    """n = 3 is the rigid body; n = 4 has Manakov's integrals beside the Casimirs."""
    J = np.array([1.0, 2.0, 4.0])
    system, _ = cj.models.rigid_body_n(J)
    pi = np.array([0.3, -0.5, 0.8])
    body, _ = cj.models.rigid_body((J[1] + J[2], J[2] + J[0], J[0] + J[1]), alpha=None)

    def entries(v):  # M₁₂, M₁₃, M₂₃ of the matrix with Mx = v×x
        return np.array([-v[2], v[1], -v[0]])

    np.testing.assert_allclose(vector_field(system, entries(pi)), entries(vector_field(body, pi)), atol=1e-15)
    J = np.array([1.0, 2.0, 3.5, 5.0])
    system, M0 = cj.models.rigid_body_n(J)
    assert system.algebra.known_casimirs == 2
    sol = cj.solve(system, M0, t1=4.0, dt=0.02, integrator=RK4, backend="xla")

    def integral(m):
        M = np.zeros((4, 4))
        M[np.triu_indices(4, 1)] = m
        M = M - M.T
        return np.trace(np.linalg.matrix_power(M + 0.3 * np.diag(J**2), 4))

    values = [integral(m) for m in (sol.mu[0], sol.mu[-1])]
    assert abs(values[1] / values[0] - 1) < 1e-8 and np.max(np.abs(sol.mu[-1] - sol.mu[0])) > 0.1
    assert sol.casimir_errors().max() < 5e-15


def test_toda():
    """Against Newton's equations of the particles; eigenvalues stay, and b goes to them in order."""
    n, q0, p0 = 4, np.array([0.0, 0.5, 1.2, 1.5]), np.array([1.0, -0.5, 0.3, -0.2])
    system, mu0 = cj.models.toda(n, q0=q0, p0=p0)

    def newton(x):
        q, p = x[:n], x[n:]
        force = np.exp(q[:-1] - q[1:])
        return np.concatenate([p, np.r_[0.0, force] - np.r_[force, 0.0]])

    x, h = np.concatenate([q0, p0]), 0.005
    for _ in range(200):
        k1 = newton(x)
        k2 = newton(x + h / 2 * k1)
        k3 = newton(x + h / 2 * k2)
        x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + newton(x + h * k3))
    sol = cj.solve(system, mu0, t1=1.0, dt=0.01, integrator=RK4, backend="xla")
    np.testing.assert_allclose(sol.mu[-1, n - 1 :], -0.5 * x[n:], atol=1e-7)
    np.testing.assert_allclose(sol.mu[-1, : n - 1], 0.5 * np.exp(0.5 * (x[: n - 1] - x[1:n])), atol=1e-7)

    def eigenvalues(mu):
        return np.linalg.eigvalsh(np.diag(mu[n - 1 :]) + np.diag(mu[: n - 1], 1) + np.diag(mu[: n - 1], -1))

    np.testing.assert_allclose(eigenvalues(sol.mu[-1]), eigenvalues(sol.mu[0]), atol=1e-8)
    end = cj.solve(system, mu0, t1=40.0, dt=0.05, integrator=RK4, save_every=800, backend="xla").mu[-1]
    assert np.max(np.abs(end[: n - 1])) < 1e-3
    np.testing.assert_allclose(end[n - 1 :], eigenvalues(mu0)[::-1], atol=1e-3)


def test_three_wave():
    """The equations of the three amplitudes; h and the relations of Manley and Rowe."""
    kappa = k12, k23, k13 = np.array([1.0, 2.0, 4.0])
    system, W0 = cj.models.three_wave(kappa, (1.0 + 0.2j, 0.5, 0.1j))
    u, v, w = W0[0, 1], W0[1, 2], W0[0, 2]
    F = vector_field(system, W0)
    expected = (k13 - k23) * w * v.conj(), (k12 - k13) * u.conj() * w, (k23 - k12) * u * v
    np.testing.assert_allclose((F[0, 1], F[1, 2], F[0, 2]), expected, atol=1e-15)
    sol = cj.solve(system, W0, t1=3.0, dt=0.01, integrator=RK4, save_every=100)
    n = np.abs(np.asarray(sol.mu)[:, [0, 1, 0], [1, 2, 2]]) ** 2 / np.array([k13 - k23, k12 - k13, k23 - k12])
    for pair in (n[:, 0] - n[:, 1], n[:, 0] - n[:, 2]):
        np.testing.assert_allclose(pair, pair[0], atol=1e-8)
    assert np.max(np.abs(np.diff(n, axis=0))) > 0.01


def test_spin_lattice():
    """The energy against a sum over all pairs; one dimension is the chain; spin waves of the ferromagnet."""
    shape, J, d, B, g, R = (5, 6), 0.7, 0.3, np.array([0.1, -0.2, 0.4]), 0.35, 2.0
    D = np.array([[0.2, 0.0, 0.1], [0.0, -0.3, 0.2]])
    system, S0 = cj.models.spin_lattice(shape, coupling=J, anisotropy=d, field=B, dm=D, dipole=g, cutoff=R, key=4)
    S = np.asarray(S0).reshape(*shape, 3)
    h = 0.5 * d * np.sum(S[..., 2] ** 2) - np.sum(S @ B)
    sites = [(i, j) for i in range(5) for j in range(6)]
    for a in sites:
        for b in sites:
            r = (np.array(b) - a + np.array(shape) // 2) % shape - np.array(shape) // 2  # the nearest image
            x, y, length = S[a], S[b], np.linalg.norm(r)
            if 0 < length <= R and tuple(r) > (0, 0):
                unit = np.append(r, 0) / length
                h += g * (x @ y - 3 * (x @ unit) * (y @ unit)) / length**3
            if tuple(r) in ((1, 0), (0, 1)):
                h += -J * x @ y - D[tuple(r).index(1)] @ np.cross(x, y)
    np.testing.assert_allclose(system.energy(S0), h, rtol=1e-13)
    chain, S1 = cj.models.spin_chain(7, coupling=J, anisotropy=d, field=B, alpha=None)
    line, S2 = cj.models.spin_lattice(7, coupling=J, anisotropy=d, field=B)
    np.testing.assert_array_equal(S1, S2)
    np.testing.assert_allclose(line.drift(S2), chain.drift(S1), atol=1e-14)


def test_su_spins_of_two_levels():
    """They are ordinary spins of length ½."""
    shape, options = (3, 4), {"coupling": 0.7, "anisotropy": 0.0, "field": (0.1, -0.2, 0.4)}
    system, mu0 = cj.models.su_spins(shape, levels=2, key=3, **options)
    S = half_spins()
    spins = np.asarray(cj.models.expectations(mu0, S))
    np.testing.assert_allclose(np.linalg.norm(spins, axis=1), 0.5, rtol=1e-14)
    usual, S0 = cj.models.spin_lattice(shape, S0=spins.reshape(*shape, 3), **options)
    np.testing.assert_allclose(system.energy(mu0), usual.energy(S0), rtol=1e-13)
    run = {"t1": 1.0, "dt": 0.05, "integrator": RK4}
    got = cj.models.expectations(cj.solve(system, mu0, **run).mu, S)
    np.testing.assert_allclose(got.reshape(21, -1), cj.solve(usual, S0, **run).mu, atol=1e-6)


def half_spins():
    return np.array([[[0, 0.5], [0.5, 0]], [[0, -0.5j], [0.5j, 0]], [[0.5, 0], [0, -0.5]]])


def test_su_spins_are_quantum_spins_in_product_states():
    """Three spins 1 on a ring against the mean-field equation z' = iHz; the energy by the product state itself."""
    J, K, d, B = 0.8, -0.3, 0.9, np.array([0.2, -0.1, 0.5])
    Z = np.random.default_rng(5).standard_normal((3, 3, 2)) @ [1.0, 1j]
    system, mu0 = cj.models.su_spins(3, coupling=J, biquadratic=K, anisotropy=d, field=B, Z0=Z)
    r = np.sqrt(0.5)
    S = np.array([[[0, r, 0], [r, 0, r], [0, r, 0]], [[0, -1j * r, 0], [1j * r, 0, -1j * r], [0, 1j * r, 0]]])
    S = np.concatenate([S, np.diag([1, 0, -1])[None]])
    bond = sum(np.kron(s, s) for s in S)
    two = -J * bond - K * bond @ bond  # on a pair of spins
    one = 0.5 * d * S[2] @ S[2] - np.einsum("a,aij->ij", B, S)
    z0 = Z / np.linalg.norm(Z, axis=1, keepdims=True)

    def field(z, i):  # H_i: the pairs' energies with the neighbours' states put in
        H = one.astype(complex)
        for j in ((i + 1) % 3, (i - 1) % 3):
            H = H + np.einsum("iajb,a,b->ij", two.reshape(3, 3, 3, 3), z[j].conj(), z[j])
        return H

    pairs = [np.kron(z0[i], z0[(i + 1) % 3]) for i in range(3)]
    h = sum((x.conj() @ two @ x).real for x in pairs) + sum((z.conj() @ one @ z).real for z in z0)
    np.testing.assert_allclose(system.energy(mu0), h, rtol=1e-13)
    rhs = lambda t, y: (1j * np.stack([field(y.reshape(3, 3), i) @ y.reshape(3, 3)[i] for i in range(3)])).ravel()
    z = solve_ivp(rhs, (0, 1.0), z0.ravel(), rtol=1e-11, atol=1e-12).y[:, -1].reshape(3, 3)
    expected = np.einsum("ni,aij,nj->na", z.conj(), S, z).real
    sol = cj.solve(system, mu0, t1=1.0, dt=0.02, save_every=50, integrator=RK4)
    np.testing.assert_allclose(cj.models.expectations(sol.mu[-1], S), expected, atol=1e-6)
    assert sol.orbit_error().max() < 1e-14


def test_large_lattices_are_done_in_parts(monkeypatch):
    """What is mapped over many spins part by part is what is mapped over all at once, and so are derivatives."""
    algebra, (sigma, mu) = cj.SO3() ** 10, np.random.default_rng(0).standard_normal((2, 30))
    orbit_memory = algebra.orbit_memory(mu)

    def everything(sigma, mu, orbit_memory):
        turned = jax.jacfwd(lambda x: algebra.flow(x, mu))(sigma)
        return algebra.flow(sigma, mu), algebra.drift_free_flow(sigma, mu, orbit_memory), algebra.casimirs(mu), turned

    traced = lambda: jax.jit(lambda *args: everything(*args))(sigma, mu, orbit_memory)  # anew
    whole = traced()
    monkeypatch.setattr(product, "_MANY", 8)
    monkeypatch.setattr(product, "_TOGETHER", 4)  # two parts, and a rest
    assert "scan" in str(jax.make_jaxpr(algebra.flow)(sigma, mu))
    for a, b in zip(jax.tree.leaves(traced()), jax.tree.leaves(whole), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-15)


def test_spin_waves():
    """S^x ± iS^y of a small wave k on a ferromagnet in a field turn at the rate 2J Σ_a (1 − cos k_a) + B."""
    shape, J, B, eps = (4, 6), 0.8, 0.3, 1e-6
    system, _ = cj.models.spin_lattice(shape, coupling=J, field=(0, 0, B))
    k = 2 * np.pi * np.array([1 / 4, 2 / 6])
    phase = np.add.outer(k[0] * np.arange(4), k[1] * np.arange(6))
    S = np.stack([eps * np.cos(phase), eps * np.sin(phase), np.ones(shape)], axis=-1)
    F = vector_field(system, S.reshape(-1)).reshape(S.shape)
    rate = 2 * J * np.sum(1 - np.cos(k)) + B
    turned = (F[..., 0] + 1j * F[..., 1]) / (eps * np.exp(1j * phase))
    np.testing.assert_allclose(turned, 1j * rate, atol=1e-9)


def test_planar_body():
    """A disc goes round in circles: in the body p turns at the rate −(ω + Γ/m); lift does no work; two Casimirs."""
    m, I, circulation = 1.5, 0.8, 0.7
    system, mu0 = cj.models.planar_body(I, (m, m), circulation, start=(0.4, 1.0, 0.0))
    sol = cj.solve(system, mu0, t1=3.0, dt=0.01, integrator=RK4)
    angle = -(0.4 / I + circulation / m) * 3.0
    np.testing.assert_allclose(sol.mu[-1], [0.4, np.cos(angle), np.sin(angle), circulation], atol=1e-9)
    other, mu0 = cj.models.planar_body(circulation=circulation, start=(0.4, 1.0, 0.5))
    sol = cj.solve(other, mu0, t1=20.0, dt=0.1)
    mu = np.asarray(sol.mu)
    assert other.algebra.known_casimirs == 2 and sol.casimir_errors().max() < 5e-15
    second = mu[:, 1] ** 2 + mu[:, 2] ** 2 - 2 * circulation * mu[:, 0]
    np.testing.assert_allclose(second, second[0], rtol=1e-13)


# --------------------------------------------------------------------------------------------- central extension

SE2 = cj.models.planar_body()[0].algebra.algebra
AREA = np.array([[0, 0, 0], [0, 0, -1], [0, 1, 0]])


def test_central_extension():
    """The affine equation; a cocycle as a function; one that comes from a linear function is a shift."""
    algebra = cj.CentralExtension(SE2, lambda a, b: a[2] * b[1] - a[1] * b[2])
    assert algebra == cj.CentralExtension(SE2, AREA) and algebra.dim == 4
    rng = np.random.default_rng(0)
    xi, mu = rng.standard_normal((2, 4))
    fast, slow = jax.jit(lambda *args: (algebra.ad_star(*args), cj.LieAlgebra.ad_star(algebra, *args)))(xi, mu)
    np.testing.assert_allclose(fast, slow, atol=1e-15)
    shift = rng.standard_normal(3)  # Σ(ξ, η) = <λ, [ξ, η]>: ad*_ξ(μ + cλ), without an extension
    so3 = cj.CentralExtension(cj.SO3(), lambda a, b: shift @ jnp.cross(a, b))
    moved = np.asarray(jax.jit(so3.flow)(xi, mu))[:3] + mu[3] * shift
    np.testing.assert_allclose(moved, jax.jit(cj.SO3().flow)(xi[:3], mu[:3] + mu[3] * shift), atol=1e-14)


TURN = np.zeros((6, 6))
TURN[0, 3], TURN[3, 0] = 1.0, -1.0
BAD = {
    "none": (lambda: cj.CentralExtension(cj.SE3(), TURN), ValueError, "cocycle is none: "),
    "shape": (lambda: cj.CentralExtension(SE2, np.zeros((2, 2))), ValueError, r"cocycle must have shape \(3, 3\)"),
    "symmetric": (lambda: cj.CentralExtension(SE2, np.eye(3)), ValueError, "cocycle must be antisymmetric"),
    "words": (lambda: cj.CentralExtension(SE2, "area"), TypeError, "cocycle must be a matrix of real numbers"),
    "algebra": (lambda: cj.CentralExtension(3, AREA), TypeError, "algebra"),
    "shape of a lattice": (lambda: cj.models.spin_lattice((4, 4, 4, 4)), ValueError, "shape must be one to three"),
    "small lattice": (lambda: cj.models.spin_lattice((2, 4)), ValueError, "shape must be"),
    "cutoff": (lambda: cj.models.spin_lattice((4, 4), dipole=1.0), ValueError, "cutoff must be below half of the"),
    "dm": (lambda: cj.models.spin_lattice((4, 4), dm=[1, 2, 3]), ValueError, r"dm must have shape \(2, 3\)"),
    "masses": (lambda: cj.models.rigid_body_n((1, -2, 3)), ValueError, "masses must be 3 to 8 numbers above 0"),
    "levels": (lambda: cj.models.su_spins(4, levels=1), ValueError, "levels must be"),
    "Z0": (lambda: cj.models.su_spins(3, Z0=np.ones((3, 2))), ValueError, r"Z0 must have shape \(3, 3\)"),
    "no amplitude": (lambda: cj.models.su_spins(3, Z0=np.zeros((3, 3))), ValueError, "no amplitude may vanish"),
    "operators": (
        lambda: cj.models.expectations(cj.models.su_spins(3)[1], np.eye(4)),
        ValueError,
        "operators must be square matrices",
    ),
    "no operator": (
        lambda: cj.models.expectations(cj.models.su_spins(3)[1], np.eye(3, k=1)),
        ValueError,
        "operators must be Hermitian",
    ),
    "toda": (lambda: cj.models.toda(3, alpha=[1, 2]), ValueError, "alpha must be 5 numbers"),
    "rotors": (lambda: cj.models.gyrostat(rotors=[1, 2]), ValueError, "rotors must"),
    "amplitudes": (lambda: cj.models.three_wave(amplitudes=[1, 2]), ValueError, "amplitudes must be three"),
    "mass": (lambda: cj.models.planar_body(mass=(1, 0)), ValueError, "mass must be two numbers above 0"),
    "rate": (lambda: cj.models.gravity_gradient(rate=-1.0), ValueError, "rate must"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    make, kind, words = BAD[case]
    with pytest.raises(kind, match=words):
        make()


def test_side_of_spin_models_reverses_time():
    """A run forwards with side="left" and back with side="right" ends where it began; su_spins follow Schrödinger."""
    for make, options in (
        (cj.models.spin_chain, {"n": 4, "alpha": None}),
        (cj.models.spin_lattice, {"shape": (3, 3), "dm": ((0.1, 0.0, 0.2), (0.0, 0.3, 0.0))}),
        (cj.models.su_spins, {"shape": 3}),
    ):
        (left, start), (right, _) = (make(key=1, side=side, **options) for side in ("left", "right"))
        # Each run would select its gradient at its own initial state.
        run = partial(cj.solve, t1=1.0, dt=0.1, backend="xla", integrator=cj.TMK(remove_stabiliser=False))
        there = run(left, start).mu[-1]
        back = run(right, there).mu[-1]
        assert np.abs(there - start).max() > 0.1
        np.testing.assert_allclose(back, start, atol=1e-12)


def test_su_spins_on_the_right_follow_schroedinger():
    """z' = −iHz for three uncoupled spins 1 in a field with anisotropy: exact by matrix exponentials."""
    field, d, t1 = np.array([0.3, -0.2, 0.5]), 0.7, 2.0
    Z0 = np.random.default_rng(0).standard_normal((3, 3)) + 1j
    system, start = cj.models.su_spins(3, coupling=0.0, anisotropy=d, field=field, Z0=Z0, side="right")
    S = spin_matrices(3)
    H = 0.5 * d * S[2] @ S[2] - np.einsum("a,aij->ij", field, S)
    z = (Z0 / np.linalg.norm(Z0, axis=1, keepdims=True)) @ expm(-1j * H * t1).T
    exact = np.einsum("si,aij,sj->sa", z.conj(), S, z).real
    end = cj.solve(system, start, t1=t1, dt=0.05, integrator=cj.RKMK("rk4"), backend="xla").mu[-1]
    np.testing.assert_allclose(cj.models.expectations(end, S), exact, atol=1e-5)


def test_an_unknown_argument_is_named_with_the_known_ones():
    with pytest.raises(TypeError, match=r"sine_euler\(\): .*'rotation'. Its arguments are n, noise_modes, .*screening"):
        cj.models.sine_euler(17, rotation=0.5)
