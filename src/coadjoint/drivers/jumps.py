"""Compound Poisson processes: jumps in the sense of Marcus."""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import exp
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from stepcompiler.jaxprs.interning import Function, intern

from ..numerics import random, validation
from ..numerics.signatures import check_function
from .base import BLOCK, Driver, Increment, JumpRows, Needs, PathOrder, Window
from .grid import check_grid, levels

_JUMP = 13 << 24  # first channel of the random stream
_NEVER = 1e-18  # the probability of more jumps in a step than there is space for
MOST = 64  # jumps per step


class Jumps(Driver):
    """A compound Poisson process: at random times S jumps by random amounts.

    Times between jumps are exponentially distributed with the mean 1/rate. Jumps are meant in the sense of Marcus: a
    jump ΔS moves the state along the solution of

        dμ/dx = s ad*_{Σ_i ΔS^i ∂h_i/∂μ(μ)} μ,   0 ≤ x ≤ 1,

    so it conserves every Casimir. For SALT noise it is one exact flow. For other noises the equation is solved to
    `tol`. The method steps from jump to jump, so jumps act in the order of time. If jumps are the only noise, every
    method has its order without noise. The jumps of member k over step n of the base grid depend on (key, k, n) only.
    Runs with other dt, multiples or dyadic fractions of `grid`, have the same jumps.

    Parameters
    ----------
    rate : float
        The mean number of jumps per unit of time. It cannot be differentiated, because jump times depend on it.
    distribution : float, array_like or callable
        The jumps of the M channels, which jump together. Numbers are the same jumps each time. A function receives M
        independent uniform numbers in (0, 1) and returns the M jumps, such as the inverse of a distribution function.
        For channels that jump independently of each other, `join` several drivers.
    key : int or JAX key, default 0
        Selects the path.
    grid : float, optional
        The spacing of the base grid. The default is the time step of the run.
    tol : float, default 1e-10
        The relative tolerance of the equation above if the noise is not SALT.

    Raises
    ------
    TypeError, ValueError
        If `rate` is not finite and above 0, or if `distribution` does not return M finite numbers.

    References
    ----------
    Marcus, Modeling and approximation of stochastic differential equations driven by semimartingales (1981).

    Examples
    --------
    >>> import coadjoint as cj
    >>> system, mu0 = cj.models.rigid_body()
    >>> kicks = cj.Jumps(rate=2.0, distribution=lambda u: 0.5 * (2 * u - 1), key=0)
    >>> sol = cj.solve(system, mu0, t1=1.0, dt=0.01, driver=kicks)
    """  # fmt: skip

    rate: float = eqx.field(static=True)
    distribution: Callable | Float[Array | np.ndarray, "..."]
    key: random.Key
    grid: float | None = eqx.field(static=True)
    tol: float = eqx.field(static=True)

    def __init__(self, rate: float, distribution: Any, key: Any = 0, grid: float | None = None, tol: float = 1e-10):
        self.rate = validation.positive("rate", rate)
        self.distribution = distribution if callable(distribution) else _sizes(distribution)
        if callable(distribution):
            check_function("distribution", distribution, ("u",))
        self.key = random.as_key(key)
        self.grid = None if grid is None else validation.positive("grid", grid)
        self.tol = validation.positive("tol", tol)

    def bound(self, n_noise: int) -> "Jumps":
        """With the distribution as a traced function, whose numbers JAX sees."""
        return eqx.tree_at(lambda d: d.distribution, self, self.law(n_noise))

    def law(self, n_noise: int) -> Function:
        """The jumps of the `n_noise` channels as a traced function of uniform numbers."""
        given = self.distribution
        if isinstance(given, Function):
            return given
        if not callable(given):
            if given.ndim and given.shape != (n_noise,):
                raise ValueError(f"distribution has {given.shape[0]} numbers, but the driver has {n_noise} channels.")
            constant = jnp.broadcast_to(jnp.asarray(given), (n_noise,))
            return intern(lambda u: constant + 0.0 * u, jax.ShapeDtypeStruct((n_noise,), jnp.float64))
        fn = given
        shape = jax.eval_shape(fn, jax.ShapeDtypeStruct((n_noise,), jnp.float64))
        if not hasattr(shape, "shape") or shape.shape not in ((), (n_noise,)):
            raise ValueError(
                f"distribution must return {n_noise} numbers, one per channel, from {n_noise} uniform numbers, not "
                f"{getattr(shape, 'shape', type(shape).__name__)}."
            )
        law = lambda u: jnp.broadcast_to(jnp.asarray(fn(u), jnp.float64), (n_noise,))
        return intern(law, jax.ShapeDtypeStruct((n_noise,), jnp.float64))

    def effective_order(self, order: float, strong: float) -> PathOrder:
        """The order without noise: steps end at the jumps."""
        return PathOrder(order)

    def check(self, n_noise: int, steps: int, dt: float, needs: Needs = Needs()) -> None:
        """Raise if dt does not fit the grid, if there are too many jumps per step, or if the method does not fit."""
        check_method("Jumps", needs)
        check_grid("Jumps", self.grid, None, steps, dt, needs)
        if capacity(self.rate * dt) > MOST:
            raise ValueError(
                f"rate·dt = {self.rate * dt:.3g} jumps per step are too many: the mean may be at most about 20. "
                "Take a smaller dt."
            )
        middle = self.law(n_noise)(jnp.full(n_noise, 0.3))
        if not validation.is_traced(middle) and not np.all(np.isfinite(np.asarray(middle))):
            raise ValueError(f"distribution must return finite numbers, but at u = 0.3 it returns {middle}.")

    def window(self, n_noise: int, dt: float, first: int, blocks: int, needs: Needs = Needs()) -> "JumpWindow":
        """The window. It contains no data, so it is the same for all blocks."""
        m, level = levels(self.grid, dt)
        grid = self.grid or dt
        each, own = capacity(self.rate * grid), capacity(self.rate * dt)
        law = self.law(n_noise)
        return JumpWindow(self.key, jnp.asarray(self.rate), jnp.asarray(grid), law, n_noise, m, level, each, own)

    def jump_tolerance(self) -> float | None:
        """`tol`."""
        return self.tol


def check_method(name: str, needs: Needs) -> None:
    """Raise if the method needs more than increments."""
    if needs.integrals or needs.signs or needs.brownian or needs.halvings:
        raise ValueError(
            f"with {name} the method may need only the increments of the path, as TMK() and RKMK() do: it steps from "
            "jump to jump."
        )


def capacity(mean: float) -> int:
    """The least number of jumps that a Poisson variable exceeds with a probability below 1e-18; at most 65."""
    count, term, tail = 0, exp(-mean), 1.0
    if mean > 40.0:
        return MOST + 1
    while count <= MOST:
        # P(N > count) ≤ term_{count+1}/(1 − mean/(count + 2)) where count + 2 > mean
        following = term * mean / (count + 1)
        tail = following / (1.0 - mean / (count + 2)) if count + 2 > mean else 1.0
        if tail < _NEVER and count:
            return count
        count, term = count + 1, following
    return MOST + 1


def _sizes(value: Any) -> np.ndarray | Array:
    array = validation.numbers("distribution", value, "a number, numbers or a function", "fiu")
    if array.ndim > 1:
        raise ValueError(f"distribution must be one number or one per channel, not an array of shape {array.shape}.")
    if not validation.is_traced(array) and not np.all(np.isfinite(np.asarray(array))):
        raise ValueError(f"distribution must be finite, not {value!r}.")
    return array if validation.is_traced(array) else np.asarray(array, np.float64)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class JumpWindow(Window):
    """Jumps of each step, in order: base intervals restart the exponential clock, which has no memory."""

    key: random.Key
    rate: Float[Array, ""]
    grid: Float[Array, ""]
    law: Function
    n_noise: int = field(metadata={"static": True})
    m: int = field(metadata={"static": True})
    level: int = field(metadata={"static": True})
    each: int = field(metadata={"static": True})  # space for jumps in a base interval
    own: int = field(metadata={"static": True})  # and in a step

    def block(self, member: Int[Array, ""], b: Int[Array, ""]) -> Increment:
        """The jumps of block b; the increments between jumps vanish."""
        return self.steps(member, jnp.asarray(b, jnp.int64) * BLOCK, BLOCK)

    def steps(self, member: Int[Array, ""], first: Int[Array, ""], count: int) -> Increment:
        """The jumps of steps first … first + count − 1 only."""
        key = random.member_key(self.key, random.PATH, member)
        n = jnp.asarray(first, jnp.int64) + jnp.arange(count)
        if self.m > 1:
            cells = n[:, None] * self.m + jnp.arange(self.m)
            start = jnp.arange(self.m) / self.m
            scale = 1.0 / self.m
        else:
            cells = (n >> self.level)[:, None]
            part = (n & ((1 << self.level) - 1)).astype(jnp.float64)
            start, scale = -part[:, None], 2.0**self.level
        times, sizes, full = self._jumps(key, cells)
        times = (start[..., None] + times * scale).reshape(count, -1)
        sizes = sizes.reshape(count, times.shape[1], -1)
        rows = jax.vmap(lambda t, x: in_order(t, x, self.own))(times, sizes)
        S = jnp.where(jnp.any(full, axis=1)[:, None], jnp.nan, jnp.zeros((count, self.n_noise)))
        return Increment(S, jnp.full(count, jnp.inf), jumps=rows)

    def _jumps(self, key: random.Key, cells: Int[Array, "n m"]) -> tuple[Array, Array, Array]:
        """Times in units of the grid, jumps, and whether there are more jumps than space."""
        M, C = self.n_noise, self.each
        clocks = random.channel_keys(key, 0, _JUMP + np.arange(C + 1))
        sizes = random.channel_keys(key, 1, _JUMP + np.arange(C * M))
        waits = -random.log(1.0 - random.uniforms_at(clocks, cells[..., None]))
        times = jnp.cumsum(waits, axis=-1) / (self.rate * self.grid)
        u = random.uniforms_at(sizes, cells[..., None]).reshape(*cells.shape, C, M) + 2.0**-53
        jumps = jax.vmap(jax.vmap(jax.vmap(self.law)))(u)
        inside = times[..., :C] < 1.0
        full = times[..., C] < 1.0
        return jnp.where(inside, times[..., :C], jnp.inf), jnp.where(inside[..., None], jumps, 0.0), full


def in_order(times: Float[Array, " K"], sizes: Float[Array, "K M"], space: int) -> JumpRows:
    """Those jumps with 0 ≤ time < 1, in the order of time; empty rows have time 1 and no jump."""
    inside = (times >= 0.0) & (times < 1.0)
    times = jnp.where(inside, times, 1.0)
    order = jnp.argsort(times)[:space] if len(times) > 1 else jnp.zeros(1, int)
    times, sizes = times[order], jnp.where(inside[:, None], sizes, 0.0)[order]
    missing = space - len(times)
    if missing > 0:
        times = jnp.concatenate([times, jnp.ones(missing)])
        sizes = jnp.concatenate([sizes, jnp.zeros((missing, sizes.shape[1]))])
    return JumpRows(times, sizes, None)
