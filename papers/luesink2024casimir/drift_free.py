"""Ten million steps, with the plain and the drift-free update."""

import numpy as np

import coadjoint as cj
from coadjoint.report import plotting

from ..claims import Finding, Outcome
from .common import DRIFT_FREE, PLAIN, top, verdict

UPDATES = {"plain": PLAIN, "drift-free": DRIFT_FREE}


def run(p, key, say):
    """Both updates on the same path."""
    system, mu0 = top(p, [4, 2, 1])
    errors = {}
    for name, method in UPDATES.items():
        say(f"{name}, {p.steps:,} steps")
        times = {"t1": p.steps * p.dt, "dt": p.dt, "save_every": p.save_every}
        errors[name] = cj.solve(system, mu0, key=key, integrator=method, **times).casimir_errors()
    worst = {name: e.max(axis=0) for name, e in errors.items()}
    ours = "; ".join(f"{name}: π·γ {x[0]:.1e}, |γ|² {x[1]:.1e}" for name, x in worst.items())
    flat, grows = worst["drift-free"].max() < p.flat_below, worst["plain"].max() > worst["drift-free"].max()
    finding = Finding(f"{p.steps:.0e} steps, {ours}", verdict(flat and not grows, flat), 1, worst)
    return Outcome({"drift-free": finding}, errors)


def draw(p, errors):
    """The largest error so far."""
    fig = plotting.figure(plotting.COLUMN, 2.8)
    ax = fig.subplots()
    n = p.save_every * np.arange(1, 1 + len(errors["plain"][1:]))
    for name, colour in (("plain", "C1"), ("drift-free", "C0")):
        for k, (symbol, line) in enumerate((("π·γ", "-"), ("|γ|²", "-."))):
            so_far = np.maximum.accumulate(errors[name][1:, k])
            ax.loglog(n, plotting.on_log_axis(so_far), line, color=colour, label=f"{name} {symbol}")
    ax.loglog(n, 1e-16 * np.sqrt(n), "--", color="0.5", label="$10^{-16}\\sqrt{n}$")
    ax.set(xlabel="steps n", ylabel="largest error so far", xlim=(n[0], n[-1]))
    fig.legend(*ax.get_legend_handles_labels(), loc="outside upper center", ncols=3)
    return {"drift-free": fig}
