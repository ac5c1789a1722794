"""Figures of what is in a store: Casimirs, energy, trajectory, field and spectrum."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from ..experiments.schema import known_models, parameters
from ..fluids.flow import FluidFlow
from ..runtime.results import scaled_errors
from ..store.atomic_io import StoreError
from ..store.input_arrays import with_arrays
from ..store.reading import open as open_store
from ..store.reading import read_header
from . import fluids, plotting

_CURVES = 6  # drawn at most
_POINTS = 4000  # of a curve


class Series(NamedTuple):
    """One run of the store: its label (empty, unless it is one of a sweep), its times and its data."""

    label: str
    t: np.ndarray
    data: Any


def draw(path: Path, what: str, theme: plotting.Theme = "light") -> Figure:
    """The figure of one kind."""
    data = open_store(path)
    if data.sizes.get("time", data.sizes.get("sample", 0)) < 2:
        raise StoreError(f"{path} holds nothing to draw yet: its run has not come to a second saved time.")
    with plotting.style(theme):
        return KINDS[what](data, path)


def _series(data: Any) -> list[Series]:
    """The runs of a sweep, at most a few of them, spread over all; or the only one."""
    time = "time" if "time" in data.dims else "sample"
    inner = {"time", "sample", "member", "component", "matrix", "row", "column", "casimir", "group_row", "group_column"}
    swept = [d for d in data["steps"].dims if d not in inner]
    sizes = [data.sizes[d] for d in swept]
    count = int(np.prod(sizes, dtype=int))
    chosen = np.unique(np.linspace(0, count - 1, min(count, _CURVES)).astype(int))
    out = []
    for k in chosen:
        at = {d: int(i) for d, i in zip(swept, np.unravel_index(k, sizes), strict=True)} if swept else {}
        one = data.isel(at)
        steps = np.asarray(one["steps"])
        if steps.max() < 1:
            continue
        t = np.asarray(one["time"].values, float)
        one = one.isel({time: np.isfinite(t)})
        label = ", ".join(f"{d} = {_word(data[d].values[i])}" for d, i in at.items())
        out.append(Series(label, t[np.isfinite(t)], one))
    return out


def _word(value: Any) -> str:
    return f"{value:g}" if isinstance(value, (float, np.floating)) else str(value)


def _thin(t: np.ndarray, *columns: np.ndarray) -> list[np.ndarray]:
    """At most a few thousand points, evenly chosen; the first and the last stay."""
    keep = np.unique(np.linspace(0, len(t) - 1, min(len(t), _POINTS)).astype(int))
    return [t[keep], *(c[keep] for c in columns)]


def _envelope(t: np.ndarray, errors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The largest error in each of a few hundred stretches: nothing that stands out is lost."""
    edges = np.unique(np.linspace(0, len(t), min(len(t), 500) + 1).astype(int))
    return t[edges[1:] - 1], np.maximum.reduceat(errors, edges[:-1], axis=0)


def _members(one: Any, name: str) -> np.ndarray:
    """A variable with an axis of members, one if there is none."""
    values = np.asarray(one[name].values)
    return values if "member" in one[name].dims else values[None]


def _need(data: Any, name: str, what: str, path: Path) -> None:
    if name not in data:
        raise StoreError(f"{path} has no {name}, so there is no {what} to draw; it has: {', '.join(data.data_vars)}.")


def casimirs(data: Any, path: Path) -> Figure:
    """Scaled errors of the Casimirs: the worst member, on a logarithmic axis."""
    _need(data, "casimirs", "error of Casimirs", path)
    fig = plotting.figure(plotting.PAGE * 0.72, 3.0)
    ax = fig.subplots()
    series = _series(data)
    names = [str(n) for n in data["casimir"].values]
    members = data.sizes.get("member", 1)
    for label, t, one in series:
        values = _members(one, "casimirs")
        scale = _members(one, "casimir_scale")[:, None]
        errors = scaled_errors(values, values[:, :1], scale)
        worst = np.nanmax(errors, axis=0)
        if len(series) > 1:
            curves = [(label, worst.max(axis=1))]
        else:
            shown = names[: _CURVES - 1] if len(names) > _CURVES else names
            curves = [(name, worst[:, i]) for i, name in enumerate(shown)]
            if len(names) > len(shown):
                curves.append((f"worst of all {len(names)}", worst.max(axis=1)))
        for name, curve in curves:
            times, errors = _envelope(t, curve)
            (line,) = ax.semilogy(times, np.where(errors > 0, errors, np.nan), ".", markersize=2, alpha=0.5)
            highest = plotting.on_log_axis(np.maximum.accumulate(errors))
            ax.semilogy(times, highest, color=line.get_color(), label=_pretty(name))
    ax.axhline(np.finfo(float).eps, color="#888888", linewidth=0.8, linestyle=":", label="$2^{-52}$")
    ax.set(xlabel="time $t$", ylabel="$|C(t) - C(0)|$ / scale", xlim=_ends(series))
    _, high = ax.get_ylim()
    ax.set_ylim(1e-17, max(3 * high, 1e-14))
    note = "dots: at saved times, lines: largest so far" + (f"; worst of {members} members" if members > 1 else "")
    ax.annotate(note, (0.02, 0.03), xycoords="axes fraction", fontsize=7)
    _title(ax, data, "Errors of Casimirs", series)
    _legend(ax)
    return fig


def _pretty(name: str) -> str:
    """Powers set high: Tr H^2."""
    return re.sub(r"(\w)\^(\d+)", r"$\1^{\2}$", name)


def energy(data: Any, path: Path) -> Figure:
    """The Hamiltonian along time; of an ensemble, its mean and a band of one standard deviation."""
    _need(data, "energy", "energy", path)
    fig = plotting.figure(plotting.PAGE * 0.72, 3.0)
    ax = fig.subplots()
    series = _series(data)
    members = data.sizes.get("member", 1)
    for label, t, one in series:
        values = _members(one, "energy")
        if members == 1:
            ax.plot(*_thin(t, values[0]), label=label or "$h(\\mu(t))$")
            continue
        mean, deviation = np.nanmean(values, axis=0), np.nanstd(values, axis=0)
        times, mean, deviation = _thin(t, mean, deviation)
        (line,) = ax.plot(times, mean, label=label or "mean")
        ax.fill_between(
            times, mean - deviation, mean + deviation, color=line.get_color(), alpha=0.2, linewidth=0,
            label=None if label else "± one standard deviation",
        )  # fmt: skip
    ax.set(xlabel="time $t$", ylabel="energy $h$", xlim=_ends(series))
    ax.ticklabel_format(axis="y", useOffset=False)
    low, high = ax.get_ylim()
    middle = 0.5 * (low + high)
    if high - low < 1e-9 * abs(middle):  # round-off is not to fill the picture
        ax.set_ylim(middle - 1e-6 * abs(middle), middle + 1e-6 * abs(middle))
    _title(ax, data, "Energy" + (f" of {members} members" if members > 1 else ""), series)
    _legend(ax)
    return fig


def trajectory(data: Any, path: Path) -> Figure:
    """The first member: vectors in space for so(3) and se(3), else the first components along time."""
    _need(data, "mu", "trajectory", path)
    series = _series(data)
    runs = [Series(s.label, s.t, _members(s.data, "mu")[0]) for s in series]
    algebra = data.attrs.get("configuration.system.algebra.type")
    if algebra in ("SO3", "SE3"):
        return _in_space(data, runs)
    fig = plotting.figure(plotting.PAGE * 0.72, 3.0)
    ax = fig.subplots()
    one = runs[0]
    for name, column in _components(data, one.data):
        ax.plot(*_thin(one.t, column), label=name, linewidth=0.9)
    ax.set(xlabel="time $t$", ylabel="components of the state", xlim=(one.t[0], one.t[-1]))
    entries = " × ".join(map(str, one.data.shape[1:]))
    _title(ax, data, f"Trajectory, the first of {entries} entries", [one])
    _legend(ax)
    return fig


def _symbols(data: Any) -> list[str]:
    """What the model calls the vectors of its state, three components each."""
    known = {"heavy_top": ["\\pi", "\\gamma"], "kirchhoff": ["\\Pi", "P"], "rigid_body": ["\\pi"], "spin_chain": ["S"]}
    return known.get(_model(data), [])


def _components(data: Any, mu: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    if mu.ndim == 2:
        symbols = _symbols(data)
        for i in range(min(_CURVES, mu.shape[1])):
            vector, k = divmod(i, 3)
            own = len(symbols) * 3 == mu.shape[1]
            yield f"${symbols[vector]}_{k + 1}$" if own else f"$\\mu_{{{i + 1}}}$", mu[:, i]
        return
    n = mu.shape[1]
    pairs = [(j, k) for j in range(n) for k in range(j + 1, n)][: _CURVES // 2]
    for j, k in pairs:
        yield f"Re $\\mu_{{{j + 1},{k + 1}}}$", np.real(mu[:, j, k])
        yield f"Im $\\mu_{{{j + 1},{k + 1}}}$", np.imag(mu[:, j, k])


def _in_space(data: Any, runs: list[Series]) -> Figure:
    count = runs[0].data.shape[1] // 3
    symbols = _symbols(data) or (["\\mu"] if count == 1 else ["\\mu", "\\mu'"])
    fig = plotting.figure(3.6 * count, 3.8)
    boxes: Any = fig.subfigures(1, count, squeeze=False)[0]
    for k, (box, symbol) in enumerate(zip(boxes, symbols, strict=True)):
        lines = []
        for label, t, mu in runs:
            (_, points) = _thin(t, mu[:, 3 * k : 3 * k + 3])
            lines.append((label or f"${symbol}(t)$", points, "-"))
        last = k == count - 1  # its length is a Casimir: of so(3) the only vector, of se(3) the second
        radius = float(np.linalg.norm(lines[0][1][0])) if last else None
        ax = plotting.trajectories_3d(box, lines, sphere=radius, labels=[f"${symbol}_{i}$" for i in (1, 2, 3)])
        ax.set_box_aspect([high for _, high in (ax.get_xlim(), ax.get_ylim(), ax.get_zlim())], zoom=0.82)
        for axis in (ax.xaxis, ax.yaxis, ax.zaxis):
            axis.labelpad = -2
            axis.set_tick_params(pad=0)
            if radius is not None:  # none at the corners of the box, where two would meet
                axis.set_ticks([-0.5 * radius, 0.0, 0.5 * radius], [f"{x * radius:.2g}" for x in (-0.5, 0, 0.5)])
        if len(runs) > 1:
            box.legends[0].remove()
            box.legend(*ax.get_legend_handles_labels(), loc="upper center", fontsize=6)
    ends = _ends(runs)
    fig.supxlabel(f"{_of(data, runs)}, $t$ = {ends[0]:g} to {ends[1]:g}; dot: start", fontsize=8)
    return fig


def field(data: Any, path: Path) -> Figure:
    """Vorticity at the start, halfway and at the end; of spins, their z components along the chain and time."""
    _need(data, "mu", "field", path)
    one = _series(data)[0]
    mu = _members(one.data, "mu")[0]
    flow = _flow(path, one)
    if flow is not None:
        return fluids.snapshots(flow, one.t, mu, f"{_of(data, [one])}")
    if mu.ndim == 3:
        return _matrices(data, one, mu)
    if _model(data) == "spin_chain" or data.attrs.get("configuration.system.algebra.type") == "Product":
        return _chain(data, one, mu)
    raise StoreError(f"{path} has no field: that is for matrices (fluids) and chains of spins; see trajectory.")


def _matrices(data: Any, one: Series, W: np.ndarray) -> Figure:
    """The entries of matrices of which it is not known what they mean."""
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
    fig.suptitle(f"State ({_of(data, [one])})", fontsize=9)
    return fig


def _chain(data: Any, one: Series, mu: np.ndarray) -> Figure:
    fig = plotting.figure(plotting.PAGE * 0.72, 3.2)
    ax = fig.subplots()
    times, rows = _thin(one.t, mu.reshape(len(mu), -1, 3)[:, :, 2])
    extent = (times[0], times[-1], -0.5, rows.shape[1] - 0.5)
    image = ax.imshow(rows.T, origin="lower", aspect="auto", extent=extent, cmap="RdBu_r", interpolation="nearest")
    largest = float(np.abs(rows).max())
    image.set_clim(-largest, largest)
    ax.set(xlabel="time $t$", ylabel="spin $i$")
    ax.grid(False)
    fig.colorbar(image, ax=ax, label="$S^z_i$")
    _title(ax, data, "Field", [one])
    return fig


def spectrum(data: Any, path: Path) -> Figure:
    """Energy by wavenumber for the sine-Euler equations, start and end; else power by frequency."""
    _need(data, "mu", "spectrum", path)
    one = _series(data)[0]
    mu, t = _members(one.data, "mu")[0], one.t
    fig = plotting.figure(plotting.PAGE * 0.6, 3.0)
    ax = fig.subplots()
    flow = _flow(path, one)
    if flow is not None:
        fluids.draw_spectrum(ax, flow, t, mu)
        _title(ax, data, "Energy by wavenumber", [one])
    else:
        for name, column in _components(data, mu):
            f, power = _power(t, column)
            ax.loglog(f[1:], np.maximum(power[1:], power.max() * 1e-24), label=name, linewidth=0.8)
        ax.set(xlabel="frequency $f$ (1 / time)", ylabel="power spectral density")
        _title(ax, data, "Power by frequency", [one])
    _legend(ax)
    return fig


def _power(t: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Welch's estimate of the power spectral density: half-overlapping stretches under a Hann window, averaged."""
    length = min(len(x), max(16, len(x) // 4))
    window = np.hanning(length)
    dt = float(t[1] - t[0])
    starts = range(0, len(x) - length + 1, max(1, length // 2))
    parts = [np.abs(np.fft.rfft(window * (x[s : s + length] - x.mean()))) ** 2 for s in starts]
    return np.fft.rfftfreq(length, dt), 2 * dt * np.mean(parts, axis=0) / np.sum(window**2)


def animation(path: Path, out: Path, theme: plotting.Theme = "light") -> None:
    """The vorticity of a fluid along time, as a GIF or an MP4."""
    data, flow, one = _fluid(path, "animation")
    with plotting.style(theme):
        fluids.animate(flow, one.t, _members(one.data, "mu")[0], _model(data), out)


def globe(path: Path, out: Path) -> None:
    """The fields of a fluid on the sphere along time, on a page where the globe can be turned."""
    data, flow, one = _fluid(path, "globe")
    out.write_text(fluids.globe(flow, one.t, _members(one.data, "mu")[0], _of(data, [one])), encoding="utf-8")


def _fluid(path: Path, what: str) -> tuple[Any, FluidFlow, Series]:
    """The data of a store, the flow of its model and the first run of it."""
    data = open_store(path)
    _need(data, "mu", what, path)
    one = _series(data)[0]
    flow = _flow(path, one)
    if flow is None:
        raise StoreError(f"{path} has no fluid: this is for the models of fluids, such as sine_euler or euler_sphere.")
    return data, flow, one


def _flow(path: Path, one: Series) -> FluidFlow | None:
    """What the states of a model of a fluid mean; None if it is none."""
    header = read_header(path, "open")
    made = with_arrays(path, header["model"] or (header["experiment"] or {}).get("model"))
    make = known_models().get(made["name"]) if made else None
    if make is None:
        return None
    swept = {k: one.data[k].values.item() for k in parameters(make) if k in one.data.coords}
    arguments = {k: v for k, v in (made | swept).items() if k != "name"}
    return make(**arguments)[0].flow


def _model(data: Any) -> str:
    return str(data.attrs.get("model.name", data.attrs.get("experiment.model.name", "")))


def _ends(series: list[Series]) -> tuple[float, float]:
    return min(s.t[0] for s in series), max(s.t[-1] for s in series)


def _title(ax: Any, data: Any, words: str, runs: list[Series]) -> None:
    ax.set_title(f"{words} ({_of(data, runs)})")


def _of(data: Any, runs: list[Series]) -> str:
    """The model, the method and, where one run of a sweep is shown, which."""
    method = data.attrs.get("configuration.integrator.type", "")
    return ", ".join(filter(None, (_model(data), method, runs[0].label if len(runs) == 1 else "")))


def _legend(ax: Any) -> None:
    count = len(ax.get_legend_handles_labels()[0])
    if count:
        ax.legend(loc="best", ncols=1 + (count > 4))


KINDS: dict[str, Callable[[Any, Path], Figure]] = {
    "casimirs": casimirs,
    "energy": energy,
    "trajectory": trajectory,
    "field": field,
    "spectrum": spectrum,
}
