"""The attitude of the top: an animation, and the path of its axis."""

import numpy as np

import coadjoint as cj
from coadjoint.report import Top, plotting

from ..claims import Finding, Outcome
from .common import DRIFT_FREE, top, verdict


def run(p, key, say):
    """One realisation with its group element."""
    system, mu0 = top(p)
    sol = cj.solve(system, mu0, t1=p.t1, dt=p.dt, key=key, integrator=DRIFT_FREE, save_every=p.save_every, group=True)
    R = np.asarray(sol.attitude())
    gamma0 = sol.mu[0, 3:]
    off = np.abs(np.einsum("tij,tj->ti", R, sol.mu[:, 3:]) - gamma0).max()
    orthogonal = np.abs(np.einsum("tij,tkj->tik", R, R) - np.eye(3)).max()
    finding = Finding(
        f"max |g γ(t) − γ₀| = {off:.1e}, max |ggᵀ − 1| = {orthogonal:.1e}",
        verdict(max(off, orthogonal) < 1e-12),
        1,
        {"gravity": off, "orthogonality": orthogonal},
    )
    scene = Top("The stochastic heavy top, diag(4,4,1).", sol.t, sol.attitude("quaternion"), gamma0)
    return Outcome({"reconstruction": finding}, (R[:, :, 2], gamma0), [scene])


def draw(p, data):
    """The path of the axis, with gravity downwards."""
    axis, gravity = data
    fig = plotting.figure(plotting.COLUMN, 3.2)
    plotting.trajectories_3d(fig, [("axis g(t) e₃", axis @ _upright(gravity).T, "-")], sphere=1.0)
    return {"attitude": fig}


def _upright(gravity):
    """A rotation that takes gravity to −z."""
    down = np.array([0.0, 0.0, -1.0])
    v, c = np.cross(gravity, down), gravity @ down
    K = np.array([[0, -v[2], v[1]], [v[2], 0, -v[0]], [-v[1], v[0], 0]])
    return np.eye(3) + K + K @ K / (1 + c)
