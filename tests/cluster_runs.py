"""Runs that the tests of clusters distribute."""

import time

import numpy as np

import coadjoint as cj

SYSTEM = cj.System(
    cj.SO3(), lambda m, p: 0.5 * m @ (m / p), cj.salt([[0.3, 0.2, 0.5]]), params=np.array([4.0, 2.0, 1.0])
)
MU0 = np.array([0.6, -0.8, 0.5])
RUN = {"members": 22, "t1": 20.0, "dt": 0.05, "key": 3, "save_every": 8, "integrator": cj.EulerMaruyamaMK()}
LONG = RUN | {"t1": 60000.0, "save_every": 6000}  # seconds of work
MEMBERS = {"params": np.linspace(1.0, 4.0, 66).reshape(22, 3), "mu0": MU0 + np.linspace(0, 0.1, 22)[:, None]}


def ensemble(mu0=MU0, **options):
    return cj.ensemble(SYSTEM, mu0, **(RUN | options))


SWEEP = {
    "model": {"name": "rigid_body"},
    "run": {"t1": 2.0, "dt": 0.05, "key": 1, "members": 6, "integrator": "EulerMaruyamaMK"},
    "sweep": {"run.key": [1, 2, 3]},
}


def in_time(seconds=10.0):
    """Whatever happens is said within ten seconds."""
    began = time.monotonic()
    return lambda: time.monotonic() - began < seconds
