"""Dynamical structure factors of spins on a periodic lattice, and their figure."""

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ..numerics import validation
from ..store.atomic_io import StoreError

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

    from .selection import Figured

_UNEVEN = 1e-6  # largest difference of intervals between saved times, relative to them
_PATHS = {1: ("Γ", "X"), 2: ("Γ", "X", "M", "Γ"), 3: ("Γ", "X", "M", "Γ", "R")}
_POINTS = {"Γ": (0, 0, 0), "X": (1, 0, 0), "M": (1, 1, 0), "R": (1, 1, 1)}  # in units of half a reciprocal vector
_SHOWN = 0.02  # the part of the largest value at its wave vector down to which a figure shows frequencies
_DECADES = 5


def structure_factor(run: Any, shape: Any, *, start: float | None = None, window: str = "hann") -> "xarray.Dataset":
    """Compute the dynamical structure factor of a run of spins on a periodic lattice.

    The equation is

        S(q, ω) = 1/(2π N T) Σ_a |∫ dt e^{iωt} Σ_r e^{−iq·r} S_r^a(t)|²,

    averaged over members, with N sites, the time T of the run, and the lattice constant 1. Its integral over ω is the
    average over time of |Σ_r e^{−iq·r} S_r|²/N, the static structure factor. The Fourier transforms are discrete: q has
    the values 2πk/n, and ω is resolved to 2π/T, up to π divided by the interval of saved times.

    Parameters
    ----------
    run : Solution, Ensemble, Stored, Dataset or (t, values)
        A run of `spin_lattice`, or its Dataset. For other models pass saved times and real values, such as those of
        `models.expectations`. With k components per site, values have the shape (…, times, sites k) or
        (…, times, *shape, k).
    shape : int or sequence of int
        The sides of the lattice.
    start : float, optional
        The time from which on the run is used, after its transient. The default is its first saved time.
    window : {"hann", "none"}, default "hann"
        The weight of times. "hann" suppresses the sidelobes of sharp lines and doubles their width.

    Returns
    -------
    xarray.Dataset
        `S` with the dimensions (q_x, q_y, q_z, omega), as many q as sides, and `S_component` with one more for a.

    Raises
    ------
    TypeError, ValueError
        If saved times are not equally spaced, if there are fewer than four, or if the shape does not fit.

    Examples
    --------
    >>> import coadjoint as cj
    >>> system, S0 = cj.models.spin_lattice((8,), field=(0.0, 0.0, 1.0))
    >>> run = cj.solve(system, S0, t1=6.4, dt=0.1)
    >>> cj.structure_factor(run, 8)["S"].sizes
    Frozen({'q_x': 8, 'omega': 65})
    """
    import xarray as xr

    validation.choice("window", window, ("hann", "none"))
    sides = tuple(validation.count("shape", n) for n in np.atleast_1d(np.asarray(shape, object)))
    if not 1 <= len(sides) <= 3:
        raise ValueError(f"shape must have one to three sides, not {len(sides)}.")
    t, members = _spins(run, sides)
    first = 0 if start is None else int(np.searchsorted(t, validation.finite("start", start) - _UNEVEN))
    t, members = t[first:], members[:, first:]
    n, sites = len(t), int(np.prod(sides))
    if n < 4:
        raise ValueError(f"run must have at least four saved times from start on, not {n}.")
    dt = (t[-1] - t[0]) / (n - 1)
    if not np.allclose(np.diff(t), dt, rtol=_UNEVEN, atol=0):
        raise ValueError("run must have equally spaced saved times: give save_every, not save_at.")
    weight = np.sin(np.pi * np.arange(n) / n) ** 2 if window == "hann" else np.ones(n)
    space = tuple(range(1, 1 + len(sides)))
    power = np.zeros((n, *sides, members.shape[-1]))
    for x in members:
        waves = np.fft.fftn(x * weight.reshape(n, *(1,) * (x.ndim - 1)), axes=space)
        power += np.abs(np.fft.ifft(waves, axis=0, norm="forward")) ** 2
    power *= dt / (2 * np.pi * sites * np.sum(weight**2) * len(members))
    power = np.moveaxis(np.fft.fftshift(power, (0, *space)), 0, -2)
    coords: dict = {f"q_{'xyz'[a]}": _frequencies(side, 1.0) for a, side in enumerate(sides)}
    coords |= {"omega": _frequencies(n, dt), "component": np.arange(power.shape[-1])}
    names = [name for name in coords if name != "component"]
    data = {
        "S": (names, power.sum(-1), {"long_name": "dynamical structure factor S(q, ω)"}),
        "S_component": ([*names, "component"], power, {"long_name": "contribution of each component"}),
    }
    return xr.Dataset(data, coords, {"window": window, "members": len(members), "start": float(t[0])})


def _frequencies(n: int, spacing: float) -> np.ndarray:
    return 2 * np.pi * np.fft.fftshift(np.fft.fftfreq(n, spacing))


def _spins(run: Any, sides: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """The saved times, and the spins (member, time, *sides, component)."""
    if isinstance(run, tuple):
        t, values = run
    elif hasattr(run, "data_vars"):
        t, values = run["time"].values, run["mu"].transpose(..., "time", run["mu"].dims[-1]).values
    else:
        t, values = run.t, run.mu
    t = np.asarray(validation.numbers("the saved times", t, kinds="fiu"), float)
    x = np.asarray(validation.numbers("the saved values", values, "real numbers", "fiu"), float)
    sites = int(np.prod(sides))
    if x.ndim > len(sides) + 1 and x.shape[-1 - len(sides) : -1] == sides:
        x = x.reshape(*x.shape[: -1 - len(sides)], -1)
    if t.ndim != 1 or x.ndim < 2 or x.shape[-2] != len(t) or x.shape[-1] % sites:
        raise ValueError(f"shape {sides} has {sites} sites, which does not fit values of shape {x.shape}.")
    return t, x.reshape(-1, len(t), *sides, x.shape[-1] // sites)


def figure(shown: "Figured") -> "Figure":
    """S(q, ω) along lines between points of high symmetry, for a run of `spin_lattice`."""
    from matplotlib.colors import LogNorm

    from . import plotting

    series = shown.series[0]
    arguments = shown.model_arguments(series)
    if shown.model != "spin_lattice" or arguments is None:
        raise StoreError(f"{shown.path} is no run of spin_lattice: see structure_factor(run, shape) in Python.")
    shown.need("mu", "structure factor")
    sides = tuple(np.atleast_1d(arguments.get("shape", (8, 8))).tolist())
    found = structure_factor((series.t, series.rows("mu")), sides)
    names, at = _PATHS[len(sides)], _path(sides)
    places = np.concatenate([line[int(k > 0) :] for k, line in enumerate(at)])
    S = found["S"].values[tuple((k + n // 2) % n for k, n in zip(places.T, sides, strict=True))]
    omega = found["omega"].values
    moving = omega >= 2 * omega[omega > 0].min()  # not the static order, whose peak is far higher
    peaks = S[:, moving].max(1)
    keep = (omega >= 0) & (omega <= omega[moving][(S[:, moving] > _SHOWN * peaks[:, None]).any(0)].max())
    fig = plotting.figure(plotting.PAGE, 3.6)
    ax = fig.subplots()
    floor = float(max(0.1 * peaks.min(), peaks.max() * 10.0**-_DECADES))
    norm, values = LogNorm(floor, float(peaks.max())), np.maximum(S[:, keep].T, floor)
    image = ax.pcolormesh(np.arange(len(places)), omega[keep], values, norm=norm, shading="nearest", rasterized=True)
    fig.colorbar(image, ax=ax, label="$S(q, ω)$")
    ticks = np.cumsum([0, *(len(line) - 1 for line in at)])
    ax.grid(False)
    ax.set_xticks(ticks, names)
    ax.set(xlabel="wave vector $q$", ylabel="frequency $ω$")
    about = shown._replace(series=[series])
    words = f"mean of {shown.members} members, " if shown.members > 1 else ""
    ax.set_title(f"Structure factor ({words}{about.about})")
    return fig


def _path(sides: tuple[int, ...]) -> list[np.ndarray]:
    """The wave vectors of each line, in units of 2π/n; a point at half a reciprocal vector is the last before it."""
    corners = [np.array(_POINTS[name][: len(sides)]) * (np.array(sides) // 2) for name in _PATHS[len(sides)]]
    return [
        np.rint(a + np.linspace(0, 1, int(np.abs(b - a).max()) + 1)[:, None] * (b - a)).astype(int)
        for a, b in pairwise(corners)
    ]
