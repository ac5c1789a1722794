"""Instability of a thermal front.

Thermal quasi-geostrophic flow on the sphere, on which the buoyancy increases from north to south. Left: growth rates of
linear theory, which hold at every size of the matrices, and those of disturbances of one degree. Right: the
buoyancy while a random disturbance grows.
"""

import matplotlib.pyplot as plt
import numpy as np

import coadjoint as cj

U, B, F, degrees, n = 0.4, -1.0, 2.0, np.arange(2, 9), 11
polar = lambda n, size: size * np.sqrt(4 * np.pi / 3) * (np.arange(n * n) == cj.fluids.index(1, 0))
omega = 2 * U * polar(n, 1.0) + 1e-10 * sum(np.arange(n * n) == cj.fluids.index(l, l) for l in degrees)
system, mu0 = cj.models.thermal_qg(n, screening=F, omega=omega, buoyancy=B * polar(n, 1.0))
sol = cj.solve(system, mu0, t1=12.0, dt=0.02, save_every=25, integrator=cj.IsospectralMidpoint())
psi = np.asarray(cj.fluids.of(system).stream_coefficients(sol.mu))
size = lambda l: np.linalg.norm(psi[:, [cj.fluids.index(l, l), cj.fluids.index(l, -l)]], axis=1)
measured = [np.log(size(l)[-1] / size(l)[-7]) / 3.0 for l in degrees]
rate = lambda l: l * np.roots([l * (l + 1) + F, (2 + F) * U - B, -U * B]).imag.max()

fig, (left, *maps) = plt.subplots(1, 3, figsize=(11, 3), layout="constrained", width_ratios=(1, 1.4, 1.4))
left.plot(x := np.linspace(1.5, 10, 300), [rate(l) for l in x], label="linear theory")
left.plot(degrees, measured, "o", label="measured")
left.set(xlabel="degree $l$", ylabel="growth rate of order $m = l$", xticks=range(2, 11, 2))
left.legend()
noise = 0.03 * cj.fluids.random_field(cj.fluids.Sphere(33), 1, peak=5, slope=12.0)
system, mu0 = cj.models.thermal_qg(33, screening=F, omega=2 * U * polar(33, 1.0) + noise, buoyancy=B * polar(33, 1.0))
sol = cj.solve(system, mu0, t1=8.0, dt=0.02, save_every=50, integrator=cj.IsospectralMidpoint())
for ax, i in zip(maps, (5, 8), strict=True):
    values = cj.fluids.of(sol).advected_field(sol.mu[i], 96)
    image = ax.imshow(values, cmap="magma", extent=(0, 360, -90, 90), vmin=B, vmax=-B)
    fig.colorbar(image, ax=ax, label="buoyancy", shrink=0.6)
    ax.set(title=f"$t = {sol.t[i]:g}$", xlabel="longitude", ylabel="latitude", xticks=(0, 180, 360), yticks=(-90, 90))
