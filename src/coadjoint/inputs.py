"""Inputs: functions of time made of numbers, for the functions of a system that depend on time.

    pulse = cj.inputs.piecewise([0, 1, 2], [0.0, 0.5])
    system = cj.System(cj.SO3(), lambda mu, t: mu @ mu / 2 + pulse(t) * mu[0])

An input is an Equinox module whose values are its leaves. As a part of `params` its values can be differentiated and
can vary by member of an ensemble; its times are part of the program. A run checks that its inputs cover all its times,
and warns if one switches inside a time step.
"""

import abc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from stepcompiler.jaxprs.interning import Constant

from .numerics import validation
from .numerics.signatures import check_function

__all__ = ["Input", "constant", "cubic", "linear", "modulated", "periodic", "piecewise", "table"]

_FEW = 32  # pieces up to which all times are compared
_EDGE = 1e-12  # relative to the times, by which a time may lie outside because of round-off


class Use(NamedTuple):
    """An input as a function of the time of a run: the times that it covers, and those at which it switches."""

    name: str  # of the function that calls it
    start: float
    stop: float
    period: float  # of its switches; infinite if they do not repeat
    switches: Constant


_calls: ContextVar[tuple[Any, list] | None] = ContextVar("calls", default=None)


@contextmanager
def recorded(t: Any) -> Iterator[list["Input"]]:
    """Record the inputs that are evaluated at the time t, and not at a function of it."""
    found: list[Input] = []
    token = _calls.set((t, found))
    try:
        yield found
    finally:
        _calls.reset(token)


class Input(eqx.Module):
    """A function of time. `u + v`, `u * v` and `2 * u` are inputs, too."""

    @abc.abstractmethod
    def value(self, t: Any) -> Array:
        """The value at time `t`."""

    @abc.abstractmethod
    def uses(self) -> list[tuple[float, float, float, np.ndarray]]:
        """The times that it covers, the period of its switches (or infinity), and its switches, of each part."""

    def __call__(self, t: Any) -> Array:
        """The value at time t. It is NaN at times that the input does not cover."""
        calls = _calls.get()
        if calls is not None and calls[0] is t:
            calls[1].append(self)
        return self.value(t)

    def __add__(self, other: Any) -> "Input":
        return Combined(jnp.add, self, as_input(other))

    def __mul__(self, other: Any) -> "Input":
        return Combined(jnp.multiply, self, as_input(other))

    __radd__, __rmul__ = __add__, __mul__


class Pieces(Input):
    """A polynomial in t − t_k on each interval [t_k, t_{k+1}]."""

    coefficients: Float[Array, "pieces powers *shape"]
    times: Constant = eqx.field(static=True)

    def value(self, t: Any) -> Array:
        """The polynomial of the interval of t; at a switch that of the interval after it."""
        times = self.times.value
        first, last = times[0], times[-1]
        k = _interval(times, t)
        c = jnp.asarray(self.coefficients)[k]
        s = t - jnp.asarray(times)[k]
        value = c[-1]
        for power in reversed(range(c.shape[0] - 1)):
            value = value * s + c[power]
        edge = _EDGE * max(abs(first), abs(last))
        return jnp.where((t >= first - edge) & (t <= last + edge), value, jnp.nan)

    def uses(self) -> list[tuple[float, float, float, np.ndarray]]:
        """It covers its times. Constant and linear pieces switch at inner times; cubic pieces are smooth there."""
        times = self.times.value
        switches = times[1:-1] if np.shape(self.coefficients)[1] < 3 else times[:0]
        return [(float(times[0]), float(times[-1]), np.inf, switches)]


class Constantly(Input):
    """The same value at all times."""

    number: Array

    def value(self, t: Any) -> Array:
        """The value."""
        return jnp.asarray(self.number)

    def uses(self) -> list[tuple[float, float, float, np.ndarray]]:
        """It covers all times and does not switch."""
        return []


class OfTime(Input):
    """A function of your own."""

    function: Callable = eqx.field(static=True)

    def value(self, t: Any) -> Array:
        """The value of the function."""
        return jnp.asarray(self.function(t))

    def uses(self) -> list[tuple[float, float, float, np.ndarray]]:
        """Nothing is known of it."""
        return []


class Combined(Input):
    """A sum or a product of two inputs."""

    combine: Callable = eqx.field(static=True)
    first: Input
    second: Input

    def value(self, t: Any) -> Array:
        """The sum or product."""
        return self.combine(self.first.value(t), self.second.value(t))

    def uses(self) -> list[tuple[float, float, float, np.ndarray]]:
        """Those of both."""
        return [*self.first.uses(), *self.second.uses()]


class Repeated(Input):
    """An input that starts again after each period."""

    inner: Input
    period: float = eqx.field(static=True)

    def value(self, t: Any) -> Array:
        """The value at t modulo the period."""
        return self.inner.value(t - self.period * jnp.floor(t / self.period))

    def uses(self) -> list[tuple[float, float, float, np.ndarray]]:
        """It covers all times. It switches as the inner input does, and at the end of each period."""
        inner = [switches for *_, switches in self.inner.uses()]
        ends = np.zeros(1) if inner else np.zeros(0)
        return [(-np.inf, np.inf, self.period, np.concatenate([ends, *inner]))]


def constant(value: Any) -> Input:
    """An input with the same value at all times.

    Parameters
    ----------
    value : array_like
        A number or an array.

    Returns
    -------
    Input
    """
    return Constantly(_values("value", value, 0))


def piecewise(times: Any, values: Any) -> Input:
    """A piecewise constant input: `values[k]` for times[k] ≤ t < times[k + 1].

    Methods keep their order if every switch is the end of a time step.

    Parameters
    ----------
    times : array_like, shape (n + 1,)
        Increasing times, in the unit of t.
    values : array_like, shape (n, ...)
        The values between them.

    Returns
    -------
    Input

    Raises
    ------
    TypeError, ValueError
        If times do not increase, or if the numbers of times and values do not fit.
    """
    grid = _times(times, 2)
    return Pieces(_values("values", values, len(grid) - 1)[:, None], Constant(grid))


def linear(times: Any, values: Any) -> Input:
    """A piecewise linear input through `values[k]` at times[k]. Kinks should be ends of time steps.

    Parameters
    ----------
    times : array_like, shape (n,)
        Increasing times, in the unit of t.
    values : array_like, shape (n, ...)
        The values at these times.

    Returns
    -------
    Input

    Raises
    ------
    TypeError, ValueError
        If times do not increase, or if the numbers of times and values differ.
    """
    grid = _times(times, 2)
    y = _values("values", values, len(grid))
    slopes = (y[1:] - y[:-1]) / jnp.diff(grid).reshape(-1, *[1] * (y.ndim - 1))
    return Pieces(jnp.stack([y[:-1], slopes], axis=1), Constant(grid))


def cubic(times: Any, values: Any) -> Input:
    """A smooth input: the cubic spline through `values[k]` at times[k], with the not-a-knot condition at both ends.

    Its third derivative jumps at the times, so methods of order above 4 need them to be ends of time steps.

    Parameters
    ----------
    times : array_like, shape (n,)
        Increasing times, in the unit of t, at least two.
    values : array_like, shape (n, ...)
        The values at these times.

    Returns
    -------
    Input

    Raises
    ------
    TypeError, ValueError
        If times do not increase, or if the numbers of times and values differ.
    """
    from scipy.interpolate import CubicSpline

    grid = _times(times, 2)
    y = _values("values", values, len(grid))
    if validation.is_traced(y):  # the coefficients are linear in the values
        matrix = CubicSpline(grid, np.eye(len(grid))).c[::-1]
        coefficients = jnp.moveaxis(jnp.tensordot(matrix, y, axes=1), 0, 1)
    else:
        coefficients = jnp.moveaxis(jnp.asarray(CubicSpline(grid, np.asarray(y)).c[::-1]), 0, 1)
    return Pieces(coefficients, Constant(grid))


def modulated(envelope: Any, carrier: Any) -> Input:
    """The product of an envelope and a carrier, such as a pulse of an alternating field.

    Parameters
    ----------
    envelope, carrier : Input, callable or number
        The factors.

    Returns
    -------
    Input
    """
    return as_input(envelope) * as_input(carrier)


def periodic(u: Any, period: float) -> Input:
    """An input that repeats the values of another one for 0 ≤ t < period.

    Parameters
    ----------
    u : Input or callable
        The input of one period.
    period : float
        The period, in the unit of t.

    Returns
    -------
    Input

    Raises
    ------
    ValueError
        If the input does not cover one period.
    """
    inner, period = as_input(u), validation.positive("period", period)
    for start, stop, *_ in inner.uses():
        if start > 0 or stop < period * (1 - _EDGE):
            raise ValueError(f"u must cover the times 0 to {period:g} of one period, not {start:g} to {stop:g}.")
    return Repeated(inner, period)


def table(path: Any, *, time: str = "time", value: str | None = None, kind: str = "linear") -> Input:
    """An input from a file.

    Parameters
    ----------
    path : path_like
        A file `.npy` of an array of shape (n, 1 + m), whose first column has the times, or a NetCDF file.
    time : str, default "time"
        The variable of a NetCDF file with the times.
    value : str, optional
        The variable of a NetCDF file with the values. The default is the only other variable.
    kind : {"linear", "cubic", "piecewise"}, default "linear"
        The interpolation. With "piecewise" the last value is not used.

    Returns
    -------
    Input

    Raises
    ------
    ValueError
        If the file has another format, or does not have these variables.
    """
    validation.choice("kind", kind, ("linear", "cubic", "piecewise"))
    times, values = _from_numpy(Path(path)) if Path(path).suffix == ".npy" else _from_netcdf(Path(path), time, value)
    if kind == "piecewise":
        return piecewise(times, values[:-1])
    return (linear if kind == "linear" else cubic)(times, values)


def _from_numpy(path: Path) -> tuple[np.ndarray, np.ndarray]:
    data = np.load(path, allow_pickle=False)
    if data.ndim != 2 or data.shape[1] < 2:
        raise ValueError(f"{path} must have an array of shape (n, 1 + m), times first, not of shape {data.shape}.")
    return data[:, 0], data[:, 1] if data.shape[1] == 2 else data[:, 1:]


def _from_netcdf(path: Path, time: str, value: str | None) -> tuple[np.ndarray, np.ndarray]:
    import xarray as xr

    with xr.open_dataset(path) as data:
        names = [str(name) for name in data.data_vars if name != time]
        if time not in data or (value is None and len(names) != 1) or (value is not None and value not in names):
            raise ValueError(
                f"{path} must have the variables time={time!r} and value={value!r}, but it has: "
                f"{', '.join(map(str, data.variables))}."
            )
        return np.asarray(data[time]), np.asarray(data[value or names[0]])


def as_input(u: Any) -> Input:
    """An input, a function of time or a number as an input."""
    if isinstance(u, Input):
        return u
    if callable(u):
        check_function("an input", u, ("t",), what="time")
        return OfTime(u)
    return constant(u)


def _times(times: Any, least: int) -> np.ndarray:
    if validation.is_traced(times):
        raise TypeError("times must be numbers: derivatives with respect to times of an input are not supported.")
    grid = np.array(validation.numbers("times", times, kinds="fiu"), float)
    if grid.ndim != 1 or len(grid) < least:
        raise ValueError(f"times must be a vector of at least {least} times, not an array of shape {grid.shape}.")
    if not np.all(np.isfinite(grid)) or np.any(np.diff(grid) <= 0):
        raise ValueError("times must be finite and increase from one to the next.")
    grid.flags.writeable = False
    return grid


def _values(name: str, values: Any, count: int) -> Array:
    array = values if validation.is_traced(values) else jnp.asarray(validation.numbers(name, values), float)
    if count and (array.ndim == 0 or len(array) != count):
        raise ValueError(f"{name} must have {count} entries along its first axis for these times, not {array.shape}.")
    if not validation.is_traced(array) and not np.all(np.isfinite(np.asarray(array))):
        raise ValueError(f"{name} must be finite: there is a NaN or an infinity.")
    return array


def _interval(times: np.ndarray, t: Any) -> Array:
    """k with times[k] ≤ t < times[k + 1], the first or the last interval outside."""
    n = len(times) - 1
    if n == 1:
        return jnp.zeros((), int)
    steps = np.diff(times)
    if n <= _FEW:
        return jnp.sum(t >= times[1:-1])
    if np.max(steps) - np.min(steps) > 1e-9 * steps[0]:
        return jnp.searchsorted(times[1:-1], t, side="right")
    k = jnp.clip(jnp.floor((t - times[0]) * (n / (times[-1] - times[0]))), 0, n - 1).astype(int)
    grid = jnp.asarray(times)
    k = jnp.where((t >= grid[k + 1]) & (k < n - 1), k + 1, k)
    return jnp.where((t < grid[k]) & (k > 0), k - 1, k)


def uses(name: str, found: list[Input]) -> list[Use]:
    """The uses of the inputs that the function of this name evaluates at the time."""
    return [Use(name, start, stop, period, Constant(at)) for u in found for start, stop, period, at in u.uses()]


def check_cover(use: Use, t0: float, t1: float) -> None:
    """Raise if an input does not cover a run."""
    edge = _EDGE * max(abs(t0), abs(t1))
    if t0 < use.start - edge or t1 > use.stop + edge:
        raise ValueError(
            f"an input of {use.name} covers the times {use.start:g} to {use.stop:g}, but the run goes from "
            f"{t0:g} to {t1:g}: give the input more times, or {' and '.join(_fixes(use, t0, t1, edge))}."
        )


def _fixes(use: Use, t0: float, t1: float, edge: float) -> list[str]:
    """The ends of the run that have to change."""
    start = [f"start the run at t0 = {use.start:g}"] if t0 < use.start - edge else []
    return start + ([f"end the run at t1 = {use.stop:g}"] if t1 > use.stop + edge else [])


def uses_of(name: str, fn: Callable) -> list[Use]:
    """The inputs that a function of time alone evaluates; `name` is that of the argument which took it."""
    out: list[Use] = []

    def call(t: Any) -> Any:
        with recorded(t) as found:
            value = fn(t)
        out.extend(uses(name, found))
        return value

    jax.eval_shape(call, jax.ShapeDtypeStruct((), jnp.float64))
    return out


def check_inputs(inputs: tuple[Use, ...], t0: float, t1: float, dt: float) -> list[str]:
    """Raise if an input does not cover a run; return a sentence for each that switches inside a time step."""
    sentences = []
    for use in inputs:
        check_cover(use, t0, t1)
        at = use.switches.value
        if np.isfinite(use.period) and len(at):
            turns = np.arange(np.floor(t0 / use.period) - 1, min(np.ceil(t1 / use.period), t0 / use.period + 1000) + 1)
            at = (turns[:, None] * use.period + at).ravel()
        at = at[(at > t0) & (at < t1)]
        steps = (at - t0) / dt
        off = np.abs(steps - np.round(steps)) > 1e-9 * np.maximum(1.0, np.abs(steps))
        if np.any(off):
            more = f", the first of {np.count_nonzero(off)} such switches" if np.count_nonzero(off) > 1 else ""
            sentences.append(
                f"an input of {use.name} switches at t = {at[off][0]:g}, inside a time step{more}: methods lose order "
                f"in such a step. Choose dt so that t0 + n dt meets every switch."
            )
    return list(dict.fromkeys(sentences))
