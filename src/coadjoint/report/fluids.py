"""Pictures of fluids: fields on torus and sphere, spectra, animations."""

import shutil
import subprocess
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ..fluids.flow import FluidFlow
from ..fluids.torus import Torus
from . import plotting
from .widgets import Globe, page

_FINEST = 256  # points of a grid that is drawn
_FRAMES = 150  # of an animation, at most
_TURNS = 60  # of a globe, whose page holds all values
_AVERAGED = 200  # times of a mean spectrum, at most
_VIEW = np.radians(25.0)  # the latitude above which the globe is seen


class Screen:
    """Where a field is drawn: the torus as a square, the sphere as a globe (orthographic) or a map (Mollweide)."""

    def __init__(self, flow: FluidFlow, projection: str = ""):
        self.surface, self.projection = flow.surface, projection
        self.points = max(_FINEST, flow.surface.n) if isinstance(self.surface, Torus) else max(96, flow.surface.n)

    def image(self, coefficients: Any) -> np.ndarray:
        """The field as rows of pixels, the first row below; NaN where there is nothing."""
        values = self.surface.values(coefficients, self.points)
        if isinstance(self.surface, Torus):
            return values.T
        latitude, longitude = _orthographic() if self.projection == "orthographic" else _mollweide()
        return _interpolated(values, latitude, longitude)

    @property
    def extent(self) -> tuple[float, float, float, float]:
        """Of the image."""
        if isinstance(self.surface, Torus):
            return 0, 2 * np.pi, 0, 2 * np.pi
        return (-1, 1, -1, 1) if self.projection == "orthographic" else (-2, 2, -1, 1)

    def dress(self, ax: Any) -> None:
        """Ticks on the torus; on the sphere an outline, meridians and parallels."""
        ax.grid(False)
        if isinstance(self.surface, Torus):
            ax.set_xticks([0, np.pi, 2 * np.pi], ["0", "π", "2π"])
            ax.set_yticks([0, np.pi, 2 * np.pi], ["0", "π", "2π"])
            return
        ax.set_axis_off()
        ax.set_aspect("equal")
        for line in _graticule(self.projection):
            ax.plot(*line, color="#000000", linewidth=0.3, alpha=0.35)
        t = np.linspace(0, 2 * np.pi, 200)
        ax.plot(self.extent[1] * np.cos(t), np.sin(t), color="#444444", linewidth=0.8)
        ax.set(xlim=np.multiply(self.extent[:2], 1.01), ylim=(-1.02, 1.02))


def screens(flow: FluidFlow) -> list[Screen]:
    """All views of a surface."""
    if isinstance(flow.surface, Torus):
        return [Screen(flow)]
    return [Screen(flow, "orthographic"), Screen(flow, "mollweide")]


def snapshots(flow: FluidFlow, t: np.ndarray, states: np.ndarray, title: str) -> Figure:
    """All fields at the first, middle and last time, in all views."""
    at = [0, len(t) // 2, len(t) - 1]
    fields = [flow.pictures(states[i]) for i in at]
    rows = [(name, screen) for name in fields[0] for screen in screens(flow)]
    torus = isinstance(flow.surface, Torus)
    height = 1.85 if torus else 1.7
    fig = plotting.figure(plotting.PAGE, 0.75 + height * len(rows))
    fig.set_layout_engine("compressed")  # panels have a fixed aspect
    axes = fig.subplots(len(rows), 3, squeeze=False, sharex="row", sharey="row")
    for number, (row, (name, screen)) in enumerate(zip(axes, rows, strict=True)):
        size = max(float(np.abs(screen.surface.values(f[name], screen.points)).max()) for f in fields)
        for ax, i, found in zip(row, at, fields, strict=True):
            image = show_field(ax, screen, found[name], size)
            if number == 0:
                ax.set_title(f"$t = {t[i]:g}$")
            if torus:
                ax.set(xlabel="$x$" if number == len(rows) - 1 else "", ylabel="$y$" if ax is row[0] else "")
        fig.colorbar(image, ax=row, label=name, shrink=0.85)
    fig.suptitle(title, fontsize=9)
    return fig


def show_field(ax: Any, screen: Screen, coefficients: Any, size: float) -> Any:
    """Draw a field with colours from −size to size; return the image, for a colour bar."""
    image = ax.imshow(
        screen.image(coefficients), origin="lower", extent=screen.extent, cmap="RdBu_r", vmin=-size, vmax=size,
        interpolation="bilinear" if screen.projection else "nearest",
    )  # fmt: skip
    screen.dress(ax)
    return image


def hovmoller(flow: FluidFlow, t: np.ndarray, states: np.ndarray, title: str) -> Figure:
    """The zonal mean of the zonal velocity by latitude (or y) and time, and its mean over the last half; by layer."""
    torus = isinstance(flow.surface, Torus)
    at = _chosen(t, 4 * _FRAMES)
    points = max(_FINEST // 2, flow.surface.n)
    u = np.stack([np.asarray(flow.zonal_mean(mu, points)) for mu in states[at]])
    u = u.reshape(len(at), -1, points)  # (time, layer, y)
    y = flow.surface.grid(points)[1 if torus else 0] * (1.0 if torus else 180 / np.pi)
    layers = u.shape[1]
    fig = plotting.figure(plotting.PAGE, 0.5 + 2.4 * layers)
    axes = fig.subplots(layers, 2, squeeze=False, sharey=True, width_ratios=(3, 1))
    size = float(np.abs(u).max())
    for k, (left, right) in enumerate(axes):
        image = left.pcolormesh(t[at], y, u[:, k].T, cmap="RdBu_r", vmin=-size, vmax=size, rasterized=True)
        mean = u[len(at) // 2 :, k].mean(axis=0)
        right.plot(mean, y)
        right.axvline(0.0, color="#888888", linewidth=0.6)
        left.grid(False)
        left.set(ylabel="$y$" if torus else "latitude", yticks=[] if torus else range(-90, 91, 30))
        if layers > 1:
            left.set_title(f"layer {k + 1}")
        fig.colorbar(image, ax=left, label="zonal velocity", location="left", pad=0.02, shrink=0.9)
    if torus:
        axes[0, 0].set_yticks([0, np.pi, 2 * np.pi], ["0", "π", "2π"])
    axes[-1, 0].set_xlabel("time $t$")
    axes[-1, 1].set_xlabel(f"mean, $t$ = {t[at[len(at) // 2]]:g} to {t[-1]:g}")
    fig.suptitle(title, fontsize=9)
    return fig


def draw_spectrum(
    ax: Any, flow: FluidFlow, t: np.ndarray, states: np.ndarray, forced: tuple[int, ...] | None = None
) -> None:
    """E(k) of states (member, time, …), averaged over members: first and last time, and the mean over the last half.

    `forced` are the shells of the forcing. Power laws of two-dimensional turbulence are drawn on their sides of them.
    """
    last = flow.surface.n // 2 if isinstance(flow.surface, Torus) else flow.surface.n - 1
    k = np.arange(1, last + 1)
    late = _chosen(t[len(t) // 2 :], _AVERAGED) + len(t) // 2

    def mean(at: Any) -> np.ndarray:
        found = [flow.spectrum(mu[i]) for mu in states for i in at]
        return np.mean(np.asarray(found), axis=0)[1 : last + 1]

    average = mean(late)
    curves = [(mean([0]), "--", 1.0, f"$t = {t[0]:g}$"), (mean([len(t) - 1]), "-", 0.8, f"$t = {t[-1]:g}$")]
    curves.append((average, "-", 2.0, f"mean, $t$ = {t[late[0]]:g} to {t[-1]:g}"))
    highest = max(float(E.max()) for E, *_ in curves)
    for E, style, width, label in curves:
        seen = E > 1e-12 * highest
        if seen.any():
            ax.loglog(k[seen], E[seen], style, marker=".", markersize=3, linewidth=width, label=label)
    low = ax.get_ylim()[0]
    _guides(ax, k, average, forced)
    ax.set_ylim(max(low, 1e-12 * highest), 2.5 * highest)
    if forced is not None:
        ax.axvspan(min(forced) - 0.5, max(forced) + 0.5, color="#888888", alpha=0.2, linewidth=0, label="forcing")
    degree = "wavenumber $k$" if isinstance(flow.surface, Torus) else "degree $l$"
    ax.set(xlabel=degree, ylabel=f"energy ${'E(k)' if isinstance(flow.surface, Torus) else 'E(l)'}$")


def _guides(ax: Any, k: np.ndarray, E: np.ndarray, forced: tuple[int, ...] | None) -> None:
    """k⁻³ at scales below the forcing, k^(−5/3) above; without forcing k⁻³ at small scales; only close to the data.

    A guide is parallel to its power law, at 1.5 times the data on average.
    """
    first = max(forced) if forced is not None else max(2, len(k) // 5)
    ranges = [(-3.0, "-3", first, min(k[-1], 4 * first))]
    if forced is not None:
        ranges.append((-5 / 3, "-5/3", max(1, min(forced) // 4), min(forced)))
    for slope, name, low, high in ranges:
        inside = (k >= low) & (k <= high)
        if inside.sum() < 3 or not np.all(E[inside] > 0):
            continue
        x, y = np.log(k[inside]), np.log(E[inside])
        found = np.polyfit(x, y, 1)[0]
        if abs(found - slope) > (0.5 if forced is None else 1.5):
            continue
        line, height = np.array([low, high], float), 1.5 * np.exp(np.mean(y - slope * x))
        ax.loglog(line, height * line**slope, ":", color="#888888", linewidth=1.0)
        middle = np.sqrt(low * high)
        ax.annotate(
            f"$k^{{{name}}}$", (middle, height * middle**slope), xytext=(3, 3), textcoords="offset points",
            color="#888888",
        )  # fmt: skip


def globe(flow: FluidFlow, t: np.ndarray, states: np.ndarray, title: str) -> str:
    """A page with a globe to turn for every field of a flow on the sphere, along time."""
    if isinstance(flow.surface, Torus):
        raise ValueError("--what globe is for flows on the sphere; this one is on the torus: see field and animation.")
    at = _chosen(t, _TURNS)
    fields = [flow.pictures(states[i]) for i in at]
    points = max(64, flow.surface.n)
    globes = []
    for name in fields[0]:
        values = np.array([flow.surface.values(f[name], points) for f in fields])
        globes.append(Globe(f"The {_plain(name)}.", t[at], values, _plain(name)))
    return page(title, f"Fields on the sphere from t = {t[0]:g} to {t[-1]:g}.", globes)


def _chosen(t: np.ndarray, most: int) -> np.ndarray:
    """Evenly chosen times, at most so many; the first and the last are among them."""
    return np.unique(np.linspace(0, len(t) - 1, min(len(t), most)).astype(int))


def _plain(name: str) -> str:
    """The name of a field without TeX."""
    return name.replace("$", "").replace("\\omega", "ω").replace("\\Delta ", "Δ").replace("-", "−")


# Animations.


def animate(flow: FluidFlow, t: np.ndarray, states: np.ndarray, title: str, path: Path, seconds: float = 10.0) -> None:
    """The first field along time: a GIF, or an MP4 where ffmpeg is found."""
    if path.suffix == ".mp4" and _ffmpeg() is None:
        raise ValueError(
            f"--out {path} needs the program ffmpeg, which is not on PATH: install it or coadjoint[film], which brings "
            "one, or write a .gif."
        )
    at = _chosen(t, _FRAMES)
    name = next(iter(flow.pictures(states[0])))
    screen = screens(flow)[0]
    fields = [flow.pictures(states[i])[name] for i in at]
    size = max(float(np.abs(screen.surface.values(f, screen.points)).max()) for f in fields[:: max(1, len(at) // 10)])
    fig = plotting.figure(4.4, 4.0)
    canvas = FigureCanvasAgg(fig)
    ax = fig.subplots()
    image = show_field(ax, screen, fields[0], size)
    fig.colorbar(image, ax=ax, label=name, shrink=0.85)
    heading = ax.set_title(title)
    frames = []
    for i, field in zip(at, fields, strict=True):
        image.set_data(screen.image(field))
        heading.set_text(f"{title}, $t = {t[i]:.4g}$")
        canvas.draw()
        frames.append(np.asarray(canvas.buffer_rgba())[..., :3].copy())
    write = _write_mp4 if path.suffix == ".mp4" else _write_gif
    write(path, frames, max(10.0, len(frames) / seconds))


def _write_gif(path: Path, frames: list[np.ndarray], rate: float) -> None:
    """With one palette for all frames, that of the field and greys: bands of colour do not move about."""
    from matplotlib import colormaps
    from PIL import Image

    colours = colormaps["RdBu_r"](np.linspace(0, 1, 208))[:, :3]
    greys = np.repeat(np.linspace(0, 1, 48)[:, None], 3, axis=1)
    palette = Image.new("P", (1, 1))
    palette.putpalette(np.rint(255 * np.concatenate([colours, greys])).astype(np.uint8).tobytes())
    first, *rest = (Image.fromarray(f).quantize(palette=palette, dither=Image.Dither.NONE) for f in frames)
    first.save(path, save_all=True, append_images=rest, duration=max(20, round(1000 / rate)), loop=0)


def _ffmpeg() -> str | None:
    """The program: that of the system, or the one that comes with the package imageio-ffmpeg."""
    found = shutil.which("ffmpeg")
    if found is None and find_spec("imageio_ffmpeg") is not None:
        found = import_module("imageio_ffmpeg").get_ffmpeg_exe()
    return found


def _write_mp4(path: Path, frames: list[np.ndarray], rate: float) -> None:
    height, width = (s - s % 2 for s in frames[0].shape[:2])  # the codec needs even sizes
    command = [_ffmpeg() or "ffmpeg", "-y", "-loglevel", "error", "-f", "rawvideo", "-pix_fmt", "rgb24"]
    command += ["-s", f"{width}x{height}", "-r", f"{rate:g}", "-i", "-", "-pix_fmt", "yuv420p", str(path)]
    data = b"".join(np.ascontiguousarray(f[:height, :width]).tobytes() for f in frames)
    done = subprocess.run(command, input=data, capture_output=True)
    if done.returncode:
        raise ValueError(f"ffmpeg could not write {path}: {done.stderr.decode(errors='replace').strip()}")


# Projections: latitude and longitude of each pixel, NaN outside.


def _orthographic(pixels: int = 400) -> tuple[np.ndarray, np.ndarray]:
    y, x = np.mgrid[-1 : 1 : pixels * 1j, -1 : 1 : pixels * 1j]
    with np.errstate(invalid="ignore"):
        z = np.sqrt(1 - x**2 - y**2)
    north, front = y * np.cos(_VIEW) + z * np.sin(_VIEW), z * np.cos(_VIEW) - y * np.sin(_VIEW)
    return np.arcsin(np.clip(north, -1, 1)), np.arctan2(x, front) + np.pi


def _mollweide(pixels: int = 320) -> tuple[np.ndarray, np.ndarray]:
    y, x = np.mgrid[-1 : 1 : pixels * 1j, -2 : 2 : 2 * pixels * 1j]
    angle = np.arcsin(y)
    with np.errstate(invalid="ignore", divide="ignore"):
        longitude = np.pi * x / (2 * np.cos(angle))
        latitude = np.arcsin(np.clip((2 * angle + np.sin(2 * angle)) / np.pi, -1, 1))
    outside = ~(np.abs(longitude) <= np.pi)
    return np.where(outside, np.nan, latitude), longitude + np.pi


def _interpolated(values: np.ndarray, latitude: np.ndarray, longitude: np.ndarray) -> np.ndarray:
    """Bilinear, from the equiangular grid of `Sphere.grid`."""
    rows, columns = values.shape
    inside = np.isfinite(latitude) & np.isfinite(longitude)
    i = np.clip((np.pi / 2 - np.where(inside, latitude, 0)) / np.pi * rows - 0.5, 0, rows - 1)
    j = (np.where(inside, longitude, 0) / (2 * np.pi) * columns) % columns
    i0, j0 = np.minimum(i.astype(int), rows - 2), j.astype(int) % columns
    a, b, j1 = i - i0, j - j.astype(int), (j0 + 1) % columns
    out = (1 - a) * ((1 - b) * values[i0, j0] + b * values[i0, j1])
    out += a * ((1 - b) * values[i0 + 1, j0] + b * values[i0 + 1, j1])
    return np.where(inside, out, np.nan)


def _graticule(projection: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """Meridians and parallels every 30 degrees."""
    s = np.linspace(-1, 1, 181)
    lines = [(np.full_like(s, np.radians(p)), np.pi * s) for p in range(-60, 90, 30)]
    lines += [(s * np.pi / 2, np.full_like(s, np.radians(m))) for m in range(-180, 180, 30)]
    out = []
    for latitude, longitude in lines:
        if projection == "mollweide":
            angle = latitude.copy()
            for _ in range(60):  # 2a + sin 2a = π sin φ
                angle -= (2 * angle + np.sin(2 * angle) - np.pi * np.sin(latitude)) / np.maximum(
                    2 + 2 * np.cos(2 * angle), 1e-9
                )
            out.append((2 / np.pi * longitude * np.cos(angle), np.sin(angle)))
            continue
        x, north = np.cos(latitude) * np.sin(longitude), np.sin(latitude)
        front = np.cos(latitude) * np.cos(longitude)
        y, depth = north * np.cos(_VIEW) - front * np.sin(_VIEW), north * np.sin(_VIEW) + front * np.cos(_VIEW)
        out.append((np.where(depth > 0, x, np.nan), y))
    return out
