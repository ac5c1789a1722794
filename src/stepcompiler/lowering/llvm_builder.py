"""The operations of a step in LLVM's language, on single numbers or on `width` members in SIMD lanes.

`scalar_ops` decomposes the operations of JAX; `targets/time_loop` has the loop around a step, and memory.

**Rounding.** A product that is used once, by a sum in the same basic block, becomes one fused multiply-add with it:
x y ± z, rounded once. Of two such products the first is fused. A sum of two products that is added to another sum
becomes two fused operations there. These rules depend on the program alone, and the compiler contracts nothing, so
results are bitwise identical on every processor with fused multiply-add, for any width. Functions come from
`mathematics`, not from the C library, and NumPy (`jaxprs.numpy_eval`) computes constants. Any change of these rules
changes `stepcompiler.NUMERICS_VERSION`.
"""

import struct
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import NotCompilable
from ..targets.slp_vectorizer import Group

TYPES = {"float64": "double", "float32": "float", "bool": "i1"} | {
    f"{sign}int{bits}": f"i{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)
}


class Value:
    """A number of the compiled program: its name and type."""

    __slots__ = ("dtype", "name")

    def __init__(self, name: str, dtype: Any):
        self.name, self.dtype = name, np.dtype(dtype)


Operand = Value | np.generic  # of an instruction: a varying number or a constant


class Product(NamedTuple):
    """± a b, and the names it went by, each of which must be used once."""

    block: str
    a: Operand
    b: Operand
    minus: bool
    names: tuple[str, ...]


class Sum(NamedTuple):
    """A sum or difference, which is written last, when the uses of its terms have been counted."""

    block: str
    name: str
    op: str  # fadd or fsub
    terms: tuple[Operand, Operand]


class Code:
    """The operations of a step, in order."""

    def __init__(self, width: int):
        self.width = width
        self.lines: list[str | Sum] = []
        self.block = "step.body"  # the basic block that is being written
        self.uses: Counter[str] = Counter()  # how often names occur as operands
        self.functions: dict[str, str] = {}  # that are called, as text
        self.called: dict[tuple[str, ...], list[Value]] = {}  # results of calls
        self.groups: list[Group] = []  # operations that belong to the elements of one array
        self._products: dict[str, Product] = {}
        self._kinds: dict[Any, str] = {}  # by type of NumPy's
        self._count = 0

    # Names, types, operands.

    def fresh(self, stem: str = "v") -> str:
        """A name that is not taken."""
        self._count += 1
        return f"{stem}{self._count}"

    def kind(self, dtype: Any) -> str:
        """The type as LLVM calls it."""
        if dtype not in self._kinds:
            name = np.dtype(dtype).name
            if name not in TYPES:
                raise NotCompilable.dtype(name)
            self._kinds[dtype] = TYPES[name] if self.width == 1 else f"<{self.width} x {TYPES[name]}>"
        return self._kinds[dtype]

    def text(self, x: Operand) -> str:
        """Return a value or constant as an operand, and count this use."""
        if isinstance(x, Value):
            self.uses[x.name] += 1
        return self.spelled(x)

    def spelled(self, x: Operand) -> str:
        """Return a value or constant as text."""
        if isinstance(x, Value):
            return x.name
        literal = _literal(x)
        if self.width == 1:
            return literal
        one = f"{TYPES[x.dtype.name]} {literal}"
        return f"<{', '.join([one] * self.width)}>"

    def write(self, text: str, dtype: Any) -> Value:
        """One more operation."""
        value = Value("%" + self.fresh(), dtype)
        self.lines.append(f"  {value.name} = {text}")
        return value

    def names(self, start: int, end: int) -> list[str]:
        """Return the results of a range of lines."""
        lines = self.lines[start:end]
        return [x.name if isinstance(x, Sum) else x.partition(" = ")[0].strip() for x in lines]

    def begin(self, label: str) -> None:
        """A new basic block."""
        self.lines.append(f"{label}:")
        self.block = label

    def branch(self, condition: str, then: str, otherwise: str) -> None:
        """Jump to a label if a likely condition holds, and else continue in a new basic block."""
        self.lines.append(f"  br i1 {condition}, label %{then}, label %{otherwise}, !prof !0")
        self.begin(otherwise)

    def snapshot(self) -> tuple:
        """Return the current position, …"""
        return len(self.lines), self.block, self.uses.copy(), self.called.copy()

    def rollback(self, mark: tuple) -> None:
        """… to which it can be taken back."""
        length, self.block, self.uses, self.called = mark
        del self.lines[length:]

    # Products and sums of floating-point numbers.

    def product(self, a: Operand, b: Operand) -> Value:
        """a b."""
        value = self.write(f"fmul {self.kind(a.dtype)} {self.text(a)}, {self.text(b)}", a.dtype)
        self._products[value.name] = Product(self.block, a, b, False, (value.name,))
        return value

    def forbid_fma(self, x: Any) -> None:
        """From now on x is rounded before it is added to anything."""
        self._products.pop(getattr(x, "name", ""), None)

    def negative(self, a: Operand) -> Value:
        """−a."""
        value = self.write(f"fneg {self.kind(a.dtype)} {self.text(a)}", a.dtype)
        p = self._products.get(getattr(a, "name", ""))
        if p is not None and p.block == self.block:
            self._products[value.name] = p._replace(minus=not p.minus, names=(*p.names, value.name))
        return value

    def sum(self, op: str, a: Operand, b: Operand) -> Value:
        """a + b (fadd) or a − b (fsub)."""
        value = Value("%" + self.fresh(), a.dtype)
        for x in a, b:
            self.text(x)  # a use of each
        self.lines.append(Sum(self.block, value.name, op, (a, b)))
        return value

    def written(self) -> list[str]:
        """All lines, now that nothing more is to come."""
        sums = {line.name: line for line in self.lines if isinstance(line, Sum)}
        joined = {line.name: inner for line in sums.values() if (inner := self._joined(line, sums)) is not None}
        taken = {inner.name for inner in joined.values()}
        out: list[str] = []
        for line in self.lines:
            if isinstance(line, str):
                out.append(line)
            elif line.name not in taken:
                out += self._fused(line, joined.get(line.name))
        return out

    def _alone(self, line: Sum, x: Operand) -> Product | None:
        """The product that a term of a sum is, if nothing else uses it."""
        p = self._products.get(getattr(x, "name", ""))
        return p if p is not None and p.block == line.block and all(self.uses[n] == 1 for n in p.names) else None

    def _joined(self, line: Sum, sums: dict[str, Sum]) -> Sum | None:
        """The sum of two products, used here alone, that is a term of this sum, which has no product to go with it."""
        if any(self._alone(line, x) for x in line.terms):
            return None
        for x in line.terms[::-1]:
            inner = sums.get(getattr(x, "name", ""))
            if inner is not None and inner.block == line.block and self.uses[inner.name] == 1:
                if all(self._alone(inner, y) for y in inner.terms):
                    return inner
        return None

    def _fused(self, line: Sum, inner: Sum | None) -> list[str]:
        """A sum: with a product that it alone uses as one operation, with a sum of two such products as two."""
        (a, b), minus = line.terms, line.op == "fsub"
        if inner is not None:
            last = b if getattr(b, "name", "") == inner.name else a
            first, second = (self._alone(inner, x) for x in inner.terms)
            assert first is not None and second is not None
            lines, term = self._term(line, a if last is b else b, minus and last is a)
            outside = minus and last is b
            lines += self._fma(f"{line.name}.first", second, outside != (inner.op == "fsub"), term)
            return [*lines, *self._fma(line.name, first, outside, f"{line.name}.first")]
        for x, other in ((a, b), (b, a)):
            if (p := self._alone(line, x)) is not None:
                lines, term = self._term(line, other, minus and x is a)
                return [*lines, *self._fma(line.name, p, minus and x is b, term)]
        return [f"  {line.name} = {line.op} {self.kind(a.dtype)} {self.spelled(a)}, {self.spelled(b)}"]

    def _term(self, line: Sum, x: Operand, minus: bool) -> tuple[list[str], str]:
        """± x, and the lines that it takes."""
        if not minus:
            return [], self.spelled(x)
        return [f"  {line.name}.term = fneg {self.kind(x.dtype)} {self.spelled(x)}"], f"{line.name}.term"

    def _fma(self, name: str, p: Product, minus: bool, term: str) -> list[str]:
        """± a b + term."""
        kind, factor, lines = self.kind(p.a.dtype), self.spelled(p.a), []
        if minus != p.minus:
            lines.append(f"  {name}.factor = fneg {kind} {factor}")
            factor = f"{name}.factor"
        args = f"{kind} {factor}, {kind} {self.spelled(p.b)}, {kind} {term}"
        return [*lines, f"  {name} = call {kind} @llvm.fma.{self.suffix(p.a.dtype)}({args})"]

    # Other operations.

    def suffix(self, dtype: Any) -> str:
        """The type in the name of one of LLVM's functions."""
        one = f"{'f' if np.dtype(dtype).kind == 'f' else 'i'}{8 * np.dtype(dtype).itemsize}"
        return one if self.width == 1 else f"v{self.width}{one}"

    def select(self, p: Operand, a: Operand, b: Operand) -> Value:
        """Return a where p is true, else b."""
        kind = self.kind(a.dtype)
        return self.write(
            f"select {self.kind(bool)} {self.text(p)}, {kind} {self.text(a)}, {kind} {self.text(b)}", a.dtype
        )

    def all_lanes(self, p: Operand, how: str) -> str:
        """Whether p is true for "and" all or "or" any of the members."""
        if self.width == 1:
            return self.text(p)
        kind = self.kind(bool)
        return self.write(f"call i1 @llvm.vector.reduce.{how}.v{self.width}i1({kind} {self.text(p)})", bool).name

    def intrinsic(self, name: str, xs: Sequence[Operand], more: str = "") -> Value:
        """Call an LLVM intrinsic on numbers of one type."""
        dtype = xs[0].dtype
        kind = self.kind(dtype)
        args = ", ".join(f"{kind} {self.text(x)}" for x in xs)
        return self.write(f"call {kind} @llvm.{name}.{self.suffix(dtype)}({args}{more})", dtype)


def _literal(x: np.generic) -> str:
    if x.dtype == bool:
        return "true" if x else "false"
    if x.dtype.kind == "f":
        return f"0x{struct.pack('>d', float(x)).hex()}"
    return str(int(x))
