"""Point vortices on the sphere.

Left: a ring of eight equal vortices rotates, and a small disturbance grows. Right: twelve vortices of both signs. The
Lie midpoint rule conserves their moment Σ μ to round-off, and a Runge–Kutta–Munthe-Kaas method does not.
"""

import matplotlib.pyplot as plt
import numpy as np

import coadjoint as cj

angle = 2 * np.pi * np.arange(8) / 8
height = np.cos(1.2) + 1e-3 * np.random.default_rng(0).standard_normal(8)
ring = np.stack([np.cos(angle), np.sin(angle), height / np.sqrt(1 - height**2)], axis=1)
system, mu0 = cj.models.point_vortices(np.ones(8), positions=ring)
sol = cj.solve(system, mu0, t1=60.0, dt=0.05, integrator=cj.LieMidpoint(), save_every=4)
x = np.asarray(sol.mu).reshape(-1, 8, 3)

fig = plt.figure(figsize=(10, 4.4), layout="constrained")
ax = fig.add_subplot(1, 2, 1, projection="mollweide")
for k in range(8):
    longitude, latitude = np.arctan2(x[:, k, 1], x[:, k, 0]), np.arcsin(np.clip(x[:, k, 2], -1, 1))
    ax.scatter(longitude, latitude, s=2, c=sol.t, cmap="viridis")
ax.set(title="An unstable ring of eight, coloured by time", xticklabels=[], yticklabels=[])
ax.grid(alpha=0.3)

k = np.arange(12)
z, turn = 1 - (2 * k + 1) / 12, np.pi * (1 + np.sqrt(5)) * k  # points that are far apart
positions = np.stack([np.sqrt(1 - z**2) * np.cos(turn), np.sqrt(1 - z**2) * np.sin(turn), z], axis=1)
system, mu0 = cj.models.point_vortices((-1.0) ** k, positions=positions)
ax = fig.add_subplot(1, 2, 2)
for method, name in ((cj.LieMidpoint(), "Lie midpoint rule"), (cj.RKMK("rk4"), "RKMK, order 4")):
    sol = cj.solve(system, mu0, t1=100.0, dt=0.05, integrator=method, save_every=10)
    moment = np.asarray(sol.mu).reshape(-1, 12, 3).sum(axis=1)
    ax.semilogy(sol.t[1:], np.linalg.norm(moment - moment[0], axis=1)[1:] + 1e-16, label=name)
ax.set(xlabel="time", ylabel="error of the total moment", title="Twelve vortices of both signs")
ax.legend()
