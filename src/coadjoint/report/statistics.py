"""Figures of what reducers store: means with bands, quantiles, and other statistics along time."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ..store.atomic_io import StoreError
from . import curves
from .selection import Figured, Series

_PANELS = 6


def statistics(shown: Figured) -> Figure:
    """The statistics of a run with a reducer: a panel for each of the first entries, with bands if there are any."""
    names = [name for name, about in shown.header["variables"].items() if about["kind"] == "reduced"]
    if not names:
        raise StoreError(f"{shown.path} has no statistics: they are saved by runs with a reducer, run.reduce.")
    series = shown.series
    found = [list(_quantities(one, names)) for one in series]
    count = min(len(found[0]), _PANELS)
    fig, axes = curves.panels(count)
    looks, bar = curves.styles(series)
    for one, quantities, style in zip(series, found, looks, strict=True):
        for ax, (title, middle, bands) in zip(axes, quantities, strict=False):
            ax.plot(*curves.thin(one.t, middle), label=one.label if len(series) > 1 else "", **style)
            for low, high in bands if len(series) <= 3 else []:
                t, low, high = curves.thin(one.t, low, high)
                ax.fill_between(t, low, high, color=style["color"], alpha=0.2, linewidth=0)
            ax.set_title(title)
    part = f", {count} of {len(found[0])} quantities" if count < len(found[0]) else ""
    members = shown.header["members"]
    fig.suptitle(f"Statistics of {members} members ({shown.about}){part}", fontsize=9)
    if bar is None:
        curves.legend(fig, *axes)
    curves.explain(fig, axes, series, bar)
    return fig


def _quantities(one: Series, names: list[str]) -> Iterator[tuple[str, np.ndarray, list]]:
    """Each entry as its title, a line along time and bands: the names of a reducer's results decide which."""
    done: set[str] = set()
    for name in sorted(names, key=lambda n: (_rank(n), n)):
        stem, _, last = name.rpartition("_") if "_" in name else ("", "", name)
        if name in done:
            continue
        about = f"{stem}: " if stem else ""
        sibling = lambda other, stem=stem: f"{stem}_{other}" if stem else other
        if last == "mean":
            spread = _deviation(one, sibling, names)
            done |= {sibling(k) for k in ("variance", "covariance", "error")}
            done.add(f"{stem}_standard_error" if stem else "standard_error")
            label = "mean" + ("" if spread is None else " ± s.d.")
            rows = _columns(one, name)
            spreads = [None] * len(rows) if spread is None else list(spread.T)
            for (entry, x), s in zip(rows, spreads, strict=True):
                yield f"{about}{label}{entry}", x, [] if s is None else [(x - s, x + s)]
        elif last == "quantiles":
            done.add(sibling("outside"))
            values = np.asarray(one.data[name].values, float)
            flat = values.reshape(len(values), values.shape[1], -1)
            q = one.data[name].attrs.get("probabilities")
            words = "quantiles" if q is None else "quantiles " + ", ".join(f"{p:g}" for p in q)
            for i in range(flat.shape[2]):
                columns = flat[:, :, i].T
                bands = [(columns[j], columns[-1 - j]) for j in range(len(columns) // 2)]
                yield f"{about}{words}{_entry(values.shape[2:], i)}", columns[len(columns) // 2], bands
        elif name not in done:
            for entry, x in _columns(one, name):
                yield f"{name}{entry}", x, []


def _rank(name: str) -> int:
    return 0 if name.endswith(("mean", "quantiles")) else 1


def _deviation(one: Series, sibling: Any, names: list[str]) -> np.ndarray | None:
    """The standard deviation of each entry (time, entry), if there is a variance or a covariance."""
    if sibling("variance") in names:
        variance = np.asarray(one.data[sibling("variance")].values, float)
        return np.sqrt(variance.reshape(len(variance), -1))
    if sibling("covariance") in names:
        matrix = np.asarray(one.data[sibling("covariance")].values)
        return np.sqrt(np.abs(np.diagonal(matrix, axis1=1, axis2=2)))
    return None


def _columns(one: Series, name: str) -> list[tuple[str, np.ndarray]]:
    """The entries of a variable with their names; of complex numbers the real parts."""
    values = np.asarray(one.data[name].values)
    real = "Re " if np.iscomplexobj(values) else ""
    flat = np.real(values).reshape(len(values), -1)
    return [(f" of {real}entry {k}" if flat.shape[1] > 1 else "", flat[:, i])
            for i, k in enumerate(_numbers(values.shape[1:]))]  # fmt: skip


def _entry(shape: tuple[int, ...], i: int) -> str:
    return f" of entry {_numbers(shape)[i]}" if np.prod(shape, dtype=int) > 1 else ""


def _numbers(shape: tuple[int, ...]) -> list[str]:
    """The indices of all entries, from 1 as in formulas."""
    return [",".join(str(i + 1) for i in at) for at in np.ndindex(*shape)] or [""]
