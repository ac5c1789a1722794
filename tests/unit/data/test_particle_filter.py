"""Particle filters: beside the exact filter on the sphere, with params, group elements and irregular times."""

import jax.numpy as jnp
import numpy as np
import pytest
from exact_filter import (
    FIRST,
    FIRST_EVIDENCE,
    FIRST_MEAN,
    FIRST_OBSERVATIONS,
    SECOND,
    SECOND_OBSERVATIONS,
    exact_filter,
    von_mises_fisher,
)

import coadjoint as cj
from coadjoint.data.resampling import effective_size, log_mean, next_temperature, systematic

AXIS = np.array([1.0, 0, 0])


def wandering(sigma):
    """A point on the sphere that moves by noise alone."""
    return cj.System(cj.SO3(), lambda m: 0.0 * m[0], cj.salt(sigma * np.eye(3)))


def filtered(case, observations, members, key, **options):
    """The result of a particle filter for a case of `exact_filter`."""
    sensor = cj.data.VonMisesFisher(lambda m: m, case["kappa"])
    start = von_mises_fisher(case["start"], case["start_kappa"], members, np.random.default_rng(key))
    times = case["dt"] * case["steps"] * np.arange(1, len(observations) + 1)
    run = cj.data.ParticleFilter(sensor, members, **options).run
    return run(wandering(case["sigma"]), start, observations, times=times, dt=case["dt"], key=key)


def test_exact_filter_agrees_with_published_numbers():
    """An independent computation of the first case, to all of its digits; finer grids change the second by 1e-12."""
    exact = exact_filter(FIRST_OBSERVATIONS, **FIRST)
    np.testing.assert_allclose(exact.means[-1], FIRST_MEAN, atol=5e-9)
    assert abs(exact.log_evidence[-1] - FIRST_EVIDENCE) < 1e-10
    one, two = (exact_filter(SECOND_OBSERVATIONS, **SECOND, **size) for size in ({}, {"top": 48, "latitudes": 104}))
    assert np.abs(one.means - two.means).max() < 1e-12
    assert np.abs(one.log_evidence - two.log_evidence).max() < 1e-12


@pytest.mark.parametrize("method", ["bootstrap", "tempered"])
@pytest.mark.parametrize("case, y", [(FIRST, FIRST_OBSERVATIONS), (SECOND, SECOND_OBSERVATIONS)])
def test_filters_agree_with_the_exact_one(case, y, method):
    """Errors of means and evidence are those of sampling, and every member stays on the sphere."""
    members = 600 if method == "bootstrap" else 200
    found, exact = filtered(case, y, members, 5, method=method, moves=2), exact_filter(y, **case)
    error = np.sqrt(np.mean(np.sum((found.mean - exact.means) ** 2, axis=1)) * members)
    assert error < 1.5
    assert abs(found.log_evidence[-1] - exact.log_evidence[-1]) < 20 / np.sqrt(members)
    assert np.abs(np.linalg.norm(found.states, axis=1) - 1).max() < 1e-14
    assert found.ess.min() > 1 and found.weights.sum() == pytest.approx(1)


def test_resampling():
    """Each member survives ⌊N w⌋ or ⌈N w⌉ times; a temperature has the effective size asked for."""
    w = np.array([0.5, 0.0, 0.3, 0.2])
    for u in (0.0, 0.37, 0.999999):
        counts = np.bincount(systematic(np.repeat(w, 25) / 25, u), minlength=100).reshape(4, 25).sum(axis=1)
        assert np.all(np.abs(counts - 100 * w) <= 1) and counts[1] == 0
    log_likelihood = np.array([0.0, -3.0, -50.0, -np.inf, -1.0])
    phi = next_temperature(log_likelihood, 0.0, 0.5)
    assert 0 < phi < 1 and effective_size(phi * log_likelihood[[0, 1, 2, 4]]) == pytest.approx(2.0)
    assert next_temperature(np.zeros(4), 0.2, 0.5) == 1.0
    assert log_mean(np.log([1.0, 3.0]), np.log([2.0, 4.0])) == pytest.approx(np.log(3.5))


def test_irregular_times_and_an_observation_at_the_start():
    """Windows of 0, 3 and 1 steps; smoothed estimates are those of the last filter at the end."""
    sensor = cj.data.Gaussian(lambda m, t: m[:2] + 0 * t, covariance=[[0.02, 0.01], [0.01, 0.02]])
    start = von_mises_fisher(AXIS, 8.0, 60, np.random.default_rng(0))
    run = cj.data.ParticleFilter(sensor, 60, lag=2, moves=1).run
    found = run(wandering(0.5), start, [[1, 0], [0.9, 0.3], [0.9, 0.35]], times=[1.0, 1.3, 1.4], dt=0.1, t0=1.0, key=1)
    assert found.mean.shape == found.smoothed_mean.shape == found.forecast_spread.shape == (3, 3)
    np.testing.assert_array_equal(found.smoothed_mean[-1], found.mean[-1])
    assert np.all(found.spread[:, 1] < found.forecast_spread[:, 1])
    assert found.smoothed_spread[1, 1] < found.spread[1, 1] * 1.2
    data = found.to_xarray()
    assert data["mean"].dims == ("time", "component") and data["ess"].dims == ("time",)
    assert "ParticleFilter, 60 members" in repr(found)


def test_unknown_parameters():
    """The rate of a rotation is estimated from a prior sample, with the kernel that conserves mean and covariance."""
    system = cj.System(
        cj.SO3(), lambda m, p: p["rate"] * m[2], [cj.salt(lambda p: p["noise"] * jnp.eye(3))],
        params={"rate": 0.0, "noise": 0.05},
    )  # fmt: skip
    times = 0.5 * np.arange(1, 9)
    truth = cj.solve(system.with_params({"rate": 0.8, "noise": 0.05}), AXIS, t1=4.0, dt=0.1, key=3, save_every=5)
    sensor = cj.data.Gaussian(lambda m, params: m + 0 * params["rate"], std=0.05)
    y = truth.mu[1:] + 0.05 * np.random.default_rng(0).standard_normal((8, 3))
    rates = np.random.default_rng(1).normal(0.0, 1.0, 200)
    for method in (cj.data.ParticleFilter(sensor, 200, moves=1), cj.data.GroupKalman(sensor, 200)):
        found = method.run(
            system, AXIS, y, times=times, dt=0.1, key=4, params={"rate": rates, "noise": 0.05}, keep_members=True
        )
        mean, spread = found.params_mean["rate"], found.params_spread["rate"]
        assert found.params_mean["noise"] is None and found.params_members["rate"].shape == (200, 8)
        assert spread[-1] < 0.1 * spread[0] + 0.08 and abs(mean[-1] - 0.8) < 4 * spread[-1] + 0.02
        assert found.members.shape == (200, 8, 3) and "params_mean_rate" in found.to_xarray()
        forward = cj.ensemble(
            system, found.states, members=200, t1=0.2, dt=0.1, key=0, params=found.params, backend="xla"
        )
        assert forward.mu.shape == (200, 3, 3)


def test_group_elements():
    """An observation of the attitude g: a star in the body frame is g⁻¹ times its direction in space."""
    star = jnp.array([0.0, 0.6, 0.8])
    system = cj.System(cj.SO3(), lambda m: 0.5 * jnp.sum(m * m), cj.salt(0.2 * np.eye(3)))
    truth = cj.solve(system, AXIS, t1=1.0, dt=0.1, key=9, save_every=5, group=True)
    y = np.einsum("tij,i->tj", truth.g[1:], star)
    sensor = cj.data.VonMisesFisher(lambda m, g: g.T @ star, 400.0)
    method = cj.data.ParticleFilter(sensor, 100, moves=2)
    found = method.run(
        system, AXIS, y, times=[0.5, 1.0], dt=0.1, key=2, group=True, save=lambda m, g: {"star": g.T @ star}
    )
    assert found.g.shape == (100, 3, 3)
    assert np.abs(found.mean["star"] - y).max() < 0.08
    np.testing.assert_allclose(found.g @ np.swapaxes(found.g, 1, 2), np.tile(np.eye(3), (100, 1, 1)), atol=1e-13)
    with pytest.raises(ValueError, match="give group=True"):
        method.run(system, AXIS, y, times=[0.5, 1.0], dt=0.1, key=2)
