"""Three layers on a rotating sphere.

Unforced quasi-geostrophic flow of three layers, from random vorticity. Franken, Luesink, Ephrati and Geurts
(arXiv 2409.05410) simulate such flows for long times. This smaller and shorter run shows bands of zonal flow in all
layers, and Casimirs that are conserved to round-off: four powers of each layer. It has parameters of its own and a
constant F, so it reproduces none of their figures number by number.
"""

import matplotlib.pyplot as plt
import numpy as np

import coadjoint as cj

n, layers = 33, 3
omega = np.stack([8 * cj.fluids.random_field(cj.fluids.Sphere(n), k, peak=8) for k in range(layers)])
system, mu0 = cj.models.multilayer_qg(n, layers, rotation=15.0, deformation_radius=0.3, omega=omega)
sol = cj.solve(system, mu0, t1=40.0, dt=0.02, save_every=50, integrator=cj.IsospectralMidpoint(tol=1e-12))
flow = cj.fluids.of(sol)
u = np.stack([flow.zonal_mean(mu, 96) for mu in sol.mu])
latitude = np.degrees(flow.surface.grid(96)[0])

fig, axes = plt.subplots(1, 4, figsize=(13, 3), layout="constrained", width_ratios=(1.5, 1.5, 1, 1.1))
top = flow.vorticity(sol.mu[-1], 96)[0]
size = abs(top).max()
image = axes[0].imshow(top, cmap="RdBu_r", extent=(0, 360, -90, 90), vmin=-size, vmax=size)
fig.colorbar(image, ax=axes[0], label="ω, upper layer", shrink=0.7)
axes[0].set(xlabel="longitude", ylabel="latitude", xticks=(0, 180, 360), yticks=(-90, 0, 90), title="t = 40")
size = abs(u[:, 0]).max()
image = axes[1].pcolormesh(sol.t, latitude, u[:, 0].T, cmap="RdBu_r", vmin=-size, vmax=size, rasterized=True)
fig.colorbar(image, ax=axes[1], label="zonal mean of u, upper layer", shrink=0.9)
axes[1].set(xlabel="time", yticks=(-90, 0, 90))
for k in range(layers):
    axes[2].plot(u[len(u) // 2 :, k].mean(axis=0), latitude, label=f"layer {k + 1}")
axes[2].set(xlabel="mean of u, t > 20", yticks=(-90, 0, 90))
axes[2].legend(fontsize=7)
axes[3].semilogy(sol.t, np.maximum(sol.casimir_errors(), 1e-18), linewidth=0.7)
axes[3].set(xlabel="time", ylabel="scaled change", ylim=(1e-18, 1e-12), title="12 Casimirs")
