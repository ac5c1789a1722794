"""One initial state, forty paths.

The members of an ensemble spread over the sphere. Noise moves them along the orbit and never off it.
"""

import matplotlib.pyplot as plt
import numpy as np

import coadjoint as cj

system, _ = cj.models.rigid_body(inertia=(1, 2, 3), alpha=0.03 * np.eye(3))
ens = cj.ensemble(system, [0.3, 0.2, 0.93], members=40, t1=9.0, dt=0.02, key=0)
fig = plt.figure(figsize=(5, 5), layout="constrained")
ax = fig.add_subplot(projection="3d")
for k, path in enumerate(np.asarray(ens.mu)):
    ax.plot(*path.T, color=plt.cm.plasma(k / 40), linewidth=0.5, zorder=3)
u, v = np.mgrid[0 : 2 * np.pi : 60j, 0 : np.pi : 30j]
sphere = np.cos(u) * np.sin(v), np.sin(u) * np.sin(v), np.cos(v)
ax.plot_surface(*sphere, color="lightsteelblue", alpha=0.25, linewidth=0)
ax.set(title=f"40 members, largest Casimir error {ens.casimir_errors().max():.0e}")
ax.set_box_aspect((1, 1, 1), zoom=1.4)
ax.view_init(55, 40)
ax.set_axis_off()
