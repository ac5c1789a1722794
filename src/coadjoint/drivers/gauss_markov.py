"""Stationary Gauss–Markov (Ornstein–Uhlenbeck) processes with random access: a tree of bridges, not a recursion.

A process y has the covariance v e^{−|t|/τ}. Its values at the points n of a grid of spacing h form a tree. Point
n = (2i + 1) 2^j has height j. Points of height ≥ `top` are independent: their distance is 40 τ or more, so their
covariance is below e^{−40} v. A point of a lower height j is drawn given its two neighbours of greater height, at the
distance 2^j h. Only the standard normal number i of height j belongs to it. Hence any stretch of the path is a function
of the counters alone, and costs one normal per height and one per point.

The integral of y over an interval of length ℓ, with the ends y₀ and y₁, has the following distribution, where
a = ℓ/τ. By reflection in time the sum and the difference of the ends are independent of each other.

    ∫ y dt            = τ tanh(a/2) (y₀ + y₁) + √(2 v τ² r(a)) ξ,         r(a) = a − 2 tanh(a/2)
    ∫ (ℓ/2 − t) y dt  = τ² (a/2 coth(a/2) − 1) (y₀ − y₁) + √(v τ⁴ k(a)) ξ′,   k(a) = a (a²/6 + 2 − a coth(a/2))
"""  # fmt: skip

from dataclasses import dataclass, field
from math import factorial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..numerics import random

_NODE, _INTEGRAL, _MIDDLE, _HALVES, _MOMENT = (k << 24 for k in range(8, 13))  # first channels of the random stream
INDEPENDENT = 40.0  # relaxation times after which values are independent: e^{−40} is below round-off
_BERNOULLI = (
    -1 / 30,
    1 / 42,
    -1 / 30,
    5 / 66,
    -691 / 2730,
    7 / 6,
    -3617 / 510,
    43867 / 798,
    -174611 / 330,
)  # B₄, B₆, …
_R = tuple(-4.0 * (4.0**n - 1.0) * b / factorial(2 * n) for n, b in enumerate(_BERNOULLI, 2))
_K = tuple(-2.0 * b / factorial(2 * n) for n, b in enumerate(_BERNOULLI, 2))


def _series(coefficients: tuple[float, ...], x: Array) -> Array:
    total = jnp.zeros_like(x)
    for c in reversed(coefficients):
        total = total * x + c
    return total


def r(a: Float[Array, "..."]) -> Float[Array, "..."]:
    """a − 2 tanh(a/2) = a³/12 − a⁵/120 + …, without cancellation."""
    small = a < 0.5
    near, far = jnp.where(small, a, 0.0), jnp.where(small, 1.0, a)
    return jnp.where(small, near**3 * _series(_R, near**2), far - 2.0 * jnp.tanh(0.5 * far))


def k(a: Float[Array, "..."]) -> Float[Array, "..."]:
    """a (a²/6 + 2 − a coth(a/2)) = a⁵/360 − a⁷/15120 + …, without cancellation."""
    small = a < 1.0
    near, far = jnp.where(small, a, 0.0), jnp.where(small, 1.0, a)
    return jnp.where(small, near**5 * _series(_K, near**2), far * (far**2 / 6.0 + 2.0 - far / jnp.tanh(0.5 * far)))


def _coth_term(a: Array) -> Array:
    """a/2 coth(a/2) − 1 = a²/12 − …: (a²/6 − k(a)/a)/2, which does not cancel."""
    return 0.5 * (a**2 / 6.0 - k(a) / a)


class Cells(NamedTuple):
    """Consecutive intervals of equal length: the ends of y, and its integral if it was drawn."""

    y0: Float[Array, "cells C"]
    y1: Float[Array, "cells C"]
    integral: Float[Array, "cells C"] | None


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class GaussMarkov:
    """C independent processes on the grid of spacing h: a pytree."""

    h: Float[Array, ""]
    tau: Float[Array, " C"]
    variance: Float[Array, " C"]
    top: Int[Array, ""] | None  # the height from which points are independent: an array, so that τ is no constant
    fixed_top: int = field(default=0, metadata={"static": True})  # the same, if `top` is None

    @staticmethod
    def top_of(tau: Any, h: float) -> int:
        """The least height whose points are independent of each other."""
        ratio = INDEPENDENT * float(np.max(tau)) / h
        return max(0, int(np.ceil(np.log2(max(ratio, 1.0)))))

    @property
    def size(self) -> int:
        """C."""
        return self.tau.shape[0]

    def _request(self, first: int, level: Any, n: Int[Array, " n"], paired: bool) -> random.Request:
        return random.Request(level, first + np.arange(self.size), n, paired)

    def _bridge(self, x: Array) -> tuple[Array, Array]:
        """The factor of y₀ + y₁ and the standard deviation of the value in the middle; x = (half the distance)/τ."""
        e = jnp.exp(-x)
        return e / (1.0 + e * e), jnp.sqrt(self.variance * jnp.tanh(x))

    def cells(self, key: random.Key, q: Int[Array, ""], count: int, integrals: bool) -> Cells:
        """Intervals q … q + count − 1 of the grid, with the integrals of y if needed.

        count is a power of two and q a multiple of it.
        """
        low = count.bit_length() - 1
        y, x = self._around(key, q, low)
        numbers = [(j, (q >> j) + jnp.arange(1 << (low - j))) for j in range(low, 0, -1)]
        requests = [self._request(_NODE, j - 1, n, j < low) for j, n in numbers]
        if integrals:
            requests.append(self._request(_INTEGRAL, 0, q + jnp.arange(count), count > 1))
        normals = random.requested_normals(key, requests) if requests else []
        for j in range(low, 0, -1):
            mean, deviation = self._bridge(x * 2.0**j)
            middle = mean * (y[:-1] + y[1:]) + deviation * normals[low - j]
            y = jnp.concatenate([jnp.stack([y[:-1], middle], axis=1).reshape(-1, self.size), y[-1:]])
        cells = Cells(y[:-1], y[1:], None)
        return self._with_integral(cells, 0, normals[-1]) if integrals else cells

    def _around(self, key: random.Key, q: Int[Array, ""], low: int) -> tuple[Float[Array, "2 C"], Float[Array, " C"]]:
        """y at the ends of the interval of 2^low base intervals from q on, and h/2τ: down the tree."""
        top = max(self.fixed_top, low) if self.top is None else jnp.maximum(self.top, low)
        begin, distance = (q >> top) << top, jnp.asarray(1, jnp.int64) << top
        left, right = self._independent(key, [begin, begin + distance])

        def descend(i: Any, state: tuple) -> tuple:
            j, (x, left, right) = top - i, state
            mean, deviation = self._bridge(x)
            (normal,) = random.requested_normals(key, [self._request(_NODE, j - 1, (q >> j).reshape(1), False)])
            middle = mean * (left + right) + deviation * normal[0]
            second = ((q >> (j - 1)) & 1) == 1
            return 0.5 * x, jnp.where(second, middle, left), jnp.where(second, right, middle)

        x = 0.5 * self.h / self.tau
        begun = x * distance.astype(jnp.float64), left, right
        _, left, right = jax.lax.fori_loop(0, top - low, descend, begun)
        return jnp.stack([left, right]), x

    def _independent(self, key: random.Key, points: list[Int[Array, ""]]) -> list[Float[Array, " C"]]:
        """y at points that depend on no other; the number of a point is that of its own height."""
        requests = []
        for rest in points:
            height = jnp.zeros((), jnp.int64)
            for s in (32, 16, 8, 4, 2, 1):
                even = (rest & ((1 << s) - 1)) == 0
                height, rest = height + jnp.where(even, s, 0), jnp.where(even, rest >> s, rest)
            requests.append(self._request(_NODE, height, (rest >> 1).reshape(1), False))
        return [jnp.sqrt(self.variance) * x[0] for x in random.requested_normals(key, requests)]

    def integrated(self, key: random.Key, cells: Cells, level: int, n: Int[Array, " cells"], paired: bool) -> Cells:
        """With the integral of y, given the ends."""
        (normals,) = random.requested_normals(key, [self._request(_INTEGRAL, level, n, paired)])
        return self._with_integral(cells, level, normals)

    def _with_integral(self, cells: Cells, level: int, normals: Array) -> Cells:
        a = self.h / 2.0**level / self.tau
        mean = self.tau * jnp.tanh(0.5 * a) * (cells.y0 + cells.y1)
        return cells._replace(integral=mean + self.tau * jnp.sqrt(2.0 * self.variance * r(a)) * normals)

    def halved(self, key: random.Key, cells: Cells, level: int, n: Int[Array, " cells"], paired: bool) -> Cells:
        """The halves, of level `level`, of intervals n of the level above; integrals of halves sum up to the whole."""
        a = self.h / 2.0 ** (level - 1) / self.tau
        first = (_MIDDLE,) if cells.integral is None else (_MIDDLE, _HALVES)
        normals, *others = random.requested_normals(key, [self._request(c, level, n, paired) for c in first])
        total = cells.y0 + cells.y1
        if cells.integral is None:
            mean, deviation = self._bridge(0.5 * a)
            return _interleaved(cells, mean * total + deviation * normals, None)
        tau, v = self.tau, self.variance
        whole, quarter = jnp.tanh(0.5 * a), jnp.tanh(0.25 * a)
        given = quarter * whole / r(a)  # of ∫ y dt/τ on the value in the middle
        mean = (0.5 / jnp.cosh(0.5 * a) - given * whole) * total + given / tau * cells.integral
        left = v * (whole - 2.0 * given * quarter * whole)
        middle = mean + jnp.sqrt(left) * normals
        difference = tau * quarter * (cells.y0 - cells.y1) + 2.0 * tau * jnp.sqrt(v * r(0.5 * a)) * others[0]
        return _interleaved(cells, middle, difference)

    def moments(self, key: random.Key, cells: Cells, level: int, n: Int[Array, " cells"], paired: bool) -> Array:
        """∫ (ℓ/2 − t) y dt over each interval."""
        a = self.h / 2.0**level / self.tau
        (normals,) = random.requested_normals(key, [self._request(_MOMENT, level, n, paired)])
        mean = self.tau**2 * _coth_term(a) * (cells.y0 - cells.y1)
        return mean + self.tau**2 * jnp.sqrt(self.variance * k(a)) * normals


def _interleaved(cells: Cells, middle: Array, difference: Array | None) -> Cells:
    both = lambda a, b: jnp.stack([a, b], axis=1).reshape(-1, a.shape[-1])
    integral = None
    if difference is not None and cells.integral is not None:
        integral = both(0.5 * (cells.integral + difference), 0.5 * (cells.integral - difference))
    return Cells(both(cells.y0, middle), both(middle, cells.y1), integral)
