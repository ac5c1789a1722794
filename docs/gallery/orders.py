"""Strong orders with noises that do not commute.

The order is ½ for methods that use increments only, 1 with Lévy areas, and 1½ with the log-signature. All methods
follow the same paths.
"""

import numpy as np

import coadjoint as cj

system, pi0 = cj.models.rigid_body(inertia=(1, 2, 3), alpha=0.7 * np.eye(3))
methods = [cj.TMK(), cj.HeunMK(), cj.TMKLevy(), cj.TMK15()]
study = cj.convergence(system, pi0, methods, [1 / 8, 1 / 16, 1 / 32, 1 / 64], paths=100, key=0, t1=0.5)
fig = study.plot()
fig.set_size_inches(6, 4)
