"""Baroclinic instability of two layers.

Two layers rotate at different rates. The shear is unstable where the gradient of potential vorticity has both signs.
Left: growth rates of linear theory, which hold at every size of the matrices, and those of disturbances of one degree.
Right: vorticity of the upper layer while a random disturbance grows.
"""

import matplotlib.pyplot as plt
import numpy as np

import coadjoint as cj

shear, degrees, n = np.array([0.5, -0.5]), np.arange(2, 8), 17
given = {"rotation": 1.0, "shear": shear, "deformation_radius": 0.12}
measured = []
for l in degrees:
    omega = np.zeros((2, n * n))
    omega[:, cj.fluids.index(l, l)] = 1e-10, 2e-10
    system, mu0 = cj.models.multilayer_qg(n, **given, omega=omega)
    sol = cj.solve(system, mu0, t1=10.0, dt=0.05, save_every=20)
    psi = np.asarray(cj.fluids.of(system).stream_coefficients(sol.mu))
    size = np.linalg.norm(psi[..., [cj.fluids.index(l, l), cj.fluids.index(l, -l)]], axis=(1, 2))
    measured.append(np.log(size[-1] / size[-4]) / 3.0)

K = cj.fluids.of(system).stratification.matrix()
gradient = 2 * given["rotation"] + 2 * shear + K @ shear
M = lambda l: l * (np.diag(shear) - gradient[:, None] * np.linalg.inv(l * (l + 1) * np.eye(2) + K))
fig, (left, *maps) = plt.subplots(1, 3, figsize=(11, 3), layout="constrained", width_ratios=(1, 1.4, 1.4))
left.plot(x := np.linspace(1.5, 10, 300), [np.linalg.eigvals(M(l)).imag.max() for l in x], label="linear theory")
left.plot(degrees, measured, "o", label="measured")
left.set(xlabel="degree $l$", ylabel="growth rate of order $m = l$", xticks=range(2, 11, 2), ylim=(-0.1, 2.1))
left.legend(loc="upper right")

omega = np.stack([0.02 * cj.fluids.random_field(cj.fluids.Sphere(33), k, peak=6) for k in range(2)])
system, mu0 = cj.models.multilayer_qg(33, **given, omega=omega, hyperviscosity=1e-9)
sol = cj.solve(system, mu0, t1=5.0, dt=0.05, save_every=10)
for ax, i in zip(maps, (6, 10), strict=True):
    values = (cj.fluids.of(sol).vorticity(sol.mu[i], 96) - cj.fluids.of(sol).vorticity(mu0, 96))[0]
    image = ax.imshow(values, cmap="RdBu_r", extent=(0, 360, -90, 90), vmin=-abs(values).max(), vmax=abs(values).max())
    fig.colorbar(image, ax=ax, label="change of vorticity", shrink=0.6)
    ax.set(title=f"$t = {sol.t[i]:g}$", xlabel="longitude", ylabel="latitude", xticks=(0, 180, 360), yticks=(-90, 90))
