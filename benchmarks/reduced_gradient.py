"""Errors of methods with all of ∂h and without its part along the state, on products of so(3).

    python benchmarks/reduced_gradient.py [--into benchmarks/results/reduced_gradient.json]

Errors are root mean squares over the coordinates at t1, relative to a run of RKMK("rk4") with dt/40. `default` is the
gradient that a run selects at its initial state. `table` writes the table of docs/reference/methods.md.
"""

import argparse
import datetime
import json
from pathlib import Path

import numpy as np

import coadjoint as cj

RESULTS = Path(__file__).parent / "results" / "reduced_gradient.json"
METHODS = {
    "HeunMK": cj.HeunMK,
    "TMK": cj.TMK,
    'RKMK("rk4")': cj.RKMK,
    "CommutatorFree(4)": cj.CommutatorFree,
    "LieMidpoint": cj.LieMidpoint,
}
FIELD = (0.0, 0.0, 0.5)


def unit(x):
    """Vectors of length 1."""
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def smooth(n, angle=0.2):
    """Spins of a chain with one long wave."""
    x = 2 * np.pi * np.arange(n) / n
    tilt, turn = 0.5 + angle * np.cos(x), 1.5 * angle * np.sin(x)
    return np.stack([np.sin(tilt) * np.cos(turn), np.sin(tilt) * np.sin(turn), np.cos(tilt)], axis=1)


def thermal(shape, temperature=0.4):
    """Spins from a heat bath."""
    system, mu0 = cj.models.spin_lattice(shape, field=FIELD, key=1)
    bath = cj.heat_bath(system, temperature=temperature, friction=0.5)
    return np.asarray(cj.solve(bath, mu0, t1=40.0, dt=0.02, key=2, integrator=cj.HeunMK(), save_every=2000).mu[-1])


def lattice(shape, S0):
    """Spins with J = 1 in a field of ½ along z."""
    return cj.models.spin_lattice(shape, field=FIELD, S0=np.reshape(S0, (*np.atleast_1d(shape), 3)))


def cases():
    """Each system with its initial state, dt and t1."""
    rng = np.random.default_rng(0)
    near = unit(np.array([0.6, 0.0, 0.8]) + 0.1 * rng.standard_normal((36, 3)))
    return {
        "parallel": (*lattice((3, 3, 3), np.broadcast_to([0.6, 0.0, 0.8], (27, 3))), 0.05, 4.0),
        "one long wave": (*lattice(24, smooth(24)), 0.1, 4.0),
        "nearly aligned": (*lattice((6, 6), near), 0.05, 2.0),
        "thermal": (*lattice((3, 3, 3), thermal((3, 3, 3))), 0.05, 4.0),
        "random": (*lattice((3, 3, 3), unit(rng.standard_normal((27, 3)))), 0.05, 2.0),
    }


def errors(system, mu0, dt, t1):
    """Of each method, with all of ∂h and with the reduced one."""
    steps = round(t1 / dt)
    exact = cj.solve(system, mu0, t1=t1, dt=dt / 40, integrator=cj.RKMK(), save_every=40 * steps).mu[-1]

    def error(method, remove):
        sol = cj.solve(system, mu0, t1=t1, dt=dt, integrator=method(remove_stabiliser=remove), save_every=steps)
        return float(np.sqrt(np.mean((np.asarray(sol.mu[-1]) - np.asarray(exact)) ** 2)))

    return {name: [error(method, False), error(method, True)] for name, method in METHODS.items()}


def table(record):
    """The table as Markdown; the selected one of two errors is bold."""
    results = record["results"]
    lines = [["method", *results], ["---"] * (1 + len(results))]
    for name in METHODS:
        cells = []
        for case in results.values():
            full, reduced = (f"{x:.1e}" for x in case["errors"][name])
            cells.append(f"{full}, **{reduced}**" if case["default"] else f"**{full}**, {reduced}")
        lines.append([f"`{name}`", *cells])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main():
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--into", type=Path, default=RESULTS)
    results = {}
    for name, (system, mu0, dt, t1) in cases().items():
        default = bool(np.all(system.reduction_weights(mu0)))
        results[name] = {"dt": dt, "t1": t1, "default": default, "errors": errors(system, mu0, dt, t1)}
        print(name, results[name], flush=True)
    record = {"date": datetime.date.today().isoformat(), "results": results}
    into = parser.parse_args().into
    into.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(table(record))


if __name__ == "__main__":
    main()
