"""Ornstein–Uhlenbeck noise: coloured noise with an exponential correlation."""

from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..numerics import random, validation
from .base import BLOCK, Driver, Increment, Needs, PathOrder, Window, at_most_second, joined
from .correlation import checked_correlation, mixing_of
from .gauss_markov import Cells, GaussMarkov
from .grid import check_depth, check_grid, levels

_UNIT, _FEW = 8, 8  # steps that native code draws at once, for up to so many processes
_TRACED_TOP = 48  # the height of the tree if τ is traced: at least that of any τ


class OU(Driver):
    """Coloured noise: integrals of independent stationary Ornstein–Uhlenbeck processes.

        dS^i = η_i dt,   E[η_i(t) η_i(u)] = e^{−|t − u|/τ}/(2τ)

    The variance of S grows as t for times t ≫ τ, so the limit τ → 0 is Brownian motion in the sense of Stratonovich.
    The joint distribution of (∫η dt, η) at the steps is exact for every dt, and η is stationary from the start.

    The increment of member k over step n of the base grid depends on (key, k, n) only. Runs with other dt, multiples
    or dyadic fractions of `grid`, follow the same path. Paths have a continuous derivative, so TMK and other methods of
    order 2 or more are of order 2 if dt ≪ τ. Methods with terms for Brownian motion (`TMK15`, `TMKLevy`, `TMKWeak`,
    `NinomiyaVictoir`, `BathSplitting`) raise an error.

    Parameters
    ----------
    tau : float or array_like, shape (M,)
        The correlation time, one for all channels or one per channel. It can be differentiated.
    key : int or JAX key, default 0
        Selects the path.
    grid : float, optional
        The spacing of the base grid. The default is the time step of the run.
    depth : int, optional
        ∫ S dt is sampled on the grid grid/2^depth. The default is the least depth that the method needs.
    correlation : array_like, shape (M, M), optional
        The correlation matrix of the channels. The default is the identity.

    Raises
    ------
    TypeError, ValueError
        If `tau` is not finite and above 0, or if `correlation` is no correlation matrix.

    Examples
    --------
    >>> import coadjoint as cj
    >>> system, mu0 = cj.models.rigid_body()
    >>> sol = cj.solve(system, mu0, t1=1.0, dt=0.01, driver=cj.OU(tau=0.1, key=0))
    """  # fmt: skip

    tau: Float[Array | np.ndarray, "..."]
    key: random.Key
    grid: float | None = eqx.field(static=True)
    depth: int | None = eqx.field(static=True)
    correlation: tuple[tuple[float, ...], ...] | None = eqx.field(static=True)

    def __init__(
        self,
        tau: Any,
        key: Any = 0,
        grid: float | None = None,
        depth: int | None = None,
        correlation: Any = None,
    ):
        self.tau = _times(tau)
        self.key = random.as_key(key)
        self.grid = None if grid is None else validation.positive("grid", grid)
        self.depth = check_depth(depth)
        self.correlation = checked_correlation(correlation)

    def effective_order(self, order: float, strong: float) -> PathOrder:
        """At most 2, for dt ≪ τ."""
        return at_most_second(order, "increments do not contain the path within steps")

    def check(self, n_noise: int, steps: int, dt: float, needs: Needs = Needs()) -> None:
        """Raise if dt does not fit the grid, or if the method needs what the path does not have."""
        if self.tau.ndim and self.tau.shape[0] != n_noise:
            raise ValueError(f"tau has {self.tau.shape[0]} numbers, but the driver has {n_noise} channels.")
        check_smooth("OU", needs)
        check_grid("OU", self.grid, self.depth, steps, dt, needs)

    def mixing(self, n_noise: int) -> Any:
        """L, from the correlation matrix."""
        return mixing_of(self.correlation, n_noise)

    def window(self, n_noise: int, dt: float, first: int, blocks: int, needs: Needs = Needs()) -> "GaussMarkovWindow":
        """The window. It contains no data, so it is the same for all blocks."""
        xp: Any = jnp if validation.is_traced(self.tau) else np
        tau = xp.broadcast_to(self.tau, (n_noise,))
        grid = self.grid or dt
        top: Any = None if xp is jnp else np.asarray(GaussMarkov.top_of(tau, grid))
        h: Any = np.asarray(grid)
        processes = GaussMarkov(h, tau, 0.5 / tau, top, _TRACED_TOP if top is None else 0)
        return window_of(self, processes, n_noise, True, dt, needs)

    def blocks(self, n_noise: int) -> int:
        """The number of blocks that a window should contain: any."""
        return 2**30


def check_smooth(name: str, needs: Needs) -> None:
    """Raise if the method needs what only Brownian motion has."""
    if needs.brownian or needs.signs or needs.third or needs.areas:
        what = "Lévy areas of Brownian motion" if needs.areas or needs.third else "terms that hold for Brownian motion"
        raise ValueError(f"the method needs {what}, but the driver is {name}: take TMK(), or Brownian(key).")


def window_of(
    driver: Any, processes: GaussMarkov, n_noise: int, integrated: bool, dt: float, needs: Needs
) -> "GaussMarkovWindow":
    """The window on sums of processes, for a driver with `key`, `grid` and `depth`."""
    m, level = levels(driver.grid, dt)
    traced: Any = None if driver.grid is None or level or needs.halvings else np.asarray(m)
    below = max((driver.depth or 0) - level, 0) if needs.Z else 0
    return GaussMarkovWindow(
        driver.key, processes, n_noise, integrated, traced, level, max(below, needs.halvings), needs
    )


def _times(tau: Any) -> Array | np.ndarray:
    """Correlation times: one number, or one per channel."""
    array = validation.numbers("tau", tau, "a number or one number per channel", "fiu")
    if array.ndim > 1:
        raise ValueError(f"tau must be one number or one number per channel, not an array of shape {array.shape}.")
    if validation.is_traced(array):
        return array
    host = np.asarray(array, np.float64)
    if not np.all(np.isfinite(host) & (host > 0)):
        raise ValueError(f"tau must be finite and above 0, not {tau!r}.")
    return host


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class GaussMarkovWindow(Window):
    """Increments of sums of Gauss–Markov processes y: of ∫ y dt if `integrated`, else of y itself.

    Process i + k M belongs to channel i. Steps are sums of m intervals of the base grid, unless m is None, or level
    `level` below it. Each step is divided into 2^below parts if the method needs integrals or halves steps.
    """

    key: random.Key
    processes: GaussMarkov
    n_noise: int = field(metadata={"static": True})
    integrated: bool = field(metadata={"static": True})
    m: Int[Array, ""] | None
    level: int = field(metadata={"static": True})
    below: int = field(metadata={"static": True})
    needs: Needs = field(metadata={"static": True})

    @property
    def unit(self) -> int:
        """Steps that share one descent of the tree; many processes are drawn by XLA."""
        return _UNIT if self.processes.size * 2**self.below <= _FEW else 0

    @property
    def subgrid(self) -> bool:
        """Native code draws by `steps`."""
        return True

    def block(self, member: Int[Array, ""], b: Int[Array, ""]) -> Increment:
        """The increments of block b."""
        return self.steps(member, jnp.asarray(b, jnp.int64) * BLOCK, BLOCK)

    def pair(self, member: Int[Array, ""], k: Int[Array, ""]) -> Increment:
        """The increments of steps 2k and 2k + 1."""
        return self.steps(member, 2 * jnp.asarray(k, jnp.int64), 2)

    def steps(self, member: Int[Array, ""], first: Int[Array, ""], count: int) -> Increment:
        """The increments of steps first … first + count − 1 only."""
        key = random.member_key(self.key, random.PATH, member)
        first = jnp.asarray(first, jnp.int64)
        if self.m is not None:
            return self._summed(key, first, count)
        return self._of_level(key, first, count)

    def _of_level(self, key: random.Key, first: Int[Array, ""], count: int) -> Increment:
        """Steps of the level of the window, combined from their parts by Chen's relation."""
        cells, n = self._refined(key, first, count)
        out, h = self._increments(key, cells, n), self.processes.h / 2.0 ** (self.level + self.below)
        out = jax.tree.map(lambda x: x.reshape(count, -1, *x.shape[1:]), out)
        while out.S.shape[1] > 2**self.needs.halvings:
            out = joined(jax.tree.map(lambda x: x[:, ::2], out), jax.tree.map(lambda x: x[:, 1::2], out), h)
            h = 2.0 * h
        return out if self.needs.halvings else jax.tree.map(lambda x: x[:, 0], out)

    def _refined(self, key: random.Key, first: Int[Array, ""], count: int) -> tuple[Cells, Int[Array, " cells"]]:
        """The parts of the steps on the finest level, and their numbers there."""
        finest, level = self.level + self.below, self.level
        wanted = max(1, count >> level)
        q = first >> level
        cells = self.processes.cells(key, q, wanted, self.integrated)
        for depth in range(1, finest + 1):
            n = q + jnp.arange(wanted)
            cells = self.processes.halved(key, cells, depth, n, wanted > 1)
            if depth <= level and (count >> (level - depth)) < 2 * wanted:  # one of the two halves
                q = first >> (level - depth)
                second = (q & 1) == 1
                cells = jax.tree.map(lambda x, second=second: jnp.where(second, x[1:], x[:1]), cells)
            else:
                q, wanted = 2 * q, 2 * wanted
        n = q + jnp.arange(wanted)
        if self.needs.Z and not self.integrated:
            cells = self.processes.integrated(key, cells, finest, n, wanted > 1)
        return cells, n

    def _increments(self, key: random.Key, cells: Cells, n: Int[Array, " cells"]) -> Increment:
        """ΔS and ΔZ of intervals n of the finest level."""
        level = self.level + self.below
        h = self.processes.h / 2.0**level
        bound = jnp.full(n.shape, jnp.inf)
        if not self.integrated:
            Z = None if cells.integral is None else self._sum(cells.integral - h * cells.y0)
            return Increment(self._sum(cells.y1 - cells.y0), bound, Z)
        assert cells.integral is not None
        Z = None
        if self.needs.Z:
            Z = 0.5 * h * cells.integral + self.processes.moments(key, cells, level, n, len(n) > 1)
            Z = self._sum(Z)
        return Increment(self._sum(cells.integral), bound, Z)

    def _sum(self, x: Float[Array, "cells C"]) -> Float[Array, "cells M"]:
        """Of the processes of each channel."""
        return x if x.shape[1] == self.n_noise else x.reshape(len(x), -1, self.n_noise).sum(axis=1)

    def _summed(self, key: random.Key, first: Int[Array, ""], count: int) -> Increment:
        """Sums over m intervals of the base grid: ΔZ = Σ_c (ΔZ_c + h (m − 1 − c) ΔS_c)."""
        m, h = self.m, self.processes.h
        assert m is not None

        def body(j: Array, total: Increment) -> Increment:
            q = first * m + j * count
            part = self._of_level(key, q, count)
            at = j * count + jnp.arange(count)
            own = ((at // m)[:, None] == jnp.arange(count)).astype(jnp.float64)[:, :, None]
            gather = lambda x: jnp.sum(own * x[:, None], axis=0)
            Z = None
            if part.Z is not None and total.Z is not None:
                Z = total.Z + gather(part.Z + h * (m - 1 - at % m).astype(jnp.float64)[:, None] * part.S)
            return Increment(total.S + gather(part.S), total.bound, Z)

        zero = jnp.zeros((count, self.n_noise))
        start = Increment(zero, jnp.full(count, jnp.inf), zero if self.needs.Z else None)
        return jax.lax.fori_loop(0, m, body, start)
