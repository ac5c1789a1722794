"""Layers of a quasi-geostrophic fluid: linear theory, limits with one layer, energy, damping, noise."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import expm

import coadjoint as cj
from coadjoint.fluids import Sphere, Torus, index, random_field

N = 9
CASES = {
    "two": {"layers": 2, "deformation_radius": 0.15},
    "unequal depths": {"layers": 2, "depths": (1.0, 3.0), "coupling": 20.0, "screening": 2.0},
    "three": {"layers": 3, "depths": (1.0, 2.0, 1.0), "coupling": (30.0, 10.0)},
}
SHEAR = (0.5, -0.4, -0.6)


def rates(kind, l, m, Omega, U):
    """−im(U − G M⁻¹), M = l(l + 1) + K, G = 2Ω + 2U + KU, of layers that are coupled by K: Phillips' problem."""
    L, d = kind["layers"], np.array(kind.get("depths", np.ones(kind["layers"])))
    d = d / d.mean()
    G = kind["coupling"] if "coupling" in kind else 0.5 / kind["deformation_radius"] ** 2
    G = np.broadcast_to(G, L - 1)
    K = np.zeros((L, L))
    for i in range(L - 1):
        K[i, i], K[i, i + 1] = K[i, i] + G[i] / d[i], -G[i] / d[i]
        K[i + 1, i + 1], K[i + 1, i] = K[i + 1, i + 1] + G[i] / d[i + 1], -G[i] / d[i + 1]
    K[0, 0] += kind.get("screening", 0.0) / d[0]
    gradient = 2 * Omega + 2 * np.array(U) + K @ np.array(U)
    return -1j * m * (np.diag(U) - gradient[:, None] * np.linalg.inv(l * (l + 1) * np.eye(L) + K))


@pytest.mark.parametrize("case", CASES)
def test_baroclinic_instability_of_a_solid_body_shear(case):
    """Every degree obeys linear theory at every n: the derivative of the vector field to round-off."""
    kind, l, m, Omega = CASES[case], 4, 3, 0.5
    L = kind["layers"]
    U = SHEAR[:L]
    system, mu0 = cj.models.multilayer_qg(N, **kind, rotation=Omega, shear=U, omega=np.zeros((L, N * N)))
    flow = cj.fluids.of(system)
    field = eqx.filter_jit(lambda mu: system.vector_field(mu, 1.0, jnp.zeros(0)))
    assert np.abs(field(mu0)).max() < 1e-13
    modes = []
    for i in range(L):
        for order in (m, -m):
            one = np.zeros((L, N * N))
            one[i, index(l, order)] = 1.0
            modes.append(flow.algebra.from_matrices(flow.surface.matrix(one)))
    B = np.stack(modes)
    moved = np.stack([jax.jvp(field, (mu0,), (b,))[1] for b in B])
    found = moved @ B.T / np.sum(B * B, axis=1)
    np.testing.assert_allclose(moved, found @ B, rtol=0, atol=1e-11)  # nothing leaves the degree and the order
    wanted = np.linalg.eigvals(rates(kind, l, m, Omega, U))
    wanted = np.concatenate([wanted, np.conj(wanted)])
    assert wanted.real.max() > 0.1
    for x in np.linalg.eigvals(found):
        assert np.abs(x - wanted).min() < 1e-9


@pytest.mark.slow
def test_a_disturbance_grows_at_the_rate_of_theory():
    l, m, dt = 4, 3, 0.02
    omega = np.zeros((2, N * N))
    omega[0, index(l, m)], omega[1, index(l, -m)] = 1e-6, 5e-7
    kind = CASES["two"]
    system, mu0 = cj.models.multilayer_qg(N, **kind, rotation=0.5, shear=(0.5, -0.5), omega=omega)
    flow = cj.fluids.of(system)
    sol = cj.solve(system, mu0, t1=7.0, dt=dt, save_every=25)
    psi = flow.stream_coefficients(sol.mu)[..., [index(l, m), index(l, -m)]]
    growth = np.diff(np.log(np.linalg.norm(psi, axis=(1, 2)))) / (25 * dt)
    theory = np.linalg.eigvals(rates(kind, l, m, 0.5, (0.5, -0.5))).real.max()
    np.testing.assert_allclose(growth[-2:], theory, rtol=3e-4)  # dt²
    assert sol.orbit_error().max() < 1e-14
    Q = jax.vmap(flow.potential_enstrophy)(sol.mu)
    np.testing.assert_allclose(Q, np.broadcast_to(Q[0], Q.shape), rtol=1e-14)


def test_one_layer_and_equal_layers_are_those_of_the_barotropic_model():
    omega = np.asarray(random_field(Sphere(N), 1))
    system, W0 = cj.models.euler_sphere(N, omega=omega, rotation=0.7)
    moved = system.vector_field(W0, 1.0, jnp.zeros(0))
    for layers in (1, 2):
        many, mu0 = cj.models.multilayer_qg(N, layers, omega=np.stack([omega] * layers), rotation=0.7)
        found = many.algebra.to_matrices(many.vector_field(mu0, 1.0, jnp.zeros(0)))
        np.testing.assert_allclose(found, np.stack([moved] * layers), rtol=0, atol=1e-12)


@pytest.mark.parametrize("surface", [Sphere(N), Torus(N)], ids=repr)
def test_the_energy_is_that_of_the_fields_and_its_gradient_the_stream_function(surface):
    """Kinetic and potential energy by quadrature on a grid, and h by automatic differentiation."""
    name = "sphere" if isinstance(surface, Sphere) else "torus"
    kind = CASES["unequal depths"]
    system, mu = cj.models.multilayer_qg(N, **kind, surface=name, topography=random_field(surface, 5))
    flow = cj.fluids.of(system)
    np.testing.assert_allclose(jax.grad(flow.hamiltonian)(mu), flow.stream(mu), rtol=0, atol=1e-12)
    psi = np.asarray(flow.stream_coefficients(mu))
    d, G, F0 = np.array([0.5, 1.5]), 20.0, 2.0
    mean = lambda c: surface.weight * np.sum(np.abs(c) ** 2)
    kinetic = [mean(np.sqrt(surface.eigenvalues) * p) for p in psi]
    energy = 0.25 * (d @ kinetic + G * mean(psi[0] - psi[1]) + F0 * mean(psi[0]))
    np.testing.assert_allclose(flow.energy(mu), energy, rtol=1e-12)
    np.testing.assert_allclose(flow.spectrum(mu).sum(), energy, rtol=1e-12)
    np.testing.assert_allclose(flow.kinetic_energy(mu), 0.5 * np.array(kinetic), rtol=1e-12)
    u = np.stack(flow.velocity(mu, 4 * N))
    latitude = surface.grid(4 * N)[0]
    weight = np.cos(latitude)[:, None] if name == "sphere" else np.ones((4 * N, 1))
    square = np.sum(u**2, axis=0) * weight
    np.testing.assert_allclose(0.5 * square.mean((1, 2)) / weight.mean(), flow.kinetic_energy(mu), rtol=2e-3)
    assert np.abs(flow.flux(mu)[-1]) < 1e-13 * energy


def test_damping_relaxes_to_the_base_state_as_a_matrix_exponential_does():
    l, dt, drag, nu, f = 3, 0.3, (0.2, 1.5), 0.01, 0.4
    kind = CASES["unequal depths"]
    omega = np.zeros((2, N * N))
    omega[:, index(l, 2)] = 1.0, -0.5
    stirring = np.zeros((2, N * N))
    stirring[0, index(l, 2)] = f
    options = {"shear": (0.5, 0.2), "drag": drag, "viscosity": nu, "stirring": stirring, "rotation": 1.0}
    system, mu = cj.models.multilayer_qg(N, **kind, omega=omega, **options)
    flow = cj.fluids.of(system)
    base = flow.state(np.zeros((2, N * N)))
    q = lambda mu: np.asarray(flow.surface.coefficients(flow.vortical(mu) - flow.vortical(base)))[:, index(l, 2)]
    K, lam = flow.stratification.matrix(), l * (l + 1)
    A = -np.diag(np.array(drag) + nu * lam) * lam @ np.linalg.inv(lam * np.eye(2) + K)
    both = expm(dt * np.block([[A, np.array([[f], [0.0]])], [np.zeros((1, 3))]]))
    np.testing.assert_allclose(q(system.dissipate(mu, dt)), both[:2, :2] @ q(mu) + both[:2, 2], rtol=1e-12)
    still, base = cj.models.multilayer_qg(N, **kind, omega=0 * omega, **(options | {"stirring": None}))
    np.testing.assert_allclose(still.dissipate(base, dt), base, rtol=0, atol=1e-13)


def test_noise_of_layers_is_their_own_or_in_common():
    noise = {"noise_shells": (1, 2), "amplitude": 0.2}
    one = cj.models.euler_sphere(N, **noise)[0]
    draw = np.random.default_rng(0).normal(size=(3, 8))
    beta = np.stack([one.noise(None, s) for s in draw])
    A = np.array([[1.0, 0.5, 0.0], [0.2, 0.0, 1.0]])
    for given, loadings in (("independent", np.eye(2)), ("common", np.ones((2, 1))), (A, A)):
        system, mu = cj.models.multilayer_qg(N, noise_layers=given, **noise)
        k = loadings.shape[1]
        assert system.n_noise == 8 * k
        found = system.algebra.to_matrices(system.noise(mu, draw[:k].ravel()))
        np.testing.assert_allclose(found, np.tensordot(loadings, beta[:k], 1), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"surface": "torus", "rotation": 1.0}, "not periodic"),
        ({"surface": "torus", "shear": (1.0, 0.0)}, "Pass a sheared flow as base"),
        ({"depths": (1.0, -1.0)}, "depths must be positive"),
        ({"coupling": (1.0, 2.0)}, "coupling must be 1 numbers"),
        ({"omega": np.zeros((3, 81))}, "omega must be 2 fields"),
        ({"noise_layers": np.eye(3), "noise_shells": (1, 1)}, "noise_layers must be"),
        ({"drag": (0.1, -0.1)}, "drag must not be below 0"),
    ],
)
def test_wrong_arguments_are_named(options, match):
    with pytest.raises(ValueError, match=match):
        cj.models.multilayer_qg(N, **options)
    flow = cj.fluids.of(cj.models.multilayer_qg(N)[0])
    with pytest.raises(ValueError, match="the state must have shape"):
        flow.vorticity(np.zeros(3))


@pytest.mark.slow
def test_a_sheared_base_flow_on_the_torus_is_steady_and_kept():
    """A jet in the upper layer, with drag: without a disturbance nothing moves."""
    torus = Torus(17)
    base = np.stack([cj.fluids.jet(torus, width=0.7), np.zeros((17, 17), complex)])
    options = {"surface": "torus", "base": base, "drag": (0.0, 0.5), "omega": np.zeros_like(base)}
    system, mu = cj.models.multilayer_qg(17, deformation_radius=0.5, **options)
    sol = cj.solve(system, mu, t1=1.0, dt=0.05)
    np.testing.assert_allclose(sol.mu[-1], mu, rtol=0, atol=1e-12)
