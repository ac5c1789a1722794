"""How long fields on large spheres take to become matrices, and back: python benchmarks/spheres.py."""

import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from coadjoint.fluids import Sphere


def timed(name: str, n: int, fn: Callable[[], Any]) -> Any:
    """What it returns; the time is printed."""
    start = time.perf_counter()
    out = jax.block_until_ready(fn())
    print(f"{name:28} n = {n:4}  {time.perf_counter() - start:6.2f} s", flush=True)
    return out


def main() -> None:
    """Few degrees, many, all."""
    rng = np.random.default_rng(0)
    for n in (1025, 2049, 4097):
        for top in (10, n // 8):
            c = np.zeros(n * n)
            c[1 : (top + 1) ** 2] = rng.standard_normal((top + 1) ** 2 - 1)
            timed(f"degrees up to {top}", n, lambda n=n, c=c: Sphere(n).matrix(c))
    for n in (513, 1025):
        c = np.append(0.0, rng.standard_normal(n * n - 1))
        W = timed("all degrees", n, lambda n=n, c=c: Sphere(n).matrix(c))
        back = timed("and back", n, lambda n=n, W=W: Sphere(n).coefficients(W))
        print(f"largest error {np.abs(back - c).max():.1e}")


if __name__ == "__main__":
    main()
