"""The native backend: small systems as machine code made from the traced step (see `native`).

The step is written for one trajectory, or for a group of members side by side in the processor's vectors. The method
is tried without its fallbacks, and what is likely is taken for true. A step that does not come out valid is not taken:
its group stops before it. Then a thorough kernel is made, which takes such steps with all branches; and where that
cannot solve a step either, the careful program takes it, compiled by XLA. So a hard step costs time and nothing else.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PyTree

from ...drivers import BLOCK, Increment, Window
from ...native.lanes import NativeLoop, free, native_loop, pattern
from ...native.refused import Refused
from ...numerics.caching import Bounded
from ...systems import System
from ..exclusive import alone
from ..members import with_params
from ..plan import Plan, Tile
from ..points import Clock, Point, Record, record, try_step
from .base import Refusal
from .increments import Source
from .xla import Core, careful_step, start_tile

LARGEST = 16  # dimension of the algebra above which native code is not tried
OPERATIONS = 20_000  # scalar operations up to which native code pays: beyond, compiling takes too long
WIDTH = 8  # members side by side
_PIECE = 256  # saved times whose states go through the user's `save` together


def prepare(plan: Plan) -> "NativeProgram | Refusal":
    """Native code for the step of the plan, or why there is none."""
    algebra = plan.system.algebra
    if not jnp.issubdtype(algebra.dtype, jnp.floating):
        return Refusal(f"states of {type(algebra).__name__} are complex, and native code has real numbers only.")
    if algebra.dim > LARGEST:
        return Refusal(f"the algebra has dimension {algebra.dim}, and native code is made for {LARGEST} at most.")
    kernel = kernel_for(plan)
    return kernel if isinstance(kernel, Refusal) else NativeProgram(plan, kernel)


class NativeProgram:
    """Tiles as native code, in groups of members."""

    backend, reason = "native", ""

    def __init__(self, plan: Plan, kernel: "Kernel"):
        self.plan, self.kernel, self.core = plan, kernel, Core.of(plan)

    def placed(self) -> AbstractContextManager[Any]:
        """The CPU, whatever JAX's default device is."""
        try:
            return jax.default_device(jax.local_devices(backend="cpu")[0])
        except RuntimeError:  # JAX was told to know no CPU
            return nullcontext()

    def start(self, tile: Tile) -> tuple[Point, Record]:
        """The points before the first step, and what is saved of them."""
        return start_tile(self.core, tile)

    def stepper(self, tile: Tile, points: Point, n: int) -> "NativeStepper":
        """Ready to go on."""
        return NativeStepper(self.plan, self.kernel, self.core, tile, points, n)


class Kernel(NamedTuple):
    """The native loop of a system and a method, and how their points are laid out in it."""

    native: NativeLoop
    by_member: tuple[bool, ...]  # which numbers of the system lead with members
    treedef: Any  # of a point
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[Any, ...]

    @property
    def width(self) -> int:
        """Members side by side."""
        return self.native.loop.width

    def pack(self, tree: PyTree) -> np.ndarray:
        """Arrays that lead with members as words (groups, words, width)."""
        return packed(jax.tree.leaves(tree), self.width)

    def unpack(self, words: np.ndarray) -> Point:
        """The points of all members from words (groups, words, width)."""
        arrays = unpacked(words[:, None], self.shapes, self.dtypes)
        return jax.tree.unflatten(self.treedef, [a[:, 0] for a in arrays])


def packed(leaves: list, width: int) -> np.ndarray:
    """Arrays that lead with members as words of eight bytes, (groups, words, width)."""

    def words(x: Any) -> np.ndarray:
        a = np.asarray(x)
        a = a if a.dtype.itemsize == 8 else a.astype(np.int64)
        return np.ascontiguousarray(a.reshape(len(a) // width, width, a[0].size).swapaxes(1, 2)).view(np.int64)

    return np.concatenate([words(x) for x in leaves], axis=1)


def unpacked(words: np.ndarray, shapes: Any, dtypes: Any) -> list[np.ndarray]:
    """Arrays (members, times, …) from words (groups, times, words, width)."""
    groups, times, _, width = words.shape
    out, at = [], 0
    for shape, dtype in zip(shapes, dtypes, strict=True):
        size = int(np.prod(shape))
        a = words[:, :, at : at + size]
        a = a.view(dtype) if np.dtype(dtype).itemsize == 8 else a.astype(dtype)
        out.append(np.ascontiguousarray(a.transpose(0, 3, 1, 2)).reshape(groups * width, times, *shape))
        at += size
    return out


# Making kernels.

_kernels: Bounded[Kernel | Refusal] = Bounded()
_marks: Bounded[tuple[tuple[bool, ...], tuple[bool, ...]]] = Bounded()


def kernel_for(plan: Plan, thorough: bool = False) -> Kernel | Refusal:
    """The kernel for the step of a plan, or why there is none; found out once for plans alike."""
    leaves = _numbers(plan.system)
    axes = jax.tree.leaves(plan.axes, is_leaf=lambda x: x is None)
    is_param, by_member = _marks.get((plan.structure, *axes), lambda: (_is_param(plan), _by_member(plan)))
    marked = zip(leaves, is_param, by_member, strict=True)
    patterns = tuple(free(x) if p else pattern(x) for x, p, m in marked if not m)
    width = 1 if plan.members is None else min(WIDTH, plan.tile)
    shapes = tuple((x.shape, x.dtype) for x in jax.tree.leaves((plan.point, plan.increment)))
    key = plan.structure, jax.tree.structure(plan.increment), patterns, shapes, by_member, width, thorough

    def make() -> Kernel | Refusal:
        try:
            return _make(plan, patterns, by_member, width, thorough)
        except Refused as refused:
            return Refusal(str(refused))

    return _kernels.get(key, make)


def _numbers(system: System) -> list[Any]:
    """All arrays of a system."""
    return [x for x in jax.tree.leaves(system) if eqx.is_array(x)]


def _marked(plan: Plan, params: PyTree) -> tuple[bool, ...]:
    """For each number of the system, what is said of its params, or False if it is not one of them."""
    flags = jax.tree.map(lambda _: False, eqx.filter(plan.system, eqx.is_array))
    if plan.system.params is not None:
        flags = eqx.tree_at(lambda s: s.params, flags, params)
    return tuple(jax.tree.leaves(flags))


def _by_member(plan: Plan) -> tuple[bool, ...]:
    """For each number of the system, whether it leads with members."""
    axes = jax.tree.map(lambda _: None, plan.system.params) if plan.axes is None else plan.axes
    return _marked(plan, jax.tree.map(lambda _, a: a == 0, plan.system.params, axes, is_leaf=lambda x: x is None))


def _is_param(plan: Plan) -> tuple[bool, ...]:
    """For each number of the system, whether it is one of its params, of which nothing is compiled in."""
    return _marked(plan, jax.tree.map(lambda _: True, plan.system.params))


def _make(plan: Plan, patterns: tuple, by_member: tuple[bool, ...], width: int, thorough: bool) -> Kernel:
    """Write and compile the step of one member, in groups of `width`."""
    numbers, rest = eqx.partition(plan.system, eqx.is_array)
    leaves, treedef = jax.tree.flatten(numbers)
    own = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x, m in zip(leaves, by_member, strict=True) if m]
    fast = plan.integrator.fast()

    def step(shared: list, own: list, point: Point, n: Array, dS: Increment) -> tuple[Point, Record, Array]:
        *shared, t0, dt = shared
        given, mine = iter(shared), iter(own)
        numbers = jax.tree.unflatten(treedef, [next(mine if m else given) for m in by_member])
        new, valid = try_step(eqx.combine(numbers, rest), fast, t0, dt, n, dS, point)
        return new, record(plan.integrator, None, new), valid

    scalar = free(0.0)
    point = plan.point
    native = native_loop(step, [*patterns, scalar, scalar], own, point, plan.increment, width, OPERATIONS, thorough)
    words = jax.tree.leaves(point)
    layout = tuple(x.shape for x in words), tuple(np.dtype(x.dtype) for x in words)
    return Kernel(native, by_member, jax.tree.structure(point), *layout)


# Running.


class NativeStepper:
    """The members of a tile in groups, as words that the native loop reads and writes in place."""

    def __init__(self, plan: Plan, kernel: Kernel, core: Core, tile: Tile, points: Point, n: int):
        self.plan, self.core, self.tile, self.thorough = plan, core, tile, False
        self.words = kernel.pack(points)
        groups, _, width = self.words.shape
        self.shape = groups, width
        self.n = np.full(groups, n)
        numbers = list(zip(_numbers(self._system()), kernel.by_member, strict=True))
        own = [x for x, m in numbers if m]
        self.own = packed(own, width) if own else np.zeros((groups, 0, width), np.int64)
        self.shared = [x for x, m in numbers if not m]
        self._use(kernel)

    def _use(self, kernel: Kernel) -> None:
        """Go on with this kernel."""
        clock = self.plan.clock
        self.kernel = kernel
        self.uniforms = np.asarray(kernel.native.uniforms([*self.shared, clock.t0, clock.dt]))
        self.source: Source | None = None

    def _system(self) -> System:
        """The system with the parameters of the tile."""
        return self.plan.system if self.plan.axes is None else with_params(self.plan.system, self.tile.params)

    def points(self) -> Point:
        """Where the members are; not the words themselves, which the next steps write over."""
        return self.kernel.unpack(self.words.copy())

    def advance(self, n1: int) -> Record:
        """Native steps as far as they go, and other ones where they stop."""
        every = self.plan.save_every
        first = int(self.n[0]) // every
        groups, width = self.shape
        raw = np.empty((groups, n1 // every - first, self.kernel.native.loop.saved, width), np.int64)
        while (low := int(self.n.min())) < n1:
            b = low // BLOCK
            path = self._source(n1).draw(b, n1)
            end = min(n1, b * BLOCK + path.shape[1])
            loop = self.kernel.native.loop
            loop(self.n, end, b * BLOCK, every, first, self.words, self.uniforms, self.own, path, raw)
            waiting = self.n < end
            if waiting.any() and not self._more_thorough():
                self._careful(waiting, raw, first)
        return self._rows(raw)

    def _more_thorough(self) -> bool:
        """Go on with the thorough kernel, unless that was done already, or there is none."""
        if self.thorough:
            return False
        self.thorough = True
        kernel = kernel_for(self.plan, thorough=True)
        if isinstance(kernel, Refusal):
            return False
        self._use(kernel)
        return True

    def _source(self, n1: int) -> Source:
        """Increments of steps up to n₁ at least."""
        if self.source is None or n1 > self.covered:
            first = int(self.n.min()) // BLOCK
            window = self.plan.window(first) if first else self.plan.first_window
            self.covered = (first + self.plan.blocks) * BLOCK
            self.source = Source(window, self.tile.member.reshape(self.shape), self.kernel.native.columns)
        return self.source

    def _careful(self, waiting: np.ndarray, raw: np.ndarray, first: int) -> None:
        """One step of the groups that stopped, by the program with all fallbacks."""
        assert self.source is not None
        every = self.plan.save_every
        lead = lambda x: jnp.asarray(x).reshape(*self.shape, *np.shape(x)[1:])
        points = alone(
            _careful_step, self.core, self.source.window, self.plan.clock, lead(self.tile.member), self._params(lead),
            self.n, waiting, jax.tree.map(lead, self.points()),
        )  # fmt: skip
        flat = jax.tree.map(lambda x: np.asarray(x).reshape(-1, *x.shape[2:]), points)
        self.words = self.kernel.pack(flat)
        self.n = self.n + waiting
        due = np.flatnonzero(waiting & (self.n % every == 0))
        if len(due):
            saved = self.kernel.pack(record(self.plan.integrator, None, flat))
            raw[due, self.n[due] // every - 1 - first] = saved[due]

    def _params(self, lead: Callable) -> PyTree:
        """The parameters with leading axes (groups, width), those that all members share with one of groups."""
        axes, params = self.core.axes, self.tile.params
        if axes is None:
            return None
        groups = self.shape[:1]
        return jax.tree.map(lambda x, a: lead(x) if a == 0 else jnp.broadcast_to(x, groups + x.shape), params, axes)

    def _rows(self, raw: np.ndarray) -> Record:
        """What was saved, (member, saved time, …), without padding."""
        shapes = self.kernel.native.saved
        leaves = jax.tree.leaves(shapes)
        flat = unpacked(raw, [s.shape for s in leaves], [s.dtype for s in leaves])
        rows: Record = jax.tree.unflatten(jax.tree.structure(shapes), [x[: self.tile.count] for x in flat])
        if self.plan.save is not None:
            rows = rows._replace(values=_saved(self.plan, self.plan.save, rows.values, self.tile.member.size))
        return rows


@eqx.filter_jit
def _careful_step(
    core: Core,
    window: Window,
    clock: Clock,
    member: Int[Array, "groups width"],
    params: PyTree,
    n: Int[Array, " groups"],
    waiting: Bool[Array, " groups"],
    points: Point,
) -> Point:
    """Step n of each group that waits before it; the others cost nothing."""

    def one_group(group: tuple) -> Point:
        member, params, n, waiting, points = group
        every = jnp.ones(member.shape, bool)
        step = lambda points: careful_step(core, window, clock, member, params, n + 0 * member, every, points)
        return jax.lax.cond(waiting, step, lambda points: points, points)

    return jax.lax.map(one_group, (member, params, n, waiting, points))


def _saved(plan: Plan, save: Callable, states: np.ndarray, size: int) -> PyTree:
    """The user's `save` of states (member, saved time, …), in pieces of one shape."""
    count, times = states.shape[:2]
    out = jax.tree.map(lambda s: np.empty((count, times, *s.shape), s.dtype), plan.record.values)
    piece = np.zeros((size, min(_PIECE, plan.slots), *states.shape[2:]), states.dtype)
    for first in range(0, times, piece.shape[1]):
        some = states[:, first : first + piece.shape[1]]
        piece[:count, : some.shape[1]] = some
        values = _each(save, piece)
        for a, x in zip(jax.tree.leaves(out), jax.tree.leaves(values), strict=True):
            a[:, first : first + some.shape[1]] = np.asarray(x)[:count, : some.shape[1]]
    return out


@eqx.filter_jit
def _each(save: Callable[[Array], PyTree], states: np.ndarray) -> PyTree:
    return jax.vmap(jax.vmap(save))(jnp.asarray(states))
