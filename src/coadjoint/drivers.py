"""Drivers: what the path that drives a system does in each step."""

import abc
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .numerics import checks, random

BLOCK = 32  # increments are drawn in blocks of this many steps, aligned to multiples of it
AREA_ERROR = 0.25  # C: a Lévy area over a time h is sampled with an rms error of at most C h^{3/2}

# The stream beside the increments (docs/random.md): level ℓ + 256 r for Fourier mode r, channels from these on.
_MODES = 256
_MEAN, _COSINE, _SINE, _MEAN_TAIL, _AREA_TAIL = (k << 24 for k in range(1, 6))


@dataclass(frozen=True)
class Needs:
    """What a method asks of the path beside the increments ΔS: fields of `Increment`, and how often to halve a step."""

    Z: bool = False
    areas: bool = False
    third: bool = False  # and the areas with it
    halvings: int = 0  # the path in each of 2^halvings equal parts of the step, along an axis of its own

    @property
    def integrals(self) -> bool:
        """Whether anything but increments is asked for."""
        return self.Z or self.areas or self.third


class Increment(eqx.Module):
    """What the path did in one step (or, with leading axes, in each of many).

    - `S`: ΔS^i = S^i(t_{n+1}) − S^i(t_n).
    - `bound`: where an implicit method with nonlinear noise may truncate ΔS so that its equation has a root (Milstein
      and Tretyakov): infinite for a path that was given.

    What a method asked for, else None, with S^i counted from the start of the step:

    - `Z`: ΔZ^i = ∫ S^i dt.
    - `areas`: A_ij = ½ ∫ (S^i dS^j − S^j dS^i).
    - `third`: level 3 of the log-signature, Σ ℓ_ijk e_i⊗e_j⊗e_k, an element of the free Lie algebra.
    """

    S: Float[Array, "*steps M"]
    bound: Float[Array, "*steps"]
    Z: Float[Array, "*steps M"] | None = None
    areas: Float[Array, "*steps M M"] | None = None
    third: Float[Array, "*steps M M M"] | None = None


def truncation_bound(dt: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """√(4 dt |ln dt|), which a Brownian increment exceeds with a probability of order dt²."""
    return jnp.sqrt(4.0 * dt * jnp.maximum(jnp.abs(jnp.log(dt)), 1.0))


def joined(a: Increment, b: Increment, h: Float[Array, ""] | float) -> Increment:
    """One stretch of a path after another, the second of length h: Chen's relation, for logarithms.

        ΔS = x + y,   ΔZ = Z_x + Z_y + h x,   A = A_x + A_y + ½[x, y],
        ℓ = ℓ_x + ℓ_y + ½([x, A_y] + [A_x, y]) + (1/12)([x,[x, y]] + [y,[y, x]]),   [u, v] = u⊗v − v⊗u.
    """  # fmt: skip
    x, y = a.S, b.S
    Z = areas = third = None
    if a.Z is not None and b.Z is not None:
        Z = a.Z + b.Z + h * x
    if a.areas is not None and b.areas is not None:
        xy = _commutator(x, y)
        areas = a.areas + b.areas + 0.5 * xy
        if a.third is not None and b.third is not None:
            third = _commutator(x, 0.5 * b.areas + xy / 12.0) - _commutator(y, 0.5 * a.areas + xy / 12.0)
            third = a.third + b.third + third
    return Increment(x + y, a.bound, Z, areas, third)


def _commutator(u: Float[Array, "*n M"], v: Float[Array, "..."]) -> Float[Array, "..."]:
    """u⊗v − v⊗u for a vector u and a tensor v of level 1 or 2."""
    if v.ndim == u.ndim:
        return u[..., :, None] * v[..., None, :] - v[..., :, None] * u[..., None, :]
    return u[..., :, None, None] * v[..., None, :, :] - v[..., :, :, None] * u[..., None, None, :]


class Window(eqx.Module):
    """A stretch of the path, ready for compiled code: gives the increments of block b, steps 32 b … 32 b + 31."""

    @abc.abstractmethod
    def block(self, member: Int[Array, ""], b: Int[Array, ""]) -> Increment:
        """The increments of block b for one member of an ensemble."""

    def pair(self, member: Int[Array, ""], k: Int[Array, ""]) -> Increment:
        """The increments of steps 2k and 2k + 1, where that is no more work than a part of a block; else it raises."""
        raise NotImplementedError


class Driver(eqx.Module):
    """The path that drives a system."""

    @abc.abstractmethod
    def check(self, n_noise: int, steps: int, dt: float, needs: Needs = Needs()) -> None:
        """Raise if the path does not fit the run, or has not what the method needs."""

    @abc.abstractmethod
    def window(self, n_noise: int, dt: float, first: int, blocks: int, needs: Needs = Needs()) -> Window:
        """The window on blocks first … first + blocks − 1."""

    def blocks(self, n_noise: int) -> int:
        """How many blocks a window should hold."""
        return max(1, min(1024, 2**18 // (BLOCK * max(n_noise, 1))))


class Brownian(Driver):
    """Independent Brownian motions from a key.

    The increment of member k over step n of the base grid depends on (key, k, n) alone. The base grid is the step of
    the run, or `grid` if it is given. A run with dt = m·grid sums m increments of the base grid; a run with
    dt = grid/2^L refines it by Brownian bridges. So two runs share one path exactly when they have the same key and
    the same `grid`, and step sizes that are whole multiples or dyadic fractions of it.

    What some methods need besides (ΔZ, Lévy areas, the log-signature) is sampled on the finest grid of the path,
    grid/2^depth, and put together from there by Chen's relation. So two runs share these too when they have the same
    `depth`, and steps of at least grid/2^depth. By default `depth` is the least that a method needs: 0, but for the
    level 3 of the log-signature 2^depth ≥ grid^{−½}, and never less than the step.
    """

    key: random.Key
    grid: float | None = eqx.field(static=True)
    depth: int | None = eqx.field(static=True)

    def __init__(self, key: Any = 0, grid: float | None = None, depth: int | None = None):
        self.key = random.as_key(key)
        self.grid = None if grid is None else checks.positive("grid", grid)
        self.depth = None if depth is None else checks.count("depth", depth, least=0)
        if self.depth is not None and self.depth > 40:
            raise ValueError(f"depth must be at most 40, not {depth}.")

    def check(self, n_noise: int, steps: int, dt: float, needs: Needs = Needs()) -> None:
        """Raise if dt is neither a multiple nor a dyadic fraction of the grid, or the path is not fine enough."""
        m, level = self._levels(dt)
        if steps >= 2**62:
            raise ValueError(f"a run has at most 2^62 steps, not {steps}.")
        if needs.halvings and m > 1:
            raise ValueError(
                f"steps are halved from the grid down, so dt must be grid/2^k, k ≥ 0, but dt = {dt:g} is {m} times "
                f"grid = {self.grid:g}: take grid = {dt:g}."
            )
        below = level + needs.halvings
        if needs.integrals and self.depth is not None and self.depth < below:
            raise ValueError(
                "the method needs integrals of the path, which are sampled on its finest grid, "
                f"grid/2^depth = {(self.grid or dt) / 2**self.depth:g}, but its smallest step is "
                f"{dt / 2**needs.halvings:g}: give Brownian(..., depth={below})."
            )

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

    def blocks(self, n_noise: int) -> int:
        """As many as one likes."""
        return 2**30

    def window(self, n_noise: int, dt: float, first: int, blocks: int, needs: Needs = Needs()) -> "BrownianWindow":
        """The window; it needs no data, so it is the same for all blocks."""
        m, level = self._levels(dt)
        grid = self.grid or dt
        traced = None if self.grid is None or level or needs.halvings else jnp.asarray(m)  # any multiple, one program
        depth = self.depth
        if depth is None:
            depth = max(0, int(np.ceil(np.log2(grid**-0.5)))) if needs.third else 0
        below = max(depth - level, 0) if needs.integrals else 0
        below = max(below, needs.halvings)
        modes = mode_count(n_noise, grid / 2.0 ** (level + below)) if needs.areas or needs.third else 0
        return BrownianWindow(
            self.key,
            jnp.asarray(grid),
            n_noise,
            traced,
            level,
            needs,
            below,
            jnp.asarray(modes),
            jnp.asarray(_tail(modes)),
        )


def mode_count(n_noise: int, h: float) -> int:
    """How many Fourier modes give Lévy areas over a time h with an rms error of at most AREA_ERROR h^{3/2}.

    With p modes, and Gaussian variables for the others, the error is at most √(M/12) h/(π p) (Mrongowius and Rößler).
    """
    return max(1, int(np.ceil(np.sqrt(n_noise / 12.0) / (np.pi * AREA_ERROR * np.sqrt(h)))))


def _tail(p: int) -> float:
    """Σ_{r>p} 1/r²."""
    return float(np.pi**2 / 6 - np.sum(1.0 / np.arange(1, p + 1) ** 2.0))


class BrownianWindow(Window):
    """Increments of Brownian motion: base normals, summed (m, unless None) or bridged (level), and their integrals.

    Integrals are sampled `below` levels below the step, where an interval of length h with increment D has

        ΔZ = (h/2)(D + a),   A_ij = ½(a_i D_j − a_j D_i) + (h/2π) Σ_r (1/r)(X_ir Y_jr − Y_ir X_jr),

    with X_r, Y_r the normals of the bridge's Fourier series and a = −(√(2h)/π) Σ_r X_r/r (Kloeden and Platen, 5.8). So
    that ΔZ does not depend on the number p of modes, a is drawn first, and X_1 … X_p given a: from X′, a′ drawn freely
    X_r = X′_r + k_r (a − a′), k_r = −3√2/(π r √h). The modes above p are replaced by independent normals of the same
    variance (Mrongowius and Rößler 2022, after Wiktorsson 2001).
    """  # fmt: skip

    key: random.Key
    h: Float[Array, ""]
    n_noise: int = eqx.field(static=True)
    m: Int[Array, ""] | None
    level: int = eqx.field(static=True)
    needs: Needs = eqx.field(static=True)
    below: int = eqx.field(static=True)
    modes: Int[Array, ""]
    tail: Float[Array, ""]  # Σ_{r>p} 1/r²

    def block(self, member: Int[Array, ""], b: Int[Array, ""]) -> Increment:
        """The increments of block b."""
        b = jnp.asarray(b, jnp.int64)
        key = random.member_key(self.key, random.PATH, member)
        dt = self.h * (1 if self.m is None else self.m) / 2.0**self.level
        bound = truncation_bound(dt / 2.0**self.needs.halvings)
        if self.needs.integrals or self.needs.halvings:
            out = self._with_integrals(key, b)
        else:
            out = Increment(self._summed(key, b) if self.level == 0 else self._bridged(key, b), bound)
        return eqx.tree_at(lambda i: i.bound, out, jnp.broadcast_to(bound, out.S.shape[:-1]))

    def pair(self, member: Int[Array, ""], k: Int[Array, ""]) -> Increment:
        """Two increments, of the base grid or of sums over it."""
        if self.level or self.needs.integrals or self.needs.halvings:
            raise NotImplementedError
        key = random.member_key(self.key, random.PATH, member)
        m = 1 if self.m is None else self.m

        # As in `_summed`: pair j of the m pairs of base steps.
        def body(j, total):
            first, second = random.normals(key, 0, self.n_noise, 2 * (k * m + j), 2)
            for q, x in ((2 * j, first), (2 * j + 1, second)):
                total = total + jnp.where((q // m == jnp.arange(2))[:, None], x, 0.0)
            return total

        zero = jnp.zeros((2, self.n_noise))
        S = jnp.sqrt(self.h) * (body(0, zero) if self.m is None else jax.lax.fori_loop(0, m, body, zero))
        return Increment(S, jnp.broadcast_to(truncation_bound(self.h * m), (2,)))

    def _summed(self, key: random.Key, b: Int[Array, ""]) -> Float[Array, "block M"]:
        m = self.m
        if m is None:
            return jnp.sqrt(self.h) * random.normals(key, 0, self.n_noise, b * BLOCK, BLOCK)

        # Base steps of the block in order; base step q belongs to step q // m of the block.
        def body(j, total):
            steps = (j * BLOCK + jnp.arange(BLOCK)) // m
            return total.at[steps].add(random.normals(key, 0, self.n_noise, (b * m + j) * BLOCK, BLOCK))

        zero = jnp.zeros((BLOCK, self.n_noise))
        return jnp.sqrt(self.h) * jax.lax.fori_loop(0, m, body, zero)

    def _bridged(self, key: random.Key, b: Int[Array, ""]) -> Float[Array, "block M"]:
        """W over [0, h] has increment D; over its halves D/2 ± (√h/2) Z, and so on down the levels."""
        n = b * BLOCK + jnp.arange(BLOCK)

        def normals(level, j):
            """Normals with indices j (nondecreasing, within one aligned run of BLOCK)."""
            start = (j[0] // 2) * 2
            return random.normals(key, level, self.n_noise, start, BLOCK + 2)[j - start]

        D = jnp.sqrt(self.h) * normals(0, n >> self.level)
        for level in range(1, self.level + 1):
            parent = n >> (self.level - level + 1)
            second = ((n >> (self.level - level)) & 1)[:, None]
            half = 0.5 * jnp.sqrt(self.h / 2.0 ** (level - 1)) * normals(level, parent)
            D = 0.5 * D + jnp.where(second == 1, -half, half)
        return D

    def _with_integrals(self, key: random.Key, b: Int[Array, ""]) -> Increment:
        """Increments and integrals of each step of the block."""
        n = b * BLOCK + jnp.arange(BLOCK)
        m = self.m
        if m is None:
            D = self._summed(key, b) if self.level == 0 else self._bridged(key, b)
            return self._refined(key, D, n, True)

        def body(j, total):
            cell = n * m + j
            channels = random.channel_keys(key, 0, np.arange(self.n_noise))
            D = jnp.sqrt(self.h) * random.Numbers(cell, False).normals(channels)
            return joined(total, self._refined(key, D, cell, False), self.h)

        shapes = jax.eval_shape(lambda: self._refined(key, jnp.zeros((BLOCK, self.n_noise)), n, False))
        return jax.lax.fori_loop(0, m, body, jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes))

    def _refined(self, key: random.Key, D: Float[Array, "block M"], n: Int[Array, " block"], paired: bool) -> Increment:
        """Intervals n of the step's level, with increments D: bridges, integrals on the finest grid, put together.

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
        self, key: random.Key, x: Float[Array, "block q M"], cells: random.Numbers, h: Float[Array, ""]
    ) -> Increment:
        """ΔZ and areas of intervals `cells` of the finest grid, of length h and increments x; level 3 is dropped."""
        M, needs, finest = self.n_noise, self.needs, self.level + self.below
        bound = jnp.zeros(x.shape[:-1])
        if not needs.integrals:
            return Increment(x, bound)
        areas = needs.areas or needs.third
        pairs = np.array([(i, j) for j in range(M) for i in range(j)], int).reshape(-1, 2)  # a number for each i < j
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
        XY_r = XY_r + k * _commutator(a - free, Y_r2) + jnp.sqrt(2.0 * self.tail) * (G - jnp.swapaxes(G, -1, -2))
        A = 0.5 * _commutator(a, x) + h / (2.0 * np.pi) * XY_r
        return Increment(x, bound, Z, A, jnp.zeros((*x.shape, M, M)) if needs.third else None)

    def _modes(self, key: random.Key, cells: random.Numbers, finest: int) -> tuple[Array, Array, Array]:
        """Σ_{r≤p} X′_r/r, Σ Y_r/r² and Σ (1/r)(X′_r⊗Y_r − Y_r⊗X′_r)."""
        M = self.n_noise
        channels = np.concatenate([_COSINE + np.arange(M), _SINE + np.arange(M)])

        def mode(r, state):
            # Mode r is added while the numbers of the next three are in the making; see `Numbers`.
            keys, uniforms, normals, (X_r, Y_r2, XY_r) = state
            XY = cells.choose(*normals)
            X, Y = XY[..., :M], XY[..., M:]
            weight = jnp.where(r > 0, 1.0 / jnp.maximum(r, 1), 0.0)  # before mode 1 there is nothing but zeros
            sums = X_r + weight * X, Y_r2 + weight**2 * Y, XY_r + weight * _commutator(X, Y)
            ahead = random.channel_keys(key, finest + _MODES * (r + 3), channels)
            return ahead, cells.uniforms(keys), cells.box_muller(*uniforms), sums

        ahead = jax.eval_shape(lambda: random.channel_keys(key, 0, channels))
        uniforms = jax.eval_shape(cells.uniforms, ahead)
        normals = jax.eval_shape(cells.box_muller, *uniforms)
        sums = (jnp.zeros((*cells.n.shape, M)),) * 2 + (jnp.zeros((*cells.n.shape, M, M)),)
        zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), (ahead, uniforms, normals))
        return jax.lax.fori_loop(-2, self.modes + 1, mode, (*zeros, sums))[3]


class Increments(Driver):
    """A given path: dS[n, i] = S^i(t_{n+1}) − S^i(t_n), shape (steps, M); shape (steps,) when M = 1.

    Any path will do. For a semimartingale the limit is the Stratonovich solution; for paths of finite p-variation
    with p < 2 (fractional Brownian motion with H > ½, coloured noise, data) it is the Young solution.

    For methods that need them: `Z[n, i]` = ∫ (S^i − S^i(t_n)) dt over step n, shape (steps, M), and the Lévy areas
    `areas`[n, i, j] = ½ ∫ (S^i dS^j − S^j dS^i) with S counted from S(t_n), shape (steps, M, M).
    """

    dS: Float[Array | np.ndarray, "steps M"]  # on the host, unless traced
    Z: Float[Array | np.ndarray, "steps M"] | None
    areas: Float[Array | np.ndarray, "steps M M"] | None

    def __init__(self, dS: Any, Z: Any = None, areas: Any = None):
        self.dS = _given("dS", dS, 2)
        steps, M = self.dS.shape
        self.Z = None if Z is None else _given("Z", Z, 2)
        if self.Z is not None and self.Z.shape != (steps, M):
            raise ValueError(f"Z must have the shape of dS, {(steps, M)}, not {self.Z.shape}.")
        self.areas = None if areas is None else _given("areas", areas, 3)
        if self.areas is not None:
            if self.areas.shape != (steps, M, M):
                raise ValueError(f"areas must have shape (steps, M, M) = {(steps, M, M)}, not {self.areas.shape}.")
            if not checks.is_traced(self.areas):
                host = np.asarray(self.areas)
                if np.max(np.abs(host + host.swapaxes(1, 2)), initial=0.0) > 1e-12 * np.max(np.abs(host), initial=0.0):
                    raise ValueError("areas must be antisymmetric: areas[n, i, j] = −areas[n, j, i].")

    def check(self, n_noise: int, steps: int, dt: float, needs: Needs = Needs()) -> None:
        """Raise if the shape is not (steps, M), or the method needs what was not given."""
        if self.dS.shape[1] != n_noise:
            raise ValueError(f"dS must have {n_noise} columns, one a noise of the system, not {self.dS.shape[1]}.")
        if self.dS.shape[0] != steps:
            raise ValueError(f"dS must have {steps} rows, one a step of the run, not {self.dS.shape[0]}.")
        if n_noise == 0:
            return
        brownian = "or let Brownian(key) sample the path"
        if needs.Z and self.Z is None:
            raise ValueError(
                f"the method needs ΔZ = ∫ (S − S(t_n)) dt of each step: give Increments(dS, Z=...), {brownian}."
            )
        if needs.third:
            raise ValueError(
                f"the method needs the log-signature to level 3, which only Brownian(key) gives: {_OTHERS}."
            )
        if needs.areas and self.areas is None:
            raise ValueError(
                f"the method needs the Lévy areas of each step: give Increments(dS, areas=...), {brownian}."
            )
        if needs.halvings:
            raise ValueError(
                "the method halves steps, and given increments cannot be halved: let Brownian(key) sample."
            )

    def window(self, n_noise: int, dt: float, first: int, blocks: int, needs: Needs = Needs()) -> "GivenWindow":
        """The rows of the given blocks, padded with zeros."""
        steps = self.dS.shape[0]
        M, parts = n_noise, (2**needs.halvings,) if needs.halvings else ()

        def cut(x, asked, shape):
            if not asked:
                return None
            if x is None or parts:  # only without noise, where there is nothing to give
                x = np.zeros((steps, *parts, *shape))
            rows = x[first * BLOCK : (first + blocks) * BLOCK]
            pad = jnp.pad if checks.is_traced(rows) else np.pad  # NumPy compiles nothing for a new length
            rows = pad(rows, [(0, blocks * BLOCK - rows.shape[0])] + [(0, 0)] * (rows.ndim - 1))
            return jnp.asarray(rows.reshape(blocks, BLOCK, *rows.shape[1:]))

        rows = Increment(
            cut(self.dS, True, (M,)),  # pyright: ignore[reportArgumentType]
            jnp.full((blocks, BLOCK, *parts), jnp.inf),
            cut(self.Z, needs.Z, (M,)),
            cut(self.areas, needs.areas or needs.third, (M, M)),
            cut(None, needs.third, (M, M, M)),
        )
        return GivenWindow(rows, jnp.asarray(first))


_OTHERS = "take that driver, or a method that needs less, such as TMKLevy()"


def _given(name: str, value: Any, ndim: int) -> Array | np.ndarray:
    """A given array of real numbers along steps; without the axis of noises when there is one noise."""
    array = value if isinstance(value, jax.Array) else np.asarray(value)
    if array.dtype.kind not in "fiu":
        raise TypeError(f"{name} must be an array of real numbers, not of type {array.dtype}.")
    if array.ndim == 1:
        array = array.reshape(-1, *(1,) * (ndim - 1))
    if array.ndim != ndim:
        raise ValueError(f"{name} must have shape {'(steps, M)' if ndim == 2 else '(steps, M, M)'}, not {array.shape}.")
    if not checks.is_traced(array) and not np.all(np.isfinite(np.asarray(array))):
        at = tuple(int(i) for i in np.argwhere(~np.isfinite(np.asarray(array)))[0])
        raise ValueError(f"{name} must be finite: {name}{list(at)} is {np.asarray(array)[at]}.")
    return jnp.asarray(array, jnp.float64) if checks.is_traced(array) else np.array(array, np.float64)


class GivenWindow(Window):
    """Rows of a given path, with leading axes (blocks, block)."""

    rows: Increment
    first: Int[Array, ""]

    def block(self, member: Int[Array, ""], b: Int[Array, ""]) -> Increment:
        """The increments of block b: the same path for every member."""
        return jax.tree.map(lambda x: x[b - self.first], self.rows)


class SampledPaths(Driver):
    """Paths sampled beforehand, one a member, for runs that share them: leading axes (members, blocks, block).

    There may be more blocks than a run needs, so that runs of different lengths share one compiled program.
    """

    rows: Increment
    steps: int = eqx.field(static=True)

    def check(self, n_noise: int, steps: int, dt: float, needs: Needs = Needs()) -> None:
        """Raise if the paths are of another length."""
        if steps != self.steps:
            raise ValueError(f"the paths have {self.steps} steps, not {steps}.")

    def window(self, n_noise: int, dt: float, first: int, blocks: int, needs: Needs = Needs()) -> "SampledWindow":
        """All there is of what is needed."""
        r = self.rows
        areas = needs.areas or needs.third
        rows = Increment(
            r.S, r.bound, r.Z if needs.Z else None, r.areas if areas else None, r.third if needs.third else None
        )
        return SampledWindow(rows)


class SampledWindow(Window):
    """Rows of sampled paths."""

    rows: Increment

    def block(self, member: Int[Array, ""], b: Int[Array, ""]) -> Increment:
        """The increments of block b of one member."""
        return jax.tree.map(lambda x: x[member, b], self.rows)
