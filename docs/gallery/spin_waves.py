"""Spin waves in a chain.

A disturbance in a ferromagnetic ring of spins splits into waves that travel both ways. The length of each spin is
conserved.
"""

import matplotlib.pyplot as plt
import numpy as np

import coadjoint as cj

n = 48
x = np.arange(n) - n / 2
tilt = 1.2 * np.exp(-(x**2) / 8)
S0 = np.stack([np.sin(tilt), np.zeros(n), np.cos(tilt)], axis=1)
system, mu0 = cj.models.spin_chain(n, alpha=None, S0=S0)
sol = cj.solve(system, mu0, t1=30.0, dt=0.05, integrator=cj.Strang(), save_every=4)
Sx = np.asarray(sol.mu).reshape(len(sol.t), n, 3)[..., 0]
fig, ax = plt.subplots(figsize=(6, 4), layout="constrained")
image = ax.imshow(Sx, origin="lower", aspect="auto", cmap="RdBu", vmin=-1, vmax=1, extent=(0, n, 0, sol.t[-1]))
fig.colorbar(image, label="Sₓ")
ax.set(xlabel="site", ylabel="time", title=f"|S|² within {sol.casimir_errors().max():.0e}")
