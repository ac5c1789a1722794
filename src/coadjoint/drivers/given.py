"""Prescribed paths: increments of one path, or sampled paths that several runs share."""

from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..numerics import validation
from .base import BLOCK, Driver, Increment, Needs, PathOrder, Window, at_most_second

_OTHERS = "take that driver, or a method that needs less, such as TMKLevy()"


class Increments(Driver):
    """A prescribed path, by its increments.

    Any path is supported, as a chain of straight pieces. For a semimartingale the methods converge to the Stratonovich
    solution. For smoother paths (fractional Brownian motion with H > ½, coloured noise, data) they converge to the
    Young solution. Increments do not contain the shape of a path within steps, so the order is 2 at most, also for
    `RKMK("rk4")`; `sol.stats.order_limit` reports it. For order 4 write a smooth input as a function of t in the
    Hamiltonian.

    Parameters
    ----------
    dS : array_like, shape (steps, M) or (members, steps, M)
        dS[n, i] = S^i(t_{n+1}) − S^i(t_n). The shape may be (steps,) if M = 1. Without an axis of members, all members
        of an ensemble follow the same path.
    Z : array_like, same shape as `dS`, optional
        Z[n, i] = ∫ (S^i − S^i(t_n)) dt over step n, for methods that need it.
    areas : array_like, shape (steps, M, M) or (members, steps, M, M), optional
        The Lévy areas ½ ∫ (S^i dS^j − S^j dS^i) with S counted from S(t_n), for methods that need them.
    brownian : bool, default False
        Whether the path is a Brownian motion. `TMK15`, `TMKLevy`, `TMKWeak`, `NinomiyaVictoir` and `BathSplitting`
        contain means over Brownian paths, so they require it.

    Raises
    ------
    ValueError
        If shapes differ, if `areas` is not antisymmetric, if the method requires a Brownian path, or if the run has
        another number of steps, noises or members.
    """

    dS: Float[Array | np.ndarray, "*members steps M"]  # on the host, unless traced
    Z: Float[Array | np.ndarray, "*members steps M"] | None
    areas: Float[Array | np.ndarray, "*members steps M M"] | None
    brownian: bool = eqx.field(static=True)

    def __init__(self, dS: Any, Z: Any = None, areas: Any = None, brownian: bool = False):
        self.brownian = bool(brownian)
        self.dS = _given("dS", dS, (2, 3))
        shape, M = self.dS.shape, self.dS.shape[-1]
        self.Z = None if Z is None else _given("Z", Z, (len(shape),))
        if self.Z is not None and self.Z.shape != shape:
            raise ValueError(f"Z must have the shape of dS, {shape}, not {self.Z.shape}.")
        self.areas = None if areas is None else _given("areas", areas, (len(shape) + 1,))
        if self.areas is not None:
            if self.areas.shape != (*shape, M):
                raise ValueError(f"areas must have shape (steps, M, M) = {(*shape, M)}, not {self.areas.shape}.")
            if not validation.is_traced(self.areas):
                host = np.asarray(self.areas)
                if np.max(np.abs(host + host.swapaxes(-1, -2)), initial=0.0) > 1e-12 * np.max(
                    np.abs(host), initial=0.0
                ):
                    raise ValueError("areas must be antisymmetric: areas[n, i, j] = −areas[n, j, i].")

    @property
    def members(self) -> int | None:
        """The number of members that have a path of their own; None if all follow one path."""
        return self.dS.shape[0] if self.dS.ndim == 3 else None

    def effective_order(self, order: float, strong: float) -> PathOrder:
        """At most 2 along a smooth path; along Brownian motion the strong order."""
        if self.brownian:
            return PathOrder(strong)
        return at_most_second(order, "increments do not contain the path within steps")

    def check_members(self, members: int | None) -> None:
        """Raise if the number of paths differs from the number of members."""
        if self.members is not None and self.members != members:
            what = "solve follows one path, of shape (steps, M)" if members is None else f"there are {members} members"
            raise ValueError(f"dS has the paths of {self.members} members, but {what}.")

    def blocks(self, n_noise: int) -> int:
        """The number of blocks that a window should contain."""
        return super().blocks(n_noise * (self.members or 1))

    def check(self, n_noise: int, steps: int, dt: float, needs: Needs = Needs()) -> None:
        """Raise if the shape is not (steps, M), or if the method needs integrals that were not passed."""
        rows, columns = self.dS.shape[-2:]
        if columns != n_noise:
            raise ValueError(f"dS must have {n_noise} columns, one per noise of the system, not {columns}.")
        if rows != steps:
            raise ValueError(f"dS must have {steps} rows, one per step of the run, not {rows}.")
        if n_noise == 0:
            return
        brownian = "or let Brownian(key) sample the path"
        if needs.brownian and not self.brownian:
            raise ValueError(
                "the method contains means over Brownian motion, and these increments need not be Brownian: give "
                "Increments(..., brownian=True) if they are, or use a method for any path, such as TMK()."
            )
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
        if needs.signs:
            raise ValueError(
                "the method uses Rademacher variables, which only Brownian(key) draws: use that driver, or a method "
                "that needs the path alone, such as TMK()."
            )
        if needs.halvings:
            raise ValueError(
                "the method halves steps, and prescribed increments cannot be halved. Use driver=Brownian(key)."
            )

    def window(self, n_noise: int, dt: float, first: int, blocks: int, needs: Needs = Needs()) -> "GivenWindow":
        """The rows of these blocks, padded with zeros."""
        *own, steps, _ = self.dS.shape
        M, parts = n_noise, (2**needs.halvings,) if needs.halvings else ()
        at = len(own)  # the axis of steps

        def cut(x, asked, shape):
            if not asked:
                return None
            if x is None or parts:  # only without noise
                x = np.zeros((*own, steps, *parts, *shape))
            rows = x[(slice(None),) * at + (slice(first * BLOCK, (first + blocks) * BLOCK),)]
            xp: Any = jnp if validation.is_traced(rows) else np  # NumPy compiles nothing for a new length
            missing = xp.zeros((*own, blocks * BLOCK - rows.shape[at], *rows.shape[at + 1 :]))
            return xp.concatenate([rows, missing], at).reshape(*own, blocks, BLOCK, *rows.shape[at + 1 :])

        bound: Any = np.broadcast_to(np.inf, (*own, blocks, BLOCK, *parts))
        rows = Increment(
            cut(self.dS, True, (M,)),  # pyright: ignore[reportArgumentType]
            bound,
            cut(self.Z, needs.Z, (M,)),
            cut(self.areas, needs.areas or needs.third, (M, M)),
            cut(None, needs.third, (M, M, M)),
        )
        at_block: Any = np.asarray(first)
        return GivenWindow(rows, at_block, bool(own))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class GivenWindow(Window):
    """Rows of a prescribed path, with leading axes (blocks, block) or (members, blocks, block)."""

    rows: Increment
    first: Int[Array, ""]
    by_member: bool = field(metadata={"static": True})

    def block(self, member: Int[Array, ""], b: Int[Array, ""]) -> Increment:
        """The increments of block b: one path for all members, or one per member (that of the last for padding)."""
        at = (member, b - self.first) if self.by_member else b - self.first
        return jax.tree.map(lambda x: jnp.asarray(x)[at], self.rows)

    def columns(self, members: np.ndarray, b: int, blocks: int, columns: tuple[int, ...]) -> np.ndarray:
        """The given numbers of each step of these blocks, by NumPy: (groups, steps, columns, width) of the members."""
        first = b - int(self.first)

        def cut(x: Any) -> np.ndarray:
            some = np.asarray(x)[(slice(None),) * self.by_member + (slice(first, first + blocks),)]
            lead = some.shape[: 1 + self.by_member]
            return some.reshape(*lead[:-1], lead[-1] * BLOCK, -1)

        parts = [cut(x) for x in jax.tree.leaves(self.rows)]
        numbers = np.concatenate([np.broadcast_to(x, (*parts[0].shape[:-1], x.shape[-1])) for x in parts], axis=-1)
        numbers = numbers[..., columns]
        if not self.by_member:
            return np.broadcast_to(numbers[None, :, :, None], (len(members), *numbers.shape, members.shape[1]))
        return np.moveaxis(numbers[np.minimum(members, len(numbers) - 1)], 1, -1)


class SampledPaths(Driver):
    """Paths sampled in advance, one per member, for runs that share them: leading axes (members, blocks, block).

    There may be more blocks than a run needs, so that runs of different lengths share one compiled program.
    """

    rows: Increment
    steps: int = eqx.field(static=True)

    def effective_order(self, order: float, strong: float) -> PathOrder:
        """The strong order, because they are Brownian."""
        return PathOrder(strong)

    def check(self, n_noise: int, steps: int, dt: float, needs: Needs = Needs()) -> None:
        """Raise if the paths have another length."""
        if steps != self.steps:
            raise ValueError(f"the paths have {self.steps} steps, not {steps}.")

    def window(self, n_noise: int, dt: float, first: int, blocks: int, needs: Needs = Needs()) -> "SampledWindow":
        """All blocks of the quantities that the method needs."""
        r = self.rows
        areas = needs.areas or needs.third
        rows = Increment(
            r.S,
            r.bound,
            r.Z if needs.Z else None,
            r.areas if areas else None,
            r.third if needs.third else None,
            r.signs[..., : needs.signs] if r.signs is not None and needs.signs else None,
        )
        return SampledWindow(rows)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class SampledWindow(Window):
    """Rows of sampled paths."""

    rows: Increment

    def block(self, member: Int[Array, ""], b: Int[Array, ""]) -> Increment:
        """The increments of block b of one member."""
        return jax.tree.map(lambda x: x[member, b], self.rows)


def _given(name: str, value: Any, ndims: tuple[int, ...]) -> Array | np.ndarray:
    """An array of real numbers along the steps. The axis of noises may be missing if there is one noise."""
    array = validation.numbers(name, value, "an array of real numbers", "fiu")
    if array.ndim == 1:
        array = array.reshape(-1, *(1,) * (ndims[0] - 1))
    if array.ndim not in ndims:
        shape = "(steps, M, M)" if name == "areas" else "(steps, M), or (members, steps, M)"
        raise ValueError(f"{name} must have shape {shape}, not {array.shape}.")
    if not validation.is_traced(array) and not np.all(np.isfinite(np.asarray(array))):
        at = tuple(int(i) for i in np.argwhere(~np.isfinite(np.asarray(array)))[0])
        raise ValueError(f"{name} must be finite: {name}{list(at)} is {np.asarray(array)[at]}.")
    return jnp.asarray(array, jnp.float64) if validation.is_traced(array) else np.array(array, np.float64)
