"""Lowers the terms of a step to loops: a nest of loops for each that is stored, the others where they are read."""

import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax import lax
from jaxtyping import Int

from ..errors import NotCompilable
from ..jaxprs.data_movement import MOVES
from ..lowering.instructions import Value
from ..lowering.llvm_builder import Code
from ..lowering.reduction_rules import REDUCTIONS, of_nothing
from ..lowering.scalar_kinds import number
from .loops import Memory, Nest, Output
from .nodes import Node, Nodes, places
from .storage import SMALL
from .terms import SCATTERS, Block, Term

_MOST_UNROLLED = 32  # elements along small axes that are written one by one
_PRODUCT = 16  # the least of the three lengths of a product of matrices up to which loops are as fast as XLA
_SPREAD = 4  # passes per update of a scatter


class Lowering:
    """Writes blocks of terms as loops. `splits`: the shapes that vectors of some lengths are reshaped to."""

    def __init__(self, code: Code, memory: Memory, splits: dict[int, tuple[int, ...]]):
        self.code, self.memory, self.splits = code, memory, splits
        self.allocas: list[str] = []
        self.nodes = Nodes()
        self.stored: set[Term] = set()
        self.used: set[Term] = set()
        self.known: dict[Term, Node] = {}
        self.shared: dict[int, tuple[Any, Any]] = {}  # arrays that JAX computes before the run, and their addresses

    # Blocks.

    def block(self, block: Block) -> None:
        """Write the terms of a block, without its results."""
        for t in block.terms:
            if t in self.used and t not in self.known:
                if t.name == "while":
                    self._while(t)
                elif t.name == "cond":
                    self._cond(t)
                else:
                    node = self._node(t)
                    self.known[t] = self.store(node) if t in self.stored and node.name != "memory" else node

    def read(self, t: Term) -> Node:
        """The elements of a term."""
        if t.name == "constant":
            return self.nodes.constant(t.value, t.shape)
        if t.name == "shared":
            if id(t.value) not in self.shared:
                self.shared[id(t.value)] = t.value, self.allocate(t.shape)
            return self.nodes.memory(self.shared[id(t.value)][1], t.dtype)
        return self.known[t]

    def allocate(self, shape: tuple[int, ...]) -> Int[np.ndarray, "..."]:
        """The addresses of a new array of this shape."""
        split = self._split(shape)
        return self.memory.allocate(split, large_axes(split)).reshape(shape)

    def loop_shapes(self, areas: Sequence[np.ndarray]) -> list[Int[np.ndarray, "..."]]:
        """Return allocated addresses in the shapes in which they are linear in the indices, so that loops copy them."""
        return [at.reshape(self._split(at.shape)) for at in areas]

    def store(self, x: Node, to: Int[np.ndarray, "..."] | None = None) -> Node:
        """Write a loop that stores an array, at given or new addresses, and return the array in memory."""
        split = self._split(x.shape)
        x_split = x if split == x.shape else self.nodes.move(x, places(x.shape).reshape(split))
        large = large_axes(split)
        small = [a for a in range(len(split)) if a not in large]
        parts = [(at, self.nodes.move(x_split, at)) for at in _slices(split, small)]
        sizes = tuple(split[a] for a in large)
        nest = Nest(self.code, self.memory, self.allocas, sizes, len(sizes))
        if to is None:
            lanes = nest.choose_lanes([node for _, node in parts])
            last = [] if lanes is None else [large[lanes]]
            at = self.memory.allocate(split, [*(a for a in large if a not in last), *last])
        else:
            at = to.reshape(split)
            nest.lane_axis = len(sizes) - 1 if sizes else None
        if at.size:
            nest.write([Output(node, at.ravel()[index]) for index, node in parts])
        return self.nodes.memory(at.reshape(x.shape), x.dtype)

    def _split(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return self.splits.get(shape[0], shape) if len(shape) == 1 else shape

    def _while(self, t: Term) -> None:
        code, body = self.code, t.blocks[0]
        state = body.terms[: len(t.operands)]
        at = [self.allocate(x.shape) for x in state]
        for x, to in zip(t.operands, at, strict=True):
            self.store(self.read(x), to)
        for x, to in zip(state, at, strict=True):
            self.known[x] = self.nodes.memory(to, x.dtype)
        label = code.fresh("loop")
        code.jump(f"{label}.head")
        code.begin(f"{label}.head")
        self.block(body)
        going, *new = body.results
        self._branch(self.read(going), f"{label}.body", f"{label}.exit")
        code.begin(f"{label}.body")
        after = [self.store(self.read(x)) if x is not old else None for x, old in zip(new, state, strict=True)]
        for x, to in zip(after, at, strict=True):
            if x is not None:
                self.store(x, to)
        code.jump(f"{label}.head")
        code.begin(f"{label}.exit")
        self._results(t, at)

    def _cond(self, t: Term) -> None:
        """Branches that write the same memory."""
        code, index = self.code, self.read(t.operands[0])
        results = t.blocks[0].results
        at = [self.allocate(x.shape) for x in results]
        label = code.fresh("choice")
        last = len(t.blocks) - 1
        for k, block in enumerate(t.blocks):
            if k < last:
                test = "not" if index.dtype == bool else "le"
                limit = [] if index.dtype == bool else [self.nodes.constant(number(k, index.dtype), ())]
                chosen = self.nodes.apply(test, bool, [index, *limit])
                self._branch(chosen, f"{label}.case{k}", f"{label}.test{k}")
                code.begin(f"{label}.case{k}")
            outside = dict(self.known)
            self.block(block)
            for x, to in zip(block.results, at, strict=True):
                self.store(self.read(x), to)
            self.known = outside
            code.jump(f"{label}.end")
            code.begin(f"{label}.test{k}" if k < last else f"{label}.end")
        self._results(t, at)

    def _branch(self, condition: Node, then: str, otherwise: str) -> None:
        """Jump by a single truth value."""
        x = self.store(condition)
        flag = load_flag(self.code, int(x.at))
        self.code.branch(flag, then, otherwise)

    def _results(self, made: Term, at: Sequence[np.ndarray]) -> None:
        for t in made.block.terms:
            if t.name == "result" and t.operands[0] is made:
                self.known[t] = self.nodes.memory(at[t.params["index"]], t.dtype)

    # Terms.

    def _node(self, t: Term) -> Node:
        name, xs = t.name, [self.read(x) for x in t.operands]
        if name in REDUCTIONS:
            return self._reduced(xs[0], t.params["axes"], REDUCTIONS[name])
        if name == "dot_general":
            return self._dot(t, *xs)
        if name == "row":
            return self.nodes.move(xs[0], places(xs[0].shape)[t.params["index"]])
        if name == "gather":
            return self._gather(t, *xs)
        if name in SCATTERS:
            return self._scatter(t, *xs)
        if name in MOVES:
            return self._moved(t, xs)
        return self.nodes.apply(name, t.dtype, [self.nodes.spread(x, t.shape) for x in xs], t.params)

    def _moved(self, t: Term, xs: list[Node]) -> Node:
        params = {k: v for k, v in t.params.items() if k != "which"}
        ends = np.cumsum([0, *(math.prod(x.shape) for x in xs)])
        ids = [places(x.shape) + start for x, start in zip(xs, ends, strict=False)]
        place = np.asarray(MOVES[t.name](params, *ids)[t.params.get("which", 0)], np.int64).reshape(t.shape)
        if len(xs) == 1 or t.name in ("broadcast_in_dim",):
            return self.nodes.move(xs[0], place)
        which = np.searchsorted(ends, place, side="right") - 1
        return self.nodes.joined(xs, which, place - ends[which])

    def _reduced(self, x: Node, axes: Sequence[int], how: str) -> Node:
        """A sum, product … along some axes: small ones element by element, the others in loops."""
        long = [a for a in axes if x.shape[a] > SMALL]
        if 0 in x.shape:
            raise NotCompilable(
                "A step of large arrays reduces an array of no elements, which native code does not support."
            )
        if not long:
            return self._small(x, axes, how)
        kept = [a for a in range(len(x.shape)) if a not in axes]
        shape = tuple(x.shape[a] for a in kept)
        rows = self.nodes.move(x, places(x.shape).transpose(*kept, *axes))
        small = [a for a in range(len(kept), len(x.shape)) if rows.shape[a] <= SMALL]
        rows = self._small(rows, small, how)
        return self._loop_reduced(rows, shape, how)

    def _small(self, x: Node, axes: Sequence[int], how: str) -> Node:
        if not axes:
            return x
        terms = [self.nodes.move(x, at) for at in _slices(x.shape, axes)]
        while len(terms) > 1:
            pairs = zip(terms[::2], terms[1::2], strict=False)
            terms = [self.nodes.apply(how, x.dtype, pair) for pair in pairs] + terms[len(terms) & ~1 :]
        return terms[0]

    def _loop_reduced(self, x: Node, shape: tuple[int, ...], how: str) -> Node:
        """Combine the elements along the last axes of x, whose first ones have the given shape."""
        split = self._split(shape)
        if split != shape:
            x = self.nodes.move(x, places(x.shape).reshape(*split, *x.shape[len(shape) :]))
        large = large_axes(split)
        small = [a for a in range(len(split)) if a not in large]
        parts = [
            (at, self.nodes.move(x, index))
            for at, index in zip(_slices(split, small), _slices(x.shape, small), strict=True)
        ]
        sizes = (*(split[a] for a in large), *x.shape[len(split) :])
        nest = Nest(self.code, self.memory, self.allocas, sizes, len(large))
        lanes = nest.choose_lanes([node for _, node in parts])
        last = [large[lanes]] if lanes is not None and lanes < len(large) else []
        at = self.memory.allocate(split, [*(a for a in large if a not in last), *last])
        nest.write([Output(node, at.ravel()[index], how) for index, node in parts])
        return self.nodes.memory(at.reshape(shape), x.dtype)

    def _dot(self, t: Term, x: Node, y: Node) -> Node:
        """Σ x y along some axes."""
        (cx, cy), (bx, by) = t.params["dimension_numbers"]
        fx = [a for a in range(len(x.shape)) if a not in (*cx, *bx)]
        fy = [a for a in range(len(y.shape)) if a not in (*cy, *by)]
        outer = [x.shape[a] for a in bx], [x.shape[a] for a in fx], [y.shape[a] for a in fy], [x.shape[a] for a in cx]
        m, n, k = map(math.prod, outer[1:])
        if min(m, n, k) > _PRODUCT:
            raise NotCompilable(
                f"A step multiplies matrices of the sizes {m} × {k} and {k} × {n}, for which XLA is faster."
            )
        if not math.prod(outer[3]):
            return self.nodes.constant(number(0, t.dtype), t.shape)
        shape = (*outer[0], *outer[1], *outer[2], *outer[3])
        nb, nx, ny = len(bx), len(fx), len(fy)
        left = places(x.shape).transpose(*bx, *fx, *cx).reshape(*outer[0], *outer[1], *[1] * ny, *outer[3])
        right = places(y.shape).transpose(*by, *fy, *cy).reshape(*outer[0], *[1] * nx, *outer[2], *outer[3])
        terms = [self.nodes.move(z, np.broadcast_to(i, shape)) for z, i in ((x, left), (y, right))]
        terms = [self.nodes.apply("convert_element_type", t.dtype, [z]) if z.dtype != t.dtype else z for z in terms]
        product = self.nodes.apply("mul", t.dtype, terms)
        return self._reduced(product, range(nb + nx + ny, len(shape)), "add")

    def _gather(self, t: Term, x: Node, indices: Node) -> Node:
        """Elements at known places; beyond the ends, the value that JAX has for them."""
        mode = lax.GatherScatterMode.from_any(t.params["mode"])
        if mode == lax.GatherScatterMode.ONE_HOT:
            raise NotCompilable.operation("gather", " in the mode one_hot")
        index = _known(t.operands[1])
        fills = mode == lax.GatherScatterMode.FILL_OR_DROP
        params = t.params | {"fill_value": -1 if fills else None}
        with jax.ensure_compile_time_eval():
            place = np.asarray(lax.gather_p.bind(places(x.shape), index, **params))
        if fills and np.any(place < 0):
            value = fill_value(t.params["fill_value"], t.dtype)
            outside = self.nodes.constant(value, (1,))
            return self.nodes.joined([x, outside], (place < 0).astype(int), np.maximum(place, 0))
        return self.nodes.move(x, place)

    def _scatter(self, t: Term, x: Node, indices: Node, updates: Node) -> Node:
        """Each element with the updates that go to it, in their order."""
        target = _targets(t, x.shape, updates.shape).ravel()
        source = np.flatnonzero(target >= 0)
        target = target[source]
        order = np.argsort(target, kind="stable")
        target, source = target[order], source[order]
        count = np.bincount(target, minlength=math.prod(x.shape))
        passes = int(count.max(initial=0))
        nth = np.arange(len(target)) - np.repeat(np.cumsum(count) - count, count)
        if not passes:
            return x
        how = SCATTERS[t.name]
        if how is None:  # the last update replaces the others
            nth, passes = np.where(nth == count[target] - 1, 0, -1), 1
        if passes > SMALL and passes * len(count) > _SPREAD * len(target) + 64:
            raise NotCompilable("A step adds many numbers at few computed indices, which native code does not support.")
        place = np.full((len(count), passes), -1)
        place[target[nth >= 0], nth[nth >= 0]] = source[nth >= 0]
        place = place.reshape(*x.shape, passes)
        taken = (place >= 0).astype(int)
        if how is None:
            return self.nodes.joined(
                [x, updates], taken[..., 0], np.where(taken[..., 0], place[..., 0], places(x.shape))
            )
        nothing = self.nodes.constant(of_nothing(how, t.dtype), (1,))
        rows = self.nodes.joined([nothing, updates], taken, np.maximum(place, 0))
        return self.nodes.apply(how, t.dtype, [x, self._reduced(rows, [len(x.shape)], how)])


def large_axes(shape: tuple[int, ...]) -> list[int]:
    """The axes of loops; elements along the others are written one by one."""
    large = [a for a, n in enumerate(shape) if n > SMALL]
    while math.prod(n for a, n in enumerate(shape) if a not in large) > _MOST_UNROLLED:
        rest = [a for a in range(len(shape)) if a not in large]
        large.append(max(rest, key=lambda a: shape[a]))
    return sorted(large)


def load_flag(code: Code, at: int) -> Value:
    """A truth value that is read from memory."""
    name = code.fresh("flag")
    code.write_lines(
        [
            f"%{name}.at = getelementptr i64, ptr %memory, i64 {at}",
            f"%{name}.word = load i64, ptr %{name}.at, align 8",
            f"%{name} = icmp ne i64 %{name}.word, 0",
        ]
    )
    return Value(f"%{name}", bool)


def fill_value(value: Any, dtype: np.dtype) -> Any:
    """JAX's value for an index out of bounds."""
    if value is not None:
        return number(value, dtype)
    if dtype.kind == "f":
        return number(np.nan, dtype)
    if dtype.kind == "b":
        return np.True_
    return number(np.iinfo(dtype).min if dtype.kind == "i" else np.iinfo(dtype).max, dtype)


def _slices(shape: tuple[int, ...], axes: Sequence[int]) -> list[Int[np.ndarray, "..."]]:
    """The places of the elements at each index along some axes."""
    rows = np.moveaxis(places(shape), axes, range(len(axes)))
    return list(rows.reshape(-1, *rows.shape[len(axes) :]))


def _known(indices: Term) -> np.ndarray:
    if indices.name != "constant":
        raise NotCompilable.operation("gather", ", of arrays of this size")
    return indices.value


def _targets(t: Term, shape: tuple[int, ...], updates: tuple[int, ...]) -> Int[np.ndarray, "..."]:
    """The place to which each update goes, −1 for those that are dropped: a gather of places reads from there."""
    dims, mode = t.params["dimension_numbers"], lax.GatherScatterMode.from_any(t.params["mode"])
    if mode == lax.GatherScatterMode.ONE_HOT:
        raise NotCompilable.operation("gather", " in the mode one_hot")
    sizes = iter(updates[a] for a in dims.update_window_dims)
    absent = (*dims.inserted_window_dims, *dims.operand_batching_dims)
    reads = lax.GatherDimensionNumbers(
        offset_dims=dims.update_window_dims, collapsed_slice_dims=dims.inserted_window_dims,
        start_index_map=dims.scatter_dims_to_operand_dims, operand_batching_dims=dims.operand_batching_dims,
        start_indices_batching_dims=dims.scatter_indices_batching_dims,
    )  # fmt: skip
    window = tuple(1 if a in absent else next(sizes) for a in range(len(shape)))
    mode = mode if mode == lax.GatherScatterMode.CLIP else lax.GatherScatterMode.FILL_OR_DROP
    with jax.ensure_compile_time_eval():
        index = _known(t.operands[1])
        return np.asarray(lax.gather(places(shape), index, reads, window, mode=mode, fill_value=-1))
