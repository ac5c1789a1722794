"""Noise fields from increments of states: a known noise is recovered within its standard errors."""

import jax.numpy as jnp
import numpy as np
import pytest

import coadjoint as cj

BETA = np.array([[0.3, 0.1, 0.0], [0.0, 0.2, -0.1]])
BODY = cj.System(cj.SO3(), lambda m: 0.5 * jnp.sum(m**2 / jnp.array([4.0, 2.0, 1.0])), noise=[cj.salt(BETA)])
START = [0.6, 0.64, 0.48]


def deviations(found, expected):
    """Errors of the entries on and above the diagonal, in standard errors."""
    at = np.triu_indices(len(expected))
    return ((found.covariance - expected) / found.standard_error)[at]


@pytest.fixture(scope="module")
def path():
    return cj.solve(BODY, START, t1=50.0, dt=0.005, key=0).mu


def test_a_rigid_body(path):
    found = cj.data.calibrate_increments(BODY, path, dt=0.005)
    z = deviations(found, BETA.T @ BETA)
    assert np.abs(z).max() < 3.5 and np.sqrt(np.mean(z**2)) < 2.0
    assert np.abs(found.covariance - BETA.T @ BETA).max() < 5e-3
    np.testing.assert_allclose(found.fields.T @ found.fields, found.covariance, atol=3e-3)  # of two fields or three
    two = cj.data.calibrate_increments(BODY, path, dt=0.005, fields=2)
    assert two.size == 2 and two.variance.sum() > 0.99 and "2 fields" in repr(two)
    again = cj.System(cj.SO3(), BODY.h, noise=[two])
    assert cj.solve(again, START, t1=0.1, dt=0.05, key=0).orbit_error().max() < 1e-14


def test_a_basis_and_members(path):
    """The noise in a plane that contains the two fields, from pieces of the path."""
    pieces = np.asarray(path)[:10000].reshape(4, 2500, 3)
    found = cj.data.calibrate_increments(BODY, pieces, dt=0.005, basis=BETA)
    assert np.abs(deviations(found, np.eye(2))).max() < 3.5
    assert found.scaled(2.0).covariance == pytest.approx(4 * found.covariance)


def test_a_fluid():
    system, W0 = cj.models.sine_euler(3, amplitude=0.2, key=1)
    to_row = system.algebra.coordinates
    beta = np.array([to_row(system.noise(W0, e)) for e in np.eye(system.n_noise)])
    path = cj.solve(system, W0, t1=200.0, dt=0.02, key=0).mu
    found = cj.data.calibrate_increments(system, path, dt=0.02)
    z = deviations(found, beta.T @ beta)
    assert z.size == 36 and np.abs(z).max() < 4.0 and 0.5 < np.sqrt(np.mean(z**2)) < 1.5


@pytest.mark.slow
def test_standard_errors():
    """The deviations of 40 recoveries have variance 1."""
    paths = cj.ensemble(BODY, START, members=40, t1=20.0, dt=0.005, key=5).mu
    z = np.array([deviations(cj.data.calibrate_increments(BODY, p, dt=0.005), BETA.T @ BETA) for p in paths])
    assert 0.85 < np.sqrt(np.mean(z**2)) < 1.15 and np.abs(z.mean(axis=0)).max() < 0.6


def test_invalid_arguments(path):
    recover = cj.data.calibrate_increments
    with pytest.raises(ValueError, match="5 increments are too few for the 6 entries"):
        recover(BODY, path[:6], dt=0.005)
    with pytest.raises(ValueError, match=r"states must have shape \(times, 3\)"):
        recover(BODY, path[:, :2], dt=0.005)
    with pytest.raises(ValueError, match="states must be finite: it has a NaN or an infinity at t = 3"):
        recover(BODY, np.where(np.arange(len(path))[:, None] == 3, np.nan, path), dt=0.005)
    with pytest.raises(ValueError, match="the states do not determine Σ β ⊗ β"):
        recover(BODY, np.tile([0.0, 0.0, 1.0], (50, 1)), dt=0.005)
    with pytest.raises(ValueError, match="basis must be 1 to 64 elements"):
        recover(BODY, path, dt=0.005, basis=np.eye(2))
    large = cj.models.sine_euler(9, noise_modes=None)[0]
    with pytest.raises(ValueError, match=r"the algebra has dimension 80, .* give a basis"):
        recover(large, np.zeros((3, 9, 9), complex), dt=0.1)
    timed = cj.System(cj.SO3(), lambda m, t: t * m[2])
    with pytest.raises(ValueError, match="functions of the time t"):
        recover(timed, path, dt=0.005)
