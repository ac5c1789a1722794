"""What a cluster costs: tiles as tasks of Dask beside threads in one process, and what many tiles ask of a scheduler.

    python benchmarks/cluster.py [--seconds 2] [--rounds 3] [--tiles 100000] [--only speed overhead tiles]

- speed: an ensemble whose tiles take so many seconds each, in threads and on as many processes as there are cores.
- overhead: what a tile without work costs beside threads, with the cluster warm.
- tiles: many tiles of one step each through the scheduler, statistics merged by the client: time, and the memory of the
  process that has scheduler and client.

Writes benchmarks/results/cluster.json. A quarter of an hour on two cores.
"""

import argparse
import datetime
import json
import os
import time
from pathlib import Path
from typing import Any

from distributed import Client, LocalCluster

import coadjoint as cj

TILE, DT = 1024, 0.01
TARGET = Path(__file__).parent / "results" / "cluster.json"


def machine() -> dict[str, Any]:
    """What this was measured on, and how busy that was."""
    processor = next(x for x in Path("/proc/cpuinfo").read_text().splitlines() if x.startswith("model name"))
    return {
        "date": datetime.date.today().isoformat(),
        "processor": processor.partition(":")[2].strip(),
        "cores": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 1),
        "coadjoint": cj.__version__,
    }


def ensemble(tiles: int, steps: int, **on: Any) -> float:
    """Seconds of an ensemble of heavy tops, of which statistics are kept at the end."""
    system, mu0 = cj.models.heavy_top()
    began = time.perf_counter()
    cj.ensemble(
        system, mu0, members=tiles * TILE, t1=steps * DT, dt=DT, key=0, save_every=steps, reduce=cj.Mean(), **on
    )
    return time.perf_counter() - began


def steps_for(seconds: float) -> int:
    """Steps that a tile takes in so many seconds on one core."""
    ensemble(1, 1000)
    steps = 20_000
    return max(int(steps * seconds / ensemble(1, steps)), 1)


def speed(client: Client, cores: int, seconds: float, rounds: int) -> dict[str, Any]:
    """Threads and cluster, one after the other."""
    steps, tiles = steps_for(seconds), 4 * cores
    ensemble(2 * cores, 10, on=client)  # all is compiled
    pairs = [(ensemble(tiles, steps), ensemble(tiles, steps, on=client)) for _ in range(rounds)]
    threads, cluster = (min(times) for times in zip(*pairs, strict=True))
    return {
        "tiles": tiles,
        "seconds per batch": round(threads * cores / tiles, 3),
        "seconds": [[round(x, 3) for x in pair] for pair in pairs],
        "cluster beside threads": round(threads / cluster, 3),
    }


def overhead(client: Client, cores: int, rounds: int) -> dict[str, Any]:
    """The slope between few tiles and many, of one step each."""
    few, many = 50, 1050
    slope = lambda **on: (
        min(ensemble(many, 1, **on) for _ in range(rounds)) - min(ensemble(few, 1, **on) for _ in range(rounds))
    )
    ensemble(few, 1, on=client)
    here, there = slope() * 1e3 / (many - few), slope(on=client) * 1e3 / (many - few)
    return {
        "milliseconds per batch in threads": round(here, 3),
        "on the cluster": round(there, 3),
        "overhead of a batch on its core": round((there - here) * cores, 3),
    }


def memory() -> float:
    """Megabytes of this process, which has the scheduler."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGESIZE") / 1e6)


def many(client: Client, tiles: int) -> dict[str, Any]:
    """Tiles of one step."""
    ensemble(100, 1, on=client)
    before = memory()
    seconds = ensemble(tiles, 1, on=client)
    return {
        "tiles": tiles,
        "seconds": round(seconds, 1),
        "milliseconds per batch": round(1e3 * seconds / tiles, 3),
        "megabytes before": before,
        "megabytes after": memory(),
        "load": round(os.getloadavg()[0], 1),
    }


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tiles", type=int, default=100_000)
    parser.add_argument("--only", nargs="*", default=["speed", "overhead", "tiles"])
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    found: dict[str, Any] = json.loads(TARGET.read_text()) if TARGET.exists() else {}
    found["machine"] = machine()
    with (
        LocalCluster(n_workers=cores, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        parts = {
            "speed": lambda: speed(client, cores, options.seconds, options.rounds),
            "overhead": lambda: overhead(client, cores, options.rounds),
            "tiles": lambda: many(client, options.tiles),
        }
        for name in options.only:
            found[name] = parts[name]()
            print(name, json.dumps(found[name]), flush=True)
            TARGET.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
