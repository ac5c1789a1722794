"""`forecast`: ensembles from many starts in one run, with scores against truth and baselines."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from ..drivers import Driver, Increments
from ..fluids.flow import FluidFlow
from ..fluids.sphere import Sphere
from ..fluids.torus import wavenumbers
from ..integrators.base import Integrator
from ..integrators.tmk import TMK
from ..numerics import validation
from ..numerics.signatures import check_function
from ..runtime.ensemble import ensemble
from ..states import check_state
from ..systems import System
from .coarse_grain import FieldSeries, check_finite, even_times
from .scores import Histogram, Reliability, coverage, crps, rank_histogram, ratio_error, reliability, spread_error

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

_NEAR = 1e-6  # relative distance of a time from the grid


class Observed(NamedTuple):
    """The scored quantities: a function of the state, and their values in truth at all times."""

    of: Callable[[Any], Any]
    series: np.ndarray  # (times, quantities)
    group: np.ndarray  # of each quantity, whose errors have one standard deviation: its shell


@dataclass(frozen=True, repr=False, eq=False)
class Forecast:
    """Ensemble forecasts from many starts, with truth and the deterministic forecast.

    Parameters
    ----------
    starts : array, shape (starts,)
        The times of the starts.
    leads : array, shape (leads,)
        The lead times.
    members : array, shape (starts, members, leads, quantities)
        The ensemble.
    truth, deterministic : array, shape (starts, leads, quantities)
        The verification, and the forecast without noise.
    climate : array, shape (times, quantities)
        The quantities in truth at all times.
    group : array, shape (quantities,)
        The group of each quantity; dressed forecasts have one standard deviation per group.
    """

    starts: np.ndarray
    leads: np.ndarray
    members: np.ndarray
    truth: np.ndarray
    deterministic: np.ndarray
    climate: np.ndarray
    group: np.ndarray

    def __repr__(self) -> str:
        """The shape of the forecasts."""
        S, N, L, Q = self.members.shape
        return f"Forecast: {S} starts, {N} members, {L} lead times to {self.leads[-1]:g}, {Q} quantities"

    def at(self, lead: float) -> int:
        """The position of a lead time.

        Parameters
        ----------
        lead : float
            The lead time.

        Returns
        -------
        int
        """
        k = int(np.argmin(np.abs(self.leads - lead)))
        if abs(self.leads[k] - lead) > _NEAR * max(1.0, abs(lead)):
            raise ValueError(f"lead = {lead:g} is none of the lead times {self.leads.tolist()}.")
        return k

    def dressed(self, training: "Forecast", members: int | None = None, key: int = 0) -> "Forecast":
        """The deterministic forecast plus Gaussian errors of the standard deviations of training forecasts.

        Parameters
        ----------
        training : Forecast
            Forecasts from other starts, with the same lead times and quantities.
        members : int, optional
            The number of members. The default is that of the ensemble.
        key : int, default 0
            Selects the errors.

        Returns
        -------
        Forecast
        """
        self._check(training)
        error = ((training.truth - training.deterministic) ** 2).mean(axis=0)  # (leads, quantities)
        groups = np.unique(self.group, return_inverse=True)[1]
        mean = np.stack([np.bincount(groups, e) / np.bincount(groups) for e in error])
        count = self.members.shape[1] if members is None else validation.count("members", members, least=2)
        shape = (len(self.starts), count, *self.truth.shape[1:])
        noise = np.random.default_rng(key).standard_normal(shape) * np.sqrt(mean)[:, groups]
        return replace(self, members=self.deterministic[:, None] + noise)

    def climatology(self, members: int | None = None, key: int = 0) -> "Forecast":
        """Random states of the climate in place of the members.

        Parameters
        ----------
        members : int, optional
            The number of members. The default is that of the ensemble.
        key : int, default 0
            Selects the states.

        Returns
        -------
        Forecast
        """
        count = self.members.shape[1] if members is None else validation.count("members", members, least=2)
        shape = (len(self.starts), count, len(self.leads))
        return replace(self, members=self.climate[np.random.default_rng(key).integers(0, len(self.climate), shape)])

    def scores(self, training: "Forecast | None" = None, level: float = 0.95) -> "xarray.Dataset":
        """Scores by lead time, as a Dataset with the dimensions (forecast, lead).

        - `crps`: the mean fair CRPS. For the deterministic forecast it is the mean absolute error.
        - `crps_ratio`: `crps` divided by that of the deterministic forecast, with `crps_ratio_error`.
        - `rmse`: the error of the ensemble mean. `spread`: the spread. `spread_ratio`: spread/rmse.
        - `coverage`: the share of truth in the central interval, with `coverage_error`.

        Standard errors come from a bootstrap over starts.

        Parameters
        ----------
        training : Forecast, optional
            Forecasts from other starts, which calibrate the dressed deterministic forecast.
        level : float, default 0.95
            The probability of the interval.

        Returns
        -------
        xarray.Dataset
        """
        import xarray as xr

        each = {"ensemble": self, "deterministic": None, "climatology": self.climatology()}
        if training is not None:
            each["dressed"] = self.dressed(training)
        names = ("crps", "crps_ratio", "crps_ratio_error", "rmse", "spread", "spread_ratio", "coverage")
        table = {name: np.full((len(each), len(self.leads)), np.nan) for name in (*names, "coverage_error")}
        for i, forecast in enumerate(each.values()):
            for j in range(len(self.leads)):
                found = self._deterministic(j) if forecast is None else forecast._scores(j, level)
                for name, value in found.items():
                    table[name][i, j] = value
        coords = {"forecast": list(each), "lead": self.leads}
        attributes = {"starts": len(self.starts), "members": self.members.shape[1], "level": level}
        return xr.Dataset({k: (("forecast", "lead"), v) for k, v in table.items()}, coords, attributes)

    def rank_histogram(self, lead: float, bins: int = 10) -> Histogram:
        """The rank histogram at a lead time, of all quantities, with a bootstrap over starts.

        Parameters
        ----------
        lead : float
            The lead time.
        bins : int, default 10
            The number of bins.

        Returns
        -------
        Histogram
        """
        j = self.at(lead)
        return rank_histogram(self.members[:, :, j], self.truth[:, j], bins)

    def reliability(self, lead: float, threshold: Any = None, bins: int = 10) -> Reliability:
        """Observed frequencies of {quantity > threshold} by forecast probability, at a lead time.

        Parameters
        ----------
        lead : float
            The lead time.
        threshold : float or array, optional
            The default is the median of the climate of each quantity.
        bins : int, default 10
            The number of bins of probability.

        Returns
        -------
        Reliability
        """
        j = self.at(lead)
        threshold = np.median(self.climate, axis=0) if threshold is None else threshold
        return reliability(self.members[:, :, j], self.truth[:, j], threshold, bins)

    def plot(self, training: "Forecast | None" = None, theme: str = "light") -> "Figure":
        """Draw CRPS, spread and error against lead time, a rank histogram and a reliability diagram.

        Parameters
        ----------
        training : Forecast, optional
            Forecasts from other starts, for the dressed deterministic forecast.
        theme : {"light", "dark"}, default "light"
            The colours.

        Returns
        -------
        matplotlib.figure.Figure
        """
        from .figures import draw_forecast

        return draw_forecast(self, training, theme)

    @cached_property
    def _errors(self) -> np.ndarray:
        """The mean absolute error of the deterministic forecast, (starts, leads)."""
        return np.abs(self.deterministic - self.truth).mean(axis=-1)

    def _scores(self, j: int, level: float) -> dict[str, float]:
        x, y = self.members[:, :, j], self.truth[:, j]
        each = crps(x, y).mean(axis=-1)
        spread, rmse = spread_error(x, y)
        inside = coverage(x, y, level).mean(axis=-1)
        return {
            "crps": each.mean(), "crps_ratio": each.mean() / self._errors[:, j].mean(),
            "crps_ratio_error": ratio_error(each, self._errors[:, j]), "rmse": rmse, "spread": spread,
            "spread_ratio": spread / rmse, "coverage": inside.mean(),
            "coverage_error": ratio_error(inside, np.ones(len(inside))),
        }  # fmt: skip

    def _deterministic(self, j: int) -> dict[str, float]:
        error = self.deterministic[:, j] - self.truth[:, j]
        return {
            "crps": self._errors[:, j].mean(), "crps_ratio": 1.0, "crps_ratio_error": 0.0,
            "rmse": np.sqrt((error**2).mean()),
        }  # fmt: skip

    def _check(self, training: "Forecast") -> None:
        if not isinstance(training, Forecast):
            raise TypeError(f"training must be a Forecast, not {type(training).__name__}.")
        same = np.array_equal(training.leads, self.leads) and np.array_equal(training.group, self.group)
        if not same:
            raise ValueError("training must have the lead times and the quantities of the forecast.")
        if np.intersect1d(np.round(training.starts, 9), np.round(self.starts, 9)).size:
            raise ValueError("training must have other starts than the forecast: its errors would be known in advance.")


def forecast(
    system: System,
    truth: Any,
    starts: Any,
    *,
    leads: Any,
    dt: float,
    key: Any = None,
    driver: Driver | None = None,
    members: int = 50,
    observe: Callable[[Any], Any] | None = None,
    degrees: tuple[int, int] | None = None,
    params: Any = None,
    integrator: Integrator = TMK(),
    backend: str = "auto",
    on: Any = None,
) -> Forecast:
    """Forecast from many starts of a true run, all starts and members in one ensemble.

    Scored quantities of a fluid are the coefficients of the vorticity in some shells. Each is divided by its standard
    deviation in the climate of its shell. By default they do not contain degree 1 on the sphere. Advection conserves
    angular momentum, which has degree 1, and SALT noise does not. So no amplitude of the noise calibrates this degree.

    Parameters
    ----------
    system : System
        The coarse model with its noise.
    truth : FieldSeries, Solution or (t, states)
        The verification: a coarse-grained run on the surface of the model, or states of the system at equally spaced
        times. For a model of several layers pass states, and `observe`.
    starts : array_like, shape (starts,)
        The times of the starts.
    leads : array_like, shape (leads,)
        The lead times, multiples of `dt`. Starts plus leads must be times of `truth`.
    dt : float
        The time step.
    key, driver : optional
        The path of the noise, as in `ensemble`.
    members : int, default 50
        The number of members per start.
    observe : callable, optional
        The scored quantities, a vector as a function of the state. The default for states is all coordinates.
    degrees : (int, int), optional
        The first and last scored shell of a fluid. The default is (2, n // 2) on the sphere and (1, n // 4) on the
        torus.
    params : pytree, optional
        Parameters in place of `system.params`.
    integrator, backend, on : optional
        As in `ensemble`.

    Returns
    -------
    Forecast

    Raises
    ------
    ValueError, TypeError
        If an argument is invalid, sizes do not fit, truth is not finite, or a start is not a time of `truth`.
    """
    setup = Setup(system, truth, starts, leads, dt, members, observe, degrees, integrator, backend, on)
    return setup.run(key, driver, params)


class Setup:
    """The checked arguments of forecasts, which differ in params and path."""

    def __init__(self, system: System, truth: Any, starts: Any, leads: Any, dt: Any, members: int, observe: Any,
                 degrees: Any, integrator: Integrator, backend: str, on: Any):  # fmt: skip
        if not isinstance(system, System):
            raise TypeError(f"system must be a System, not {type(system).__name__}.")
        if not system.n_noise:
            raise ValueError("the system has no noise, so all members would be equal: add noise to it.")
        if system.timed:
            raise ValueError("forecast does not support functions of the time t: all starts are run together.")
        self.system, self.members = system, validation.count("members", members, least=2)
        self.dt = validation.positive("dt", dt)
        t, states, self.observed = _truth(system, truth, observe, degrees)
        self.starts, self.leads = _times("starts", starts), _times("leads", leads)
        if self.leads[0] <= 0 or np.any(np.diff(self.leads) <= 0):
            raise ValueError(f"leads must be above 0 and increase, not {self.leads.tolist()}.")
        steps = np.rint(self.leads / self.dt).astype(int)
        if np.any(np.abs(self.leads / self.dt - steps) > _NEAR * steps):
            raise ValueError(f"leads must be multiples of dt = {self.dt:g}, not {self.leads.tolist()}.")
        self.steps = int(steps[-1])
        begin = _index("starts", self.starts, t)
        ends = _index("starts + leads", (self.starts[:, None] + self.leads).ravel(), t).reshape(len(begin), -1)
        self.mu0 = np.asarray(states(begin))
        self.verification = self.observed.series[ends]
        self.options = {"save": self.observed.of, "integrator": integrator, "backend": backend}
        self.on = on

    def values(self, members: int, driver: dict[str, Any], params: Any = None) -> Any:
        """The quantities (starts, members, leads, quantities)."""
        S = len(self.starts)
        ens = ensemble(
            self.system, np.repeat(self.mu0, members, axis=0), members=S * members, t1=self.steps * self.dt, dt=self.dt,
            params=params, save_at=self.leads, on=self.on, **driver, **self.options,
        )  # fmt: skip
        return ens.saved.reshape(S, members, len(self.leads), -1)

    def run(self, key: Any, driver: Driver | None, params: Any = None) -> Forecast:
        """The ensemble and the deterministic forecast."""
        members = np.asarray(self.values(self.members, {"key": key, "driver": driver}, params))
        return Forecast(
            self.starts, self.leads, members, self.verification, self.deterministic(params), self.observed.series,
            self.observed.group,
        )  # fmt: skip

    def deterministic(self, params: Any = None) -> np.ndarray:
        """The forecast without noise (starts, leads, quantities)."""
        still = Increments(np.zeros((self.steps, self.system.n_noise)))
        return np.asarray(self.values(1, {"driver": still}, params))[:, 0]


def _times(name: str, value: Any) -> np.ndarray:
    found = np.asarray(validation.numbers(name, value, "a list of times", "fiu"), float)
    if found.ndim != 1 or not len(found) or not np.all(np.isfinite(found)):
        raise ValueError(f"{name} must be a list of finite times, not an array of shape {found.shape}.")
    return found


def _index(name: str, times: np.ndarray, t: np.ndarray) -> np.ndarray:
    """The positions of times in those of truth."""
    h = (t[-1] - t[0]) / (len(t) - 1)
    k = np.rint((times - t[0]) / h).astype(int)
    outside = (k < 0) | (k >= len(t))
    if outside.any():
        raise ValueError(f"{name}: t = {times[outside][0]:g} is outside of truth, from {t[0]:g} to {t[-1]:g}.")
    off = np.abs(times - t[k]) > _NEAR * max(h, float(np.abs(t).max()))
    if off.any():
        raise ValueError(f"{name}: t = {times[off][0]:g} is no time of truth, whose times are {h:g} apart.")
    return k


def _truth(
    system: System, truth: Any, observe: Any, degrees: Any
) -> tuple[np.ndarray, Callable[[Any], np.ndarray], Observed]:
    """The times, the states of some of them, and the scored quantities."""
    if observe is not None:
        check_function("observe", observe, ("mu",))
    if isinstance(truth, FieldSeries):
        flow = system.flow
        if not isinstance(flow, FluidFlow) or flow.surface != truth.surface:
            raise ValueError(
                f"truth is on {truth.surface}, but the system is on {getattr(flow, 'surface', 'no surface')}: "
                "coarse_grain the fine run to its n."
            )
        states = lambda at: truth.states(flow, at)
        return truth.t, states, _states(observe, states(...)) if observe else _coefficients(flow, truth, degrees)
    if degrees is not None:
        raise ValueError("degrees select shells of a FieldSeries; give observe for states.")
    t, mu = truth if isinstance(truth, tuple) and len(truth) == 2 else (getattr(truth, "t", None), None)
    mu = getattr(truth, "mu", None) if mu is None else mu
    if t is None or mu is None:
        raise TypeError(f"truth must be a FieldSeries, a Solution or (t, states), not {type(truth).__name__}.")
    t, mu = even_times(t), np.asarray(mu)
    shape = system.algebra.shape
    if mu.shape != (len(t), *shape):
        raise ValueError(f"truth must have states of shape {(len(t), *shape)}, not {mu.shape}.")
    check_finite("truth", mu, t)
    check_state(system.algebra, "truth", mu[0])
    if observe is None and np.iscomplexobj(mu):
        raise ValueError("states are complex: give observe, a function of the state that returns a real vector.")
    return t, lambda at: mu[at], _states(observe or (lambda m: m.ravel()), mu)


def _states(observe: Callable, states: np.ndarray) -> Observed:
    """Quantities of the user, each a group of its own."""
    import jax

    series = np.asarray(jax.jit(lambda x: jax.lax.map(observe, x))(jnp.asarray(states)))
    if series.ndim != 2 or series.dtype.kind != "f":
        raise ValueError(f"observe must return a vector of real numbers, not an array of shape {series.shape[1:]}.")
    return Observed(observe, series, np.arange(series.shape[1]))


def _coefficients(flow: FluidFlow, truth: FieldSeries, degrees: Any) -> Observed:
    """Coefficients of the vorticity in some shells over their standard deviation in the climate of the shell."""
    surface = truth.surface
    sphere = isinstance(surface, Sphere)
    default = (2, surface.n // 2) if sphere else (1, max(1, surface.n // 4))
    try:
        first, last = (validation.count("degrees", k) for k in (default if degrees is None else degrees))
    except (TypeError, ValueError):
        raise ValueError(f"degrees must be two whole numbers, the first and last shell, not {degrees!r}.") from None
    shells = surface.shells.ravel()
    if not first <= last <= shells.max():
        raise ValueError(f"degrees must be (k1, k2) with 1 <= k1 <= k2 <= {shells.max()}, not {degrees!r}.")
    inside = (shells >= first) & (shells <= last)
    if not sphere:  # one of two opposite modes
        m1, m2 = np.meshgrid(wavenumbers(surface.n), wavenumbers(surface.n), indexing="ij")
        inside &= ((m1 > 0) | ((m1 == 0) & (m2 > 0))).ravel()
    at = np.flatnonzero(inside)
    climate = truth.vorticity.reshape(len(truth), -1)[:, at]
    power = np.abs(climate - climate.mean(axis=0)) ** 2
    deviation = np.sqrt([power[:, shells[at] == k].mean() for k in shells[at]])
    if not np.all(deviation > 0):
        raise ValueError(f"truth has no variance in a shell of degrees {first} to {last}: take fewer.")

    def real(x: Any) -> Any:
        xp: Any = np if isinstance(x, np.ndarray) else jnp
        return x if sphere else xp.concatenate([x.real, x.imag], axis=-1)

    def of(mu: Any) -> Any:
        return real(flow.vorticity_coefficients(mu).ravel()[at] / deviation)

    group = shells[at] if sphere else np.tile(shells[at], 2)
    return Observed(of, real(climate / deviation), group)
