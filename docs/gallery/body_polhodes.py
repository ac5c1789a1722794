"""Polhodes.

Each curve is the angular momentum of a free rigid body. All have the same |π| and different energies.
"""

import matplotlib.pyplot as plt
import numpy as np

import coadjoint as cj

system, _ = cj.models.rigid_body(inertia=(1, 2, 3), alpha=None)
a = np.linspace(0, 2 * np.pi, 28)
starts = np.stack([np.cos(a), np.zeros(28), np.sin(a)], axis=1)
ens = cj.ensemble(system, starts, members=28, t1=60.0, dt=0.02, save_every=2, integrator=cj.Strang())
fig = plt.figure(figsize=(5, 5), layout="constrained")
ax = fig.add_subplot(projection="3d")
energies = ens.energy()[:, 0]
for path, h in zip(np.asarray(ens.mu), energies, strict=True):
    ax.plot(*path.T, color=plt.cm.coolwarm((h - energies.min()) / np.ptp(energies)), linewidth=1)
ax.set(xlim=(-1, 1), ylim=(-1, 1), zlim=(-1, 1))
ax.set_box_aspect((1, 1, 1), zoom=1.4)
ax.view_init(25, 55)
ax.set_axis_off()
ax.set_title("from the lowest energy (blue) to the highest (red)")
