"""10⁹ steps of one heavy top on one core; writes benchmarks/results/long_run.json. About three minutes."""

import json
import os
import time

import numpy as np
from run import MU0, RESULTS, machine, users_system

import coadjoint as cj

DT = 0.001  # the noise heats the top: with 0.01 it would turn by a whole radian a step in the end


def main(steps: int = 10**9) -> None:
    """Run it, and keep the record."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    system = users_system(cj.SE3())
    began = time.perf_counter()
    sol = cj.solve(system, MU0, t1=steps * DT, dt=DT, key=0, save_every=steps // 1000, progress=True)
    seconds = time.perf_counter() - began
    errors = np.asarray(sol.casimir_errors())
    record = {
        "machine": machine([]),
        "steps": steps,
        "seconds": seconds,
        "nanoseconds a step": 1e9 * seconds / steps,
        "largest error of π·γ and |γ|² over 1000 saved times": errors.max(axis=0).tolist(),
        "error at the end": errors[-1].tolist(),
        "stats": str(sol.stats),
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "long_run.json").write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n")
    print(json.dumps(record, indent=2, ensure_ascii=False))


if __name__ == "__main__":
    main()
