"""Energy without noise: Figure 7, and what a quartic Hamiltonian does."""

import jax.numpy as jnp
import numpy as np

import coadjoint as cj
from coadjoint.report import plotting

from ..claims import Finding, Outcome
from .common import PLAIN, diag, slope, top, verdict


def run(p, key, say):
    """Both tops without noise, the printed Hamiltonian along them, and the order of the error for a quartic one."""
    series, printed = {}, []
    for inertia in p.inertias:
        say(diag(inertia))
        system, mu0 = top(p, inertia, noise=False)
        sol = cj.solve(system, mu0, t1=p.t1, dt=p.dt, integrator=PLAIN)
        h = sol.energy()
        series[diag(inertia)] = np.abs(h - h[0])
        pi, gamma = sol.mu[:, :3], sol.mu[:, 3:]
        printed.append(np.ptp(np.sum(pi**2 / np.array(inertia), axis=1) + gamma @ np.array(p.chi, float)))
    say("a quartic Hamiltonian")
    quartic = np.array([_quartic_error(p, dt) for dt in p.quartic_steps])
    order = slope(p.quartic_steps, quartic)
    worst = {name: float(e.max()) for name, e in series.items()}
    kept = max(worst.values()) < 1e-13
    ours = ", ".join(f"{name} {e:.1e}" for name, e in worst.items())
    findings = {
        "energy-kept": Finding(
            f"max |h(t) − h(0)|: {ours}; quartic h: {quartic[-1]:.1e} at dt = {p.quartic_steps[-1]:g}, "
            f"order {order:.2f}",
            verdict(kept and quartic.max() < 1e-13, kept),
            len(worst),
            {**worst, "quartic": quartic, "order": order},
        ),
        "printed-hamiltonian": Finding(
            f"it varies by {', '.join(f'{x:.2f}' for x in printed)}; ½ π·I⁻¹π − χ·γ by {max(worst.values()):.1e}",
            verdict(max(printed) < 1e-10),
            len(worst),
            {"printed": printed},
        ),
    }
    return Outcome(findings, (sol.t, series, quartic))


def _quartic_error(p, dt):
    inertia, chi, q = (jnp.array(x, float) for x in (p.inertia, p.chi, p.quartic))
    _, mu0 = top(p, noise=False)

    def hamiltonian(mu):
        pi, gamma = mu[:3], mu[3:]
        return 0.5 * pi @ (pi / inertia) - chi @ gamma + 0.25 * q @ pi**4

    sol = cj.solve(cj.System(cj.SE3(), hamiltonian), mu0, t1=p.quartic_t1, dt=dt, integrator=PLAIN)
    h = sol.energy()
    return np.abs(h - h[0]).max()


def draw(p, data):
    """The error along the run, and against the step."""
    t, series, quartic = data
    fig = plotting.figure(plotting.COLUMN, 2.4)
    ax = fig.subplots()
    for name, e in series.items():
        ax.plot(t, 1e15 * e, linewidth=0.7, label=name)
    ax.set(xlabel="time t", ylabel="|h(t) − h(0)| / $10^{-15}$", xlim=(0, t[-1]), ylim=(0, None))
    ax.legend(loc="upper left")
    orders = plotting.figure(plotting.COLUMN, 2.4)
    ax = orders.subplots()
    ax.loglog(p.quartic_steps, quartic, "o-", markersize=4, label="quartic h")
    plotting.slope_triangle(ax, p.quartic_steps[-2], quartic[-2] / 3, 2, label="order 2")
    ax.set(xlabel="step dt", ylabel="max |h(t) − h(0)|")
    ax.set_xticks(p.quartic_steps, [f"{dt:g}" for dt in p.quartic_steps], minor=False)
    ax.set_xticks([], minor=True)
    ax.legend()
    return {"energy": fig, "energy-quartic": orders}
