"""The Casimirs of the sine-Euler equations: Figures 8 and 9."""

import numpy as np

from coadjoint.report import plotting

from ..claims import Finding, Outcome
from .common import DRIFT_FREE, MIDPOINT, PLAIN, TRAPEZOIDAL, fluid, realise, spread, summary, verdict

METHODS = {
    "TMK": PLAIN,
    "TMK, drift-free": DRIFT_FREE,
    "trapezoidal": TRAPEZOIDAL,
    "midpoint": MIDPOINT,
}


def run(p, key, say):
    """Every method from the same states on the same paths."""
    system, W0 = fluid(p, key, p.realisations)
    worst, series = {}, {}
    for name, method in METHODS.items():
        say(name)
        times = {"t1": p.t1, "dt": p.dt, "save_every": p.save_every}
        runs = realise(system, W0, p.realisations, key, integrator=method, **times)
        errors = np.abs(runs.errors)
        worst[name], series[name] = errors.max(axis=1), errors[0]
    return Outcome(_findings(p, worst), (runs.t, series))


def _findings(p, worst):
    words = {name: f"{name}: C₂ {spread(x[:, 0])}, C₃ {spread(x[:, 1])}" for name, x in worst.items()}
    numbers = {name: {"C2": summary(x[:, 0]), "C3": summary(x[:, 1])} for name, x in worst.items()}
    median = {name: np.median(x, axis=0) for name, x in worst.items()}

    def finding(holds, condition, *names):
        ours = "; ".join(words[name] for name in names)
        return Finding(ours, verdict(holds, condition), len(worst["TMK"]), {name: numbers[name] for name in names})

    kept, lost = {n: m < p.kept_below for n, m in median.items()}, {n: m > p.lost_above for n, m in median.items()}
    return {
        "sine-euler-tmk": finding(worst["TMK"].max() < p.kept_below, False, "TMK", "TMK, drift-free"),
        "sine-euler-direct": finding(lost["trapezoidal"].all(), lost["trapezoidal"].any(), "trapezoidal"),
        "sine-euler-midpoint": finding(lost["midpoint"].all(), kept["midpoint"][0] and lost["midpoint"][1], "midpoint"),
    }


def draw(p, data):
    """Errors along the run: TMK plain and drift-free, then the classical methods."""
    t, series = data
    tmk = plotting.figure(plotting.COLUMN, 2.9)
    ax = tmk.subplots()
    _pair(ax, t, series["TMK"], "C0", "TMK")
    _pair(ax, t, series["TMK, drift-free"], "C2", "drift-free")
    guide = series["TMK"][-1].max() * t[1:] / t[-1]
    ax.loglog(t[1:], 2 * guide, "--", color="0.5", label="∝ t")
    direct = plotting.figure(plotting.COLUMN, 2.9)
    _pair(direct.subplots(), t, series["trapezoidal"], "C1", "trapezoidal")
    _pair(direct.axes[0], t, series["midpoint"], "C3", "midpoint")
    for fig in (tmk, direct):
        fig.axes[0].set(xlabel="time t", ylabel="largest scaled error so far", xlim=(t[1], t[-1]))
        fig.legend(*fig.axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    return {"sine-euler-tmk": tmk, "sine-euler-trapezoidal": direct}


def _pair(ax, t, errors, colour, name):
    for k, line in enumerate(("-", "-.")):
        values = plotting.on_log_axis(np.maximum.accumulate(errors[1:, k]))
        ax.loglog(t[1:], values, line, color=colour, alpha=1 - 0.4 * k, linewidth=0.9, label=f"{name} $C_{k + 2}$")
