"""Whole gradients beside the ordinary native forward run, and beside diffrax.

    python benchmarks/gradients.py [case …]

For each case: the time of the gradient with respect to the initial state and all params, forward pass included, inside
`jax.jit`; the same divided by an ordinary native forward run of the same system in the same process; the reverse pass
alone; the first gradient, compilation included, with an empty cache; and the bytes that the forward pass saves. Where
diffrax is installed, its gradient (`RecursiveCheckpointAdjoint`) of the same loss with the same number of equal steps.
All programs of a case run in turns, and the least time of each counts. The results are saved after each case in
benchmarks/results/gradients.json.
"""

import json
import os
import sys
import tempfile
import time

import jax
import jax.numpy as jnp
import numpy as np
from run import RESULTS, machine

import coadjoint as cj

STEPS, DT = 1000, 0.01
MANY = 20 * STEPS  # a long forward run, so that the time of a call does not count
ROUNDS = 15
RECORD = RESULTS / "gradients.json"


def semidirect():
    """so(3) with three advected vectors."""
    so3 = cj.SO3()
    algebra = cj.Semidirect(so3, so3.bracket, dim=3, copies=3)

    def h(mu, p):
        return 0.5 * mu[:3] @ (mu[:3] / p["inertia"]) - jnp.sum(p["chi"] * mu[3:].reshape(3, 3))

    chi = jnp.array([[0, 0, 1.0], [0.3, 0, 0], [0, 0.2, 0.1]])
    params = {"inertia": jnp.array([4.0, 2.0, 1.0]), "chi": chi}
    return cj.System(algebra, h, params=params), np.random.default_rng(0).standard_normal(12) * 0.5


def unitary(n):
    """A quadratic Hamiltonian on su(n)."""
    algebra = cj.SU(n)
    h = lambda mu, p: 0.5 * jnp.sum(p * algebra.coordinates(mu) ** 2)
    params = 1.0 / (1.0 + jnp.arange(algebra.dim) / algebra.dim)
    mu0 = algebra.element(jnp.asarray(np.random.default_rng(0).standard_normal(algebra.dim) / n))
    return cj.System(algebra, h, side="right", params=params), mu0


CASES = {
    "so(3) TMK": (lambda: cj.models.rigid_body(alpha=None), cj.TMK()),
    "so(3) LieMidpoint": (lambda: cj.models.rigid_body(alpha=None), cj.LieMidpoint()),
    "so(3) rk4": (lambda: cj.models.rigid_body(alpha=None), cj.RKMK("rk4")),
    "heavy top TMK": (lambda: cj.models.heavy_top(alpha=None), cj.TMK()),
    "heavy top TMK, one noise": (lambda: cj.models.heavy_top(), cj.TMK()),
    "heavy top rk4": (lambda: cj.models.heavy_top(alpha=None), cj.RKMK("rk4")),
    "semidirect TMK": (semidirect, cj.TMK()),
    "semidirect rk4": (semidirect, cj.RKMK("rk4")),
    "16 spins TMK": (lambda: cj.models.spin_chain(16, alpha=None), cj.TMK()),
    "16 spins rk4": (lambda: cj.models.spin_chain(16, alpha=None), cj.RKMK("rk4")),
    "64 spins TMK": (lambda: cj.models.spin_chain(64, alpha=None), cj.TMK()),
    "su(3) TMK": (lambda: unitary(3), cj.TMK()),
    "su(3) rk4": (lambda: unitary(3), cj.RKMK("rk4")),
    "su(17) TMK": (lambda: unitary(17), cj.TMK()),
}


def top_field(mu, p):
    """dπ = π×ω + χ×γ, dγ = γ×ω."""
    pi, gamma = mu[:3], mu[3:]
    omega = pi / p["inertia"]
    return jnp.concatenate([jnp.cross(pi, omega) + jnp.cross(p["chi"], gamma), jnp.cross(gamma, omega)])


def spin_field(mu, p):
    """dS_i = −S_i × H_i."""
    S = mu.reshape(-1, 3)
    H = p["coupling"] * (jnp.roll(S, 1, axis=0) + jnp.roll(S, -1, axis=0)) + p["field"]
    H = H.at[:, 2].add(-p["anisotropy"] * S[:, 2])
    return -jnp.cross(S, H).reshape(-1)


FIELDS = {  # by hand, as a user of diffrax writes them
    "so(3)": lambda mu, p: jnp.cross(mu, mu / p["inertia"]),
    "heavy top": top_field,
    "16 spins": spin_field,
}
SOLVERS = {"TMK": ("Midpoint", "Heun"), "rk4": ("Tsit5", "Dopri5")}  # of the order of the method


def seconds(fn, *args):
    """The time of one call."""
    start = time.perf_counter()
    jax.block_until_ready(fn(*args))
    return time.perf_counter() - start


def loss(system, integrator, noise):
    """A number made of the last state, as a function of the initial state and the params."""

    def value(mu0, params):
        run = cj.solve(
            system.with_params(params), mu0, t1=STEPS * DT, dt=DT, integrator=integrator, save_every=STEPS, **noise
        )
        return jnp.sum(jnp.abs(run.mu[-1] - 0.1) ** 2)

    return value


def by_diffrax(name, mu0, params):
    """Compiled gradients of the same loss by diffrax, by solver."""
    system, _, method = name.rpartition(" ")
    if system not in FIELDS or method not in SOLVERS:
        return {}
    try:
        import diffrax
    except ImportError:
        return {}
    term = diffrax.ODETerm(lambda t, mu, p: FIELDS[system](mu, p))
    adjoint = diffrax.RecursiveCheckpointAdjoint(checkpoints=STEPS)  # every step: faster than the default number

    def gradient(solver):
        def value(mu0, params):
            sol = diffrax.diffeqsolve(
                term, solver, 0.0, STEPS * DT, DT, mu0, params, max_steps=STEPS + 1, adjoint=adjoint,
                stepsize_controller=diffrax.ConstantStepSize(),
            )  # fmt: skip
            return jnp.sum(jnp.abs(sol.ys[-1] - 0.1) ** 2)

        return jax.jit(jax.grad(value, argnums=(0, 1)))

    return {solver: gradient(getattr(diffrax, solver)()) for solver in SOLVERS[method]}


def check(ours, theirs, name):
    """Raise an error unless the gradients agree up to the errors of the methods."""
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        if np.max(np.abs(a - b)) > 0.02 * max(np.max(np.abs(x)) for x in jax.tree.leaves(ours)):
            raise ValueError(f"{name}: the gradients of coadjoint and diffrax differ: {a} and {b}.")


def measure(name):
    """The figures of a case."""
    make, integrator = CASES[name]
    system, mu0 = make()
    mu0 = jnp.asarray(mu0)
    noise = {"key": 0} if system.n_noise else {}
    value = loss(system, integrator, noise)
    at = (mu0, system.params)
    gradient = jax.jit(jax.grad(value, argnums=(0, 1)))
    first = seconds(gradient, *at)
    info = cj.last_gradient_info()
    plain = lambda *_: cj.solve(system, mu0, t1=MANY * DT, dt=DT, integrator=integrator, save_every=MANY, **noise).mu
    others = by_diffrax(name, *at)
    for theirs in others.values():
        check(gradient(*at), theirs(*at), name)
    programs = {"gradient": gradient, "forward": plain, "traced": jax.jit(value), **others}
    for program in programs.values():
        seconds(program, *at)
    best = {key: min(times) for key, times in in_turns(programs, at).items()}
    forward = best["forward"] * STEPS / MANY
    found = {
        "steps": STEPS, "gradient_us_per_step": 1e6 * best["gradient"] / STEPS,
        "forward_us_per_step": 1e6 * forward / STEPS, "ratio": best["gradient"] / forward,
        "reverse_ratio": max(best["gradient"] - best["traced"], 0.0) / forward, "first_gradient_s": first,
        "backend": info.backend, "reason": info.reason, "saved_bytes_per_step": info.saved_bytes / STEPS,
    }  # fmt: skip
    if others:
        fastest = min(others, key=best.get)
        found["diffrax"] = {"solver": fastest, "us_per_step": 1e6 * best[fastest] / STEPS}
    return found


def in_turns(programs, at):
    """The times of each program, called in turns."""
    times = {key: [] for key in programs}
    for _ in range(ROUNDS):
        for key, program in programs.items():
            times[key].append(seconds(program, *at))
    return times


def overhead():
    """Microseconds of a gradient of one step, inside jit."""
    system, mu0 = cj.models.rigid_body(alpha=None)
    one = jax.jit(jax.grad(lambda mu0: jnp.sum(cj.solve(system, mu0, t1=DT, dt=DT).mu[-1])))
    return 1e6 * min(seconds(one, jnp.asarray(mu0)) for _ in range(100))


def about():
    """Hardware and versions."""
    found = machine([])
    try:
        import diffrax
    except ImportError:
        return found
    return found | {"diffrax": diffrax.__version__}


def main(names):
    """Measure the cases of these names, or all."""
    record = {"machine": about(), "overhead_us": overhead(), "cases": {}}
    if names and RECORD.exists():
        record["cases"] = json.loads(RECORD.read_text())["cases"]
    print(f"overhead of a gradient: {record['overhead_us']:.0f} us")
    for name in names or CASES:
        found = record["cases"][name] = measure(name)
        RECORD.write_text(json.dumps(record, indent=1) + "\n")
        print(
            f"{name}: {found['gradient_us_per_step']:.3f} us per step, {found['ratio']:.2f} forward runs "
            f"(reverse alone {found['reverse_ratio']:.2f}), first {found['first_gradient_s']:.1f} s, "
            f"{found['backend']}, {found['saved_bytes_per_step']:.0f} bytes per step, {found.get('diffrax')}",
            flush=True,
        )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as empty:
        os.environ["STEPCOMPILER_CACHE"] = empty  # first gradients compile everything
        main(sys.argv[1:])
