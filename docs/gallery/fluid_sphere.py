"""A wave on the sphere, with and without noise.

A Rossby–Haurwitz wave is an exact solution at every size of the matrices. It rotates without change of form. Noise
breaks it, while all moments of its vorticity are conserved.
"""

import matplotlib.pyplot as plt
import numpy as np

import coadjoint as cj

n = 13
omega = np.zeros(n * n)
omega[cj.fluids.index(4, 3)] = 1.0
omega[cj.fluids.index(1, 0)] = 0.5  # solid-body rotation advects the wave
fig, axes = plt.subplots(2, 4, figsize=(12, 3.8), layout="constrained")
for row, amplitude in zip(axes, (0.0, 0.1), strict=True):
    noise = {"noise_shells": (3, 3), "amplitude": amplitude} if amplitude else {"noise_shells": None}
    system, W0 = cj.models.euler_sphere(n, omega=omega, **noise)
    sol = cj.solve(system, W0, t1=30.0, dt=0.2, key=0 if amplitude else None, save_every=50)
    for ax, W, t in zip(row, sol.mu, sol.t, strict=True):
        ax.imshow(cj.fluids.of(sol).vorticity(W, 48), cmap="RdBu_r", extent=(0, 360, -90, 90))
        ax.set(title=f"t = {t:g}, noise {amplitude}", xticks=[], yticks=[])
