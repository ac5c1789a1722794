"""Sine-Euler on su(9): all Casimirs, and the vorticity on the torus."""

import numpy as np

import coadjoint as cj
from coadjoint.report import plotting

from ..claims import Finding, Outcome
from .common import DRIFT_FREE, MIDPOINT, PLAIN, fluid, verdict

METHODS = {"drift-free": DRIFT_FREE, "plain": PLAIN, "midpoint": MIDPOINT}


def run(p, key, say):
    """One realisation by each method; the fields of the drift-free one."""
    system, W0 = fluid(p, key, 1)
    errors = {}
    for name in p.methods:
        say(name)
        times = {"t1": p.t1, "dt": p.dt, "save_every": p.save_every}
        sol = cj.solve(system, W0[0], key=key, integrator=METHODS[name], **times)
        errors[name] = sol.casimir_errors()
        if name == "drift-free":
            t = sol.t
            at = [round(time / (p.dt * p.save_every)) for time in p.pictures]
            fields = np.stack([vorticity(sol.mu[i], p.pixels) for i in at])
    worst = {name: e.max(axis=0) for name, e in errors.items()}
    finding = Finding(
        "; ".join(f"{name}: C₂ {x[0]:.1e}, largest of C₃ … C₉ {x[1:].max():.1e}" for name, x in worst.items()),
        verdict(max(x.max() for name, x in worst.items() if name != "midpoint") < p.kept_below),
        1,
        worst,
    )
    return Outcome({"all-casimirs-n9": finding}, (t, errors, fields))


def vorticity(W, pixels):
    """ω(x, y) = Σ ω_m exp(i m·x) on a grid of the torus."""
    omega = np.asarray(cj.models.matrix_to_fourier(W, "paper"))
    n = omega.shape[0]
    m = np.where(np.arange(n) <= n // 2, np.arange(n), np.arange(n) - n)
    wave = np.exp(1j * np.outer(np.linspace(0, 2 * np.pi, pixels), m))
    return (wave @ omega @ wave.T).real


def draw(p, data):
    """Errors of all Casimirs, and the pictures."""
    t, errors, fields = data
    fig = plotting.figure(plotting.PAGE, 2.7)
    (axes,) = fig.subplots(1, len(errors), sharex=True, squeeze=False)
    for ax, (name, e) in zip(axes, errors.items(), strict=True):
        for k in range(e.shape[1]):
            colour = f"C{k % 6}"
            line = "-" if k < 6 else "--"
            values = plotting.on_log_axis(np.maximum.accumulate(e[1:, k]))
            ax.loglog(t[1:], values, line, color=colour, linewidth=0.9, label=f"$C_{k + 2}$")
        ax.set(xlabel="time t", title={"midpoint": "implicit midpoint"}.get(name, f"TMK, {name}"), xlim=(t[1], t[-1]))
    fig.axes[0].set_ylabel("largest scaled error so far")
    fig.legend(*fig.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=8)
    return {"sine-euler-9-casimirs": fig, "vorticity": _pictures(p, fields)}


def _pictures(p, fields):
    fig = plotting.figure(plotting.PAGE, 4.6)
    top = np.abs(fields).max()
    axes = fig.subplots(2, 3, sharex=True, sharey=True)
    for ax, time, field in zip(axes.flat, p.pictures, fields, strict=True):
        image = ax.imshow(
            field.T, origin="lower", extent=(0, 2 * np.pi, 0, 2 * np.pi), cmap="RdBu_r", vmin=-top, vmax=top
        )
        ax.set(title=f"t = {time:g}", xticks=[0, np.pi, 2 * np.pi], yticks=[0, np.pi, 2 * np.pi])
        ax.set_xticklabels(["0", "π", "2π"])
        ax.set_yticklabels(["0", "π", "2π"])
        ax.grid(False)
    for ax in axes[1]:
        ax.set_xlabel("x")
    for ax in axes[:, 0]:
        ax.set_ylabel("y")
    fig.colorbar(image, ax=axes, label="vorticity ω", shrink=0.8)
    return fig
