"""Sampling of Gibbs measures: errors that account for correlation, tested where they are known."""

import jax.numpy as jnp
import numpy as np
import pytest

import coadjoint as cj
from coadjoint.runtime.sample import correlation, split_rhat, why_not_mixed

I = jnp.array([1.0, 2.0, 3.0])
BODY = cj.System(cj.SO3(), lambda m: 0.5 * m @ (m / I))


def autoregressive(members, times, a, rng):
    x = np.empty((members, times))
    x[:, 0] = rng.standard_normal(members) / np.sqrt(1 - a**2)
    for k in range(1, times):
        x[:, k] = a * x[:, k - 1] + rng.standard_normal(members)
    return x


@pytest.mark.parametrize("a", [0.0, 0.5, 0.9, -0.5])
def test_correlation_of_an_autoregressive_process(a):
    """1 + 2 Σ aᵏ = (1 + a)/(1 − a)."""
    x = autoregressive(32, 4000, a, np.random.default_rng(0))
    assert abs(correlation(x) / ((1 + a) / (1 - a)) - 1) < 0.1
    assert split_rhat(x) < 1.01


def test_chains_that_disagree():
    """A shift between chains shows in R-hat, and makes the effective size small."""
    x = autoregressive(8, 1000, 0.0, np.random.default_rng(1))
    apart = x + np.arange(8)[:, None]
    assert split_rhat(apart) > 2 and apart.size / correlation(apart) < 50
    assert split_rhat(np.ones((4, 10))) == 1.0 and correlation(np.ones((4, 10))) == 1.0


def test_many_short_chains_that_have_mixed():
    """R-hat is large, but no more than correlation in time explains; a few chains elsewhere, or short ones, are not."""
    rng = np.random.default_rng(2)
    chains = autoregressive(256, 150, 0.8, rng)
    assert split_rhat(chains) > 1.02 and why_not_mixed(chains) == ""
    chains[:13] += 3.0 * chains.std()
    assert "times what correlation in time explains" in why_not_mixed(chains)
    assert "autocorrelation times, and at least" in why_not_mixed(autoregressive(256, 20, 0.8, rng))
    assert why_not_mixed(np.ones((4, 10))) == "" and why_not_mixed(np.ones((4, 10)) * np.arange(4)[:, None]) != ""


def test_rigid_body():
    """⟨h⟩ and ⟨Π₃²⟩ within four standard errors of the members' means; mixed, and reported as such."""
    got = cj.sample(
        BODY, [0.0, 0.6, 0.8], temperature=0.1, t1=400.0, dt=0.1, key=3, members=256, save_every=5,
        observables={"third": lambda m: m[2] ** 2},
    )  # fmt: skip
    for name, exact in (("energy", 0.245964), ("third", 0.501874)):
        error = got.standard_error[name]
        assert abs(got.mean[name] - exact) < 4 * error
        spread = got.values[name].mean(axis=1).std(ddof=1) / 16
        assert 0.75 < error / spread < 1.3
        assert got.rhat[name] < 1.01 and got.effective_size[name] > 1000
        assert 0.5 < got.autocorrelation_time[name] < 10
    data = got.to_xarray()  # as ArviZ takes it
    assert data["energy"].dims == ("chain", "draw") and set(data.data_vars) == set(got.values)
    np.testing.assert_array_equal(data["energy"], got.values["energy"])
    assert not got.words and "R-hat" in repr(got) and got.stats.backend == "native"


def test_short_chains_from_one_state():
    """256 chains of 25 samples have a large R-hat, which correlation in time explains, and right means."""
    run = {"t1": 32.0, "burn_in": 20.0, "dt": 0.1, "key": 3, "members": 256, "save_every": 5}
    got = cj.sample(BODY, [0.0, 0.6, 0.8], temperature=0.1, **run)
    assert got.rhat["energy"] > 1.05 and not any("not mixed" in w for w in got.words)
    assert abs(got.mean["energy"] - 0.245964) < 4 * got.standard_error["energy"]


def test_a_short_run_says_so():
    got = cj.sample(BODY, [0.0, 0.6, 0.8], temperature=0.1, t1=3.0, dt=0.1, key=3, members=8, friction=0.01)
    assert any("not mixed" in w for w in got.words) and "not mixed" in repr(got)


BAD = {
    "temperature": ({"temperature": -1.0}, ValueError, "temperature must be a number above 0"),
    "members": ({"members": 2}, ValueError, "members must be"),
    "burn_in": ({"burn_in": 9.0}, ValueError, r"burn_in must be at least 0 and below t1 = 1, not 9"),
    "too short": ({"save_every": 5}, ValueError, "there must be 8 saved times at least, not"),
    "energy": ({"observables": {"energy": jnp.sum}}, ValueError, "must not have 'energy'"),
    "state": ({"mu0": [1.0, 2.0]}, ValueError, r"mu0 must have shape \(3,\)"),
    "vector": ({"observables": {"m": lambda m: m}}, ValueError, r"observables\['m'\] must give one real number"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    changed, kind, words = BAD[case]
    options = {"mu0": [0.0, 0.0, 1.0], "temperature": 1.0, "t1": 1.0, "dt": 0.1, "key": 0, "members": 8} | changed
    with pytest.raises(kind, match=words):
        cj.sample(BODY, options.pop("mu0"), **options)
