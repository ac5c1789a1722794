"""Strong orders of TMK and Euler–Maruyama-MK with several kinds of noises, and of methods with path integrals."""

from types import SimpleNamespace

import numpy as np

import coadjoint as cj
from coadjoint.report import plotting

from ..claims import Finding, Outcome
from .common import DRIFT_FREE, fluid, jackknife, slope, top, verdict

METHODS = {"TMK": DRIFT_FREE, "Euler–Maruyama-MK": cj.EulerMaruyamaMK()}
WITH_INTEGRALS = {"TMK with Lévy areas": cj.TMKLevy(fallbacks=False), "TMK of order 1.5": cj.TMK15(fallbacks=False)}


def run(p, key, say):
    """The strong errors and orders of every case and method, and of the methods that use more of the path."""
    errors, findings = {}, {}
    for name, (system, mu0) in _cases(p, key).items():
        errors[name] = _errors(p, system, mu0, key, lambda note, name=name: say(f"{name}, {note}"))
        findings[f"strong-order-{name}"] = _finding(p, errors[name])
    say("with Lévy areas, and of order 1.5")
    integrals = _of_integrals(p, key)
    findings |= _integral_findings(p, integrals)
    return Outcome(findings, ({name: {m: _rms(x) for m, x in e.items()} for name, e in errors.items()}, integrals))


def _cases(p, key):
    """System and starting state by case."""
    _, mu0 = top(p, noise=False)
    cases = {
        name: (cj.System(cj.SE3(), _hamiltonian(p), noise=[cj.salt(np.array(beta))]), mu0)
        for name, beta in (("one-noise", p.one), ("commuting", p.commuting), ("non-commuting", p.non_commuting))
    }
    system, W0 = fluid(SimpleNamespace(**p.fluid), key, 1)
    return cases | {"sine-euler": (system, W0[0])}


def _hamiltonian(p):
    inertia, chi = np.array(p.inertia, float), np.array(p.chi, float)
    return lambda mu: 0.5 * mu[:3] @ (mu[:3] / inertia) - chi @ mu[3:]


def _errors(p, system, mu0, key, say):
    """By method, squared errors at t1: (realisations, levels)."""
    grid = 2.0**-p.reference_level
    driver = cj.Brownian(key, grid=grid)

    def end(method, dt):
        say(f"dt = {dt:g}")
        steps = round(p.t1 / dt)
        runs = cj.ensemble(
            system, mu0, members=p.realisations, t1=p.t1, dt=dt, driver=driver, integrator=method, save_every=steps
        )
        return runs.mu[:, -1].reshape(p.realisations, -1)

    reference = end(METHODS["TMK"], grid)
    return {
        name: np.stack([np.sum(np.abs(end(m, 2.0**-k) - reference) ** 2, axis=1) for k in p.levels], axis=1)
        for name, m in METHODS.items()
    }


def _of_integrals(p, key):
    """The case of non-commuting noises with methods that use integrals of the path, against one of order 1.5."""
    system, mu0 = _cases(p, key)["non-commuting"]
    judge = WITH_INTEGRALS["TMK of order 1.5"], 2.0**-p.integrals_reference_level
    steps = 2.0 ** -np.array(p.levels)
    return cj.convergence(system, mu0, WITH_INTEGRALS, steps, p.realisations, key, t1=p.t1, reference=judge)


def _integral_findings(p, study):
    least = {"levy-areas": 0.85, "strong-order-one-and-a-half": 1.35}
    findings = {}
    for claim, name, order, error in zip(least, study.names, study.order, study.order_error, strict=True):
        numbers = {name: {"order": float(order), "standard_error": float(error)}}
        holds = verdict(order > least[claim])
        findings[claim] = Finding(f"{name} {order:.2f} ± {error:.2f}", holds, p.realisations, numbers)
    return findings


def _rms(squares):
    return np.sqrt(squares.mean(axis=0))


def _finding(p, errors):
    steps = 2.0 ** -np.array(p.levels)
    orders = {name: jackknife(lambda e: slope(steps, _rms(e)), x) for name, x in errors.items()}
    return Finding(
        ", ".join(f"{name} {order:.2f} ± {error:.2f}" for name, (order, error) in orders.items()),
        verdict(all(order > 0.8 for order, _ in orders.values())),
        p.realisations,
        {name: {"order": order, "standard_error": error} for name, (order, error) in orders.items()},
    )


def draw(p, data):
    """Errors against the step, one panel a case; and the methods that use integrals of the path."""
    data, integrals = data
    steps = 2.0 ** -np.array(p.levels)
    fig = plotting.figure(plotting.PAGE, 2.6)
    titles = {"one-noise": "one noise", "sine-euler": "sine-Euler"}
    for ax, (case, errors) in zip(fig.subplots(1, 4, sharex=True), data.items(), strict=True):
        for (name, rms), colour, mark in zip(errors.items(), ("C0", "C1"), ("C0", "none"), strict=True):
            ax.loglog(steps, rms, "o-", base=2, color=colour, markerfacecolor=mark, markersize=4, label=name)
        for order, line in ((1.0, "--"), (0.5, ":")):
            guide = 0.6 * min(x[0] for x in errors.values()) * (steps / steps[0]) ** order
            ax.loglog(steps, guide, line, base=2, color="0.5", label=f"order {order:g}")
        ax.set_yscale("log", base=10)
        ax.set(xlabel="step dt", title=titles.get(case, f"{case} noises"))
    fig.axes[0].set_ylabel("strong error at T")
    fig.legend(*fig.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return {
        "strong-orders": fig,
        "strong-orders-integrals": _draw_integrals(steps, data["non-commuting"]["TMK"], integrals),
    }


def _draw_integrals(steps, plain, study):
    fig = plotting.figure(plotting.COLUMN, 2.9)
    ax = fig.subplots()
    rows = zip(("TMK", *study.names), (plain, *study.rms), (0.5, 1.0, 1.5), "osD", (":", "--", "-."), strict=True)
    for name, rms, order, mark, line in rows:
        ax.loglog(steps, rms, f"{mark}-", base=2, markersize=4, label=name)
        guide = 0.6 * rms[0] * (steps / steps[0]) ** order
        ax.loglog(steps, guide, line, base=2, color="0.5", linewidth=0.8, label=f"order {order:g}")
    ax.set_yscale("log", base=10)
    ax.set(xlabel="step dt", ylabel="strong error at T")
    handles, labels = ax.get_legend_handles_labels()
    fig.legend(handles[::2] + handles[1::2], labels[::2] + labels[1::2], loc="outside lower center", ncols=2)
    return fig
