"""The claims about one step, of every method: symmetric, symplectic, explicit, its invariants.

Orders, and Casimirs and energy over many steps, have files of their own.
"""

import numpy as np
import pytest

import coadjoint as cj

from .measurement import INTEGRATORS, worst

METHODS = INTEGRATORS | cj.integrators.COMPOSITIONS

DT, H = 2.0, 1e-4  # a step so long that methods of order 4 show their drift
CENTRE = np.array([0.6, -0.7, 0.9])
STATES = CENTRE + np.concatenate([np.zeros((1, 3)), H * np.eye(3), -H * np.eye(3)])


def energy(pi, sign=1.0):
    return sign * (0.5 * pi @ (pi / np.array([1.0, 2.0, 3.0])) + 0.05 * (pi[0] ** 4 + pi[1] ** 4))


def step(integrator, states, direction=1.0):
    """One step of a quartic rigid body; in direction −1 the energy has the other sign, which turns time round."""
    system = cj.System(cj.SO3(), energy, params=direction)
    dt = DT if integrator.claims.order <= 4 else 1.5 * DT
    return cj.ensemble(system, states, members=len(states), t1=dt, dt=dt, integrator=integrator)


LONG = {name for name in METHODS if "kahan-li8" in name}  # seconds to compile


@pytest.mark.parametrize("name", [pytest.param(m, marks=pytest.mark.slow) if m in LONG else m for m in METHODS])
def test_claims_of_one_step(name):
    """Each claim holds exactly where it is made."""
    integrator, claims = METHODS[name], METHODS[name].claims
    forward = step(integrator, STATES)
    moved = forward.mu[:, -1]
    assert (forward.stats.iterations == 0) == claims.explicit

    back = worst(step(integrator, moved, -1.0).mu[:, -1] - STATES)
    assert (back < 1e-13) == claims.symmetric and (back > 1e-5) == (not claims.symmetric)

    # A Poisson map has DΦ J(μ) DΦᵀ = J(Φ(μ)); the derivative is a central difference, right to 1e-7.
    D = (moved[1:4] - moved[4:]).T / (2 * H)
    J = cj.SO3().poisson
    defect = worst(D @ np.asarray(J(CENTRE)) @ D.T - np.asarray(J(moved[0])))
    assert (defect < 1e-6) == claims.symplectic and (defect > 1e-5) == (not claims.symplectic)

    lost = worst(np.linalg.norm(moved, axis=1) - np.linalg.norm(STATES, axis=1))
    assert lost < 1e-15 or not claims.casimirs  # the implicit midpoint rule keeps this one, which is quadratic, too
    lost = worst([energy(a) - energy(b) for a, b in zip(moved, STATES, strict=True)])
    keeps = claims.energy in ("polynomial", "any")
    assert (lost < 1e-14) == keeps and (lost > 1e-5) == (not keeps)


SPINS = np.array([0.6, -0.7, 0.9, 0.1, 1.1, -0.4, -0.8, 0.2, 0.5])
FAST = ("TMK", "LieMidpoint", "HeunMK")


@pytest.mark.parametrize("name", [n if n in FAST else pytest.param(n, marks=pytest.mark.slow) for n in METHODS])
def test_linear_momenta(name):
    """The total spin of three unequal spins with isotropic exchange, in one long step."""
    integrator = METHODS[name]
    system = cj.System(cj.Product(cj.SO3(), copies=3), lambda m: m[:3] @ m[3:6] + 0.5 * m[3:6] @ m[6:])
    end = cj.solve(system, SPINS, t1=DT, dt=DT, integrator=integrator).mu[-1]
    lost = worst(np.asarray(end).reshape(3, 3).sum(axis=0) - SPINS.reshape(3, 3).sum(axis=0))
    assert (lost < 1e-13) == integrator.claims.momentum and (lost > 1e-6) == (not integrator.claims.momentum)
