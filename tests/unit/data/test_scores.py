"""Scores against scoringrules, against direct formulas, and against ensembles that are calibrated by construction."""

import jax
import numpy as np
import pytest
import scoringrules

import coadjoint as cj

RNG = np.random.default_rng(0)
ENSEMBLE, TRUTH = RNG.normal(size=(30, 9, 4)), RNG.normal(size=(30, 4))


def test_crps_is_that_of_scoringrules():
    fair = scoringrules.crps_ensemble(TRUTH, np.moveaxis(ENSEMBLE, 1, -1), estimator="fair")
    np.testing.assert_allclose(cj.data.crps(ENSEMBLE, TRUTH), fair, rtol=1e-12)
    np.testing.assert_allclose(jax.jit(cj.data.crps)(ENSEMBLE, TRUTH), fair, rtol=1e-12)
    shifted = lambda a: cj.data.crps(a * ENSEMBLE, TRUTH).mean()
    slope = (shifted(1.0 + 1e-6) - shifted(1.0 - 1e-6)) / 2e-6
    np.testing.assert_allclose(jax.grad(shifted)(1.0), slope, rtol=1e-7)


def test_crps_does_not_depend_on_the_number_of_members():
    x, y = RNG.normal(size=(200_000, 8)), RNG.normal(size=200_000)
    found = [cj.data.crps(x[:, :n], y) for n in (2, 8)]
    expected = 1 / np.sqrt(np.pi)  # of two standard normal distributions
    assert all(abs(c.mean() - expected) < 4 * c.std() / np.sqrt(len(y)) for c in found)


def test_a_calibrated_ensemble():
    x, y = RNG.normal(size=(400, 19, 5)), RNG.normal(size=(400, 5))
    spread, error = cj.data.spread_error(x, y)
    assert abs(spread / error - 1) < 0.05
    assert abs(cj.data.coverage(x, y, 0.9).mean() - 0.9) < 0.02
    ranks = cj.data.rank_histogram(x, y, bins=7)
    direct = np.bincount((x < y[:, None]).sum(axis=1).ravel() * 7 // 20, minlength=7) / y.size
    np.testing.assert_allclose(ranks.frequency, direct)
    np.testing.assert_allclose(ranks.expected.sum(), 1.0)
    assert np.sum((ranks.low <= ranks.expected) & (ranks.expected <= ranks.high)) >= 4
    narrow = cj.data.rank_histogram(0.3 * x, y)
    assert narrow.frequency[[0, -1]].sum() > 0.5
    found = cj.data.reliability(x + y[:, None], y, bins=5)
    assert np.all(np.diff(found.observed) > 0) and found.count.sum() == y.size
    equal = cj.data.rank_histogram(np.zeros((500, 9, 3)), np.zeros((500, 3)))
    assert np.abs(equal.frequency - 0.1).max() < 0.04  # ranks among equal values are random


def test_spread_and_reliability_by_direct_formulas():
    spread, error = cj.data.spread_error(ENSEMBLE, TRUTH)
    mean = sum(ENSEMBLE[:, i] for i in range(9)) / 9
    variance = sum((ENSEMBLE[:, i] - mean) ** 2 for i in range(9)) / 8
    np.testing.assert_allclose([spread**2, error**2], [variance.mean() * 10 / 9, ((mean - TRUTH) ** 2).mean()])
    found = cj.data.reliability(ENSEMBLE, TRUTH, threshold=0.2, bins=4)
    p, event = (ENSEMBLE > 0.2).mean(axis=1), TRUTH > 0.2
    for b in range(4):
        inside = (p >= b / 4) & ((p < (b + 1) / 4) | (b == 3))
        values = found.count[b], found.probability[b], found.observed[b]
        np.testing.assert_allclose(values, (inside.sum(), p[inside].mean(), event[inside].mean()))


BAD = [
    ("truth must have the shape of ensemble", lambda: cj.data.crps(ENSEMBLE, TRUTH[:, :3])),
    ("2 members at least", lambda: cj.data.crps(ENSEMBLE[:, :1], TRUTH)),
    (r"ensemble must be finite: ensemble\[0, 0, 0\]", lambda: cj.data.crps(ENSEMBLE * np.nan, TRUTH)),
    ("level must be between 0 and 1", lambda: cj.data.coverage(ENSEMBLE, TRUTH, 1.5)),
    ("bins must be between 2 and the number of ranks, 10", lambda: cj.data.rank_histogram(ENSEMBLE, TRUTH, 11)),
]


@pytest.mark.parametrize(("match", "call"), BAD, ids=range(len(BAD)))
def test_invalid_arguments(match, call):
    with pytest.raises(ValueError, match=match):
        call()
