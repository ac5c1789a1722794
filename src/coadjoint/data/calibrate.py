"""`calibrate`: noise fields from the fluctuations of a fine stream function, by empirical orthogonal functions."""

from typing import TYPE_CHECKING, Any

import numpy as np

from ..numerics import validation
from .coarse_grain import FieldSeries
from .noise import CalibratedNoise

if TYPE_CHECKING:
    import xarray

_NORMS = {"velocity": 0.5, "stream": 0.0, "vorticity": 1.0}  # the power of the eigenvalue of −Δ
_LAGS = 10  # of the test of Ljung and Box
_WHITE = 0.2  # the relative error of the variance up to which white noise is adequate


def calibrate(
    series: FieldSeries,
    *,
    window: float,
    fields: int | None = None,
    variance: float = 0.9,
    norm: str = "velocity",
    coloured: bool = False,
) -> CalibratedNoise:
    """Noise fields of a coarse model, from a coarse-grained fine run.

    The fluctuation of ζ = −ψ about its running mean over `window` is decomposed into empirical orthogonal functions
    (EOFs) in a norm. With the EOFs φ_k, the standard deviations s_k and the decorrelation times τ_k of their time
    series, the fields are

        β_k = s_k φ_k √(2 τ_k).

    White noise with these fields displaces fluid over long times as the fluctuation does. An Ornstein–Uhlenbeck driver
    with times τ_k restores the variance s_k² too. The amplitude depends on `window`, so tune it: `tuned`.

    Parameters
    ----------
    series : FieldSeries
        The coarse-grained run, from `coarse_grain`.
    window : float
        The length of the running mean, about a turnover time.
    fields : int, optional
        The number of fields. The default is the number that explains `variance`.
    variance : float, default 0.9
        The share of the variance that the fields explain, if `fields` is not given.
    norm : {"velocity", "stream", "vorticity"}, default "velocity"
        The norm of the EOFs: the root mean square of this field.
    coloured : bool, default False
        Whether `CalibratedNoise.driver` returns an Ornstein–Uhlenbeck driver in place of Brownian motion.

    Returns
    -------
    CalibratedNoise

    Raises
    ------
    ValueError, TypeError
        If an argument is invalid, the window does not fit the series, or there are too few independent samples for the
        fields.
    """  # fmt: skip
    if not isinstance(series, FieldSeries):
        raise TypeError(f"series must be a FieldSeries, as coarse_grain returns it, not {type(series).__name__}.")
    if not 0 < validation.finite("variance", variance) <= 1:
        raise ValueError(f"variance must be above 0 and at most 1, not {variance!r}.")
    scale = _scale(series, validation.choice("norm", norm, tuple(_NORMS)))
    z = as_real(-fluctuation(series, window)) * scale
    left, s, right = np.linalg.svd(z - z.mean(axis=0), full_matrices=False)
    shares = s**2 / np.sum(s**2)
    rank = int(np.sum(s > 1e-10 * s[0]))
    M = int(np.searchsorted(np.cumsum(shares), variance * (1 - 1e-12))) + 1 if fields is None else fields
    M = validation.count("fields", M)
    components = left[:, :M] * np.sqrt(len(z))
    times = decorrelation_times(components, series.spacing)
    weights = shares[: len(times)]
    independent = len(z) * series.spacing / (2 * float(np.average(times, weights=weights)))
    if min(rank, independent) < M:
        raise ValueError(
            f"fields = {M} are too many for {len(z)} samples, of which about {independent:.0f} are independent, and "
            f"{rank} directions: take a longer series, or fewer fields."
        )
    spread = s[:M] / np.sqrt(len(z))
    phi = np.where(scale > 0, right[:M] / np.where(scale > 0, scale, 1.0), 0.0)
    beta = as_coefficients(series, (spread * np.sqrt(2 * times))[:, None] * phi)
    return CalibratedNoise(beta, series.surface, shares[:M], times, components, series.spacing, bool(coloured))


def fluctuation(series: FieldSeries, window: float) -> np.ndarray:
    """ψ minus its running mean, at the times that have a whole window around them."""
    h = series.spacing
    half = round(0.5 * validation.positive("window", window) / h)
    if half < 1 or 2 * half + 3 > len(series):
        raise ValueError(
            f"window = {window:g} must be between 2 and {len(series) - 3} intervals of the series, which are {h:g} "
            "long."
        )
    psi = series.stream
    sums = np.concatenate([np.zeros_like(psi[:1]), np.cumsum(psi, axis=0)])
    width = 2 * half + 1
    return psi[half : len(psi) - half] - (sums[width:] - sums[:-width]) / width


def decorrelation_times(components: np.ndarray, spacing: float) -> np.ndarray:
    """∫₀^∞ of the autocorrelation of each column (samples, M) up to its first zero, by the trapezoidal rule.

    Parameters
    ----------
    components : array, shape (samples, M)
        The time series.
    spacing : float
        The interval between samples.

    Returns
    -------
    array, shape (M,)
    """
    a = np.asarray(components, float)
    a = a - a.mean(axis=0)
    size = len(a)
    spectrum = np.abs(np.fft.rfft(a, 2 * size, axis=0)) ** 2
    r = np.fft.irfft(spectrum, axis=0)[:size] / np.arange(size, 0, -1)[:, None]
    r = r / r[0]
    positive = np.cumprod(r > 0, axis=0)
    return spacing * (np.sum(r * positive, axis=0) - 0.5)


def whiteness(noise: CalibratedNoise, interval: float) -> "xarray.Dataset":
    """Test whether white noise is adequate on a time scale.

    White noise displaces by s² 2τ Δ in the interval Δ, in the mean square. `ratio` is the variance of the integral of
    the time series over Δ, divided by this number. It tends to 1 for Δ ≫ τ. `p_value` is that of the test of Ljung and
    Box for the time series at the spacing Δ: a small one shows correlation.

    Parameters
    ----------
    noise : CalibratedNoise
        The result of `calibrate`.
    interval : float
        Δ, the shortest lead time of interest.

    Returns
    -------
    xarray.Dataset
        `ratio`, its `standard_error`, `p_value` and `time` by field. The attribute `adequate` states whether the mean
        ratio, weighted by variance, is within 20 % of 1.

    Raises
    ------
    ValueError
        If the noise has no time series, or the interval does not fit them.
    """
    import xarray as xr
    from scipy.stats import chi2

    if noise.components is None or noise.times is None or noise.variance is None:
        raise ValueError("whiteness needs the time series of the fields: a noise from calibrate.")
    a, h = noise.components, noise.spacing
    k = round(validation.positive("interval", interval) / h)
    blocks = len(a) // max(k, 1)
    if k < 1 or blocks < _LAGS + 2:
        raise ValueError(
            f"interval = {interval:g} must be between {h:g} and {len(a) * h / (_LAGS + 2):g}, so that the series has "
            f"{_LAGS + 2} such intervals."
        )
    sums = h * a[: blocks * k].reshape(blocks, k, -1).sum(axis=1)
    ratio = sums.var(axis=0) / (2 * noise.times * k * h)
    thin = a[::k] - a[::k].mean(axis=0)
    lags = np.arange(1, _LAGS + 1)
    r = np.array([np.sum(thin[j:] * thin[:-j], axis=0) for j in lags]) / np.sum(thin**2, axis=0)
    Q = len(thin) * (len(thin) + 2) * np.sum(r**2 / (len(thin) - lags)[:, None], axis=0)
    mean = float(np.average(ratio, weights=noise.variance))
    data = {
        "ratio": ("field", ratio), "standard_error": ("field", ratio * np.sqrt(2 / blocks)),
        "p_value": ("field", chi2.sf(Q, _LAGS)), "time": ("field", noise.times),
    }  # fmt: skip
    attributes = {"interval": k * h, "mean_ratio": mean, "adequate": int(abs(mean - 1) <= _WHITE)}
    return xr.Dataset(data, {"field": np.arange(noise.size)}, attributes)


def as_real(coefficients: np.ndarray) -> np.ndarray:
    """Rows of real numbers with the same sum of squares."""
    flat: Any = coefficients.reshape(len(coefficients), -1)
    return np.concatenate([flat.real, flat.imag], axis=1) if np.iscomplexobj(flat) else flat


def as_coefficients(series: FieldSeries, rows: np.ndarray) -> np.ndarray:
    """The inverse of `as_real`."""
    shape: Any = (len(rows), *series.surface.shape)
    if not np.iscomplexobj(series.vorticity):
        return rows.reshape(shape)
    first, second = np.split(rows, 2, axis=1)
    return (first + 1j * second).reshape(shape)


def _scale(series: FieldSeries, norm: str) -> np.ndarray:
    """The weights of the coefficients of ψ in a norm."""
    eigenvalues = series.surface.eigenvalues.ravel()
    weights = np.where(eigenvalues > 0, np.maximum(eigenvalues, 1e-300) ** _NORMS[norm], 0.0)
    return np.tile(weights, 2) if np.iscomplexobj(series.vorticity) else weights
