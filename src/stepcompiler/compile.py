"""The front door: a step, written as a JAX function for one member, as a compiled loop over steps and members.

    loop = native_loop(step, patterns, own, state, path, target)

What the code is for, a CPU or a GPU, is the target's matter alone (see `loop`).

What has no native code raises `NotCompilable`, whose text is the reason.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jex
from jaxtyping import Array, PyTree

from .cache import LRUCache
from .errors import NotCompilable
from .jaxprs.data_movement import object_array
from .jaxprs.equations import count_operations
from .jaxprs.numpy_eval import numpy_function
from .lowering.complex_lowering import as_complex, as_reals, part_of, without_complex
from .lowering.evaluator import Attempt, Evaluator
from .lowering.llvm_builder import Code, Value
from .lowering.scalar_kinds import LaneArray, number, split
from .targets.slp_vectorizer import copies_of
from .targets.time_loop import Draw, Inputs, Target, written

_MOST_FOLDED = 20  # of so many operations in a program as it stands, one may be left after folding
_KEPT = 2**16  # bytes of numbers, up to which what code reads of them is kept


class NativeLoop(NamedTuple):
    """The compiled loop over steps, and what it has to be given."""

    loop: Any  # what the target made of it
    uniforms: Callable[[list], np.ndarray]  # of the shared numbers: what the code reads of them
    drawn: Callable[[list], np.ndarray] | None  # of those of the path, if the code draws it: what it reads after those
    operations: int  # of a step
    columns: tuple[int, ...]  # the elements of the path that the step reads
    saved: PyTree  # what a step saves, as shapes


def constant_pattern(x: Any) -> Hashable:
    """Of shared numbers that are constants: where they are exactly 0 or 1, or whole numbers.

    Code is made for the pattern, and products with 0 and the like are left out; the other values are inputs. So is −0,
    which is equal to 0, and would otherwise share the code of 0.
    """
    values = np.asarray(x)
    parts = np.stack([np.real(values), np.imag(values)], axis=-1) if values.dtype.kind == "c" else values
    fixed = parts.ravel().tolist()
    if parts.dtype.kind == "f":
        fixed = [v if v == 1.0 or (v == 0.0 and math.copysign(1.0, v) > 0.0) else None for v in fixed]
    return values.shape, values.dtype, tuple(fixed)


def dynamic_input(x: Any) -> Hashable:
    """Of shared numbers that may become any others: all are inputs, and nothing is made for their values."""
    array = x if hasattr(x, "dtype") else np.asarray(x)
    dtype = np.dtype(array.dtype)
    return array.shape, dtype, (None,) * (array.size * (2 if dtype.kind == "c" else 1))


def native_loop(
    step: Callable,
    patterns: Sequence,
    own: Sequence,
    state: PyTree,
    path: PyTree,
    target: Target,
    limit: int = 10**6,
    thorough: Callable | None = None,
    draw: "Drawing | None" = None,
) -> NativeLoop:
    """The loop over `step(shared, own, state, n, path) → (state, saved, ok)`, written for JAX and one member.

    `shared` is a list of arrays with the given patterns, the same for all; `own`, `state` and `path` are shapes of each
    member's own arrays, of its state and of what it reads of the path in a step; n is the number of the step.

    What is `likely` is taken for true, and a step for which it was not is not taken; nor is one that is not `ok`.
    Unless there is a `thorough` function like `step`: that does such a step again, with all branches. It takes longer
    to compile; other steps have the same bits.
    """
    with np.errstate(all="ignore"):  # of known numbers: 1/0 and the like are what they are in the code
        return _native_loop(step, patterns, own, state, path, target, limit, thorough, draw)


def _native_loop(
    step: Callable,
    patterns: Sequence,
    own: Sequence,
    state: PyTree,
    path: PyTree,
    target: Target,
    limit: int,
    thorough: Callable | None,
    draw: "Drawing | None",
) -> NativeLoop:
    counter = jax.ShapeDtypeStruct((), jnp.int64)
    given = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype, _ in patterns], list(own), state, counter, path
    _, own, state, _, path = reals = as_reals(given)
    shapes: list[Any] = []

    def traced(step: Callable) -> jex.ClosedJaxpr:
        def real_step(*args: PyTree) -> PyTree:  # traced once: a second time, for the shapes, would take as long again
            out = step(*as_complex(args, given))
            shapes[:] = jax.tree.map(lambda x: jax.ShapeDtypeStruct(jnp.shape(x), jnp.result_type(x)), out)
            return as_reals(out)

        def checked(program: jex.ClosedJaxpr) -> jex.ClosedJaxpr:
            if count_operations(program.jaxpr) > _MOST_FOLDED * max(limit, 1000):
                raise NotCompilable.size(limit)
            return program

        return checked(without_complex(checked(jax.make_jaxpr(real_step)(*reals))))

    programs = [traced(fn) for fn in (step, thorough) if fn is not None]
    copies = copies_of(programs[0].jaxpr) if target.packs else None
    code = Code(target.width)
    owned, own_lanes = named("%o", own)
    before, state_lanes = named("%s", jax.tree.leaves(state))
    read, path_lanes = named("%d", jax.tree.leaves(path))
    n = Value("%n.each", np.int64)
    args = [*own_lanes, *state_lanes, object_array([n], ()), *path_lanes]
    attempts, names, operations, uniforms = attempted(code, programs, patterns, args, limit, copies)
    columns = tuple(i for i, x in enumerate(read) if x.name in code.uses)
    drawn, draws = (None, None) if draw is None or not columns else _drawn(code, draw, columns, owned[-1], limit)
    inputs = Inputs(before, owned, [read[i] for i in columns], names, n)
    return NativeLoop(written(code, inputs, attempts, target, draws), uniforms, drawn, operations, columns, shapes[1])


class Attempted(NamedTuple):
    """A step as code, and what it reads of the shared numbers."""

    attempts: list[Attempt]  # at the step, of which the first that is valid is taken
    names: list[Value]  # of what it reads of the shared numbers
    operations: int
    uniforms: Callable[[list], np.ndarray]  # what these are


def attempted(
    code: Code,
    programs: Sequence[jex.ClosedJaxpr],
    patterns: Sequence,
    args: Sequence[LaneArray],
    limit: int,
    copies: int | None = None,
) -> Attempted:
    """A step as code: by programs that take shared numbers with the given patterns and other arguments, one or two.

    The first takes what is likely for true; where that does not come out valid, the second does it.
    """
    made: list[Any] = []

    def write(shared: list[Array]) -> list[Array]:
        """Writes the step; what it reads of the shared numbers comes out."""
        evaluator = Evaluator(code, limit, copies=copies)
        given = [*(_with_pattern(x, p) for x, p in zip(shared, patterns, strict=True)), *args]
        attempts = [evaluator.attempt(programs[0], given)]
        if len(programs) > 1:
            code.branch(attempts[0].taken, "step.accept", "step.thorough")
            attempts.append(evaluator.attempt(programs[1], given, attempts[0]))
        made[:] = [attempts, [name for _, name in evaluator.uniforms], limit - evaluator.left]
        return [_as_word(x) for x, _ in evaluator.uniforms]

    structs = as_reals([jax.ShapeDtypeStruct(shape, dtype) for shape, dtype, _ in patterns])
    uniforms = _by_words(jax.make_jaxpr(write)(structs))
    attempts, names, operations = made
    return Attempted(attempts, names, operations, uniforms)


class Drawing(NamedTuple):
    """The path as a function that code can evaluate: pair(shared, member, k, columns) → rows of steps 2k and 2k + 1.

    `shared` has the given patterns; the member's number is the last of its own numbers.
    """

    pair: Callable
    patterns: Sequence


def _drawn(code: Code, draw: Drawing, columns: tuple, member: Value, limit: int) -> tuple[Callable, Draw]:
    """The code that draws a pair of steps; what it reads of the shared numbers is computed as for any other code."""
    structs = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype, _ in draw.patterns]
    counter = jax.ShapeDtypeStruct((), jnp.int64)
    closed = jax.make_jaxpr(lambda shared, member, k: draw.pair(shared, member, k, columns))(structs, counter, counter)
    k = Value("%pair.each", np.int64)
    outside = code.lines, code.block, code.called
    code.lines, code.block, code.called = [], "draw", {}
    made: list[Any] = []

    def write(shared: list[Array]) -> list[Array]:
        evaluator = Evaluator(code, limit, "%w")
        given = [_with_pattern(x, p) for x, p in zip(shared, draw.patterns, strict=True)]
        (rows,) = evaluator.evaluate(closed, [*given, object_array([member], ()), object_array([k], ())])
        made[:] = [[[evaluator.operand(e) for e in row] for row in rows], [name for _, name in evaluator.uniforms]]
        return [_as_word(x) for x, _ in evaluator.uniforms]

    uniforms = _by_words(jax.make_jaxpr(write)(structs))
    rows, names = made
    for x in (*rows[0], *rows[1]):
        code.text(x)  # what comes out is used
    lines, block = code.written(), code.block
    code.lines, code.block, code.called = outside
    return uniforms, Draw(lines, block, k, names, *rows)


def _by_words(program: jex.ClosedJaxpr) -> Callable[[list], np.ndarray]:
    """What a program of the shared numbers gives, as words; those of the numbers met last are kept."""
    kept: LRUCache[np.ndarray] = LRUCache(8)
    run = numpy_function(program)

    def words(shared: list[np.ndarray]) -> np.ndarray:
        return np.array(run(as_reals(shared)), np.float64)

    def of(shared: list) -> np.ndarray:
        numbers = [np.asarray(x) for x in shared]
        if sum(x.nbytes for x in numbers) > _KEPT:
            return words(numbers)
        return kept.get(tuple(x.tobytes() for x in numbers), lambda: words(numbers))

    return of


def _with_pattern(x: Array, constant_pattern: Any) -> LaneArray:
    """The lanes of shared numbers, those of the pattern known."""
    shape, dtype, fixed = constant_pattern
    if np.dtype(dtype).kind == "c":
        shape, dtype = (*shape, 2), part_of(dtype)
    if all(v is not None for v in fixed):
        return split(np.asarray(fixed, dtype).reshape(shape))
    flat = split(x).ravel()
    return object_array([e if v is None else number(v, dtype) for e, v in zip(flat, fixed, strict=True)], shape)


def named(stem: str, structs: Sequence) -> tuple[list[Value], list[LaneArray]]:
    """Names for all elements of some arrays, flat and as lanes."""
    flat: list[Value] = []
    lanes = []
    for s in structs:
        new = [Value(f"{stem}{len(flat) + i}", s.dtype) for i in range(math.prod(s.shape))]
        flat += new
        lanes.append(object_array(new, s.shape))
    return flat, lanes


def _as_word(x: Array) -> Array:
    """Eight bytes."""
    if x.dtype == jnp.float64:
        return x
    if x.dtype == jnp.float32:
        x = jax.lax.bitcast_convert_type(x, jnp.uint32)
    return jax.lax.bitcast_convert_type(x.astype(jnp.int64), jnp.float64)
