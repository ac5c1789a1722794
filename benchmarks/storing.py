"""What storing costs: the same run with and without a store, one after the other, and the memory of a long one.

    python benchmarks/storing.py [--seconds 8] [--pairs 3] [--case NAME] [--folder DIR]

For each case the ratio of times, pair by pair, and its median; and the resident memory at each tenth of a stored run
that is ten times as long. Writes benchmarks/results/storing.json. About fifteen minutes.
"""

import argparse
import itertools
import json
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from run import RESULTS, machine

import coadjoint as cj


def heavy_top(save_every: int) -> Callable[..., Any]:
    """One trajectory in lanes."""
    system, mu0 = cj.models.heavy_top()

    def run(steps: int, **options: Any) -> Any:
        steps = -(-steps // save_every) * save_every
        return cj.solve(system, mu0, t1=steps * 0.01, dt=0.01, key=0, save_every=save_every, **options)

    return run


def rigid_bodies(members: int, save_every: int) -> Callable[..., Any]:
    """Tiles of 1024 members, each on a core of its own."""
    system, mu0 = cj.models.rigid_body(alpha=(0.1, 0.2, 0.3))

    def run(steps: int, **options: Any) -> Any:
        steps = -(-steps // save_every) * save_every
        return cj.ensemble(
            system, mu0, members=members, t1=steps * 0.01, dt=0.01, key=0, save_every=save_every, **options
        )

    return run


def fluid(n: int, save_every: int) -> Callable[..., Any]:
    """Matrices."""
    system, W0 = cj.models.sine_euler(n=n)

    def run(steps: int, **options: Any) -> Any:
        steps = -(-steps // save_every) * save_every
        return cj.solve(system, W0, t1=steps * 0.01, dt=0.01, key=0, save_every=save_every, **options)

    return run


CASES: dict[str, Callable[[], Callable[..., Any]]] = {
    "heavy top, every 100th step": lambda: heavy_top(100),
    "heavy top, every step": lambda: heavy_top(1),
    "1024 rigid bodies, every 100th step": lambda: rigid_bodies(1024, 100),
    "4096 rigid bodies, every 100th step": lambda: rigid_bodies(4096, 100),
    "sine-Euler, n = 17, every 10th step": lambda: fluid(17, 10),
}


def timed(work: Callable[..., Any], *arguments: Any, **options: Any) -> float:
    """Seconds."""
    began = time.perf_counter()
    work(*arguments, **options)
    return time.perf_counter() - began


def steps_for(run: Callable[..., Any], seconds: float) -> int:
    """How many steps take so long."""
    steps = 1000
    run(steps)
    while (took := timed(run, steps)) < 0.3 * seconds:
        steps = int(steps * min(8.0, 0.5 * seconds / max(took, 1e-3)) + 1)
    return max(1, int(steps * seconds / took))


def resident() -> float:
    """Megabytes of this process in memory."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4096 / 1e6


def measure(name: str, seconds: float, pairs: int, folder: Path) -> dict[str, Any]:
    """Ratios and memory of one case."""
    run = CASES[name]()
    steps = steps_for(run, seconds)
    names = (folder / f"{k}.zarr" for k in itertools.count())

    def stored(steps: int) -> float:
        store = next(names)
        took = timed(run, steps, out=store)
        sizes.append(sum(p.stat().st_size for p in store.rglob("*") if p.is_file()))
        shutil.rmtree(store)
        return took

    sizes: list[int] = []
    stored(steps)  # compiles what only a store needs
    fixed = statistics.median(stored(1) - timed(run, 1) for _ in range(3))
    ratios = []
    for pair in range(pairs):
        if pair % 2:
            with_store, without = stored(steps), timed(run, steps)
        else:
            without, with_store = timed(run, steps), stored(steps)
        ratios.append(with_store / without)

    samples: list[float] = []
    done = threading.Event()

    def watch() -> None:
        while not done.wait(seconds):
            samples.append(resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    stored(10 * steps)
    done.set()
    watcher.join()
    return {
        "steps": steps,
        "seconds": seconds,
        "ratios": [round(r, 3) for r in ratios],
        "median": round(statistics.median(ratios), 3),
        "seconds to make a store": round(fixed, 3),
        "megabytes along a run ten times as long": [round(s) for s in samples],
        "megabytes that it wrote": round(sizes[-1] / 1e6, 1),
    }


def main() -> None:
    """Measure what was asked for, and keep the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--case", choices=CASES, action="append", help="only this one; nothing is kept then")
    parser.add_argument("--folder", type=Path, default=None, help="where to write; a temporary folder by default")
    arguments = parser.parse_args()
    cases = {}
    for name in arguments.case or CASES:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            cases[name] = measure(name, arguments.seconds, arguments.pairs, Path(folder))
        print(name, json.dumps(cases[name], indent=2), flush=True)
    if not arguments.case:
        record = json.dumps({"machine": machine([]), "cases": cases}, indent=2, ensure_ascii=False)
        (RESULTS / "storing.json").write_text(record + "\n")


if __name__ == "__main__":
    main()
