"""What storing costs: the same run with and without a store, one after the other, and the memory of a long one.

    python benchmarks/storing.py [--seconds 5] [--pairs 5] [--case NAME] [--folder DIR]

Prints the ratio of times, pair by pair, and its median; and the resident memory at each tenth of a stored run that is
ten times as long.
"""

import argparse
import itertools
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import coadjoint as cj


def heavy_top(save_every: int) -> Callable[..., Any]:
    """One trajectory in lanes."""
    system, mu0 = cj.models.heavy_top()

    def run(steps: int, **options: Any) -> Any:
        steps = -(-steps // save_every) * save_every
        return cj.solve(system, mu0, t1=steps * 0.01, dt=0.01, key=0, save_every=save_every, **options)

    return run


def rigid_bodies(save_every: int) -> Callable[..., Any]:
    """A tile of members."""
    system, mu0 = cj.models.rigid_body(alpha=(0.1, 0.2, 0.3))

    def run(steps: int, **options: Any) -> Any:
        steps = -(-steps // save_every) * save_every
        return cj.ensemble(system, mu0, members=1024, t1=steps * 0.01, dt=0.01, key=0, save_every=save_every, **options)

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
    "1024 rigid bodies, every 100th step": lambda: rigid_bodies(100),
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


def measure(name: str, seconds: float, pairs: int, folder: Path) -> None:
    """Print ratios and memory of one case."""
    run = CASES[name]()
    steps = steps_for(run, seconds)
    names = (folder / f"{k}.zarr" for k in itertools.count())

    def stored(steps: int) -> tuple[float, Path]:
        return timed(run, steps, out=(store := next(names))), store

    stored(steps)  # compiles what only a store needs
    fixed = statistics.median(stored(1)[0] - timed(run, 1) for _ in range(3))
    ratios = []
    for pair in range(pairs):
        if pair % 2:
            (with_store, _), without = stored(steps), timed(run, steps)
        else:
            without, (with_store, _) = timed(run, steps), stored(steps)
        ratios.append(with_store / without)
    _, store = stored(steps)
    size = sum(p.stat().st_size for p in store.rglob("*") if p.is_file())
    print(f"{name}: {steps} steps, {seconds:g} s, {size / 1e6:.1f} MB; making the store takes {fixed:.2f} s")
    print(f"  with a store / without: {', '.join(f'{r:.3f}' for r in ratios)}; median {statistics.median(ratios):.3f}")

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
    print(f"  memory along a run ten times as long, MB: {', '.join(f'{s:.0f}' for s in samples)}", flush=True)


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--case", choices=CASES, action="append")
    parser.add_argument("--folder", type=Path, default=None, help="where to write; a temporary folder by default")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        for name in arguments.case or CASES:
            measure(name, arguments.seconds, arguments.pairs, Path(folder))


if __name__ == "__main__":
    main()
