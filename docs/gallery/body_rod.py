"""A swimming tentacle.

A tapered elastic rod is clamped at its thick end. Its muscles send a wave of curvature from the root to the tip, and
drag acts on it. Each colour is a moment of one period, from dark to light.
"""

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import coadjoint as cj

n, period = 16, 2.0
s = (np.arange(n) + 0.5) / n
bend = np.zeros((n, 6))
bend[:, 1] = 6.0
wave = lambda t: bend * jnp.sin(2 * jnp.pi * (s - t / period))[:, None] * jnp.minimum(t, 1.0)
radius = 0.06 - 0.04 * s
system, mu0 = cj.models.rod(n, radius=radius, young=1e5, gravity=np.zeros(3), drag=2.0, actuation=wave)
sol = cj.solve(system, mu0, t1=8.0, dt=0.004, integrator=cj.RKMK("rk4"), save_every=50)

x = np.asarray(sol.g)[-11:, :, :3, 3] + np.arange(1, n + 1)[:, None] / n * [1, 0, 0]
x = np.concatenate([np.zeros((len(x), 1, 3)), x], axis=1)
fig, ax = plt.subplots(figsize=(5, 5), layout="constrained")
for line, colour in zip(x, plt.cm.viridis(np.linspace(0, 0.95, len(x))), strict=True):
    for k in range(n):
        ax.plot(*line[k : k + 2, [0, 2]].T, color=colour, linewidth=130 * radius[k], solid_capstyle="round", alpha=0.7)
ax.set(xlabel="x (m)", ylabel="z (m)", aspect="equal", title="one line per 0.2 s")
