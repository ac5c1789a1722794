"""Langevin's paramagnet.

A single spin in a field and a heat bath, with one temperature per member. The mean magnetisation is coth x − 1/x with
x = B/T.
"""

import matplotlib.pyplot as plt
import numpy as np

import coadjoint as cj

spin = cj.System(cj.SO3(), lambda S: -S[2])
bath = cj.heat_bath(spin, temperature=1.0, friction=1.0)
T = np.repeat(np.geomspace(0.05, 10.0, 16), 128)
params = {"temperature": T, "friction": np.ones(len(T))}
ens = cj.ensemble(
    bath, [0.6, 0.0, 0.8], members=len(T), t1=40.0, dt=0.02, key=0, save_every=50, params=params, save=lambda S: S[2]
)
means = np.asarray(ens.saved)[:, 10:].mean(axis=1).reshape(16, 128)
fig, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
x = np.geomspace(0.1, 20, 200)
ax.semilogx(1 / x, 1 / np.tanh(x) - 1 / x, "k", linewidth=1, label="coth x − 1/x")
ax.errorbar(T[::128], means.mean(axis=1), 2 * means.std(axis=1) / 128**0.5, fmt="o", markersize=4, label="2048 spins")
ax.set(xlabel="temperature T/B", ylabel="magnetisation", title="one ensemble, sixteen temperatures")
ax.legend()
