"""`compile_array_step` compiles a step of large arrays as loops over their elements.

The interface is that of `compile_step`, which writes a step number by number, and so is limited to small ones.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..compile import traced
from ..errors import NotCompilable
from ..jaxprs.numpy_eval import numpy_function
from ..kernel import Kernel, SharedInput, Signature, Sizes
from ..lowering.complex_lowering import as_reals, part_of
from ..lowering.llvm_builder import Code
from ..targets.cpu import Cpu
from .loops import WIDTH, Memory
from .lowering import Lowering, large_axes, load_flag
from .storage import SMALL, reachable, stored
from .terms import Graph, Term
from .time_loop import Copies, Loop, Words, additions, copies, write_kernel

_MOST = 10**9  # operations of a step


def compile_array_step(
    step: Callable, signature: Signature, target: Cpu, *, fallback: Callable | None = None
) -> Kernel:
    """Compile a loop over the steps of a JAX function of large arrays. The arguments are those of `compile_step`."""
    functions = [step] if fallback is None else [step, fallback]
    with np.errstate(all="ignore"):
        programs, reals, saved = traced(functions, signature, _MOST)
        made: list[_Written] = []

        def write(shared: list[Array]) -> list[Array]:
            """Write the step and return its shared inputs."""
            made[:] = [_written(programs, reals, signature, shared, target.width)]
            return [word for x in made[0].shared for word in _as_words(x)]

        structs = as_reals([jax.ShapeDtypeStruct(shape, dtype) for shape, dtype, _ in signature.shared])
        program = jax.make_jaxpr(write)(structs)
    run, (text, _, sizes, operations) = numpy_function(program), made[0]

    def words(shared: list) -> np.ndarray:
        return np.concatenate([np.zeros(0), *run(as_reals([np.asarray(x) for x in shared]))])

    columns = tuple(range(sizes.path))
    return Kernel(
        target.link(text, sizes), signature, sizes, words, program, None, operations, columns, saved, target.layout
    )


class _Written(NamedTuple):
    """The text of a kernel, the arrays that it shares, its sizes, and the number of operations of a step."""

    text: str
    shared: list[Array]
    sizes: Sizes
    operations: int


def _written(programs: Sequence, reals: Any, signature: Signature, shared: list[Array], width: int) -> _Written:
    """Write the kernel of a step; the second program, if there is one, takes steps that are not valid by the first."""
    _, member, state, counter, path = reals
    leaves = [jax.tree.leaves(x) for x in (member, state, counter, path)]
    graphs = [Graph(trust_likely=i == 0) for i in range(len(programs))]
    inputs = [[[g.input(x.shape, x.dtype) for x in part] for part in leaves] for g in graphs]
    for graph, program, given in zip(graphs, programs, inputs, strict=True):
        patterns = [graph.value(_with_pattern(x, p)) for x, p in zip(shared, signature.shared, strict=True)]
        *out, ok = graph.evaluate(program, [*patterns, *(t for part in given for t in part)])
        graph.block.results = [*out, graph.all_of([*graph.guards, ok])]
    real = np.concatenate([np.full(x.size, x.dtype == jnp.float64) for x in leaves[1]] or [np.zeros(0, bool)])
    if not np.all(real[list(signature.added)]):
        raise NotCompilable("A step of large arrays adds to numbers that are not float64.")
    code, memory = Code(WIDTH), Memory()
    terms = [t for g in graphs for t in reachable([g.block])]
    lowering = Lowering(code, memory, _splits(terms))
    own, before, number, row = areas = [[lowering.allocate(x.shape) for x in part] for part in leaves]
    new = [lowering.allocate(x.shape) for x in graphs[0].block.results[:-1]]
    read = Copies([], "step.body")
    for arrays, area in ((before, "state"), (own, "own"), (row, "path")):
        words = Words(f"%{area}", f"%{area}.base", width, "%lane")
        more = copies(code, lowering.loop_shapes(arrays), words, read.block, inward=True)
        read = Copies([*read.lines, *more.lines], more.block)
    code.block = read.block
    for i, (graph, given) in enumerate(zip(graphs, inputs, strict=True)):
        for part, places in zip(given, areas, strict=True):
            lowering.known |= {t: lowering.nodes.memory(at, t.dtype) for t, at in zip(part, places, strict=True)}
        _write_attempt(lowering, graph, new, "group.done" if i == len(graphs) - 1 else f"attempt{i + 1}")
    loop = _surroundings(lowering, read, int(number[0]), new, len(before), signature, width)
    count = lambda arrays: sum(x.size for x in arrays)
    arrays = [x for x, _ in lowering.shared.values()]
    saved = count(new) - count(before)
    sizes = Sizes(sum(x.size for x in arrays), count(own), count(before), count(row), saved, len(signature.added))
    text = write_kernel(code, memory, lowering.allocas, loop, sizes, width)
    return _Written(text, arrays, sizes, sum(t.size for t in terms))


def _write_attempt(lowering: Lowering, graph: Graph, new: list[np.ndarray], otherwise: str) -> None:
    """Write an attempt at a step: where it is valid, the step is accepted, else the code continues elsewhere."""
    code, block = lowering.code, graph.block
    lowering.used = reachable([block])
    lowering.stored = stored(block, lowering.used)
    lowering.block(block)
    for t, at in zip(block.results[:-1], new, strict=True):
        lowering.store(lowering.read(t), at)
    valid = lowering.store(lowering.nodes.spread(lowering.read(block.results[-1]), ()))
    flag = load_flag(code, int(valid.at))
    code.branch(flag, "lane.accept", otherwise)
    if otherwise != "group.done":
        code.begin(otherwise)


def _surroundings(
    lowering: Lowering, read: Copies, number: int, new: list[np.ndarray], state: int, signature: Signature, width: int
) -> Loop:
    """The copies before and after a step."""
    code, memory = lowering.code, lowering.memory
    shapes = lowering.loop_shapes
    shared = shapes([at for _, at in lowering.shared.values()])
    uniforms = copies(code, shared, Words("%uniforms", "0"), "entry", inward=True)
    words = sum(x.size for x in new[:state]) * width
    pending = int(memory.allocate((words,), [0]).min()) if words else memory.end
    keep = copies(
        code, shapes(new[:state]), Words("%memory", str(pending), width, "%lane"), "lane.accept", inward=False
    )
    save = copies(code, shapes(new[state:]), Words("%slots", "%slot.base", width, "%lane"), "lane.save", inward=False)
    added = additions(code, signature.added, pending, width, save.block)
    return Loop(uniforms, read, keep, save, added, signature.backward, number, pending)


def _splits(terms: Iterable[Term]) -> dict[int, tuple[int, ...]]:
    """The shapes with small axes that vectors are reshaped to: these axes come first in memory."""
    out: dict[int, tuple[int, ...]] = {}
    for t in terms:
        if t.name == "reshape":
            for flat, shape in ((t.shape, t.operands[0].shape), (t.operands[0].shape, t.shape)):
                small = [n for n in shape if 1 < n <= SMALL]
                if len(flat) == 1 and small and 0 < len(large_axes(shape)) < len(shape):
                    out[flat[0]] = min(out.get(flat[0], shape), shape)
    return out


def _with_pattern(x: Array, pattern: SharedInput) -> Any:
    """A shared array; a constant if all of its numbers are known."""
    shape, dtype, fixed = pattern
    if any(v is None for v in fixed):
        return x
    if np.dtype(dtype).kind == "c":
        shape, dtype = (*shape, 2), part_of(dtype)
    return np.asarray(fixed, dtype).reshape(shape)


def _as_words(x: Array) -> list[Array]:
    """The numbers of an array as words, which have the type of real numbers."""
    flat = jnp.ravel(x)
    return [flat if flat.dtype == jnp.float64 else jax.lax.bitcast_convert_type(flat.astype(jnp.int64), jnp.float64)]
