"""Forecasts from many starts: the same numbers as single runs, scores of a perfect model, baselines, tuning."""

import jax.numpy as jnp
import numpy as np
import pytest

import coadjoint as cj

BETA = 0.2 * np.eye(3)


def energy(m):
    return 0.5 * (m[0] ** 2 + m[1] ** 2 / 2 + m[2] ** 2 / 3)


def body(amplitude=1.0):
    return cj.System(cj.SO3(), energy, noise=[cj.salt(amplitude * BETA)])


OPTIONS = {"leads": [0.5, 1.0], "dt": 0.1, "key": 3}
STARTS = {"training": np.arange(0, 100, 1.0), "held_out": np.arange(100, 198, 2.0)}


@pytest.fixture(scope="module")
def truth():
    return cj.solve(body(), [0.6, 0.0, 0.8], t1=200.0, dt=0.1, key=0, save_every=5)


@pytest.fixture(scope="module")
def forecasts(truth):
    training, held_out = (cj.data.forecast(body(), truth, starts, **OPTIONS) for starts in STARTS.values())
    return training, held_out


def test_members_and_starts_are_one_ensemble(truth, forecasts):
    found = forecasts[1]
    assert found.members.shape == (49, 50, 2, 3) and found.deterministic.shape == (49, 2, 3)
    at = np.rint(STARTS["held_out"] / 0.5).astype(int)
    mu0 = np.repeat(truth.mu[at], 50, axis=0)
    ens = cj.ensemble(body(), mu0, members=2450, t1=1.0, dt=0.1, key=3, save_every=5)
    np.testing.assert_array_equal(found.members.reshape(2450, 2, 3), np.asarray(ens.mu)[:, 1:])
    np.testing.assert_array_equal(found.truth[:, 0], truth.mu[at + 1])
    still = cj.System(cj.SO3(), energy)
    one = cj.solve(still, truth.mu[at[4]], t1=1.0, dt=0.1, save_every=5).mu[1:]
    np.testing.assert_allclose(found.deterministic[4], one, atol=1e-13)


def test_scores_of_a_perfect_model(forecasts):
    """The model that made the truth is calibrated, and better than all baselines."""
    training, found = forecasts
    table = found.scores(training)
    ensemble = table.sel(forecast="ensemble")
    assert np.all(np.abs(ensemble["spread_ratio"] - 1) < 0.15) and np.all(np.abs(ensemble["coverage"] - 0.95) < 0.05)
    assert np.all(table["crps"].sel(forecast="ensemble") < table["crps"].sel(forecast="climatology"))
    assert np.all(ensemble["crps_ratio"] < 0.8)
    np.testing.assert_allclose(ensemble["crps"][0], cj.data.crps(found.members[:, :, 0], found.truth[:, 0]).mean())
    error = np.abs(found.deterministic - found.truth).mean(axis=(0, 2))
    np.testing.assert_allclose(table["crps"].sel(forecast="deterministic"), error)
    dressed = found.dressed(training, members=4000)
    deviation = (dressed.members - found.deterministic[:, None]).std(axis=(0, 1))
    expected = np.sqrt(((training.truth - training.deterministic) ** 2).mean(axis=0))
    np.testing.assert_allclose(deviation, expected, rtol=0.02)
    ranks = found.rank_histogram(1.0, bins=5)
    assert np.abs(ranks.frequency - ranks.expected).max() < 0.1
    assert found.reliability(0.5, bins=4).count.sum() == 147
    assert "49 starts, 50 members, 2 lead times" in repr(found)
    assert len(found.plot(training).axes) == 4


@pytest.mark.parametrize("by", ["spread", pytest.param("crps", marks=pytest.mark.slow)])
def test_tuning_finds_the_amplitude(truth, by):
    found = cj.data.tuned(body(0.5), truth, by=by, **STARTS, **OPTIONS)
    assert found.amplitude == pytest.approx(2.0, rel=0.15)
    assert np.all(np.abs(found.scores()["spread_ratio"].sel(forecast="ensemble") - 1) < 0.2)
    assert f"amplitude {found.amplitude:.4g}" in repr(found) and "lead 1: CRPS" in repr(found)


def test_the_gradient_of_the_crps(truth):
    """By one amplitude from which the search ends at once."""
    few = {"training": STARTS["training"][:8], "held_out": [150.0], "members": 4, "held_out_members": 2}
    with pytest.raises(RuntimeError, match="the CRPS still falls after 1 amplitudes"):
        cj.data.tuned(body(0.1), truth, by="crps", max_steps=1, **few, **OPTIONS)
    with pytest.raises(RuntimeError, match=r"spread/error is still 0\.\d+ after 1 amplitudes"):
        cj.data.tuned(body(0.1), truth, max_steps=1, **few, **OPTIONS)


@pytest.mark.parametrize("model", [cj.models.euler_sphere, cj.models.sine_euler])
def test_fluids(model):
    """Degree 1 is not scored on the sphere; of two opposite modes of the torus one is."""
    system, W0 = model(5, noise_shells=(1, 2), noise_modes=None, amplitude=0.1)
    run = cj.solve(system, W0, t1=2.0, dt=0.1, key=0, backend="xla")
    series = cj.data.coarse_grain(run, 5)
    options = {"leads": [0.2], "dt": 0.1, "key": 1, "members": 3, "backend": "xla"}
    found = cj.data.forecast(system, series, [0.0, 1.0], **options)
    sphere = model is cj.models.euler_sphere
    assert found.members.shape == (2, 3, 1, 5 if sphere else 8)
    shells = set(found.group)
    assert shells == ({2} if sphere else {1})
    quantities = series.vorticity[:, 4:9] if sphere else series.vorticity[:, [0, 1, 1, 1], [1, 0, 1, 4]]
    deviation = np.sqrt((np.abs(quantities - quantities.mean(axis=0)) ** 2).mean())
    first = quantities[12] / deviation
    np.testing.assert_allclose(found.truth[1, 0], first if sphere else [*first.real, *first.imag])
    if not sphere:
        return
    grid = cj.data.forecast(system, series, [0.0], observe=lambda W: jnp.abs(W[0]), **options)
    assert grid.truth.shape == (1, 1, 5)
    with pytest.raises(ValueError, match="degrees must be"):
        cj.data.forecast(system, series, [0.0], degrees=(3, 9), **options)
    with pytest.raises(ValueError, match="coarse_grain the fine run to its n"):
        cj.data.forecast(body(), series, [0.0], **options)


def test_invalid_arguments(truth, forecasts):
    def fail(match, starts=(0.0,), system=None, run=truth, error=ValueError, **changes):
        with pytest.raises(error, match=match):
            cj.data.forecast(body() if system is None else system, run, starts, **(OPTIONS | changes))

    fail(r"starts: t = 0\.3 is no time of truth, whose times are 0\.5 apart", [0.3])
    fail(r"starts \+ leads: t = 200\.5 is outside of truth", [199.5])
    fail(r"leads must be multiples of dt", leads=[0.25])
    fail(r"leads must be above 0 and increase", leads=[1.0, 0.5])
    fail("no noise, so all members would be equal", system=cj.System(cj.SO3(), energy))
    fail("functions of the time t", system=cj.System(cj.SO3(), lambda m, t: t * m[0], noise=[cj.salt(BETA)]))
    fail("truth must have states of shape", run=(truth.t, truth.mu[:, :2]))
    fail(r"NaN or an infinity at t = 1\.5", run=(truth.t, np.where(truth.t[:, None] == 1.5, np.nan, truth.mu)))
    fail("truth must be a FieldSeries, a Solution", run=3, error=TypeError)
    fail("members must be", members=1)
    fail("degrees select shells", degrees=(1, 2))
    training, held_out = forecasts
    with pytest.raises(ValueError, match="training must have other starts"):
        held_out.scores(held_out)
    with pytest.raises(ValueError, match=r"lead = 0\.7 is none of the lead times"):
        training.at(0.7)
    with pytest.raises(ValueError, match="t = 5 is in training and in held_out"):
        cj.data.tuned(body(), truth, training=[0.0, 5.0], held_out=[5.0], **OPTIONS)
    with pytest.raises(ValueError, match="by must be"):
        cj.data.tuned(body(), truth, by="rmse", **STARTS, **OPTIONS)
