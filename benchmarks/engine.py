"""What the engine costs beside the steps: compilation, calls, tiles, rare branches.

    python benchmarks/engine.py [--only native | c] [--into benchmarks/results/engine.json]

Each first result is that of a process of its own, import included. The rest is the least of several tries in one
process. Results are kept by versions, so that the two ends of what is supported stand side by side.
"""

import argparse
import datetime
import json
import platform
import subprocess
import sys
import time
from pathlib import Path

RESULTS = Path(__file__).parent / "results" / "engine.json"
FIRST = {
    "first result, native": "cj.solve(s, m, t1=1.0, dt=0.01, key=0)",
    "first result, XLA": "cj.solve(s, m, t1=1.0, dt=0.01, key=0, backend='xla')",
    "first gradient, se(3)": (
        "jax.grad(lambda m: cj.solve(s, m, t1=1.0, dt=0.01, key=0).mu[-1].sum())(jax.numpy.asarray(m))"
    ),
}


def first(work: str) -> float:
    """Seconds from the start of a process to its first result."""
    began = time.perf_counter()
    program = f"import jax, coadjoint as cj; s, m = cj.models.heavy_top(); {work}"
    subprocess.run([sys.executable, "-c", program], check=True)
    return time.perf_counter() - began


def least(work, tries: int, clock=time.perf_counter) -> float:
    """The least time of several tries, after one that compiles."""
    work()
    times = []
    for _ in range(tries):
        began = clock()
        work()
        times.append(clock() - began)
    return min(times)


def measured() -> dict[str, float]:
    """All of it."""
    out = {f"{name} [s]": round(min(first(work) for _ in range(2)), 2) for name, work in FIRST.items()}
    import numpy as np

    import coadjoint as cj

    top, mu0 = cj.models.heavy_top()
    call = least(lambda: cj.solve(top, mu0, t1=0.01, dt=0.01, key=1), 500)
    out["a warm call of one step [ms]"] = round(1e3 * call, 2)
    out |= beside_c()

    out |= hundred_tiles()
    free = cj.System(cj.SO3(), lambda mu: 0.0 * mu[0], [cj.salt(np.eye(3))])
    for dt in 0.01, 0.5:
        run = {"members": 1024, "t1": 1000 * dt, "dt": dt, "key": 0, "save_every": 1000}
        took = least(lambda run=run: cj.ensemble(free, [0.0, 0.0, 1.0], **run), 5)
        out[f"isotropic noise, dt = {dt} [ns per member-step]"] = round(1e9 * took / 1.024e6, 1)
    return out


def hundred_tiles() -> dict[str, float]:
    """Processor time of 102 400 members over few steps and more, and what a tile of 1024 costs beside its steps."""
    import numpy as np

    import coadjoint as cj

    top, mu0 = cj.models.heavy_top()
    levy = cj.System(cj.SE3(), lambda mu: 0.5 * mu[:3] @ mu[:3] - mu[5], [cj.salt(0.1 * np.eye(6)[:2])])
    out = {}
    for name, system, method, more in (("", top, cj.TMK(), 320), (", Lévy areas", levy, cj.TMKLevy(), 32)):

        def took(steps: int, system=system, method=method) -> float:
            run = {"members": 102_400, "t1": 0.01 * steps, "dt": 0.01, "key": 1, "save_every": steps}
            return least(lambda: cj.ensemble(system, mu0, integrator=method, **run), 4, time.process_time)

        short, long = took(2), took(more)
        out[f"102 400 members{name}, 2 steps [s of processor time]"] = round(short, 3)
        out[f"102 400 members{name}, {more} steps [s of processor time]"] = round(long, 3)
        beside = (short - 2 * (long - short) / (more - 2)) / 100
        out[f"beside its steps, per batch{name} [ms of processor time]"] = round(1e3 * beside, 2)
    return out


def beside_c() -> dict[str, float]:
    """The least times of hand-written C and of the library in turns, and the medians of their ratios in a turn.

    A machine may be slower for a while: in a turn both have the same. Ratios are those of steps, so runs are long.
    """
    import numpy as np
    from contenders import C

    import coadjoint as cj

    top, mu0 = cj.models.heavy_top()
    one = least(lambda: cj.solve(top, mu0, t1=1e3, dt=0.01, key=1, save_every=1000), 9, time.process_time)
    many = least(
        lambda: cj.ensemble(top, mu0, members=1024, t1=10.0, dt=0.01, key=1, save_every=100), 9, time.process_time
    )
    c, loose, start, steps, members, each = C(), C(loose=True), np.asarray(mu0), 10**6, 1024, 4000
    path = np.random.default_rng(0).standard_normal(steps) * 0.1
    work = {
        "C, one": lambda: c.one(start, path, 0.01),
        "looser C, one": lambda: loose.one(start, path, 0.01),
        "library, one": lambda: cj.solve(top, mu0, t1=0.01 * steps, dt=0.01, key=1, save_every=steps),
        "C, many": lambda: c.many(start, members, each, 0.01),
        "looser C, many": lambda: loose.many(start, members, each, 0.01),
        "library, many": lambda: cj.ensemble(
            top, mu0, members=members, t1=0.01 * each, dt=0.01, key=1, save_every=each
        ),
    }
    turns = [{name: least(run, 1, time.process_time) for name, run in work.items()} for _ in range(15)]
    times = {name: min(turn[name] for turn in turns) for name in work}
    ratio = lambda a, b: round(float(np.median([turn[a] / turn[b] for turn in turns])), 2)
    return {
        "one trajectory [ns per step]": round(1e9 * one / 1e5, 1),
        "one batch of 1024 [ns per member-step]": round(1e9 * many / 1.024e6, 1),
        "C, one trajectory [ns per step]": round(1e9 * times["C, one"] / steps, 1),
        "C, ensemble [ns per member-step]": round(1e9 * times["C, many"] / (each * members), 1),
        "one trajectory / C": ratio("library, one", "C, one"),
        "ensemble / C": ratio("library, many", "C, many"),
        "one trajectory / C of a looser tolerance": ratio("library, one", "looser C, one"),
        "ensemble / C of a looser tolerance": ratio("library, many", "looser C, many"),
    }


def natively() -> dict[str, float]:
    """What became native code: sin and cos beside C, su(3), a chain of 64 spins and TMK15's noise beside XLA."""
    import coadjoint as cj

    clock = time.process_time
    fluid, W = cj.models.sine_euler(n=3)
    one = least(lambda: cj.solve(fluid, W, t1=200.0, dt=0.01, key=1, save_every=20_000), 9, clock)
    many = least(lambda: cj.ensemble(fluid, W, members=256, t1=2.0, dt=0.01, key=1, save_every=200), 9, clock)
    out = {"su(3), one trajectory [ns per step]": round(1e9 * one / 20_000)}
    out["su(3), ensemble [ns per member-step]"] = round(1e9 * many / (256 * 200))
    chain, S = cj.models.spin_chain(64)
    run = {"dt": 0.01, "key": 1}
    native = least(lambda: cj.solve(chain, S, t1=40.0, save_every=4000, **run), 9, clock) / 4000
    xla = least(lambda: cj.solve(chain, S, t1=10.0, save_every=1000, backend="xla", **run), 5, clock) / 1000
    out["64 spins [µs a step]"] = round(1e6 * native, 2)
    out["64 spins, XLA [µs a step]"] = round(1e6 * xla, 1)
    return out | {"64 spins, XLA / native": round(xla / native, 1)} | beside_c_with_sines() | noise_of_tmk15()


def beside_c_with_sines() -> dict[str, float]:
    """An ensemble with sin and cos in its Hamiltonian, and C with the same polynomials, in turns."""
    import jax.numpy as jnp
    import numpy as np
    from contenders import Pendulum

    import coadjoint as cj

    c, mu0, members, steps, dt = Pendulum(), np.array([1.0, -0.5, 0.8]), 1024, 2000, 0.01

    def energy(mu):
        return 0.5 * jnp.sum(mu**2 / c.inertia) + c.b * jnp.sin(mu[0]) - c.a * jnp.cos(mu[2])

    system = cj.System(cj.SO3(), energy, [cj.salt(c.beta)])
    path = np.random.default_rng(0).standard_normal(1000) * dt**0.5
    ours = cj.solve(system, mu0, t1=10.0, dt=dt, driver=cj.Increments(path[:, None]), save_every=1000)
    np.testing.assert_allclose(c.one(mu0, path, dt), ours.mu[-1], atol=1e-11)  # the same solution
    run = {"members": members, "t1": steps * dt, "dt": dt, "key": 1, "save_every": steps}
    work = {"C": lambda: c.many(mu0, members, steps, dt), "library": lambda: cj.ensemble(system, mu0, **run)}
    tries = [{name: least(w, 1, time.process_time) for name, w in work.items()} for _ in range(15)]
    best = {name: min(t[name] for t in tries) for name in work}
    return {
        "sin and cos, C, ensemble [ns per member-step]": round(1e9 * best["C"] / (members * steps), 1),
        "sin and cos, ensemble [ns per member-step]": round(1e9 * best["library"] / (members * steps), 1),
        "sin and cos, ensemble / C": round(best["library"] / best["C"], 2),
    }


def noise_of_tmk15() -> dict[str, float]:
    """A path with ΔZ, and with areas too, drawn by native code and by XLA: here a benchmark must look inside."""
    import jax
    import numpy as np

    import coadjoint as cj
    from coadjoint.drivers import Needs
    from coadjoint.runtime.backends.path_sampling import IncrementSource

    out = {}
    for motions, needs in ((1, Needs(Z=True)), (2, Needs(Z=True, areas=True))):
        window = cj.Brownian(5).window(motions, 0.01, 0, 200, needs)
        columns = sum(x.size // 32 for x in jax.tree.leaves(jax.eval_shape(window.block, 0, 0)))

        def took(native: bool, window=window, columns=columns) -> float:
            source = IncrementSource(window, np.zeros((1, 1), int), tuple(range(columns)))
            source.native = source.native if native else None

            def drawn():
                b = 0
                while b < 100:
                    b += source.draw(b, 3200).shape[1] // 32

            return least(drawn, 20, time.process_time)

        turns = [(took(True), took(False)) for _ in range(4)]
        native, xla = (min(t) for t in zip(*turns, strict=True))
        name = "noise of TMK15" if motions == 1 else "noise of TMK15, two motions"
        out[f"{name} [ns per step]"] = round(1e9 * native / 3200, 1)
        out[f"{name}, XLA / native"] = round(xla / native, 1)
    return out


def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--into", type=Path, default=RESULTS)
    parser.add_argument("--only", choices=["native", "c"], help="measure these alone, and keep the other rows")
    given = parser.parse_args()
    into = given.into
    import jax

    some = {"native": natively, "c": beside_c}
    results = some[given.only]() if given.only else measured() | natively()
    kept = json.loads(into.read_text()) if into.exists() else {}
    about = f"Python {platform.python_version()}, JAX {jax.__version__}"
    processor = next((x.partition(":")[2].strip() for x in open("/proc/cpuinfo") if x.startswith("model name")), "")
    today = {"date": str(datetime.date.today()), "processor": processor}
    kept[about] = (kept.get(about, {}) if given.only else {}) | today | results
    into.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    print(json.dumps(kept[about], indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
