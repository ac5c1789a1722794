"""Stirred vorticity.

The sine-Euler equations on su(65) from a random field. The flow stretches vorticity into filaments, down to the
smallest scale of the matrices. All moments of vorticity are conserved. The small scales are those of the sine-Euler
model, not of Euler's equation.
"""

import matplotlib.pyplot as plt
import numpy as np

import coadjoint as cj

n = 65
m = np.fft.fftfreq(n, 1 / n)
rng = np.random.default_rng(1)
shell = np.exp(-((np.hypot(*np.meshgrid(m, m)) - 4) ** 2) / 2)
omega = np.fft.fft2(rng.standard_normal((n, n))) * shell / n**2
omega[0, 0] = 0
system, W0 = cj.models.sine_euler(n, noise_modes=None, omega=12 * omega)
sol = cj.solve(system, W0, t1=6.0, dt=0.1, integrator=cj.IsospectralMidpoint(), save_every=20)
fig, axes = plt.subplots(1, 4, figsize=(12, 3.2), layout="constrained")
for ax, W, t in zip(axes, sol.mu, sol.t, strict=True):
    coefficients = np.zeros((128, 128), complex)
    k = m.astype(int)
    coefficients[np.ix_(k, k)] = cj.models.matrix_to_fourier(W)
    ax.imshow(np.fft.ifft2(coefficients, norm="forward").real, cmap="RdBu", origin="lower")
    ax.set(title=f"t = {t:g}", xticks=[], yticks=[])
