"""JAX's operations on single numbers, as code: one rule a primitive, found by its name."""

from collections.abc import Callable, Sequence
from typing import Any, Concatenate

import numpy as np
from numpy.typing import DTypeLike

from .. import mathematics
from ..errors import NotCompilable
from .instructions import Operand, Value
from .llvm_builder import Code
from .scalar_kinds import number

Params = dict[str, Any]  # of an equation
Rule = Callable[Concatenate[Code, Params, np.dtype, ...], Operand]  # (code, params, result type, operands …)

_COMPARE = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}
_INTEGERS = {"add": "add", "add_any": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor"}
_INTRINSIC = {"abs": "fabs", "sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "max": "maximum", "min": "minimum"}
_ROUND = ("round", "roundeven")  # JAX's rounding methods: away from zero, to even


def write(code: Code, name: str, params: Params, dtype: DTypeLike, xs: Sequence[Operand]) -> Operand:
    """The operation of JAX's with this name."""
    table = REALS if xs[0].dtype.kind == "f" else INTEGERS
    rule = table.get(name) or COMMON.get(name)
    if rule is None:
        raise NotCompilable.operation(name, f" of numbers of type {xs[0].dtype}")
    return rule(code, params, np.dtype(dtype), *xs)


def known_to(name: str) -> bool:
    """Whether there is an operation with this name."""
    return name in REALS or name in INTEGERS or name in COMMON


def size(code: Code, name: str) -> int:
    """How many operations it is made of, once written."""
    return mathematics.size(code, name) if name in mathematics.FUNCTIONS else 1


def _plain(op: str) -> Rule:
    """One of LLVM's instructions on integers."""
    return lambda code, params, dtype, x, y: code.operation(op, x, y)


def _comparison(test: str) -> Rule:
    def rule(code: Code, params: Params, dtype: np.dtype, x: Operand, y: Operand) -> Value:
        if x.dtype.kind == "f":
            op = f"fcmp {test}"
        elif test[1:] in ("eq", "ne"):
            op = f"icmp {test[1:]}"
        else:
            op = f"icmp {'s' if x.dtype.kind == 'i' else 'u'}{test[1:]}"
        return code.operation(op, x, y, dtype=bool)

    return rule


def _total(test: str) -> Rule:
    """Comparison in the order of all floating-point numbers: −NaN, −∞, …, −0, 0, …, ∞, NaN."""

    def rule(code: Code, params: Params, dtype: np.dtype, *xs: Operand) -> Operand:
        integer = np.dtype(f"int{8 * xs[0].dtype.itemsize}")
        ranks = []
        for x in xs:
            bits = _bits(code, {}, integer, x)
            negative = write(code, "lt", {}, bool, [bits, number(0, integer)])
            flipped = write(code, "xor", {}, integer, [bits, number(np.iinfo(integer).max, integer)])
            ranks.append(code.select(negative, flipped, bits))
        return write(code, test, {}, bool, ranks)

    return rule


def _intrinsic(name: str) -> Rule:
    return lambda code, params, dtype, *xs: code.intrinsic(name, xs)


def _function(name: str) -> Rule:
    return lambda code, params, dtype, *xs: mathematics.write(code, name, [converted(code, x, dtype) for x in xs])


def converted(code: Code, x: Operand, dtype: DTypeLike) -> Operand:
    """Convert x to another type; as integers, NaN becomes 0, and values out of range are clipped."""
    old, new = x.dtype, np.dtype(dtype)
    if old == new:
        return x
    if new.kind == "b":
        return write(code, "ne", {}, bool, [x, number(0, old)])
    if old.kind in "iu" and new.kind in "iu" and old.itemsize == new.itemsize:
        code.use(x)
        return Value(x.name, new) if isinstance(x, Value) else x.astype(new)
    if old == np.float64 and new == np.int64:
        return _to_integer(code, x)
    if old.kind == "f" and new.kind in "iu":
        return code.saturated("fptosi.sat" if new.kind == "i" else "fptoui.sat", x, new)
    if old.kind in "biu":
        wider = "zext" if old.kind in "bu" else "sext"
        to_float = "uitofp" if old.kind in "bu" else "sitofp"
        op = to_float if new.kind == "f" else wider if old.kind == "b" or new.itemsize > old.itemsize else "trunc"
    else:
        op = "fpext" if new.itemsize > old.itemsize else "fptrunc"
    return code.convert(op, x, new)


def _to_integer(code: Code, x: Operand) -> Operand:
    """Convert to a 64-bit integer in SIMD lanes; LLVM's own function handles one member after the other."""
    limit = np.iinfo(np.int64)
    ends = [(test, number(end, float), number(end, np.int64)) for test, end in (("ge", limit.max), ("le", limit.min))]
    beyond = [write(code, test, {}, bool, [x, end]) for test, end, _ in ends]
    inside = write(code, "lt", {}, bool, [code.intrinsic("fabs", [x]), ends[0][1]])
    safe = code.select(inside, x, number(0, float))
    out: Operand = code.convert("fptosi", safe, np.int64)
    for p, (_, _, end) in zip(beyond, ends, strict=True):
        out = code.select(p, end, out)
    return out


def _integer_pow(code: Code, params: Params, dtype: np.dtype, x: Operand) -> Operand:
    """Repeated squaring."""
    exponent, power, out = abs(params["y"]), x, None
    while exponent:
        if exponent & 1:
            out = power if out is None else write(code, "mul", {}, dtype, [out, power])
        exponent >>= 1
        if exponent:
            power = write(code, "mul", {}, dtype, [power, power])
    if out is None:
        return number(1, dtype)
    return write(code, "div", {}, dtype, [number(1, dtype), out]) if params["y"] < 0 else out


def _sign(code: Code, params: Params, dtype: np.dtype, x: Operand) -> Operand:
    """±1; 0, −0 and NaN are unchanged."""
    zero = number(0, dtype)
    up, down = (write(code, test, {}, bool, [x, zero]) for test in ("gt", "lt"))
    return code.select(up, number(1, dtype), code.select(down, number(-1, dtype), x))


def _integer_sign(code: Code, params: Params, dtype: np.dtype, x: Operand) -> Operand:
    if dtype.kind == "u":
        return converted(code, write(code, "ne", {}, bool, [x, number(0, dtype)]), dtype)
    return _sign(code, params, dtype, x)


def _absolute(code: Code, params: Params, dtype: np.dtype, x: Operand) -> Operand:
    if dtype.kind != "i":
        return x
    negative = write(code, "lt", {}, bool, [x, number(0, dtype)])
    return code.select(negative, write(code, "neg", {}, dtype, [x]), x)


def _quotient(code: Code, params: Params, dtype: np.dtype, x: Operand, y: Operand) -> Operand:
    """Divide integers as XLA does: x/0 = −1. The processor traps for this case and for −2⁶³/(−1)."""
    zero, safe = _safe_divisor(code, dtype, x, y)
    op = "sdiv" if dtype.kind == "i" else "udiv"
    return code.select(zero, number(-1, dtype), code.operation(op, x, safe))


def _rest(code: Code, params: Params, dtype: np.dtype, x: Operand, y: Operand) -> Operand:
    zero, safe = _safe_divisor(code, dtype, x, y)
    op = "srem" if dtype.kind == "i" else "urem"
    return code.select(zero, x, code.operation(op, x, safe))


def _safe_divisor(code: Code, dtype: Any, x: Operand, y: Operand) -> tuple[Operand, Operand]:
    """Return whether y is zero, and 1 where a division by y would trap, else y."""
    zero = unsafe = write(code, "eq", {}, bool, [y, number(0, dtype)])
    if dtype.kind == "i":
        least = write(code, "eq", {}, bool, [x, number(np.iinfo(dtype).min, dtype)])
        minus = write(code, "eq", {}, bool, [y, number(-1, dtype)])
        unsafe = write(code, "or", {}, bool, [zero, write(code, "and", {}, bool, [least, minus])])
    return zero, code.select(unsafe, number(1, dtype), y)


def _shift(op: str) -> Rule:
    """By as many bits as there are, or more, everything is shifted out; LLVM leaves that undefined."""

    def rule(code: Code, params: Params, dtype: np.dtype, x: Operand, y: Operand) -> Operand:
        bits = 8 * dtype.itemsize
        if not isinstance(y, Value) and 0 <= int(y) < bits:
            return _plain(op)(code, params, dtype, x, y)
        unsigned = np.dtype(f"u{dtype.name.removeprefix('u')}")
        inside = write(code, "lt", {}, bool, [converted(code, y, unsigned), number(bits, unsigned)])
        last = number(bits - 1 if op == "ashr" else 0, dtype)
        shifted = _plain(op)(code, params, dtype, x, code.select(inside, y, last))
        return shifted if op == "ashr" else code.select(inside, shifted, number(0, dtype))

    return rule


def _not(code: Code, params: Params, dtype: np.dtype, x: Operand) -> Operand:
    ones = np.True_ if x.dtype == bool else number(-1, x.dtype)
    return _plain("xor")(code, params, dtype, x, ones)


def _larger(test: str) -> Rule:
    return lambda code, params, dtype, x, y: code.select(write(code, test, {}, bool, [x, y]), x, y)


def _select_n(code: Code, params: Params, dtype: np.dtype, p: Operand, *cases: Operand) -> Operand:
    if p.dtype == bool:
        return code.select(_not(code, {}, np.dtype(bool), p), *cases)
    out = cases[-1]
    for i in reversed(range(len(cases) - 1)):
        out = code.select(write(code, "eq", {}, bool, [p, number(i, p.dtype)]), cases[i], out)
    return out


def _clamp(code: Code, params: Params, dtype: np.dtype, low: Operand, x: Operand, high: Operand) -> Operand:
    return write(code, "min", {}, dtype, [write(code, "max", {}, dtype, [low, x]), high])


def _finite(code: Code, params: Params, dtype: np.dtype, x: Operand) -> Operand:
    return write(code, "lt", {}, bool, [code.intrinsic("fabs", [x]), number(np.inf, x.dtype)])


def _bits(code: Code, params: Params, dtype: np.dtype, x: Operand) -> Operand:
    if dtype.itemsize != x.dtype.itemsize or bool in (x.dtype, dtype):
        raise NotCompilable.operation("bitcast_convert_type", f" from {x.dtype} to {dtype}")
    if dtype.kind in "iu" and x.dtype.kind in "iu":
        return converted(code, x, dtype)
    return code.convert("bitcast", x, dtype)


def _reciprocal_root(code: Code, params: Params, dtype: np.dtype, x: Operand) -> Operand:
    return write(code, "div", {}, dtype, [number(1, dtype), code.intrinsic("sqrt", [x])])


COMMON: dict[str, Rule] = {
    **{name: _comparison(test) for name, test in _COMPARE.items()},
    "bitcast_convert_type": _bits,
    "clamp": _clamp,
    "convert_element_type": lambda code, params, dtype, x: converted(code, x, dtype),
    "copy": lambda code, params, dtype, x: x,
    "copy_p": lambda code, params, dtype, x: x,
    "integer_pow": _integer_pow,
    "select_n": _select_n,
    "square": lambda code, params, dtype, x: write(code, "mul", {}, dtype, [x, x]),
}
REALS: dict[str, Rule] = {
    **{name: _intrinsic(function) for name, function in _INTRINSIC.items()},
    **{name: _function(name) for name in mathematics.FUNCTIONS},
    "add": lambda code, params, dtype, x, y: code.sum("fadd", x, y),
    "add_any": lambda code, params, dtype, x, y: code.sum("fadd", x, y),
    "eq_to": _total("eq"),
    "le_to": _total("le"),
    "lt_to": _total("lt"),
    "div": lambda code, params, dtype, x, y: code.operation("fdiv", x, y),
    "is_finite": _finite,
    "mul": lambda code, params, dtype, x, y: code.product(x, y),
    "neg": lambda code, params, dtype, x: code.negative(x),
    "real": lambda code, params, dtype, x: x,
    "round": lambda code, params, dtype, x: code.intrinsic(_ROUND[int(params["rounding_method"])], [x]),
    "rsqrt": _reciprocal_root,
    "sign": _sign,
    "sub": lambda code, params, dtype, x, y: code.sum("fsub", x, y),
}
INTEGERS: dict[str, Rule] = {
    **{name: _plain(op) for name, op in _INTEGERS.items()},
    "abs": _absolute,
    "clz": lambda code, params, dtype, x: code.intrinsic("ctlz", [x], ", i1 false"),
    "div": _quotient,
    "max": _larger("gt"),
    "min": _larger("lt"),
    "neg": lambda code, params, dtype, x: write(code, "sub", {}, dtype, [number(0, dtype), x]),
    "not": _not,
    "population_count": lambda code, params, dtype, x: code.intrinsic("ctpop", [x]),
    "pow": _function("pow"),
    "rem": _rest,
    "shift_left": _shift("shl"),
    "shift_right_arithmetic": _shift("ashr"),
    "shift_right_logical": _shift("lshr"),
    "sign": _integer_sign,
}
