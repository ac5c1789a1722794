"""A spin chain that melts.

An ordered chain with a random field on each spin, without damping. The order decays, and the lengths are conserved.
"""

import matplotlib.pyplot as plt
import numpy as np

import coadjoint as cj

n = 32
S0 = np.tile([0.0, 0.0, 1.0], (n, 1))
fig, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained", width_ratios=(3, 2))
for alpha, color in ((0.1, "C0"), (0.2, "C1"), (0.4, "C2")):
    system, mu0 = cj.models.spin_chain(n, alpha=alpha, S0=S0)
    sol = cj.solve(system, mu0, t1=30.0, dt=0.05, key=0, integrator=cj.Strang(), save_every=4)
    S = np.asarray(sol.mu).reshape(len(sol.t), n, 3)
    axes[1].plot(sol.t, S.mean(axis=1)[:, 2], color=color, label=f"α = {alpha}")
image = axes[0].imshow(S[..., 2], origin="lower", aspect="auto", cmap="RdBu", vmin=-1, vmax=1, extent=(0, n, 0, 30))
axes[0].set(xlabel="site", ylabel="time", title="α = 0.4")
axes[1].set(xlabel="time", ylabel="mean of S_z", ylim=(-0.2, 1.3), title="magnetisation")
axes[1].legend(loc="upper right", ncols=3, fontsize=7, handlelength=1)
fig.colorbar(image, ax=axes[0], label="S_z")
