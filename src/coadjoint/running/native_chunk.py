"""The chunk in lanes: the same steps as `chunk.advance`, as native code (see `native`).

The step is written for one trajectory, or for a group of members side by side in the processor's vectors. The method
is tried without its fallbacks. A step that does not come out valid is not taken: its group stops before it, and the
plain program takes it through the rest of that block of steps. So a hard step costs time and nothing else.
"""

import threading
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree

from ..drivers import BLOCK, Increment, Window
from ..integrators.base import Integrator
from ..native.lanes import NativeLoop, native_loop, pattern
from ..systems import System
from .chunk import Clock, Point, Record, Stretch, one_step, record
from .native_path import Source, shapes_of_block

LARGEST = 16  # dimension of the algebra above which lanes are not tried
OPERATIONS = 20_000  # scalar operations up to which lanes pay: beyond, compiling takes too long
WIDTH = 8  # members side by side
_PIECE = 256  # slots whose states go through the user's `save` together


def eligible(system: System) -> bool:
    """Whether lanes are worth a try: a small real algebra, on a CPU."""
    real = jnp.issubdtype(system.algebra.dtype, jnp.floating)
    return system.algebra.dim <= LARGEST and real and jax.default_backend() == "cpu"


class Kernel(NamedTuple):
    """The native loop of a system and a method, and how their points are laid out in it."""

    native: NativeLoop
    treedef: Any  # of a point
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[Any, ...]

    def pack(self, point: Point, groups: int) -> np.ndarray:
        """Points as words, (groups, words, width)."""
        lead = groups, self.native.loop.width
        return np.concatenate([_words(x, lead) for x in jax.tree.leaves(point)], axis=1)

    def unpack(self, words: np.ndarray, batch: tuple[int, ...]) -> Point:
        """The points, with leading axes `batch`."""
        return jax.tree.unflatten(self.treedef, _arrays(words, self.shapes, self.dtypes, batch))


_kernels: dict[Hashable, Kernel] = {}
_making = threading.Lock()  # tiles run in threads, and one of them is to make the kernel


def kernel_for(
    system: System, integrator: Integrator, point: Point, dS: Increment, led: tuple[bool, ...], width: int
) -> Kernel:
    """The kernel for a point and increments of these shapes, of one member; made once.

    `led` says which numbers of the system lead with members.
    """
    numbers, rest = eqx.partition(system, eqx.is_array)
    leaves, treedef = jax.tree.flatten(numbers)
    patterns = tuple(pattern(x) for x, m in zip(leaves, led, strict=True) if not m)
    own = [jax.ShapeDtypeStruct(x.shape[2:], x.dtype) for x, m in zip(leaves, led, strict=True) if m]
    shapes = tuple((x.shape, str(x.dtype)) for x in jax.tree.leaves((point, dS, own)))
    key = (jax.tree.structure((system, integrator, point, dS)), patterns, shapes, led, width)
    with _making:
        if key not in _kernels:
            _kernels[key] = _make(rest, treedef, integrator, point, dS, patterns, own, led, width)
        return _kernels[key]


def _make(rest, treedef, integrator: Integrator, point: Point, dS: Increment, patterns, own, led, width: int) -> Kernel:
    """Write and compile the step of one member, in groups of `width`."""
    fast = integrator.for_lanes()

    def step(shared: list, own: list, point: Point, n: Array, dS: Increment) -> tuple[Point, Record, Array]:
        *shared, t0, dt = shared
        given, mine = iter(shared), iter(own)
        numbers = jax.tree.unflatten(treedef, [next(mine if m else given) for m in led])
        tally = point.tally._replace(unsolved=jnp.zeros((), int), first_unsolved=jnp.full((), -1))
        new = one_step(eqx.combine(numbers, rest), fast, t0, dt, n, dS, point._replace(tally=tally))
        ok = new.tally.unsolved == 0
        new = new._replace(
            tally=new.tally._replace(unsolved=point.tally.unsolved, first_unsolved=point.tally.first_unsolved)
        )
        return new, record(integrator, None, new), ok

    scalar = (), "float64", (None,)
    native = native_loop(step, [*patterns, scalar, scalar], own, point, dS, width, OPERATIONS)
    words = jax.tree.leaves(point)
    layout = tuple(x.shape for x in words), tuple(np.dtype(x.dtype) for x in words)
    return Kernel(native, jax.tree.structure(point), *layout)


def _words(x: Any, lead: tuple[int, int]) -> np.ndarray:
    """An array that leads with members as words (groups, words, width)."""
    a = np.asarray(x)
    a = a if a.dtype.itemsize == 8 else a.astype(np.int64)
    return np.ascontiguousarray(a.reshape(*lead, -1).swapaxes(1, 2)).view(np.int64)


def _arrays(words: np.ndarray, shapes: Any, dtypes: Any, batch: tuple[int, ...]) -> list[np.ndarray]:
    """Arrays from words (groups, …, words, width): the last axis but one becomes their own, the last the member's."""
    out, at = [], 0
    for shape, dtype in zip(shapes, dtypes, strict=True):
        size = int(np.prod(shape))
        a = words[..., at : at + size, :]
        a = a.view(dtype) if np.dtype(dtype).itemsize == 8 else a.astype(dtype)
        out.append(np.ascontiguousarray(a.swapaxes(-1, -2)).reshape((*batch, *shape)))
        at += size
    return out


def advance_lanes(
    system: System,
    integrator: Integrator,
    window: Window,
    save: Callable[[Array], PyTree] | None,
    clock: Clock,
    member: Int[Array, "..."],
    first_slot: int,
    n1: int,
    stretch: Stretch,
    led: tuple[bool, ...] | None = None,
) -> Stretch:
    """As `chunk.advance`, for one trajectory or for groups of members (then `member` and the arrays lead with both).

    Stops when a group meets a step that does not come out valid: `n` is then that step, and `plain_until` the end
    of its block.
    """
    batch = np.shape(member)
    groups, width = batch or (1, 1)
    numbers = jax.tree.leaves(eqx.filter(system, eqx.is_array))
    led = (False,) * len(numbers) if led is None else led
    kernel = kernel_for(system, integrator, *_structs(stretch.point, window, len(batch)), led, width)
    native = kernel.native
    shared = [x for x, m in zip(numbers, led, strict=True) if not m]
    own = [_words(x, (groups, width)) for x, m in zip(numbers, led, strict=True) if m]
    own_words = np.concatenate(own, axis=1) if own else np.zeros((groups, 0, width), np.int64)
    uniforms = np.asarray(native.uniforms([*shared, clock.t0, clock.dt]))
    words = kernel.pack(stretch.point, groups)
    n = np.array(stretch.n).reshape(groups)
    start, every = n.copy(), int(clock.save_every)
    count = jax.tree.leaves(stretch.slots)[0].shape[len(batch) // 2]
    raw = np.empty((groups, count, native.loop.saved, width), np.int64)
    source = Source(window, np.asarray(member).reshape(groups, width), native.columns)
    end = n1
    while (low := int(n.min())) < n1:
        b = low // BLOCK
        path = source.draw(b)
        end = min(n1, b * BLOCK + path.shape[1])
        native.loop(n, end, b * BLOCK, every, first_slot, words, uniforms, own_words, path, raw)
        if np.any(n < end):
            break
    slots = _merge(kernel, save, raw, stretch.slots, start // every - first_slot, n // every - first_slot, batch)
    point = kernel.unpack(words, batch)
    until = np.where(n < end, (n // BLOCK + 1) * BLOCK, 0)[:, None].repeat(width, axis=1).reshape(batch)
    return Stretch(point._replace(plain_until=until), jnp.asarray(n.reshape(np.shape(stretch.n))), slots)


def _merge(kernel: Kernel, save, raw: np.ndarray, slots: Record, first: np.ndarray, last: np.ndarray, batch) -> Record:
    """The slots with what the kernel saved: those from `first` up to `last` of each group."""
    shapes = jax.tree.leaves(kernel.native.saved)
    groups, count, _, width = raw.shape
    used = int(last.max())
    lead = (groups, used, width) if batch else (used,)
    filled = _arrays(raw[:, :used], [s.shape for s in shapes], [s.dtype for s in shapes], lead)
    lead = (groups, count, width) if batch else (count,)
    flat = [np.empty((*lead, *s.shape), s.dtype) for s in shapes]
    for a, x in zip(flat, filled, strict=True):
        a[(slice(None), slice(used)) if batch else slice(used)] = x
    record = jax.tree.unflatten(jax.tree.structure(kernel.native.saved), flat)
    if save is not None:
        record = record._replace(values=_saved(save, record.values, used, bool(batch)))
    index = np.arange(raw.shape[1])
    if np.all(first == 0) and np.all(last == last[0]):
        return record
    new = (index >= first[:, None]) & (index < last[:, None])
    new = new[:, :, None] if batch else new[0]

    def choose(a: Any, b: Any) -> np.ndarray:
        return np.where(new.reshape(new.shape + (1,) * (np.ndim(a) - new.ndim)), a, b)

    return jax.tree.map(choose, record, slots)


def _saved(save: Callable[[Array], PyTree], states: np.ndarray, used: int, grouped: bool) -> PyTree:
    """`save` of the states in the first `used` slots, in pieces of one shape; what is in the others does not matter."""
    axes, axis = (3, 1) if grouped else (1, 0)  # that lead, and that of the slots
    count = states.shape[axis]
    size = min(_PIECE, count)
    shapes = jax.eval_shape(save, jax.ShapeDtypeStruct(states.shape[axes:], states.dtype))
    out = jax.tree.map(lambda s: np.zeros((*states.shape[:axes], *s.shape), s.dtype), shapes)
    for first in range(0, used, size):
        start = min(first, count - size)
        piece = (slice(None),) * axis + (slice(start, start + size),)
        values = _each(save, jnp.asarray(states[piece]), axes)
        for a, x in zip(jax.tree.leaves(out), jax.tree.leaves(values), strict=True):
            a[piece] = x
    return out


@eqx.filter_jit
def _each(save: Callable[[Array], PyTree], states: Array, axes: int) -> PyTree:
    for _ in range(axes):
        save = jax.vmap(save)
    return save(states)


def _structs(point: Point, window: Window, axes: int) -> tuple[Point, Increment]:
    """Shapes of one member's point, and of its increments in a step."""
    one = jax.tree.map(lambda x: jax.ShapeDtypeStruct(np.shape(x)[axes:], np.asarray(x).dtype), point)
    return one, jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), shapes_of_block(window))
