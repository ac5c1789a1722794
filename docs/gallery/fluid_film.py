"""A shear layer rolls up.

The film shows the vorticity of two opposite jets on the torus with a small disturbance, on su(65). The large vortices
follow Euler's equation. The fine ripples are those of the sine-Euler model, which is not Euler's equation at small
scales.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.animation import FuncAnimation

import coadjoint as cj

n = 65
k = np.fft.fftfreq(n, 1 / n).astype(int)
x, y = np.meshgrid(2 * np.pi * np.arange(n) / n, 2 * np.pi * np.arange(n) / n, indexing="ij")
vorticity = np.exp(-8 * (y - np.pi / 2) ** 2) - np.exp(-8 * (y - 3 * np.pi / 2) ** 2) + 0.1 * np.cos(x)
omega = np.fft.fft2(vorticity, norm="forward")
omega[0, 0] = 0
system, W0 = cj.models.sine_euler(n, noise_modes=None, omega=omega)
sol = cj.solve(system, W0, t1=48.0, dt=0.1, integrator=cj.IsospectralMidpoint(), save_every=10)


def field(W):
    fine = np.zeros((96, 96), complex)
    fine[np.ix_(k, k)] = cj.models.matrix_to_fourier(W)
    return np.fft.ifft2(fine, norm="forward").real.T


fig, ax = plt.subplots(figsize=(4, 4), layout="constrained")
ax.set(xticks=[], yticks=[])
image = ax.imshow(field(sol.mu[0]), cmap="RdBu", vmin=-1, vmax=1, origin="lower", interpolation="bilinear")
animation = FuncAnimation(fig, lambda j: image.set_data(field(sol.mu[j])), len(sol.t), interval=100)
