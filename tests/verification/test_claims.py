"""The claims about one step: symmetric, symplectic, explicit. Orders, Casimirs and energy have files of their own."""

import numpy as np
import pytest

import coadjoint as cj

from .tools import INTEGRATORS, worst

DT, H = 1.0, 1e-4  # a step so long that methods of order 4 show what they do not keep
CENTRE = np.array([0.6, -0.7, 0.9])
STATES = CENTRE + np.concatenate([np.zeros((1, 3)), H * np.eye(3), -H * np.eye(3)])
FAST = ("TMK", "HeunMK")


def step(integrator, states, direction=1.0):
    """One step of a quartic rigid body; in direction −1 the energy has the other sign, which turns time round."""

    def energy(pi, sign):
        return sign * (0.5 * pi @ (pi / np.array([1.0, 2.0, 3.0])) + 0.05 * (pi[0] ** 4 + pi[1] ** 4))

    system = cj.System(cj.SO3(), energy, params=direction)
    return cj.ensemble(system, states, members=len(states), t1=DT, dt=DT, integrator=integrator)


@pytest.mark.parametrize("name", [n if n in FAST else pytest.param(n, marks=pytest.mark.slow) for n in INTEGRATORS])
def test_claims_of_one_step(name):
    """Each claim holds exactly where it is made."""
    integrator, claims = INTEGRATORS[name], INTEGRATORS[name].claims
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
