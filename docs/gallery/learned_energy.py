"""A learned Hamiltonian.

A neural network learns the energy of a rigid body from ten short trajectories. The learned motion conserves |π|² to
round-off and the true energy up to the error of the network. Black dots are the true motion.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import optax

import coadjoint as cj

body, _ = cj.models.rigid_body(inertia=(1.0, 2.0, 3.0), alpha=None)
starts = jax.random.normal(jax.random.key(0), (10, 3))
starts = starts / jnp.linalg.norm(starts, axis=1, keepdims=True)
paths = cj.ensemble(body, starts, members=10, dt=0.1, steps=40).mu
pieces = jnp.concatenate([paths[:, k : k + 11] for k in (0, 10, 20, 30)])
network = eqx.nn.MLP(3, "scalar", width_size=16, depth=2, activation=jnp.tanh, key=jax.random.key(0))
learned = cj.System(cj.SO3(), lambda pi, network: network(pi), params=network)
adam = optax.adam(optax.cosine_decay_schedule(5e-3, 500))


def run(network, start, steps):
    return cj.solve(learned.with_params(network), start, dt=0.1, steps=steps, integrator=cj.HeunMK()).mu


@eqx.filter_jit
def update(network, memory):
    distance = lambda net: jnp.mean((jax.vmap(lambda pi: run(net, pi, 10))(pieces[:, 0]) - pieces) ** 2)
    change, memory = adam.update(eqx.filter_grad(distance)(network), memory)
    return eqx.apply_updates(network, change), memory


memory = adam.init(eqx.filter(network, eqx.is_array))
for _ in range(500):
    network, memory = update(network, memory)

new, t = jnp.array([0.5, -0.6, 0.62]), 0.1 * jnp.arange(301)
fig, ax = plt.subplots(figsize=(8, 3), layout="constrained")
ax.plot(t, run(network, new, 300), label=["$\\pi_1$", "$\\pi_2$", "$\\pi_3$"])
ax.plot(t[::4], cj.solve(body, new, dt=0.1, steps=300).mu[::4], "k.", markersize=2)
ax.set(xlabel="time", title="learned from ten trajectories of length 4")
ax.legend(loc="right")
