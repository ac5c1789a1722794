"""What a step of a spin lattice costs a spin, against its size and beside a plain loop in C.

    python benchmarks/spins.py [--sides 16,32,64,100] [--into benchmarks/results/spins.json]

The loop is benchmarks/c/spin_lattice.c. A simple cubic Heisenberg lattice, J = 1, T = 1, friction 0.1, dt = 0.02, by
`HeunMK`, with the heat bath (three random numbers per spin and step) and with friction alone. Nanoseconds of processor
time per spin and step, the least of several tries in turns; both bring spins back to their length.
"""  # fmt: skip

import argparse
import ctypes
import datetime
import json
import platform
import subprocess
import time
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).parent / "results" / "spins.json"
DT, FRICTION, TEMPERATURE = 0.02, 0.1, 1.0
STEPS = 32  # a block: random numbers are drawn for so many at a time


def least(work, tries):
    """The least processor time of several tries."""
    times = []
    for _ in range(tries):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return min(times)


def in_c():
    """A function of (spins, side, steps, σ) in C, made here."""
    here = Path(__file__).parent / "c"
    library = here / "build" / "spin_lattice.so"
    library.parent.mkdir(exist_ok=True)
    flags = ["-O3", "-march=native", "-fno-math-errno", "-shared", "-fPIC"]
    subprocess.run(["cc", *flags, "-o", library, here / "spin_lattice.c", "-lm"], check=True)
    loop = ctypes.CDLL(str(library)).spin_lattice

    def run(S, side, steps, sigma):
        numbers = [ctypes.c_double(x) for x in (DT, 1.0, FRICTION, sigma)]
        start = S.ctypes.data_as(ctypes.c_void_p)
        loop(start, ctypes.c_int64(side), ctypes.c_int64(steps), *numbers, ctypes.c_uint64(1))

    return run


def compared(c, made, start, side, sigma, tries):
    """The least times of the steps of the library and of C, in turns."""
    import coadjoint as cj

    def ours(steps):
        key = 0 if sigma else None
        run = {"t1": steps * DT, "dt": DT, "key": key, "save_every": steps, "save": lambda mu: mu[:3]}
        return cj.solve(made, start, integrator=cj.HeunMK(), **run)

    backend = ours(STEPS).stats.backend
    S = np.array(start).reshape(-1, 3)
    turns = (lambda: ours(STEPS), lambda: ours(2 * STEPS), lambda: c(S, side, STEPS, sigma))
    short, long, plain = np.min([[least(work, 1) for work in turns] for _ in range(tries)], axis=0)
    return long - short, plain, backend


def measured(sides):
    """Rows of results."""
    import coadjoint as cj

    c = in_c()
    for side in sides:
        system, start = cj.models.spin_lattice((side, side, side))
        friction = cj.double_bracket(system, friction=FRICTION)
        bath = cj.heat_bath(system, temperature=TEMPERATURE, friction=FRICTION)
        for name, made, sigma in (("heat bath", bath, np.sqrt(2 * FRICTION)), ("friction", friction, 0.0)):
            ours, plain, backend = compared(c, made, start, side, sigma, 8 if side < 64 else 3)
            per = 1e9 / (side**3 * STEPS)
            ns = {"library [ns]": round(float(ours * per), 1), "C [ns]": round(float(plain * per), 1)}
            yield {"spins": side**3, "with": name, **ns, "ratio": round(float(ours / plain), 2), "backend": backend}


def main():
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sides", default="16,32,64,100")
    parser.add_argument("--into", type=Path, default=RESULTS)
    given = parser.parse_args()
    import jax

    processor = next((x.partition(":")[2].strip() for x in open("/proc/cpuinfo") if x.startswith("model name")), "")
    versions = f"Python {platform.python_version()}, JAX {jax.__version__}"
    about = {"date": str(datetime.date.today()), "processor": processor, "versions": versions}
    rows = []
    for row in measured([int(side) for side in given.sides.split(",")]):
        print(row, flush=True)
        rows.append(row)
        given.into.write_text(json.dumps(about | {"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
