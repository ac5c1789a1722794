"""Gravity in the frame of a noisy top.

The direction of gravity γ in the body frame stays on a sphere, because |γ|² is a Casimir.
"""

import matplotlib.pyplot as plt

import coadjoint as cj

system, mu0 = cj.models.heavy_top(inertia=(4, 2, 1), alpha=(0.01, 0.02, 0.03))
sol = cj.solve(system, mu0, t1=300.0, dt=0.01, key=0, save_every=4)
fig = plt.figure(figsize=(5, 5), layout="constrained")
ax = fig.add_subplot(projection="3d")
points = ax.scatter(*sol.mu[:, 3:].T, c=sol.t, s=1, cmap="viridis")
ax.set(title=f"|γ|² within {sol.casimir_errors()[:, 1].max():.0e} over {sol.stats.steps} steps")
ax.set(xlabel="γ₁", ylabel="γ₂", zlabel="γ₃", xticks=(-1, 0, 1), yticks=(-1, 0, 1), zticks=(-1, 0, 1))
ax.set_box_aspect((1, 1, 1))
fig.colorbar(points, label="time", shrink=0.6, pad=0.15)
