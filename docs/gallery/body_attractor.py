"""A random attractor.

Thousands of bodies with friction are driven by the *same* path. They gather on a fine structure that moves with the
noise.
"""

import matplotlib.pyplot as plt
import numpy as np

import coadjoint as cj

body, _ = cj.models.rigid_body(inertia=(1, 2, 3), alpha=0.5 * np.eye(3))
system = cj.double_bracket(body, friction=0.15)
rng = np.random.default_rng(0)
starts = rng.standard_normal((8000, 3))
starts /= np.linalg.norm(starts, axis=1, keepdims=True)
steps, dt = 3000, 0.02
path = cj.Increments(np.sqrt(dt) * rng.standard_normal((steps, 3)))
ens = cj.ensemble(system, starts, members=8000, t1=steps * dt, dt=dt, driver=path, save_every=1000)
fig, axes = plt.subplots(1, 3, figsize=(11, 3), layout="constrained", subplot_kw={"projection": "mollweide"})
for ax, k in zip(axes, (0, 1, 3), strict=True):
    x, y, z = np.asarray(ens.mu)[:, k].T
    ax.plot(np.arctan2(y, x), np.arcsin(np.clip(z, -1, 1)), ".", markersize=1)
    ax.set(title=f"t = {ens.t[k]:g}", xticks=[], yticks=[])
