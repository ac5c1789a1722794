"""`tuned`: the amplitude of the noise for which forecasts of training starts are calibrated."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from ..drivers import Driver
from ..integrators.base import Integrator
from ..integrators.tmk import TMK
from ..numerics import validation
from ..systems import System
from ..variations import vary
from .forecast import Forecast, Setup
from .scores import crps, spread_error

if TYPE_CHECKING:
    import xarray

_FACTOR = 6.0  # by which an amplitude changes in one step at most
_CLOSE = 0.02  # the change of log amplitude at which a search ends


@dataclass(frozen=True, repr=False, eq=False)
class Tuned:
    """An amplitude of the noise from training starts, with the forecasts of held-out starts.

    Parameters
    ----------
    amplitude : float
        The factor of the noise of the system.
    table : array, shape (steps, 2)
        Amplitudes, and spread/error or mean CRPS ratio of each.
    training, held_out : Forecast
        Forecasts with this amplitude.
    """

    amplitude: float
    table: np.ndarray
    training: Forecast
    held_out: Forecast

    def scores(self) -> "xarray.Dataset":
        """The scores of the held-out starts, with a dressed forecast from the training starts."""
        return self.held_out.scores(self.training)

    def __repr__(self) -> str:
        """The amplitude and the scores of the held-out starts."""
        found = self.scores().sel(forecast="ensemble")
        lines = [f"Tuned: amplitude {self.amplitude:.4g} after {len(self.table)} steps; held-out starts:"]
        for lead in found["lead"].values:
            row = found.sel(lead=lead)
            lines.append(
                f"  lead {lead:g}: CRPS/deterministic error {float(row['crps_ratio']):.2f}, spread/RMSE "
                f"{float(row['spread_ratio']):.2f}, coverage {float(row['coverage']):.2f}"
            )
        return "\n".join(lines)


def tuned(
    system: System,
    truth: Any,
    *,
    training: Any,
    held_out: Any,
    leads: Any,
    dt: float,
    key: Any = None,
    driver: Driver | None = None,
    by: str = "spread",
    amplitude: float = 1.0,
    members: int = 16,
    held_out_members: int = 50,
    max_steps: int = 8,
    observe: Any = None,
    degrees: tuple[int, int] | None = None,
    integrator: Integrator = TMK(),
    backend: str = "auto",
    on: Any = None,
) -> Tuned:
    """Find the amplitude of the noise of a system by forecasts from training starts.

    `by="spread"` makes the geometric mean over lead times of spread/error equal to 1. `by="crps"` minimises the mean
    over lead times of the fair CRPS, divided by the deterministic error, with its derivative through the runs (Ephrati
    and Woodfield 2025). All steps of the search have the same random numbers.

    Parameters
    ----------
    system : System
        The coarse model with its noise.
    truth : FieldSeries, Solution or (t, states)
        The verification, as in `forecast`.
    training, held_out : array_like
        The times of the starts that determine the amplitude, and of others that are scored.
    leads, dt, key, driver, observe, degrees, integrator, backend, on : optional
        As in `forecast`.
    by : {"spread", "crps"}, default "spread"
        The criterion.
    amplitude : float, default 1.0
        The first amplitude.
    members, held_out_members : int, default 16 and 50
        The number of members per start.
    max_steps : int, default 8
        The largest number of amplitudes.

    Returns
    -------
    Tuned

    Raises
    ------
    ValueError, TypeError
        If an argument is invalid, or training and held-out starts overlap.
    RuntimeError
        If the search does not converge within `max_steps`.
    """
    validation.choice("by", by, ("spread", "crps"))
    a, count = validation.positive("amplitude", amplitude), validation.count("max_steps", max_steps)
    if not isinstance(system, System) or not system.n_noise:
        raise ValueError("system must be a System with noise.")
    both = np.intersect1d(np.round(np.asarray(training, float), 9), np.round(np.asarray(held_out, float), 9))
    if both.size:
        raise ValueError(f"the start t = {both[0]:g} is in training and in held_out: take others for one of them.")
    varied = vary(system, noise=1.0)
    options = (leads, dt), (observe, degrees, integrator, backend, on)
    train = Setup(varied, truth, training, *options[0], members, *options[1])
    test = Setup(varied, truth, held_out, *options[0], held_out_members, *options[1])
    path = {"key": key, "driver": driver}
    rows: list[tuple[float, float]] = []
    if by == "spread":
        a = _by_spread(train, path, a, count, rows)
    else:
        a = _by_crps(train, path, a, count, rows)
    params = _params(test, a)
    return Tuned(a, np.array(rows), train.run(key, driver, params), test.run(key, driver, params))


def _by_spread(train: Setup, path: dict[str, Any], a: float, count: int, rows: list) -> float:
    """Fixed-point iteration on log amplitude."""
    for _ in range(count):
        x = np.asarray(train.values(train.members, path, _params(train, a)))
        pairs = [spread_error(x[:, :, j], train.verification[:, j]) for j in range(x.shape[2])]
        ratio = float(np.exp(np.mean([np.log(s / e) for s, e in pairs])))
        rows.append((a, ratio))
        step = float(np.clip(1 / ratio, 1 / _FACTOR, _FACTOR))
        if abs(np.log(ratio)) < 2 * _CLOSE:
            return a
        a *= step
    raise RuntimeError(
        f"spread/error is still {rows[-1][1]:.2f} after {count} amplitudes: take a larger max_steps, or another first "
        "amplitude."
    )


def _by_crps(train: Setup, path: dict[str, Any], a: float, count: int, rows: list) -> float:
    """Secant steps on the derivative of the score by log amplitude, with safe steps where it does not curve upwards."""
    error = np.abs(train.deterministic(_params(train, a)) - train.verification).mean(axis=(0, 2))

    def score(log_a: Any) -> Any:
        x = train.values(train.members, path, _params(train, jnp.exp(log_a)))
        return jnp.mean(crps(x, jnp.asarray(train.verification)).mean(axis=(0, 2)) / error)

    value = jax.jit(jax.value_and_grad(score))
    points: list[tuple[float, float]] = []
    log_a = float(np.log(a))
    for _ in range(count):
        found, slope = (float(v) for v in value(jnp.asarray(log_a)))
        rows.append((float(np.exp(log_a)), found))
        points.append((log_a, slope))
        new = _next(points)
        if abs(new - log_a) < _CLOSE:
            return float(np.exp(new))
        log_a = new
    raise RuntimeError(
        f"the CRPS still falls after {count} amplitudes: take a larger max_steps, or another first amplitude."
    )


def _params(setup: Setup, amplitude: Any) -> dict[str, Any]:
    """The params of the varied system with this amplitude."""
    return setup.system.params | {"noise": jnp.asarray(amplitude)}


def _next(points: list[tuple[float, float]]) -> float:
    """The next log amplitude: the zero of the slope by secant or by bisection, or a step downhill."""
    below = [p for p in points if p[1] < 0]
    above = [p for p in points if p[1] >= 0]
    if below and above:
        low, high = max(below), min(above)
        share = -low[1] / max(high[1] - low[1], 1e-300)
        return low[0] + float(np.clip(share, 0.1, 0.9)) * (high[0] - low[0])
    last, slope = points[-1]
    return last - np.sign(slope) * np.log(2.0)
