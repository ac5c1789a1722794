"""The implementation of the primitives on a CPU: calls of kernels, as operations of JAX.

Arguments that differ between members have a leading axis of members, all others do not. A trajectory has one member.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from stepcompiler.jax_calls import CallResult, call

from ..run_state import SolverTotals
from .kernels import Kernels, Variant, kernels_of, width_for
from .layout import arrays, count_words, grouped, ungrouped, words
from .program import Program, shapes_of

_SEGMENT = 2**20  # bytes of the tape of the steps between two saved states, so that it stays in a cache
_LEAST = 64  # steps between two saved states
_INCOMPLETE = (
    "the native derivative of a step requires branches that could not be compiled. "
    'Pass adjoint="xla" to solve or ensemble.'
)


class Given(NamedTuple):
    """The arguments of a run as kernels take them."""

    kernels: Kernels
    members: int
    shared: list[Array]
    own: Array  # words (groups, words, width)
    first: Array
    path: Array  # words (groups, steps, columns, width)


def prepare(
    program: Program, members: int | None, flags: Sequence[bool], moving: Sequence[bool], args: Sequence[Array]
) -> Given:
    """Arrange the arguments of a run."""
    a, b, _ = program.counts
    variant = Variant(width_for(members), tuple(flags[:a]), tuple(moving))
    kernels, count = kernels_of(program, variant), members or 1
    numbers, first, rows = program.split(args)
    shared = [x for x, m in zip(numbers, variant.by_member, strict=True) if not m]
    own = [x for x, m in zip(numbers, variant.by_member, strict=True) if m]
    zero = [jnp.asarray(x) for x in SolverTotals.zero()]
    state = [*_spread(first, flags[a : a + b], count), *_spread(zero, [False] * len(zero), count)]
    return Given(
        kernels, count, shared, group_words(own, count, variant.width), group_words(state, count, variant.width),
        group_words(_spread(rows, flags[a + b :], count), count, variant.width, 2, program.steps),
    )  # fmt: skip


def _spread(xs: Sequence[Array], flags: Sequence[bool], count: int) -> list[Array]:
    """Return all arrays with a leading axis of members."""
    one = lambda x, m: jnp.asarray(x) if m else jnp.broadcast_to(jnp.asarray(x), (count, *jnp.shape(x)))
    return [one(x, m) for x, m in zip(xs, flags, strict=True)]


def group_words(xs: Sequence[Array], count: int, width: int, lead: int = 1, steps: int = 0) -> Array:
    """Words in groups; of no arrays none."""
    shape = (count, steps, 0) if lead == 2 else (count, 0)
    flat = words(xs, lead) if xs else jnp.zeros(shape, jnp.int64)
    return grouped(flat, width)


def segment_length(program: Program, columns: int, members: int) -> int:
    """Return the steps between two saved states if the complete tape is too long, else 0."""
    if program.steps * columns * 8 * members <= program.memory:
        return 0
    return min(program.steps, max(_LEAST, _SEGMENT // (8 * columns)))


def _results(program: Program, given: Given, rows: Array, state: Array, n: Array) -> list[Array]:
    """The results of a run from words in groups. A group that has stopped early counts as failed."""
    shapes = shapes_of(program)
    saved = len(program.saved)
    bare = [jax.ShapeDtypeStruct(s.shape[1:], s.dtype) for s in shapes[:saved]]
    out = arrays(ungrouped(rows, given.members), bare)
    parts = count_words(given.kernels.parts)
    totals = SolverTotals(*arrays(ungrouped(state, given.members)[:, parts:], given.kernels.totals))
    reached = jnp.repeat(n, given.first.shape[2])[: given.members]
    failed = reached < program.steps
    first: Any = jnp.where(failed, reached, totals.first_unsolved)
    unsolved: Any = totals.unsolved + jnp.where(failed, program.steps - reached, 0)
    residual: Any = jnp.where(failed, jnp.inf, totals.residual)
    out = [jnp.where(failed.reshape(-1, *[1] * (x.ndim - 1)), jnp.nan, x) for x in out]
    by_native_code = jnp.zeros_like(reached)
    return [*out, *totals._replace(unsolved=unsolved, first_unsolved=first, residual=residual), by_native_code]


def single(members: int | None, out: Sequence[Array]) -> list[Array]:
    """Without members the axis goes."""
    return [x[0] for x in out] if members is None else list(out)


def run(program: Program, members: int | None, given: Given, keep: int = 0) -> tuple[list[Array], CallResult]:
    """Run; with `keep`, save the state before each step whose number is a multiple of it."""
    done = call(
        given.kernels.run, given.shared, given.first, given.own, given.path, stop=program.steps, slots=program.slots,
        every=program.save_every, keep=keep, times=-(-program.steps // keep) if keep else 0,
    )  # fmt: skip
    return single(members, _results(program, given, done.saved, done.state, done.n)), done


def run_taped(program: Program, members: int | None, given: Given, keep: int) -> list[Array]:
    """Run, and save the inputs of the adjoint of every step; with `keep`, save states instead."""
    if keep:
        out, done = run(program, members, given, keep)
        kept = ungrouped(jnp.moveaxis(done.kept, 0, 1), given.members)
        return [*out, *single(members, [kept])]
    done = call(
        given.kernels.taped, given.shared, given.first, given.own, given.path, stop=program.steps,
        slots=program.steps, every=1,
    )  # fmt: skip
    columns = given.kernels.tape_columns
    starts, at = {}, 0
    for i, s in enumerate(given.kernels.parts):
        starts[i], at = at, at + count_words([s])
    where = {c: k for k, c in enumerate(columns)}
    places = [where[starts[i] + j] for i in program.saved for j in range(count_words([given.kernels.parts[i]]))]
    last = jnp.stack(
        [done.state[:, starts[i] + j] for i in program.saved for j in range(count_words([given.kernels.parts[i]]))], 1
    )
    rows = done.saved[:, program.save_every :: program.save_every]
    low, contiguous = places[0], places == list(range(places[0], places[0] + len(places)))
    rows = rows[:, :, low : low + len(places)] if contiguous else rows[:, :, jnp.asarray(places)]
    rows = jnp.concatenate([rows, last[:, None]], axis=1)
    out = _results(program, given, rows, done.state, done.n)
    return single(members, [*out, ungrouped(done.saved, given.members)])


def _none(like: Any, members: int) -> Array:
    """Zeros by member."""
    return jnp.zeros((members, *like.shape), like.dtype)


def _tape(given: Given, members: int | None, tape: Array) -> Array:
    """Return a tape, or saved states, in groups."""
    return grouped(tape if members is not None else tape[None], given.first.shape[2])


def run_adjoint(
    program: Program, members: int | None, given: Given, keep: int, tape: Array, cts: Sequence[Array]
) -> list[Array]:
    """Cotangents of the moving arguments, each by member, from those of the saved rows."""
    kernels, steps = given.kernels, program.steps
    lam, sums, added, saves = _backward_inputs(program, members, given, cts)
    state = group_words([*lam, *sums], given.members, given.first.shape[2])
    shared = [*given.shared, jnp.asarray(steps - 1)]
    tape = _tape(given, members, tape)
    if keep:
        state, slopes, n = _in_segments(program, given, keep, tape, shared, state, added, saves)
    else:
        done = call(
            kernels.adjoint, shared, state, given.own, tape, stop=steps, slots=added.shape[1], every=saves, added=added
        )
        state, slopes, n = done.state, done.saved, done.n
    return _complete(_cotangents(program, given, ungrouped(state, given.members), slopes), n, steps)


def _backward_inputs(
    program: Program, members: int | None, given: Given, cts: Sequence[Array]
) -> tuple[list[Array], list[Array], Array, int]:
    """λ and the gradients at the end, the cotangents of saved rows as words, and the steps between these."""
    kernels, steps, every = given.kernels, program.steps, program.save_every
    each_step = bool(kernels.moving_rows)  # slopes with respect to the path come out at every step
    cts = [x if members is not None else x[None] for x in cts]
    order = {i: k for k, i in enumerate(program.saved)}
    lam = [cts[order[i]][:, -1] if i in order else _none(kernels.parts[i], given.members) for i in program.floating]
    sums = [_none(kernels.numbers[i], given.members) for i in kernels.moving_numbers]
    before = [jnp.concatenate([jnp.zeros_like(x[:, :1]), x[:, :-1]], axis=1)[:, ::-1] for x in cts]
    added = words(before, 2)  # at saved step j, λ receives the cotangent of row −1 − j
    if each_step and every > 1:
        spread = jnp.zeros((given.members, program.slots, every, added.shape[2]), added.dtype)
        added = spread.at[:, :, -1].set(added).reshape(given.members, steps, added.shape[2])
    return lam, sums, grouped(added, given.first.shape[2]), 1 if each_step else every


def _cotangents(program: Program, given: Given, flat: Array, slopes: Array) -> list[Array]:
    """Cotangents of the moving arguments from the last state of an adjoint and the slopes of the path."""
    kernels = given.kernels
    floats = [kernels.parts[i] for i in program.floating]
    parts = arrays(flat, [*floats, *(kernels.numbers[i] for i in kernels.moving_numbers)])
    a, moving = program.counts[0], kernels.variant.moving
    start = [x for i, x in zip(program.floating, parts, strict=False) if moving[a + i]]
    along = arrays(ungrouped(slopes, given.members)[:, ::-1], [kernels.rows[i] for i in kernels.moving_rows])
    return [*parts[len(floats) :], *start, *along]


def run_second(
    program: Program, members: int | None, given: Given, keep: int, tape: Array, cts: Sequence[Array],
    slopes: Sequence[Array], flags: Sequence[bool],
) -> list[Array]:  # fmt: skip
    """The tangents of the results of `run_adjoint`, from those of the moving arguments."""
    kernels, steps, width = given.kernels, program.steps, given.first.shape[2]
    state, own, path = _forward_inputs(program, members, given, keep, tape, slopes, flags)
    ahead = call(kernels.tangent_taped, given.shared, state, own, path, stop=steps, slots=steps, every=1)
    lam, sums, added, saves = _backward_inputs(program, members, given, cts)
    zeros = [jnp.zeros_like(x) for x in (*lam, *sums)]
    done = call(
        kernels.second, [*given.shared, jnp.asarray(steps - 1)],
        group_words([*lam, *sums, *zeros], given.members, width), own,
        jnp.concatenate([path, ahead.saved], axis=2), stop=steps, slots=added.shape[1], every=saves, added=added,
    )  # fmt: skip
    flat = ungrouped(done.state, given.members)
    flat = flat[:, flat.shape[1] // 2 :]
    out = _cotangents(program, given, flat, done.saved)
    return _complete(out, jnp.minimum(ahead.n, done.n), steps)


def _complete(out: list[Array], n: Array, steps: int) -> list[Array]:
    """Raise an error if a kernel has stopped before a step that no native code takes."""
    return eqx.error_if(out, jnp.any(n < steps), _INCOMPLETE)


def _in_segments(
    program: Program, given: Given, keep: int, kept: Array, shared: list, state: Array, added: Array, saves: int
) -> tuple[Array, Array, Array]:
    """The adjoint from saved states: each segment is computed again, the last one first."""
    kernels, steps = given.kernels, program.steps
    count = kept.shape[1]
    each_step = bool(kernels.moving_rows)

    def segment(carry: tuple, j: Array) -> tuple[tuple, Array]:
        state, n_before = carry
        low, high = j * keep, jnp.minimum((j + 1) * keep, steps)
        again = call(
            kernels.taped, given.shared, jax.lax.dynamic_index_in_dim(kept, j, 1, keepdims=False), given.own,
            given.path, n=low, stop=high, slots=keep, every=1, first=low,
        )  # fmt: skip
        here = jax.lax.dynamic_slice_in_dim(added, steps - high, keep, 1) if each_step else added
        done = call(
            kernels.adjoint, shared, state, given.own, again.saved, n=steps - high, stop=steps - low,
            slots=here.shape[1], every=saves, first=(steps - high) if each_step else 0, added=here,
            base=steps - low - keep,
        )  # fmt: skip
        fine = (again.n >= high) & (done.n >= steps - low)
        return (done.state, jnp.where(fine, n_before, 0)), done.saved

    (state, n), slopes = jax.lax.scan(segment, (state, jnp.full(len(state), steps)), jnp.arange(count)[::-1])
    if not each_step:
        return state, added[:, :, :0], n
    flat = jnp.moveaxis(slopes, 0, 1)
    short = steps - (count - 1) * keep  # steps of the last segment, which comes first
    flat = jnp.concatenate([flat[:, 0, :short], flat[:, 1:].reshape(flat.shape[0], -1, *flat.shape[3:])], axis=1)
    return state, flat, n


def run_tangent(
    program: Program, members: int | None, given: Given, keep: int, tape: Array, slopes: Sequence[Array],
    flags: Sequence[bool],
) -> list[Array]:  # fmt: skip
    """Tangents of the saved rows, from those of the moving arguments."""
    kernels, steps = given.kernels, program.steps
    state, own, path = _forward_inputs(program, members, given, keep, tape, slopes, flags)
    like = [jax.ShapeDtypeStruct(kernels.parts[i].shape, kernels.parts[i].dtype) for i in program.saved]
    done = call(
        kernels.tangent, given.shared, state, own, path, stop=steps, slots=program.slots, every=program.save_every
    )
    return single(members, _complete(arrays(ungrouped(done.saved, given.members), like), done.n, steps))


def _forward_inputs(
    program: Program, members: int | None, given: Given, keep: int, tape: Array, slopes: Sequence[Array],
    flags: Sequence[bool],
) -> tuple[Array, Array, Array]:  # fmt: skip
    """The state, the inputs by member and the path of a tangent run."""
    kernels, steps, width = given.kernels, program.steps, given.first.shape[2]
    a, b, _ = program.counts
    along = _spread(slopes, flags, given.members)
    k = len(kernels.moving_numbers)
    first = iter(along[k : len(along) - len(kernels.moving_rows)])
    moving = kernels.variant.moving[a : a + b]
    state = [
        next(first) if moving[i] else _none(kernels.parts[i], given.members)
        for i in program.floating
    ]  # fmt: skip
    own = [ungrouped(given.own, given.members), words(along[:k])] if k else [ungrouped(given.own, given.members)]
    own_words = grouped(jnp.concatenate(own, axis=1), width)
    rows = along[len(along) - len(kernels.moving_rows) :]
    drows = group_words(rows, given.members, width, 2, steps)
    state_words, tape = group_words(state, given.members, width), _tape(given, members, tape)
    if keep:
        tape = _whole_tape(program, given, keep, tape)
    return state_words, own_words, jnp.concatenate([tape, drows], axis=2)


def _whole_tape(program: Program, given: Given, keep: int, kept: Array) -> Array:
    """The tape of all steps, from the first state."""
    done = call(
        given.kernels.taped, given.shared, kept[:, 0], given.own, given.path, stop=program.steps, slots=program.steps,
        every=1,
    )  # fmt: skip
    return done.saved
