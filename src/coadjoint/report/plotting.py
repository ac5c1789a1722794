"""Figures of publication quality: one style, light or dark, and frequent kinds of plots.

Figures are made without pyplot, so that none stays open and none depends on a backend:

    with style():
        fig = figure(3.4, 2.4)
        ax = fig.subplots()
        ...
    save(fig, folder, "name")        # name.png and name.pdf
"""

import contextlib
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.rcsetup import cycler
from matplotlib.ticker import NullFormatter

Theme = Literal["light", "dark"]

# The colours of Okabe and Ito, which colour-blind readers can distinguish; the dark set has lighter hues.
COLOURS = {
    "light": ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#8A6D00", "#56B4E9"),
    "dark": ("#56B4E9", "#FF8C42", "#2FD6A5", "#E79BC6", "#F0E442", "#9CD3F5"),
}
_INK = {"light": ("#1a1a1a", "#ffffff", "#b8b8b8"), "dark": ("#e6e6e6", "#15181d", "#565c66")}

COLUMN, PAGE = 3.4, 7.0  # widths of one column and of a page, inches


@contextlib.contextmanager
def style(theme: Theme = "light") -> Iterator[None]:
    """The style of all figures, as a context manager."""
    ink, paper, faint = _INK[theme]
    settings: dict[str, Any] = {
        "axes.edgecolor": ink,
        "axes.facecolor": paper,
        "axes.grid": True,
        "axes.labelcolor": ink,
        "axes.labelsize": 9,
        "axes.linewidth": 0.6,
        "axes.prop_cycle": cycler(color=COLOURS[theme]),
        "axes.titlesize": 9,
        "figure.edgecolor": paper,
        "figure.facecolor": paper,
        "font.family": "DejaVu Sans",
        "font.size": 8,
        "grid.alpha": 0.5,
        "grid.color": faint,
        "grid.linewidth": 0.4,
        "legend.edgecolor": faint,
        "legend.facecolor": paper,
        "legend.fontsize": 7.5,
        "legend.framealpha": 0.9,
        "lines.linewidth": 1.1,
        "mathtext.fontset": "dejavusans",
        "pdf.fonttype": 42,
        "savefig.edgecolor": paper,
        "savefig.facecolor": paper,
        "text.color": ink,
        "xtick.color": ink,
        "xtick.labelsize": 8,
        "ytick.color": ink,
        "ytick.labelsize": 8,
    }
    with mpl.rc_context(settings):  # pyright: ignore[reportArgumentType]
        yield


class NotebookFigure(Figure):
    """A figure that a notebook displays, although it is made without pyplot."""

    def _repr_png_(self) -> bytes:
        return png(self, 110)


def figure(width: float = COLUMN, height: float = 2.5) -> Figure:
    """An empty figure, its size in inches."""
    return NotebookFigure(figsize=(width, height), layout="constrained")


def save(fig: Figure, folder: Path, name: str) -> list[Path]:
    """Write name.png (300 dots per inch) and name.pdf; the bytes depend on the figure only, not on the date."""
    _quiet_minor_ticks(fig)
    paths = [folder / f"{name}.png", folder / f"{name}.pdf"]
    fig.savefig(paths[0], dpi=300, metadata={"Software": None})
    fig.set_layout_engine("none")  # it is laid out
    fig.savefig(paths[1], metadata={"CreationDate": None, "Creator": None, "Producer": None})
    return paths


def save_as(fig: Figure, path: Path) -> None:
    """Write one file, in the format of its suffix."""
    _quiet_minor_ticks(fig)
    fig.savefig(path, dpi=300)


def png(fig: Figure, dpi: int = 200) -> bytes:
    """The figure as the bytes of a PNG, for a page."""
    _quiet_minor_ticks(fig)
    out = io.BytesIO()
    fig.savefig(out, format="png", dpi=dpi, metadata={"Software": None})
    return out.getvalue()


def _quiet_minor_ticks(fig: Figure) -> None:
    """Label only the decades of logarithmic axes."""
    for ax in fig.axes:
        for axis in (ax.xaxis, ax.yaxis):
            if axis.get_scale() == "log" and _decades(axis.get_view_interval()) >= 1:
                axis.set_minor_formatter(NullFormatter())


def _decades(interval: Any) -> int:
    low, high = np.log10(interval)
    return int(np.floor(high) - np.ceil(low)) + 1


def trajectories_3d(
    fig: Figure,
    lines: Sequence[tuple[str, np.ndarray, str]],
    *,
    sphere: float | None = None,
    labels: Sequence[str] = ("x", "y", "z"),
    view: tuple[float, float] = (22.0, -55.0),
    styles: Sequence[dict[str, Any]] | None = None,
) -> Any:
    """Curves in space, each (name, points (n, 3), line style), with an optional sphere of a radius about the origin."""
    ax: Any = fig.add_subplot(projection="3d", computed_zorder=False)
    ax.view_init(*view)
    if sphere is not None:
        u, v = np.mgrid[0 : 2 * np.pi : 61j, 0 : np.pi : 31j]
        grid = sphere * np.array([np.cos(u) * np.sin(v), np.sin(u) * np.sin(v), np.cos(v)])
        ax.plot_surface(*grid, color="#999999", alpha=0.18, linewidth=0, shade=True, zorder=0)
    for (name, points, line), look in zip(lines, styles or [{}] * len(lines), strict=True):
        ax.plot(*points.T, label=name, linewidth=0.8 if line == "-" else 0.7, zorder=2, **{"linestyle": line, **look})
        ax.plot(*points[:1].T, "o", color=ax.lines[-1].get_color(), markersize=3, zorder=3)
    reach = np.full(3, sphere or 0.0)
    for _, points, _ in lines:
        reach = np.maximum(reach, np.abs(points).max(axis=0))
    for axis, label, r in zip((ax.xaxis, ax.yaxis, ax.zaxis), labels, reach, strict=True):
        axis.pane.set_alpha(0.0)
        axis.set_label_text(label)
        axis.labelpad = -5
        axis.set_tick_params(pad=-3, labelsize=7)
        axis.set_ticks(np.arange(-np.floor(r), np.floor(r) + 1) if r < 5 else axis.get_ticklocs())
    ax.set(xlim=(-reach[0], reach[0]), ylim=(-reach[1], reach[1]), zlim=(-reach[2], reach[2]))
    ax.set_box_aspect(reach, zoom=1.0)
    fig.legend(*ax.get_legend_handles_labels(), loc="upper center", ncols=len(lines), bbox_to_anchor=(0.5, 1.0))
    return ax


def on_log_axis(errors: np.ndarray, floor: float = 1e-17) -> np.ndarray:
    """Errors for a logarithmic axis, with zeros at the floor."""
    return np.maximum(np.abs(errors), floor)


def slope_triangle(ax: Any, x: float, y: float, order: float, width: float = 2.0, label: str = "") -> None:
    """A triangle that shows a slope on doubly logarithmic axes, its left corner at (x, y)."""
    xs, ys = [x, x * width, x * width, x], [y, y, y * width**order, y]
    ax.plot(xs, ys, color=mpl.rcParams["text.color"], linewidth=0.7)
    ax.annotate(
        label or f"{order:g}", (x * width, y * width ** (order / 2)), xytext=(2, 0), textcoords="offset points",
        va="center", fontsize=7,
    )  # fmt: skip
