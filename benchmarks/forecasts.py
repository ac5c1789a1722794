"""Forecasts of a stirred flow on the sphere with calibrated noise, n = 65 to 17.

    python benchmarks/forecasts.py [folder [case …]]

The fine run has steady stirring, drag and hyperviscosity, and a turnover time of 6. The store of it stays in the folder
(by default a temporary one), so that another call reuses it. Noise is calibrated on the times 60 to 340, its amplitude
on 12 starts among them. Scores are those of 20 other starts, degrees 2 to 8, with 50 members. Results go to
benchmarks/results/forecasts.json, figures to docs/_static/stories.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import coadjoint as cj

HERE = Path(__file__).parent
RESULTS, FIGURES = HERE / "results" / "forecasts.json", HERE.parent / "docs" / "_static" / "stories"
N, COARSE, TURNOVER = 65, 17, 6.0
TRAINING, HELD_OUT = 62 + 22.0 * np.arange(12), 352 + 12.4 * np.arange(20)
LEADS = [3.0, 6.0, 9.0, 12.0]
METHOD = cj.IsospectralMidpoint(tol=1e-8)
STIRRING = cj.fluids.random_field(cj.fluids.Sphere(N), 2, peak=5, slope=12, rms=0.12)


def fine_run(folder: Path) -> Path:
    """The store of the fine run."""
    store = folder / "fine.zarr"
    if not store.exists():
        omega = cj.fluids.random_field(cj.fluids.Sphere(N), 1, peak=5, slope=3, rms=1.0)
        system, W0 = cj.models.euler_sphere(N, omega=omega, stirring=STIRRING, drag=0.03, hyperviscosity=2e-14)
        method = cj.IsospectralMidpoint(tol=1e-10)
        cj.solve(system, W0, t1=612.0, dt=0.05, save_every=4, integrator=method, out=store)
    return store


def coarse_model(**noise) -> cj.System:
    """The coarse model with the same stirring and drag."""
    rate = 0.3 / (COARSE * (COARSE - 1.0)) ** 4
    stirring = np.asarray(STIRRING)[: COARSE**2]
    return cj.models.euler_sphere(COARSE, stirring=stirring, drag=0.03, hyperviscosity=rate, **noise)[0]


def table(found: cj.data.Forecast, training: cj.data.Forecast) -> dict:
    """Scores by forecast and lead time."""
    scores = found.scores(training)
    rows = {}
    for name in scores["forecast"].values.tolist():
        one = scores.sel(forecast=name)
        rows[name] = {k: [round(float(x), 4) for x in one[k].values] for k in scores if not np.isnan(one[k]).all()}
    return rows


def tune(system: cj.System, series: cj.data.FieldSeries, driver: cj.Driver, **options) -> tuple[dict, cj.data.Tuned]:
    """The record of a tuned model, and the result."""
    best = cj.data.tuned(
        system, series, training=TRAINING, held_out=HELD_OUT, driver=driver, leads=LEADS, dt=0.2, integrator=METHOD,
        **options,
    )  # fmt: skip
    record = {"amplitude": best.amplitude, "fields": system.n_noise}
    return record | table(best.held_out, best.training), best


def white(series: cj.data.FieldSeries) -> dict:
    """White noise on EOFs, its figures, and the same with a third and the triple of the amplitude."""
    noise = cj.data.calibrate(series.between(60.0, 340.0), window=TURNOVER)
    system = coarse_model(noise_fields=noise.fields)
    record, best = tune(system, series, cj.Brownian(7))
    noise.scaled(best.amplitude).plot().savefig(FIGURES / "calibrated_noise.png", dpi=150)
    best.held_out.plot(best.training).savefig(FIGURES / "calibrated_forecast.png", dpi=150)
    found = {"white": record | {"whiteness at T/2": cj.data.whiteness(noise, 0.5 * TURNOVER).attrs["mean_ratio"]}}
    for name, factor in (("a third of the amplitude", 1 / 3), ("three times the amplitude", 3.0)):
        other = cj.vary(system, noise=factor * best.amplitude)
        options = {"leads": LEADS, "dt": 0.2, "integrator": METHOD, "driver": cj.Brownian(7)}
        found[name] = table(cj.data.forecast(other, series, HELD_OUT, **options), best.training)
    return found


def coloured(series: cj.data.FieldSeries) -> dict:
    """Ornstein–Uhlenbeck noise on EOFs."""
    noise = cj.data.calibrate(series.between(60.0, 340.0), window=TURNOVER, coloured=True)
    return {"coloured": tune(coarse_model(noise_fields=noise.fields), series, noise.driver(7))[0]}


def isotropic(series: cj.data.FieldSeries) -> dict:
    """White noise on all modes of degrees 2 to 8, with equal velocities."""
    l = np.arange(2.0, 9.0)
    system = coarse_model(noise_shells=(2, 8), amplitude=1 / np.sqrt(l * (l + 1)))
    return {"isotropic": tune(system, series, cj.Brownian(7), amplitude=0.02)[0]}


CASES = {case.__name__: case for case in (white, coloured, isotropic)}


def study(folder: Path, names: list[str]) -> None:
    """Run some cases; write each into the record."""
    series = cj.data.coarse_grain(fine_run(folder), COARSE, flow=cj.fluids.Flow(cj.fluids.Sphere(N)))
    for name in names:
        begin = time.time()
        found = CASES[name](series)
        record = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
        record |= {"leads": LEADS, "members": 50, "held_out_starts": len(HELD_OUT)} | found
        RESULTS.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"{name}: {time.time() - begin:.0f} s", found, flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        study(Path(sys.argv[1] if len(sys.argv) > 1 else temporary), sys.argv[2:] or list(CASES))
