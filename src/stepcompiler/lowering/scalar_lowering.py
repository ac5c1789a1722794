"""Operations on single lanes: folded if possible, computed before the run if they do not vary, else written as code."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from ..jaxprs.numpy_eval import by_numpy
from . import scalar_ops, single_precision
from .groups import Groups
from .instructions import Value
from .llvm_builder import Code
from .scalar_kinds import known, number, same, varies
from .shared_values import SharedValues

_LAX = {"and": "bitwise_and", "or": "bitwise_or", "not": "bitwise_not", "xor": "bitwise_xor"}
_TESTS = ("lt", "le", "gt", "ge", "eq", "ne")
_SIMPLER = ("div", "select_n")  # may become simpler even if no operand is known


class ScalarLowering:
    """Lowers operations on lanes."""

    def __init__(self, code: Code, shared: SharedValues, groups: Groups):
        self.code, self.shared, self.groups = code, shared, groups
        self.low_precision = False  # whether single precision suffices for the code that is being written
        self._scaled: dict[str, tuple[Value, Any]] = {}  # products of a varying number and one that does not vary

    def apply(self, name: str, *xs: Any) -> Any:
        """Return the result of JAX's operation of this name."""
        dtype = np.dtype(bool) if name in _TESTS else xs[-1].dtype
        return self.fold(name, {}, dtype, xs, lambda *ys: getattr(jax.lax, _LAX.get(name, name))(*ys))

    def convert(self, x: Any, dtype: Any) -> Any:
        """Return a lane as a number of another type."""
        if x.dtype == dtype:
            return x
        convert = lambda y: jax.lax.convert_element_type(y, dtype)
        return self.fold("convert_element_type", {}, np.dtype(dtype), [x], convert)

    def tree_reduce(self, name: str, terms: Sequence[Any]) -> Any:
        """Combine all terms in pairs and pairs of pairs, which a processor computes side by side."""
        terms = list(terms)
        while len(terms) > 1:
            done = self.groups.each(lambda i, t=terms: self.apply(name, t[2 * i], t[2 * i + 1]), None, len(terms) // 2)
            terms = done + terms[len(terms) & ~1 :]
        return terms[0]

    def fold(self, name: str, params: dict[str, Any], dtype: Any, xs: Sequence[Any], bind: Callable[..., Any]) -> Any:
        """Return the result of one operation; `bind` evaluates it by JAX."""
        numbers = sum(map(known, xs))
        if numbers == len(xs):
            return _at_once(name, params, dtype, xs, bind)
        if (numbers or name in _SIMPLER) and (simple := self._simplified(name, dtype, xs)) is not None:
            return simple
        if not any(map(varies, xs)):
            return self.shared.memoize((name, dtype, *params.items()), xs, lambda: bind(*xs))
        real = dtype == np.float64 or (self.low_precision and dtype == np.float32)
        if real and (collected := self._collected(name, xs)) is not None:
            return collected
        scaled = self._gathered(*xs) if name == "mul" and real else None
        xs = [self.shared.operand(v) for v in scaled or xs]
        if self.low_precision:
            dtype, xs = single_precision.narrow_operands(self.code, name, dtype, xs)
        written = scalar_ops.write(self.code, name, params, dtype, xs)
        if scaled and isinstance(written, Value):
            self._scaled[written.name] = scaled
        self.groups.spend(scalar_ops.size(self.code, name))
        return written

    def _gathered(self, x: Any, y: Any) -> tuple[Value, Any] | None:
        """The factors of x y, of which one varies and one does not: (a u) w is a (u w). None for other products."""
        a, u = (x, y) if varies(x) else (y, x)
        if varies(u):
            return None
        if a.name in self._scaled:
            b, w = self._scaled[a.name]
            both = self.shared.product(w, u)
            return (a, u) if both is None else (b, both)
        return a, u

    def _collected(self, name: str, xs: Sequence[Any]) -> Any:
        """a u + a u as a (2 u), where u does not vary; None if it is not such a sum."""
        if name not in ("add", "add_any") or not all(varies(x) and x.name in self._scaled for x in xs):
            return None
        (a, u), (b, w) = (self._scaled[x.name] for x in xs)
        if a.name != b.name or not (u is w or same(u, w)):
            return None
        twice = self.shared.product(u, number(2, u.dtype))
        return None if twice is None else self.apply("mul", a, twice)

    def _simplified(self, name: str, dtype: Any, xs: Sequence[Any]) -> Any:
        """The result of an operation that need not be computed; None if it must be."""
        x, y = xs[0], xs[1] if len(xs) > 1 else None
        if name == "mul" and (_is(x, 0) or _is(y, 0)):
            return number(0, dtype)
        if name == "mul" and (_is(x, 1) or _is(y, 1)):
            return y if _is(x, 1) else x
        if name in ("add", "add_any") and (_is(x, 0) or _is(y, 0)):
            return y if _is(x, 0) else x
        if name == "sub" and _is(y, 0):
            return x
        if name == "sub" and _is(x, 0):
            return self.apply("neg", y)
        if name == "div" and ((_is(x, 0) and dtype.kind == "f") or _is(y, 1)):
            return x
        if name == "div" and dtype.kind == "f" and varies(x) and not varies(y):
            inverse = self.shared.inverse(y)
            return None if inverse is None else self.apply("mul", x, inverse)
        if name == "select_n" and known(x):
            return xs[1 + int(x)]
        if name == "select_n" and len(xs) == 3 and (xs[1] is xs[2] or same(xs[1], xs[2])):
            return xs[1]
        if name in ("and", "or") and dtype.kind == "b" and (known(x) or known(y)):
            a, b = (x, y) if known(x) else (y, x)
            return b if bool(a) == (name == "and") else np.bool_(a)
        return None


def _is(x: Any, value: int) -> bool:
    return x is not None and known(x) and x.dtype.kind != "b" and x == value


def _at_once(name: str, params: dict[str, Any], dtype: Any, xs: Sequence[Any], bind: Callable[..., Any]) -> Any:
    """An operation on known numbers."""
    if name == "select_n":
        return xs[1 + int(xs[0])]
    if (does := by_numpy(name, params, dtype, [x.dtype for x in xs], xs)) is not None:
        with np.errstate(all="ignore"):
            return np.asarray(does(*xs), dtype)[()]
    with jax.ensure_compile_time_eval():
        return np.asarray(bind(*(np.asarray(x) for x in xs)))[()]
