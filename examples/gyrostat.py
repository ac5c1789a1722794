"""A satellite with a spinning rotor and its attitude: a Hamiltonian of your own on so(3).

The body has momentum Π in its own frame. The rotor contributes the constant part l:

    h(Π) = ½ (Π − l)·I⁻¹(Π − l),   Ω = ∂h/∂Π = I⁻¹(Π − l),   dΠ = Π × (Ω dt + α ∘ dW).

The attitude R maps the body frame to space. The momentum in space, R Π, is constant, which tests both.
"""

import jax.numpy as jnp
import numpy as np

import coadjoint as cj

INERTIA = jnp.array([1.2, 1.0, 0.8])
ROTOR = jnp.array([0.0, 0.6, 0.0])  # about the middle axis, which it makes stable


def gyrostat(alpha: float) -> cj.System:
    """The system, with torques of size α about all axes."""
    return cj.System(
        cj.SO3(),
        lambda Pi, rotor: 0.5 * jnp.sum((Pi - rotor) ** 2 / INERTIA),
        [cj.salt(alpha * jnp.eye(3))] if alpha else [],
        params=ROTOR,
    )


def tumbling(rotor: bool) -> float:
    """The largest distance of a disturbed rotation from the middle axis, as 1 − cos of the angle."""
    system = gyrostat(0.0)
    system = system if rotor else cj.System(cj.SO3(), lambda Pi: 0.5 * jnp.sum(Pi**2 / INERTIA))
    sol = cj.solve(system, jnp.array([1e-3, 1.0, 0.0]), t1=200.0, dt=0.05, save_every=10)
    return float(np.max(1.0 - sol.mu[:, 1] / np.linalg.norm(sol.mu, axis=1)))


def noisy() -> cj.Solution:
    """A noisy flight with its attitude."""
    return cj.solve(gyrostat(0.05), jnp.array([0.3, 1.0, -0.2]), t1=50.0, dt=0.02, key=1, save_every=25, group=True)


if __name__ == "__main__":
    print(f"1 − cos of the angle to the middle axis: {tumbling(False):.3f}, with the rotor {tumbling(True):.1e}")
    sol = noisy()
    space = np.einsum("tij,tj->ti", sol.attitude(), sol.mu)
    print(f"momentum in space moves by {np.abs(space - space[0]).max():.1e}, |Π| by {sol.casimir_errors().max():.1e}")
    print("attitude at the end, as a quaternion:", np.round(sol.attitude("quaternion")[-1], 4))
