"""The chunk in lanes: the same steps as `chunk.advance`, as scalar code (see `_lanes`).

The method is tried without its fallbacks. A block of steps in which one does not come out valid is not taken: the chunk
stops before it, and the plain program takes the run through that block. So a hard step costs time and nothing else.
"""

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree

from ._lanes import Lanes, in_lanes, inverses_of, pack, split, traced
from .chunk import Clock, Point, Stretch, one_step, put, record
from .drivers import BLOCK, Window
from .integrators.base import Integrator
from .systems import System

LARGEST = 16  # dimension of the algebra above which lanes are not tried
OPERATIONS = {0: 2500, 1: 5000}  # scalar operations up to which lanes pay: one trajectory, a group of members
GROUP = 64  # members side by side: their lanes stay in the first-level cache


def eligible(system: System) -> bool:
    """Whether lanes are worth a try: a small real algebra, on a CPU."""
    real = jnp.issubdtype(system.algebra.dtype, jnp.floating)
    return system.algebra.dim <= LARGEST and real and jax.default_backend() == "cpu"


def zeros_and_ones(system: System) -> tuple:
    """Where the numbers of a system are exactly 0 or 1. Code is made for the pattern; the other numbers stay inputs."""

    def pattern(x: Any) -> Hashable:
        values = np.asarray(x)
        flat = values.ravel().tolist() if values.dtype.kind == "f" else []
        return (values.shape, tuple(v if v in (0.0, 1.0) else None for v in flat))

    return tuple(pattern(x) for x in jax.tree.leaves(eqx.filter(system, eqx.is_array)))


def _with_pattern(x: Array, pattern: Any) -> Lanes:
    lanes = split(x)
    for index, value in zip(np.ndindex(*lanes.shape), pattern[1], strict=False):
        if value is not None:
            lanes[index] = np.float64(value)
    return lanes


class _Layout(NamedTuple):
    """How a tree of arrays is laid out as a flat tuple of lanes."""

    treedef: Any
    shapes: list[tuple[int, ...]]
    dtypes: list[Any]

    @staticmethod
    def of(tree: PyTree, batch: tuple[int, ...]) -> "_Layout":
        leaves, treedef = jax.tree.flatten(tree)
        return _Layout(treedef, [x.shape[len(batch) :] for x in leaves], [x.dtype for x in leaves])

    def lanes(self, values: Any) -> PyTree:
        """The tree of lanes of a flat tuple."""
        it = iter(values)
        arrays = []
        for shape in self.shapes:
            a = np.empty(shape, object)
            for index in np.ndindex(*shape):
                a[index] = next(it)
            arrays.append(a)
        return jax.tree.unflatten(self.treedef, arrays)

    def values(self, lanes: PyTree, batch: tuple[int, ...]) -> tuple:
        """The flat tuple of a tree of lanes."""
        arrays = jax.tree.leaves(lanes, is_leaf=_is_lanes)
        return tuple(traced(x, batch, d) for a, d in zip(arrays, self.dtypes, strict=True) for x in a.ravel())

    def pack(self, lanes: PyTree, batch: tuple[int, ...]) -> PyTree:
        """The tree of arrays of a tree of lanes."""
        arrays = jax.tree.leaves(lanes, is_leaf=_is_lanes)
        packed = [pack(a, batch, d) for a, d in zip(arrays, self.dtypes, strict=True)]
        return jax.tree.unflatten(self.treedef, packed)


def _is_lanes(x: Any) -> bool:
    return isinstance(x, np.ndarray)


def advance_lanes(
    system: System,
    pattern: tuple,
    integrator: Integrator,
    window: Window,
    save: Callable[[Array], PyTree] | None,
    clock: Clock,
    member: Int[Array, "..."],
    first_slot: Int[Array, ""],
    n1: Int[Array, ""],
    stretch: Stretch,
    led: tuple[bool, ...] = (),
) -> Stretch:
    """As `chunk.advance`, for one trajectory or for a group of members (then `member` and the arrays lead with it).

    Stops before a block of steps that do not all come out valid: the result's `n` is then below n₁. `led` says which
    numbers of the system lead with the members, if any do.
    """
    batch = member.shape
    point, n0, buffer = stretch
    layout = _Layout.of(point, batch)
    numbers, rest = eqx.partition(system, eqx.is_array)
    leaves, treedef = jax.tree.flatten(numbers)
    led = led or (False,) * len(leaves)
    own = [split(x, batch) if m else _with_pattern(x, p) for x, p, m in zip(leaves, pattern, led, strict=True)]
    params = jax.tree.unflatten(treedef, own)
    inverses = inverses_of(params)
    one_system = [jax.ShapeDtypeStruct(x.shape[len(batch) * m :], x.dtype) for x, m in zip(leaves, led, strict=True)]
    one_point = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[len(batch) :], x.dtype), point)
    scalar = jax.ShapeDtypeStruct((), jnp.float64)

    def step(numbers: PyTree, point: Point, t0: Array, dt: Array, n: Array, dS: PyTree) -> Point:
        return one_step(eqx.combine(numbers, rest), fast, t0, dt, n, dS, point)

    fast = integrator.for_lanes()

    def increments_of(b: Array) -> PyTree:
        """The increments of block b, the batch last: a step then reads contiguous numbers."""
        if not batch:
            return window.block(member, b)
        return jax.vmap(lambda m: window.block(m, b), out_axes=-1)(member)

    one_block = jax.eval_shape(lambda m: window.block(m, jnp.zeros((), int)), jax.ShapeDtypeStruct((), member.dtype))
    one_dS = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), one_block)
    counter = jax.ShapeDtypeStruct((), jnp.int64)
    limit = OPERATIONS[len(batch)]
    program = in_lanes(
        step,
        jax.tree.unflatten(treedef, one_system),
        one_point,
        scalar,
        scalar,
        counter,
        one_dS,
        batch=batch,
        limit=limit,
    )
    t0, dt = split(clock.t0), split(clock.dt)

    def try_step(increments: PyTree, at: Array, n: Array, values: tuple) -> tuple[tuple, Array]:
        lanes = layout.lanes(values)
        tally = lanes.tally._replace(unsolved=_known(0), first_unsolved=_known(-1))
        dS = jax.tree.map(lambda x: _split_last(x[at], batch), increments)
        out, valid = program(params, lanes._replace(tally=tally), t0, dt, split(n), dS, inverses=inverses)
        valid = valid & (traced(out.tally.unsolved[()], batch, int) == 0)
        kept = out.tally._replace(unsolved=lanes.tally.unsolved, first_unsolved=lanes.tally.first_unsolved)
        return layout.values(out._replace(tally=kept), batch), jnp.all(valid)

    take = partial(record, integrator, save)
    take = jax.vmap(take) if batch else take

    def block(state):
        b, n0, _, before, buffer = state
        increments = increments_of(b)
        end = jnp.minimum(n1, (b + 1) * BLOCK)

        def interval(state):
            n, ok, values, buffer = state
            stop = jnp.minimum(end, (n // clock.save_every + 1) * clock.save_every)
            slot = n // clock.save_every - first_slot

            def one(n, state):
                ok, values = state
                values, valid = try_step(increments, n - b * BLOCK, n, values)
                return ok & valid, values

            ok, values = jax.lax.fori_loop(n, stop, one, (ok, values))
            kept = take(layout.pack(layout.lanes(values), batch))
            return stop, ok, values, jax.tree.map(lambda a, x: put(a, x, slot), buffer, kept)

        start = n0, jnp.ones((), bool), before, buffer
        n, ok, values, buffer = jax.lax.while_loop(lambda s: s[0] < end, interval, start)
        values = tuple(jnp.where(ok, new, old) for new, old in zip(values, before, strict=True))
        return b + 1, jnp.where(ok, n, n0), ok, values, buffer

    def blocks_left(state):
        b, _, ok, _, _ = state
        return ok & (b * BLOCK < n1)

    values = layout.values(jax.tree.map(lambda x: split(x, batch), point), batch)
    _, n, _, values, buffer = jax.lax.while_loop(blocks_left, block, (n0 // BLOCK, n0, n0 < n1, values, buffer))
    return Stretch(layout.pack(layout.lanes(values), batch), n, buffer)


def _known(x: int) -> Lanes:
    out = np.empty((), object)
    out[()] = np.int64(x)
    return out


def _split_last(x: Array, batch: tuple[int, ...]) -> Lanes:
    """The lanes of an array whose last axes are the batch."""
    shape = x.shape[: x.ndim - len(batch)]
    out = np.empty(shape, object)
    for index in np.ndindex(*shape):
        out[index] = x[index]
    return out
