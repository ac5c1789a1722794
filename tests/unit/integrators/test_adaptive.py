"""Adaptive steps: the error follows the tolerance, the path stays a path, Casimirs stay exact."""

import numpy as np
import pytest

import coadjoint as cj

TOP, MU0 = cj.models.heavy_top(alpha=0.5 * np.eye(3))
QUIET, PI0 = cj.models.rigid_body(alpha=None)
BODY, _ = cj.models.rigid_body(alpha=0.5 * np.eye(3))


def test_without_noise():
    """Local errors within the tolerance, with more steps for a smaller one; quadratic energy kept, as TMK keeps it."""
    exact = cj.solve(QUIET, PI0, t1=2.0, dt=1e-3, save_every=2000).mu[-1]
    errors, substeps = [], []
    for tol in (1e-4, 1e-6):
        sol = cj.solve(QUIET, PI0, t1=2.0, dt=0.5, integrator=cj.Adaptive(cj.TMK(), tol=tol))
        errors.append(np.abs(sol.mu[-1] - exact).max())
        substeps.append(sol.stats.substeps)
        assert sol.stats.unsolved == 0 and sol.casimir_errors().max() <= 2e-15
        assert np.ptp(sol.energy()) <= 1e-14
    assert errors[0] <= 20 * 1e-4 and errors[1] <= errors[0] / 5
    assert 2 <= substeps[0] < substeps[1] <= 64
    assert f"of {substeps[1]:.1f} sub-steps" in repr(sol.stats)


@pytest.mark.slow
def test_follows_the_path():
    """Non-commuting noise: near the solution of small steps on the same path, with fewer of them; Casimirs exact."""
    path = cj.Brownian(3, grid=0.25, depth=6)
    fine = cj.solve(TOP, MU0, t1=1.0, dt=0.25 / 64, driver=path, integrator=cj.TMKLevy(), save_every=64)
    adaptive = cj.Adaptive(cj.TMKLevy(), tol=5e-3, halvings=6)
    sol = cj.solve(TOP, MU0, t1=1.0, dt=0.25, driver=path, integrator=adaptive, group=True)
    once = cj.solve(TOP, MU0, t1=1.0, dt=0.25, driver=path, integrator=cj.TMKLevy())
    error = np.abs(sol.mu[-1] - fine.mu[-1]).max()
    assert error <= 0.05 and error <= 0.5 * np.abs(once.mu[-1] - fine.mu[-1]).max()
    assert 2 < sol.stats.substeps < 64
    assert sol.casimir_errors().max() <= 2e-15
    assert sol.g.shape == (5, 4, 4)


def test_finest_grid_is_the_fixed_run():
    """A tolerance that no step can meet: the states of a run with steps of dt/2^halvings, and it is reported."""
    path = cj.Brownian(3, grid=0.25, depth=2)
    fixed = cj.solve(BODY, PI0, t1=0.5, dt=0.0625, driver=path, integrator=cj.TMKLevy(), save_every=4)
    method = cj.Adaptive(cj.TMKLevy(), tol=1e-15, halvings=2)
    sol = cj.solve(BODY, PI0, t1=0.5, dt=0.25, driver=path, integrator=method, throw=False)
    np.testing.assert_allclose(sol.mu, fixed.mu, atol=1e-13)
    assert sol.stats.substeps == 4 and sol.stats.unsolved == 2
    assert sol.stats.residual > 1e-6, "the estimate of the error, not the residual of the equations that were solved"
    with pytest.raises(cj.UnsolvedStepError) as raised:
        cj.solve(BODY, PI0, t1=0.5, dt=0.25, driver=path, integrator=method)
    for part in (
        "2 of 2 steps could not be solved, first at step 0 (t = 0): the sub-steps fell to the smallest allowed, ",
        f"dt/2^2 = 0.0625, where the estimate of the error was still {sol.stats.residual:.1e}, above tol = 1e-15. ",
        "Take a smaller dt, more halvings or a larger tol, or throw=False",
    ):
        assert part in str(raised.value)
    inside = cj.Adaptive(cj.TMK(), tol=0.5, halvings=2).failure(0.01, 1e-3, 0.2)  # an equation of a part was not solved
    assert "dt/2^2 = 0.0025, where the worst residual is 1.0e-03 of |σ|, above tol = 1.0e-14; " in inside
    assert "|σ| is about 0.2. Take a smaller dt, or more halvings" in inside


def test_what_is_refused():
    with pytest.raises(TypeError, match="must not be Adaptive itself"):
        cj.Adaptive(cj.Adaptive(cj.TMK()))
    with pytest.raises(TypeError, match="Integrator"):
        cj.Adaptive(1e-3)
    with pytest.raises(ValueError, match="tol"):
        cj.Adaptive(cj.TMK(), tol=0)
    assert cj.Adaptive(cj.TMK15()).claims.strong == 1.5
