"""The sine-Euler equations at large steps: which converge, and what breaks down."""

import numpy as np

import coadjoint as cj
from coadjoint.report import plotting

from ..claims import Finding, Outcome
from .common import DRIFT_FREE, TRAPEZOIDAL, fluid, spread, verdict

SOLVERS = {"chord": DRIFT_FREE, "with fallbacks": cj.TMK()}
RULES = {"chord": TRAPEZOIDAL, "with fallbacks": cj.Trapezoidal()}


def run(p, key, say):
    """TMK over a range of steps with both solvers; then the trapezoidal rule until it fails."""
    system, W0 = fluid(p, key, max(p.realisations, p.trapezoidal_realisations))
    solved = {name: np.zeros((len(p.steps), p.realisations)) for name in p.solvers}
    errors = np.zeros((len(p.steps), p.realisations))
    for i, dt in enumerate(p.steps):
        for name in p.solvers:
            say(f"TMK, {name}, dt = {dt:g}")
            for k in range(p.realisations):
                times = {"t1": p.count * dt, "dt": dt, "key": (key << 20) + k}
                sol = cj.solve(system, W0[k], integrator=SOLVERS[name], throw=False, **times)
                solved[name][i, k] = 1 - sol.stats.unsolved / p.count
                errors[i, k] = max(errors[i, k], sol.casimir_errors().max())
    stands = {
        name: np.ones((len(p.trapezoidal_steps), p.trapezoidal_realisations), bool) for name in p.trapezoidal_solvers
    }
    for name in stands:
        for i, dt in enumerate(p.trapezoidal_steps):
            say(f"trapezoidal, {name}, dt = {dt:g}")
            for k in range(p.trapezoidal_realisations):
                stands[name][i, k] = _stands(p, system, W0[k], dt, (key << 20) + k, RULES[name])
    return Outcome(_findings(p, solved, errors, stands), (solved, errors, stands))


def _stands(p, system, W0, dt, key, rule):
    """Whether a run of the trapezoidal rule has neither a failed step nor a blow-up."""
    steps = round(p.trapezoidal_t1 / dt)
    sol = cj.solve(system, W0, t1=steps * dt, dt=dt, key=key, integrator=rule, throw=False)
    with np.errstate(over="ignore", invalid="ignore"):
        size = np.linalg.norm(sol.mu, axis=(1, 2))
    return sol.stats.unsolved == 0 and bool(np.all(size < p.blow_up * size[0]))


def _findings(p, solved, errors, stands):
    last = p.steps.index(500.0)
    share = {name: float(np.median(x[last])) for name, x in solved.items()}
    bounded = errors.max() < 1e-10
    first = {name: _first_failure(p, x) for name, x in stands.items()}
    words = {
        name: f"first at dt = {spread(x, '.1f')}"
        if np.all(np.isfinite(x))
        else f"none up to dt = {p.trapezoidal_steps[-1]:g}"
        for name, x in first.items()
    }
    return {
        "tmk-stable-at-500": Finding(
            f"Casimirs within {errors[last].max():.1e}; converged steps at dt = 500: "
            + ", ".join(f"{name} {x:.0%}" for name, x in share.items()),
            verdict(bounded and min(share.values()) > 0.99, bounded),
            p.realisations,
            {"error": errors[last].max()} | share,
        ),
        "trapezoidal-breaks-at-2": Finding(
            "; ".join(f"{name}: {text}" for name, text in words.items()),
            verdict(np.median(first["chord"]) <= 2.5),
            p.trapezoidal_realisations,
            {name: np.sort(x) for name, x in first.items()},
        ),
    }


def _first_failure(p, stands):
    """The first step size at which a run fails, for each realisation; infinite if none does."""
    return np.where(stands.all(axis=0), np.inf, np.array(p.trapezoidal_steps)[(~stands).argmax(axis=0)])


def draw(p, data):
    """Shares of converged steps, errors of the Casimirs, and runs of the trapezoidal rule without a failure."""
    solved, errors, stands = data
    fig = plotting.figure(plotting.PAGE, 3.0)
    left, right = fig.subplots(1, 2)
    for (name, x), line in zip(solved.items(), ("o-", "o--"), strict=False):
        left.semilogx(p.steps, x.mean(axis=1), line, color="C0", markersize=3, label=f"TMK, {name}: steps")
    for (name, x), line in zip(stands.items(), ("^-", "^--"), strict=False):
        left.semilogx(
            p.trapezoidal_steps, x.mean(axis=1), line, color="C1", markersize=3, label=f"trapezoidal, {name}: runs"
        )
    left.axvline(2, linestyle=":", color="0.5", label="paper: trapezoidal breaks")
    left.set(xlabel="step dt", ylabel="share that converges", ylim=(-0.05, 1.05))
    right.loglog(p.steps, plotting.on_log_axis(errors.max(axis=1)), "o-", markersize=3)
    right.set(xlabel="step dt", ylabel="largest scaled error, TMK", ylim=(1e-16, 1e-12))
    fig.legend(*left.get_legend_handles_labels(), loc="outside upper center", ncols=3)
    return {"large-steps": fig}
