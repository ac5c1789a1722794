"""What a step of a fluid costs, against the size of its matrices.

    python benchmarks/fluids.py                          # ms of processor time a step, one core, or ms on a GPU
    python benchmarks/fluids.py --quflow PATH            # beside quflow, a checkout of which lies at PATH (needs numba)
    python benchmarks/fluids.py --today PATH             # beside another version of this library, whose src is PATH
    python benchmarks/fluids.py --turns NAME PATH        # in turns with that version, which NAME names; ratios kept
    python benchmarks/fluids.py --keep H200              # in this process, kept in fluids.json as rows of that machine
    python benchmarks/fluids.py --ensemble               # 20 members at n = 33 beside a loop of solves; kept
    python benchmarks/fluids.py --figure                 # draw benchmarks/results/fluids.png from fluids.json

Torus: |omega| ~ (1 + (k/6)²)^(-1/2), 96 noise fields on 48 modes (1/k), operator norms of dt P and of the noise in a
step 0.1 each; "torus, no noise": the same without them. Sphere (the problem of quflow's own profile): spherical
harmonics l ≤ 10, no noise, dt ‖P‖/ħ = 0.314.
Relative tolerance 1e-12 for all: quflow's iteration stops when dW moves by 1e-12 of what it is.

With --turns, CORE=k in the environment ties both processes to core k, which should have nothing else to do.
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
IN_TURNS = "one core, in turns with another version"
ONE = {"OPENBLAS_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}


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


def calm_torus(n):
    """(system, W0, dt) of the same without noise."""
    import coadjoint as cj

    omega = torus_field(n)
    made = lambda scale: cj.models.sine_euler(n, omega=scale * omega, noise_modes=None)
    system, W = made(1.0)
    scale = 1 / norm2(np.asarray(W))
    return *made(scale), 0.1 / (scale * norm2(np.asarray(system.drift(W))))


def sphere(n):
    """(system, W0, dt) of quflow's problem."""
    import coadjoint as cj

    few = {} if n <= 512 else {"omega": np.eye(1, n * n, 2)[0]}  # what moves is W; all degrees would take a while
    system, _ = cj.models.euler_sphere(n, noise_modes=None, **few)
    W = sphere_field(n)
    return system, W, 0.314 / norm2(np.asarray(system.drift(W)))


PROBLEMS = {"torus": torus, "torus, no noise": calm_torus, "sphere": sphere}


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
        system, W, dt = PROBLEMS[problem](n)
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
    path = {} if source is None else {"PYTHONPATH": source}
    done = subprocess.run(
        [sys.executable, __file__, "--print", *arguments], env=os.environ | ONE | path, check=True, capture_output=True
    )
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith(b"{")]


def serve(problem, n, method, steps):
    """Milliseconds of processor time a step, once for each line that comes in: what `Worker` runs."""
    import coadjoint as cj

    if problem == "sphere" and not hasattr(cj.models, "euler_sphere"):
        return print(json.dumps(None), flush=True)
    system, W, dt = PROBLEMS[problem](n)
    run = {"dt": dt, "key": 0 if system.n_noise else None, "integrator": methods()[method]}

    def took(count):
        began = time.process_time()
        sol = cj.solve(system, W, t1=count * dt, save_every=count, **run)
        return time.process_time() - began, sol.stats

    took(1)
    _, stats = took(steps)  # after two steps no more is compiled
    start = min(took(1)[0] for _ in range(3))
    print(json.dumps({"evaluations": stats.iterations, "residual": stats.residual}), flush=True)
    for _ in sys.stdin:
        print(json.dumps(1e3 * (took(steps)[0] - start) / (steps - 1)), flush=True)
    return None


class Worker:
    """A process with one thread in which a version of the library takes steps on request."""

    def __init__(self, source, problem, n, method, steps):
        tied = ["taskset", "-c", os.environ["CORE"]] if "CORE" in os.environ else []
        asked = [problem, str(n), method, str(steps)]
        self.process = subprocess.Popen(
            [*tied, sys.executable, __file__, "--serve", *asked],
            env=os.environ | ONE | ({} if source is None else {"PYTHONPATH": source}),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.about = self.answer()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("a process that takes steps has ended: see what it wrote.")
        return json.loads(line)

    def step(self):
        """Milliseconds a step."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.answer()

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def turns(name, source, problems, sizes, only, steps, count):
    """Ratios of the times of another version and of this one: medians over turns of that within a turn; kept.

    A machine may be slower for a while: in a turn both have the same.
    """
    processor = next((x.partition(":")[2].strip() for x in open("/proc/cpuinfo") if x.startswith("model name")), "")
    for problem in problems:
        for n in sizes:
            for method in only or ["isospectral"]:
                old, new = (Worker(where, problem, n, method, steps) for where in (source, None))
                if old.about is None:
                    old.close()
                    new.close()
                    print(f"{name} has no {problem}.")
                    continue
                pairs = [(old.step(), new.step()) for _ in range(count)]
                old.close()
                new.close()
                ratios = [a / b for a, b in pairs]
                about = {"date": datetime.date.today().isoformat(), "processor": processor}
                row = {
                    "what": problem, "n": n, "method": method, "old": name, "steps": steps, "turns": count,
                    "old [ms]": round(float(np.median([a for a, _ in pairs])), 2),
                    "new [ms]": round(float(np.median([b for _, b in pairs])), 2),
                    "old / new": round(float(np.median(ratios)), 2),
                    "least and largest": [round(min(ratios), 2), round(max(ratios), 2)],
                    "evaluations, old and new": [round(w.about["evaluations"], 2) for w in (old, new)],
                    "residual, old and new": [float(f"{w.about['residual']:.1e}") for w in (old, new)],
                } | about  # fmt: skip
                kept = json.loads(RESULTS.read_text())
                alike = "what", "n", "method", "old", "processor"
                same = lambda other, row=row, alike=alike: all(other[k] == row[k] for k in alike)
                rows = [other for other in kept.get(IN_TURNS, []) if not same(other)] + [row]
                RESULTS.write_text(json.dumps(kept | {IN_TURNS: rows}, indent=1, ensure_ascii=False) + "\n")
                print(json.dumps(row, ensure_ascii=False), flush=True)


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
    found = {f"{name} [ms per member-step]": round(1e3 * min(t) / members / steps, 3) for name, t in times.items()}
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
        ax.set(title=machine, xlabel="n", ylabel="ms per step")
        ax.legend(fontsize=7)
    fig.savefig(RESULTS.with_suffix(".png"), dpi=130)


def main():
    """What the command asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="129,257,513")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--what", default="torus;sphere", help=f"of {'; '.join(PROBLEMS)}")
    parser.add_argument("--methods", help="names, separated by semicolons; all of them if not told")
    parser.add_argument("--quflow")
    parser.add_argument("--today")
    parser.add_argument("--turns", nargs=2, metavar=("NAME", "PATH"), help="such as a commit, and where its src is")
    parser.add_argument("--count", type=int, default=9, help="turns")
    parser.add_argument("--serve", nargs=4, metavar=("WHAT", "N", "METHOD", "STEPS"), help="a process of --turns")
    parser.add_argument("--figure", action="store_true")
    parser.add_argument("--ensemble", action="store_true")
    parser.add_argument("--keep", metavar="MACHINE")
    parser.add_argument("--print", action="store_true", help="rows as JSON, in this process")
    given = parser.parse_args()
    sizes = [int(n) for n in given.sizes.split(",")]
    only = None if given.methods is None else [name.strip() for name in given.methods.split(";")]
    problems = [name.strip() for name in given.what.split(";")]
    if given.serve:
        what, n, method, steps = given.serve
        return serve(what, int(n), method, int(steps))
    if given.turns:
        return turns(*given.turns, problems, sizes, only, given.steps, given.count)
    if given.figure:
        return figure()
    if given.ensemble:
        return ensemble()
    if given.print or given.keep:
        rows = quflow(given.quflow, sizes, given.steps) if given.quflow else (
            row for what in problems for row in ours(what, sizes, given.steps, only)
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
