"""Draw long_energy.png: energy errors over ten million steps, and work against precision. `make docs` does not run it.

The body has a quartic energy, so that no method but a discrete gradient conserves it. Each method gets the same
processor time: its step is that of `LieMidpoint` times the ratio of the times per step. The measurements are in
benchmarks/results/long_energy.json; with `--again` the program repeats them, which takes a few minutes.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
from scipy.integrate import solve_ivp

import coadjoint as cj
from coadjoint.report import plotting

INERTIA, START = np.array([1.0, 2.0, 3.0]), np.array([0.6, -0.7, 0.9])
QUARTIC = np.array([0.05, 0.05, 0.0])
SYSTEM = cj.System(cj.SO3(), [lambda m, k=k: 0.5 * m[k] ** 2 / INERTIA[k] + QUARTIC[k] * m[k] ** 4 for k in range(3)])
STEPS, DT = 10_000_000, 0.05  # of LieMidpoint
ROWS = 20_000  # saved
METHODS = {
    'RKMK("rk4")': cj.RKMK("rk4"),
    "LieMidpoint": cj.LieMidpoint(),
    "Strang": cj.Strang(),
    "LieGauss(4)": cj.LieGauss(4),
    "LieGauss(6)": cj.LieGauss(6),
    "BlanesMoan(4)": cj.BlanesMoan(4),
    "BlanesMoan(6)": cj.BlanesMoan(6),
    'Composed(LieMidpoint(), "suzuki4")': cj.Composed(cj.LieMidpoint(), "suzuki4"),
    'DiscreteGradient("gonzalez")': cj.DiscreteGradient(),
}
STYLES = dict(
    zip(
        METHODS,
        (
            "#D55E00 o",
            "#009E73 o",
            "#009E73 s",
            "#0072B2 o",
            "#0072B2 s",
            "#56B4E9 o",
            "#56B4E9 s",
            "#8A6D00 o",
            "#CC79A7 o",
        ),
        strict=True,
    )
)
RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "long_energy.json"
T1 = 10.0  # of the errors against work
END = 1e-13


def seconds_per_step(method: cj.Integrator, dt: float) -> float:
    """Processor seconds of a step, without the cost of a call."""

    def seconds(steps: int) -> float:
        began = time.process_time()
        cj.solve(SYSTEM, START, t1=steps * dt, dt=dt, save_every=steps, integrator=method)
        return time.process_time() - began

    seconds(1000)  # compiles
    few, many = (min(seconds(n) for _ in range(3)) for n in (1000, 101_000))
    return (many - few) / 100_000


def long_runs() -> dict:
    """Time and energy error of each method at equal cost."""
    out, reference = {}, seconds_per_step(METHODS["LieMidpoint"], DT)
    for name, method in METHODS.items():
        dt = DT
        for _ in range(2):  # the number of iterations depends on the step
            dt = DT * seconds_per_step(method, dt) / reference
        every = round(STEPS * DT / dt / ROWS)
        steps = ROWS * every
        sol = cj.solve(SYSTEM, START, t1=steps * dt, dt=dt, save_every=every, integrator=method)
        error = np.maximum.accumulate(np.abs(sol.energy() - sol.energy()[0]))
        rows = np.unique(np.round(np.geomspace(1, ROWS, 200)).astype(int))
        out[name] = {"dt": dt, "steps": steps, "t": sol.t[rows].tolist(), "error": error[rows].tolist()}
        print(f"{name:38} dt = {dt:.4f}, {steps} steps, error {error[-1]:.1e}", flush=True)
    return out


def rate(t: float, m: np.ndarray) -> np.ndarray:
    """The equation of motion, for SciPy."""
    omega = m / INERTIA + 4.0 * QUARTIC * m**3
    return np.array(
        [m[1] * omega[2] - m[2] * omega[1], m[2] * omega[0] - m[0] * omega[2], m[0] * omega[1] - m[1] * omega[0]]
    )


def work() -> dict:
    """Error at `T1` and processor time of each method, and of SciPy's DOP853."""
    exact = solve_ivp(rate, (0.0, T1), START, "DOP853", rtol=3e-14, atol=1e-15).y[:, -1]
    out = {}
    for name, method in METHODS.items():
        if method.claims.energy:
            continue
        rows = []
        for n in np.round(10.0 * 2.0 ** np.arange(0, 11, 0.75)).astype(int):
            end = cj.solve(SYSTEM, START, t1=T1, dt=T1 / n, save_every=n, integrator=method, throw=False).mu[-1]
            error = float(np.max(np.abs(end - exact)))
            if np.isfinite(error):
                rows.append([n * seconds_per_step(method, T1 / n), error])
            if error < END:
                break
        out[name] = rows
        print(name, rows[-1], flush=True)
    rows = []
    for tol in 10.0 ** -np.arange(3, 14):
        began = [time.process_time()]
        for _ in range(5):
            end = solve_ivp(rate, (0.0, T1), START, "DOP853", rtol=tol, atol=tol).y[:, -1]
            began.append(time.process_time())
        rows.append([float(np.min(np.diff(began))), float(np.max(np.abs(end - exact)))])
    out["DOP853 of SciPy"] = rows
    return out


def draw(data: dict, path: Path) -> None:
    """Left the energy over time, right the error against work."""
    with plotting.style():
        fig = plotting.figure(plotting.PAGE, 3.7)
        left, right = fig.subplots(1, 2)
        for name, run in data["energy"].items():
            colour, mark = STYLES[name].split()
            line = {"color": colour, "linestyle": "-" if mark == "o" else "--"}
            left.loglog(run["t"], np.maximum(run["error"], 1e-16), label=name, **line)
        for name, rows in data["work"].items():
            colour, mark = STYLES.get(name, "#888888 D").split()
            seconds, errors = np.array(rows).T
            style = {"color": colour, "marker": mark, "markersize": 3, "linestyle": "-" if mark == "o" else "--"}
            right.loglog(1e6 * seconds, errors, label=name, **style)
        left.set(title="equal cost per unit of time", xlabel="time", ylabel="largest energy error so far")
        right.set(title="to t = 10", xlabel="processor time, µs", ylabel="error at the end")
        handles = {label: h for ax in (left, right) for h, label in zip(*ax.get_legend_handles_labels(), strict=True)}
        fig.legend(handles.values(), handles, loc="outside lower center", ncols=3)
        fig.savefig(path, dpi=200)


if __name__ == "__main__":
    if "--again" in sys.argv:
        RESULTS.write_text(json.dumps({"energy": long_runs(), "work": work()}))
    draw(json.loads(RESULTS.read_text()), Path(__file__).with_suffix(".png"))
