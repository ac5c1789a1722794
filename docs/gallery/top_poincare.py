"""Order and chaos of a heavy top.

A Poincaré section through the orbits of tops with the same energy and the same Casimirs. Regular motion gives closed
curves, and chaotic motion scattered points.
"""

import matplotlib.pyplot as plt
import numpy as np

import coadjoint as cj

system, _ = cj.models.heavy_top(inertia=(1.0, 1.0, 0.65), chi=(0.7, 0.0, 0.7), alpha=None)
angles = np.linspace(0.05, np.pi - 0.05, 24)
starts = []
for a in angles:  # γ = e₁, π·γ = 0, and |π| from the energy
    direction = np.array([0.0, np.cos(a), np.sin(a)])
    kinetic = 0.5 * direction @ (direction / [1.0, 1.0, 0.65])
    starts.append([*(np.sqrt((1.2 + 0.7) / kinetic) * direction), 1.0, 0.0, 0.0])
ens = cj.ensemble(system, np.array(starts), members=24, t1=600.0, dt=0.02, save_every=2)
fig, ax = plt.subplots(figsize=(5.5, 4.5), layout="constrained")
for path in np.asarray(ens.mu):
    y = path[:, 4]  # where γ₂ passes through 0 from below
    k = np.flatnonzero((y[:-1] < 0) & (y[1:] >= 0))
    r = (y[k] / (y[k] - y[k + 1]))[:, None]
    cut = path[k] * (1 - r) + path[k + 1] * r
    ax.plot(np.arctan2(cut[:, 5], cut[:, 3]), cut[:, 2], ".", markersize=1.5)
ax.set(xlabel="angle of γ", ylabel="π₃", title="24 tops, one energy")
