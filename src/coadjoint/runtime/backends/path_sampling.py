"""Increments for native code, of many members and steps, drawn by native code if the driver supports it."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from stepcompiler.cache import LRUCache
from stepcompiler.compile import compile_step
from stepcompiler.kernel import Buffers, Kernel, PathSampler, Signature, dynamic_input
from stepcompiler.targets.cpu import Cpu

from ...drivers import BLOCK, BrownianWindow, GivenWindow, Increment, Window
from ..plan import Plan
from .base import NotSupported, attempt_native

_NUMBERS = 2**16  # that are drawn at a time: they stay in the second-level cache
_OPERATIONS = 40_000  # of a pair of steps: beyond, compiling takes too long, and XLA draws (the same numbers)
_SIDE_BY_SIDE = 8  # pairs of steps of one trajectory, or of its motions
_MANY = 16  # motions: more are drawn one by one, by one program for all of them
_CELLS = 16  # intervals per step from which SIMD lanes hold intervals instead of members

_loops: LRUCache[Kernel | NotSupported] = LRUCache()


class IncrementSource:
    """The increments of some members: the columns of the path that native code reads."""

    def __init__(self, window: Window, members: Int[np.ndarray, "groups width"], columns: tuple[int, ...]):
        groups, width = members.shape
        self.window, self.members, self.columns = window, members, columns
        self.blocks = max(1, _NUMBERS // (BLOCK * members.size * max(len(columns), 1)))
        self.motions: PerChannelSource | None = None
        if len(columns) > _MANY and isinstance(window, BrownianWindow) and columns[-1] < window.n_noise:
            self.motions = PerChannelSource.of(window, members, columns, self.blocks)
        self.out = np.empty((groups, self.blocks * BLOCK, len(columns), width))
        self.needs_subgrid, self.unit = window.subgrid, max(window.unit, 2)
        self.singly = self.needs_subgrid and _cells(window) >= _CELLS  # SIMD lanes hold intervals, not members
        self.side = min(_SIDE_BY_SIDE, BLOCK // self.unit) if members.size == 1 and not self.singly else 1
        alone = self.motions is not None or not columns or isinstance(window, GivenWindow)
        if self.singly:
            members = members.reshape(-1, 1)
            groups, width = members.shape
        ready = None if alone else _ready(window, columns, width * self.side, self.side)
        self.native = None if ready is None else ready[0]
        if ready is not None:
            own = np.broadcast_to(members[:, None, :], (groups, 1, width * self.side))
            lanes = np.broadcast_to(np.arange(self.side).repeat(width), own.shape)
            self.buffers = _buffers(ready, np.concatenate([own, lanes], axis=1))
            each = self.unit * self.side  # steps
            self.rows = np.empty((groups, self.blocks * BLOCK // each, self.unit * len(columns), width * self.side))

    def draw(self, b: int, end: int) -> Float[np.ndarray, "groups steps columns width"]:
        """Return the increments from block b on, at most up to step `end`; the next call overwrites them."""
        blocks = min(self.blocks, -(-end // BLOCK) - b)
        out = self.out[:, : blocks * BLOCK]
        if not self.columns:
            return out
        if self.motions is not None:
            return self.motions.draw(b, blocks, out)
        if isinstance(self.window, GivenWindow):
            rows = self.window.columns(self.members, b, blocks, self.columns)
            out[:, : rows.shape[1]] = rows
            return out[:, : rows.shape[1]]
        if self.native is None:
            pairs = -(-min(blocks * BLOCK, end - b * BLOCK) // 2)
            return np.asarray(_draw(self.window, self.members, b, pairs, self.columns, self.blocks))  # one for all
        each = BLOCK // (self.unit * self.side)
        first, count = b * each, blocks * each
        if self.needs_subgrid:  # at most the columns that are read
            count = min(count, -(-(end - b * BLOCK) // (self.unit * self.side)))
            out = out[:, : self.unit * self.side * count]
        groups, _, numbers, width = self.rows.shape
        rows = self.rows.reshape(-1)[: groups * count * numbers * width].reshape(groups, count, numbers, width)
        _draw_rows(self.native, self.buffers, first, rows)
        if self.singly:
            out[:] = rows.reshape(out.shape[0], out.shape[3], *out.shape[1:3]).transpose(0, 2, 3, 1)
            return out
        if self.side == 1:
            return rows.reshape(out.shape)
        out.reshape(groups, count, self.side, -1)[:] = rows.swapaxes(2, 3)  # pairs stood side by side
        return out


class PathLoader:
    """The increments of a batch in a run, from one window of the path after the other."""

    def __init__(self, plan: Plan, members: Int[np.ndarray, "groups width"], columns: tuple[int, ...]):
        self.plan, self.members, self.columns = plan, members, columns
        self.source: IncrementSource | None = None

    def load(self, low: int, stop: int) -> tuple[Float[np.ndarray, "groups steps columns width"], int, int]:
        """Return increments from about step `low` on, their first step, and the step where they end, at most `stop`."""
        b = low // BLOCK
        if self.source is None or stop > self.covered:
            window = self.plan.window(b) if b else self.plan.first_window
            self.covered = (b + self.plan.window_blocks) * BLOCK
            self.source = IncrementSource(window, self.members, self.columns)
        rows = self.source.draw(b, stop)
        return rows, b * BLOCK, min(stop, b * BLOCK + rows.shape[1])


class PerChannelSource:
    """Many Brownian motions, drawn separately: SIMD lanes hold those of a trajectory, or members."""

    def __init__(self, ready: "Ready", members: np.ndarray, columns: np.ndarray, rows: int):
        self.native = ready[0]
        self.alone = members.size == 1
        groups, width = members.shape
        if self.alone:  # columns side by side; some more at the end
            each = np.resize(columns, (-(-len(columns) // _SIDE_BY_SIDE), _SIDE_BY_SIDE))
            member = np.broadcast_to(members, each.shape)
        else:  # group after group, column after column
            each = np.broadcast_to(np.tile(columns, groups)[:, None], (groups * len(columns), width))
            member = np.repeat(members, len(columns), axis=0)
        self.buffers = _buffers(ready, np.stack([member, each], axis=1))
        self.rows = np.empty((len(each), rows, 2, each.shape[1]))

    @classmethod
    def of(
        cls, window: BrownianWindow, members: np.ndarray, columns: tuple[int, ...], blocks: int
    ) -> "PerChannelSource | None":
        """None if the driver has no native code."""
        width = _SIDE_BY_SIDE if members.size == 1 else members.shape[1]
        ready = _ready(window, (), width, 0)
        return ready and cls(ready, members, np.array(columns), blocks * BLOCK // 2)

    def draw(self, b: int, blocks: int, out: np.ndarray) -> np.ndarray:
        """So many blocks from block b on."""
        count, first = blocks * BLOCK // 2, b * BLOCK // 2
        side, _, _, width = self.rows.shape
        rows = self.rows.reshape(-1)[: side * count * 2 * width].reshape(side, count, 2, width)
        _draw_rows(self.native, self.buffers, first, rows)
        groups, steps, columns, _ = out.shape
        if self.alone:
            out[0, :, :, 0] = rows.transpose(1, 2, 0, 3).reshape(steps, -1)[:, :columns]
        else:
            out[:] = rows.reshape(groups, columns, steps, width).swapaxes(1, 2)
        return out


Ready = tuple[Kernel, np.ndarray]  # the kernel, and the words that it reads of the window


def _buffers(ready: Ready, member: np.ndarray) -> Buffers:
    """The memory of a kernel for groups of members with these numbers."""
    kernel, shared = ready
    buffers = kernel.allocate(member.shape[0] * member.shape[2])
    buffers.member, buffers.shared = np.ascontiguousarray(member), shared
    return buffers


def _draw_rows(kernel: Kernel, buffers: Buffers, first: int, rows: np.ndarray) -> None:
    """Write the increments of pairs of steps from pair `first` on into rows (groups, pairs, numbers, width)."""
    buffers.n[:], buffers.first_slot, buffers.saved = first, first, rows
    kernel.run(buffers, first + rows.shape[1])


def _ready(window: Window, columns: tuple[int, ...], width: int, side: int) -> Ready | None:
    """Native code for pairs of steps, of one motion if `side` is 0; None if the driver has none."""
    if not window.unit:
        return None
    leaves, treedef = jax.tree.flatten(window)
    key = treedef, tuple((np.shape(x), x.dtype) for x in leaves), columns, width, side
    native = _loops.get(key, lambda: attempt_native(lambda: _make(window, columns, width, side)))
    ready = (
        native if isinstance(native, NotSupported) else attempt_native(lambda: (native, native.shared_words(leaves)))
    )
    return None if isinstance(ready, NotSupported) else ready


def _cells(window: Window) -> int:
    """The number of intervals into which a step is divided."""
    return 2**window.below if isinstance(window, BrownianWindow) else 1


def drawn_with_steps(plan: Plan) -> bool:
    """Whether the kernel draws its increments itself: a small number of increments, which need not go through memory.

    Of one trajectory, or of few members, steps are drawn side by side instead.
    """
    window = plan.first_window
    few = isinstance(window, BrownianWindow) and 0 < window.n_noise <= _MANY and not window.subgrid
    return few and plan.members is not None and plan.batch_size >= _SIDE_BY_SIDE


def drawing(window: Window) -> PathSampler:
    """Return the path as a function that can be compiled; drivers without such a function raise NotCompilable."""
    leaves, treedef = jax.tree.flatten(window)

    def pair(shared: list, member: Array, k: Array, columns: tuple[int, ...]) -> Array:
        increments = jax.tree.unflatten(treedef, shared).pair(member, k)
        return jnp.stack(_columns(increments, 2, columns), axis=1)

    return PathSampler(pair, [dynamic_input(x) for x in leaves])


def _make(window: Window, columns: tuple[int, ...], width: int, side: int) -> Kernel:
    pair, shared = drawing(window)
    treedef = jax.tree.structure(window)

    def step(shared: list, own: list, state: None, n: Array, path: None) -> tuple[None, Array, Array]:
        member, lane = own
        here = jax.tree.unflatten(treedef, shared)
        if side == 0:
            drawn = here.pair(member, n, lane[None]).S
        elif window.subgrid:
            increments = here.steps(member, window.unit * (n * side + lane), window.unit)
            drawn = jnp.stack(_columns(increments, window.unit, columns), axis=1)
        else:
            drawn = pair(shared, member, n * side + lane, columns)
        return None, drawn, jnp.ones((), bool)

    integer = jax.ShapeDtypeStruct((), jnp.int64)
    return compile_step(step, Signature(shared, [integer, integer]), Cpu(width), max_operations=_OPERATIONS)


@partial(jax.jit, static_argnums=(4, 5))
def _draw(
    window: Window, members: Int[Array, "groups width"], b: Array, pairs: Array, columns: tuple[int, ...], blocks: int
) -> Float[Array, "groups steps columns width"]:
    """Return pairs of steps from block b on; for many Brownian paths only two blocks, which fit in a cache."""
    if isinstance(window, BrownianWindow) and members.size > 1:
        size, increments = 2, lambda member, first: window.steps(member, first, 2)
    else:
        size, increments = BLOCK, lambda member, first: window.block(member, first // BLOCK)

    def one(member: Array, first: Array) -> Array:
        return jnp.stack(_columns(increments(member, first), size, columns), axis=1)

    def some(i: Array, out: Array) -> Array:
        rows = jax.vmap(jax.vmap(one, (0, None), -1), (0, None))(members, b * BLOCK + i * size)
        return jax.lax.dynamic_update_slice_in_dim(out, rows, i * size, 1)

    out = jnp.zeros((len(members), blocks * BLOCK, len(columns), members.shape[1]))
    return jax.lax.fori_loop(0, -(-2 * pairs // size), some, out)


def _columns(increments: Increment, steps: int, columns: tuple[int, ...]) -> list[Array]:
    """Some of the numbers of each step."""
    flat = jnp.concatenate([x.reshape(steps, -1) for x in jax.tree.leaves(increments)], axis=1)
    return [flat[:, i] for i in columns]
