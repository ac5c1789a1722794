"""Runs of a rigid body with two noises, as the tests of stores make them, and their end after some commits."""

import numpy as np

import coadjoint as cj
from coadjoint.store import store_sink

EM = cj.EulerMaruyamaMK()
BETA = np.array([[0.3, 0.2, 0.5], [0.0, 0.4, 0.1]])


def system(k=0.3, beta=BETA, inertia=(4.0, 2.0, 1.5), linear=1.0):
    return cj.System(
        cj.SO3(),
        lambda m, p: 0.5 * m @ (m / p["inertia"]) + linear * p["k"] * m[0],
        cj.salt(beta),
        params={"inertia": np.array(inertia), "k": k},
    )


MU0 = np.array([0.6, -0.8, 0.5])
RUN = {"t1": 10.0, "dt": 0.05, "key": 3, "integrator": EM, "save_every": 2}  # 200 steps, 101 saved times


def solve(out, which=None, mu0=MU0, **options):
    return cj.solve(which or system(), mu0, out=out, **(RUN | options))


def ensemble(out, which=None, **options):
    return cj.ensemble(which or system(), MU0, out=out, **({"members": 7} | RUN | options))


class Cut(Exception):
    pass


def stop_after(commits, monkeypatch):
    """The process 'dies' after so many checkpoints, and before the next one."""
    left = [commits]
    save = store_sink.BatchSink._commit_files

    def counted(*args):
        if left[0] == 0:
            raise Cut
        left[0] -= 1
        save(*args)

    monkeypatch.setattr(store_sink.BatchSink, "_commit_files", counted)
