"""A chain of six bars.

Six rigid bars hang from a hinge and from each other, with ball joints of stiff springs. The chain starts at rest as a
horizontal line, and falls. Each colour is a moment, from dark to light.
"""

import matplotlib.pyplot as plt
import numpy as np

import coadjoint as cj

n, half = 6, 0.25
positions = [((2 * k + 1) * half, 0, 0) for k in range(n)]
joints = [(k - 1, k) for k in range(n)]
anchors = [((half if k else 0, 0, 0), (-half, 0, 0)) for k in range(n)]
chain, mu0 = cj.models.multibody(
    np.ones(n), (0.002, 0.02, 0.02), positions=positions, joints=joints, anchors=anchors, stiffness=3e4, damping=5.0
)
sol = cj.solve(chain, mu0, t1=2.4, dt=0.0004, integrator=cj.RKMK("rk4"), save_every=250)

g = np.asarray(sol.g)
fig, ax = plt.subplots(figsize=(6, 5.5), layout="constrained")
for k, colour in enumerate(plt.cm.viridis(np.linspace(0, 0.95, len(g)))):
    centres, axes = g[k, :, :3, 3] + positions, g[k, :, :3, 0]
    for x, a in zip(centres, axes, strict=True):
        ax.plot(*np.stack([x - half * a, x + half * a])[:, [0, 2]].T, color=colour, linewidth=2, solid_capstyle="round")
ax.plot(0, 0, "ko")
ax.set(xlabel="x (m)", ylabel="z (m)", aspect="equal", title="one line per 0.1 s")
