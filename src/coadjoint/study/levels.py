"""Results of multilevel Monte Carlo: sums over the members of each level, and what follows from them."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..numerics.html import as_html

QUANTILE = 1.959963984540054  # of the standard normal distribution, for an interval of 95 %


@dataclass(frozen=True)
class Level:
    """The members of one level: sums of Y_ℓ, of P_ℓ and of their squares.

    Parameters
    ----------
    dt : float
        The step of the fine runs.
    cost : float
        The number of steps per member.
    members : int
        The number of members so far.
    chunks : int
        The number of times that members were added.
    sums : array, shape (4, components)
        Σ Y, Σ Y², Σ P and Σ P².
    """

    dt: float
    cost: float
    members: int
    chunks: int
    sums: np.ndarray

    @staticmethod
    def empty(dt: float, steps: int, ell: int, twins: bool) -> "Level":
        """Level ℓ without members; `dt` and `steps` are those of level 0."""
        fine = steps * 2**ell
        return Level(dt / 2**ell, fine if ell == 0 else fine * (2.5 if twins else 1.5), 0, 0, np.zeros((4, 1)))

    def added(self, y: np.ndarray, p: np.ndarray) -> "Level":
        """With the values (members, components) of more members."""
        more = np.stack([y.sum(axis=0), (y**2).sum(axis=0), p.sum(axis=0), (p**2).sum(axis=0)])
        return Level(self.dt, self.cost, self.members + len(y), self.chunks + 1, self.sums + more)

    @property
    def mean(self) -> np.ndarray:
        """The mean of Y."""
        return self.sums[0] / max(self.members, 1)

    @property
    def variance(self) -> np.ndarray:
        """The variance of Y."""
        return self._variance(self.sums[0], self.sums[1])

    @property
    def plain_variance(self) -> np.ndarray:
        """The variance of P."""
        return self._variance(self.sums[2], self.sums[3])

    def _variance(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        n = max(self.members, 2)
        return np.maximum(second - first**2 / n, 0.0) / (n - 1)


@dataclass(frozen=True, repr=False)
class Expectation:
    """The mean of a functional with its error, as `expectation` returns it.

    Parameters
    ----------
    levels : tuple of Level
        The sums of each level.
    tolerance : float
        The half-width that was required.
    order : float
        The weak order by which the bias is extrapolated.
    identity : tuple
        The problem, which an earlier result must share to be continued.
    """

    levels: tuple[Level, ...]
    tolerance: float
    order: float
    identity: tuple

    @property
    def value(self) -> Any:
        """The estimate: a number, or an array if the functional is a vector."""
        return _plain(np.sum([level.mean for level in self.levels], axis=0))

    @property
    def standard_error(self) -> Any:
        """The standard error of the estimate, without bias."""
        members = np.array([max(level.members, 1) for level in self.levels])
        return _plain(np.sqrt(np.sum([v / n for v, n in zip(self.variances(), members, strict=True)], axis=0)))

    @property
    def bias(self) -> float:
        """The estimated time-step bias of the finest level, the largest of all components.

        It is extrapolated from the last two levels with the weak order of the method.
        """
        last, before = (np.abs(level.mean) for level in (self.levels[-1], self.levels[-2]))
        return float(np.max(np.maximum(last, before / 2**self.order)) / (2**self.order - 1.0))

    @property
    def half_width(self) -> float:
        """The half-width of the 95 % interval with the bias, the largest of all components."""
        return float(np.max(QUANTILE * np.asarray(self.standard_error))) + self.bias

    @property
    def interval(self) -> tuple[Any, Any]:
        """The ends of the 95 % interval."""
        value = np.asarray(self.value)
        return _plain(value - self.half_width), _plain(value + self.half_width)

    @property
    def cost(self) -> float:
        """The number of steps of all members of all levels."""
        return float(sum(level.members * level.cost for level in self.levels))

    @property
    def plain_cost(self) -> float:
        """The number of steps that plain Monte Carlo needs for the same standard error.

        Its step is the largest whose bias is at most half of the tolerance, or that of the finest level.
        """
        finest, means = self.levels[-1], np.array(np.broadcast_arrays(*(level.mean for level in self.levels)))
        biases = [float(np.max(np.abs(means[ell + 1 :].sum(axis=0)))) + self.bias for ell in range(len(means))]
        enough = [ell for ell, bias in enumerate(biases) if bias <= max(0.5 * self.tolerance, self.bias)]
        steps = self.levels[0].cost * 2 ** enough[0]
        spread = max((level.plain_variance for level in self.levels), key=lambda v: float(np.max(v)))
        return float(np.max(spread / np.asarray(self.standard_error) ** 2) * steps) if finest.members else np.nan

    @property
    def rate(self) -> float:
        """The order β with which the variance of Y falls: Var Y_ℓ ~ dt_ℓ^β, by a fit over the levels from 1 on."""
        ells = np.arange(1, len(self.levels))
        return float(-np.polyfit(ells, np.log2([np.max(level.variance) for level in self.levels[1:]]), 1)[0])

    def variances(self) -> np.ndarray:
        """The variance of Y on each level, (levels, components).

        A level with few members may underestimate it: it counts as at least an eighth of that of the level before.
        """
        out: list[np.ndarray] = []
        for ell, level in enumerate(self.levels):
            v = level.variance if level.members else np.zeros_like(self.levels[0].variance)
            out.append(np.maximum(v, out[-1] / 8.0) if ell > 1 else v)
        return np.array(np.broadcast_arrays(*out))

    def __repr__(self) -> str:
        """The value, the interval, and a table of the levels."""
        value, error = np.asarray(self.value), np.asarray(self.standard_error)
        lines = [
            f"Expectation: {value} ± {self.half_width:.2g} (95 %; standard error {np.max(error):.1e}, "
            f"bias {self.bias:.1e})",
            f"  {self.cost:.2g} steps; plain Monte Carlo needs {self.plain_cost:.2g}",
            "  level        dt     members      mean Y       var Y",
        ]
        for ell, level in enumerate(self.levels):
            mean, variance = (float(np.max(np.abs(x))) for x in (level.mean, level.variance))
            lines.append(f"  {ell:5d} {level.dt:9.3g} {level.members:11d} {mean:11.3e} {variance:11.3e}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return as_html(self)


def _plain(x: np.ndarray) -> Any:
    """A number in place of an array with one entry."""
    return float(x[0]) if x.shape == (1,) else x
