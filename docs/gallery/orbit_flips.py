"""Orbits that flip.

A distant companion on an eccentric orbit drives the Lidov–Kozai cycles of an inner orbit. Its octupole makes the orbit
flip: the inclination passes 90 degrees while the eccentricity comes close to 1. Passing stars change which orbits flip.
"""

import jax
import matplotlib.pyplot as plt
import numpy as np

import coadjoint as cj

stars = cj.Jumps(rate=0.2, distribution=lambda u: 0.05 * jax.scipy.special.ndtri(u), key=2)
cases = {
    "quadrupole": ({"octupole": 0.0}, None),
    "octupole, ε = 0.01": ({"octupole": 0.01}, None),
    "octupole and passing stars": ({"octupole": 0.01, "flybys": 1.0}, stars),
}
fig, axes = plt.subplots(3, 1, figsize=(7.5, 6), layout="constrained", sharex=True, sharey=True)
for ax, (label, (options, driver)) in zip(axes, cases.items(), strict=True):
    system, mu0 = cj.models.lidov_kozai(eccentricity=0.01, inclination=np.deg2rad(85), **options)
    sol = cj.solve(system, mu0, t1=150.0, dt=0.01, driver=driver, save_every=5)
    j, e = cj.models.orbit_vectors(sol.mu)
    ax.plot(sol.t, np.rad2deg(np.arccos(j[:, 2] / np.linalg.norm(j, axis=1))), linewidth=0.9)
    right = ax.twinx()
    right.semilogy(sol.t, 1 - np.linalg.norm(e, axis=1), linewidth=0.6, color="tab:orange")
    right.set(ylim=(1e-5, 3e4), yticks=[1e-4, 1e-2, 1])
    right.set_ylabel("1 − e", color="tab:orange", loc="bottom")
    ax.axhline(90, color="grey", linewidth=0.6)
    ax.set(ylabel="inclination (°)", title=label, ylim=(-120, 180), yticks=[40, 90, 140])
axes[-1].set_xlabel("time (unit of the model)")
