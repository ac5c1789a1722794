"""Fractional Brownian motion as a sum of Ornstein–Uhlenbeck processes."""

from functools import lru_cache
from math import gamma
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Float

from ..numerics import random, validation
from .base import Driver, Needs
from .correlation import checked_correlation, mixing_of
from .gauss_markov import GaussMarkov
from .grid import check_depth, check_grid
from .ornstein_uhlenbeck import GaussMarkovWindow, check_smooth, window_of

_STEPS = 2**20  # of the base grid: the default horizon
_FAST = 1e6  # the rate of the process that stands for all faster ones, per finest step
_ROUGH = 1 / 3  # the Hurst exponent down to which increments determine the limit of methods


class FractionalBrownian(Driver):
    """Independent fractional Brownian motions with the Hurst exponent H.

        E[(S(t) − S(u))²] = |t − u|^{2H}

    S is a sum of independent Ornstein–Uhlenbeck processes (H < ½), or of integrals of such processes (H > ½), with
    relaxation times in geometric progression. `variance_error(dt)` returns the largest relative error of the variance
    of S(t) − S(u) for |t − u| between the finest step and `horizon`. It is at most `tol`. The joint distribution of
    the sum at the steps is exact. As for `OU`, the increments depend on (key, member, step of the base grid) only.

    Methods converge to the solution in the sense of Young (H > ½) or of symmetric rough integrals (⅓ < H < ½). For
    H ≤ ⅓ increments do not determine the limit unless the noises are SALT and commute, so other noises raise an error.

    Parameters
    ----------
    hurst : float
        The Hurst exponent H, 0 < H < 1, but not ½, for which `Brownian` is exact.
    key : int or JAX key, default 0
        Selects the path.
    horizon : float, optional
        The longest time over which the distribution holds. Longer runs raise an error. The default is 2²⁰ base steps.
    tol : float, default 1e-3
        The bound of the relative error of variances, at least 1e-6.
    grid : float, optional
        The spacing of the base grid. The default is the time step of the run.
    depth : int, default 0
        The finest step is grid/2^depth.
    correlation : array_like, shape (M, M), optional
        The correlation matrix of the channels. The default is the identity.

    Raises
    ------
    TypeError, ValueError
        If a number is outside its range, or if `correlation` is no correlation matrix.

    References
    ----------
    Carmona, Coutin and Montseny, Approximation of some Gaussian processes (2000).
    """  # fmt: skip

    hurst: float = eqx.field(static=True)
    key: random.Key
    horizon: float | None = eqx.field(static=True)
    tol: float = eqx.field(static=True)
    grid: float | None = eqx.field(static=True)
    depth: int = eqx.field(static=True)
    correlation: tuple[tuple[float, ...], ...] | None = eqx.field(static=True)

    def __init__(
        self,
        hurst: float,
        key: Any = 0,
        horizon: float | None = None,
        tol: float = 1e-3,
        grid: float | None = None,
        depth: int = 0,
        correlation: Any = None,
    ):
        self.hurst = validation.finite("hurst", hurst)
        if not 0.0 < self.hurst < 1.0 or self.hurst == 0.5:
            other = " For 0.5 take Brownian(key)." if self.hurst == 0.5 else ""
            raise ValueError(f"hurst must be between 0 and 1 and not 0.5, not {hurst!r}.{other}")
        self.key = random.as_key(key)
        self.horizon = None if horizon is None else validation.positive("horizon", horizon)
        self.tol = validation.positive("tol", tol)
        if self.tol < 1e-6:
            raise ValueError(f"tol must be at least 1e-6, not {tol!r}.")
        self.grid = None if grid is None else validation.positive("grid", grid)
        self.depth = check_depth(depth) or 0
        self.correlation = checked_correlation(correlation)

    @property
    def rough(self) -> bool:
        """Whether H ≤ ⅓."""
        return self.hurst <= _ROUGH

    def _spectrum(self, dt: float) -> "Spectrum":
        grid = self.grid or dt
        return spectrum(self.hurst, grid / 2.0**self.depth, self.horizon or _STEPS * grid, self.tol)

    def variance_error(self, dt: float) -> float:
        """The largest relative error of the variance of S(t) − S(u), in a run with the time step `dt`."""
        return self._spectrum(dt).error

    def check(self, n_noise: int, steps: int, dt: float, needs: Needs = Needs()) -> None:
        """Raise if the run is longer than the horizon, or finer than the finest step."""
        check_smooth("FractionalBrownian", needs)
        check_grid("FractionalBrownian", self.grid, self.depth if needs.Z else None, steps, dt, needs)
        grid, horizon = self.grid or dt, self.horizon or _STEPS * (self.grid or dt)
        if steps * dt > horizon * (1 + 1e-9):
            raise ValueError(
                f"the run takes the time {steps * dt:g}, but the horizon of FractionalBrownian is {horizon:g}: "
                f"give horizon={steps * dt:g} or more."
            )
        least = dt / 2.0**needs.halvings
        if least < grid / 2.0**self.depth * (1 - 1e-9):
            levels = int(np.ceil(np.log2(grid / least) - 1e-9))
            raise ValueError(
                f"the smallest step is {least:g}, but the finest step of FractionalBrownian is grid/2^depth = "
                f"{grid / 2.0**self.depth:g}: give depth={levels}."
            )

    def mixing(self, n_noise: int) -> Any:
        """L, from the correlation matrix."""
        return mixing_of(self.correlation, n_noise)

    def window(self, n_noise: int, dt: float, first: int, blocks: int, needs: Needs = Needs()) -> GaussMarkovWindow:
        """The window. It contains no data, so it is the same for all blocks."""
        grid, found = self.grid or dt, self._spectrum(dt)
        tau, variance = np.repeat(1.0 / found.rates, n_noise), np.repeat(found.variances, n_noise)
        top = np.asarray(GaussMarkov.top_of(tau, grid))
        arrays: tuple[Any, ...] = np.asarray(grid), tau, variance, top
        processes = GaussMarkov(*arrays)
        return window_of(self, processes, n_noise, self.hurst > 0.5, dt, needs)


class Spectrum(NamedTuple):
    """Rates and variances of Ornstein–Uhlenbeck processes, and the error of the variance of their sum."""

    rates: Float[np.ndarray, " K"]
    variances: Float[np.ndarray, " K"]
    error: float


@lru_cache(64)
def spectrum(hurst: float, finest: float, horizon: float, tol: float) -> Spectrum:
    """The fewest processes, in geometric progression, whose sum is accurate to `tol`.

    With γ = e^u the trapezoidal rule in u is applied to

        t^{2H} = 2c ∫ (1 − e^{−γt}) γ^{−2H} du,  c = H/Γ(1 − 2H)                             (H < ½, in y),
        H(2H − 1) t^{2H−2} = c ∫ e^{−γt} γ^{2−2H} du,  c = H(2H − 1)/Γ(2 − 2H)               (H > ½, in η = dS/dt).

    Its error decreases as exp(−π²/step). Both tails are geometric series: each is one process, much slower than
    1/horizon or much faster than 1/finest.
    """
    step = 2.5
    while True:
        found = _trapezoidal(hurst, finest, horizon, tol, step)
        if found.error <= tol:
            return found
        step *= 0.95


def _trapezoidal(H: float, finest: float, horizon: float, tol: float, step: float) -> Spectrum:
    slow = (0.03 * tol) ** (1.0 / (2.0 - 2.0 * H) if H < 0.5 else 1.0 / (3.0 - 2.0 * H))
    fast = np.log(30.0 / tol) if H < 0.5 else (30.0 / tol) ** (1.0 / (2.0 * H))
    low, high = np.log(slow / horizon), np.log(fast / finest)
    u = low + step * np.arange(int(np.ceil((high - low) / step)) + 1)
    rates, fastest = np.exp(u), _FAST / finest
    if H < 0.5:  # variances of y; a slow process moves as γ v, a fast one is v
        v = step * H / gamma(1.0 - 2.0 * H) * rates ** (-2.0 * H)
        a, b = np.exp(-2.0 * H * step), np.exp(-(1.0 - 2.0 * H) * step)
        slowest = rates[0] * np.exp(-step)
        first, last = v[0] * rates[0] * b / (1.0 - b) / slowest, v[-1] * a / (1.0 - a)
    else:  # variances of η; a slow process moves as v, a fast one as v/γ
        v = step * H * (2.0 * H - 1.0) / gamma(2.0 - 2.0 * H) * rates ** (2.0 - 2.0 * H)
        a, b = np.exp((1.0 - 2.0 * H) * step), np.exp(-(2.0 - 2.0 * H) * step)
        slowest = rates[0] * np.exp(-step)
        first, last = v[0] * b / (1.0 - b), v[-1] / rates[-1] * a / (1.0 - a) * fastest
    rates, v = np.concatenate([[slowest], rates, [fastest]]), np.concatenate([[first], v, [last]])
    t = np.geomspace(finest, horizon, 400)
    return Spectrum(rates, v, float(np.max(np.abs(variance(H, rates, v, t) / t ** (2.0 * H) - 1.0))))


def variance(H: float, rates: np.ndarray, variances: np.ndarray, t: np.ndarray) -> np.ndarray:
    """E (S(t) − S(0))² of the sum."""
    x = rates * t[:, None]
    if H < 0.5:
        return -2.0 * np.expm1(-x) @ variances
    series = x**2 * (0.5 - x / 6.0 + x**2 / 24.0)
    return np.where(x < 1e-3, series, x + np.expm1(-x)) @ (2.0 * variances / rates**2)
