"""Maxwell–Bloch equations.

Light and atoms on the dual of e(2). Orbits are cylinders P² + D² = const., with or without noise.
"""

import matplotlib.pyplot as plt

import coadjoint as cj

fig = plt.figure(figsize=(5.5, 5), layout="constrained")
ax = fig.add_subplot(projection="3d")
for alpha, color in ((None, "k"), ((0.1, 0.1), "C0")):
    for E in (0.3, 1.0, 1.8):
        system, start = cj.models.maxwell_bloch(alpha, start=(E, 0.6, -0.8))
        key = None if alpha is None else 0
        sol = cj.solve(system, start, t1=25.0, dt=0.01, key=key, integrator=cj.Strang(), save_every=2)
        ax.plot(sol.mu[:, 1], sol.mu[:, 2], sol.mu[:, 0], color=color, linewidth=0.6 if alpha else 1.2)
ax.set(xlabel="P", ylabel="D", zlabel="E", title="black: without noise, blue: with")
ax.set(xticks=(-1, 0, 1), yticks=(-1, 0, 1), zticks=(-2, -1, 0, 1, 2))
