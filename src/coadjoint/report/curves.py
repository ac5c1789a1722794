"""Curves of several runs in one figure: colours, line styles, a legend or a colour bar, and quantile bands."""

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from . import plotting
from .selection import Series, word

LEGEND = 8  # curves with entries in a legend, at most; beyond, a colour bar
_POINTS = 4000  # of a curve
_STYLES = ("-", "--", ":", "-.")


def styles(series: Sequence[Series]) -> tuple[list[dict[str, Any]], tuple[str, np.ndarray] | None]:
    """The colour and line style of each run; and, if there are many, the name and values of the colour bar."""
    if len(series) <= LEGEND:
        colours = mpl.rcParams["axes.prop_cycle"].by_key()["color"]
        more = len(colours)
        return [{"color": colours[i % more], "linestyle": _STYLES[i // more]} for i in range(len(series))], None
    varied = {k: list(dict.fromkeys(map(word, (s.swept[k] for s in series)))) for k in series[0].swept}
    numeric = {k: v for k, v in varied.items() if len(v) > 1 and all(_is_number(s.swept[k]) for s in series)}
    key = max(numeric, key=lambda k: len(numeric[k]), default="")
    rest = [k for k, v in varied.items() if k != key and len(v) > 1]
    others = list(dict.fromkeys(tuple(word(s.swept[k]) for k in rest) for s in series))
    if key and len(others) <= len(_STYLES):
        values = np.array([float(s.swept[key]) for s in series])
        lines = [_STYLES[others.index(tuple(word(s.swept[k]) for k in rest))] for s in series]
    else:
        key, values, lines = "run", np.array([float(s.run) for s in series]), ["-"] * len(series)
    norm, colours = Normalize(values.min(), values.max()), mpl.colormaps["viridis"]
    return [{"color": colours(0.95 * norm(v)), "linestyle": line} for v, line in zip(values, lines, strict=True)], (
        key,
        values,
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def explain(fig: Any, axes: Any, series: Sequence[Series], bar: tuple[str, np.ndarray] | None) -> None:
    """The colour bar and the entries of line styles of many runs."""
    if bar is None:
        return
    key, values = bar
    cut = ListedColormap(mpl.colormaps["viridis"](np.linspace(0, 0.95, 256)))
    whole = MaxNLocator(integer=True) if np.all(values == np.rint(values)) else None
    fig.colorbar(ScalarMappable(Normalize(values.min(), values.max()), cut), ax=axes, label=key, ticks=whole)
    rest = {} if key == "run" else {k for k in series[0].swept if k != key}
    used: dict[Any, str] = {}
    for one, style in zip(series, styles(series)[0], strict=True):
        label = ", ".join(f"{k} = {word(v)}" for k, v in one.swept.items() if k in rest)
        used.setdefault(style["linestyle"], label)
    if len(used) > 1:
        ink: Any = mpl.rcParams["text.color"]
        handles = [Line2D([], [], color=ink, linestyle=s, label=label) for s, label in used.items()]
        fig.legend(handles=handles, loc="outside lower center", ncols=len(handles))


def legend(fig: Any, *axes: Any) -> None:
    """A legend beside the axes, where it covers no curve."""
    found = dict(zip(*reversed(axes[0].get_legend_handles_labels()), strict=True))
    for ax in axes[1:]:
        found |= dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
    if found:
        fig.legend(found.values(), found.keys(), loc="outside right upper")


def thin(t: np.ndarray, *columns: np.ndarray) -> list[np.ndarray]:
    """At most a few thousand points, evenly chosen; the first and the last are among them."""
    keep = np.unique(np.linspace(0, len(t) - 1, min(len(t), _POINTS)).astype(int))
    return [t[keep], *(c[keep] for c in columns)]


def envelope(t: np.ndarray, errors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The largest error in each of a few hundred intervals."""
    edges = np.unique(np.linspace(0, len(t), min(len(t), 500) + 1).astype(int))
    return t[edges[1:] - 1], np.maximum.reduceat(errors, edges[:-1], axis=0)


def members(ax: Any, t: np.ndarray, values: np.ndarray, label: str, style: dict[str, Any], band: bool = True) -> None:
    """The mean over members (member, time) with the band of the 5 % and 95 % quantiles; of one member, its curve."""
    if len(values) == 1:
        ax.plot(*thin(t, values[0]), label=label, **style)
        return
    t, values = thin(t, values.T)
    low, high = np.nanquantile(values, (0.05, 0.95), axis=1)
    ax.plot(t, np.nanmean(values, axis=1), label=label, **style)
    if band:
        ax.fill_between(t, low, high, color=style["color"], alpha=0.2, linewidth=0)


BAND = "lines: mean, bands: 5 % to 95 % of the members"


def panels(count: int, width: float = plotting.PAGE) -> tuple[Any, list[Any]]:
    """A figure with a panel for each of a few quantities, with a common axis of time."""
    columns = {1: 1, 2: 2, 4: 2}.get(count, 3)
    rows = -(-count // columns)
    fig = plotting.figure(width, 0.8 + 1.55 * rows + (1.0 if rows == 1 else 0.0))
    axes = fig.subplots(rows, columns, sharex=True, squeeze=False)
    for ax in axes.ravel()[count:]:
        ax.remove()
    for ax in axes[-1]:
        ax.set_xlabel("time $t$")
    return fig, list(axes.ravel()[:count])
