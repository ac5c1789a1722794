"""Gibbs's distribution on an orbit.

A rigid body in a heat bath: the histogram of energies over an ensemble, and exp(−h/T) on the sphere.
"""

import matplotlib.pyplot as plt
import numpy as np

import coadjoint as cj

body, _ = cj.models.rigid_body(inertia=(1, 2, 3), alpha=None)
fig, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
u = np.random.default_rng(0).standard_normal((400_000, 3))  # uniform on the sphere, to weigh
u /= np.linalg.norm(u, axis=1, keepdims=True)
h = 0.5 * np.sum(u**2 / [1, 2, 3], axis=1)
bins = np.linspace(1 / 6, 1 / 2, 50)
for T, color in ((0.03, "C0"), (0.1, "C1"), (1.0, "C2")):
    bath = cj.heat_bath(body, temperature=T, friction=1.0)
    ens = cj.ensemble(bath, [0.36, 0.48, 0.8], members=1000, t1=60.0, dt=0.1, key=0, save_every=20)
    ax.hist(ens.energy()[:, 8:].ravel(), bins, density=True, alpha=0.35, color=color, label=f"T = {T}")
    exact, _ = np.histogram(h, bins, density=True, weights=np.exp(-h / T))
    ax.stairs(exact, bins, color=color)
ax.set(xlabel="energy", ylabel="density", title="filled: ensemble, lines: exp(−h/T)")
ax.legend()
