"""Reducers and integrators with wrong options: the argument, or in an experiment file the key, is named."""

import numpy as np
import pytest

import coadjoint as cj
from coadjoint.experiments.experiment import Experiment

FREE = cj.System(cj.SO3(), lambda m: 0.5 * m @ m)
QUANTILES = {"name": "Quantiles", "low": -1.0, "high": 1.0}

KEYS = {
    "no ends": ("Quantiles", "run.reduce.low is missing: Quantiles needs low, high"),
    "one end": ({"name": "Quantiles", "low": 1}, "run.reduce.high is missing: Quantiles needs high"),
    "several": ("Several", "run.reduce = 'Several' is not known: Allowed: Mean, Covariance, Quantiles"),
    "a word": ("Meen", "run.reduce = 'Meen' is not known: did you mean 'Mean'"),
    "no name": ({"name": ["Mean"]}, r"run.reduce = \['Mean'\] is not known"),
    "an option": ({"name": "Mean", "q": 1}, "run.reduce.q is not known: Allowed: no options"),
    "low is a word": (QUANTILES | {"low": "a"}, "run.reduce.low must be real numbers, not 'a'"),
    "low above": (QUANTILES | {"low": 3.0}, "run.reduce.low must be below high"),
    "low of two": (QUANTILES | {"low": [-1.0, -1.0]}, r"reduce.low must be one number, or of shape \(3,\), not \(2,\)"),
    "q is a word": (QUANTILES | {"q": "x"}, "run.reduce.q must be probabilities between 0 and 1, not 'x'"),
    "no q": (QUANTILES | {"q": []}, "run.reduce.q must be probabilities"),
    "bins": (QUANTILES | {"bins": 10**12}, "run.reduce.bins must be at most"),
}


@pytest.mark.parametrize("case", KEYS)
def test_keys_of_a_file(case):
    reduce, words = KEYS[case]
    run = {"t1": 1.0, "dt": 0.1, "key": 0, "members": 2, "reduce": reduce}
    with pytest.raises(cj.ExperimentError, match=words) as caught:
        Experiment({"model": {"name": "rigid_body"}, "run": run}, "file.toml").plans()
    assert str(caught.value).startswith("file.toml: run")
    assert "__init__" not in str(caught.value)


class Wrong:
    def init(self, x):
        return x

    def update(self, acc, x):
        return acc

    def merge(self, acc, other):
        return acc

    def result(self, acc):
        return acc


def test_arguments():
    run = {"members": 2, "t1": 1.0, "dt": 0.1}
    with pytest.raises(TypeError, match=r"reduce.update\(acc, x, weight\), not reduce.update\(acc, x\)"):
        cj.ensemble(FREE, [1.0, 0.0, 0.0], **run, reduce=Wrong())
    spins = cj.System(cj.SU(2), lambda m: 0.5 * abs(m[0, 0]) ** 2)
    with pytest.raises(TypeError, match="Quantiles take real numbers"):
        cj.ensemble(spins, np.diag([0.5j, -0.5j]), **run, reduce=cj.Quantiles(low=-1.0, high=1.0))
    with pytest.raises(ValueError, match="low has 1 masked entries"):
        cj.Quantiles(low=np.ma.masked_array([0.0, 1.0], [True, False]), high=2.0)
    with pytest.raises(ValueError, match="halvings must be at most 20, not 100"):
        cj.Adaptive(halvings=100)
    with pytest.raises(TypeError, match="integrator must not be Adaptive itself"):
        cj.Adaptive(cj.Adaptive())


def test_averages_of_numbers_of_all_types():
    """Of truth values, whole numbers and numbers of single precision they are numbers of double precision."""
    mu0 = np.random.default_rng(0).standard_normal((16, 3))
    save = lambda m: {"b": m > 0, "i": (9 * m).astype("int8"), "f": m.astype("float32")}
    run = {"members": 16, "t1": 0.1, "dt": 0.1, "save": save, "integrator": cj.HeunMK()}
    saved = {k: np.asarray(x, float) for k, x in cj.ensemble(FREE, mu0, **run).saved.items()}
    moments = cj.ensemble(FREE, mu0, reduce=cj.Mean(), **run).reduced
    for name, x in saved.items():
        np.testing.assert_allclose(moments["mean"][name], x.mean(axis=0), atol=1e-14)
        np.testing.assert_allclose(moments["variance"][name], x.var(axis=0, ddof=1), atol=1e-13)
    counts = {**run, "save": lambda m: {"b": m > 0, "i": (9 * m).astype("int8")}}
    found = cj.ensemble(FREE, mu0, reduce=cj.Covariance(), **counts).reduced
    rows = np.concatenate([saved["b"], saved["i"]], axis=2)[:, -1]
    np.testing.assert_allclose(found["mean"][-1], rows.mean(axis=0), atol=1e-14)
    np.testing.assert_allclose(found["covariance"][-1], np.cov(rows.T), atol=1e-12)
