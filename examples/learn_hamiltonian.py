"""Learn Hamiltonians from trajectories, with the Lie–Poisson bracket given.

A neural network is the Hamiltonian of a rigid body, of an underwater vehicle and of a charged particle in a magnetic
field, the cases of LPNets (arXiv:2308.15349). Every learned motion conserves the Casimirs to round-off. A neural
network of the velocity, integrated by the Runge–Kutta method of order 4, learns from the same data for comparison.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import coadjoint as cj

DT = 0.1
METHOD = cj.HeunMK()


class Case(NamedTuple):
    """A true system and initial states."""

    system: cj.System
    starts: np.ndarray


def rigid_body(members: int, key: int) -> Case:
    """Moments of inertia 1, 2, 3 and |π| = 1."""
    starts = np.random.default_rng(key).standard_normal((members, 3))
    system, _ = cj.models.rigid_body(inertia=(1.0, 2.0, 3.0), alpha=None)
    return Case(system, starts / np.linalg.norm(starts, axis=1, keepdims=True))


def vehicle(members: int, key: int) -> Case:
    """A prolate body in water, on se(3), with momenta near those of a motion along its long axis."""
    system, mu0 = cj.models.kirchhoff(alpha=None)
    return Case(system, np.asarray(mu0) + 0.2 * np.random.default_rng(key).standard_normal((members, 6)))


def charged_particle(members: int, key: int) -> Case:
    """A particle in the plane with potential and magnetic field B = 1, as states (x, y, p_x, p_y, 1).

    The brackets are those of the Heisenberg algebra with the field: [p_x, x] = [p_y, y] = [p_x, p_y] = 1.
    """
    constants = np.zeros((5, 5, 5))
    for i, j in ((2, 0), (3, 1), (2, 3)):
        constants[i, j, 4], constants[j, i, 4] = 1.0, -1.0
    h = lambda mu: 0.5 * (mu[2] ** 2 + mu[3] ** 2) + 0.5 * mu[0] ** 2 + 0.25 * mu[1] ** 4
    starts = np.ones((members, 5))
    starts[:, :4] = 0.6 * np.random.default_rng(key).standard_normal((members, 4))
    return Case(cj.System(cj.StructureConstants(constants), h), starts)


CASES = {"rigid body": rigid_body, "vehicle": vehicle, "charged particle": charged_particle}


def observe(case: Case, steps: int) -> jax.Array:
    """Trajectories at intervals DT, computed with a fifth of the step."""
    options = {"members": len(case.starts), "dt": DT / 5, "steps": 5 * steps, "save_every": 5}
    return jnp.asarray(cj.ensemble(case.system, case.starts, **options).mu)


def windows(paths: jax.Array, length: int) -> jax.Array:
    """All pieces of `length` steps, one after the other: (pieces, length + 1, dim)."""
    count = (paths.shape[1] - 1) // length
    pieces = [paths[:, k * length : (k + 1) * length + 1] for k in range(count)]
    return jnp.concatenate(pieces)


def geometric(system: cj.System) -> Callable:
    """The run of `system` with a network as params: (network, start, steps) → states."""
    return lambda network, start, steps: (
        cj.solve(system.with_params(network), start, dt=DT, steps=steps, integrator=METHOD).mu
    )


def plain(network: Any, start: jax.Array, steps: int) -> jax.Array:
    """The baseline: μ̇ = network(μ) by the Runge–Kutta method of order 4."""

    def step(mu, _):
        k1 = network(mu)
        k2 = network(mu + DT / 2 * k1)
        k3 = network(mu + DT / 2 * k2)
        k4 = network(mu + DT * k3)
        mu = mu + DT / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return mu, mu

    return jnp.concatenate([start[None], jax.lax.scan(step, start, length=steps)[1]])


def fit(run: Callable, network: Any, pieces: jax.Array, iterations: int, rate: float = 5e-3) -> Any:
    """Minimise the mean square distance of runs from `pieces` with Adam, whose rate falls to 0 as a cosine."""
    adam = optax.adam(optax.cosine_decay_schedule(rate, iterations))

    def distance(network):
        found = jax.vmap(lambda start: run(network, start, pieces.shape[1] - 1))(pieces[:, 0])
        return jnp.mean((found - pieces) ** 2)

    @eqx.filter_jit
    def update(network, memory):
        gradient = eqx.filter_grad(distance)(network)
        change, memory = adam.update(gradient, memory)
        return eqx.apply_updates(network, change), memory

    memory = adam.init(eqx.filter(network, eqx.is_array))
    for _ in range(iterations):
        network, memory = update(network, memory)
    return network


def errors(case: Case, run: Callable, network: Any, short: int, long: int) -> dict[str, float]:
    """Mean square error over `short` steps; largest changes of energy and Casimirs over `long` steps."""
    exact = observe(case, short)
    paths = jax.jit(jax.vmap(lambda start: run(network, start, long)))(jnp.asarray(case.starts))
    energy = jax.vmap(jax.vmap(case.system.energy))(paths)
    casimirs = jax.vmap(jax.vmap(case.system.algebra.casimirs))(paths)
    return {
        "mse": float(jnp.mean((paths[:, : short + 1] - exact) ** 2)),
        "energy": float(jnp.max(jnp.abs(energy - energy[:, :1]))),
        "casimirs": float(jnp.max(jnp.abs(casimirs - casimirs[:, :1]))),
    }


def compare(name: str, iterations: int = 1500, members: int = 20, length: int = 40, long: int = 2000) -> dict:
    """Errors of one-step and multi-step learning and of the baseline, from unseen initial states."""
    data, unseen = CASES[name](members, key=0), CASES[name](5, key=1)
    paths, dim = observe(data, length), data.starts.shape[1]
    mlp = lambda out: eqx.nn.MLP(dim, out, width_size=16, depth=2, activation=jnp.tanh, key=jax.random.key(0))
    learned = cj.System(data.system.algebra, lambda mu, network: network(mu), params=mlp("scalar"))
    found = {}
    for kind, run, out, piece in (
        ("one step", geometric(learned), "scalar", 1),
        ("multi-step", geometric(learned), "scalar", 10),
        ("plain network", plain, dim, 10),
    ):
        network = fit(run, mlp(out), windows(paths, piece), iterations)
        found[kind] = errors(unseen, run, network, length, long)
    return found


def noise_amplitude(steps: int = 400, members: int = 10, iterations: int = 300) -> tuple[float, float, float]:
    """Amplitude of isotropic noise of a body and its inverse moments, by maximum likelihood.

    Returns the amplitude, its standard error and the true amplitude.
    """
    true, dt = 0.1, 0.02
    body, _ = cj.models.rigid_body(inertia=(1.0, 2.0, 3.0), alpha=true * np.eye(3))
    starts = rigid_body(members, key=2).starts
    paths = jnp.asarray(cj.ensemble(body, starts, members=members, dt=dt, steps=steps, key=0).mu)
    before, after = paths[:, :-1].reshape(-1, 3), paths[:, 1:].reshape(-1, 3)
    quiet = cj.System(cj.SO3(), lambda pi, inverse: 0.5 * pi @ (inverse * pi), params=jnp.ones(3))

    @jax.jit
    def value_and_gradient(p):
        def minus_log_likelihood(p):
            model = quiet.with_params(p["inverse"])
            mean = jax.vmap(lambda pi: cj.solve(model, pi, dt=dt, steps=1, integrator=METHOD).mu[-1])(before)
            angle2 = jnp.sum(jnp.cross(mean, after) ** 2, axis=1)  # |π| = 1, two directions
            return jnp.mean(angle2 / (2 * dt) * jnp.exp(-2 * p["log"]) + 2 * p["log"])

        return jax.value_and_grad(minus_log_likelihood)(p)

    p = {"inverse": jnp.array([0.8, 0.6, 0.4]), "log": jnp.log(0.3)}
    adam = optax.adam(optax.cosine_decay_schedule(0.05, iterations))
    memory = adam.init(p)
    for _ in range(iterations):
        change, memory = adam.update(value_and_gradient(p)[1], memory)
        p = optax.apply_updates(p, change)
    amplitude = float(jnp.exp(p["log"]))
    return amplitude, amplitude / np.sqrt(4 * len(before)), true


def neural_forcing(iterations: int = 800, members: int = 16, length: int = 40) -> dict[str, float]:
    """Friction on the orbit, learned as an orbit-preserving forcing of a body whose Hamiltonian is known."""
    free, unseen = rigid_body(members, key=0).system, rigid_body(5, key=1).starts
    damped = cj.double_bracket(free, friction=0.5)
    mlp = eqx.nn.MLP(3, 3, width_size=16, depth=1, activation=jnp.tanh, key=jax.random.key(1))
    h = lambda pi, network: 0.5 * pi @ (pi / jnp.array([1.0, 2.0, 3.0]))
    learned = cj.System(cj.SO3(), h, forcing=lambda pi, network: network(pi), params=mlp)
    paths = observe(Case(damped, rigid_body(members, key=0).starts), length)
    network = fit(geometric(learned), mlp, windows(paths, 5), iterations)
    case = Case(damped, unseen)
    found = errors(case, geometric(learned), network, length, length)
    return {"mse": found["mse"], "casimirs": found["casimirs"], "energy lost": found["energy"]}


if __name__ == "__main__":
    for name in CASES:
        for kind, found in compare(name).items():
            print(f"{name:17s} {kind:14s}", "  ".join(f"{k} {x:.1e}" for k, x in found.items()), flush=True)
    print("noise amplitude {:.4f} ± {:.4f}, true {:.4f}".format(*noise_amplitude()))
    print("forcing", "  ".join(f"{k} {x:.1e}" for k, x in neural_forcing().items()))
