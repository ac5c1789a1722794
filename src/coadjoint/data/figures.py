"""Figures of calibrated noise and of forecasts."""

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .forecast import Forecast
    from .noise import CalibratedNoise

_SHOWN = 4  # fields that are drawn
_HIGHEST = 1.6  # CRPS ratio that is drawn: climatology begins far above
_LABELS = {"ensemble": "ensemble", "dressed": "dressed deterministic", "climatology": "climatology"}


def draw_noise(noise: "CalibratedNoise", theme: Any) -> "Figure":
    """Variance and decorrelation times of the fields, and the first of them."""
    from ..report import plotting

    maps = 0 if noise.surface is None else min(_SHOWN, noise.size)
    with plotting.style(theme):
        fig: Any = plotting.figure(plotting.PAGE, 4.2 if maps else 2.4)
        rows = fig.subfigures(2, 1, height_ratios=(1, 0.9)) if maps else [fig]
        first, second = rows[0].subplots(1, 2)
        k = np.arange(1, noise.size + 1)
        shares = np.zeros(noise.size) if noise.variance is None else noise.variance
        first.plot(k, np.cumsum(shares), ".-")
        first.set(xlabel="fields", ylabel="explained variance", ylim=(0, 1.03))
        if noise.times is not None:
            second.plot(k, noise.times, ".")
            second.set(xlabel="field", ylabel="decorrelation time", ylim=(0, None))
        else:
            second.bar(k, np.sqrt(np.sum(np.abs(noise.fields.reshape(noise.size, -1)) ** 2, axis=1)))
            second.set(xlabel="field", ylabel="size of the field")
        if maps:
            _draw_fields(rows[1], noise, maps)
    return fig


def _draw_fields(fig: Any, noise: "CalibratedNoise", count: int) -> None:
    from ..fluids.flow import Flow
    from ..report.fluids import Screen, show_field

    surface: Any = noise.surface
    screen = Screen(Flow(surface), "mollweide" if len(surface.shape) == 1 else "")
    size = max(float(np.abs(surface.values(f, screen.points)).max()) for f in noise.fields[:count])
    axes = np.atleast_1d(fig.subplots(1, count))
    for i, ax in enumerate(axes):
        image = show_field(ax, screen, noise.fields[i], size)
        ax.set_title(f"field {i + 1}")
    fig.colorbar(image, ax=list(axes), shrink=0.6, label=r"$\zeta_k$")


def draw_forecast(forecast: "Forecast", training: Any, theme: Any) -> "Figure":
    """CRPS, spread and error by lead time; a rank histogram and a reliability diagram at the middle lead time."""
    from ..report import plotting

    found = forecast.scores(training)
    lead = float(forecast.leads[len(forecast.leads) // 2])
    with plotting.style(theme):
        fig = plotting.figure(plotting.PAGE, 4.6)
        (one, two), (three, four) = fig.subplots(2, 2)
        for name, label in _LABELS.items():
            if name in found["forecast"]:
                rows = found.sel(forecast=name)
                one.errorbar(found["lead"], rows["crps_ratio"], 2 * rows["crps_ratio_error"], label=label, marker=".")
        one.axhline(1.0, color="#888888", linestyle="--", label="deterministic")
        one.set(xlabel="lead time", ylabel="CRPS / deterministic error", ylim=(0, _HIGHEST))
        one.legend()
        rows = found.sel(forecast="ensemble")
        two.plot(found["lead"], rows["rmse"], ".-", label="RMSE of the mean")
        two.plot(found["lead"], rows["spread"], ".--", label="spread")
        two.plot(found["lead"], found["rmse"].sel(forecast="deterministic"), ".:", label="RMSE, deterministic")
        two.set(xlabel="lead time", ylabel="error (climate = 1)", ylim=(0, None))
        two.legend()
        _draw_ranks(three, forecast, lead)
        _draw_reliability(four, forecast, lead)
    return fig


def _draw_ranks(ax: Any, forecast: "Forecast", lead: float) -> None:
    ranks = forecast.rank_histogram(lead)
    x = np.arange(len(ranks.frequency)) + 0.5
    height, ends = ranks.frequency / ranks.expected, np.stack([ranks.low, ranks.high]) / ranks.expected
    ax.bar(x, height, width=0.9, yerr=np.abs(ends - height), alpha=0.6, error_kw={"linewidth": 0.8})
    ax.axhline(1.0, color="#888888", linestyle="--")
    ax.set(xlabel=f"rank of truth (of {len(x)} bins), lead {lead:g}", ylabel="frequency / expected", xticks=[])


def _draw_reliability(ax: Any, forecast: "Forecast", lead: float) -> None:
    found = forecast.reliability(lead)
    ax.plot([0, 1], [0, 1], color="#888888", linestyle="--")
    ax.errorbar(found.probability, found.observed, found.standard_error, marker="o", markersize=3)
    ax.set(xlabel=f"forecast probability, lead {lead:g}", ylabel="observed frequency", xlim=(0, 1), ylim=(0, 1))
