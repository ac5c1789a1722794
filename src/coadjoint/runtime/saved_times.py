"""The times at which a run saves: after every so many steps, or at given times."""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import reduce
from math import gcd
from typing import Any

import numpy as np

from ..numerics import validation

NEVER = 2**62  # more steps than a run has
_CLOSE = 1e-9  # largest distance of a given time from the grid, in steps, relative to their number
_COARSE = 1e-3  # of a step: the largest spacing of floating-point times


@dataclass(frozen=True, eq=False)
class SavedTimes:
    """The saved times of a run: t0 + k every dt for k = 0, 1, …, or given times on the grid t0 + n dt."""

    t0: float
    dt: float
    steps: int
    every: int
    given: np.ndarray | None = None  # the given times …
    numbers: np.ndarray | None = None  # … and the number of steps up to each

    @property
    def count(self) -> int:
        """The number of saved times."""
        return self.up_to(self.steps)

    @property
    def start(self) -> bool:
        """Whether the initial state is saved."""
        return self.numbers is None or bool(self.numbers[0] == 0)

    def up_to(self, n: int) -> int:
        """The number of saved times after at most n steps."""
        return n // self.every + 1 if self.numbers is None else int(np.searchsorted(self.numbers, n, "right"))

    def step(self, k: Any) -> Any:
        """The number of steps up to saved time k."""
        return k * self.every if self.numbers is None else self.numbers[np.minimum(k, len(self.numbers) - 1)]

    def times(self, first: int, last: int) -> np.ndarray:
        """The saved times first … last − 1. After the end, given times repeat the last one."""
        k = np.arange(first, last)
        if self.given is not None:
            return self.given[np.minimum(k, len(self.given) - 1)]
        return self.t0 + self.dt * self.step(k)

    def segments(self, n0: int, n1: int) -> Iterator[tuple[int, int]]:
        """Divide the steps n0 … n1 − 1 into segments that save regularly. Return the end and the interval of each.

        A segment that ends at a given time saves after that many steps from the start of the run, and so once.
        """
        if self.numbers is None:
            yield n1, self.every
            return
        first = self.up_to(n0)
        for n in self.numbers[first : self.up_to(n1)].tolist():
            yield n, n
            n0 = n
        if n0 < n1:
            yield n1, NEVER

    def fitting(self, n0: int, slots: int) -> int:
        """The last step up to which at most so many times are saved from step n0 on."""
        if self.numbers is None:
            return (n0 // self.every + slots) * self.every
        last = self.up_to(n0) + slots - 1
        return int(self.numbers[last]) if last + 1 < len(self.numbers) else self.steps

    @property
    def clock(self) -> Hashable:
        """Equal for runs that save at the same times."""
        return (self.t0, self.dt * self.every, self.count) if self.given is None else self.given.tobytes()

    @property
    def spacing(self) -> int:
        """The largest number of steps that divides all steps at which a time is saved, and the length of the run."""
        return self.every if self.numbers is None else reduce(gcd, self.numbers.tolist(), self.steps)


def check_times(t0: Any, t1: Any, dt: Any, steps: Any) -> tuple[Any, Any, Any, int]:
    """t0, t1, dt and the number of steps, of which `t1` or `steps` is given. With `steps`, JAX may trace t0 and dt."""
    if (steps is None) == (t1 is None):
        raise ValueError(f"give either t1 or steps, not t1={t1!r} and steps={steps!r}.")
    if steps is None:
        traced = [name for name, x in (("dt", dt), ("t0", t0)) if validation.is_traced(x)]
        if traced:
            raise TypeError(
                f"{traced[0]} is traced by JAX: give steps=, the number of steps, in place of t1. "
                "The derivative is that at a fixed number of steps and fixed increments."
            )
        t0, t1, dt = validation.finite("t0", t0), validation.finite("t1", t1), validation.positive("dt", dt)
        return t0, t1, dt, count_steps(t0, t1, dt)
    steps = validation.count("steps", steps)
    dt = _traced_time("dt", dt) if validation.is_traced(dt) else validation.positive("dt", dt)
    t0 = _traced_time("t0", t0) if validation.is_traced(t0) else validation.finite("t0", t0)
    t1 = t0 + steps * dt
    if not validation.is_traced(t1):
        count_steps(t0, t1, dt)
    return t0, t1, dt, steps


def _traced_time(name: str, value: Any) -> Any:
    """A real number that JAX traces."""
    if value.shape != () or value.dtype.kind not in "fiu":
        raise TypeError(f"{name} must be a real number, not an array of shape {value.shape} and type {value.dtype}.")
    return value.astype(float)


def count_steps(t0: float, t1: float, dt: float) -> int:
    """The number of steps, or an error with the nearest t1 and dt."""
    if not t1 > t0:
        raise ValueError(f"t1 must be above t0 = {t0:g}, not {t1:g}.")
    ratio = (t1 - t0) / dt
    if not ratio < 2**62:
        raise ValueError(f"a run has at most 2^62 steps, but (t1 − t0)/dt = {ratio:g}: take a larger dt.")
    steps = round(ratio)
    spacing = float(np.spacing(max(abs(t0), abs(t1))))
    if spacing > _COARSE * dt:
        raise ValueError(
            f"times near {max(abs(t0), abs(t1)):g} are only represented in steps of {spacing:.2g}, which is too coarse "
            f"for dt = {dt:g}: measure the time from another origin, so that t0 is smaller."
        )
    if steps < 1 or abs(ratio - steps) > 1e-9 * max(steps, 1):
        raise ValueError(
            f"t1 − t0 must be a whole multiple of dt, but ({t1:g} − {t0:g})/{dt:g} = {ratio:.12g}: "
            f"take t1 = {t0 + max(steps, 1) * dt:.12g}, or dt = {(t1 - t0) / max(steps, 1):.12g}."
        )
    return steps


def check_save_at(save_at: Any, t0: float, dt: float, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """The given times and their steps, or an error that names the nearest time on the grid."""
    given = np.asarray(validation.numbers("save_at", save_at, "a list of times", "fiu"), float)
    if given.ndim != 1 or not given.size:
        raise ValueError(f"save_at must be a list of times, not an array of shape {given.shape}.")
    if not np.all(np.isfinite(given)):
        raise ValueError("save_at must have finite times.")
    ratio = (given - t0) / dt
    numbers = np.clip(np.rint(ratio), 0, steps).astype(np.int64)
    off = np.abs(ratio - numbers) > _CLOSE * np.maximum(numbers, 1)
    if np.any(off):
        k = int(np.argmax(off))
        raise ValueError(
            f"save_at[{k}] = {given[k]:.12g} is not one of the times t0 + n dt of the run, from {t0:.12g} to "
            f"{t0 + steps * dt:.12g} in steps of {dt:.12g}: the nearest is {t0 + int(numbers[k]) * dt:.12g}."
        )
    if np.any(np.diff(numbers) <= 0):
        k = int(np.argmax(np.diff(numbers) <= 0)) + 1
        raise ValueError(f"save_at must increase, but save_at[{k}] = {given[k]:.12g} follows {given[k - 1]:.12g}.")
    return given, numbers
