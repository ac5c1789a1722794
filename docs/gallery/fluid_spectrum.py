"""Every Casimir of a fluid.

The eigenvalues of the vorticity matrix determine all vorticity moments. They are constant, while energy moves between
the modes.
"""

import matplotlib.pyplot as plt
import numpy as np

import coadjoint as cj

system, W0 = cj.models.sine_euler(n=13, amplitude=0.05, key=1)
sol = cj.solve(system, W0, t1=100.0, dt=0.05, key=0, integrator=cj.IsospectralMidpoint(), save_every=20)
W = np.asarray(sol.mu)
eigenvalues = np.linalg.eigvalsh(-1j * W)
omega = np.abs(np.asarray(cj.models.matrix_to_fourier(W)))
fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
left.plot(sol.t, eigenvalues, linewidth=1)
left.set(xlabel="time", ylabel="eigenvalues", title=f"conserved to {sol.orbit_error().max():.0e} ‖W‖")
for m in ((0, 1), (1, 0), (1, 1), (2, 1)):
    right.plot(sol.t, omega[:, *m], linewidth=1, label=f"m = {m}")
right.set(xlabel="time", ylabel="|ω_m|", title="Fourier modes")
fig.legend(loc="outside right center")
