"""The interface of a path: the increments of each step, and the integrals that some methods need."""

import abc
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

BLOCK = 32  # increments are drawn in blocks of this many steps, aligned to multiples of it


@dataclass(frozen=True)
class Needs:
    """The quantities of the path that a method needs in addition to the increments ΔS.

    Parameters
    ----------
    Z : bool, default False
        Whether the method needs ΔZ^i = ∫ S^i dt.
    areas : bool, default False
        Whether it needs the Lévy areas.
    third : bool, default False
        Whether it needs level 3 of the log-signature, and with it the areas.
    halvings : int, default 0
        How often the method halves a step. The path is sampled in each of the 2^halvings parts.
    signs : int, default 0
        The number of independent Rademacher variables per step.
    brownian : bool, default False
        Whether terms of the method are means over Brownian motion, so that it supports no other path.
    """

    Z: bool = False
    areas: bool = False
    third: bool = False  # and the areas with it
    halvings: int = 0  # the path in each of 2^halvings equal parts of the step, along a new axis
    signs: int = 0  # the number of Rademacher variables per step
    brownian: bool = False  # whether terms of the method are means over Brownian motion

    @property
    def integrals(self) -> bool:
        """Whether the method needs anything beyond increments."""
        return self.Z or self.areas or self.third


class JumpRows(eqx.Module):
    """The jumps in one step, in the order of time.

    Parameters
    ----------
    times : array, shape (C,)
        Times as fractions of the step; 1 for empty rows.
    sizes : array, shape (C, M)
        The jumps of all channels; 0 for empty rows.
    normals : array, shape (C, M), optional
        Standard normals that divide the increments of Brownian channels at the jumps.
    """

    times: Float[Array, "*steps C"]
    sizes: Float[Array, "*steps C M"]
    normals: Float[Array, "*steps C M"] | None


class Increment(eqx.Module):
    """The driving path over one step or, with leading axes, over each of many steps.

    S^i counts from the start of the step. Quantities that the method does not need are None.

    Parameters
    ----------
    S : array, shape (M,)
        ΔS^i = S^i(t_{n+1}) − S^i(t_n).
    bound : array, shape ()
        Implicit methods truncate ΔS at this value under nonlinear noise, so that their equation has a root (Milstein
        and Tretyakov). It is infinite for a prescribed path.
    Z : array, shape (M,), optional
        ΔZ^i = ∫ S^i dt.
    areas : array, shape (M, M), optional
        A_ij = ½ ∫ (S^i dS^j − S^j dS^i).
    third : array, shape (M, M, M), optional
        Level 3 of the log-signature, Σ ℓ_ijk e_i⊗e_j⊗e_k, an element of the free Lie algebra.
    signs : array, optional
        Rademacher variables: ±1 with probability ½, independent of the path and of each other.
    jumps : JumpRows, optional
        The jumps in the step. S, Z and areas are those of the path between jumps.
    """

    S: Float[Array, "*steps M"]
    bound: Float[Array, "*steps"]
    Z: Float[Array, "*steps M"] | None = None
    areas: Float[Array, "*steps M M"] | None = None
    third: Float[Array, "*steps M M M"] | None = None
    signs: Float[Array, "*steps K"] | None = None
    jumps: JumpRows | None = None


def truncation_bound(dt: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """√(4 dt |ln dt|). A Brownian increment exceeds it with a probability of order dt²."""
    return jnp.sqrt(4.0 * dt * jnp.maximum(jnp.abs(jnp.log(dt)), 1.0))


def joined(a: Increment, b: Increment, h: Float[Array, ""] | float) -> Increment:
    """Two consecutive stretches of a path joined by Chen's relation for logarithms; the second has length h.

        ΔS = x + y,   ΔZ = Z_x + Z_y + h x,   A = A_x + A_y + ½[x, y],
        ℓ = ℓ_x + ℓ_y + ½([x, A_y] + [A_x, y]) + (1/12)([x,[x, y]] + [y,[y, x]]),   [u, v] = u⊗v − v⊗u.

    The Rademacher variables are those of the first stretch.
    """  # fmt: skip
    x, y = a.S, b.S
    Z = areas = third = None
    if a.Z is not None and b.Z is not None:
        Z = a.Z + b.Z + h * x
    if a.areas is not None and b.areas is not None:
        xy = commutator(x, y)
        areas = a.areas + b.areas + 0.5 * xy
        if a.third is not None and b.third is not None:
            third = commutator(x, 0.5 * b.areas + xy / 12.0) - commutator(y, 0.5 * a.areas + xy / 12.0)
            third = a.third + b.third + third
    return Increment(x + y, a.bound, Z, areas, third, a.signs)


def commutator(u: Float[Array, "*n M"], v: Float[Array, "..."]) -> Float[Array, "..."]:
    """u⊗v − v⊗u for a vector u and a tensor v of level 1 or 2."""
    if v.ndim == u.ndim:
        return u[..., :, None] * v[..., None, :] - v[..., :, None] * u[..., None, :]
    return u[..., :, None, None] * v[..., None, :, :] - v[..., :, :, None] * u[..., None, None, :]


class PathOrder(NamedTuple):
    """The order of a method along the paths of a driver.

    Parameters
    ----------
    order : float or None
        The order; None if none is claimed.
    reason : str, default ""
        The cause of a limit by the driver, or an empty string.
    """

    order: float | None
    reason: str = ""


def at_most_second(order: float, reason: str) -> PathOrder:
    """The order along paths whose increments are all that methods use."""
    return PathOrder(min(order, 2), reason if order > 2 else "")


class Window(abc.ABC):
    """A stretch of the path for compiled code: the increments of block b, which contains steps 32 b … 32 b + 31.

    A pytree. The windows here are dataclasses, because Equinox modules take longer to create, which matters in short
    runs.
    """

    @abc.abstractmethod
    def block(self, member: Int[Array, ""], b: Int[Array, ""]) -> Increment:
        """The increments of block b for one member of an ensemble."""

    def steps(self, member: Int[Array, ""], first: Int[Array, ""], count: int) -> Increment:
        """The increments of steps first … first + count − 1. count is a power of two and first a multiple of it."""
        block = self.block(member, first // BLOCK)
        return jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, first % BLOCK, count), block)

    def step_shape(self) -> Increment:
        """Shapes and types of the increments of one step."""
        zero = jax.ShapeDtypeStruct((), jnp.int64)
        return jax.eval_shape(lambda window, z: jax.tree.map(lambda x: x[0], window.block(z, z)), self, zero)

    @property
    def unit(self) -> int:
        """The number of steps that native code draws at once, a power of two up to a block; 0 if XLA draws the path."""
        return 0

    @property
    def subgrid(self) -> bool:
        """Whether native code draws by `steps` rather than by `pair`."""
        return False

    def pair(self, member: Int[Array, ""], k: Int[Array, ""]) -> Increment:
        """The increments of steps 2k and 2k + 1. Raises if this costs more than a part of a block."""
        raise NotImplementedError


class Driver(eqx.Module):
    """The interface of the path that drives a system: `Brownian`, `Increments`, or a subclass of your own.

    Method arguments
    ----------------
    n_noise : int
        The number of channels M.
    steps : int
        The number of steps of the run.
    dt : float
        The time step.
    needs : Needs
        The quantities that the method needs in addition to the increments.
    members : int or None
        The number of members of an ensemble; None for one trajectory.
    first, blocks : int
        The first block of the window, and the number of its blocks.
    order, strong : float
        The order of a method without noise, and its strong order along Brownian motion.
    """

    @abc.abstractmethod
    def check(self, n_noise: int, steps: int, dt: float, needs: Needs = Needs()) -> None:
        """Raise if the path does not fit the run or lacks a quantity that the method needs."""

    def check_members(self, members: int | None) -> None:
        """Raise if the path does not support this number of members (None: one trajectory)."""

    @abc.abstractmethod
    def window(self, n_noise: int, dt: float, first: int, blocks: int, needs: Needs = Needs()) -> Window:
        """The window on blocks first … first + blocks − 1."""

    def mixing(self, n_noise: int) -> Any:
        """L, if the channels are L dB with the independent channels dB of the windows; None if they are independent."""
        return None

    def bound(self, n_noise: int) -> "Driver":
        """The driver of so many channels, with traced functions in place of those that the user gave."""
        return self

    @property
    def rough(self) -> bool:
        """Whether increments determine the limit of methods only for SALT noises that commute."""
        return False

    def jump_tolerance(self) -> float | None:
        """The tolerance of the equation of jumps; None if the path has no jumps."""
        return None

    def effective_order(self, order: float, strong: float) -> "PathOrder":
        """The order along these paths of a method with an order without noise and a strong one. By default none."""
        return PathOrder(None, f"no order is claimed along {type(self).__name__}")

    def blocks(self, n_noise: int) -> int:
        """The number of blocks that a window should contain."""
        return max(1, min(1024, 2**18 // (BLOCK * max(n_noise, 1))))
