"""Whole gradients beside the ordinary native forward run, and beside diffrax.

    python benchmarks/gradients.py [case …]

For each case: the time of the gradient with respect to the initial state and all params, forward pass included, inside
`jax.jit`; the same divided by an ordinary native forward run of the same system in the same process; the reverse pass
alone; the first gradient, compilation included; and what the forward pass saves. Where diffrax is installed, its
gradient (`RecursiveCheckpointAdjoint`) with the same number of steps of equal size. Results go to
benchmarks/results/gradients.json.
"""

import json
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import coadjoint as cj

STEPS, DT = 1000, 0.01
REPEATS = 9
RESULTS = Path(__file__).parent / "results" / "gradients.json"


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


def fastest(fn, *args):
    """Seconds of the first call, and of the fastest of some more."""
    start = time.perf_counter()
    jax.block_until_ready(fn(*args))
    first, best = time.perf_counter() - start, np.inf
    for _ in range(REPEATS):
        start = time.perf_counter()
        jax.block_until_ready(fn(*args))
        best = min(best, time.perf_counter() - start)
    return first, best


def loss(system, integrator, noise):
    """A number made of the last state, as a function of the initial state and the params."""

    def value(mu0, params):
        run = cj.solve(
            system.with_params(params), mu0, t1=STEPS * DT, dt=DT, integrator=integrator, save_every=STEPS, **noise
        )
        return jnp.sum(jnp.abs(run.mu[-1] - 0.1) ** 2)

    return value


def measure(name):
    """The figures of a case."""
    make, integrator = CASES[name]
    system, mu0 = make()
    mu0 = jnp.asarray(mu0)
    noise = {"key": 0} if system.n_noise else {}
    value = loss(system, integrator, noise)
    first, gradient = fastest(jax.jit(jax.grad(value, argnums=(0, 1))), mu0, system.params)
    info = cj.last_gradient_info()
    many = 20 * STEPS  # a long run, so that the time of a call does not count
    plain = lambda: cj.solve(system, mu0, t1=many * DT, dt=DT, integrator=integrator, save_every=many, **noise).mu
    forward = fastest(plain)[1] / 20
    traced = fastest(jax.jit(value), mu0, system.params)[1]
    return {
        "steps": STEPS, "gradient_us_per_step": 1e6 * gradient / STEPS, "forward_us_per_step": 1e6 * forward / STEPS,
        "ratio": gradient / forward, "reverse_ratio": max(gradient - traced, 0.0) / forward, "first_gradient_s": first,
        "backend": info.backend, "reason": info.reason, "saved_bytes_per_step": info.saved_bytes / STEPS,
    }  # fmt: skip


def overhead():
    """Microseconds of a gradient of one step, inside jit."""
    system, mu0 = cj.models.rigid_body(alpha=None)
    one = lambda mu0: jnp.sum(cj.solve(system, mu0, t1=DT, dt=DT).mu[-1])
    return 1e6 * fastest(jax.jit(jax.grad(one)), jnp.asarray(mu0))[1]


def by_diffrax(name):
    """Microseconds per step of the same gradient by diffrax; None where it is not installed."""
    try:
        import diffrax
    except ImportError:
        return None
    system, mu0 = CASES[name][0]()
    if system.n_noise:
        return None

    @jax.jit
    @jax.grad
    def gradient(mu0, params):
        here = system.with_params(params)
        field = lambda t, mu, _: system.sign * here.algebra.ad_star(here.algebra.gradient(here.energy, mu), mu)
        sol = diffrax.diffeqsolve(
            diffrax.ODETerm(field), diffrax.Tsit5(), 0.0, STEPS * DT, DT, mu0, max_steps=STEPS + 1,
            adjoint=diffrax.RecursiveCheckpointAdjoint(),
        )  # fmt: skip
        return jnp.sum(jnp.abs(sol.ys[-1] - 0.1) ** 2)

    return 1e6 * fastest(gradient, jnp.asarray(mu0), system.params)[1] / STEPS


def main(names):
    """Measure the cases of these names, or all."""
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results["overhead_us"] = overhead()
    print(f"overhead of a gradient: {results['overhead_us']:.0f} us")
    for name in names or CASES:
        found = measure(name)
        if name in ("so(3) rk4", "heavy top rk4", "16 spins rk4"):
            found["diffrax_us_per_step"] = by_diffrax(name)
        results[name] = found
        print(
            f"{name}: {found['gradient_us_per_step']:.3f} us per step, {found['ratio']:.2f} forward runs "
            f"(reverse alone {found['reverse_ratio']:.2f}), first {found['first_gradient_s']:.1f} s, "
            f"{found['backend']}, {found['saved_bytes_per_step']:.0f} bytes per step, "
            f"diffrax {found.get('diffrax_us_per_step')}",
            flush=True,
        )
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
