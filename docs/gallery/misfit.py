"""Gradient descent through the integrator.

The path of gradient descent in two moments of inertia, over the misfit that it minimises.
The star is the exact minimum.
"""

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import coadjoint as cj


def path(a):
    body = cj.System(cj.SO3(), lambda p, q: 0.5 * p @ (p / q), params=jnp.array([a[0], a[1], 3.0]))
    return cj.solve(body, [0.6, 0.3, 0.74], t1=4.0, dt=0.1).mu


data = path(jnp.array([1.0, 2.0]))
misfit = jax.jit(lambda a: jnp.mean((path(a) - data) ** 2))
slope = jax.jit(jax.grad(misfit))
x, y = np.linspace(0.6, 1.8, 30), np.linspace(1.2, 2.8, 30)
values = np.array(jax.vmap(misfit)(jnp.array([[a, b] for b in y for a in x]))).reshape(30, 30)
trail = [jnp.array([1.7, 1.3])]
for _ in range(300):
    trail.append(trail[-1] - 0.3 * slope(trail[-1]))
fig, ax = plt.subplots(figsize=(5, 4), layout="constrained")
fig.colorbar(ax.contourf(x, y, np.log10(values), 20), label="log₁₀ of the misfit")
ax.plot(*np.array(trail).T, "w.-", markersize=3)
ax.plot(1.0, 2.0, "r*", markersize=10)
ax.set(xlabel="I₁", ylabel="I₂", title="300 steps of gradient descent")
