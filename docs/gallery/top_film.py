"""A top in motion.

The attitude of a symmetric top under noise: its axis, its rim, and the path of its tip.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.animation import FuncAnimation

import coadjoint as cj

system, mu0 = cj.models.heavy_top("lagrange", alpha=(0.02, 0.02, 0.0), pi0=(0.4, 0.2, 4.5), gamma0=(0.5, 0.0, -0.866))
sol = cj.solve(system, mu0, t1=16.0, dt=0.01, key=1, group=True, save_every=16)
up = -sol.attitude()[0] @ sol.mu[0, 3:]  # against gravity, constant in space
side = np.cross(up, [0.0, 1.0, 0.0]) / np.linalg.norm(np.cross(up, [0.0, 1.0, 0.0]))
R = np.stack([side, np.cross(up, side), up]) @ sol.attitude()
a = np.linspace(0, 2 * np.pi, 41)
rim = np.stack([0.45 * np.cos(a), 0.45 * np.sin(a), np.full(41, 0.8)])
cone = np.zeros((3, 17))
cone[:, 1::2] = rim[:, :40:5]
fig = plt.figure(figsize=(4, 4))
ax = fig.add_subplot(projection="3d", xlim=(-0.9, 0.9), ylim=(-0.9, 0.9), zlim=(-0.6, 1.0))
ax.set_box_aspect((9, 9, 8), zoom=1.35)
ax.set_axis_off()
lines = [ax.plot([], [], [], color=c)[0] for c in ("C0", "C0", "C1")]


def draw(k):
    for line, points in zip(lines, (R[k] @ rim, R[k] @ cone, R[: k + 1, :, 2].T), strict=True):
        line.set_data_3d(*points)


animation = FuncAnimation(fig, draw, len(R), interval=60)
