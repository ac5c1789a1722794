"""Stochastic heavy tops: Figures 2 and 3."""

import numpy as np

from coadjoint.report import Curve, Scene, plotting

from ..claims import Finding, Outcome
from .common import PLAIN, diag, realise, spread, summary, top, verdict


def run(p, key, say):
    """Realisations of both tops; the first one of each is drawn."""
    off, length, shown, scenes = [], [], [], []
    for inertia in p.inertias:
        say(diag(inertia))
        system, mu0 = top(p, inertia)
        runs = realise(system, mu0, p.realisations, key, t1=p.t1, dt=p.dt, integrator=PLAIN)
        pi, gamma = runs.mu[..., :3], runs.mu[..., 3:]
        off.append(np.abs(np.linalg.norm(gamma, axis=-1) - np.linalg.norm(gamma[:, :1], axis=-1)).max(axis=1))
        length.append(np.ptp(np.linalg.norm(pi, axis=-1), axis=1))
        shown.append(runs.mu[0])
        curves = [Curve("γ", gamma[0, ::2]), Curve("π", pi[0, ::2], dashed=True)]
        scenes.append(Scene(f"Stochastic heavy top, {diag(inertia)}.", runs.t[::2], curves, 1.0))
    findings = {
        "gamma-on-sphere": Finding(
            f"max ||γ| − |γ₀||: {spread(off)}", verdict(np.max(off) < 1e-13), np.size(off), summary(off)
        ),
        "pi-wanders": Finding(
            f"|π| varies by {spread(length, '.2f')}", verdict(np.min(length) > 0.1), np.size(length), summary(length)
        ),
    }
    return Outcome(findings, shown, scenes)


def draw(p, data):
    """π dashed, γ on the sphere."""
    figures = {}
    for name, mu in zip(("stochastic-441", "stochastic-421"), data, strict=True):
        figures[name] = plotting.figure(plotting.COLUMN, 3.2)
        plotting.trajectories_3d(figures[name], [("γ", mu[:, 3:], "-"), ("π", mu[:, :3], "--")], sphere=1.0)
    return figures
