"""Filters in a twin experiment on the sphere, n = 17: python benchmarks/filters.py [seeds] [cycles].

Truth and members have the same model with eight noise fields, the same vorticity at the start, and ten steps of their
own noise before the first window. Shapes and amplitude of the fields are set by hand: random large-scale stream
functions with a vorticity of rms 0.12 each, from an estimate of displacements after runs of the bootstrap filter at
seed 0. 16 sensors measure the stream function every five steps, with errors of half its standard deviation. Errors,
spreads and coverage are those of the spherical harmonics of degrees 2 to 8, each degree divided by its standard
deviation in the free run. The first quarter of the cycles is left out. The results are in
benchmarks/results/filters.json.
"""

import json
import platform
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np

import coadjoint as cj

N, MEMBERS, FIELDS, SENSORS, STEPS, DT, SPIN_UP = 17, 100, 8, 16, 5, 0.2, 10
OUT = Path(__file__).parent / "results" / "filters.json"
SURFACE = cj.fluids.Sphere(N)
SHELLS = np.asarray(SURFACE.shells)
EIGENVALUES = np.asarray(SURFACE.eigenvalues)
INVERSE = np.where(EIGENVALUES > 0, -1.0 / np.where(EIGENVALUES > 0, EIGENVALUES, 1.0), 0.0)  # vorticity to stream
SCORED = (SHELLS >= 2) & (SHELLS <= 8)
METHOD = cj.IsospectralMidpoint(tol=1e-8)


def sensors() -> np.ndarray:
    """The matrix from vorticity coefficients to the stream function at points on a spiral."""
    k = np.arange(SENSORS) + 0.5
    latitude, longitude = np.arcsin(1 - 2 * k / SENSORS), (np.pi * (1 + 5**0.5) * k) % (2 * np.pi)
    values = np.stack([np.asarray(SURFACE.values(e, latitude)) for e in np.eye(N * N)], axis=-1)
    nearest = np.rint(longitude / (2 * np.pi) * values.shape[1]).astype(int) % values.shape[1]
    return values[np.arange(SENSORS), nearest] * INVERSE


def twin(seed: int, cycles: int, H: np.ndarray) -> dict[str, Any]:
    """The system, the truth, the observations and the members of one experiment."""
    rng = np.random.default_rng(seed)
    vorticity = [cj.fluids.random_field(SURFACE, 100 * seed + i, peak=4, slope=4, rms=0.12) for i in range(FIELDS)]
    fields = np.stack(vorticity) * INVERSE
    omega = cj.fluids.random_field(SURFACE, 7000 + seed, peak=4, slope=3, rms=1.0)
    system, W0 = cj.models.euler_sphere(N, noise_fields=fields, omega=omega)
    start = cj.ensemble(
        system, W0, members=MEMBERS + 1, t1=SPIN_UP * DT, dt=DT, key=seed, save_every=SPIN_UP, integrator=METHOD
    ).mu[:, -1]
    truth = cj.solve(
        system, start[0], t1=cycles * STEPS * DT, dt=DT, key=10_000 + seed, save_every=STEPS, integrator=METHOD
    ).mu[1:]
    c = np.asarray(jax.vmap(SURFACE.coefficients)(truth))
    std = 0.5 * np.std(c @ H.T)
    return {
        "system": system, "members": np.asarray(start[1:]), "truth": c, "std": std,
        "y": c @ H.T + std * rng.standard_normal((cycles, SENSORS)),
    }  # fmt: skip


def scores(members: np.ndarray, truth: np.ndarray, scale: np.ndarray, weights: np.ndarray) -> dict[str, float]:
    """RMSE of the mean, spread, and coverage of the central 95 %, of members with shape (times, members, modes)."""
    late = slice(len(truth) // 4, None)
    x, y, w = members[late] / scale, truth[late] / scale, weights[late]
    mean = np.einsum("tm,tmc->tc", w, x)
    rest = 1 - (w**2).sum(axis=1)
    spread = np.sqrt(np.mean(np.einsum("tm,tmc->tc", w, (x - mean[:, None]) ** 2) / rest[:, None]))
    below = np.einsum("tm,tmc->tc", w, x < y[:, None])
    inside = np.mean((below >= 0.025) & (below <= 0.975))
    rmse = np.mean(np.sqrt(np.mean((mean - y) ** 2, axis=1)))
    return {"rmse": float(rmse), "spread": float(spread), "coverage": float(inside)}


def study(seed: int, cycles: int, H: np.ndarray) -> dict[str, Any]:
    """The scores of all filters in one twin."""
    made = twin(seed, cycles, H)
    system, y = made["system"], made["y"]
    times = STEPS * DT * np.arange(1, cycles + 1)
    free = cj.ensemble(
        system, made["members"], members=MEMBERS, t1=times[-1], dt=DT, key=20_000 + seed, save_every=STEPS,
        integrator=METHOD, save=SURFACE.coefficients,
    ).saved[:, 1:].swapaxes(0, 1)  # fmt: skip
    variance = np.mean(np.asarray(free) ** 2, axis=(0, 1))
    scale = np.sqrt([variance[SHELLS == shell].mean() for shell in SHELLS])[SCORED]
    equal = np.full((cycles, MEMBERS), 1 / MEMBERS)
    found = {"free": scores(np.asarray(free)[..., SCORED], made["truth"][:, SCORED], scale, equal)}
    sensor = cj.data.Gaussian(lambda W: H @ SURFACE.coefficients(W), std=float(made["std"]))
    print(seed, "free", found["free"], flush=True)
    filters = {
        "bootstrap": cj.data.ParticleFilter(sensor, MEMBERS, method="bootstrap", smallest_size=1.0),
        "particle": cj.data.ParticleFilter(sensor, MEMBERS),
        "kalman": cj.data.GroupKalman(sensor, MEMBERS),
    }
    before = np.linalg.eigvalsh(-1j * made["members"])
    for name, method in filters.items():
        run = method.run(
            system, made["members"], y, times=times, dt=DT, key=30_000 + seed, integrator=METHOD,
            save=SURFACE.coefficients, keep_members=True,
        )  # fmt: skip
        values = np.asarray(run.members)[..., SCORED].swapaxes(0, 1)
        own = scores(values, made["truth"][:, SCORED], scale, run.member_weights.T)
        after = np.linalg.eigvalsh(-1j * run.states)
        own["eigenvalues"] = float(np.abs(after - before).max() / np.abs(before).max())
        if run.ess is not None:
            own |= {"ess": float(run.ess.mean()), "temperatures": float(run.temperatures.mean())}
        if name == "particle":
            own["acceptance"] = float(np.nanmean(run.acceptance))
        found[name] = own
        print(seed, name, {k: float(f"{v:.3g}") for k, v in own.items()}, flush=True)
    return found


def main() -> None:
    """All seeds, and their means."""
    seeds, cycles = (int(x) for x in (*sys.argv[1:], *("5", "16")[len(sys.argv) - 1 :]))
    H = sensors()
    runs = [study(seed, cycles, H) for seed in range(seeds)]
    mean = {
        name: {key: float(np.mean([run[name][key] for run in runs])) for key in own} for name, own in runs[0].items()
    }
    about = {"n": N, "members": MEMBERS, "fields": FIELDS, "sensors": SENSORS, "steps": STEPS, "cycles": cycles}
    about |= {"seeds": seeds, "jax": jax.__version__, "machine": platform.machine()}
    OUT.write_text(json.dumps({"about": about, "mean": mean, "seeds": runs}, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(mean, indent=1))


if __name__ == "__main__":
    main()
