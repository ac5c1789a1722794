"""One path, many step sizes.

`Brownian(key, grid=…)` is one path for all step sizes, so coarse runs approximate the fine one.
"""

import matplotlib.pyplot as plt

import coadjoint as cj

system, pi0 = cj.models.rigid_body(inertia=(1, 2, 3), alpha=(0.3, 0.2, 0.1))
path = cj.Brownian(key=7, grid=0.02)
fig, ax = plt.subplots(figsize=(7, 3.4), layout="constrained")
for dt, style in ((0.64, "o-"), (0.16, ".-"), (0.02, "-"), (0.005, "k-")):
    sol = cj.solve(system, pi0, t1=16.0, dt=dt, driver=path)
    ax.plot(sol.t, sol.mu[:, 1], style, linewidth=0.7, markersize=4, label=f"dt = {dt}")
ax.set(xlabel="time", ylabel="π₂", title="the same noise, sampled more and more finely")
ax.legend()
