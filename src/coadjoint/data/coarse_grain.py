"""`coarse_grain`: the vorticity of a fine run on the modes of a coarse model, block by block."""

from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from ..fluids.flow import FluidFlow
from ..fluids.layered import LayeredFlow
from ..fluids.sphere import Sphere
from ..fluids.surface import Surface
from ..fluids.torus import Torus, wavenumbers
from ..numerics import validation

if TYPE_CHECKING:
    import xarray

_BLOCK = 2**26  # bytes of states that are read at once
_UNEVEN = 1e-6  # largest difference of intervals between times, relative to them


@dataclass(frozen=True, repr=False, eq=False)
class FieldSeries:
    """The vorticity of a flow at equally spaced times.

    Parameters
    ----------
    surface : Torus or Sphere
        The surface of the model that represents it.
    t : array, shape (times,)
        The times.
    vorticity : array, shape (times, *surface.shape)
        The coefficients of ω.

    Raises
    ------
    ValueError, TypeError
        If shapes do not fit, values are not finite, or times are not equally spaced.
    """

    surface: Surface
    t: np.ndarray
    vorticity: np.ndarray

    def __post_init__(self):
        if not isinstance(self.surface, Surface):
            raise TypeError(f"surface must be cj.fluids.Torus(n) or cj.fluids.Sphere(n), not {self.surface!r}.")
        object.__setattr__(self, "t", even_times(self.t))
        omega = np.asarray(self.vorticity)
        if omega.shape != (len(self.t), *self.surface.shape):
            raise ValueError(
                f"vorticity must have shape {(len(self.t), *self.surface.shape)}, the times and the coefficients on "
                f"{self.surface}, not {omega.shape}."
            )
        check_finite("vorticity", omega, self.t)
        object.__setattr__(self, "vorticity", omega)

    def __len__(self) -> int:
        """The number of times."""
        return len(self.t)

    def __repr__(self) -> str:
        """The surface and the times."""
        return f"FieldSeries: {self.surface}, {len(self.t)} times from {self.t[0]:g} to {self.t[-1]:g}"

    @property
    def spacing(self) -> float:
        """The interval between times."""
        return float(self.t[-1] - self.t[0]) / (len(self.t) - 1)

    @property
    def stream(self) -> np.ndarray:
        """The coefficients of ψ, Δψ = ω."""
        return -self.surface.inverse_eigenvalues() * self.vorticity

    def between(self, first: float, last: float) -> "FieldSeries":
        """The part with first ≤ t ≤ last.

        Parameters
        ----------
        first, last : float
            The times.

        Returns
        -------
        FieldSeries
        """
        slack = 1e-9 * max(abs(first), abs(last), 1.0)
        keep = (self.t >= first - slack) & (self.t <= last + slack)
        if keep.sum() < 2:
            raise ValueError(
                f"the series has {keep.sum()} times from {first:g} to {last:g}: it runs from {self.t[0]:g} to "
                f"{self.t[-1]:g}, and two times are the least."
            )
        return FieldSeries(self.surface, self.t[keep], self.vorticity[keep])

    def states(self, flow: FluidFlow, at: Any = slice(None)) -> np.ndarray:
        """The states of a model with this vorticity.

        Parameters
        ----------
        flow : Flow
            The flow of the coarse system, `cj.fluids.of(system)`.
        at : index, optional
            The times.

        Returns
        -------
        array
        """
        if flow.surface != self.surface:
            raise ValueError(f"the flow is on {flow.surface}, but the series is on {self.surface}.")
        if isinstance(flow, LayeredFlow):
            raise TypeError("flow has several layers: compute its states with flow.state(omega), one field per layer.")
        return np.asarray(flow.vorticity_matrix(jnp.asarray(self.vorticity[at])))

    def to_xarray(self) -> "xarray.Dataset":
        """The coefficients of the vorticity as a labelled Dataset."""
        import xarray as xr

        dims = ("coefficient",) if self.vorticity.ndim == 2 else ("m1", "m2")
        return xr.Dataset({"vorticity": (("time", *dims), self.vorticity)}, {"time": self.t})


def coarse_grain(
    fine: Any, n: int, *, flow: FluidFlow | None = None, first: float | None = None, layer: int | None = None
) -> FieldSeries:
    """Project a fine run onto the modes of a coarse model.

    The vorticity keeps its coefficients of degrees l < n on the sphere, of wavenumbers |m₁|, |m₂| ≤ (n − 1)/2 on the
    torus. States are read block by block, so a store may be larger than memory.

    Parameters
    ----------
    fine : path, Stored, Solution or FieldSeries
        The fine run: a store of it, a run in memory, or its coefficients.
    n : int
        The size of the coarse model.
    flow : Flow, optional
        The flow of the fine system, `cj.fluids.of(system)`. A store requires it.
    first : float, optional
        The time from which the run is used, after its transient. The default is its first saved time.
    layer : int, optional
        The layer, from 0 at the top. A flow of several layers requires it.

    Returns
    -------
    FieldSeries

    Raises
    ------
    ValueError, TypeError
        If the run has no states of this flow, or times are not equally spaced. If a state is not finite, or n is larger
        than that of the run.

    Examples
    --------
    >>> import coadjoint as cj
    >>> fine, W0 = cj.models.euler_sphere(9)
    >>> cj.data.coarse_grain(cj.solve(fine, W0, t1=1.0, dt=0.1), 5)
    FieldSeries: Sphere(n=5), 11 times from 0 to 1
    """
    if isinstance(fine, FieldSeries):
        _check_layer(layer, None)
        source, t, blocks = fine.surface, fine.t, lambda keep: iter([fine.vorticity[keep]])
    else:
        owner, t, blocks = _run(fine, flow, layer)
        source = owner.surface
    coarse = _coarse(source, n)
    keep = np.ones(len(t), bool) if first is None else t >= validation.finite("first", first) - 1e-9
    if keep.sum() < 2:
        raise ValueError(f"the run has {keep.sum()} saved times from first = {first} on: it ends at {t[-1]:g}.")
    parts = []
    for block in blocks(keep):
        found = truncated(source, coarse, block)
        check_finite("fine", found, t[keep][sum(map(len, parts)) :])
        parts.append(found)
    return FieldSeries(coarse, t[keep], np.concatenate(parts))


def truncated(fine: Surface, coarse: Surface, coefficients: np.ndarray) -> np.ndarray:
    """The coefficients of the modes that the coarse surface has."""
    if isinstance(fine, Torus):
        m = wavenumbers(coarse.n) % fine.n
        return np.ascontiguousarray(coefficients[..., m[:, None], m])
    return np.ascontiguousarray(coefficients[..., : coarse.n**2])


def even_times(t: Any) -> np.ndarray:
    """Equally spaced times."""
    t = np.asarray(t, float)
    if t.ndim != 1 or len(t) < 2:
        raise ValueError(f"t must be a list of two times at least, not an array of shape {t.shape}.")
    steps = np.diff(t)
    if not np.all(np.isfinite(t)) or steps.min() <= 0 or np.ptp(steps) > _UNEVEN * max(steps.max(), abs(t).max()):
        raise ValueError("t must be finite, increasing and equally spaced.")
    return t


def check_finite(name: str, values: np.ndarray, t: np.ndarray) -> None:
    """Raise at the first time with a NaN or an infinity."""
    bad = ~np.isfinite(values.reshape(len(values), -1)).all(axis=1)
    if bad.any():
        raise ValueError(f"{name} must be finite: it has a NaN or an infinity at t = {t[int(np.argmax(bad))]:g}.")


def _coarse(source: Surface, n: int) -> Surface:
    validation.count("n", n, least=2)
    if n > source.n:
        raise ValueError(f"n = {n} must not be above that of the fine run, {source.n}.")
    return Torus(n, source.orientation) if isinstance(source, Torus) else Sphere(n)


def _check_layer(layer: Any, flow: FluidFlow | None) -> None:
    layers = flow.layers if isinstance(flow, LayeredFlow) else 0
    if not layers and layer is not None:
        raise ValueError(f"layer = {layer} is for runs of flows with several layers; this is a single field.")
    if layers and (isinstance(layer, bool) or not isinstance(layer, int | np.integer) or not 0 <= layer < layers):
        raise ValueError(f"layer must be a layer of the flow, 0 to {layers - 1} from the top, not {layer!r}.")


def _run(fine: Any, flow: Any, layer: Any) -> tuple[FluidFlow, np.ndarray, Any]:
    """The flow, the times, and blocks of vorticity of a run."""
    path = getattr(fine, "path", fine)
    stored = isinstance(path, str | PathLike)
    if not stored and not (hasattr(fine, "t") and hasattr(fine, "system")):
        raise TypeError(f"fine must be a store, a Solution or a FieldSeries, not {type(fine).__name__}.")
    flow = getattr(fine.system, "flow", None) if flow is None and not stored else flow
    if not isinstance(flow, FluidFlow):
        raise TypeError(
            f"flow must be the flow of the fine system, cj.fluids.of(system), not {flow!r}: a store requires it."
        )
    _check_layer(layer, flow)
    if stored:
        from ..store.reading import open as open_store

        data = open_store(path)
        if "mu" not in data or data["mu"].dims[0] != "time":
            raise ValueError(f"{path} must be the store of one trajectory with its states, made by solve(…, out=).")
        t, states = np.asarray(data["time"]), data["mu"]
        rows = states.encoding.get("chunks", (1,))[0]
    else:
        t, states, rows = np.asarray(fine.t), fine.mu, 1
    expected = (flow.algebra.dim,) if isinstance(flow, LayeredFlow) else (flow.surface.n, flow.surface.n)
    if tuple(states.shape[-len(expected) :]) != expected or len(t) != len(states):
        raise ValueError(f"fine has states of shape {tuple(states.shape[1:])}, which are not those of {flow.surface}.")
    size = max(1, _BLOCK // (16 * int(np.prod(states.shape[1:]))))
    size = -(-size // rows) * rows if size >= rows else size  # whole chunks of the store

    def blocks(keep: np.ndarray) -> Iterator[np.ndarray]:
        start = int(np.argmax(keep))
        for at in range(start, len(t), size):
            omega = np.asarray(flow.vorticity_coefficients(jnp.asarray(np.asarray(states[at : at + size]))))
            yield omega if layer is None else omega[:, layer]

    return flow, t, blocks
