"""The Casimirs of the heavy top, TMK against classical methods: Figures 4, 5 and 6."""

import numpy as np

import coadjoint as cj
from coadjoint.report import plotting

from ..claims import Finding, Outcome
from .common import DRIFT_FREE, MIDPOINT, PLAIN, TRAPEZOIDAL, diag, realise, spread, summary, top, verdict


def methods(p):
    """The methods by name; the paper's TMK is the plain update."""
    return {
        "TMK": PLAIN,
        "TMK, drift-free": DRIFT_FREE,
        "midpoint": MIDPOINT,
        "midpoint, loose tolerance": cj.ImplicitMidpoint(tol=p.loose_tolerance, solver="fixed_point", fallbacks=False),
        "trapezoidal": TRAPEZOIDAL,
        "Heun": cj.Heun(),
    }


def run(p, key, say):
    """Every method on the same paths, for both tops; worst errors over the run, and one realisation to draw."""
    worst = {name: [] for name in methods(p)}
    series = {}
    for inertia in p.inertias:
        system, mu0 = top(p, inertia)
        for name, method in methods(p).items():
            say(f"{diag(inertia)}, {name}")
            runs = realise(system, mu0, p.realisations, key, t1=p.t1, dt=p.dt, integrator=method)
            errors = runs.casimirs - runs.casimirs[:, :1]
            worst[name].append(np.abs(errors).max(axis=1))
            series[name] = (errors[0], np.median(np.abs(errors), axis=0))
    worst = {name: np.concatenate(x) for name, x in worst.items()}
    return Outcome(_findings(p, worst), (runs.t, series))


def _findings(p, worst):
    words = {name: f"π·γ {spread(x[:, 0])}, |γ|² {spread(x[:, 1])}" for name, x in worst.items()}
    median = {name: np.median(x, axis=0) for name, x in worst.items()}
    numbers = {name: {"pi_gamma": summary(x[:, 0]), "gamma_squared": summary(x[:, 1])} for name, x in worst.items()}
    count = len(worst["TMK"])

    def finding(holds, *names):
        ours = "; ".join(f"{name}: {words[name]}" for name in names)
        return Finding(ours, verdict(holds), count, {name: numbers[name] for name in names})

    return {
        "tmk-keeps-casimirs": finding(worst["TMK"].max() < p.kept_below, "TMK", "TMK, drift-free"),
        "midpoint-loses-casimirs": finding(
            (median["midpoint"] > p.lost_above).all(), "midpoint", "midpoint, loose tolerance"
        ),
        "trapezoidal-loses-casimirs": finding(
            (median["trapezoidal"] > p.lost_above).all() and (median["Heun"] > p.lost_above).all(),
            "trapezoidal",
            "Heun",
        ),
    }


def draw(p, data):
    """Figures 4 to 6, of the last top (not integrable)."""
    t, series = data
    symbols = ("π·γ", "|γ|²")
    figures = {}
    for k, name in enumerate(("casimir-pi-gamma", "casimir-gamma-squared")):
        figures[name] = _compared(t, series, k, symbols[k])
    fig = plotting.figure(plotting.COLUMN, 2.8)
    ax = fig.subplots()
    one, median = series["TMK"]
    for k, colour in enumerate(("C0", "C1")):
        ax.plot(t, 1e15 * np.abs(one[:, k]), color=colour, linewidth=0.7, label=symbols[k])
        ax.plot(t, 1e15 * median[:, k], ":", color=colour, label=f"{symbols[k]}, median")
    ax.plot(t, 0.1 * np.sqrt(t / (t[1] - t[0])), "--", color="0.5", label="$10^{-16}\\sqrt{n}$")
    ax.set(xlabel="time t", ylabel="absolute error / $10^{-15}$", xlim=(0, t[-1]), ylim=(0, None))
    fig.legend(*ax.get_legend_handles_labels(), loc="outside upper center", ncols=3)
    figures["casimir-errors-tmk"] = fig
    return figures


def _compared(t, series, k, symbol):
    fig = plotting.figure(plotting.COLUMN, 3.4)
    above, below = fig.subplots(2, 1, sharex=True)
    for name, colour, line in (("trapezoidal", "C1", "-"), ("midpoint", "C2", "-"), ("TMK", "C0", "--")):
        above.plot(t, series[name][0][:, k], line, color=colour, label=name)
        if name != "trapezoidal":
            below.plot(t, 1e15 * series[name][0][:, k], color=colour, linewidth=0.8, label=name)
    above.ticklabel_format(axis="y", scilimits=(0, 0))
    above.set(ylabel=f"{symbol} − initial value", xlim=(0, t[-1]))
    below.set(xlabel="time t", ylabel="the same × $10^{15}$")
    fig.legend(*above.get_legend_handles_labels(), loc="outside upper center", ncols=3)
    return fig
