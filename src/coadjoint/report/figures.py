"""Figures of the contents of a store: Casimirs, energy, trajectory, field, spectrum, statistics and others.

JAX is imported only for figures that need it, which are those of fluids.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from ..command.run_names import leaves_orbit
from ..numerics.scaled_errors import scaled_errors
from ..store.atomic_io import StoreError
from ..store.reading import read_header
from . import curves, plotting
from .selection import Figured, Selection, Series, read
from .statistics import statistics

if TYPE_CHECKING:
    from ..fluids.flow import FluidFlow

_CASIMIRS = 6  # drawn one by one, at most
_ENTRIES = 6  # of the state with panels of their own, at most


def default_kind(path: Path) -> str:
    """The kind of figure that suits a store: statistics of a run with a reducer, else Casimirs."""
    kinds = {about["kind"] for about in read_header(path, "open")["variables"].values()}
    return "statistics" if "reduced" in kinds else "casimirs"


def draw(path: Path, what: str, theme: plotting.Theme = "light", selection: Selection | None = None) -> Figure:
    """The figure of one kind, of all runs and members or of the selected ones."""
    shown = read(path, selection or Selection())
    with plotting.style(theme):
        return KINDS[what](shown)


def casimirs(shown: Figured) -> Figure:
    """Scaled changes of the Casimirs on a logarithmic axis; of several members the largest."""
    shown.need("casimirs", "error of Casimirs")
    fig = plotting.figure(plotting.PAGE, 3.2)
    ax = fig.subplots()
    series = shown.series
    names = [str(n) for n in shown.data["casimir"].values]
    looks, bar = curves.styles(series)
    colours = curves.styles(series[:1] * min(len(names), _CASIMIRS))[0]
    kept = not leaves_orbit(shown.header["configuration"])
    for one, style in zip(series, looks, strict=True):
        values, scale = one.rows("casimirs"), one.rows("casimir_scale")[:, None]
        worst = np.nanmax(scaled_errors(values, values[:, :1], scale), axis=0)
        if len(series) > 1:
            found = [(one.label, worst.max(axis=1), style)]
        else:
            own = names[: _CASIMIRS - 1] if len(names) > _CASIMIRS else names
            found = [(_pretty(name), worst[:, i], colours[i]) for i, name in enumerate(own)]
            if len(names) > len(own):
                found.append((f"largest of all {len(names)}", worst.max(axis=1), colours[-1]))
        for name, curve, look in found:
            times, errors = curves.envelope(one.t, curve)
            seen = np.where(errors > 0, errors, np.nan)
            if bar is None:
                dots = look | {"linestyle": "none"}
                ax.semilogy(times, seen, marker=".", markersize=2, alpha=0.5, **dots)
            largest = np.maximum.accumulate(errors)
            largest = plotting.on_log_axis(largest) if kept else np.where(largest > 0, largest, np.nan)
            ax.semilogy(times, largest, label=name, **look)
    if kept:
        ax.axhline(np.finfo(float).eps, color="#888888", linewidth=0.8, linestyle=":", label="$2^{-52}$")
    ax.set(xlabel="time $t$", ylabel="$|C(t) - C(0)|$ / scale", xlim=_ends(series))
    if kept:
        ax.set_ylim(1e-17, max(3 * ax.get_ylim()[1], 1e-14))
    note = "lines: largest so far" + ("" if bar else ", dots: at saved times")
    note += f"; largest of {shown.members} members" if shown.members > 1 else ""
    ax.annotate(note, (0.98, 0.03), xycoords="axes fraction", fontsize=7, ha="right")
    ax.set_title(f"Changes of Casimirs ({shown.about})")
    _explain(fig, [ax], series, bar)
    return fig


def _explain(fig: Any, axes: list[Any], series: list[Series], bar: Any) -> None:
    if bar is None:
        curves.legend(fig, *axes)
    curves.explain(fig, axes, series, bar)


def _pretty(name: str) -> str:
    """Powers as superscripts: Tr H^2."""
    return re.sub(r"(\w)\^(\d+)", r"$\1^{\2}$", name)


def energy(shown: Figured) -> Figure:
    """The Hamiltonian along time, of fluids the mean energy; of an ensemble its mean and quantiles."""
    shown.need("energy", "energy")
    fig = plotting.figure(plotting.PAGE, 3.0)
    ax = fig.subplots()
    series = shown.series
    flow = shown.fluid(series[0])
    factor = 1.0 if flow is None else flow.surface.norm / flow.surface.rate
    looks, bar = curves.styles(series)
    for one, style in zip(series, looks, strict=True):
        label = one.label if len(series) > 1 else ""
        curves.members(ax, one.t, factor * one.rows("energy"), label, style, band=len(series) <= 3)
    density = "½|u|²" if flow is None or not flow.screening else "½(|u|² + Fψ²)"
    ax.set(xlabel="time $t$", ylabel="energy $h$" if flow is None else f"energy, mean of {density}", xlim=_ends(series))
    ax.ticklabel_format(axis="y", useOffset=False)
    low, high = ax.get_ylim()
    middle = 0.5 * (low + high)
    if high - low < 1e-9 * abs(middle):  # do not magnify round-off
        ax.set_ylim(middle - 1e-6 * abs(middle), middle + 1e-6 * abs(middle))
    _note_members(ax, shown)
    ax.set_title(f"Energy ({shown.about})")
    _explain(fig, [ax], series, bar)
    return fig


def _note_members(ax: Any, shown: Figured) -> None:
    if shown.members > 1:
        words = curves.BAND if len(shown.series) <= 3 else "lines: mean"
        ax.annotate(f"{shown.members} members; {words}", (0.02, 0.03), xycoords="axes fraction", fontsize=7)


def trajectory(shown: Figured) -> Figure:
    """Vectors in space for so(3) and se(3), else the first entries along time; of an ensemble, mean and quantiles."""
    shown.need("mu", "trajectory")
    algebra = shown.header["configuration"]["system"]["algebra"]["type"]
    if algebra in ("SO3", "SE3") and shown.members == 1:
        return _in_space(shown)
    series = shown.series
    names = [name for name, _ in _entries(shown, series[0].rows("mu")[0])]
    fig, axes = curves.panels(len(names))
    looks, bar = curves.styles(series)
    for one, style in zip(series, looks, strict=True):
        columns = [[column for _, column in _entries(shown, mu)] for mu in one.rows("mu")]
        for i, ax in enumerate(axes):
            label = one.label if len(series) > 1 else ""
            curves.members(ax, one.t, np.stack([c[i] for c in columns]), label, style, band=len(series) <= 3)
    for ax, name in zip(axes, names, strict=True):
        ax.set(ylabel=name, xlim=_ends(series))
    shape = series[0].rows("mu").shape[2:]
    part = f", {len(names)} of {' × '.join(map(str, shape))} entries" if np.prod(shape) > len(names) else ""
    note = f"\n{shown.members} members; {curves.BAND}" if shown.members > 1 else ""
    fig.suptitle(f"Trajectory ({shown.about}){part}{note}", fontsize=9)
    _explain(fig, axes, series, bar)
    return fig


def _symbols(shown: Figured) -> list[str]:
    """The model's symbols for the vectors of its state."""
    known = {"heavy_top": ["\\pi", "\\gamma"], "kirchhoff": ["\\Pi", "P"], "rigid_body": ["\\pi"], "spin_chain": ["S"]}
    return known.get(shown.model, [])


def _entries(shown: Figured, mu: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """The first entries of states (time, …) with their names."""
    if mu.ndim == 2:
        symbols = _symbols(shown)
        for i in range(min(_ENTRIES, mu.shape[1])):
            vector, k = divmod(i, 3)
            own = len(symbols) * 3 == mu.shape[1]
            yield f"${symbols[vector]}_{k + 1}$" if own else f"$\\mu_{{{i + 1}}}$", mu[:, i]
        return
    n = mu.shape[1]
    pairs = [(j, k) for j in range(n) for k in range(j + 1, n)][: _ENTRIES // 2]
    for j, k in pairs:
        yield f"Re $\\mu_{{{j + 1},{k + 1}}}$", np.real(mu[:, j, k])
        yield f"Im $\\mu_{{{j + 1},{k + 1}}}$", np.imag(mu[:, j, k])


def _in_space(shown: Figured) -> Figure:
    series = shown.series
    runs = [one.rows("mu")[0] for one in series]
    count = runs[0].shape[1] // 3
    symbols = _symbols(shown) or (["\\mu"] if count == 1 else ["\\mu", "\\mu'"])
    looks, bar = curves.styles(series)
    fig = plotting.figure(3.6 * count + (0.6 if len(series) > 1 else 0.0), 3.9)
    boxes: Any = fig.subfigures(1, count, squeeze=False)[0]
    axes = []
    for k, (box, symbol) in enumerate(zip(boxes, symbols, strict=True)):
        lines = []
        for one, mu in zip(series, runs, strict=True):
            (_, points) = curves.thin(one.t, mu[:, 3 * k : 3 * k + 3])
            lines.append((one.label if len(series) > 1 else f"${symbol}(t)$", points, "-"))
        last = k == count - 1  # a Casimir: the length of the only vector of so(3), and of the second of se(3)
        radius = float(np.linalg.norm(lines[0][1][0])) if last else None
        ax = plotting.trajectories_3d(
            box, lines, sphere=radius, labels=[f"${symbol}_{i}$" for i in (1, 2, 3)], styles=looks
        )
        ax.set_box_aspect([high for _, high in (ax.get_xlim(), ax.get_ylim(), ax.get_zlim())], zoom=0.82)
        for axis in (ax.xaxis, ax.yaxis, ax.zaxis):
            axis.labelpad = -2
            axis.set_tick_params(pad=0)
            if radius is not None:  # no ticks at the corners of the box, where two labels would overlap
                axis.set_ticks(
                    [-0.5 * radius, 0.0, 0.5 * radius], [f"{x * radius:.2g}".replace("-", "−") for x in (-0.5, 0, 0.5)]
                )
        axes.append(ax)
        if len(series) > 1:
            box.legends[0].remove()
    if len(series) > 1:
        _explain(boxes[-1] if bar else fig, [axes[-1]] if bar else axes[:1], series, bar)
    ends = _ends(series)
    fig.supxlabel(f"{shown.about}, $t$ = {ends[0]:g} to {ends[1]:g}; dot: initial state", fontsize=8)
    return fig


def field(shown: Figured) -> Figure:
    """Vorticity at three times; of a chain of spins, the z components along the chain and time."""
    one, mu, shown = shown.one("field")
    flow = shown.fluid(one)
    if flow is not None:
        from . import fluids

        return fluids.snapshots(flow, one.t, mu, shown.about)
    if mu.ndim == 3:
        return _matrices(shown, one, mu)
    if shown.model == "spin_chain" or shown.header["configuration"]["system"]["algebra"]["type"] == "Product":
        return _chain(shown, one, mu)
    raise StoreError(f"{shown.path} has no field: fields are for matrices (fluids) and spins; see --what trajectory.")


def _matrices(shown: Figured, one: Series, W: np.ndarray) -> Figure:
    """The entries of matrices that are not a fluid."""
    fig = plotting.figure(plotting.PAGE, 2.6)
    axes = fig.subplots(1, 3, sharey=True)
    at = [0, len(one.t) // 2, len(one.t) - 1]
    size = max(float(np.abs(W[i].imag).max()) for i in at)
    image: Any = None
    for ax, i in zip(axes, at, strict=True):
        extent = (0.5, W.shape[2] + 0.5, W.shape[1] + 0.5, 0.5)
        image = ax.imshow(W[i].imag, extent=extent, cmap="RdBu_r", vmin=-size, vmax=size, interpolation="nearest")
        ax.set(title=f"$t = {one.t[i]:g}$", xlabel="column")
        ax.grid(False)
    axes[0].set_ylabel("row")
    fig.colorbar(image, ax=axes, label="Im $W_{jk}$", shrink=0.85)
    fig.suptitle(f"State ({shown.about})", fontsize=9)
    return fig


def _chain(shown: Figured, one: Series, mu: np.ndarray) -> Figure:
    fig = plotting.figure(plotting.PAGE * 0.72, 3.2)
    ax = fig.subplots()
    times, rows = curves.thin(one.t, mu.reshape(len(mu), -1, 3)[:, :, 2])
    extent = (times[0], times[-1], -0.5, rows.shape[1] - 0.5)
    image = ax.imshow(rows.T, origin="lower", aspect="auto", extent=extent, cmap="RdBu_r", interpolation="nearest")
    largest = float(np.abs(rows).max())
    image.set_clim(-largest, largest)
    ax.set(xlabel="time $t$", ylabel="spin $i$")
    ax.grid(False)
    fig.colorbar(image, ax=ax, label="$S^z_i$")
    ax.set_title(f"Field ({shown.about})")
    return fig


def spectrum(shown: Figured) -> Figure:
    """Energy by wavenumber of a fluid, else power by frequency; of an ensemble the mean over its members."""
    shown.need("mu", "spectrum")
    series = shown.series
    flow = shown.fluid(series[0])
    mean = f", mean of {shown.members} members" if shown.members > 1 else ""
    if flow is None:
        fig = _powers(shown)
        fig.suptitle(f"Power by frequency ({shown.about}){mean}", fontsize=9)
        return fig
    from . import fluids

    one = series[0]
    fig = plotting.figure(plotting.PAGE * 0.85, 3.4)
    ax = fig.subplots()
    shells = (shown.model_arguments(one) or {}).get("stirring_shells")
    fluids.draw_spectrum(ax, flow, one.t, one.rows("mu"), None if shells is None else tuple(shells))
    shown = shown._replace(series=[one])
    ax.set_title(f"Energy by wavenumber ({shown.about}){mean}")
    curves.legend(fig, ax)
    return fig


def _powers(shown: Figured) -> Figure:
    series = shown.series
    names = [name for name, _ in _entries(shown, series[0].rows("mu")[0])]
    fig, axes = curves.panels(len(names))
    looks, bar = curves.styles(series)
    for one, style in zip(series, looks, strict=True):
        steps = np.diff(one.t)
        if np.ptp(steps) > 1e-9 * steps.max():
            raise StoreError(f"{shown.path}: power by frequency needs saved times at equal distances.")
        spectra = [[_power(one.t, column)[1] for _, column in _entries(shown, mu)] for mu in one.rows("mu")]
        f, _ = _power(one.t, one.t)
        for ax, power in zip(axes, np.mean(spectra, axis=0), strict=True):
            label = one.label if len(series) > 1 else ""
            ax.loglog(f[1:], np.maximum(power[1:], power.max() * 1e-24), label=label, linewidth=0.8, **style)
    for ax, name in zip(axes, names, strict=True):
        ax.set_title(name)
        if ax.get_subplotspec().is_last_row():
            ax.set_xlabel("frequency $f$ (1 / time)")
        if ax.get_subplotspec().is_first_col():
            ax.set_ylabel("power density")
    _explain(fig, axes, series, bar)
    return fig


def _power(t: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Welch's estimate of the power spectral density, with half-overlapping Hann windows."""
    length = min(len(x), max(16, len(x) // 4))
    window = np.hanning(length)
    dt = float(t[1] - t[0])
    starts = range(0, len(x) - length + 1, max(1, length // 2))
    parts = [np.abs(np.fft.rfft(window * (x[s : s + length] - x.mean()))) ** 2 for s in starts]
    return np.fft.rfftfreq(length, dt), 2 * dt * np.mean(parts, axis=0) / np.sum(window**2)


def hovmoller(shown: Figured) -> Figure:
    """The zonal mean of the zonal velocity of a fluid by latitude and time, of one run and member."""
    from . import fluids

    one, mu, shown = shown.one("Hovmöller plot")
    flow = shown.fluid(one)
    if flow is None:
        raise StoreError(f"{shown.path} has no fluid: hovmoller is for fluids, such as sine_euler or euler_sphere.")
    return fluids.hovmoller(flow, one.t, mu, f"Zonal mean ({shown.about})")


def structure(shown: Figured) -> Figure:
    """The dynamical structure factor of spins on a lattice."""
    from . import structure_factor

    return structure_factor.figure(shown)


def animation(path: Path, out: Path, theme: plotting.Theme = "light", selection: Selection | None = None) -> None:
    """Write the vorticity of a fluid along time as a GIF or an MP4."""
    from . import fluids

    one, mu, flow, shown = _fluid(path, "animation", selection)
    with plotting.style(theme):
        fluids.animate(flow, one.t, mu, shown.about, out)


def globe(path: Path, out: Path, selection: Selection | None = None) -> None:
    """Write a page with interactive globes that show the fields of a fluid on the sphere along time."""
    from . import fluids

    one, mu, flow, shown = _fluid(path, "globe", selection)
    out.write_text(fluids.globe(flow, one.t, mu, shown.about), encoding="utf-8")


def _fluid(path: Path, what: str, selection: Selection | None) -> tuple[Series, np.ndarray, "FluidFlow", Figured]:
    """A run, its states, its fluid and the store."""
    one, mu, shown = read(path, selection or Selection()).one(what)
    flow = shown.fluid(one)
    if flow is None:
        raise StoreError(f"{path} has no fluid: {what} is for fluids, such as sine_euler or euler_sphere.")
    return one, mu, flow, shown


def _ends(series: list[Series]) -> tuple[float, float]:
    return min(s.t[0] for s in series), max(s.t[-1] for s in series)


KINDS: dict[str, Callable[[Figured], Figure]] = {
    "casimirs": casimirs,
    "energy": energy,
    "trajectory": trajectory,
    "field": field,
    "spectrum": spectrum,
    "hovmoller": hovmoller,
    "statistics": statistics,
    "structure": structure,
}
