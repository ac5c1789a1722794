"""Scores of ensembles: fair CRPS, spread and error, coverage, rank histograms, reliability.

The second axis of `ensemble` has the members: its shape is (starts, members, …), that of `truth` is (starts, …).
Quantities of one start are correlated, so standard errors come from a bootstrap over starts.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from ..numerics import validation


class Histogram(NamedTuple):
    """A rank histogram with a 90 % interval of a bootstrap over starts.

    Parameters
    ----------
    frequency : array, shape (bins,)
        The frequency of each bin.
    expected : array, shape (bins,)
        Its expectation for a calibrated ensemble.
    low, high : array, shape (bins,)
        The ends of the interval of the frequency.
    """

    frequency: np.ndarray
    expected: np.ndarray
    low: np.ndarray
    high: np.ndarray


class Reliability(NamedTuple):
    """A reliability diagram, by bins of forecast probability.

    Parameters
    ----------
    probability : array, shape (bins,)
        The mean forecast probability.
    observed : array, shape (bins,)
        The observed frequency of the event.
    standard_error : array, shape (bins,)
        The standard error of the observed frequency.
    count : array, shape (bins,)
        The number of forecasts.
    """

    probability: np.ndarray
    observed: np.ndarray
    standard_error: np.ndarray
    count: np.ndarray


def crps(ensemble: Any, truth: Any) -> Any:
    """The fair continuous ranked probability score of each quantity.

        CRPS = (1/N) Σ_i |x_i − y| − 1/(2N(N − 1)) Σ_{i,j} |x_i − x_j|

    Its expectation does not depend on the number of members (Ferro 2014). JAX can trace and differentiate it.

    Parameters
    ----------
    ensemble : array, shape (starts, members, …)
        The forecasts.
    truth : array, shape (starts, …)
        The verification.

    Returns
    -------
    array, shape (starts, …)

    Raises
    ------
    ValueError
        If shapes do not fit, values are not finite, or there is one member only.
    """  # fmt: skip
    x, y = _checked(ensemble, truth)
    xp: Any = jnp if validation.is_traced((x, y)) else np
    N = x.shape[1]
    weights = (2 * np.arange(1, N + 1) - N - 1).reshape((1, N) + (1,) * (x.ndim - 2))
    pairs = 2.0 * (weights * xp.sort(x, axis=1)).sum(axis=1) / (N * (N - 1))  # the mean of |x_i − x_j| over i ≠ j
    return xp.abs(x - y[:, None]).mean(axis=1) - 0.5 * pairs


def spread_error(ensemble: Any, truth: Any) -> tuple[Any, Any]:
    """The spread √(mean variance · (N + 1)/N) and the root mean square error of the mean, over starts and quantities.

    Both are equal for an ensemble from which truth is indistinguishable.

    Parameters
    ----------
    ensemble : array, shape (starts, members, …)
        The forecasts.
    truth : array, shape (starts, …)
        The verification.

    Returns
    -------
    spread : float
    error : float
    """
    x, y = _checked(ensemble, truth)
    N = x.shape[1]
    xp: Any = jnp if validation.is_traced((x, y)) else np
    spread = xp.sqrt(x.var(axis=1, ddof=1).mean() * (N + 1) / N)
    return spread, xp.sqrt(((x.mean(axis=1) - y) ** 2).mean())


def coverage(ensemble: Any, truth: Any, level: float = 0.95) -> np.ndarray:
    """Whether truth lies in the central interval of the members, per start and quantity.

    The ends are the quantiles i/(N + 1), so the mean is `level` for an ensemble from which truth is indistinguishable.

    Parameters
    ----------
    ensemble : array, shape (starts, members, …)
        The forecasts.
    truth : array, shape (starts, …)
        The verification.
    level : float, default 0.95
        The probability of the interval.

    Returns
    -------
    array of bool, shape (starts, …)

    Raises
    ------
    ValueError
        If `level` is not between 0 and 1.
    """
    x, y = _checked(ensemble, truth)
    if not 0 < validation.finite("level", level) < 1:
        raise ValueError(f"level must be between 0 and 1, not {level!r}.")
    low, high = np.quantile(x, (0.5 * (1 - level), 0.5 * (1 + level)), axis=1, method="weibull")
    return (y >= low) & (y <= high)


def rank_histogram(ensemble: Any, truth: Any, bins: int = 10, bootstrap: int = 500, key: int = 0) -> Histogram:
    """The histogram of the rank of truth among the members.

    Parameters
    ----------
    ensemble : array, shape (starts, members, …)
        The forecasts.
    truth : array, shape (starts, …)
        The verification.
    bins : int, default 10
        The number of bins of the N + 1 ranks. If bins does not divide N + 1, expected frequencies differ.
    bootstrap : int, default 500
        The number of resamples of the starts.
    key : int, default 0
        Selects the resamples, and the ranks among equal values.

    Returns
    -------
    Histogram
    """
    x, y = _checked(ensemble, truth)
    ranks = x.shape[1] + 1
    if not 2 <= validation.count("bins", bins) <= ranks:
        raise ValueError(f"bins must be between 2 and the number of ranks, {ranks}, not {bins}.")
    rng = np.random.default_rng(key)
    equal = (x == y[:, None]).sum(axis=1)
    rank = (x < y[:, None]).sum(axis=1) + rng.integers(0, equal + 1)
    bin_of = np.arange(ranks) * bins // ranks
    expected = np.bincount(bin_of, minlength=bins) / ranks
    each = np.stack([np.bincount(bin_of[r.ravel()], minlength=bins) for r in rank]) / rank[0].size
    low, high = np.quantile(_resampled(each, bootstrap, rng), (0.05, 0.95), axis=0)
    return Histogram(each.mean(axis=0), expected, low, high)


def reliability(
    ensemble: Any, truth: Any, threshold: Any = 0.0, bins: int = 10, bootstrap: int = 500, key: int = 0
) -> Reliability:
    """Observed frequencies of the event {quantity > threshold} by forecast probability.

    The forecast probability is the share of members in the event. Empty bins are NaN.

    Parameters
    ----------
    ensemble : array, shape (starts, members, …)
        The forecasts.
    truth : array, shape (starts, …)
        The verification.
    threshold : float or array, default 0.0
        One number, or one per quantity.
    bins : int, default 10
        The number of bins of probability.
    bootstrap : int, default 500
        The number of resamples of the starts.
    key : int, default 0
        Selects the resamples.

    Returns
    -------
    Reliability
    """
    x, y = _checked(ensemble, truth)
    validation.count("bins", bins, least=2)
    event, p = y > threshold, (x > threshold).mean(axis=1)
    bin_of = np.minimum((p * bins).astype(int), bins - 1)

    def sums(values: np.ndarray) -> np.ndarray:
        pairs = zip(bin_of, values, strict=True)
        return np.stack([np.bincount(b.ravel(), v.ravel(), minlength=bins) for b, v in pairs])

    count, hits, total = sums(np.ones(p.shape)), sums(event.astype(float)), sums(p)
    rng = np.random.default_rng(key)
    at = rng.integers(0, len(x), (bootstrap, len(x)))
    with np.errstate(invalid="ignore", divide="ignore"):
        again = hits[at].sum(axis=1) / count[at].sum(axis=1)
        found = np.isfinite(again)
        n = np.maximum(found.sum(axis=0), 1)
        mean = np.where(found, again, 0.0).sum(axis=0) / n
        error = np.sqrt(np.where(found, (again - mean) ** 2, 0.0).sum(axis=0) / n)
        whole = count.sum(axis=0)
        return Reliability(total.sum(axis=0) / whole, hits.sum(axis=0) / whole, error, whole)


def ratio_error(numerator: Any, denominator: Any, bootstrap: int = 500, key: int = 0) -> float:
    """The standard error of a ratio of means over starts, by a bootstrap.

    Parameters
    ----------
    numerator, denominator : array, shape (starts,)
        A value per start.
    bootstrap : int, default 500
        The number of resamples.
    key : int, default 0
        Selects them.

    Returns
    -------
    float
    """
    rng = np.random.default_rng(key)
    both = np.stack([np.asarray(numerator, float), np.asarray(denominator, float)], axis=1)
    again = _resampled(both, bootstrap, rng)
    return float(np.std(again[:, 0] / again[:, 1]))


def _resampled(each: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Means over resampled starts."""
    at = rng.integers(0, len(each), (validation.count("bootstrap", count), len(each)))
    return each[at].mean(axis=1)


def _checked(ensemble: Any, truth: Any) -> tuple[Any, Any]:
    """Arrays that fit together."""
    traced = validation.is_traced((ensemble, truth))
    x, y = (z if traced else np.asarray(z, float) for z in (ensemble, truth))
    if x.ndim < 2 or y.shape != x.shape[:1] + x.shape[2:]:
        raise ValueError(
            f"truth must have the shape of ensemble without its second axis, the members: {x.shape[:1] + x.shape[2:]}, "
            f"not {y.shape}."
        )
    if x.shape[1] < 2:
        raise ValueError("scores of an ensemble need 2 members at least, not 1.")
    if not traced:
        for name, z in (("ensemble", x), ("truth", y)):
            if not np.all(np.isfinite(z)):
                at = tuple(int(i) for i in np.argwhere(~np.isfinite(z))[0])
                raise ValueError(f"{name} must be finite: {name}{list(at)} is {z[at]}.")
    return x, y
