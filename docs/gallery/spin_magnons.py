"""Magnons, and magnetisation against temperature.

Left: the dynamical structure factor of a ferromagnetic ring that was disturbed a little, with the dispersion relation
of linear theory. Right: the magnetisation of a simple cubic lattice of 216 spins in a heat bath, with spin-wave
theory at low temperature and the critical temperature of the infinite lattice, 1.443 J.
"""

import matplotlib.pyplot as plt
import numpy as np

import coadjoint as cj

n, rng = 64, np.random.default_rng(0)
S0 = np.array([0.0, 0.0, 1.0]) + 0.02 * rng.standard_normal((n, 3))
S0 /= np.linalg.norm(S0, axis=1, keepdims=True)
ring, mu0 = cj.models.spin_lattice(n, field=(0.0, 0.0, 0.1), S0=S0, side="right")
run = cj.solve(ring, mu0, t1=300.0, dt=0.05, save_every=10, integrator=cj.HeunMK())
S = cj.structure_factor(run, n)["S"].sel(omega=slice(0.05, 5.0)).sortby("q_x")

lattice, up = cj.models.spin_lattice((6, 6, 6), S0=np.broadcast_to([0.0, 0.0, 1.0], (6, 6, 6, 3)))
bath = cj.heat_bath(lattice, temperature=1.0, friction=0.5)
T, each = np.linspace(0.1, 2.5, 13), 4
length = lambda mu: ((mu.reshape(-1, 3).mean(axis=0) ** 2).sum()) ** 0.5
params = bath.params | {"temperature": np.repeat(T, each)}
options = {"save": length, "save_every": 10, "integrator": cj.NinomiyaVictoir(), "params": params, "key": 0}
ens = cj.ensemble(bath, up, members=each * len(T), t1=60.0, dt=0.1, **options)
M = np.asarray(ens.saved)[:, 20:].mean(axis=1).reshape(len(T), each).mean(axis=1)

fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
image = left.pcolormesh(S["q_x"], S["omega"], np.log10(S.values.T + 1e-12), vmin=-6, cmap="magma", rasterized=True)
left.plot(q := S["q_x"].values, 0.1 + 2 * (1 - np.cos(q)), "w--", linewidth=1, label="B + 2J(1 − cos q)")
fig.colorbar(image, ax=left, label="log₁₀ S(q, ω)")
left.set(xlabel="q", ylabel="ω")
left.legend()
k = 2 * np.pi * np.arange(6) / 6
modes = 2 * (3 - sum(np.cos(x) for x in np.meshgrid(k, k, k))).ravel()
right.plot(T[:6], 1 - T[:6] * (1 / modes[1:]).sum() / 216, "k", linewidth=1, label="spin waves")
right.plot(T, M, "o", markersize=4, label="6³ spins")
right.axvline(1.443, color="gray", linestyle=":", label="critical temperature")
right.set(xlabel="temperature T/J", ylabel="magnetisation", ylim=(0, 1.02))
right.legend()
