"""Fit a noise amplitude and an inertia to data by gradient descent through the integrator.

The data are the mean and the variance of a rigid body's angular momentum over many noisy runs. The model runs an
ensemble of its own with other random numbers. The gradient of the misfit is taken through every implicit step.
"""

import jax
import jax.numpy as jnp
import numpy as np

import coadjoint as cj

TRUE = {"inertia": 2.0, "amplitude": 0.3}
START = {"inertia": 2.6, "amplitude": 0.15}


def statistics(p: dict, key: int, members: int) -> jax.Array:
    """Mean and variance of π at five times, for inertia (4, I₂, 1) and noise of the given amplitude about one axis."""
    inertia = jnp.array([4.0, 0.0, 1.0]).at[1].set(p["inertia"])
    system, pi0 = cj.models.rigid_body(inertia=inertia, alpha=p["amplitude"] * jnp.array([1.0, 0.0, 0.0]))
    ens = cj.ensemble(system, pi0, members=members, t1=2.0, dt=0.1, key=key, save_every=4)
    pi = jnp.asarray(ens.mu)[:, 1:]
    return jnp.concatenate([pi.mean(axis=0).ravel(), pi.var(axis=0).ravel()])


def fit(steps: int = 80, members: int = 128) -> dict:
    """Adam on the squared misfit."""
    data = statistics(TRUE, key=1, members=4096)

    @jax.jit
    def misfit(p):
        return jax.value_and_grad(lambda p: jnp.sum((statistics(p, key=2, members=members) - data) ** 2))(p)

    p = {k: jnp.asarray(v) for k, v in START.items()}
    m = v = jax.tree.map(jnp.zeros_like, p)
    for k in range(1, steps + 1):
        loss, g = misfit(p)
        m = jax.tree.map(lambda a, b: 0.8 * a + 0.2 * b, m, g)
        v = jax.tree.map(lambda a, b: 0.95 * a + 0.05 * b * b, v, g)
        rate = 0.05 * (1 - k / (steps + 1))
        p = jax.tree.map(
            lambda x, a, b, k=k, r=rate: x - r * (a / (1 - 0.8**k)) / jnp.sqrt(b / (1 - 0.95**k) + 1e-16), p, m, v
        )
        if k % 20 == 0:
            print(f"step {k:3d}  misfit {loss:.2e}  I₂ = {p['inertia']:.3f}  amplitude = {p['amplitude']:.3f}")
    return {k: float(x) for k, x in p.items()}


if __name__ == "__main__":
    found = fit()
    print({k: np.round(x, 3) for k, x in found.items()}, "true:", TRUE)
