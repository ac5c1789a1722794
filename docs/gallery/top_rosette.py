"""The rosette of a Lagrange top.

`group=True` computes the attitude together with the momentum. The tip of the axis nutates while it precesses. Noise
makes the pattern irregular.
"""

import matplotlib.pyplot as plt
import numpy as np

import coadjoint as cj

fig, axes = plt.subplots(1, 3, figsize=(9, 3.2), layout="constrained")
for ax, alpha in zip(axes, (0.0, 0.01, 0.05), strict=True):
    noise = None if alpha == 0 else alpha * np.eye(3)
    system, mu0 = cj.models.heavy_top("lagrange", alpha=noise, pi0=(0.4, 0.2, 1.6), gamma0=(0.6, 0.0, -0.8))
    sol = cj.solve(system, mu0, t1=150.0, dt=0.02, key=None if noise is None else 2, group=True)
    gravity = sol.attitude()[0] @ sol.mu[0, 3:]  # constant in space
    tip = sol.attitude() @ np.array([0.0, 0.0, 1.0])
    e1 = np.cross(gravity, [0.0, 1.0, 0.0])
    e1 /= np.linalg.norm(e1)
    ax.plot(tip @ e1, tip @ np.cross(gravity, e1), linewidth=0.6)
    ax.set(aspect="equal", xlim=(-1.05, 1.05), ylim=(-1.05, 1.05), title=f"noise {alpha}", xticks=[], yticks=[])
