"""An underwater vehicle that tumbles.

A prolate body driven along its long axis in an ideal fluid turns broadside. The group element of se(3) is its path
through the water.
"""

import matplotlib.pyplot as plt
import numpy as np

import coadjoint as cj

fig, ax = plt.subplots(figsize=(8, 3.4), layout="constrained")
shaken = (0.02, 0.02, 0.02, 0, 0, 0)
for name, alpha, key in (("ideal", None, None), ("noise", shaken, 0), ("other noise", shaken, 1)):
    system, mu0 = cj.models.kirchhoff(alpha=alpha)
    sol = cj.solve(system, mu0, t1=60.0, dt=0.02, key=key, group=True, save_every=5)
    g = np.asarray(sol.g)
    (line,) = ax.plot(*g[:, :2, 3].T, linewidth=1, label=name)
    for k in range(0, len(g), 20):  # the long axis of the body
        ends = g[k, :2, 3] + np.outer([-0.6, 0.6], g[k, :2, 0])
        ax.plot(*ends.T, color=line.get_color(), linewidth=2, alpha=0.4)
ax.set(xlabel="x", ylabel="y", title="the path of the body, and its long axis")
ax.legend()
