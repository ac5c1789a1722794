"""Loops over the elements of arrays, in LLVM's language.

All arrays of a step are in one area of memory, in words of eight bytes. SIMD lanes hold eight neighbours along one
axis, along which most numbers are read side by side. Small axes come first in memory, and are written element by
element in the body of a loop. Rows along the last axis are padded, so that vectors may end beyond them. What lies there
is never used.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from ..errors import NotCompilable
from ..lowering import scalar_ops
from ..lowering.instructions import Value
from ..lowering.llvm_builder import Code
from ..lowering.reduction_rules import of_nothing
from ..lowering.scalar_kinds import number
from .nodes import Node, linear_of, postorder

WIDTH = 8  # elements in SIMD lanes
_FIRST = 8 * WIDTH  # words before the first array
_MOST_WORDS = 2**25
_MOST_LINES = 60_000
_GATHER = 16  # what a gather costs, in loads of neighbours


class Output(NamedTuple):
    """An array that a nest of loops writes: its elements, and their addresses. `reduce`: how they are combined."""

    node: Node
    at: Int[np.ndarray, "..."]
    reduce: str | None = None


class Memory:
    """The arrays of a step in memory, and the constants among them."""

    def __init__(self) -> None:
        self.end = _FIRST
        self.reach = 0  # the last word that is read or written beyond an array
        self.constants: list[tuple[int, np.ndarray]] = []
        self._known: dict[Any, Int[np.ndarray, "..."]] = {}

    def allocate(self, shape: tuple[int, ...], large: Sequence[int]) -> Int[np.ndarray, "..."]:
        """The addresses of a new array. `large`: its axes that are not small; the last has a stride of one."""
        order = [*(a for a in range(len(shape)) if a not in large), *large]
        rows = [shape[a] for a in order]
        if rows:
            rows[-1] = -(-rows[-1] // WIDTH) * WIDTH
        count = max(math.prod(rows), 1)
        count += -count % WIDTH
        start, self.end = self.end, self.end + count
        if self.end > _MOST_WORDS:
            raise NotCompilable(f"A step of large arrays takes more than {_MOST_WORDS // 2**17} MiB of memory.")
        at: Any = np.full((1,) * len(shape), start)
        step = 1
        for a, n in zip(order[::-1], rows[::-1], strict=True):
            at = at + (step * np.arange(shape[a])).reshape([-1 if b == a else 1 for b in range(len(shape))])
            step *= n
        return np.broadcast_to(at, shape) if shape else np.asarray(start)

    def constant(self, value: np.ndarray, large: Sequence[int]) -> Int[np.ndarray, "..."]:
        """The addresses of a constant array; those of equal ones are the same."""
        key = value.shape, value.dtype, tuple(large), value.tobytes()
        if key not in self._known:
            at = self._known[key] = self.allocate(value.shape, large)
            words = np.zeros(self.end - int(at.min()), np.int64)
            words[(at - at.min()).ravel()] = as_words(value).ravel()
            self.constants.append((int(at.min()), words))
        return self._known[key]


def as_words(value: np.ndarray) -> np.ndarray:
    """Each number as eight bytes."""
    return value.view(np.int64) if value.dtype == np.float64 else value.astype(np.int64)


class Nest:
    """Writes loops over elements that are computed alike.

    All nodes have the shape `sizes`; the first `kept` axes are those of the outputs, and the others are reduced.
    """

    def __init__(self, code: Code, memory: Memory, allocas: list[str], sizes: tuple[int, ...], kept: int):
        self.code, self.memory, self.allocas, self.sizes, self.kept = code, memory, allocas, sizes, kept
        self.lane_axis: int | None = None
        self.index: dict[int, str] = {}
        self.values: dict[int, Any] = {}

    def choose_lanes(self, nodes: Sequence[Node]) -> int | None:
        """Choose the axis of the SIMD lanes: that along which most numbers are neighbours."""
        if not self.sizes:
            return None
        read = {id(y): y for x in nodes for y in postorder(x) if y.name == "memory"}
        costs = []
        for axis, n in enumerate(self.sizes):
            waste = -(-n // WIDTH) * WIDTH / n
            each = sum(1 if y.linear and y.linear[1][axis] in (0, 1) else _GATHER for y in read.values())
            costs.append(((each + 1) * waste + (axis >= self.kept), -axis, axis))
        self.lane_axis = min(costs)[2]
        return self.lane_axis

    def write(self, outputs: Sequence[Output]) -> None:
        """Write the loops. The code is finished block by block."""
        self.code.called = {}
        axes = [a for a in range(len(self.sizes)) if a != self.lane_axis]
        axes += [] if self.lane_axis is None else [self.lane_axis]
        order, reduced = [a for a in axes if a < self.kept], [a for a in axes if a >= self.kept]
        if outputs[0].reduce is None:
            self._loops(order, lambda: self._store_all(outputs))
        else:
            self._loops(order, lambda: self._reduce_all(outputs, reduced))
        if len(self.code.lines) > _MOST_LINES:
            raise NotCompilable(f"A step of large arrays takes more than {_MOST_LINES} lines of code.")

    def _loops(self, axes: Sequence[int], body: Callable[[], None]) -> None:
        if not axes:
            return body()
        axis, code = axes[0], self.code
        label, entry = code.fresh("each"), code.block
        step = WIDTH if axis == self.lane_axis else 1
        self.index[axis] = f"%{label}"
        code.jump(f"{label}.head")
        code.begin(f"{label}.head")
        code.write_lines(
            [
                f"%{label} = phi i64 [0, %{entry}], [%{label}.next, %{label}.latch]",
                f"%{label}.more = icmp slt i64 %{label}, {self.sizes[axis]}",
                f"br i1 %{label}.more, label %{label}.body, label %{label}.exit",
            ]
        )
        code.begin(f"{label}.body")
        self.values = {}
        self._loops(axes[1:], body)
        code.jump(f"{label}.latch")
        code.begin(f"{label}.latch")
        code.write_lines([f"%{label}.next = add i64 %{label}, {step}"])
        code.jump(f"{label}.head")
        code.begin(f"{label}.exit")
        self.values = {}
        del self.index[axis]
        return None

    def _store_all(self, outputs: Sequence[Output]) -> None:
        values = [self._value(x.node) for x in outputs]
        for x, value in zip(outputs, values, strict=True):
            self._store(value, x.at, self.lane_axis)

    def _reduce_all(self, outputs: Sequence[Output], axes: Sequence[int]) -> None:
        """Combine elements along some axes, in the order of the loops; with SIMD lanes there, each lane first."""
        code, sums = self.code, []
        for x in outputs:
            assert x.reduce is not None
            kind, name = code.kind(x.node.dtype), "%" + code.fresh("sum")
            self.allocas.append(f"  {name} = alloca {kind}, align 64")
            start = code.spelled(of_nothing(x.reduce, x.node.dtype))
            code.write_lines([f"store {kind} {start}, ptr {name}, align 64"])
            sums.append((name, kind))
        self._loops(axes, lambda: self._add_all(outputs, sums))
        for x, (name, kind) in zip(outputs, sums, strict=True):
            total = code.write(f"load {kind}, ptr {name}, align 64", x.node.dtype)
            across = self.lane_axis is not None and self.lane_axis >= self.kept
            self._store(self._across(total, x) if across else total, x.at, None if across else self.lane_axis)

    def _add_all(self, outputs: Sequence[Output], sums: Sequence[tuple[str, str]]) -> None:
        code, inside = self.code, self._inside()
        for x, (name, kind) in zip(outputs, sums, strict=True):
            value = self._value(x.node)
            if inside is not None:
                value = code.select(inside, value, of_nothing(str(x.reduce), x.node.dtype))
            old = code.write(f"load {kind}, ptr {name}, align 64", x.node.dtype)
            new = scalar_ops.write(code, str(x.reduce), {}, x.node.dtype, [old, value])
            code.write_lines([f"store {kind} {code.text(new)}, ptr {name}, align 64"])

    def _inside(self) -> Any:
        """Whether lanes are within the reduced axis; None if all are."""
        axis = self.lane_axis
        if axis is None or axis < self.kept or self.sizes[axis] % WIDTH == 0:
            return None
        lanes = self._lanes(self.index[axis], 1)
        return scalar_ops.write(self.code, "lt", {}, bool, [lanes, number(self.sizes[axis], np.int64)])

    def _across(self, total: Any, x: Output) -> Any:
        """Combine the lanes, in pairs."""
        code, kind = self.code, self.code.kind(x.node.dtype)
        for half in (4, 2, 1):
            mask = ", ".join(f"i32 {i + half if i < half else i}" for i in range(WIDTH))
            text = f"shufflevector {kind} {code.text(total)}, {kind} poison, <{WIDTH} x i32> <{mask}>"
            total = scalar_ops.write(code, str(x.reduce), {}, x.node.dtype, [total, code.write(text, x.node.dtype)])
        return total

    # Elements.

    def _value(self, x: Node) -> Any:
        """The lanes of an expression."""
        for node in postorder(x):
            if id(node) in self.values:
                continue
            if (known := node.uniform) is not None:
                value = known
            elif node.name == "constant":
                large = [*(a for a in range(node.value.ndim) if a != self.lane_axis), self.lane_axis]
                at = self.memory.constant(node.value, [a for a in large if a is not None])
                value = self._load(at, linear_of(at), node.dtype)
            elif node.name == "memory":
                value = self._load(node.at, node.linear, node.dtype)
            else:
                value = self._operation(node, [self.values[id(y)] for y in node.operands])
            self.values[id(node)] = value
        return self.values[id(x)]

    def _operation(self, node: Node, xs: list[Any]) -> Any:
        if node.name == "no_fma":
            self.code.forbid_fma(xs[0])
            return xs[0]
        return scalar_ops.write(self.code, node.name, node.params or {}, node.dtype, xs)

    def _address(self, linear: tuple[int, tuple[int, ...]]) -> str:
        """The address of the first lane."""
        code, (start, steps) = self.code, linear
        total = str(start)
        for axis, step in enumerate(steps):
            if step and axis in self.index:
                part = code.write(f"mul i64 {self.index[axis]}, {step}", np.int64).name
                total = code.write(f"add i64 {total}, {part}", np.int64).name
        return total

    def _lanes(self, first: str, step: int) -> Value:
        """first, first + step, … in the lanes."""
        offsets = ", ".join(f"i64 {step * i}" for i in range(WIDTH))
        each = self._splat(first, "i64", np.dtype(np.int64))
        return self.code.write(f"add <{WIDTH} x i64> {each.name}, <{offsets}>", np.int64)

    def _splat(self, x: str, kind: str, dtype: Any) -> Value:
        wide, code = f"<{WIDTH} x {kind}>", self.code
        one = code.write(f"insertelement {wide} poison, {kind} {x}, i32 0", dtype)
        return code.write(f"shufflevector {wide} {one.name}, {wide} poison, <{WIDTH} x i32> zeroinitializer", dtype)

    def _pointer(self, address: str) -> str:
        return self.code.write(f"getelementptr i64, ptr %memory, i64 {address}", np.int64).name

    def _load(self, at: np.ndarray, linear: tuple[int, tuple[int, ...]] | None, dtype: np.dtype) -> Value:
        code, kind = self.code, "double" if dtype == np.float64 else "i64"
        word = np.dtype(np.float64 if dtype == np.float64 else np.int64)
        if linear is not None and self._valid(linear):
            step = 0 if self.lane_axis is None else linear[1][self.lane_axis]
            address = self._address(linear)
            if step == 0:
                one = code.write(f"load {kind}, ptr {self._pointer(address)}, align 8", word)
                return self._narrow(self._splat(one.name, kind, word), dtype)
            if step == 1:
                wide = f"<{WIDTH} x {kind}>"
                return self._narrow(code.write(f"load {wide}, ptr {self._pointer(address)}, align 8", word), dtype)
            return self._narrow(self._gathered(self._lanes(address, step), kind, word), dtype)
        table = np.where(at < 0, max(int(at.max()), 0), at)
        axes = [*(a for a in range(at.ndim) if a != self.lane_axis), self.lane_axis]
        where = self.memory.constant(table, [a for a in axes if a is not None])
        index = self._load(where, linear_of(where), np.dtype(np.int64))
        return self._narrow(self._gathered(index, kind, word), dtype)

    def _valid(self, linear: tuple[int, tuple[int, ...]]) -> bool:
        """Whether all addresses, also those of padded lanes, lie in memory; notes how far they reach."""
        padded = [-(-n // WIDTH) * WIDTH if a == self.lane_axis else n for a, n in enumerate(self.sizes)]
        ends = [s * (n - 1) for s, n in zip(linear[1], padded, strict=True)]
        low, high = linear[0] + sum(min(e, 0) for e in ends), linear[0] + sum(max(e, 0) for e in ends)
        if low < 0 or high > _MOST_WORDS:
            return False
        self.memory.reach = max(self.memory.reach, high + WIDTH)
        return True

    def _gathered(self, index: Value, kind: str, word: np.dtype) -> Value:
        code, wide = self.code, f"<{WIDTH} x {kind}>"
        to = code.write(f"getelementptr i64, ptr %memory, <{WIDTH} x i64> {index.name}", np.int64).name
        mask = ", ".join(["i1 true"] * WIDTH)
        name = f"@llvm.masked.gather.v8{'f64' if kind == 'double' else 'i64'}.v8p0"
        text = f"call {wide} {name}(<8 x ptr> {to}, i32 8, <8 x i1> <{mask}>, {wide} zeroinitializer)"
        return code.write(text, word)

    def _narrow(self, x: Value, dtype: np.dtype) -> Value:
        if dtype in (np.float64, np.int64):
            return x
        kind = self.code.kind(dtype)
        if dtype == np.uint64:
            return Value(x.name, dtype)
        return self.code.write(f"trunc <{WIDTH} x i64> {x.name} to {kind}", dtype)

    def _store(self, value: Any, at: np.ndarray, lane_axis: int | None) -> None:
        """Write the lanes of a value; without an axis of lanes, the first one."""
        code, dtype = self.code, value.dtype
        linear = linear_of(at)
        assert linear is not None, "arrays are stored where their addresses are linear"
        text, kind = code.text(value), code.kind(dtype)
        if dtype not in (np.float64, np.int64, np.uint64):
            wider = "sext" if dtype.kind == "i" else "zext"
            text, kind = code.write(f"{wider} {kind} {text} to <{WIDTH} x i64>", np.int64).name, f"<{WIDTH} x i64>"
        pointer = self._pointer(self._address(linear))
        if lane_axis is None:
            word = "double" if dtype == np.float64 else "i64"
            one = code.write(f"extractelement {kind} {text}, i32 0", dtype)
            code.write_lines([f"store {word} {one.name}, ptr {pointer}, align 8"])
        else:
            assert linear[1][lane_axis] == 1, "elements in SIMD lanes are neighbours"
            code.write_lines([f"store {kind} {text}, ptr {pointer}, align 8"])
