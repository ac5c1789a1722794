"""Numbers of the compiled program with Python's operators, and pairs with more digits.

The compiler does not contract operations: x * y + z is rounded twice, fma(x, y, z) once. An operation acts on one
number or on `width` members in SIMD lanes; `where` chooses results by member.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..lowering.instructions import Value, bundle
from ..lowering.llvm_builder import Code
from ..lowering.scalar_kinds import number

MAGIC = 1.5 * 2.0**52  # x + MAGIC has the nearest whole number to x in its last bits
MAGIC_BITS = 0x4338000000000000
LARGEST_INLINE = 120  # operations; larger functions are called, which costs less to compile
REAL, INTEGER = np.dtype(np.float64), np.dtype(np.int64)


class Number:
    """A value of the code with operators."""

    __slots__ = ("code", "value")

    def __init__(self, code: Code, value: Any):
        self.code, self.value = code, value

    @property
    def real(self) -> bool:
        """Whether it is a floating-point number."""
        return self.value.dtype.kind == "f"

    def like(self, x: Any) -> Any:
        """x as an operand beside this one."""
        return x.value if isinstance(x, Number) else number(x, self.value.dtype)

    def made(self, op: str, x: Any, y: Any, dtype: Any = None) -> "Number":
        """One of LLVM's instructions."""
        return Number(self.code, self.code.operation(op, self.like(x), self.like(y), dtype=dtype))

    def __add__(self, x: Any) -> "Number":
        return self.made("fadd" if self.real else "add", self, x)

    def __radd__(self, x: Any) -> "Number":
        return self.made("fadd" if self.real else "add", x, self)

    def __sub__(self, x: Any) -> "Number":
        return self.made("fsub" if self.real else "sub", self, x)

    def __rsub__(self, x: Any) -> "Number":
        return self.made("fsub" if self.real else "sub", x, self)

    def __mul__(self, x: Any) -> "Number":
        return self.made("fmul" if self.real else "mul", self, x)

    __rmul__ = __mul__

    def __truediv__(self, x: Any) -> "Number":
        return self.made("fdiv", self, x)

    def __rtruediv__(self, x: Any) -> "Number":
        return self.made("fdiv", x, self)

    def __neg__(self) -> "Number":
        return Number(self.code, self.code.operation("fneg", self.value))

    def __abs__(self) -> "Number":
        return self.function("fabs")

    def __and__(self, x: Any) -> "Number":
        return self.made("and", self, x)

    def __or__(self, x: Any) -> "Number":
        return self.made("or", self, x)

    def __xor__(self, x: Any) -> "Number":
        return self.made("xor", self, x)

    def __invert__(self) -> "Number":
        return self.made("xor", self, True if self.value.dtype == bool else -1)

    def __lshift__(self, x: Any) -> "Number":
        return self.made("shl", self, x)

    def __rshift__(self, x: Any) -> "Number":
        """The bits of an unsigned integer; for signed ones: `shift_right`."""
        return self.made("lshr", self, x)

    def shift_right(self, times: int) -> "Number":
        """An integer over 2^times, rounded down."""
        return self.made("ashr", self, times)

    def __lt__(self, x: Any) -> "Number":
        return self.made("fcmp olt" if self.real else "icmp slt", self, x, bool)

    def __le__(self, x: Any) -> "Number":
        return self.made("fcmp ole" if self.real else "icmp sle", self, x, bool)

    def __gt__(self, x: Any) -> "Number":
        return self.made("fcmp ogt" if self.real else "icmp sgt", self, x, bool)

    def __ge__(self, x: Any) -> "Number":
        return self.made("fcmp oge" if self.real else "icmp sge", self, x, bool)

    def equals(self, x: Any) -> "Number":
        """Whether it is x; false for NaN."""
        return self.made("fcmp oeq" if self.real else "icmp eq", self, x, bool)

    def is_nan(self) -> "Number":
        """Whether it is NaN."""
        return self.made("fcmp uno", self, self, bool)

    def function(self, name: str, *more: Any) -> "Number":
        """One of LLVM's own functions that are rounded correctly."""
        return Number(self.code, self.code.intrinsic(name, [self.value, *(self.like(x) for x in more)]))

    def sqrt(self) -> "Number":
        """The root."""
        return self.function("sqrt")

    def signed(self, x: "Number") -> "Number":
        """With the sign of x."""
        return self.function("copysign", x)

    def bits(self) -> "Number":
        """Convert to a 64-bit integer."""
        return self._cast(INTEGER)

    def as_real(self) -> "Number":
        """The floating-point number with these bits."""
        return self._cast(REAL)

    def _cast(self, dtype: np.dtype) -> "Number":
        return Number(self.code, self.code.convert("bitcast", self.value, dtype))

    def whole(self) -> "Number":
        """Convert an integer of at most 51 bits to a floating-point number."""
        return (self + MAGIC_BITS).as_real() - MAGIC


def fma(x: Any, y: Any, z: Any) -> Number:
    """x y + z, rounded once."""
    one = next(a for a in (x, y, z) if isinstance(a, Number))
    return Number(one.code, one.code.intrinsic("fma", [one.like(a) for a in (x, y, z)]))


def where(p: Number, a: Any, b: Any) -> Number:
    """Return a where p is true, else b."""
    like = next((x for x in (a, b) if isinstance(x, Number)), None)
    lanes = [like.like(x) if like is not None else number(x, REAL) for x in (a, b)]
    return Number(p.code, p.code.select(p.value, *lanes))


def power_of_two(k: Number) -> Number:
    """2^k of an integer −1022 ≤ k ≤ 1023."""
    return ((k + 1023) << 52).as_real()


def scaled(x: Number, k: Number) -> Number:
    """x 2^k, rounded once, for |k| < 2044."""
    half = k.shift_right(1)
    return x * power_of_two(half) * power_of_two(k - half)


def polynomial(x: Number, coefficients: Sequence[float]) -> Number:
    """Σ cₖ xᵏ, pairs of terms first, then pairs of pairs, which a processor computes in parallel."""
    terms: list[Any] = list(coefficients)
    while len(terms) > 1:
        pairs = [fma(x, b, a) for a, b in zip(terms[::2], terms[1::2], strict=False)]
        terms = pairs + terms[len(terms) & ~1 :]
        x = x * x if len(terms) > 1 else x
    return terms[0]


# Pairs: unevaluated sums h + l, about 32 digits.

Pair = tuple[Any, Any]


def two_sum(a: Any, b: Any) -> Pair:
    """a + b, exactly."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def fast_sum(a: Any, b: Any) -> Pair:
    """a + b, exactly, where |a| ≥ |b| or a = 0."""
    s = a + b
    return s, b - (s - a)


def two_product(a: Any, b: Any) -> Pair:
    """a b, exactly."""
    p = a * b
    return p, fma(a, b, -p)


def plus(a: Pair, b: Pair) -> Pair:
    """a + b to nearly twice the digits."""
    s, t = two_sum(a[0], b[0])
    return fast_sum(s, t + (a[1] + b[1]))


def minus(a: Pair) -> Pair:
    """−a."""
    return -a[0], -a[1]


def times(a: Pair, b: Pair) -> Pair:
    """a b to nearly twice the digits."""
    p, e = two_product(a[0], b[0])
    return fast_sum(p, fma(a[0], b[1], fma(a[1], b[0], e)))


def over(a: Pair, b: Pair) -> Pair:
    """a/b to nearly twice the digits."""
    inverse = 1.0 / b[0]
    q = a[0] * inverse
    rest = fma(-q, b[0], a[0]) + fma(-q, b[1], a[1])
    return fast_sum(q, rest * inverse)


def choose(p: Number, a: Pair, b: Pair) -> Pair:
    """Return a where p is true, else b."""
    return where(p, a[0], b[0]), where(p, a[1], b[1])


def polynomial_of_pairs(x: Pair, coefficients: Sequence) -> Pair:
    """Σ cₖ xᵏ, of which the first coefficients are pairs."""
    pairs = [c for c in coefficients if isinstance(c, tuple)]
    out: Pair = polynomial(x[0], coefficients[len(pairs) :]), 0.0
    for c in reversed(pairs):
        h, low = times(x, out)
        s, t = two_sum(c[0], h)
        out = s, t + (low + c[1])
    return out


# Functions of the program.


def define(code: Code, name: str, build: Callable, count: int) -> None:
    """A function of `count` floating-point numbers with results that `build` makes, unless it is there already."""
    if name in code.functions:
        return
    code.functions[name] = ""  # reserves its position, because its callees are defined after it
    inner = Code(code.width)
    inner.functions, inner.block = code.functions, "entry"
    arguments = [Value(f"%x{i}", REAL) for i in range(count)]
    out = build(*(Number(inner, x) for x in arguments))
    outs = [x.value for x in out] if isinstance(out, tuple) else [out.value]
    kind = code.kind(REAL)
    result, returned = kind, f"{kind} {inner.text(outs[0])}"
    if len(outs) > 1:
        result, name_of = bundle(kind, len(outs)), "poison"
        for i, x in enumerate(outs):
            name_of = inner.write(f"insertvalue {result} {name_of}, {kind} {inner.text(x)}, {i}", REAL).name
        returned = f"{result} {name_of}"
    given = ", ".join(f"{kind} {x.name}" for x in arguments)
    how = "alwaysinline" if len(inner.lines) < LARGEST_INLINE else "noinline"
    head = f"define internal {result} @{name}({given}) nounwind willreturn memory(none) {how} {{\nentry:\n"
    code.functions[name] = "\n".join([head + "\n".join(inner.render(inner.finished())), f"  ret {returned}", "}"])


def call(name: str, build: Callable, *xs: Number, results: int = 1) -> tuple[Number, ...]:
    """A function of the program, defined if it is not yet there; at the same numbers it is called once."""
    code = xs[0].code
    define(code, name, build, len(xs))
    values = [x.value for x in xs]
    key = code.block, name, *map(code.spelled, values)
    if key not in code.called:
        code.called[key] = code.call(name, values, REAL, results)
    return tuple(Number(code, x) for x in code.called[key])
