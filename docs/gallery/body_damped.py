"""Friction that stays on the sphere.

The double bracket lowers the energy and conserves the Casimir. At the end every body spins about the axis of its
largest moment of inertia, with its initial |π|.
"""

import matplotlib.pyplot as plt
import numpy as np

import coadjoint as cj

body, _ = cj.models.rigid_body(inertia=(1, 2, 3), alpha=None)
system = cj.double_bracket(body, friction=0.1)
a = np.linspace(0.05, 6.0, 9)
starts = np.stack([0.98 * np.cos(a), 0.98 * np.sin(a), np.full(9, np.sqrt(1 - 0.98**2))], axis=1)
ens = cj.ensemble(system, starts, members=9, t1=150.0, dt=0.05, save_every=2)
fig = plt.figure(figsize=(9, 4), layout="constrained")
ax, right = fig.add_subplot(1, 2, 1, projection="3d"), fig.add_subplot(1, 2, 2)
for path, h in zip(np.asarray(ens.mu), ens.energy(), strict=True):
    ax.plot(*path.T, linewidth=0.6)
    right.plot(ens.t, h, linewidth=0.9)
ticks = (-1, 0, 1)
ax.set(xlabel="π₁", ylabel="π₂", zlabel="π₃", xticks=ticks, yticks=ticks, zticks=ticks)
ax.set_box_aspect((1, 1, 1), zoom=0.9)
right.set(xlabel="time", ylabel="energy", title=f"|π|² conserved to {ens.casimir_errors().max():.0e}")
