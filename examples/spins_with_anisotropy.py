"""A ring of spins with cubic anisotropy: one so(3) per spin, any energy.

    h = −J Σ S_i·S_{i+1} + K Σ ((S_i^x)²(S_i^y)² + (S_i^y)²(S_i^z)² + (S_i^z)²(S_i^x)²)

K > 0 makes the axes of the cube easy. Every |S_i| is a Casimir. With friction that stays on the orbit (a double
bracket) the spins relax to an easy axis and conserve their lengths.
"""

import jax.numpy as jnp
import numpy as np

import coadjoint as cj

SPINS = 8


def ring(J: float = 1.0, K: float = 2.0) -> cj.System:
    """The system; J and K are params."""

    def h(mu, p):
        S = mu.reshape(SPINS, 3)
        x, y, z = (S**2).T
        return -p["J"] * jnp.sum(S * jnp.roll(S, -1, axis=0)) + p["K"] * jnp.sum(x * y + y * z + z * x)

    return cj.System(cj.SO3() ** SPINS, h, params={"J": J, "K": K})


def start() -> np.ndarray:
    """Spins of different lengths, in no order."""
    S = np.random.default_rng(4).standard_normal((SPINS, 3))
    return (S * np.linspace(0.8, 1.2, SPINS)[:, None] / np.linalg.norm(S, axis=1, keepdims=True)).ravel()


def free() -> cj.Solution:
    """The motion without friction."""
    return cj.solve(ring(), start(), t1=20.0, dt=0.02, save_every=50)


def relaxed() -> cj.Solution:
    """The motion with friction."""
    return cj.solve(cj.double_bracket(ring(), friction=0.5), start(), t1=40.0, dt=0.02, save_every=50)


if __name__ == "__main__":
    for name, sol in ("free", free()), ("with friction", relaxed()):
        energy = sol.energy()
        print(f"{name}: energy {energy[0]:.4f} → {energy[-1]:.4f}, lengths kept to {sol.casimir_errors().max():.1e}")
    print("spins at the end:\n", np.round(sol.mu[-1].reshape(SPINS, 3), 3))
