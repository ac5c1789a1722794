"""Two vortices merge under noise.

Vortices of equal sign on the torus, on su(65), with SALT noise on the largest scales. They rotate around each other,
begin to merge and shed filaments. Every moment of vorticity is conserved. The title states the change of the
eigenvalues. The filaments are scales at which the sine-Euler model differs from Euler's equation.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.animation import FuncAnimation

import coadjoint as cj

n = 65
torus = cj.fluids.Torus(n)
omega = cj.fluids.vortices(torus, [(np.pi - 0.45, np.pi), (np.pi + 0.45, np.pi)], [2.0, 2.0], radius=0.35)
system, W0 = cj.models.sine_euler(n, omega=omega, noise_shells=(1, 2), amplitude=0.002)
sol = cj.solve(system, W0, t1=30.0, dt=0.1, key=2, integrator=cj.IsospectralMidpoint(), save_every=6)
flow = cj.fluids.of(sol)
fields = [flow.vorticity(W, 96).T for W in sol.mu]
fig, ax = plt.subplots(figsize=(4, 4.2), layout="constrained")
image = ax.imshow(fields[0], cmap="magma", vmin=0, vmax=0.9 * fields[0].max(), origin="lower", interpolation="bilinear")
ax.set(xticks=[], yticks=[], xlim=(16, 80), ylim=(16, 80))
ax.set_title(f"eigenvalues within {sol.orbit_error().max():.0e} of ‖W‖", fontsize=10)
animation = FuncAnimation(fig, lambda j: image.set_data(fields[j]), len(fields), interval=80)
