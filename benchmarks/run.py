"""How fast, beside hand-written C, numba, diffrax and torchsde: `make bench`.

All contenders run interleaved in one process, on one core, each for several rounds; ratios are medians of the ratios
within a round. Accuracy stands beside speed: the error against a fine solution on the same path, and the drift of the
Casimirs. Writes benchmarks/results/cpu.json, cpu.md, cpu.png and scaling.png.

    python benchmarks/run.py [--rounds 7] [--only one many work start scaling]
"""

import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import contenders
import jax
import jax.numpy as jnp
import jaxlib
import matplotlib
import numpy as np

import coadjoint as cj

matplotlib.use("Agg")
import matplotlib.pyplot as plt

RESULTS = Path(__file__).parent / "results"
MU0 = np.array([-(0.5**0.5), 0.5**0.5, 0.0] * 2)
DT = 0.01


def users_system(algebra: cj.LieAlgebra) -> cj.System:
    """The heavy top as a user writes it: a lambda over captured arrays."""
    inertia, chi = jnp.asarray(contenders.INERTIA), jnp.asarray(contenders.CHI)
    return cj.System(
        algebra,
        lambda mu: 0.5 * mu[:3] @ (mu[:3] / inertia) - chi @ mu[3:],
        noise=[cj.salt([*contenders.ALPHA, 0.0, 0.0, 0.0])],
    )


def se3_constants() -> np.ndarray:
    """Structure constants of se(3), as if nothing else were known of it."""
    bracket = jax.vmap(jax.vmap(cj.SE3().bracket, (None, 0)), (0, None))
    return np.asarray(bracket(jnp.eye(6), jnp.eye(6)))


class Ours:
    """coadjoint through its public functions."""

    def __init__(self, name: str, algebra: cj.LieAlgebra, **options):
        self.name, self.version = name, cj.__version__
        self.system, self.options = users_system(algebra), options

    def random(self, mu0: np.ndarray, steps: int, dt: float) -> np.ndarray:
        """One trajectory, random numbers included."""
        sol = cj.solve(self.system, mu0, t1=steps * dt, dt=dt, key=0, save_every=steps, **self.options)
        return sol.mu[-1]

    def one(self, mu0: np.ndarray, dW: np.ndarray, dt: float) -> np.ndarray:
        """One trajectory along prescribed increments."""
        driver = cj.Increments(dW[:, None])
        options = {"driver": driver, "save_every": len(dW), **self.options}
        return cj.solve(self.system, mu0, t1=len(dW) * dt, dt=dt, **options).mu[-1]

    def many(self, mu0: np.ndarray, members: int, steps: int, dt: float) -> np.ndarray:
        """An ensemble."""
        run = {"members": members, "t1": steps * dt, "dt": dt, "key": 0, "save_every": steps, **self.options}
        return cj.ensemble(self.system, mu0, **run).mu[:, -1]


def compare(work: dict[str, tuple[Callable[[], object], int]], rounds: int) -> dict[str, dict[str, float]]:
    """Seconds of work a unit for each contender, and the ratio to the first one: medians over interleaved rounds."""
    seconds: dict[str, list[float]] = {name: [] for name in work}
    for fn, _ in work.values():
        fn()  # compile
    for _ in range(rounds):
        for name, (fn, units) in work.items():
            began = time.perf_counter()
            fn()
            seconds[name].append((time.perf_counter() - began) / units)
    first = next(iter(seconds.values()))
    return {
        name: {
            "nanoseconds": 1e9 * statistics.median(times),
            "ratio": statistics.median(t / c for t, c in zip(times, first, strict=True)),
        }
        for name, times in seconds.items()
    }


def one_trajectory(others: list, rounds: int) -> dict:
    """Heavy top, one trajectory: all draw their random numbers, but C, which gets them given."""
    steps = {"C": 10**6, "numba": 10**4, "diffrax": 10**4, "diffrax, as documented": 10**4, "torchsde": 200}
    path = np.random.default_rng(0).standard_normal(steps["C"]) * DT**0.5
    ours = (
        (Ours("coadjoint, user's lambda", cj.SE3()), 10**6),
        (Ours("coadjoint, structure constants", cj.StructureConstants(se3_constants())), 10**6),
    )
    c, *rest = others
    work = {c.name: (lambda: c.one(MU0, path, DT), steps["C"])}
    work |= {o.name: (lambda o=o, n=n: o.random(MU0, n, DT), n) for o, n in ours}
    work |= {o.name: (lambda o=o: o.random(MU0, steps[o.name], DT), steps[o.name]) for o in rest}
    return compare(work, rounds)


def ensembles(others: list, rounds: int) -> dict:
    """Heavy top, ensembles, random numbers included in all; ours and C with 10⁴ members over 10⁴ steps."""
    size = {"C": (10**4, 10**4), "numba": (100, 10**3), "torchsde": (10**4, 20)}
    size |= {"diffrax": (1024, 100), "diffrax, as documented": (1024, 100)}
    c, *rest = others
    ours = (
        Ours("coadjoint, user's lambda", cj.SE3()),
        Ours("coadjoint, structure constants", cj.StructureConstants(se3_constants())),
    )
    work = {c.name: (lambda: c.many(MU0, *size["C"], DT), 10**8)}
    work |= {o.name: (lambda o=o: o.many(MU0, *size["C"], DT), 10**8) for o in ours}
    work |= {o.name: (lambda o=o: o.many(MU0, *size[o.name], DT), size[o.name][0] * size[o.name][1]) for o in rest}
    return compare(work, rounds)


def work_precision(others: list, rounds: int, paths: int = 16) -> dict:
    """Strong error at T = 10 (rms over paths, against a fine solution), Casimir error and time, for four step sizes.

    All methods use the increments of the path alone, and the leading term of their strong error is the same.
    """
    T, finest = 10.0, 2.0**-12
    dW = np.random.default_rng(1).standard_normal((paths, round(T / finest))) * finest**0.5
    ours = Ours("coadjoint", cj.SE3())
    reference = np.array([ours.one(MU0, w, finest) for w in dW])
    all_of_them = [ours, *(o for o in others if o.name != "diffrax, as documented")]
    out: dict[str, list] = {o.name: [] for o in all_of_them}
    for level in (5, 6, 7, 8):
        dt = 2.0**-level
        coarse = dW.reshape(paths, -1, round(dt / finest)).sum(axis=2)
        for o in all_of_them:
            ends = np.array([o.one(MU0, path, dt) for path in coarse])
            seconds = []
            for _ in range(1 if o.name == "torchsde" else rounds):
                began = time.perf_counter()
                o.one(MU0, coarse[0], dt)
                seconds.append(time.perf_counter() - began)
            drift = max(np.abs(_casimirs(end) - _casimirs(MU0)).max() for end in ends)
            out[o.name].append(
                {
                    "dt": dt,
                    "error": float(np.sqrt(np.mean(np.sum((ends - reference) ** 2, axis=1)))),
                    "casimir_error": float(drift),
                    "seconds": statistics.median(seconds),
                }
            )
    return out


def _casimirs(mu: np.ndarray) -> np.ndarray:
    return np.array([mu[:3] @ mu[3:], mu[3:] @ mu[3:]])


# What a fresh process does: time to the first result, memory.

COLD = """
import time; began = time.perf_counter()
import coadjoint as cj
system, mu0 = cj.models.{model}
imported = time.perf_counter() - began
key = {{"key": 0}} if system.n_noise else {{}}
cj.solve(system, mu0, t1=100.0, dt=0.01, save_every=100, **key)
print(imported, time.perf_counter() - began)
"""
MODELS = ("heavy_top()", "rigid_body()", "kirchhoff()")


def cold_starts() -> dict[str, dict[str, float]]:
    """Import to the end of a run of 10⁴ steps, in a fresh process, for the models of at most eight dimensions."""
    out = {}
    for model in MODELS:
        runs = [_fresh(COLD.format(model=model)) for _ in range(3)]
        imported, total = (statistics.median(float(r.split()[i]) for r in runs) for i in (0, 1))
        out[model] = {"import": imported, "total": total}
    return out


MEMORY = """
import coadjoint as cj
system, mu0 = cj.models.heavy_top()
run = dict(t1={steps} * 0.01, dt=0.01, key=0, save_every={steps} // 10)
members = {members}
import time; began = time.perf_counter()
if members == 1:
    cj.solve(system, mu0, **run)
else:
    cj.ensemble(system, mu0, members=members, reduce=cj.Mean(), **run)
first = time.perf_counter() - began
began = time.perf_counter()
if members == 1:
    cj.solve(system, mu0, **run)
else:
    cj.ensemble(system, mu0, members=members, reduce=cj.Mean(), **run)
seconds = time.perf_counter() - began
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))  # of this program alone
print(seconds, int(peak.split()[1]) / 1024)
"""


def scaling() -> dict[str, list[dict[str, float]]]:
    """Time and memory against steps (one trajectory, ten states saved) and members (100 steps, only means kept)."""

    def measure(steps: int, members: int) -> dict[str, float]:
        seconds, megabytes = _fresh(MEMORY.format(steps=steps, members=members)).split()
        return {"steps": steps, "members": members, "seconds": float(seconds), "megabytes": float(megabytes)}

    return {
        "steps": [measure(10**k, 1) for k in (4, 5, 6, 7)],
        "members": [measure(100, 10**k) for k in (3, 4, 5, 6)],
    }


def _fresh(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout


# Where it was measured, and how it is shown.


def machine(others: list) -> dict[str, str]:
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
        "jaxlib": jaxlib.__version__,
        "coadjoint": cj.__version__,
        **{o.name: o.version for o in others},
    }


def table(results: dict) -> str:
    """The results as Markdown."""
    where = results["machine"]
    lines = [
        f"Measured {where['date']} on {where['processor']}, one core; jaxlib {where['jaxlib']}, "
        + ", ".join(f"{k} {where[k]}" for k in ("C", "numba", "diffrax", "torchsde") if k in where)
        + ". Medians of interleaved rounds; the ratio is to C in the same round.",
        "",
    ]
    for name in ("one trajectory", "ensemble"):
        if name in results:
            lines += [f"| {name} | ns per step | ratio to C |", "| --- | --- | --- |"]
            lines += [f"| {k} | {v['nanoseconds']:.0f} | {v['ratio']:.2f} |" for k, v in results[name].items()]
            lines.append("")
    if "work and precision" in results:
        lines += ["| T = 10, dt = 1/128 | error | Casimir error | milliseconds |", "| --- | --- | --- | --- |"]
        for k, rows in results["work and precision"].items():
            r = rows[2]
            lines.append(f"| {k} | {r['error']:.1e} | {r['casimir_error']:.1e} | {1e3 * r['seconds']:.2f} |")
        lines.append("")
    if "cold start" in results:
        lines += ["| cold start, 10⁴ steps | import, s | to the end, s |", "| --- | --- | --- |"]
        lines += [f"| `{k}` | {v['import']:.2f} | {v['total']:.2f} |" for k, v in results["cold start"].items()]
        lines.append("")
    if "scaling" in results:
        lines += ["| steps | members | seconds | largest memory, MiB |", "| --- | --- | --- | --- |"]
        for r in [*results["scaling"]["steps"], *results["scaling"]["members"]]:
            lines.append(f"| {r['steps']:.0e} | {r['members']:.0e} | {r['seconds']:.3g} | {r['megabytes']:.0f} |")
        lines.append("")
    return "\n".join(lines)


STYLE = {"coadjoint": ("o-", "C0"), "C": ("s--", "k"), "numba": ("^:", "C2"), "diffrax": ("v:", "C1")}


def draw(results: dict) -> None:
    """Work and precision; time and memory against size."""
    if "work and precision" in results:
        fig, axes = plt.subplots(1, 2, figsize=(8.5, 3.6), constrained_layout=True, sharex=True)
        for name, rows in results["work and precision"].items():
            mark, colour = STYLE.get(name, ("d:", "C3"))
            ms = [1e3 * r["seconds"] for r in rows]
            for ax, what in zip(axes, ("error", "casimir_error"), strict=True):
                ax.loglog(ms, [max(r[what], 1e-17) for r in rows], mark, color=colour, label=name)
        axes[0].set_ylabel("strong error of μ at T = 10")
        axes[1].set_ylabel("error of the Casimirs at T = 10")
        for ax in axes:
            ax.set_xlabel("time on one core [ms]")
            ax.grid(alpha=0.3)
        axes[1].legend()
        fig.savefig(RESULTS / "cpu.png", dpi=160)
    if "scaling" in results:
        fig, axes = plt.subplots(2, 2, figsize=(7.5, 5.2), constrained_layout=True, sharex="col")
        for column, (what, label) in enumerate(
            (("steps", "steps of one trajectory"), ("members", "members, 100 steps"))
        ):
            rows = results["scaling"][what]
            x = np.array([r[what] for r in rows], float)
            seconds = np.array([r["seconds"] for r in rows])
            axes[0, column].loglog(x, seconds, "o-")
            axes[0, column].loglog(x, seconds[-1] * x / x[-1], "k:", lw=1, label="linear")
            axes[1, column].semilogx(x, [r["megabytes"] for r in rows], "o-")
            axes[1, column].set_ylim(0, 1.2 * max(r["megabytes"] for r in rows))
            axes[1, column].set_xlabel(label)
            axes[0, column].legend()
            for ax in axes[:, column]:
                ax.grid(alpha=0.3)
        axes[0, 0].set_ylabel("time [s]")
        axes[1, 0].set_ylabel("largest memory [MiB]")
        fig.savefig(RESULTS / "scaling.png", dpi=160)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", nargs="+", choices=("one", "many", "work", "start", "scaling"))
    parser.add_argument("--core", type=int, default=0, help="the core to run on")
    options = parser.parse_args()
    only = options.only or ("one", "many", "work", "start", "scaling")
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {options.core})
    others = [contenders.C()]
    documented = partial(contenders.Diffrax, fastest=False)
    for contender in (contenders.Numba, contenders.Diffrax, documented, contenders.Torchsde):
        try:
            others.append(contender())
        except ImportError as error:
            print(f"{error.name} is not installed: left out.")
    results: dict = {"machine": machine(others)}
    stages: dict[str, tuple[str, Callable[[], dict]]] = {
        "one": ("one trajectory", lambda: one_trajectory(others, options.rounds)),
        "many": ("ensemble", lambda: ensembles(others, min(options.rounds, 3))),
        "work": ("work and precision", lambda: work_precision(others, options.rounds)),
        "start": ("cold start", cold_starts),
        "scaling": ("scaling", scaling),
    }
    for stage in only:
        name, measure = stages[stage]
        print(f"{name} …", flush=True)
        results[name] = measure()
        if options.only is None:  # nothing measured is lost
            RESULTS.mkdir(exist_ok=True)
            (RESULTS / "cpu.json").write_text(json.dumps(results, indent=2) + "\n")
            (RESULTS / "cpu.md").write_text(table(results) + "\n")
    print(table(results))
    if options.only is None:
        draw(results)


if __name__ == "__main__":
    main()
