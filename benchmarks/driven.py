"""Systems that time, torques, the attitude and a controller drive, beside the same body alone, in native code.

    python benchmarks/driven.py [--into benchmarks/results/driven.json]

Nanoseconds per step and member of an ensemble on one core, for RKMK("rk4") and TMK. Processor time, the least of
several tries; the time of a short run is taken off. `ratio` is that to the autonomous system with the same terms.
The alternating field of `h(m, t)` needs a cosine at each of three times per step of rk4; a switching input needs none.
"""

import argparse
import datetime
import json
import platform
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import coadjoint as cj

RESULTS = Path(__file__).parent / "results" / "driven.json"
INERTIA, FIELD = np.array([1.0, 2.0, 3.0]), np.array([0.3, -0.2, 0.5])
MEMBERS, DT, TRIES = 1024, 0.01, 5
SWITCHING = cj.inputs.piecewise([0.0, 10.0, 200.0], [1.0, -1.0])


def kinetic(m):
    """½ π·I⁻¹π."""
    return 0.5 * m @ (m / INERTIA)


def body(**more) -> cj.System:
    """A free body."""
    return cj.System(cj.SO3(), kinetic, **more)


# Each system beside the autonomous one with which it is compared.
PLAIN = cj.System(cj.SO3(), lambda m: kinetic(m) + FIELD @ m)
TORQUE = body(torque=lambda m: -0.1 * m + FIELD)
TOP = cj.System(cj.SO3(), lambda m, g: kinetic(m) + g[2] @ FIELD)
CASES = {
    "h(m)": (PLAIN, None),
    "h(m, t), alternating": (cj.System(cj.SO3(), lambda m, t: kinetic(m) + jnp.cos(t) * (FIELD @ m)), PLAIN),
    "h(m, t), switching input": (cj.System(cj.SO3(), lambda m, t: kinetic(m) + SWITCHING(t) * (FIELD @ m)), PLAIN),
    "torque(m)": (TORQUE, None),
    "torque(m, t)": (body(torque=lambda m, t: -0.1 * m + jnp.cos(t) * FIELD), TORQUE),
    "torque(m, u), law of the momentum held for 10 steps": (
        body(torque=lambda m, u: u, control=cj.hold(lambda m: FIELD - 0.1 * m, every=10)),
        TORQUE,
    ),
    "h(m, g)": (TOP, None),
    "h(m, g, t)": (cj.System(cj.SO3(), lambda m, g, t: kinetic(m) + jnp.cos(t) * (g[2] @ FIELD)), TOP),
}


def pd(mu, p, g):
    """A law of attitude and rate for three wheels."""
    return -2.0 * cj.rotation_to_quaternion(g[0])[1:] - 6.0 * cj.models.body_rate(mu, p)


def dump(mu, p, t, g):
    """A law for magnetic torquers that unloads the wheels."""
    b = g[0].T @ cj.models.magnetic_field(p, t)
    return 2e-3 * jnp.cross(mu[3:], b) / (b @ b)


ORBIT = (7e6, 0.05, 1.0, 0.3, 0.2, 0.1)
LAWS = {"wheels": cj.hold(pd, every=10), "dipole": cj.hold(dump, every=20)}
CRAFTS = {
    "wheels and their law": cj.models.spacecraft(control={"wheels": LAWS["wheels"]})[0],
    "on an orbit, with torquers too": cj.models.spacecraft(orbit=ORBIT, control=LAWS)[0],
    "and SALT noise and white torques": cj.models.spacecraft(
        orbit=ORBIT, control=LAWS, disturbance=1e-3, alpha=1e-3 * np.eye(3)
    )[0],
}
METHODS = {'RKMK("rk4")': cj.RKMK("rk4"), "TMK": cj.TMK()}


def measured(system: cj.System, method, steps: int = 4000, members: int = MEMBERS, tries: int = TRIES) -> float:
    """Nanoseconds per step and member."""
    start = np.zeros(system.algebra.dim)
    start[:3] = 0.6, -0.3, 0.8
    key = {"key": 0} if system.n_noise else {}

    def run(count: int) -> float:
        began = time.process_time()
        ens = cj.ensemble(
            system, start, members=members, t1=count * DT, dt=DT, integrator=method, save_every=count, **key
        )
        assert ens.stats.backend == "native", ens.stats.reason
        return time.process_time() - began

    short = steps // 10
    run(short)
    least = [min(run(count) for _ in range(tries)) for count in (short, steps)]
    return 1e9 * (least[1] - least[0]) / (steps - short) / members


def main() -> None:
    """All cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--into", type=Path, default=RESULTS, help="the file of results")
    into = parser.parse_args().into
    rows: dict = {}
    for name, method in METHODS.items():
        found: dict = {}
        for case, (system, beside) in CASES.items():
            ns = measured(system, method)
            found[case] = {"ns": round(ns, 1)}
            if beside is not None:
                own = next(case for case, (other, _) in CASES.items() if other is beside)
                found[case]["ratio"] = round(ns / found[own]["ns"], 2)
            print(name, case, found[case], flush=True)
        for case, system in CRAFTS.items():
            ns = measured(system, method, steps=100, members=100_000, tries=2)
            found[f"spacecraft, 100000 members: {case}"] = {"ns": round(ns, 1)}
            print(name, case, found[f"spacecraft, 100000 members: {case}"], flush=True)
        rows[name] = found
    about = {"date": datetime.date.today().isoformat(), "processor": platform.machine(), "jax": jax.__version__}
    into.write_text(json.dumps(about | {"members": MEMBERS, "results": rows}, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
