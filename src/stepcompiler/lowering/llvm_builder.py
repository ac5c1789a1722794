"""The operations of a step in LLVM's language, on single numbers or on `width` members in SIMD lanes.

`scalar_ops` decomposes the operations of JAX; `targets/time_loop` has the loop around a step, and memory.

**Rounding.** A product that is used once, by a sum in the same basic block, becomes one fused multiply-add with it:
x y ± z, rounded once. Of two such products the first is fused. A sum of two products that is added to another sum
becomes two fused operations there. These rules depend on the program alone, and the compiler contracts nothing, so
results are bitwise identical on every processor with fused multiply-add, for any width. Functions come from
`mathematics`, not from the C library, and NumPy (`jaxprs.numpy_eval`) computes constants. Any change of these rules
changes `stepcompiler.NUMERICS_VERSION`.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from numpy.typing import DTypeLike

from .instructions import (
    Branch,
    Call,
    Conversion,
    Extraction,
    Group,
    Instruction,
    Intrinsic,
    Label,
    Line,
    Operand,
    Operation,
    Phi,
    Select,
    Spelling,
    Sum,
    Text,
    Value,
    render,
)


class Product(NamedTuple):
    """± a b, and the names it went by, each of which must be used once."""

    block: str
    a: Operand
    b: Operand
    minus: bool
    names: tuple[str, ...]


class Snapshot(NamedTuple):
    """A position in the code."""

    lines: int
    groups: int
    block: str
    uses: Counter[str]
    called: dict[tuple[str, ...], list[Value]]


class Code:
    """The instructions of a step, in order."""

    def __init__(self, width: int):
        self.width, self.spelling = width, Spelling(width)
        self.lines: list[Line] = []
        self.block = "step.body"  # the basic block that is being written
        self.uses: Counter[str] = Counter()  # how often names occur as operands
        self.functions: dict[str, str] = {}  # that are called, as text
        self.called: dict[tuple[str, ...], list[Value]] = {}  # results of calls, by block, name and operands
        self.groups: list[Group] = []  # operations that belong to the elements of one array
        self._products: dict[str, Product] = {}
        self._count = 0

    # Names, types, operands.

    def fresh(self, stem: str = "v") -> str:
        """A name that is not taken."""
        self._count += 1
        return f"{stem}{self._count}"

    def value(self, dtype: DTypeLike) -> Value:
        """A new number of this type."""
        self.spelling.kind(dtype)  # raises an error for a type that native code does not support
        return Value("%" + self.fresh(), dtype)

    def kind(self, dtype: DTypeLike) -> str:
        """The type in LLVM's language."""
        return self.spelling.kind(dtype)

    def spelled(self, x: Operand) -> str:
        """Return a value or constant as text."""
        return self.spelling.operand(x)

    def text(self, x: Operand) -> str:
        """Return a value or constant as text, and count this use."""
        self.use(x)
        return self.spelled(x)

    def use(self, *xs: Operand) -> None:
        """Count a use of values as operands."""
        for x in xs:
            if isinstance(x, Value):
                self.uses[x.name] += 1

    def render(self, instructions: Sequence[Instruction]) -> list[str]:
        """The text of instructions."""
        return [render(x, self.spelling) for x in instructions]

    # Instructions.

    def operation(self, op: str, *xs: Operand, dtype: DTypeLike | None = None) -> Value:
        """Write an operation on numbers of one type. `dtype`: the type of its result, if it is another."""
        value = self.value(xs[0].dtype if dtype is None else dtype)
        self.use(*xs)
        self.lines.append(Operation(value, op, xs))
        return value

    def convert(self, op: str, x: Operand, dtype: DTypeLike) -> Value:
        """Write a conversion to another type."""
        value = self.value(dtype)
        self.use(x)
        self.lines.append(Conversion(value, op, (x,)))
        return value

    def select(self, p: Operand, a: Operand, b: Operand) -> Value:
        """Return a where p is true, else b."""
        value = self.value(a.dtype)
        self.use(p, a, b)
        self.lines.append(Select(value, (p, a, b)))
        return value

    def intrinsic(self, name: str, xs: Sequence[Operand], flags: str = "") -> Value:
        """Call an LLVM intrinsic on numbers of one type."""
        value = self.value(xs[0].dtype)
        self.use(*xs)
        self.lines.append(Intrinsic(value, name, (value.dtype,), tuple(xs), flags))
        return value

    def saturated(self, name: str, x: Operand, dtype: DTypeLike) -> Value:
        """Call an LLVM intrinsic that converts a number to another type and clips it to the range of this type."""
        value = self.value(dtype)
        self.use(x)
        self.lines.append(Intrinsic(value, name, (value.dtype, x.dtype), (x,)))
        return value

    def call(self, name: str, xs: Sequence[Operand], dtype: DTypeLike, results: int) -> list[Value]:
        """Call a function of the program."""
        first = self.value(dtype)
        self.use(*xs)
        self.lines.append(Call(first, name, tuple(xs), results))
        if results == 1:
            return [first]
        values: list[Value] = []
        for i in range(results):
            values.append(self.value(dtype))
            self.use(first)
            self.lines.append(Extraction(values[-1], (first,), results, i))
        return values

    def write(self, text: str, dtype: DTypeLike) -> Value:
        """Write an instruction as text."""
        value = Value("%" + self.fresh(), dtype)
        self.lines.append(Text(value, text))
        return value

    def write_lines(self, lines: Sequence[str]) -> None:
        """Write lines of text."""
        self.lines += [Text(None, line) for line in lines]

    def all_lanes(self, p: Operand, how: str) -> Operand:
        """Whether p is true for "and" all or "or" any of the members."""
        if self.width == 1:
            self.use(p)
            return p
        kind = self.kind(bool)
        return self.write(f"call i1 @llvm.vector.reduce.{how}.v{self.width}i1({kind} {self.text(p)})", bool)

    # Basic blocks.

    def begin(self, label: str) -> None:
        """A new basic block."""
        self.lines.append(Label(label))
        self.block = label

    def jump(self, label: str) -> None:
        """End a basic block."""
        self.lines.append(Branch((), (label,)))

    def branch(self, condition: Operand, then: str, otherwise: str, *, likely: bool = False) -> None:
        """End a basic block: jump to the first label if a condition holds, else to the second."""
        self.lines.append(Branch((condition,), (then, otherwise), likely))

    def phi(self, value: Value, ways: Sequence[tuple[Operand, str]]) -> Phi:
        """The number that comes from each of some basic blocks. It must be inserted at the beginning of a block."""
        xs, blocks = zip(*ways, strict=True)
        self.use(*xs)
        return Phi(value, xs, blocks)

    def snapshot(self) -> Snapshot:
        """Return the current position."""
        return Snapshot(len(self.lines), len(self.groups), self.block, self.uses.copy(), self.called.copy())

    def rollback(self, to: Snapshot) -> None:
        """Discard the code after a position."""
        self.block, self.uses, self.called = to.block, to.uses, to.called
        del self.lines[to.lines :], self.groups[to.groups :]

    # Products and sums of floating-point numbers.

    def product(self, a: Operand, b: Operand) -> Value:
        """a b."""
        value = self.operation("fmul", a, b)
        self._products[value.name] = Product(self.block, a, b, False, (value.name,))
        return value

    def forbid_fma(self, x: Any) -> None:
        """From now on x is rounded before it is added to anything."""
        self._products.pop(getattr(x, "name", ""), None)

    def negative(self, a: Operand) -> Value:
        """−a."""
        value = self.operation("fneg", a)
        p = self._products.get(getattr(a, "name", ""))
        if p is not None and p.block == self.block:
            self._products[value.name] = p._replace(minus=not p.minus, names=(*p.names, value.name))
        return value

    def sum(self, op: str, a: Operand, b: Operand) -> Value:
        """a + b (fadd) or a − b (fsub)."""
        value = self.value(a.dtype)
        self.use(a, b)
        self.lines.append(Sum(self.block, value, op, (a, b)))
        return value

    def finished(self) -> list[Instruction]:
        """All instructions of the complete code, with products and sums fused."""
        sums = {line.result.name: line for line in self.lines if isinstance(line, Sum)}
        joined = {name: inner for name, line in sums.items() if (inner := self._joined(line, sums)) is not None}
        taken = {inner.result.name for inner in joined.values()}
        out: list[Instruction] = []
        for line in self.lines:
            if not isinstance(line, Sum):
                out.append(line)
            elif line.result.name not in taken:
                line.instructions = self._fused(line, joined.get(line.result.name))
                out += line.instructions
        return out

    def _alone(self, line: Sum, x: Operand) -> Product | None:
        """The product that is a term of a sum; None if there is none, or if it has other uses."""
        p = self._products.get(getattr(x, "name", ""))
        return p if p is not None and p.block == line.block and all(self.uses[n] == 1 for n in p.names) else None

    def _joined(self, line: Sum, sums: dict[str, Sum]) -> Sum | None:
        """The sum of two products, used here alone, that is a term of this sum, which has no product to go with it."""
        if any(self._alone(line, x) for x in line.terms):
            return None
        for x in line.terms[::-1]:
            inner = sums.get(getattr(x, "name", ""))
            if inner is not None and inner.block == line.block and self.uses[inner.result.name] == 1:
                if all(self._alone(inner, y) for y in inner.terms):
                    return inner
        return None

    def _fused(self, line: Sum, inner: Sum | None) -> list[Instruction]:
        """A sum: with a product that it alone uses as one operation, with a sum of two such products as two."""
        (a, b), minus, value = line.terms, line.op == "fsub", line.result
        if inner is not None:
            last = b if getattr(b, "name", "") == inner.result.name else a
            first, second = (self._alone(inner, x) for x in inner.terms)
            assert first is not None and second is not None
            lines, term = _term(value, a if last is b else b, minus and last is a)
            outside, middle = minus and last is b, Value(f"{value.name}.first", value.dtype)
            lines += _fma(middle, second, outside != (inner.op == "fsub"), term)
            return [*lines, *_fma(value, first, outside, middle)]
        for x, other in ((a, b), (b, a)):
            if (p := self._alone(line, x)) is not None:
                lines, term = _term(value, other, minus and x is a)
                return [*lines, *_fma(value, p, minus and x is b, term)]
        return [Operation(value, line.op, (a, b))]


def _term(value: Value, x: Operand, minus: bool) -> tuple[list[Instruction], Operand]:
    """± x as a term of a sum, and the instructions that compute it."""
    if not minus:
        return [], x
    negative = Value(f"{value.name}.term", x.dtype)
    return [Operation(negative, "fneg", (x,))], negative


def _fma(value: Value, p: Product, minus: bool, term: Operand) -> list[Instruction]:
    """± a b + term."""
    factor = p.a
    lines: list[Instruction] = []
    if minus != p.minus:
        factor = Value(f"{value.name}.factor", p.a.dtype)
        lines.append(Operation(factor, "fneg", (p.a,)))
    return [*lines, Intrinsic(value, "fma", (p.a.dtype,), (factor, p.b, term))]
