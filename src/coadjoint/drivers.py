"""Drivers: the increments ΔS of the path that drives a system."""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from . import _checks, _random

BLOCK = 32  # increments are drawn in blocks of this many steps, aligned to multiples of it


class Increment(eqx.Module):
    """What the path did in one step (or, with a leading axis, in each step of a block).

    `S` is ΔS^i = S^i(t_{n+1}) − S^i(t_n). `bound` is where an implicit method with nonlinear noise may truncate ΔS so
    that its equation has a root (Milstein and Tretyakov): infinite for a path that was given.
    """

    S: Float[Array, "*steps M"]
    bound: Float[Array, "*steps"]


class Window(eqx.Module):
    """A stretch of the path, ready for compiled code: gives the increments of block b, steps 32 b … 32 b + 31."""

    @abc.abstractmethod
    def block(self, member: Int[Array, ""], b: Int[Array, ""]) -> Increment:
        """The increments of block b for one member of an ensemble."""


class Driver(eqx.Module):
    """The path that drives a system."""

    @abc.abstractmethod
    def check(self, n_noise: int, steps: int, dt: float) -> None:
        """Raise if the path does not fit the run."""

    @abc.abstractmethod
    def window(self, n_noise: int, dt: float, first: int, blocks: int) -> Window:
        """The window on blocks first … first + blocks − 1."""


class Brownian(Driver):
    """Independent Brownian motions from a key.

    The increment of member k over step n of the base grid depends on (key, k, n) alone. The base grid is the step of
    the run, or `grid` if it is given. A run with dt = m·grid sums m increments of the base grid; a run with
    dt = grid/2^L refines it by Brownian bridges. So two runs share one path exactly when they have the same key and
    the same `grid`, and step sizes that are whole multiples or dyadic fractions of it.
    """

    key: _random.Key
    grid: float | None = eqx.field(static=True)

    def __init__(self, key: Any = 0, grid: float | None = None):
        self.key = _random.as_key(key)
        self.grid = None if grid is None else _checks.positive("grid", grid)

    def check(self, n_noise: int, steps: int, dt: float) -> None:
        """Raise if dt is neither a multiple nor a dyadic fraction of the grid."""
        self._levels(dt)
        if steps >= 2**62:
            raise ValueError(f"a run has at most 2^62 steps, not {steps}.")

    def _levels(self, dt: float) -> tuple[int, int]:
        """(m, L): dt = m·grid/2^L with m = 1 or L = 0."""
        if self.grid is None:
            return 1, 0
        ratio = dt / self.grid
        nearest = round(ratio)
        if nearest >= 1 and abs(ratio - nearest) <= 1e-9 * nearest:
            return nearest, 0
        level = round(np.log2(1 / ratio))
        if 1 <= level <= 40 and abs(ratio * 2.0**level - 1) <= 1e-9:
            return 1, level
        raise ValueError(
            f"dt = {dt} does not fit grid = {self.grid}: dt must be a whole multiple of the grid, or grid/2, grid/4, …"
        )

    def window(self, n_noise: int, dt: float, first: int, blocks: int) -> "BrownianWindow":
        """The window; it needs no data, so it is the same for all blocks."""
        m, level = self._levels(dt)
        traced = None if self.grid is None or level else jnp.asarray(m)  # another multiple, the same program
        return BrownianWindow(self.key, jnp.asarray(self.grid or dt), n_noise, traced, level)


class BrownianWindow(Window):
    """Increments of Brownian motion: base normals, summed (m, unless None) or bridged (level)."""

    key: _random.Key
    h: Float[Array, ""]
    n_noise: int = eqx.field(static=True)
    m: Int[Array, ""] | None
    level: int = eqx.field(static=True)

    def block(self, member: Int[Array, ""], b: Int[Array, ""]) -> Increment:
        """The increments of block b."""
        b = jnp.asarray(b, jnp.int64)
        key = _random.member_key(self.key, _random.PATH, member)
        S = self._summed(key, b) if self.level == 0 else self._bridged(key, b)
        dt = self.h * (1 if self.m is None else self.m) / 2.0**self.level
        bound = jnp.sqrt(4.0 * dt * jnp.maximum(jnp.abs(jnp.log(dt)), 1.0))
        return Increment(S, jnp.broadcast_to(bound, (BLOCK,)))

    def _summed(self, key: _random.Key, b: Int[Array, ""]) -> Float[Array, "block M"]:
        m = self.m
        if m is None:
            return jnp.sqrt(self.h) * _random.normals(key, 0, self.n_noise, b * BLOCK, BLOCK)

        # Base steps of the block in order; base step q belongs to step q // m of the block.
        def body(j, total):
            steps = (j * BLOCK + jnp.arange(BLOCK)) // m
            return total.at[steps].add(_random.normals(key, 0, self.n_noise, (b * m + j) * BLOCK, BLOCK))

        zero = jnp.zeros((BLOCK, self.n_noise))
        return jnp.sqrt(self.h) * jax.lax.fori_loop(0, m, body, zero)

    def _bridged(self, key: _random.Key, b: Int[Array, ""]) -> Float[Array, "block M"]:
        """W over [0, h] has increment D; over its halves D/2 ± (√h/2) Z, and so on down the levels."""
        n = b * BLOCK + jnp.arange(BLOCK)

        def normals(level, j):
            """Normals with indices j (nondecreasing, within one aligned run of BLOCK)."""
            start = (j[0] // 2) * 2
            return _random.normals(key, level, self.n_noise, start, BLOCK + 2)[j - start]

        D = jnp.sqrt(self.h) * normals(0, n >> self.level)
        for level in range(1, self.level + 1):
            parent = n >> (self.level - level + 1)
            second = ((n >> (self.level - level)) & 1)[:, None]
            half = 0.5 * jnp.sqrt(self.h / 2.0 ** (level - 1)) * normals(level, parent)
            D = 0.5 * D + jnp.where(second == 1, -half, half)
        return D


class Increments(Driver):
    """A given path: dS[n, i] = S^i(t_{n+1}) − S^i(t_n), shape (steps, M); shape (steps,) when M = 1.

    Any path will do. For a semimartingale the limit is the Stratonovich solution; for paths of finite p-variation
    with p < 2 (fractional Brownian motion with H > ½, coloured noise, data) it is the Young solution.
    """

    dS: Float[Array, "steps M"]

    def __init__(self, dS: Any):
        array = dS if isinstance(dS, jax.Array) else np.asarray(dS)
        if array.dtype.kind not in "fiu":
            raise TypeError(f"dS must be an array of real numbers, not of type {array.dtype}.")
        if array.ndim == 1:
            array = array[:, None]
        if array.ndim != 2:
            raise ValueError(f"dS must have shape (steps, M), not {array.shape}.")
        if not _checks.is_traced(array) and not np.all(np.isfinite(np.asarray(array))):
            n, i = np.argwhere(~np.isfinite(np.asarray(array)))[0]
            raise ValueError(f"dS must be finite: dS[{n}, {i}] is {np.asarray(array)[n, i]}.")
        self.dS = jnp.asarray(array, jnp.float64)

    def check(self, n_noise: int, steps: int, dt: float) -> None:
        """Raise if the shape is not (steps, M)."""
        if self.dS.shape[1] != n_noise:
            raise ValueError(f"dS must have {n_noise} columns, one a noise of the system, not {self.dS.shape[1]}.")
        if self.dS.shape[0] != steps:
            raise ValueError(f"dS must have {steps} rows, one a step of the run, not {self.dS.shape[0]}.")

    def window(self, n_noise: int, dt: float, first: int, blocks: int) -> "GivenWindow":
        """The rows of the given blocks, padded with zeros."""
        rows = self.dS[first * BLOCK : (first + blocks) * BLOCK]
        rows = jnp.pad(rows, ((0, blocks * BLOCK - rows.shape[0]), (0, 0)))
        return GivenWindow(rows.reshape(blocks, BLOCK, n_noise), jnp.asarray(first))


class GivenWindow(Window):
    """Rows of a given path."""

    rows: Float[Array, "blocks block M"]
    first: Int[Array, ""]

    def block(self, member: Int[Array, ""], b: Int[Array, ""]) -> Increment:
        """The increments of block b: the same path for every member."""
        return Increment(self.rows[b - self.first], jnp.full((BLOCK,), jnp.inf))
