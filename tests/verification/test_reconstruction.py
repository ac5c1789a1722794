"""The group element beside the momentum: μ_n = Ad*_{g_n} μ_0 (left), Ad*_{g_n⁻¹} μ_0 (right)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coadjoint as cj


def right_invariant_top():
    """The Hamiltonian and the noise of the heavy top, but right-invariant."""
    system, mu0 = cj.models.heavy_top()

    def h(mu):
        return 0.5 * mu[:3] @ (mu[:3] / jnp.array([4.0, 2.0, 1.0])) - mu[5]

    return cj.System(cj.SE3(), h, list(system.noises), side="right"), mu0


CASES = {
    "rigid body": cj.models.rigid_body,
    "heavy top": cj.models.heavy_top,
    "right-invariant top": right_invariant_top,
    "sine-Euler": cj.models.sine_euler,
}


def defect(sol) -> float:
    algebra, left = sol.system.algebra, sol.system.side == "left"

    def moved(g):
        return algebra.coadjoint(g if left else algebra.group_inverse(g), jnp.asarray(sol.mu[0]))

    return float(np.abs(np.asarray(jax.vmap(moved)(jnp.asarray(sol.g))) - sol.mu).max())


@pytest.mark.parametrize("name", CASES)
def test_reconstruction_over_1e5_steps(name):
    """To 1e-12 over 10⁵ steps; group elements stay orthogonal (unitary) to 1e-14."""
    system, mu0 = CASES[name]()
    sol = cj.solve(system, mu0, t1=1000.0, dt=0.01, key=0, save_every=1000, group=True)
    assert defect(sol) < 1e-12
    R = np.asarray(sol.g)[..., :3, :3]
    assert np.abs(R @ np.conj(np.swapaxes(R, -1, -2)) - np.eye(3)).max() < 1e-14
    assert np.abs(sol.g[-1] - sol.g[0]).max() > 0.1, "a group element that stays at 1 shows nothing"


def test_reconstruction_without_a_closed_form():
    """An algebra known by its structure constants is reconstructed in its adjoint representation."""
    C = np.zeros((3, 3, 3))
    for i, j, k in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
        C[i, j, k], C[j, i, k] = 1, -1
    system = cj.System(cj.StructureConstants(C), lambda mu: 0.5 * mu @ (mu / jnp.array([1.0, 2.0, 3.0])))
    sol = cj.solve(system, [1.0, 0.5, 0.2], t1=10.0, dt=0.01, group=True)
    assert defect(sol) < 1e-12


def test_attitude_is_the_angular_velocity_integrated():
    """Left-invariant: R' = R ω̂ with ω = I⁻¹π, to the order of the method; quaternions turn the same vectors."""
    inertia = np.array([4.0, 2.0, 1.0])
    system, mu0 = cj.models.rigid_body(alpha=None)
    dt = 1e-3
    sol = cj.solve(system, mu0, t1=1.0, dt=dt, group=True)
    R = sol.attitude()
    rate = np.einsum("nji,njk->nik", R[1:-1], (R[2:] - R[:-2]) / (2 * dt))
    omega = (np.asarray(sol.mu) / inertia)[1:-1]
    np.testing.assert_allclose(np.stack([rate[:, 2, 1], rate[:, 0, 2], rate[:, 1, 0]], axis=1), omega, atol=1e-6)
    q = sol.attitude("quaternion")
    assert np.abs(np.linalg.norm(q, axis=1) - 1).max() < 1e-14
    assert np.abs(np.diff(q, axis=0)).max() < 2e-3, "a quaternion jumps"
    w, v, x = q[:, :1], q[:, 1:], np.array([0.3, -0.7, 0.2])
    turned = x + 2 * np.cross(v, np.cross(v, x) + w * x)
    np.testing.assert_allclose(turned, R @ x, atol=1e-14)


def test_quaternions_at_half_turns():
    """Where w passes through 0 and each of the four components is the largest once."""
    from coadjoint.numerics.quaternions import quaternions

    for axis in np.eye(3):
        angles = np.linspace(0, 4 * np.pi, 400)
        hat = np.cross(axis, np.eye(3)).T
        R = np.eye(3) + np.sin(angles)[:, None, None] * hat + (1 - np.cos(angles))[:, None, None] * hat @ hat
        q = quaternions(R)
        np.testing.assert_allclose(q[:, 0], np.cos(angles / 2), atol=1e-14)
        np.testing.assert_allclose(q[:, 1:], np.sin(angles / 2)[:, None] * axis, atol=1e-14)


def test_what_cannot_be_reconstructed_says_so():
    """A classical method has no group element; su(n) has no attitude; without group=True there is nothing."""
    system, mu0 = cj.models.rigid_body()
    with pytest.raises(TypeError, match="group=True needs a method"):
        cj.solve(system, mu0, t1=0.1, dt=0.1, key=0, group=True, integrator=cj.Heun())
    with pytest.raises(AttributeError, match="group=True"):
        cj.solve(system, mu0, t1=0.1, dt=0.1, key=0).attitude()
    system, W0 = cj.models.sine_euler(3)
    with pytest.raises(TypeError, match="no attitude"):
        cj.solve(system, W0, t1=0.5, dt=0.5, key=0, group=True).attitude()
