"""What a step of a fluid costs, against the size of its matrices.

    python benchmarks/fluids.py                          # ms of processor time a step, one core, or ms on a GPU
    python benchmarks/fluids.py --quflow PATH            # beside quflow, a checkout of which lies at PATH (needs numba)
    python benchmarks/fluids.py --today PATH             # beside another version of this library, whose src is PATH
    python benchmarks/fluids.py --keep H200              # in this process, kept in fluids.json as rows of that machine
    python benchmarks/fluids.py --ensemble               # 20 members at n = 33 beside a loop of solves; kept
    python benchmarks/fluids.py --figure                 # draw benchmarks/results/fluids.png from fluids.json

Torus: |omega| ~ (1 + (k/6)²)^(-1/2), 96 noise fields on 48 modes (1/k), operator norms of dt P and of the noise in a
step 0.1 each. Sphere (the problem of quflow's own profile): spherical harmonics l ≤ 10, no noise, dt ‖P‖/ħ = 0.314.
Relative tolerance 1e-12 for all: quflow's iteration stops when dW moves by 1e-12 of what it is.
"""  # fmt: skip

import argparse
import datetime
import json
import os
import subprocess
import sys
import time
import types
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).parent / "results" / "fluids.json"
TOL = 1e-12


def sphere_field(n, l_max=10, seed=1):
    """A random matrix of spherical harmonics up to degree l_max, of operator norm 1."""
    from scipy.linalg import eigh_tridiagonal

    rng = np.random.default_rng(seed)
    s = (n - 1) / 2
    z, r = s - np.arange(n), np.sqrt((np.arange(n) + 1.0) * (n - 1 - np.arange(n)))
    W = np.zeros((n, n), complex)
    for m in range(l_max + 1):
        j = np.arange(n - m)
        diagonal, beside = 2 * s * (s + 1) - 2 * z[j] * z[j + m], -(r[j] * r[j + m])[:-1]
        _, V = eigh_tridiagonal(diagonal, beside, select="i", select_range=(0, l_max - m))
        V = V[:, int(m == 0) :]
        x = V @ (rng.normal(size=V.shape[1]) * (1 if m else 1j) + 1j * bool(m) * rng.normal(size=V.shape[1]))
        W[j, j + m] += x
        if m:
            W[j + m, j] -= np.conj(x)
    return W / np.linalg.norm(W, 2)


def torus_field(n, seed=1):
    """Coefficients of a random real field, as omega[m1 % n, m2 % n]."""
    rng = np.random.default_rng(seed)
    m = np.where(np.arange(n) <= n // 2, np.arange(n), np.arange(n) - n)
    k = np.hypot(m[:, None], m)
    size = np.where((k > 0) & (k <= n // 2), 1 / np.sqrt(1 + (k / 6) ** 2), 0)
    c = (rng.normal(size=k.shape) + 1j * rng.normal(size=k.shape)) * size
    return c + np.conj(np.roll(c[::-1, ::-1], (1, 1), (0, 1)))


def norm2(A, steps=30):
    """The largest singular value of a skew-Hermitian matrix, by powers."""
    v = np.random.default_rng(0).normal(size=len(A)) + 0j
    if "coadjoint" in sys.modules:  # where JAX computes, which for a GPU is a hundred times faster
        import jax.numpy as np_
    else:
        np_ = np
    A, v = np_.asarray(A), np_.asarray(v)
    for _ in range(steps):
        v = A @ (A @ (v / np_.linalg.norm(v)))
    return float(np_.sqrt(np_.linalg.norm(v)))


def torus(n):
    """(system, W0, dt)."""
    import coadjoint as cj

    half = [(a, b) for a in range(-6, 7) for b in range(7) if (b > 0 or a > 0) and a * a + b * b <= 36]
    modes = sorted(half, key=lambda k: (k[0] ** 2 + k[1] ** 2, k))[:48]
    both = [k for k in modes for _ in range(2)]
    sizes = np.array([phase / np.hypot(*k) for k in modes for phase in (1, 1j)])

    def made(amplitude, scale):
        return cj.models.sine_euler(n, omega=scale * omega, noise_modes=both, amplitude=amplitude * sizes)

    omega = torus_field(n)
    system, W = made(1.0, 1.0)
    scale = 1 / norm2(np.asarray(W))
    dt = 0.1 / (scale * norm2(np.asarray(system.drift(W))))
    draws = [np.random.default_rng(i).normal(size=system.n_noise) for i in range(3)]
    per_root_second = np.mean([norm2(np.asarray(system.noise(W, d))) for d in draws])
    return *made(0.1 / (np.sqrt(dt) * per_root_second), scale), dt


def sphere(n):
    """(system, W0, dt) of quflow's problem."""
    import coadjoint as cj

    few = {} if n <= 512 else {"omega": np.eye(1, n * n, 2)[0]}  # what moves is W; all degrees would take a while
    system, _ = cj.models.euler_sphere(n, noise_modes=None, **few)
    W = sphere_field(n)
    return system, W, 0.314 / norm2(np.asarray(system.drift(W)))


def methods():
    """By name."""
    import coadjoint as cj

    found = {
        "isospectral": cj.IsospectralMidpoint(tol=TOL),
        "TMK, exp": cj.TMK(tol=TOL),
        "Lie midpoint, exp": cj.LieMidpoint(tol=TOL),
    }
    try:
        found["TMK, Cayley"] = cj.TMK(tol=TOL, tau=cj.Cayley())
    except TypeError:  # a version before there was one
        pass
    return found


def ours(problem, sizes, steps, only=None):
    """Rows of results: processor time on a CPU, time by the clock on a GPU, least of three; states kept every 100."""
    import jax

    import coadjoint as cj

    clock = time.process_time if jax.default_backend() == "cpu" else time.perf_counter
    for n in sizes:
        system, W, dt = {"torus": torus, "sphere": sphere}[problem](n)
        for name, integrator in methods().items():
            if only is not None and name not in only:
                continue

            def run(count, every, integrator=integrator, system=system, W=W, dt=dt):
                began = clock()
                key = 0 if system.n_noise else None
                sol = cj.solve(system, W, t1=count * dt, dt=dt, key=key, integrator=integrator, save_every=every)
                return clock() - began, sol.stats

            began = time.perf_counter()
            run(1, 1)
            first = time.perf_counter() - began
            start = min(run(1, 1)[0] for _ in range(2))
            every = 100 if steps % 100 == 0 else steps
            seconds, stats = min((run(steps, every) for _ in range(3)), key=lambda pair: pair[0])
            used = jax.local_devices()[0].memory_stats()  # None on a CPU
            yield {
                "what": problem, "n": n, "method": name, "ms": 1e3 * (seconds - start) / (steps - 1),
                "evaluations": stats.iterations, "residual": stats.residual, "first call (s)": first,
                "on": jax.devices()[0].device_kind,
            } | ({} if used is None else {"most memory so far (GB)": used["peak_bytes_in_use"] / 1e9})  # fmt: skip


def quflow(path, sizes, steps):
    """Rows of results of quflow's isospectral midpoint, on the problem of the sphere."""
    package = types.ModuleType("quflow")
    package.__path__ = [str(Path(path) / "quflow")]  # its __init__ wants libraries for plots and clusters
    sys.modules["quflow"] = package
    from quflow.geometry import hbar  # type: ignore[import-not-found]
    from quflow.integrators.isospectral import isomp_fixedpoint  # type: ignore[import-not-found]
    from quflow.laplacian import solve_poisson  # type: ignore[import-not-found]

    for n in sizes:
        W = sphere_field(n)
        dt = 0.314 * hbar(n) / norm2(solve_poisson(W))
        moved = isomp_fixedpoint(W.copy(), dt, steps=1, compsum=True, maxit=50) - W
        options = {"tol": TOL * np.linalg.norm(moved, np.inf), "maxit": 50}
        W = isomp_fixedpoint(W, dt, steps=3, **options)
        best = np.inf
        for _ in range(3):
            began = time.process_time()
            isomp_fixedpoint(W, dt, steps=steps, **options)
            best = min(best, time.process_time() - began)
        yield {"what": "sphere", "n": n, "method": "quflow", "ms": 1e3 * best / steps}


def in_one_thread(arguments, source=None):
    """The rows that this file prints when it is run with other arguments, in a process with one thread."""
    one = {"OPENBLAS_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
    path = {} if source is None else {"PYTHONPATH": source}
    done = subprocess.run(
        [sys.executable, __file__, "--print", *arguments], env=os.environ | one | path, check=True, capture_output=True
    )
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith(b"{")]


def keep(machine, rows):
    """Rows of results as those of a machine, in the place of older ones."""
    import jax

    kept = json.loads(RESULTS.read_text())
    about = {"date": datetime.date.today().isoformat(), "jax": jax.__version__}
    for row in rows:
        new = {"machine": machine, **row, **about}
        same = lambda old, new=new: all(old[k] == new[k] for k in ("machine", "what", "method", "n"))
        kept["rows"] = [old for old in kept["rows"] if not same(old)] + [new]
        RESULTS.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
        print(json.dumps(new), flush=True)


def ensemble(n=33, members=20, steps=40):
    """Processor time a member-step of an ensemble, and of a loop of solves, in turns, the least of five; kept."""
    import jax

    import coadjoint as cj

    system, W = cj.models.sine_euler(n=n)
    run = {"t1": 0.01 * steps, "dt": 0.01, "save_every": steps, "integrator": cj.IsospectralMidpoint()}
    work = {
        "ensemble": lambda: cj.ensemble(system, W, members=members, key=0, **run),
        "loop of solves": lambda: [cj.solve(system, W, key=k, **run) for k in range(members)],
    }
    times = {name: [] for name in work}
    for turn in range(6):
        for name, go in work.items():
            began = time.process_time()
            go()
            times[name] += [time.process_time() - began] if turn else []
    found = {f"{name} [ms a member-step]": round(1e3 * min(t) / members / steps, 3) for name, t in times.items()}
    ratio = round(min(times["ensemble"]) / min(times["loop of solves"]), 2)
    kept = json.loads(RESULTS.read_text())
    kept["ensemble"] = {"n": n, "members": members, "jax": jax.__version__, **found, "ensemble / loop": ratio}
    RESULTS.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    print(kept["ensemble"])


def figure():
    """Cost against n, log–log: a panel for each machine, a colour for each method, the floor dotted."""
    import matplotlib.pyplot as plt

    recorded = json.loads(RESULTS.read_text())
    rows, machines = recorded["rows"], list(recorded["machines"])
    kinds = list(dict.fromkeys((r["what"], r["method"]) for r in rows))
    coloured = [kind for kind in kinds if kind[1] not in ("product", "quflow")]
    fig, axes = plt.subplots(1, len(machines), figsize=(4.2 * len(machines), 4.6), layout="constrained")
    for ax, machine in zip(axes, machines, strict=True):
        for kind in kinds:
            found = sorted(
                (r["n"], r["ms"]) for r in rows if (r["machine"], r["what"], r["method"]) == (machine, *kind)
            )
            if found:
                style = {"product": ":", "quflow": "--"}.get(kind[1], "-")
                marker = {"torus": "s", "sphere": "o"}.get(kind[0], "^")
                color = f"C{coloured.index(kind)}" if kind in coloured else "black"
                ax.loglog(*zip(*found, strict=True), style, marker=marker, ms=4, color=color, label=", ".join(kind))
        sizes = sorted({r["n"] for r in rows if r["machine"] == machine} - {4095})
        ax.set_xticks(sizes, list(map(str, sizes)))
        ax.minorticks_off()
        ax.grid(alpha=0.3)
        ax.set(title=machine, xlabel="n", ylabel="ms a step")
        ax.legend(fontsize=7)
    fig.savefig(RESULTS.with_suffix(".png"), dpi=130)


def main():
    """What the command asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="129,257,513")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--what", default="torus,sphere")
    parser.add_argument("--methods", help="names, separated by semicolons; all of them if not told")
    parser.add_argument("--quflow")
    parser.add_argument("--today")
    parser.add_argument("--figure", action="store_true")
    parser.add_argument("--ensemble", action="store_true")
    parser.add_argument("--keep", metavar="MACHINE")
    parser.add_argument("--print", action="store_true", help="rows as JSON, in this process")
    given = parser.parse_args()
    sizes = [int(n) for n in given.sizes.split(",")]
    only = None if given.methods is None else [name.strip() for name in given.methods.split(";")]
    if given.figure:
        return figure()
    if given.ensemble:
        return ensemble()
    if given.print or given.keep:
        rows = quflow(given.quflow, sizes, given.steps) if given.quflow else (
            row for what in given.what.split(",") for row in ours(what, sizes, given.steps, only)
        )  # fmt: skip
        if given.keep:
            return keep(given.keep, rows)
        for row in rows:
            print(json.dumps(row), flush=True)
        return None
    same = ["--sizes", given.sizes, "--steps", str(given.steps), "--what", given.what]
    same += [] if given.methods is None else ["--methods", given.methods]
    for row in in_one_thread(same):
        print(row, flush=True)
    if given.today:
        for row in in_one_thread(same, given.today):
            print("today", row, flush=True)
    if given.quflow:
        for row in in_one_thread([*same, "--quflow", given.quflow]):
            print(row, flush=True)
    return None


if __name__ == "__main__":
    main()
