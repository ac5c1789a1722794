"""Five kinds of noise, one spin.

A random field along z turns a spin. The phase of the spin is the path of the driver.
"""

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import coadjoint as cj

spin = cj.System(cj.SO3(), lambda m: 0.0 * m[2], [cj.salt([0.0, 0.0, 1.0])])
drivers = {
    "Brownian(key=4)": cj.Brownian(key=4),
    "OU(tau=0.5)": cj.OU(tau=0.5, key=4),
    "FractionalBrownian(0.75)": cj.FractionalBrownian(0.75, key=4),
    "FractionalBrownian(0.2)": cj.FractionalBrownian(0.2, key=4),
    "Jumps(2.0, ±1)": cj.Jumps(2.0, lambda u: jnp.sign(u - 0.5), key=4),
}
fig, axes = plt.subplots(len(drivers), figsize=(7, 7), sharex=True, layout="constrained")
for ax, (name, driver) in zip(axes, drivers.items(), strict=True):
    sol = cj.solve(spin, [1.0, 0.0, 0.0], t1=8.0, dt=0.01, driver=driver)
    ax.plot(sol.t, -np.unwrap(np.arctan2(sol.mu[:, 1], sol.mu[:, 0])), linewidth=0.8)
    ax.set_title(name, fontsize=9, loc="left")
axes[-1].set(xlabel="time")
fig.supylabel("phase of the spin")
