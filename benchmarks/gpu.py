"""How fast on a GPU, beside CUDA C++, XLA by hand and diffrax, and what comes out: `make bench-gpu`.

Rates are members × steps per second of the stochastic heavy top, over 10⁶ steps of 65,536 members and 10⁵ of 1,048,576;
XLA and diffrax are given 2²⁸ members × steps, since theirs do not depend on it. Ours are whole calls of
`cj.ensemble`, kernels in the cache. The CUDA C++ of benchmarks/cuda is compiled by nvcc where there is one; `--cuda`
names a program that is there already. Then bits against the CPU, a long run with statistics, the Casimirs, an exactly
solvable case, and the time to a first result. Writes benchmarks/results/gpu.json and gpu.md.

    python benchmarks/gpu.py [--cuda PROGRAM] [--only rates bits long casimirs exact start]
"""

import argparse
import datetime
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import contenders
import jax
import jax.numpy as jnp
import numpy as np

import coadjoint as cj

HERE = Path(__file__).parent
RESULTS = HERE / "results"
MU0 = np.array([-(0.5**0.5), 0.5**0.5, 0.0] * 2)
DT = 0.01
STEPS = {2**16: 10**6, 2**20: 10**5}  # of ensembles of so many members


def heavy_top() -> cj.System:
    """As a user writes it: a lambda over captured arrays."""
    inertia, chi = jnp.asarray(contenders.INERTIA), jnp.asarray(contenders.CHI)
    noise = [cj.salt([*contenders.ALPHA, 0.0, 0.0, 0.0])]
    return cj.System(cj.SE3(), lambda mu: 0.5 * mu[:3] @ (mu[:3] / inertia) - chi @ mu[3:], noise=noise)


def best(run: Callable[[], object], times: int = 3) -> float:
    """Seconds of the fastest of some calls, after one that compiles."""
    run()
    out = []
    for _ in range(times):
        began = time.perf_counter()
        run()
        out.append(time.perf_counter() - began)
    return min(out)


# Rates.


def ours(members: int, steps: int, **options) -> float:
    """Through the front door, all included."""
    run = {"members": members, "t1": steps * DT, "dt": DT, "save_every": steps, "backend": "native-gpu", **options}
    system = heavy_top()
    return members * steps / best(lambda: cj.ensemble(system, MU0, key=0, **run), 2)


def by_xla(members: int, steps: int) -> float:
    """A scan over steps of arrays of all members, six fixed-point iterations written out, as one does it in JAX."""
    inertia, alpha = (jnp.asarray(x)[:, None] for x in (contenders.INERTIA, contenders.ALPHA))

    def cross(a, b):
        return jnp.stack([a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]])

    def flow(w, p, g):
        x = jnp.sum(w * w, axis=0)
        a = 1 - x / 6 * (1 - x / 20 * (1 - x / 42 * (1 - x / 72)))
        b = 0.5 * (1 - x / 12 * (1 - x / 30 * (1 - x / 56)))
        d = (1 - x / 20 * (1 - x / 42 * (1 - x / 72))) / 6
        y, v = cross(g, w), jnp.zeros_like(w).at[2].set(DT)
        g1 = g + a * y + b * cross(y, w)
        y, vw = cross(p, w), cross(v, w)
        return p + a * y + b * cross(y, w) + cross(g1, v + b * vw + d * cross(vw, w)), g1

    def step(state, key):
        p, g = state
        noise = alpha * np.sqrt(DT) * jax.random.normal(key, (members,))
        w = DT / inertia * p + noise
        for _ in range(6):
            p1, _ = flow(w, p, g)
            w = DT / inertia * 0.5 * (p + p1) + noise
        return flow(w, p, g), None

    @jax.jit
    def run(key):
        start = tuple(jnp.broadcast_to(jnp.asarray(MU0[k : k + 3])[:, None], (3, members)) for k in (0, 3))
        return jax.lax.scan(step, start, jax.random.split(key, steps))[0]

    return members * steps / best(lambda: jax.block_until_ready(run(jax.random.key(0))))


def by_diffrax(members: int, steps: int, fastest: bool = True, whole: int | None = None) -> float | None:
    """If it is installed: with its fastest settings, or with those of its documentation."""
    try:
        diffrax = contenders.Diffrax(fastest)
    except ImportError:
        return None
    return members * steps / best(lambda: diffrax.many(MU0, members, steps, DT, whole), 2)


def cuda(program: str | None) -> list[dict]:
    """The rates of the CUDA C++, with as many registers as the compiler likes and with fewer, to both tolerances."""
    programs = [program] if program else []
    nvcc = shutil.which("nvcc")
    if not programs and nvcc is not None:
        (HERE / "cuda" / "build").mkdir(exist_ok=True)
        compiling = []
        for registers, *loose in ((64,), (128,), (255,), (255, "-DLOOSE")):
            programs.append(str(HERE / "cuda" / "build" / f"heavy_top_{registers}{''.join(loose)}"))
            flags = ["-O3", "-arch=native", f"-maxrregcount={registers}", *loose, "-o", programs[-1]]
            compiling.append(subprocess.Popen([nvcc, *flags, str(HERE / "cuda" / "heavy_top.cu")]))
        assert not any(process.wait() for process in compiling)
    sizes = [str(x) for both in STEPS.items() for x in both]
    said = [subprocess.run([p, *sizes], capture_output=True, text=True, check=True).stdout for p in programs]
    lines = [line for text in said for line in text.splitlines()]
    return [json.loads(line) for line in lines]


def rates(program: str | None) -> dict:
    """Members × steps per second, of all contenders."""
    out: dict[str, dict[str, float | None]] = {}
    found = cuda(program)
    for members, long in STEPS.items():
        row: dict[str, float | None] = {}
        for name in ("fixed point", "chord", "chord, polynomials", "chord, looser", "chord, polynomials, looser"):
            own = [x["rate"] for x in found if x["method"] == name and x["members"] == members]
            row[f"CUDA C++, {name}"] = max(own) if own else None
        row["coadjoint"] = ours(members, long)
        row["coadjoint, tol 1e-13, drift_free=False"] = ours(
            members, long // 4, integrator=cj.TMK(1e-13, drift_free=False)
        )
        row["coadjoint, fixed point, tol 1e-13"] = ours(members, long // 4, integrator=cj.TMK(1e-13, "fixed_point"))
        row["XLA by hand"] = by_xla(members, 2**28 // members)
        row["diffrax"] = by_diffrax(members, 2**28 // members)
        row["diffrax, as documented"] = by_diffrax(members, 2**28 // members, fastest=False)
        row["diffrax, as documented, first steps of 10⁵"] = by_diffrax(members, 2**28 // members, False, 10**5)
        out[str(members)] = row
        print(members, json.dumps(row), flush=True)
    return out


# What comes out.


def so4() -> tuple[cj.System, np.ndarray]:
    """A user's so(4), by its structure constants."""
    pairs = [(i, j) for i in range(4) for j in range(i)]
    basis = np.zeros((6, 4, 4))
    for k, (i, j) in enumerate(pairs):
        basis[k, i, j], basis[k, j, i] = 1.0, -1.0
    products = np.einsum("aij,bjk->abik", basis, basis)
    brackets = products - products.swapaxes(0, 1)
    constants = np.stack([brackets[:, :, i, j] for i, j in pairs], axis=-1)
    energy = lambda mu: 0.5 * mu @ (mu / jnp.arange(1.0, 7.0))
    noise = [cj.salt([0.1, 0.0, 0.2, 0.0, 0.1, 0.0])]
    return cj.System(cj.StructureConstants(constants), energy, noise), np.full(6, 0.5)


def swinging() -> tuple[cj.System, np.ndarray]:
    """A heavy top in a field with sin and exp, in parts that Strang takes one by one."""
    turning = [lambda mu, k=k: 0.5 * mu[k] ** 2 / contenders.INERTIA[k] for k in range(3)]
    pulling = [lambda mu: -jnp.sin(mu[5] + 0.1 * mu[3]), lambda mu: 0.1 * jnp.exp(mu[3])]
    return cj.System(cj.SE3(), [*turning, *pulling], [cj.salt([0.01, 0.02, 0.03, 0.0, 0.0, 0.0])]), MU0


def sine_euler() -> tuple[cj.System, np.ndarray]:
    """On su(3), its energy in four parts that Strang takes one by one: of the modes ±k, whose matrices commute."""
    system, mu0 = cj.models.sine_euler(3)
    algebra, turn = system.algebra, np.exp(2j * np.pi / 3)
    shift, clock = np.roll(np.eye(3), 1, axis=1), np.diag(turn ** np.arange(3))
    parts = []
    for a, b in ((1, 0), (0, 1), (1, 1), (1, 2)):
        mode = np.linalg.matrix_power(clock, a) @ np.linalg.matrix_power(shift, b)
        pair = [algebra.coordinates(jnp.asarray(x - x.conj().T)) for x in (mode, 1j * mode)]
        basis = np.linalg.qr(np.stack(pair, axis=1))[0]
        scale = float(system.h(algebra.element(jnp.asarray(basis[:, 0]))))
        parts.append(lambda mu, c=scale, basis=basis: c * jnp.sum((algebra.coordinates(mu) @ basis) ** 2))
    assert np.isclose(sum(part(mu0) for part in parts), system.h(mu0), rtol=1e-14)
    return cj.System(algebra, parts, system.noises, side=system.side), mu0


CASES = {
    "heavy top": (heavy_top(), MU0),
    "rigid body": cj.models.rigid_body(),
    "Kirchhoff": cj.models.kirchhoff(),
    "Maxwell–Bloch": cj.models.maxwell_bloch(),
    "so(4)": so4(),
    "sin and exp": swinging(),
    "su(3)": sine_euler(),
}
METHODS = {
    "TMK": cj.TMK(),
    "Euler–Maruyama-MK": cj.EulerMaruyamaMK(),
    "Strang": cj.Strang(),
    "midpoint": cj.LieMidpoint(),
    "TMKLevy": cj.TMKLevy(),
}


def bits() -> list[dict]:
    """Every bit of states and statistics, on a GPU and on the CPU."""
    out = []
    work = [("heavy top", "TMK", 64, 100_000, None)]
    work += [(name, "TMK", 64, 100_000, None) for name in CASES if name != "heavy top"]
    work += [("heavy top", "TMK", 20_000, 1000, {"mean": cj.Mean(), "covariance": cj.Covariance()})]
    work += [(name, method, 64, 100_000, None) for name in CASES for method in METHODS if method != "TMK"]
    for name, method, members, steps, reduce in work:
        system, mu0 = CASES[name]
        run = {"members": members, "t1": steps * DT, "dt": DT, "save_every": steps // 10, "reduce": reduce}
        run |= {"integrator": METHODS[method], "key": 5 if system.n_noise else None}
        row = {"system": name, "method": method, "members": members, "steps": steps, "statistics": reduce is not None}
        try:
            both = [cj.ensemble(system, mu0, backend=b, **run) for b in ("native-gpu", "native")]
            found = [jax.tree.leaves(x.saved if reduce is None else x.reduced) for x in both]
            row["same"] = all(np.array_equal(a, b) for a, b in zip(*found, strict=True))
        except ValueError as error:
            row["refused"] = str(error)
        out.append(row)
        print(json.dumps(row), flush=True)
    return out


def long() -> dict:
    """2²⁰ members × 10⁵ steps with mean and covariance every 1000 steps."""
    run = {"members": 2**20, "t1": 1000.0, "dt": DT, "key": 1, "save_every": 1000, "reduce": cj.Covariance()}
    cj.ensemble(heavy_top(), MU0, **(run | {"t1": 20.0}), backend="native-gpu")  # compiles
    began = time.perf_counter()
    ens = cj.ensemble(heavy_top(), MU0, **run)
    seconds = time.perf_counter() - began
    memory = (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
    return {"seconds": seconds, "rate": 2**20 * 1e5 / seconds, "peak bytes": memory, "backend": ens.stats.backend}


def casimirs() -> dict:
    """The largest error of a Casimir of 2¹⁶ members after 10⁶ steps."""
    run = {"members": 2**16, "t1": 10_000.0, "dt": DT, "key": 2, "save_every": 100_000}
    began = time.perf_counter()
    ens = cj.ensemble(heavy_top(), MU0, **run, backend="native-gpu")
    of = lambda mu: np.stack([np.sum(mu[..., 3:] ** 2, -1), np.sum(mu[..., :3] * mu[..., 3:], -1)])
    errors = np.abs(of(ens.mu) - of(MU0)[:, None, None])
    return {"largest error": float(np.max(errors)), "seconds": time.perf_counter() - began}


def exact() -> dict:
    """so(3), h = 0, three isotropic noises, a² = σ²dt = 1/16, σ²t = 1: the mean shrinks by f¹⁶, not by e⁻¹.

    A step turns by a normal vector ζ of variance a² a component, a rotation by |ζ|; its mean is f = (1 + 2 E cos|ζ|)/3
    with E cos|ζ| = (1 − a²) e^{−a²/2}.
    """
    members, a2 = 2**23, 1 / 16
    system = cj.System(cj.SO3(), lambda mu: 0.0 * mu[0], [cj.salt(0.25 * e) for e in np.eye(3)])
    began = time.perf_counter()
    run = {"members": members, "t1": 16.0, "dt": 1.0, "key": 7, "save_every": 16, "reduce": cj.Mean()}
    ens = cj.ensemble(system, np.array([0.0, 0.0, 1.0]), **run, integrator=cj.EulerMaruyamaMK(), backend="native-gpu")
    seconds = time.perf_counter() - began
    mean, error = (float(ens.reduced[name][-1, 2]) for name in ("mean", "standard_error"))
    f16 = ((1 + 2 * (1 - a2) * np.exp(-a2 / 2)) / 3) ** 16
    away = {"from f^16": (mean - f16) / error, "from 1/e": (mean - np.exp(-1)) / error}
    return {"mean": mean, "standard error": error, "f^16": f16, "standard errors": away, "seconds": seconds}


_START = """
import time
began = time.perf_counter()
import coadjoint as cj
system, mu0 = cj.models.heavy_top()
run = {"members": 2**16, "t1": 10.0, "dt": 0.01, "save_every": 100, "reduce": cj.Mean(), "backend": "native-gpu"}
ens = cj.ensemble(system, mu0, key=3, **run)
print(time.perf_counter() - began, ens.stats.backend)
"""


def start() -> dict:
    """Seconds from the import to the first result, in fresh processes; the first may find a cold disk.

    Then with most of the GPU's memory reserved, as JAX does by itself.
    """
    out: dict[str, Any] = {"seconds": [], "seconds, memory reserved": []}
    for seconds, reserved in zip(out.values(), ("false", "true"), strict=True):
        environment = os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": reserved}
        for _ in range(3):
            done = subprocess.run([sys.executable, "-c", _START], capture_output=True, text=True, env=environment)
            if done.returncode:
                return {"failed": done.stderr[-500:]}
            seconds.append(float(done.stdout.split()[0]))
    return out


# The record.


def written(record: dict) -> str:
    """As a page."""
    about = record["about"]
    lines = [
        f"Measured {about['date']} on {about['device']}; "
        + ", ".join(f"{k} {v}" for k, v in about["versions"].items())
        + "."
    ]
    lines += ["", about["note"]] if "note" in about else []
    if "rates" in record:
        sizes = list(record["rates"])
        lines += ["", "Members × steps per second, heavy top, dt = 0.01:", ""]
        lines += ["| | " + " | ".join(f"{int(s):,} members" for s in sizes) + " |", "|---" * (len(sizes) + 1) + "|"]
        for name in record["rates"][sizes[0]]:
            cells = [record["rates"][s][name] for s in sizes]
            lines.append(f"| {name} | " + " | ".join("–" if c is None else f"{c:.3g}" for c in cells) + " |")
    if "bits" in record:
        lines += [
            "",
            "Bitwise comparison with the CPU:",
            "",
            "| system | method | members × steps | |",
            "|---|---|---|---|",
        ]
        for row in record["bits"]:
            said = row.get("refused") or ("the same" if row["same"] else "**other**")
            lines.append(f"| {row['system']} | {row['method']} | {row['members']} × {row['steps']} | {said} |")
    for name in ("long", "casimirs", "exact", "start"):
        if name in record:
            lines += ["", f"{name}: `{json.dumps(record[name])}`"]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run what was asked for."""
    parts: dict[str, Callable[[], object]] = {
        "bits": bits, "long": long, "casimirs": casimirs, "exact": exact, "start": start
    }  # fmt: skip
    parser = argparse.ArgumentParser()
    parser.add_argument("--cuda")
    parser.add_argument("--only", nargs="*", default=["rates", *parts])
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    parts = {"rates": lambda: rates(args.cuda), **parts}
    versions = {"coadjoint": cj.__version__, "jax": jax.__version__, "python": platform.python_version()}
    path = args.out / "gpu.json"
    record = json.loads(path.read_text()) if path.exists() else {}
    device = f"one {jax.devices()[0].device_kind}"
    record["about"] = {"date": str(datetime.date.today()), "device": device, "versions": versions}
    for name in args.only:
        began = time.perf_counter()
        try:
            record[name] = parts[name]()
        except Exception as error:  # the others are worth having
            record[name] = {"failed": repr(error)[:500]}
        print(name, json.dumps(record[name])[:2000], f"({time.perf_counter() - began:.1f} s)", flush=True)
        path.write_text(json.dumps(record, indent=1) + "\n")
        (args.out / "gpu.md").write_text(written(record))


if __name__ == "__main__":
    main()
