"""Assimilation over 20 turnover times: a coarse model, n = 17, follows a fine run, n = 65, on the sphere.

    python benchmarks/assimilation.py [folder [filter …]]

The fine run, the coarse model and the noise are those of benchmarks/forecasts.py. The noise is calibrated on the times
60 to 340. From 352 to 472 every unit of time 16 sensors measure the stream function of the fine run, with errors of
half its standard deviation. Members start from the truth at 346 and run for one turnover time without data. Errors,
spreads and coverage are those of the spherical harmonics of degrees 2 to 8, each degree divided by its standard
deviation in the fine run. Results go to benchmarks/results/assimilation.json, the figure to docs/_static/stories.
"""

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import filters
import forecasts
import numpy as np

import coadjoint as cj

HERE = Path(__file__).parent
RESULTS, FIGURES = HERE / "results" / "assimilation.json", HERE.parent / "docs" / "_static" / "stories"
MEMBERS, DT, STEPS, CYCLES, TURNOVER = 100, 0.2, 5, 120, forecasts.TURNOVER
BEGIN, FIRST = 346.0, 352.0
METHOD = forecasts.METHOD
SURFACE = filters.SURFACE
SCORED = filters.SCORED


def setting(folder: Path) -> dict[str, Any]:
    """The model, its members at the time 352, the truth, and what is measured."""
    series = cj.data.coarse_grain(forecasts.fine_run(folder), 17, flow=cj.fluids.Flow(cj.fluids.Sphere(65)))
    noise = cj.data.calibrate(series.between(60.0, 340.0), window=TURNOVER)
    amplitude = json.loads(forecasts.RESULTS.read_text(encoding="utf-8"))["white"]["amplitude"]
    system = forecasts.coarse_model(noise_fields=amplitude * noise.fields)
    at = np.searchsorted(series.t, FIRST + STEPS * DT * np.arange(CYCLES + 1) - 1e-6)
    start = series.states(cj.fluids.of(system), at=int(np.searchsorted(series.t, BEGIN - 1e-6)))
    members = cj.ensemble(
        system, start, members=MEMBERS, t1=FIRST - BEGIN, dt=DT, save_every=30, key=1, integrator=METHOD
    ).mu[:, -1]
    H, truth = filters.sensors(), series.vorticity[at]
    std = 0.5 * float(np.std(series.between(60.0, 340.0).vorticity @ H.T))
    y = truth[1:] @ H.T + std * np.random.default_rng(0).standard_normal((CYCLES, len(H)))
    variance = np.mean(series.vorticity**2, axis=0)
    scale = np.sqrt([variance[filters.SHELLS == shell].mean() for shell in filters.SHELLS])[SCORED]
    return {"system": system, "members": members, "truth": truth[1:], "H": H, "std": std, "y": y, "scale": scale}


def methods(made: dict[str, Any]) -> dict[str, Any]:
    """The filters by name."""
    H = made["H"]
    sensor = cj.data.Gaussian(lambda W: H @ SURFACE.coefficients(W), std=made["std"])
    return {
        "bootstrap": cj.data.ParticleFilter(sensor, MEMBERS, method="bootstrap", smallest_size=1.0),
        "kalman": cj.data.GroupKalman(sensor, MEMBERS),
        "straight": cj.data.GroupKalman(sensor, MEMBERS, on_orbits=False),
        "particle": cj.data.ParticleFilter(sensor, MEMBERS, moves=1),
    }


def measure(made: dict[str, Any], name: str) -> dict[str, Any]:
    """Errors and spreads by cycle, and their means and the coverage over the last 15 turnover times."""
    times, begin = STEPS * DT * np.arange(1, CYCLES + 1), time.process_time()
    options = {"dt": DT, "key": 3, "integrator": METHOD, "save": SURFACE.coefficients}
    if name == "free":
        run = cj.ensemble(
            made["system"], made["members"], members=MEMBERS, t1=times[-1], save_every=STEPS, **options
        ).saved[:, 1:]
        values, w = np.asarray(run).swapaxes(0, 1), np.full((CYCLES, MEMBERS), 1 / MEMBERS)
    else:
        method = methods(made)[name]
        run = method.run(made["system"], made["members"], made["y"], times=times, keep_members=True, **options)
        values, w = np.asarray(run.members).swapaxes(0, 1), run.member_weights.T
    seconds = time.process_time() - begin
    x, truth = values[..., SCORED] / made["scale"], made["truth"][:, SCORED] / made["scale"]
    mean = np.einsum("tm,tmc->tc", w, x)
    rest = 1 - (w**2).sum(axis=1)
    spread = np.sqrt(np.mean(np.einsum("tm,tmc->tc", w, (x - mean[:, None]) ** 2) / rest[:, None], axis=1))
    below = np.einsum("tm,tmc->tc", w, x < truth[:, None])
    inside = np.mean((below >= 0.025) & (below <= 0.975), axis=1)
    rmse = np.sqrt(np.mean((mean - truth) ** 2, axis=1))
    late = slice(CYCLES // 4, None)
    found = {
        "rmse": float(rmse[late].mean()), "spread": float(spread[late].mean()),
        "coverage": float(inside[late].mean()), "rmse by cycle": np.round(rmse, 4).tolist(),
        "spread by cycle": np.round(spread, 4).tolist(), "processor seconds per cycle": seconds / CYCLES,
    }  # fmt: skip
    print(name, {k: v for k, v in found.items() if isinstance(v, float)}, flush=True)
    return found


def draw(record: dict[str, Any]) -> None:
    """Error and spread by time."""
    from matplotlib.figure import Figure

    names = {"free": "no filter", "bootstrap": "bootstrap filter", "kalman": "GroupKalman"}
    fig = Figure(figsize=(9, 3.4), layout="constrained")
    axes = fig.subplots(1, 2, sharex=True, sharey=True)
    t = STEPS * DT * np.arange(1, CYCLES + 1) / TURNOVER
    for name, label in names.items():
        for ax, what in zip(axes, ("rmse", "spread"), strict=True):
            ax.plot(t, record[name][f"{what} by cycle"], linewidth=1.2, label=label)
    for ax, title in zip(axes, ("error of the mean", "spread of the members"), strict=True):
        ax.set(xlabel="time / turnover time", ylim=(0, None), xlim=(0, t[-1]))
        ax.set_title(title, fontsize=10)
    axes[0].legend(fontsize=8)
    fig.savefig(FIGURES / "assimilation.png", dpi=150)


def main(folder: Path, names: list[str]) -> None:
    """Measure some filters, write each into the record, and draw the figure."""
    made = setting(folder)
    for name in names:
        record = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
        record |= {"members": MEMBERS, "cycles": CYCLES, "fields": made["system"].n_noise, name: measure(made, name)}
        RESULTS.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    draw(record)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        names = sys.argv[2:] or ["free", "bootstrap", "kalman", "straight"]
        main(Path(sys.argv[1] if len(sys.argv) > 1 else temporary), names)
