"""Channels of different drivers side by side."""

from dataclasses import dataclass, field, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from ..numerics import random, validation
from .base import BLOCK, Driver, Increment, Needs, PathOrder, Window
from .brownian import Brownian
from .given import Increments
from .jumps import MOST, Jumps, capacity, check_method, in_order

_BRIDGE = 14 << 24  # first channel of the random stream


class Joined(Driver):
    """The result of `join`."""

    parts: tuple[Driver, ...]
    channels: tuple[int, ...] = eqx.field(static=True)

    def _each(self):
        ends = np.cumsum([0, *self.channels])
        return [(p, c, slice(a, b)) for p, c, a, b in zip(self.parts, self.channels, ends[:-1], ends[1:], strict=True)]

    def check_channels(self, n_noise: int) -> None:
        """Raise if the number of channels differs."""
        if sum(self.channels) != n_noise:
            listed = " + ".join(f"{type(p).__name__}: {c}" for p, c in zip(self.parts, self.channels, strict=True))
            raise ValueError(
                f"the joined drivers have {sum(self.channels)} channels ({listed}), but the system has {n_noise}."
            )

    def check(self, n_noise: int, steps: int, dt: float, needs: Needs = Needs()) -> None:
        """Raise if the number of channels differs, or if a part does not fit."""
        if needs.areas or needs.third or needs.signs or needs.brownian:
            raise ValueError(
                "the method needs Lévy areas or other terms that hold for Brownian motion in all channels, but the "
                "driver joins several: take TMK(), or Brownian(key) alone."
            )
        if self.jump_tolerance() is not None:
            check_method("Jumps", needs)
            mean = sum(p.rate for p in self.parts if isinstance(p, Jumps)) * dt
            if capacity(mean) > MOST:
                raise ValueError(f"{mean:.3g} jumps per step are too many: the mean may be at most about 20.")
        for part, count, _ in self._each():
            part.check(count, steps, dt, needs)

    def effective_order(self, order: float, strong: float) -> PathOrder:
        """The lowest one of the parts."""
        found = [part.effective_order(order, strong) for part in self.parts]
        return min(found, key=lambda x: -1.0 if x.order is None else x.order)

    def check_members(self, members: int | None) -> None:
        """Raise if a part has paths of another number of members."""
        for part in self.parts:
            part.check_members(members)

    def mixing(self, n_noise: int) -> Any:
        """L, block by block."""
        blocks = [part.mixing(count) for part, count, _ in self._each()]
        if all(b is None for b in blocks):
            return None
        out = np.eye(n_noise)
        for b, (_, _, own) in zip(blocks, self._each(), strict=True):
            if b is not None:
                out[own, own] = b
        return out

    def bound(self, n_noise: int) -> "Joined":
        """Part by part."""
        self.check_channels(n_noise)
        return Joined(tuple(part.bound(count) for part, count, _ in self._each()), self.channels)

    @property
    def rough(self) -> bool:
        """Whether a part is."""
        return any(part.rough for part in self.parts)

    def jump_tolerance(self) -> float | None:
        """The least of the parts with jumps."""
        found = [tol for part in self.parts if (tol := part.jump_tolerance()) is not None]
        return min(found, default=None)

    def blocks(self, n_noise: int) -> int:
        """The fewest of the parts."""
        return min(part.blocks(count) for part, count, _ in self._each())

    def window(self, n_noise: int, dt: float, first: int, blocks: int, needs: Needs = Needs()) -> "JoinedWindow":
        """The windows of the parts."""
        windows = tuple(part.window(count, dt, first, blocks, needs) for part, count, _ in self._each())
        mean = sum(p.rate for p in self.parts if isinstance(p, Jumps)) * dt
        brownian = tuple(isinstance(part, Brownian) for part in self.parts)
        keys = [p.key for p in self.parts if isinstance(p, Jumps)]
        space = capacity(mean) if keys else 0
        return JoinedWindow(windows, self.channels, brownian, space, keys[0] if keys and any(brownian) else None)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class JoinedWindow(Window):
    """The windows of the parts of a joined driver."""

    windows: tuple[Window, ...]
    channels: tuple[int, ...] = field(metadata={"static": True})
    brownian: tuple[bool, ...] = field(metadata={"static": True})
    space: int = field(metadata={"static": True})  # for jumps in a step
    key: random.Key | None  # of the normals that divide Brownian increments at jumps

    @property
    def unit(self) -> int:
        """The largest of the parts, if native code draws all of them."""
        units = [w.unit for w in self.windows]
        return max(units) if all(units) and not self.space else 0

    @property
    def subgrid(self) -> bool:
        """Native code draws by `steps`."""
        return True

    def block(self, member: Int[Array, ""], b: Int[Array, ""]) -> Increment:
        """The increments of block b."""
        parts = [w.block(member, b) for w in self.windows]
        return self._joined(parts, member, jnp.asarray(b, jnp.int64) * BLOCK, BLOCK)

    def steps(self, member: Int[Array, ""], first: Int[Array, ""], count: int) -> Increment:
        """The increments of steps first … first + count − 1 only."""
        return self._joined([w.steps(member, first, count) for w in self.windows], member, first, count)

    def pair(self, member: Int[Array, ""], k: Int[Array, ""]) -> Increment:
        """The increments of steps 2k and 2k + 1."""
        return self._joined([w.pair(member, k) for w in self.windows], member, 2 * k, 2)

    def _joined(self, parts: list[Increment], member: Array, first: Array, count: int) -> Increment:
        S = jnp.concatenate([p.S for p in parts], axis=-1)
        bound = jnp.concatenate([jnp.broadcast_to(p.bound[..., None], p.S.shape) for p in parts], axis=-1)
        given = [p.Z for p in parts]
        Z = None if any(z is None for z in given) else jnp.concatenate(given, axis=-1)  # type: ignore[arg-type]
        out = Increment(S, bound, Z)
        return replace(out, jumps=self._jumps(parts, member, first, count)) if self.space else out

    def _jumps(self, parts: list[Increment], member: Array, first: Array, count: int) -> Any:
        """The jumps of all parts in the order of time, and normals for Brownian channels."""
        M, ends = sum(self.channels), np.cumsum([0, *self.channels])
        times, sizes = [], []
        for p, a in zip(parts, ends[:-1], strict=True):
            if p.jumps is not None:
                x = p.jumps.sizes
                wide = jnp.zeros((*x.shape[:-1], M)).at[..., a : a + x.shape[-1]].set(x)
                times, sizes = [*times, p.jumps.times], [*sizes, wide]
        rows = jax.vmap(lambda t, x: in_order(t, x, self.space))(jnp.concatenate(times, 1), jnp.concatenate(sizes, 1))
        if self.key is None:
            return rows
        mask = np.repeat(np.asarray(self.brownian, float), self.channels)
        key = random.member_key(self.key, random.PATH, member)
        n = jnp.asarray(first, jnp.int64) + jnp.arange(count)
        channels = random.channel_keys(key, 0, _BRIDGE + np.arange(self.space * M))
        normals = random.Numbers(n, False).normals(channels).reshape(count, self.space, M)
        return replace(rows, normals=mask * normals)


def join(*parts: Any) -> Joined:
    """Drivers side by side: the first noises of the system follow the first driver, and so on.

    Parameters
    ----------
    *parts : Driver or tuple of (Driver, int)
        Drivers with their numbers of channels. A driver alone has one channel, or the columns of `Increments`.

    Returns
    -------
    Driver
        Methods that need Lévy areas or Brownian motion in all channels do not support it. With `Jumps`, Brownian
        increments are divided at the jumps with their exact distribution. Other paths are linear between the ends of a
        step.

    Raises
    ------
    TypeError, ValueError
        If a part is no driver, if a number of channels is not positive, or if two parts have the same type and key.

    Examples
    --------
    >>> import coadjoint as cj
    >>> driver = cj.drivers.join((cj.Brownian(0), 3), cj.OU(0.1, key=1), cj.Jumps(2.0, 0.1, key=2))
    """
    if not parts:
        raise ValueError("join needs at least one driver.")
    drivers, counts = [], []
    for k, part in enumerate(parts):
        driver, *rest = part if isinstance(part, tuple) else (part,)
        if not isinstance(driver, Driver) or isinstance(driver, Joined) or len(rest) > 1:
            raise TypeError(f"part {k} of join must be a driver, or (driver, channels), not {part!r}.")
        default = driver.dS.shape[-1] if isinstance(driver, Increments) else 1
        drivers.append(driver)
        counts.append(validation.count(f"the channels of part {k} of join", rest[0] if rest else default))
    for k, a in enumerate(drivers):
        for b in drivers[:k]:
            if type(a) is type(b) and _same_key(a, b):
                name = type(a).__name__
                raise ValueError(f"two parts of join are {name} with the same key: they would share a path.")
    return Joined(tuple(drivers), tuple(counts))


def _same_key(a: Any, b: Any) -> bool:
    keys = [getattr(x, "key", None) for x in (a, b)]
    if None in keys or validation.is_traced(keys):
        return False
    return all(np.array_equal(x, y) for x, y in zip(*keys, strict=True))
