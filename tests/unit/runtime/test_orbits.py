"""A state that becomes infinite or leaves its orbit is a failure; growth along an orbit is none."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coadjoint as cj

START = [0.6, 0.1, 0.8]
STIFF = cj.System(cj.SO3(), lambda m: 0.5 * m @ (m * jnp.array([1.0, 20.0, 3.0])))
RUN = {"t1": 2.0, "dt": 0.5, "integrator": cj.Heun()}
WORDS = "became infinite or left its coadjoint orbit. Take a smaller dt, or a method that conserves Casimirs"


@pytest.mark.parametrize("backend", ["native", "xla"])
@pytest.mark.parametrize("steps", [4, 6])  # after four steps the state is finite, and 1e20
def test_an_explicit_method_that_runs_away(backend, steps):
    run = RUN | {"t1": 0.5 * steps, "backend": backend}
    with pytest.raises(cj.UnsolvedStepError, match=WORDS):
        cj.solve(STIFF, START, **run)
    sol = cj.solve(STIFF, START, **run, throw=False)
    assert sol.stats.unsolved >= 1 and 0 <= sol.stats.first_unsolved < steps


def test_where_only_the_last_state_is_known(tmp_path):
    with pytest.raises(cj.UnsolvedStepError, match="first at step 3"):
        cj.solve(STIFF, START, **RUN, save=lambda m: m[0])
    with pytest.raises(cj.UnsolvedStepError, match="of 4 steps"):
        cj.ensemble(STIFF, START, members=3, **RUN, reduce=cj.Mean())
    run = lambda **options: cj.ensemble(STIFF, [START, START, [0, 0, 1e-3]], members=3, throw=False, **RUN, **options)
    assert run(reduce=cj.Mean()).stats.unsolved == 2
    assert run().stats.unsolved == 8  # all states are saved: every step of two members failed
    cj.solve(STIFF, START, **RUN, throw=False, out=tmp_path / "run.zarr")
    assert int(cj.open(tmp_path / "run.zarr")["unsolved"]) == 4


def test_a_traced_run():
    @eqx.filter_jit
    def end(mu, throw):
        sol = cj.solve(STIFF, mu, **RUN, throw=throw)
        return sol.mu[-1], sol.stats.unsolved

    with pytest.raises(Exception, match="step"):
        jax.block_until_ready(end(jnp.array(START), True))
    assert end(jnp.array(START), False)[1] == 1


def boost():
    """sl(2), along a boost: states grow as e^{2t} on their orbit."""
    C = np.zeros((3, 3, 3))
    for i, j, k, c in ((0, 1, 1, 2.0), (0, 2, 2, -2.0), (1, 2, 0, 1.0)):
        C[i, j, k], C[j, i, k] = c, -c
    return cj.System(cj.StructureConstants(C), lambda m: m[0])


@pytest.mark.parametrize("integrator", [cj.Heun(), cj.ImplicitMidpoint(), cj.TMK()], ids=lambda i: type(i).__name__)
def test_growth_along_an_orbit_is_no_failure(integrator):
    with pytest.warns(RuntimeWarning, match=r"grown by a factor of \d\.\de\+08.* 9 digits per degree") as caught:
        sol = cj.solve(boost(), [0.1, 0.3, 0.2], t1=10.0, dt=0.01, integrator=integrator)
    assert caught[0].filename == __file__
    assert np.abs(sol.mu[-1]).max() > 1e8 and sol.stats.unsolved == 0


def test_growth_of_members_and_of_reduced_runs(tmp_path):
    """One warning per run, whichever member grows; none below a factor of 1e4."""
    starts = np.array([[0.1, 0.0, 0.0], [0.1, 0.3, 0.2]])
    for options in ({}, {"reduce": cj.Mean()}, {"out": tmp_path / "run.zarr"}):
        with pytest.warns(RuntimeWarning, match="has grown") as caught:
            cj.ensemble(boost(), starts, members=2, t1=5.0, dt=0.1, **options)
        assert len(caught) == 1
    cj.ensemble(boost(), starts, members=2, t1=4.0, dt=0.1)


def test_dissipation_and_drift_are_no_failures():
    free = cj.System(cj.SO3(), lambda m: 0.5 * m @ m, dissipation=lambda m, dt: m * jnp.exp(3.0 * dt))
    assert cj.solve(free, START, t1=2.0, dt=0.1).stats.unsolved == 0  # the state grows by e⁶
    gentle = cj.System(cj.SO3(), lambda m: 0.5 * m @ (m / jnp.array([1.0, 2.0, 3.0])))
    sol = cj.solve(gentle, START, t1=20.0, dt=0.5, integrator=cj.Heun())
    assert 1e-4 < sol.casimir_errors().max() < 1 and sol.stats.unsolved == 0


@pytest.mark.parametrize("size", [2.0**600, 2.0**-600])
def test_errors_of_casimirs_of_extreme_states(size):
    def run(scale):
        system = cj.System(cj.SO3(), lambda m, p: 0.5 * m @ (m / jnp.array([1.0, 2.0, 3.0])) / p, params=scale)
        return cj.solve(system, np.array(START) * scale, t1=1.0, dt=0.1, integrator=cj.Heun())

    errors = run(size).casimir_errors()
    assert 1e-7 < errors.max() < 1e-5
    np.testing.assert_allclose(errors, run(1.0).casimir_errors(), rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(run(size).orbit_error(), run(1.0).orbit_error(), rtol=1e-9, atol=1e-15)


def test_adaptive_steps_with_white_stirring():
    """The stirring of a step is that of its parts together, so that the same path is followed."""
    shells = {"stirring_shells": (1, 1), "stirring_amplitude": 0.3, "viscosity": 0.01}
    system, mu0 = cj.models.sine_euler(n=3, noise_modes=(), **shells)

    def end(integrator, parts=1):
        driver = cj.Brownian(3, grid=0.1)
        return cj.solve(system, mu0, t1=0.4, dt=0.1 / parts, driver=driver, integrator=integrator).mu[-1]

    adaptive = end(cj.Adaptive(cj.HeunMK(), tol=1e-5, halvings=2))
    assert np.abs(adaptive - end(cj.HeunMK())).max() < 1e-3 < 0.03 < np.abs(end(cj.HeunMK()) - mu0).max()
