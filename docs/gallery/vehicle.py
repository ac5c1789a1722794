"""An underwater vehicle that tumbles.

A prolate body driven along its long axis in an ideal fluid turns broadside. The group element of se(3) is its path
through the water. Bars show the long axis.
"""

import matplotlib.pyplot as plt
import numpy as np

import coadjoint as cj

fig, axes = plt.subplots(3, figsize=(8, 3.2), layout="constrained", sharex=True)
shaken = (0.02, 0.02, 0.02, 0, 0, 0)
cases = (("without noise", None, None), ("with noise", shaken, 0), ("with other noise", shaken, 1))
for ax, (name, alpha, key) in zip(axes, cases, strict=True):
    system, mu0 = cj.models.kirchhoff(alpha=alpha)
    sol = cj.solve(system, mu0, t1=36.0, dt=0.02, key=key, group=True, save_every=5)
    g = np.asarray(sol.g)
    ax.plot(*g[:, :2, 3].T, linewidth=1)
    for k in range(0, len(g), 10):  # the long axis of the body
        ends = g[k, :2, 3] + np.outer([-0.6, 0.6], g[k, :2, 0])
        ax.plot(*ends.T, color="C0", linewidth=2, alpha=0.4)
    ax.set(ylabel="y", aspect="equal", ylim=(-1.3, 1.3), title=name)
axes[-1].set(xlabel="x")
