"""The body that flips.

Rotation about the middle axis is unstable. A T-handle in orbit turns over, rotates steadily for a while, and turns
over again. Noise makes the intervals irregular.
"""

import matplotlib.pyplot as plt

import coadjoint as cj

fig, axes = plt.subplots(2, 1, figsize=(7, 4), layout="constrained", sharex=True)
for ax, alpha in zip(axes, (None, (0.01, 0.01, 0.01)), strict=True):
    system, _ = cj.models.rigid_body(inertia=(1, 2, 3), alpha=alpha)
    sol = cj.solve(system, [1e-4, 1.0, 1e-4], t1=400.0, dt=0.02, key=None if alpha is None else 0, save_every=5)
    for i in range(3):
        ax.plot(sol.t, sol.mu[:, i], linewidth=0.9, label=f"π{'₁₂₃'[i]}")
    ax.set(ylabel="π", title="without noise" if alpha is None else "with noise")
axes[1].set_xlabel("time")
fig.legend(*axes[0].get_legend_handles_labels(), loc="outside right center")
