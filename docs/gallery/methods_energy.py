"""Methods that conserve energy.

A top without noise in a potential that is not quadratic. Depending on the method, the energy error is at round-off,
bounded, or drifts.
"""

import matplotlib.pyplot as plt
import numpy as np

import coadjoint as cj

inertia = np.array([4.0, 2.0, 1.0])
system = cj.System(cj.SE3(), lambda mu: 0.5 * mu[:3] @ (mu[:3] / inertia) - mu[5] + 0.5 * mu[3] ** 4)
start = np.array([-0.7, 0.7, 0.3, -0.7, 0.6, 0.2])
methods = {
    "HeunMK, explicit": cj.HeunMK(),
    "TMK": cj.TMK(),
    "LieMidpoint, a Poisson map": cj.LieMidpoint(),
    "DiscreteGradient": cj.DiscreteGradient("gonzalez"),
}
fig, ax = plt.subplots(figsize=(7, 3.8), layout="constrained")
for name, method in methods.items():
    sol = cj.solve(system, start, t1=2000.0, dt=0.05, integrator=method, save_every=40)
    error = np.abs(sol.energy() - sol.energy()[0])
    ax.semilogy(sol.t, np.maximum(error, 1e-17), linewidth=0.7, label=name)
ax.set(xlabel="time", ylabel="|h(t) − h(0)|")
ax.legend(loc="center right")
