"""How round-off grows over a million steps of the plain update."""

from types import SimpleNamespace

import numpy as np

from coadjoint.report import plotting

from ..claims import Finding, Outcome
from .common import PLAIN, fluid, jackknife, realise, slope, top, verdict


def run(p, key, say):
    """Errors along both systems, their exponents, and the step at which TMK loses as much as a classical method."""
    q = SimpleNamespace(**p.fluid)
    say(f"sine-Euler, {q.steps:,} steps")
    system, W0 = fluid(q, key, q.realisations)
    waves = _errors(system, W0, q, key)
    say(f"heavy top, {p.steps:,} steps")
    body = _errors(*top(p), p, key)
    findings = _heavy_top(p, body) | {"sine-euler-linear-growth": _sine_euler(q, waves)}
    return Outcome(findings, {"heavy top": body, "sine-Euler": waves})


def _errors(system, mu0, p, key):
    """Steps, and the scaled signed errors of the Casimirs (realisations, times, Casimirs)."""
    times = {"t1": p.steps * p.dt, "dt": p.dt, "save_every": p.save_every}
    errors = realise(system, mu0, p.realisations, key, integrator=PLAIN, **times).errors
    return p.save_every * np.arange(errors.shape[1]), errors


def _increments(steps, errors):
    """Lags, and the root mean square by which the errors change over a lag, over realisations, Casimirs and starts."""
    lags = np.unique(np.geomspace(1, len(steps) // 8, 24).astype(int))
    return steps[lags], np.array([np.sqrt(np.mean((errors[:, k:] - errors[:, :-k]) ** 2)) for k in lags])


def _exponent(steps, errors):
    """How the increments grow with the lag: ½ for a random walk, 1 for a trend; with its standard error."""
    return jackknife(lambda e: slope(*_increments(steps, e)), errors)


def _unit(steps, errors):
    """u, when the errors grow as u √n: from the increments over the longest lag."""
    lags, rms = _increments(steps, errors)
    return float(rms[-1] / np.sqrt(lags[-1]))


def _heavy_top(p, data):
    steps, errors = data
    exponent, error = _exponent(steps, errors)
    unit = _unit(steps, errors)
    reach = (p.direct_error / unit) ** 2
    return {
        "heavy-top-linear-growth": Finding(
            f"n^({exponent:.2f} ± {error:.2f}) over {steps[-1]:.0e} steps; {unit:.1e} √n",
            verdict(exponent > 0.8),
            len(errors),
            {"exponent": exponent, "standard_error": error, "unit": unit, "steps": int(steps[-1])},
        ),
        "ten-to-the-ten-steps": Finding(
            f"(5e-5 / {unit:.1e})² = {reach:.0e} steps", verdict(1e9 < reach < 1e11), len(errors), {"steps": reach}
        ),
    }


def _sine_euler(p, data):
    steps, errors = data
    exponent, error = _exponent(steps, errors)
    unit = _unit(steps, errors)
    return Finding(
        f"n^({exponent:.2f} ± {error:.2f}) over {steps[-1]:.0e} steps; {unit:.1e} √n",
        verdict(exponent > 0.8),
        len(errors),
        {"exponent": exponent, "standard_error": error, "unit": unit, "steps": int(steps[-1])},
    )


def draw(p, data):
    """The errors along the runs, and how they change over a lag."""
    fig = plotting.figure(plotting.PAGE, 4.6)
    names = {"heavy top": ("π·γ", "|γ|²"), "sine-Euler": ("$C_2$", "$C_3$")}
    for (above, below), (title, (steps, errors)) in zip(fig.subplots(2, 2).T, data.items(), strict=True):
        unit = 10.0 ** np.floor(np.log10(np.abs(errors).max()))
        for k, name in enumerate(names[title]):
            for r, series in enumerate(errors[:6, ::4, k]):
                above.plot(steps[::4], series / unit, color=f"C{k}", linewidth=0.6, label=None if r else name)
        above.set(xlabel="steps n", ylabel=f"scaled error / $10^{{{round(np.log10(unit))}}}$", title=title)
        above.set_xlim(0, steps[-1])
        above.locator_params(axis="x", nbins=4)
        above.ticklabel_format(axis="x", scilimits=(0, 0))
        above.legend(loc="upper left")
        lags, rms = _increments(steps, errors)
        below.loglog(lags, rms, "o-", markersize=3, label="measured")
        for power, line, label in ((0.5, "--", "∝ $\\sqrt{n}$"), (1.0, ":", "∝ n")):
            below.loglog(lags, rms[0] * (lags / lags[0]) ** power, line, color="0.5", label=label)
        below.set(xlabel="lag, steps", ylabel="r.m.s. change of the error")
        below.legend(loc="upper left")
    return {"growth-laws": fig}
