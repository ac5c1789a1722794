"""Time coadjoint beside hand-written C, in one process, one after the other; write a table and JSON.

    make bench          # builds benchmarks/c with the system's compiler first

The problem is the paper's heavy top (inertia (4, 2, 1), one SALT noise, dt = 0.01, TMK). Every round times each
contender once, in turn, by processor time of one core; the ratio to C is taken within a round, and the median over
rounds is reported, so that what else the machine does cancels.
"""

import ctypes
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np

import coadjoint as cj

HERE = Path(__file__).parent
DT = 0.01


def build_c() -> ctypes.CDLL:
    """Compile the reference and load it."""
    library = HERE / "c" / "build" / "heavy_top.so"
    library.parent.mkdir(exist_ok=True)
    flags = ["-O3", "-march=native", "-fno-math-errno", "-shared", "-fPIC"]
    subprocess.run(["cc", *flags, "-o", library, HERE / "c" / "heavy_top.c", "-lm"], check=True)
    return ctypes.CDLL(str(library))


def pointer(a: np.ndarray) -> ctypes.c_void_p:
    """An array as C sees it."""
    return a.ctypes.data_as(ctypes.c_void_p)


def c_one(library: ctypes.CDLL, mu0: np.ndarray, dW: np.ndarray) -> np.ndarray:
    """One trajectory in C, with given increments."""
    mu = mu0.copy()
    library.heavy_top(pointer(mu), pointer(dW), ctypes.c_int64(len(dW)), ctypes.c_double(DT))
    return mu


def c_many(library: ctypes.CDLL, mu0: np.ndarray, members: int, steps: int) -> np.ndarray:
    """An ensemble in C, with its own random numbers."""
    out = np.empty((members, 6))
    library.heavy_top_ensemble(
        pointer(mu0),
        pointer(out),
        ctypes.c_int64(members),
        ctypes.c_int64(steps),
        ctypes.c_double(DT),
        ctypes.c_uint64(1),
    )
    return out


def users_system(algebra: cj.LieAlgebra) -> cj.System:
    """The heavy top as a user writes it: a lambda over captured arrays."""
    inertia, chi = jnp.array([4.0, 2.0, 1.0]), jnp.array([0.0, 0.0, 1.0])
    return cj.System(
        algebra,
        lambda mu: 0.5 * mu[:3] @ (mu[:3] / inertia) - chi @ mu[3:],
        noise=[cj.salt([0.01, 0.02, 0.03, 0.0, 0.0, 0.0])],
    )


def se3_constants() -> np.ndarray:
    """Structure constants of se(3), as if nothing else were known of it."""
    bracket = jax.vmap(jax.vmap(cj.SE3().bracket, (None, 0)), (0, None))
    return np.asarray(bracket(jnp.eye(6), jnp.eye(6)))


def compare(work: dict[str, Callable[[], object]], units: int, rounds: int) -> dict[str, dict[str, float]]:
    """Processor time a unit of work for each contender, and its ratio to the first one, as medians over rounds."""
    seconds: dict[str, list[float]] = {name: [] for name in work}
    for fn in work.values():
        fn()  # compile
    for _ in range(rounds):
        for name, fn in work.items():
            began = time.process_time()
            fn()
            seconds[name].append(time.process_time() - began)
    first = next(iter(seconds.values()))
    return {
        name: {
            "nanoseconds": 1e9 * statistics.median(times) / units,
            "ratio": statistics.median(t / c for t, c in zip(times, first, strict=True)),
        }
        for name, times in seconds.items()
    }


def accuracy(library: ctypes.CDLL, mu0: np.ndarray) -> dict[str, dict[str, float]]:
    """Error against a solution with 64 times smaller steps on the same path, and the Casimir error, over T = 10."""
    system, _ = cj.models.heavy_top()
    fine = cj.solve(system, mu0, t1=10.0, dt=DT / 64, driver=cj.Brownian(0, grid=DT), save_every=64000)
    ours = cj.solve(system, mu0, t1=10.0, dt=DT, driver=cj.Brownian(0, grid=DT))
    window = cj.Brownian(0, grid=DT).window(1, DT, 0, 1)
    blocks = [np.asarray(window.block(jnp.zeros((), int), jnp.asarray(b)).S) for b in range(32)]
    dW = np.ascontiguousarray(np.concatenate(blocks)[:1000, 0])
    theirs = c_one(library, mu0, dW)

    def casimirs(mu):
        return np.array([mu[:3] @ mu[3:], mu[3:] @ mu[3:]])

    return {
        "coadjoint": {
            "error": float(np.abs(ours.mu[-1] - fine.mu[-1]).max()),
            "casimir_error": float(ours.casimir_errors().max()),
        },
        "C": {
            "error": float(np.abs(theirs - fine.mu[-1]).max()),
            "casimir_error": float(np.abs(casimirs(theirs) - casimirs(mu0)).max()),
        },
    }


def machine() -> dict[str, str]:
    """What this was measured on."""
    model = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line.split(":")[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
        model = names[0] if names else model
    return {
        "date": datetime.date.today().isoformat(),
        "processor": model,
        "cores": str(os.cpu_count()),
        "python": platform.python_version(),
        "jax": jax.__version__,
        "jaxlib": jaxlib.__version__,
        "coadjoint": cj.__version__,
        "compiler": subprocess.run(["cc", "--version"], capture_output=True, text=True).stdout.splitlines()[0],
    }


def main(rounds: int = 7) -> None:
    """Measure, print, and write benchmarks/results/cpu.json and cpu.md."""
    library = build_c()
    mu0 = np.array([-(0.5**0.5), 0.5**0.5, 0.0] * 2)
    steps = 200_000
    dW = np.random.default_rng(0).standard_normal(steps) * DT**0.5
    lie, generic = users_system(cj.SE3()), users_system(cj.StructureConstants(se3_constants()))
    run = {"t1": steps * DT, "dt": DT, "key": 0, "save_every": steps // 100}
    short = {**run, "t1": run["t1"] / 10, "save_every": steps // 100}

    def drop():
        return cj.solve(lie, mu0, integrator=cj.TMK(drift_free=False), **run)

    one = compare(
        {
            "C": lambda: c_one(library, mu0, dW),
            "coadjoint, user's lambda": lambda: cj.solve(lie, mu0, **run),
            "coadjoint, without the drift cure": drop,
        },
        steps,
        rounds,
    )
    tenth = compare(
        {
            "C": lambda: c_one(library, mu0, dW[: steps // 10]),
            "coadjoint, structure constants": lambda: cj.solve(generic, mu0, **short),
        },
        steps // 10,
        rounds,
    )
    members, length = 1024, 400
    batch = {"t1": length * DT, "dt": DT, "key": 0, "save_every": length // 4, "members": members}
    many = compare(
        {
            "C, 4 lanes, random numbers included": lambda: c_many(library, mu0, members, length),
            "coadjoint ensemble, random numbers included": lambda: cj.ensemble(lie, mu0, **batch),
        },
        members * length,
        rounds,
    )
    results = {
        "machine": machine(),
        "one trajectory": one,
        "one trajectory, generic algebra": tenth,
        "ensemble, one core": many,
        "accuracy over T = 10": accuracy(library, mu0),
    }
    lines = [
        f"Measured {results['machine']['date']} on {results['machine']['processor']}, "
        f"jaxlib {results['machine']['jaxlib']}; medians of {rounds} interleaved rounds, processor time of one core.",
        "",
    ]
    for name in ("one trajectory", "one trajectory, generic algebra", "ensemble, one core"):
        lines += [f"| {name} | ns a step | ratio to C |", "| --- | --- | --- |"]
        lines += [f"| {k} | {v['nanoseconds']:.0f} | {v['ratio']:.2f} |" for k, v in results[name].items()]
        lines.append("")
    lines += ["| accuracy over T = 10 | error against dt/64 | Casimir error |", "| --- | --- | --- |"]
    lines += [
        f"| {k} | {v['error']:.1e} | {v['casimir_error']:.1e} |" for k, v in results["accuracy over T = 10"].items()
    ]
    folder = HERE / "results"
    folder.mkdir(exist_ok=True)
    (folder / "cpu.json").write_text(json.dumps(results, indent=2) + "\n")
    (folder / "cpu.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main(*(int(a) for a in sys.argv[1:]))
