"""Gibbs's density on the sphere.

The density of bodies in a heat bath on the sphere of angular momenta, beside exp(−h/T). The most likely states are the
ends of the axis with the largest moment of inertia.
"""

import matplotlib.pyplot as plt
import numpy as np

import coadjoint as cj

body, _ = cj.models.rigid_body(inertia=(1, 2, 3), alpha=None)
T, inertia = 0.1, np.array([1.0, 2.0, 3.0])
bath = cj.heat_bath(body, temperature=T, friction=1.0)
ens = cj.ensemble(bath, [0.36, 0.48, 0.8], members=8192, t1=60.0, dt=0.1, key=0, save_every=10)
x, y, z = np.asarray(ens.mu)[:, 15:].reshape(-1, 3).T
edges = np.linspace(-np.pi, np.pi, 49), np.linspace(-1, 1, 25)  # equal areas: longitude and height
counts, *_ = np.histogram2d(np.arctan2(y, x), z, edges)
measured = counts / counts.sum() * counts.size / (4 * np.pi)
phi, height = (0.5 * (e[1:] + e[:-1]) for e in edges)
rho = np.sqrt(1 - height**2)
points = np.stack(np.broadcast_arrays(np.cos(phi)[:, None] * rho, np.sin(phi)[:, None] * rho, height), -1)
exact = np.exp(-0.5 * np.sum(points**2 / inertia, axis=-1) / T)
exact *= exact.size / (4 * np.pi * exact.sum())
latitudes = np.linspace(-np.pi / 2, np.pi / 2, 181)  # finer than the bins, whose edges at the poles are curved
rows = np.digitize(np.sin(0.5 * (latitudes[1:] + latitudes[:-1])), edges[1]) - 1
fig, axes = plt.subplots(1, 2, figsize=(9, 3), layout="constrained", subplot_kw={"projection": "mollweide"})
for ax, density, title in ((axes[0], measured, "ensemble"), (axes[1], exact, "exp(−h/T)")):
    picture = ax.pcolormesh(edges[0], latitudes, density.T[rows], vmin=0, vmax=exact.max())
    ax.set(title=title, xticks=[], yticks=[])
fig.colorbar(picture, ax=axes, label="density", shrink=0.8)
fig.suptitle(f"T = {T:g}; rms difference {np.sqrt(np.mean((measured / exact - 1) ** 2)):.1%}")
