"""Sensitivity to the initial state.

Two tops differ by 10⁻¹⁰ at the start. If the motion is chaotic, their distance grows exponentially. A Lagrange top is
integrable, and the distance grows linearly.
"""

import matplotlib.pyplot as plt
import numpy as np

import coadjoint as cj

fig, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
for name, chi in (("Lagrange: χ on the axis", (0.0, 0.0, 1.0)), ("χ oblique", (0.7, 0.0, 0.7))):
    system, _ = cj.models.heavy_top(inertia=(2, 2, 1), chi=chi, alpha=None)
    start = np.array([0.3, 1.0, 0.8, 0.8, 0.0, 0.6])
    other = np.asarray(system.algebra.flow(np.array([1e-10, 0, 0, 0, 0, 0]), start))  # on the same orbit
    ens = cj.ensemble(system, np.stack([start, other]), members=2, t1=300.0, dt=0.01, save_every=20)
    distance = np.linalg.norm(ens.mu[1] - ens.mu[0], axis=1)
    ax.semilogy(ens.t, distance, linewidth=0.8, label=name)
ax.set(xlabel="time", ylabel="distance", title="distance of two tops")
ax.legend()
