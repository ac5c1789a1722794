"""Methods that conserve Casimirs.

Seven methods follow one path of a noisy top. Those that move by the group action are at the bottom.
"""

import matplotlib.pyplot as plt
import numpy as np

import coadjoint as cj

system, mu0 = cj.models.heavy_top()
methods = [cj.Heun(), cj.Trapezoidal(), cj.TMK(drift_free=False), cj.TMK(), cj.HeunMK(), cj.LieMidpoint(), cj.Strang()]
fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
for method in methods:
    sol = cj.solve(system, mu0, t1=1000.0, dt=0.02, key=0, integrator=method, save_every=50)
    worst = np.maximum.accumulate(sol.casimir_errors().max(axis=1))
    name = type(method).__name__ + ("" if getattr(method, "drift_free", True) else ", without round-off correction")
    ax.loglog(sol.t[1:], np.maximum(worst[1:], 1e-17), label=name)
ax.set(xlabel="time", ylabel="largest Casimir error so far")
ax.legend(fontsize=8, ncols=2)
