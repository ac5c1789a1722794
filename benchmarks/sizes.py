"""Native code beside XLA as systems grow: chains of spins, so(n), su(n), one trajectory and ensembles.

    python benchmarks/sizes.py [chain so su] [--into benchmarks/results/sizes.json]

Of each size: the dimension, the time of a step of TMK as the library takes it ("auto"), by native code and by XLA, by
the chord and by fixed points, and the first result, compilation included. Processor time, the least of several tries;
what is the same for a long run and a short one is taken off. A sentence stands where native code is not made.
"""

import argparse
import datetime
import json
import platform
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import coadjoint as cj

RESULTS = Path(__file__).parent / "results" / "sizes.json"
SIZES = {"chain": (3, 5, 6, 8, 12, 16, 21, 64, 256), "so": (3, 4, 5, 6, 7, 8), "su": (2, 3, 4, 5, 6, 8)}
SOLVERS = "chord", "fixed_point"
DENSE = 64  # dimension up to which there is a chord
DT = 0.01


def su(n: int) -> tuple[cj.System, np.ndarray]:
    """A quadratic energy with other weights for all coordinates, two noises."""
    algebra = cj.SU(n)
    weights = jnp.linspace(0.3, 1.0, algebra.dim)
    start = np.random.default_rng(0).standard_normal(algebra.dim) / np.sqrt(algebra.dim)
    noise = [cj.salt(0.1 * algebra.element(jnp.eye(algebra.dim)[k])) for k in range(2)]
    energy = lambda mu: 0.5 * jnp.sum(weights * algebra.coordinates(mu) ** 2)
    return cj.System(algebra, energy, noise), np.asarray(algebra.element(jnp.asarray(start)))


def so(n: int) -> tuple[cj.System, np.ndarray]:
    """Manakov's top with one noise."""
    return cj.models.rigid_body_n(np.arange(1.0, n + 1), alpha=np.full(n * (n - 1) // 2, 0.05))


MAKE = {"chain": cj.models.spin_chain, "so": so, "su": su}


def timed(run) -> float:
    """Processor time."""
    began = time.process_time()
    run()
    return time.process_time() - began


def measured(system: cj.System, start, backend: str, solver: str, members: int | None = None) -> dict | str:
    """Microseconds a step (of one member) and seconds to the first result, or why there is no native code."""

    def run(steps: int):
        options = dict(t1=DT * steps, dt=DT, key=1, save_every=steps, backend=backend)
        method = cj.TMK(solver=solver)
        if members is None:
            return cj.solve(system, start, integrator=method, **options)
        return cj.ensemble(system, start, members=members, integrator=method, **options)

    try:
        first = timed(lambda: run(20))
    except ValueError as refused:
        return str(refused).partition(": ")[2]
    tried = 1000 if backend == "native" and members is None else 40
    guess = max(timed(lambda: run(tried)), 1e-3) / tried
    few = max(20, min(20_000, int(0.05 / guess)))
    long, short = (min(timed(lambda n=n: run(n)) for _ in range(5)) for n in (2 * few, few))
    return {"step [µs]": round(1e6 * (long - short) / few / (members or 1), 3), "first result [s]": round(first, 1)}


def row(kind: str, n: int) -> dict:
    """All of one size."""
    system, start = MAKE[kind](n)
    dim = system.algebra.dim
    out: dict = {"dimension": dim}
    for solver in SOLVERS:
        for backend in ("native", "xla"):
            if solver == "fixed_point" or dim <= DENSE:
                out[f"{backend}, {solver.replace('_', ' ')}"] = measured(system, start, backend, solver)
    for backend in ("native", "xla"):
        if dim <= DENSE:
            out[f"{backend}, 64 members"] = measured(system, start, backend, "auto", 64)
    return out


def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--into", type=Path, default=RESULTS)
    parser.add_argument("kinds", nargs="*", choices=[*SIZES, []], default=list(SIZES))
    given = parser.parse_args()
    into = given.into
    kept = json.loads(into.read_text()) if into.exists() else {}
    about = f"Python {platform.python_version()}, JAX {jax.__version__}"
    processor = next((x.partition(":")[2].strip() for x in open("/proc/cpuinfo") if x.startswith("model name")), "")
    out = kept[about] = kept.get(about, {}) | {"date": str(datetime.date.today()), "processor": processor}
    for kind in given.kinds:
        for n in SIZES[kind]:
            out[f"{kind} {n}"] = row(kind, n)
            print(kind, n, json.dumps(out[f"{kind} {n}"], ensure_ascii=False), flush=True)
            into.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
