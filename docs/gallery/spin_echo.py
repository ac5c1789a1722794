"""Spin echoes.

After a pulse of 90 degrees, spins with different Larmor frequencies lose their common phase. A pulse of 180 degrees
reverses the order of their phases, so they meet again in an echo. Slow random fields reduce the echo. A train of pulses
refocuses them.
"""

import matplotlib.pyplot as plt
import numpy as np

import coadjoint as cj

n, half, dt = 512, np.pi / 2, 0.005
offsets = 12.0 * np.random.default_rng(0).standard_normal(n)
trains = {
    "no refocusing": [],
    "one pulse of 180°": [(2.0, 0.02, np.pi, half)],
    "train of 8 pulses": [(0.25 + 0.5 * k, 0.02, np.pi, half) for k in range(8)],
}
fig, axes = plt.subplots(3, 1, figsize=(7, 5.5), layout="constrained", sharex=True, sharey=True)
for ax, (name, pulses) in zip(axes, trains.items(), strict=True):
    spins, mu0 = cj.models.nmr(offsets, [(0.0, 0.01, half, 0.0), *pulses], alpha=1.5, T2=8.0)
    sol = cj.solve(spins, mu0, t1=4.5, dt=dt, driver=cj.OU(tau=2.0, key=1))
    M = sol.mu.reshape(-1, n, 3).mean(axis=1)
    ax.plot(sol.t, np.hypot(M[:, 0], M[:, 1]), linewidth=1)
    for start, duration, *_ in pulses:
        ax.axvspan(start, start + duration, color="tab:orange", alpha=0.6)
    ax.set(ylabel="signal", title=name, ylim=(0, 1))
axes[-1].set_xlabel("time")
