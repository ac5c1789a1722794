"""Steps of models beside the same method in NumPy, one core, one trajectory.

    python benchmarks/models.py [--into benchmarks/results/models.json]

Microseconds per step by processor time, the least of several tries in turns. Both take classical Runge–Kutta steps
of the same equations; those of coadjoint, `RKMK("rk4")`, conserve the Casimirs. The program raises an error if both
end more than 1e-6 apart.
"""

import argparse
import datetime
import json
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

import coadjoint as cj

RESULTS = Path(__file__).parent / "results" / "models.json"
TRIES = 5


def spins(n: int = 64) -> tuple[Any, Any, Callable]:
    """A ring of spins with Gilbert's damping: S' = S×B − θ S×(S×B)."""
    alpha = 0.1
    system, mu0 = cj.models.landau_lifshitz_gilbert(n, damping=alpha)

    def rate(x: np.ndarray) -> np.ndarray:
        S = x.reshape(n, 3)
        dh = -(np.roll(S, 1, axis=0) + np.roll(S, -1, axis=0))
        turn = np.cross(S, dh)
        return ((turn + alpha * np.cross(S, turn)) / (1 + alpha**2)).ravel()

    return system, mu0, rate


def vortices(n: int = 64) -> tuple[Any, Any, Callable]:
    """Point vortices by the sum over pairs."""
    z, angle = 1 - (2 * np.arange(n) + 1) / n, np.pi * (1 + 5**0.5) * np.arange(n)  # a spiral: no two are close
    x = np.stack([np.sqrt(1 - z * z) * np.cos(angle), np.sqrt(1 - z * z) * np.sin(angle), z], axis=1)
    strengths = np.random.default_rng(1).uniform(0.5, 1.5, n)
    system, mu0 = cj.models.point_vortices(strengths, positions=x)
    mask = ~np.eye(n, dtype=bool)

    def rate(y: np.ndarray) -> np.ndarray:
        x = y.reshape(n, 3) / strengths[:, None]
        weight = np.where(mask, strengths / (4 * np.pi * np.where(mask, 1 - x @ x.T, 1.0)), 0.0)
        return (strengths[:, None] * np.cross(weight @ x, x)).ravel()

    return system, mu0, rate


def triple() -> tuple[Any, Any, Callable]:
    """The quadrupole of Lidov and Kozai in the vectors j and e."""
    system, mu0 = cj.models.lidov_kozai(0.2, 1.2, 0.4, 0.9)

    def rate(y: np.ndarray) -> np.ndarray:
        j, e = y[:3] + y[3:], y[:3] - y[3:]
        dj, de = np.array([0.0, 0.0, -0.75 * j[2]]), np.array([-1.5 * e[0], -1.5 * e[1], 2.25 * e[2]])
        one, two = -(np.cross(j, dj) + np.cross(e, de)), -(np.cross(j, de) + np.cross(e, dj))
        return 0.5 * np.concatenate([one + two, one - two])

    return system, mu0, rate


CASES = {"lidov_kozai": triple, "landau_lifshitz_gilbert, 64 spins": spins, "point_vortices, 64 vortices": vortices}


def classical(rate: Callable, y: np.ndarray, dt: float, steps: int) -> np.ndarray:
    """Runge and Kutta's method of order 4."""
    for _ in range(steps):
        a = rate(y)
        b = rate(y + 0.5 * dt * a)
        c = rate(y + 0.5 * dt * b)
        y = y + dt / 6.0 * (a + 2 * b + 2 * c + rate(y + dt * c))
    return y


def measured(make: Callable, steps: int = 20_000, dt: float = 0.002) -> dict[str, Any]:
    """Both contenders in turns."""
    system, mu0, rate = make()
    few = steps // 40

    def ours(count: int) -> tuple[float, Any]:
        began = time.process_time()
        sol = cj.solve(system, mu0, t1=count * dt, dt=dt, save_every=count, integrator=cj.RKMK("rk4"))
        assert sol.stats.backend == "native", sol.stats.reason
        return time.process_time() - began, sol.mu[-1]

    def theirs() -> tuple[float, Any]:
        began = time.process_time()
        end = classical(rate, np.asarray(mu0), dt, few)
        return time.process_time() - began, end

    distance = float(np.abs(np.asarray(ours(few)[1]) - theirs()[1]).max())
    if not distance < 1e-6:
        raise AssertionError(f"{make.__name__}: the ends differ by {distance:.1e}")
    tries = [(ours(steps)[0] - ours(few)[0], theirs()[0]) for _ in range(TRIES)]
    us, numpy_us = 1e6 * min(a for a, _ in tries) / (steps - few), 1e6 * min(b for _, b in tries) / few
    return {"us": float(f"{us:.3g}"), "numpy us": float(f"{numpy_us:.3g}"), "ratio": float(f"{numpy_us / us:.3g}"),
            "difference": float(f"{distance:.1e}")}  # fmt: skip


def main() -> None:
    """All cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--into", type=Path, default=RESULTS, help="the file of results")
    into = parser.parse_args().into
    rows = {}
    for name, make in CASES.items():
        rows[name] = measured(make)
        print(name, rows[name], flush=True)
    about = {"date": str(datetime.date.today()), "processor": platform.machine(), "jax": jax.__version__}
    into.write_text(json.dumps(about | {"results": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
