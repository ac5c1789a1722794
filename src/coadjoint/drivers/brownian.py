"""Brownian motion from a key: increments, summed or bridged, and their iterated integrals."""

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..numerics import random, validation
from ..numerics.modules import made
from .base import BLOCK, Driver, Increment, Needs, PathOrder, Window, commutator, joined, truncation_bound
from .correlation import checked_correlation, mixing_of
from .grid import check_depth, check_grid, levels

AREA_ERROR = 0.25  # C: a Lévy area over a time h is sampled with an rms error of at most C h^{3/2}

# Random numbers of Lévy areas (docs/explanation/random.md): level ℓ + 256 r for Fourier mode r; first channels:
_MODES = 256
_MEAN, _COSINE, _SINE, _MEAN_TAIL, _AREA_TAIL, _SIGN = (k << 24 for k in range(1, 7))


class Brownian(Driver):
    """Brownian motions from a key, independent by default.

    The increment of member k over step n of the base grid depends on (key, k, n) only. A run with dt = m·grid sums m
    increments of the base grid. A run with dt = grid/2^L refines the path by Brownian bridges. Two runs share one path
    if and only if key, member and `grid` are equal, and their steps are multiples or dyadic fractions of `grid`.

    Some methods need integrals of the path: ΔZ, Lévy areas, the log-signature. They are sampled on the finest grid,
    grid/2^depth, and combined by Chen's relation. Two runs share these integrals if `depth` is equal too, and their
    steps are at least grid/2^depth.

    Parameters
    ----------
    key : int or JAX key, default 0
        Selects the path.
    grid : float, optional
        The spacing of the base grid, in units of time. The default is the time step of the run.
    depth : int, optional
        The finest grid is grid/2^depth. The default is the least depth that the method needs. For ΔZ and areas it is 0.
        For level 3 of the log-signature it is the smallest d with 2^d ≥ grid^{−½}.
    correlation : array_like, shape (M, M), optional
        The correlation matrix of the motions. The default is the identity. Every method keeps its orders.
    twin : bool, default False
        The antithetic twin of the path, for runs with dt = grid/2: the increments of the two halves of every interval
        of the grid are exchanged.

    Raises
    ------
    ValueError
        In a run whose dt is neither a multiple nor a dyadic fraction of `grid`, or if dt ≠ grid/2 for a twin.
    """

    key: random.Key
    grid: float | None = eqx.field(static=True)
    depth: int | None = eqx.field(static=True)
    correlation: tuple[tuple[float, ...], ...] | None = eqx.field(static=True)
    twin: bool = eqx.field(static=True)

    def __init__(
        self,
        key: Any = 0,
        grid: float | None = None,
        depth: int | None = None,
        correlation: Any = None,
        twin: bool = False,
    ):
        self.key = random.as_key(key)
        self.twin = bool(twin)
        self.grid = None if grid is None else validation.positive("grid", grid)
        self.depth = check_depth(depth)
        self.correlation = checked_correlation(correlation)

    @staticmethod
    def of_key(key: Any) -> "Brownian":
        """`Brownian(key)`, without the checks of Equinox."""
        return made(Brownian, key=random.as_key(key), grid=None, depth=None, correlation=None, twin=False)

    def effective_order(self, order: float, strong: float) -> PathOrder:
        """The strong order."""
        return PathOrder(strong)

    def check(self, n_noise: int, steps: int, dt: float, needs: Needs = Needs()) -> None:
        """Raise if dt is neither a multiple nor a dyadic fraction of the grid, or the path is not fine enough."""
        check_grid("Brownian", self.grid, self.depth, steps, dt, needs)
        if self.twin and (levels(self.grid, dt)[1] != 1 or needs.integrals or needs.halvings):
            raise ValueError(
                "twin=True exchanges the increments of the two halves of a grid interval: it needs dt = grid/2 and a "
                f"method of increments alone, such as TMK(), but dt = {dt:g} and grid = {self.grid or dt:g}."
            )

    def mixing(self, n_noise: int) -> Any:
        """L, from the correlation matrix."""
        return mixing_of(self.correlation, n_noise)

    def blocks(self, n_noise: int) -> int:
        """The number of blocks that a window should contain: any."""
        return 2**30

    def window(self, n_noise: int, dt: float, first: int, blocks: int, needs: Needs = Needs()) -> "BrownianWindow":
        """The window. It contains no data, so it is the same for all blocks."""
        m, level = levels(self.grid, dt)
        grid = self.grid or dt
        traced: Any = (
            None if self.grid is None or level or needs.halvings else np.asarray(m)
        )  # any multiple, one program
        depth = self.depth
        if depth is None:
            depth = max(0, int(np.ceil(np.log2(grid**-0.5)))) if needs.third else 0
        below = max(depth - level, 0) if needs.integrals else 0
        below = max(below, needs.halvings)
        modes = mode_count(n_noise, grid / 2.0 ** (level + below)) if needs.areas or needs.third else 0
        h: Any = np.asarray(grid)  # numbers of NumPy's: JAX's would cost a short run its time
        counted: Any = (np.asarray(modes), np.asarray(_tail(modes)))
        return BrownianWindow(
            self.key,
            h,
            n_noise,
            traced,
            level,
            needs,
            below,
            *counted,
            twin=self.twin,
        )


def mode_count(n_noise: int, h: float) -> int:
    """The number of Fourier modes for Lévy areas over a time h with an rms error of at most AREA_ERROR h^{3/2}.

    With p modes, and Gaussian variables for the others, the error is at most √(M/12) h/(π p) (Mrongowius and Rößler).
    """
    return max(1, int(np.ceil(np.sqrt(n_noise / 12.0) / (np.pi * AREA_ERROR * np.sqrt(h)))))


def mean_third(x: Float[Array, "*n M"], h: Float[Array, ""] | float) -> Float[Array, "*n M M M"]:
    """The mean of level 3 of the log-signature over a time h, given the increment x: (h/12) Σ_i [e_i,[e_i, x]].

    It is the only element of the free Lie algebra that is linear in x and rotates with it. The factor follows from
    Fawcett's E exp(x + A + ℓ) = exp((h/2) Σ_i e_i⊗e_i) at level 4.
    """
    one = jnp.eye(x.shape[-1])
    first, middle, last = (jnp.expand_dims(x, at) for at in ((-1, -2), (-1, -3), (-2, -3)))
    return (h / 12.0) * (one[:, :, None] * last - 2.0 * one[:, None, :] * middle + one * first)


@lru_cache(256)
def _tail(p: int) -> float:
    """Σ_{r>p} 1/r²."""
    return float(np.pi**2 / 6 - np.sum(1.0 / np.arange(1, p + 1) ** 2.0))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class BrownianWindow(Window):
    """Increments of Brownian motion: base normals, summed (m, unless None) or bridged (level), and their integrals.

    Integrals are sampled `below` levels below the step. There an interval of length h with increment D has

        ΔZ = (h/2)(D + a),   A_ij = ½(a_i D_j − a_j D_i) + (h/2π) Σ_r (1/r)(X_ir Y_jr − Y_ir X_jr),

    with X_r, Y_r the normals of the bridge's Fourier series and a = −(√(2h)/π) Σ_r X_r/r (Kloeden and Platen, 5.8). To
    make ΔZ independent of the number p of modes, a is drawn first, and then X_1 … X_p given a. With X′ and a′ drawn
    independently, X_r = X′_r + k_r (a − a′) and k_r = −3√2/(π r √h). The modes above p are replaced by independent
    normals of the same variance (Mrongowius and Rößler 2022, after Wiktorsson 2001).
    """  # fmt: skip

    key: random.Key
    h: Float[Array, ""]
    n_noise: int = field(metadata={"static": True})
    m: Int[Array, ""] | None
    level: int = field(metadata={"static": True})
    needs: Needs = field(metadata={"static": True})
    below: int = field(metadata={"static": True})
    modes: Int[Array, ""]
    tail: Float[Array, ""]  # Σ_{r>p} 1/r²
    twin: bool = field(default=False, metadata={"static": True})

    @property
    def unit(self) -> int:
        """Normals come in pairs."""
        return 2

    @property
    def subgrid(self) -> bool:
        """Whether there is more to draw than increments of the base grid."""
        return bool(self.level or self.needs.integrals)

    def step_shape(self) -> Increment:
        """Shapes and types of the increments of one step, without tracing the path if they are plain."""
        if self.needs.integrals or self.needs.halvings:
            return super().step_shape()
        like = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.float64)
        signs: Any = like(self.needs.signs) if self.needs.signs else None
        S: Any = like(self.n_noise)
        return Increment(S, like(), signs=signs)  # type: ignore[arg-type]

    def block(self, member: Int[Array, ""], b: Int[Array, ""]) -> Increment:
        """The increments of block b."""
        return self.steps(member, jnp.asarray(b, jnp.int64) * BLOCK, BLOCK)

    def steps(self, member: Int[Array, ""], first: Int[Array, ""], count: int) -> Increment:
        """The increments of steps first … first + count − 1 only."""
        key = random.member_key(self.key, random.PATH, member)
        dt = self.h * (1 if self.m is None else self.m) / 2.0**self.level
        bound = truncation_bound(dt / 2.0**self.needs.halvings)
        if self.needs.integrals or self.needs.halvings:
            out = self._with_integrals(key, first, count)
        else:
            out = Increment(self._increments(key, first, count), bound)
        signs = self._signs(key, first + jnp.arange(count))
        return Increment(out.S, jnp.broadcast_to(bound, out.S.shape[:-1]), out.Z, out.areas, out.third, signs)

    def _signs(self, key: random.Key, n: Int[Array, " steps"]) -> Float[Array, "*steps K"] | None:
        """The Rademacher variables of steps n; with halvings, of each part of a step."""
        if not self.needs.signs:
            return None
        parts = 2**self.needs.halvings
        n = n[:, None] * parts + jnp.arange(parts) if self.needs.halvings else n
        return random.signs(random.channel_keys(key, self.level, _SIGN + np.arange(self.needs.signs)), n)

    def pair(self, member: Int[Array, ""], k: Int[Array, ""], channels: Any = None) -> Increment:
        """Two increments, of the base grid or of sums over it, of all motions or of those numbered `channels`."""
        if self.level or self.needs.integrals or self.needs.halvings:
            raise NotImplementedError
        channels = jnp.arange(self.n_noise) if channels is None else channels
        key = random.member_key(self.key, random.PATH, member)
        m = 1 if self.m is None else self.m

        # As in `_summed`: pair j of the m pairs of base steps.
        def body(j, total):
            first, second = random.normals(key, 0, channels, 2 * (k * m + j), 2)
            for q, x in ((2 * j, first), (2 * j + 1, second)):
                total = total + jnp.where((q // m == jnp.arange(2))[:, None], x, 0.0)
            return total

        zero = jnp.zeros((2, len(channels)))
        S = jnp.sqrt(self.h) * (body(0, zero) if self.m is None else jax.lax.fori_loop(0, m, body, zero))
        signs = self._signs(key, 2 * k + jnp.arange(2))
        return Increment(S, jnp.broadcast_to(truncation_bound(self.h * m), (2,)), signs=signs)

    def _increments(self, key: random.Key, first: Int[Array, ""], count: int) -> Float[Array, "steps M"]:
        return self._summed(key, first, count) if self.level == 0 else self._bridged(key, first, count)

    def _summed(self, key: random.Key, first: Int[Array, ""], count: int) -> Float[Array, "steps M"]:
        m = self.m
        if m is None:
            return jnp.sqrt(self.h) * random.many_normals(key, 0, self.n_noise, first, count)

        # Base steps in order; base step q belongs to step q // m.
        def body(j, total):
            steps = (j * count + jnp.arange(count)) // m
            return total.at[steps].add(random.normals(key, 0, self.n_noise, first * m + j * count, count))

        zero = jnp.zeros((count, self.n_noise))
        return jnp.sqrt(self.h) * jax.lax.fori_loop(0, m, body, zero)

    def _bridged(self, key: random.Key, first: Int[Array, ""], count: int) -> Float[Array, "steps M"]:
        """W over [0, h] has increment D; over its halves D/2 ± (√h/2) Z, and so on down the levels."""
        n = first + jnp.arange(count)

        def normals(level, j):
            """Normals with indices j, those of steps halved at least once: half as many, within one aligned run."""
            start = (j[0] // 2) * 2
            return random.normals(key, level, self.n_noise, start, max(count // 2, 2))[j - start]

        D = jnp.sqrt(self.h) * normals(0, n >> self.level)
        for level in range(1, self.level + 1):
            parent = n >> (self.level - level + 1)
            second = ((n >> (self.level - level)) & 1)[:, None]
            half = 0.5 * jnp.sqrt(self.h / 2.0 ** (level - 1)) * normals(level, parent)
            half = -half if self.twin else half
            D = 0.5 * D + jnp.where(second == 1, -half, half)
        return D

    def _with_integrals(self, key: random.Key, first: Int[Array, ""], count: int) -> Increment:
        """Increments and integrals of each step."""
        n = first + jnp.arange(count)
        m = self.m
        if m is None:
            return self._refined(key, self._increments(key, first, count), n, True)

        def body(j, total):
            cell = n * m + j
            channels = random.channel_keys(key, 0, np.arange(self.n_noise))
            D = jnp.sqrt(self.h) * random.Numbers(cell, False).normals(channels)
            return joined(total, self._refined(key, D, cell, False), self.h)

        shapes = jax.eval_shape(lambda: self._refined(key, jnp.zeros((count, self.n_noise)), n, False))
        return jax.lax.fori_loop(0, m, body, jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes))

    def _refined(self, key: random.Key, D: Float[Array, "steps M"], n: Int[Array, " steps"], paired: bool) -> Increment:
        """Intervals n of the step's level, with increments D: bridges, and integrals combined from the finest grid.

        `paired`: n is a sequence of pairs (even, even + 1).
        """
        M, finest = self.n_noise, self.level + self.below
        x = D[:, None]
        for level in range(self.level + 1, finest + 1):
            parents = n[:, None] * x.shape[1] + jnp.arange(x.shape[1])
            normals = random.Numbers(parents, paired).normals(random.channel_keys(key, level, np.arange(M)))
            half = 0.5 * jnp.sqrt(self.h / 2.0 ** (level - 1)) * normals
            x = jnp.stack([0.5 * x + half, 0.5 * x - half], axis=2).reshape(x.shape[0], -1, M)
            paired = True
        cells = n[:, None] * x.shape[1] + jnp.arange(x.shape[1])
        h = self.h / 2.0**finest
        out = self._integrals(key, x, random.Numbers(cells, paired), h)
        while out.S.shape[1] > 2**self.needs.halvings:
            out = joined(jax.tree.map(lambda a: a[:, ::2], out), jax.tree.map(lambda a: a[:, 1::2], out), h)
            h = 2.0 * h
        return out if self.needs.halvings else jax.tree.map(lambda a: a[:, 0], out)

    def _integrals(
        self, key: random.Key, x: Float[Array, "steps q M"], cells: random.Numbers, h: Float[Array, ""]
    ) -> Increment:
        """ΔZ and areas of intervals `cells` of the finest grid, of length h and increments x; level 3 in the mean."""
        M, needs, finest = self.n_noise, self.needs, self.level + self.below
        bound = jnp.zeros(x.shape[:-1])
        if not needs.integrals:
            return Increment(x, bound)
        areas = needs.areas or needs.third
        pairs = np.argwhere(np.tri(M, k=-1))[:, ::-1] if areas else np.empty((0, 2), int)  # a number for each i < j
        channels = [_MEAN + np.arange(M)]
        if areas:
            channels += [_MEAN_TAIL + np.arange(M), _AREA_TAIL + np.arange(len(pairs))]
        normals = cells.normals(random.channel_keys(key, finest, np.concatenate(channels)))
        a = jnp.sqrt(h / 3.0) * normals[..., :M]
        Z = 0.5 * h * (x + a) if needs.Z else None
        if not areas:
            return Increment(x, bound, Z)
        X_r, Y_r2, XY_r = self._modes(key, cells, finest)
        free = -jnp.sqrt(2.0 * h) / np.pi * (X_r + jnp.sqrt(self.tail) * normals[..., M : 2 * M])  # a′
        k = -3.0 * np.sqrt(2.0) / (np.pi * jnp.sqrt(h))
        G = jnp.zeros((*x.shape, M)).at[..., pairs[:, 0], pairs[:, 1]].set(normals[..., 2 * M :])
        XY_r = XY_r + k * commutator(a - free, Y_r2) + jnp.sqrt(2.0 * self.tail) * (G - jnp.swapaxes(G, -1, -2))
        A = 0.5 * commutator(a, x) + h / (2.0 * np.pi) * XY_r
        return Increment(x, bound, Z, A, mean_third(x, h) if needs.third else None)

    def _modes(self, key: random.Key, cells: random.Numbers, finest: int) -> tuple[Array, Array, Array]:
        """Σ_{r≤p} X′_r/r, Σ Y_r/r² and Σ (1/r)(X′_r⊗Y_r − Y_r⊗X′_r)."""
        M = self.n_noise
        channels = np.concatenate([_COSINE + np.arange(M), _SINE + np.arange(M)])

        def mode(r, state):
            # Mode r is added while the numbers of the next three are in the making; see `Numbers`.
            keys, uniforms, normals, (X_r, Y_r2, XY_r) = state
            XY = cells.choose(*normals)
            X, Y = XY[..., :M], XY[..., M:]
            weight = jnp.where(r > 0, 1.0 / jnp.maximum(r, 1), 0.0)  # before mode 1 all numbers are 0
            sums = X_r + weight * X, Y_r2 + weight**2 * Y, XY_r + weight * commutator(X, Y)
            ahead = random.channel_keys(key, finest + _MODES * (r + 3), channels)
            return ahead, cells.uniforms(keys), cells.box_muller(*uniforms), sums

        ahead = jax.eval_shape(lambda: random.channel_keys(key, 0, channels))
        uniforms = jax.eval_shape(cells.uniforms, ahead)
        normals = jax.eval_shape(cells.box_muller, *uniforms)
        sums = (jnp.zeros((*cells.n.shape, M)),) * 2 + (jnp.zeros((*cells.n.shape, M, M)),)
        zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), (ahead, uniforms, normals))
        return jax.lax.fori_loop(-2, self.modes + 1, mode, (*zeros, sums))[3]
