"""`compile_step` compiles a step, written as a JAX function for one member, as a loop over steps and members.

    kernel = compile_step(step, Signature(shared, member, state, path), Cpu(width=8), fallback=full_step)
    buffers = kernel.allocate(members, slots)
    kernel.set_inputs(buffers, shared=…, member=…, state=…, path=…)
    kernel.run(buffers, stop, save_every)

The target (`Cpu` or `Gpu`) alone determines for which machine the code is. A program without native code raises
`NotCompilable`, whose text is the reason.
"""

import math
from collections.abc import Callable, Sequence
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
from .kernel import Kernel, PathSampler, SharedInput, Signature, Sizes
from .lowering.complex_lowering import as_complex, as_reals, part_of, without_complex
from .lowering.evaluator import Attempt, emit_step, lowering_context
from .lowering.groups import copies_of
from .lowering.instructions import Value
from .lowering.llvm_builder import Code
from .lowering.scalar_kinds import LaneArray, number, split
from .targets.time_loop import Draw, Inputs, Target, write_loop

_MOST_FOLDED = 20  # programs with more operations per operation of the limit are not lowered to find out what remains
_LARGEST_KEY = 2**16  # bytes of shared arrays up to which their words are cached


def compile_step(
    step: Callable,
    signature: Signature,
    target: Target,
    *,
    fallback: Callable | None = None,
    path_sampler: PathSampler | None = None,
    max_operations: int = 10**6,
) -> Kernel:
    """Compile a loop over the steps of a JAX function.

    Parameters
    ----------
    step
        `step(shared, member, state, n, path) → (state, saved, ok)` for one member, traceable by JAX. `shared` and
        `member` are lists of arrays, `n` is the number of the step, and `saved` is the pytree to save. A step for which
        `ok` or a condition marked `likely` is false is not taken: the kernel stops before it.
    signature
        The inputs of the step.
    target
        The machine: `Cpu(width)` or `Gpu()`.
    fallback
        A function like `step` that repeats a step which is not valid, without assuming `likely` conditions. It makes
        compilation longer and does not change the results of other steps.
    path_sampler
        Function from which the kernel computes the path, instead of reading it.
    max_operations
        The largest number of operations on single numbers in a step.

    Returns
    -------
    Kernel
        The compiled loop.

    Raises
    ------
    NotCompilable
        If native code does not support an operation, a type or the size of the step.
    """
    with np.errstate(all="ignore"):  # constants such as 1/0 are evaluated as the kernel would
        return _compile_step(step, signature, target, fallback, path_sampler, max_operations)


def _compile_step(
    step: Callable,
    signature: Signature,
    target: Target,
    fallback: Callable | None,
    path_sampler: PathSampler | None,
    limit: int,
) -> Kernel:
    functions = [step] if fallback is None else [step, fallback]
    programs, reals, saved = traced(functions, signature, limit)
    _, member, state, _, path = reals
    code = Code(target.width)
    members, member_lanes = named("%o", jax.tree.leaves(member))
    before, state_lanes = named("%s", jax.tree.leaves(state))
    read, path_lanes = named("%d", jax.tree.leaves(path))
    n = Value("%n.each", np.int64)
    args = [*member_lanes, *state_lanes, object_array([n], ()), *path_lanes]
    copies = copies_of(programs[0].jaxpr) if target.packs else None
    attempts, names, operations, shared = lowered(code, programs, signature.shared, args, limit, copies)
    in_rows = set(signature.rows)
    columns = tuple(i for i, x in enumerate(read) if x.name in code.uses or i in in_rows)
    sampler_words, draw = None, None
    if path_sampler is not None and columns:
        sampler_words, draw = _sampled(code, path_sampler, columns, members[-1], limit)
    inputs = Inputs(before, members, [read[i] for i in columns], names, n)
    count = len(names) + (len(draw.uniforms) if draw else 0)
    numbers_saved = len(attempts[0].results) - len(before)
    read_of_path = 0 if draw else len(columns)
    sizes = Sizes(count, len(members), len(before), read_of_path, numbers_saved, len(signature.added))
    text = write_loop(code, inputs, attempts, target, draw, signature)
    return Kernel(
        target.link(text, sizes), signature, sizes, shared.words, shared.program, sampler_words, operations, columns,
        saved, target.layout,
    )  # fmt: skip


def traced(
    functions: Sequence[Callable], signature: Signature, limit: int
) -> tuple[list[jex.ClosedJaxpr], Any, PyTree]:
    """The programs of steps without complex numbers, the shapes of their arguments, and the shapes that they save."""
    counter = jax.ShapeDtypeStruct((), jnp.int64)
    shared = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype, _ in signature.shared]
    given = shared, signature.member, signature.state, counter, signature.path
    reals = as_reals(given)
    shapes: list[Any] = []

    def one(fn: Callable) -> jex.ClosedJaxpr:
        def real_step(*args: PyTree) -> PyTree:  # notes the shapes too: tracing again for them would double the time
            out = fn(*as_complex(args, given))
            shapes[:] = jax.tree.map(lambda x: jax.ShapeDtypeStruct(jnp.shape(x), jnp.result_type(x)), out)
            return as_reals(out)

        def checked(program: jex.ClosedJaxpr) -> jex.ClosedJaxpr:
            if count_operations(program.jaxpr) > _MOST_FOLDED * max(limit, 1000):
                raise NotCompilable.size(limit)
            return program

        return checked(without_complex(checked(jax.make_jaxpr(real_step)(*reals))))

    return [one(fn) for fn in functions], reals, shapes[1]


class SharedWords(NamedTuple):
    """The shared inputs of a kernel, as a function of the shared arrays and as a traced program."""

    words: Callable[[list], np.ndarray]
    program: jex.ClosedJaxpr


class Lowered(NamedTuple):
    """A compiled step and its shared inputs."""

    attempts: list[Attempt]  # at the step, of which the first that is valid is taken
    names: list[Value]  # of the shared inputs
    operations: int
    uniforms: SharedWords  # their values


def lowered(
    code: Code,
    programs: Sequence[jex.ClosedJaxpr],
    patterns: Sequence[SharedInput],
    args: Sequence[LaneArray],
    limit: int,
    copies: int | None = None,
) -> Lowered:
    """Lowers a step, from one or two programs of shared numbers with the given patterns and other arguments.

    The first assumes that `likely` conditions hold. If its result is not valid, the second takes the step.
    """
    made: list[Any] = []

    def write(shared: list[Array]) -> list[Array]:
        """Lower the step and return its shared inputs."""
        ctx = lowering_context(code, limit, copies=copies)
        given = [*(_with_pattern(x, p) for x, p in zip(shared, patterns, strict=True)), *args]
        attempts = [emit_step(ctx, programs[0], given)]
        if len(programs) > 1:
            code.branch(attempts[0].taken, "step.accept", "step.fallback", likely=True)
            code.begin("step.fallback")
            attempts.append(emit_step(ctx, programs[1], given, attempts[0]))
        made[:] = [attempts, [name for _, name in ctx.shared.inputs], limit - ctx.groups.left]
        return [_as_word(x) for x, _ in ctx.shared.inputs]

    structs = as_reals([jax.ShapeDtypeStruct(shape, dtype) for shape, dtype, _ in patterns])
    program = jax.make_jaxpr(write)(structs)
    uniforms = SharedWords(_by_words(program), program)
    attempts, names, operations = made
    return Lowered(attempts, names, operations, uniforms)


def _sampled(code: Code, sampler: PathSampler, columns: tuple, member: Value, limit: int) -> tuple[Callable, Draw]:
    """Lower the sampler of a pair of steps; its shared inputs are computed as for the step."""
    structs = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype, _ in sampler.shared]
    counter = jax.ShapeDtypeStruct((), jnp.int64)
    closed = jax.make_jaxpr(lambda shared, member, k: sampler.pair(shared, member, k, columns))(
        structs, counter, counter
    )
    k = Value("%pair.each", np.int64)
    outside = code.lines, code.block, code.called
    code.lines, code.block, code.called = [], "draw", {}
    made: list[Any] = []

    def write(shared: list[Array]) -> list[Array]:
        ctx = lowering_context(code, limit, "%w")
        given = [_with_pattern(x, p) for x, p in zip(shared, sampler.shared, strict=True)]
        (rows,) = ctx.evaluate(closed, [*given, object_array([member], ()), object_array([k], ())])
        made[:] = [[[ctx.shared.operand(e) for e in row] for row in rows], [name for _, name in ctx.shared.inputs]]
        return [_as_word(x) for x, _ in ctx.shared.inputs]

    uniforms = _by_words(jax.make_jaxpr(write)(structs))
    rows, names = made
    code.use(*rows[0], *rows[1])
    lines, block = code.finished(), code.block
    code.lines, code.block, code.called = outside
    return uniforms, Draw(lines, block, k, names, *rows)


def _by_words(program: jex.ClosedJaxpr) -> Callable[[list], np.ndarray]:
    """Return the results of a program of the shared numbers as words; the last results are cached."""
    kept: LRUCache[np.ndarray] = LRUCache(8)
    run = numpy_function(program)

    def words(shared: list[np.ndarray]) -> np.ndarray:
        return np.array(run(as_reals(shared)), np.float64)

    def of(shared: list) -> np.ndarray:
        numbers = [np.asarray(x) for x in shared]
        if sum(x.nbytes for x in numbers) > _LARGEST_KEY:
            return words(numbers)
        return kept.get(tuple(x.tobytes() for x in numbers), lambda: words(numbers))

    return of


def _with_pattern(x: Array, constant_pattern: Any) -> LaneArray:
    """Return the lanes of shared numbers; those of the pattern are constants."""
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
