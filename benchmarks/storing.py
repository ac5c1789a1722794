"""What storing costs: the same run with and without a store, one after the other, and the memory of a long one.

    python benchmarks/storing.py [--seconds 8] [--pairs 5] [--case NAME] [--folder DIR]

For each case the ratio of times, pair by pair, and its median; and the resident memory at each tenth of a stored run
that is ten times as long. Writes benchmarks/results/storing.json. About twenty minutes.
"""

import argparse
import itertools
import json
import os
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from run import RESULTS, machine

import coadjoint as cj


class Case(NamedTuple):
    """A run of a model: one trajectory, or tiles of 1024 members, each on a core of its own."""

    model: Callable[[], tuple[cj.System, Any]]
    save_every: int
    members: int = 1

    def run(self, steps: int, **options: Any) -> Any:
        """So many steps, up to whole saving intervals."""
        t1 = -(-steps // self.save_every) * self.save_every * 0.01
        options |= {"t1": t1, "dt": 0.01, "key": 0, "save_every": self.save_every}
        system, mu0 = self.model()
        if self.members == 1:
            return cj.solve(system, mu0, **options)
        return cj.ensemble(system, mu0, members=self.members, **options)

    @property
    def rounds(self) -> int:
        """How many tiles a core computes, one after the other."""
        return -(-self.members // (1024 * (os.cpu_count() or 1)))


BODY = partial(cj.models.rigid_body, alpha=(0.1, 0.2, 0.3))
CASES = {
    "heavy top, every 100th step": Case(cj.models.heavy_top, 100),
    "heavy top, every step": Case(cj.models.heavy_top, 1),
    "1024 rigid bodies, every 100th step": Case(BODY, 100, 1024),
    "4096 rigid bodies, every 100th step": Case(BODY, 100, 4096),
    "4096 rigid bodies, every 500th step": Case(BODY, 500, 4096),
    "sine-Euler, n = 17, every 10th step": Case(partial(cj.models.sine_euler, n=17), 10),
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
    case = CASES[name]
    run = case.run
    steps = steps_for(run, seconds)
    names = (folder / f"{k}.zarr" for k in itertools.count())

    def stored(steps: int) -> float:
        store = next(names)
        took = timed(run, steps, out=store)
        sizes.append(sum(p.stat().st_size for p in store.rglob("*") if p.is_file()))
        rows.append(json.loads((store / "zarr.json").read_text())["attributes"]["coadjoint"]["rows"])
        shutil.rmtree(store)
        return took

    sizes: list[int] = []
    rows: list[int] = []
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
        "seconds of computing in a chunk": round(rows[-1] * case.save_every * seconds / steps / case.rounds, 3),
        "seconds to make a store": round(fixed, 3),
        "megabytes along a run ten times as long": [round(s) for s in samples],
        "megabytes that it wrote": round(sizes[-1] / 1e6, 1),
    }


def few_files(folder: Path) -> dict[str, float]:
    """Mean and covariance of 10⁵ rigid bodies at 51 times: files, megabytes, and processor time."""
    store, began = folder / "statistics.zarr", time.process_time()
    run = {"members": 100_000, "t1": 1.0, "dt": 0.01, "key": 0, "save_every": 2}
    cj.ensemble(*BODY(), reduce={"mean": cj.Mean(), "covariance": cj.Covariance()}, out=store, **run)
    took, files = time.process_time() - began, [p for p in store.rglob("*") if p.is_file()]
    size = sum(p.stat().st_size for p in files) / 1e6
    return {"files": len(files), "megabytes": round(size, 1), "processor seconds": round(took, 1)}


def main() -> None:
    """Measure what was asked for, and keep the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--case", choices=CASES, action="append", help="only this one; nothing is kept then")
    parser.add_argument("--folder", type=Path, default=None, help="where to write; a temporary folder by default")
    arguments = parser.parse_args()
    cases = {}
    for name in arguments.case or CASES:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            cases[name] = measure(name, arguments.seconds, arguments.pairs, Path(folder))
        print(name, json.dumps(cases[name], indent=2), flush=True)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        files = few_files(Path(folder))
    print("statistics of 10⁵ members", files)
    if not arguments.case:
        record = {"machine": machine([]), "cases": cases, "statistics of 10⁵ members": files}
        record = json.dumps(record, indent=2, ensure_ascii=False)
        (RESULTS / "storing.json").write_text(record + "\n")


if __name__ == "__main__":
    main()
