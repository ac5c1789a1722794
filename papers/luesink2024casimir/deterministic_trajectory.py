"""A deterministic heavy top: Figure 1."""

import numpy as np

import coadjoint as cj
from coadjoint.report import Curve, Scene, plotting

from ..claims import Finding, Outcome
from .common import PLAIN, top, verdict


def run(p, key, say):
    """One trajectory, its integral π₃, and how far it is from closing after a period of the nutation."""
    system, mu0 = top(p, noise=False)
    sol = cj.solve(system, mu0, t1=p.t1, dt=p.dt, integrator=PLAIN)
    pi, gamma = sol.mu[:, :3], sol.mu[:, 3:]
    drift = np.abs(pi[:, 2] - pi[0, 2]).max()
    peaks = _peaks(sol.t, gamma[:, 2])
    periods = np.diff(peaks)
    jitter = np.ptp(periods) / periods.mean()
    gap = np.linalg.norm(_at(sol, peaks[1]) - _at(sol, peaks[0]))
    equatorial = abs(p.chi[2]) == 0 and abs(mu0[:3] @ mu0[3:]) == 0
    findings = {
        "pi-in-plane": Finding(f"max |π₃(t) − π₃(0)| = {drift:.1e}", verdict(drift < 1e-13), 1, {"drift": drift}),
        "regular-orbits": Finding(
            f"period of γ₃ {periods.mean():.4f}, the same to {jitter:.0e}; the state returns to within {gap:.2f}",
            verdict(jitter < 1e-3 and gap < 1e-3, jitter < 1e-3),
            1,
            {"period": periods.mean(), "variation": jitter, "gap": gap},
        ),
        "goryachev-chaplygin": Finding(
            f"χ = e₃ and π·γ = {float(mu0[:3] @ mu0[3:]):.0f}; π₃ conserved to {drift:.1e}",
            verdict(equatorial),
            1,
            {"pi_gamma": float(mu0[:3] @ mu0[3:])},
        ),
    }
    every = slice(None, None, 2)
    curves = [Curve("γ", gamma[every]), Curve("π", pi[every], dashed=True)]
    return Outcome(findings, sol.mu, [Scene("Deterministic heavy top, diag(4,4,1).", sol.t[every], curves, 1.0)])


def draw(p, mu):
    """π dashed, γ on the sphere."""
    fig = plotting.figure(plotting.COLUMN, 3.2)
    plotting.trajectories_3d(fig, [("γ", mu[:, 3:], "-"), ("π", mu[:, :3], "--")], sphere=1.0)
    return {"deterministic-441": fig}


def _peaks(t, x):
    """Times of the maxima, each by the parabola through three samples."""
    k = 1 + np.flatnonzero((x[1:-1] > x[:-2]) & (x[1:-1] >= x[2:]))
    a, b, c = x[k - 1], x[k], x[k + 1]
    return t[k] + 0.5 * (t[1] - t[0]) * (a - c) / (a - 2 * b + c)


def _at(sol, time):
    return np.array([np.interp(time, sol.t, column) for column in sol.mu.T])
