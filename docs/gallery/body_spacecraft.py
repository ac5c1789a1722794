"""A slew with reaction wheels.

A satellite turns by 120 degrees with four wheels in a pyramid, and then points at its target. Disturbance torques push
100 such satellites apart. The bands show where 90 percent of them are.
"""

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import coadjoint as cj

pyramid = [(1, 0, 0.7), (0, 1, 0.7), (-1, 0, 0.7), (0, -1, 0.7)]


def pd(mu, p, g):
    error = cj.rotation_to_quaternion(g[0])[1:]
    torque = -p["stiffness"] * error - p["damping"] * cj.models.body_rate(mu, p)
    return 0.5 * p["wheels"] @ torque


gains = {"stiffness": 0.4, "damping": 3.0}
craft, mu0 = cj.models.spacecraft(
    wheels=pyramid, control={"wheels": cj.hold(pd, every=5)}, params=gains, disturbance=0.01
)
start = cj.quaternion_to_rotation([0.5, 0.5, 0.5, 0.5])


def observed(mu, p, g):
    angle = 2 * jnp.arccos(jnp.clip(cj.rotation_to_quaternion(g[0])[0], -1, 1))
    return jnp.concatenate([jnp.rad2deg(angle)[None], mu[3:]])


run = cj.ensemble(craft, mu0, members=100, t1=120.0, dt=0.1, save_every=5, key=0, g0=(start, np.eye(4)), save=observed)
fig, axes = plt.subplots(2, 1, figsize=(7, 5), layout="constrained", sharex=True)
for k, (ax, name) in enumerate(
    ((axes[0], "angle to the target (degrees)"), *[(axes[1], "momenta of the wheels (N m s)")] * 4)
):
    low, middle, high = np.quantile(run.saved[:, :, k], [0.05, 0.5, 0.95], axis=0)
    (line,) = ax.plot(run.t, middle, linewidth=1.2, label=f"wheel {k}" if k else None)
    ax.fill_between(run.t, low, high, color=line.get_color(), alpha=0.25, linewidth=0)
    ax.set(ylabel=name)
axes[0].set(yscale="log", ylim=(0.3, 200))
axes[1].set(xlabel="time (s)")
axes[1].legend(ncols=4)
