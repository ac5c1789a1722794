"""The evaluator: a traced program, number by number.

XLA's CPU compiler is made for large arrays: a loop whose body works on vectors of length six spends its time between
operations, not in them. Here a traced program is evaluated anew with each array replaced by an array of lanes (see
`kinds`). What is known is folded: sums with 0, products with 0 and 1. What is uniform is left to JAX, once, before the
run (so is what is divided by it: a quotient becomes a product; of several such factors, their product). What varies
is written as code. What only moves
elements costs nothing, loops stay loops, and what remains is the straight-line code that one would write in C.

A condition wrapped in `likely` is taken for true, so that the other branch costs nothing, and kept as a guard: a step
for which a guard did not hold is not taken.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jex
from jaxtyping import Array

from ..errors import NotCompilable
from ..jaxprs.data_movement import MOVES, object_array
from ..jaxprs.equations import live_equations
from ..jaxprs.interning import eval_equation
from ..jaxprs.numpy_eval import by_numpy
from ..targets import slp_vectorizer
from . import control_flow_rules, decomposed_primitives, indexing_rules, reduction_rules, scalar_ops, single_precision
from .llvm_builder import Code, Value
from .scalar_kinds import LaneArray, all_known, any_varies, known, number, same, split, varies

# Rules for arrays: (evaluator, equation, arrays of lanes …) → arrays of lanes.
RULES: dict[str, Callable[..., list[LaneArray]]] = {
    **indexing_rules.RULES,
    **reduction_rules.RULES,
    **control_flow_rules.RULES,
    **decomposed_primitives.RULES,
}
_LAX = {"and": "bitwise_and", "or": "bitwise_or", "not": "bitwise_not", "xor": "bitwise_xor"}
_TESTS = ("lt", "le", "gt", "ge", "eq", "ne")
_SIMPLER = ("div", "select_n")  # which may come to less also where no number is known


class Attempt(NamedTuple):
    """A step as code: the new state and what is saved, whether it is taken, and the basic block where that is known."""

    results: list[Any]
    valid: Any  # for each member
    taken: str  # whether it is for all members of the group
    block: str


class Evaluator:
    """Evaluates a program on lanes, writing what varies as code and counting the operations."""

    def __init__(self, code: Code, limit: int, stem: str = "%u", copies: int | None = None):
        self.code, self.limit, self.left, self.stem = code, limit, limit, stem
        self.copies = copies  # along which equal operations may stand side by side
        self._grouped = False
        self.trusting = True  # what is likely is taken for true
        self.guards: list[Any] = []  # what was taken for true
        self.active: Any = np.True_  # whether the branch that is being evaluated is taken
        self.low_precision = False  # what is written need have few digits
        self.factors: list[tuple] = []  # of what is the same everywhere: what must be in range (see `_in_range`)
        self.uniforms: list[tuple[Array, Value]] = []  # what the code reads of what is the same everywhere
        self._names: dict[int, Value] = {}
        self._inverses: dict[int, tuple[Array, Array]] = {}
        self._done: dict[tuple, tuple[Any, Any]] = {}  # operations on what does not vary
        self._scaled: dict[
            str, tuple[Value, Any]
        ] = {}  # products of something that varies with something that does not
        self._factors: dict[tuple, Any] = {}  # products of what does not vary
        self._multiples: dict[int, tuple[Any, Any]] = {}  # those of it with known numbers

    def evaluate(self, closed: jex.ClosedJaxpr, args: Sequence[LaneArray]) -> list[LaneArray]:
        """What comes out of a program."""
        jaxpr = closed.jaxpr
        env: dict[Any, LaneArray] = dict(zip(jaxpr.constvars, map(split, closed.consts), strict=True))
        env.update(zip(jaxpr.invars, args, strict=True))

        def read(v: Any) -> LaneArray:
            return split(np.asarray(v.val, getattr(v.aval, "dtype", None))) if isinstance(v, jex.Literal) else env[v]

        for eqn in _loops_last(live_equations(jaxpr)):
            out = self.equation(jaxpr, eqn, [read(v) for v in eqn.invars])
            env.update(zip(eqn.outvars, out, strict=True))
        return [read(v) for v in jaxpr.outvars]

    def equation(self, jaxpr: jex.Jaxpr, eqn: Any, xs: list[LaneArray]) -> list[LaneArray]:
        """One equation: by a rule if one is needed, else by JAX."""
        name = eqn.primitive.name
        if not all(isinstance(v.aval.dtype, np.dtype) for v in eqn.outvars):  # JAX's own types are none of NumPy's
            raise NotCompilable("A step uses random keys of JAX, which native code does not support.")
        if scalar_ops.known_to(name):
            return [self.elementwise(eqn, xs)]
        if name in MOVES:  # which costs nothing
            return MOVES[name](eqn.params, *xs)
        if name in control_flow_rules.CALLS:
            return RULES[name](self, eqn, *xs)
        by_jax = not any_varies(*xs) and name not in reduction_rules.FOLDED
        if by_jax and (known(self.active) or not control_flow_rules.may_run_forever(eqn)):
            about = name, tuple(v.aval for v in eqn.invars), *eqn.params.items()
            return self.once(about, [e for x in xs for e in x.ravel()], lambda: _by_jax(jaxpr, eqn, xs))
        if name not in RULES:
            raise NotCompilable.operation(name)
        return RULES[name](self, eqn, *xs)

    def elementwise(self, eqn: Any, xs: list[LaneArray]) -> LaneArray:
        """An operation on each element."""
        aval, name, params = eqn.outvars[0].aval, eqn.primitive.name, eqn.params
        count = math.prod(aval.shape)
        wide = [_spread(x, aval.shape) for x in xs]
        numbers = _known_among(eqn, wide)
        if len(numbers) == count:
            return object_array(list(numbers.values()), aval.shape)
        bind = lambda *ys: eqn.primitive.bind(*ys, **params)

        def one(i: int) -> Any:
            return numbers[i] if i in numbers else self.fold(name, params, aval.dtype, [x[i] for x in wide], bind)

        return object_array(self.each(one, aval.shape), aval.shape)

    def once(self, about: tuple, lanes: Sequence[Any], work: Callable[[], Any]) -> Any:
        """What comes of lanes that do not vary: once for the same ones, be they a thousand spins'."""
        key = about, tuple(id(x) if isinstance(x, jax.Array) else (x.dtype, x.tobytes()) for x in lanes)
        try:
            known = key in self._done
        except TypeError:  # of parameters that have no hash
            return work()
        if not known:
            self._done[key] = work(), lanes  # keeps them, and so their identities
        return self._done[key][0]

    def each(self, work: Callable[[int], Any], shape: tuple[int, ...] | None, count: int = 0) -> list[Any]:
        """work(i) for all elements of an array, or so many times; what is written may stand side by side."""
        count = count if shape is None else math.prod(shape)
        if self.copies is None or self._grouped or count < slp_vectorizer.SIZE:
            return [work(i) for i in range(count)]
        code, out, elements = self.code, [], []
        self._grouped, left = True, self.left
        for i in range(count):
            start = len(code.lines)
            out.append(work(i))
            elements.append(code.names(start, len(code.lines)))
        self._grouped = False
        self.left = left - (left - self.left) // slp_vectorizer.SIZE
        code.groups.append(
            slp_vectorizer.Group(elements, None if shape is None else slp_vectorizer.rows_of(shape, self.copies))
        )
        return out

    # One operation.

    def scalar(self, name: str, *xs: Any) -> Any:
        """One operation of a rule's own."""
        dtype = np.dtype(bool) if name in _TESTS else xs[-1].dtype
        return self.fold(name, {}, dtype, xs, lambda *ys: getattr(jax.lax, _LAX.get(name, name))(*ys))

    def converted(self, x: Any, dtype: Any) -> Any:
        """A lane as a number of another type."""
        if x.dtype == dtype:
            return x
        convert = lambda y: jax.lax.convert_element_type(y, dtype)
        return self.fold("convert_element_type", {}, np.dtype(dtype), [x], convert)

    def tree_reduce(self, name: str, terms: Sequence[Any]) -> Any:
        """All terms together, in pairs and pairs of pairs: a processor can do those side by side."""
        terms = list(terms)
        while len(terms) > 1:
            done = self.each(lambda i, t=terms: self.scalar(name, t[2 * i], t[2 * i + 1]), None, len(terms) // 2)
            terms = done + terms[len(terms) & ~1 :]
        return terms[0]

    def fold(self, name: str, params: dict, dtype: Any, xs: Sequence[Any], bind: Callable) -> Any:
        """One operation: folded if it can be, done beforehand if it is the same everywhere, else written."""
        numbers = sum(map(known, xs))
        if numbers == len(xs):
            return _at_once(name, params, dtype, xs, bind)
        if (numbers or name in _SIMPLER) and (simple := self._simplified(name, dtype, xs)) is not None:
            return simple
        if not any(map(varies, xs)):
            return self.once((name, dtype, *params.items()), xs, lambda: bind(*xs))
        real = dtype == np.float64 or (self.low_precision and dtype == np.float32)
        if real and (collected := self._collected(name, xs)) is not None:
            return collected
        scaled = self._gathered(*xs) if name == "mul" and real else None
        xs = [self.operand(v) for v in scaled or xs]
        if self.low_precision:
            dtype, xs = single_precision.narrow_operands(self.code, name, dtype, xs)
        written = scalar_ops.write(self.code, name, params, dtype, xs)
        if scaled:
            self._scaled[written.name] = scaled
        self.left -= scalar_ops.size(self.code, name)
        if self.left < 0:
            raise NotCompilable.size(self.limit)
        return written

    def _gathered(self, x: Any, y: Any) -> tuple[Value, Any] | None:
        """A product of something that varies and something that does not; of (a u) w it is a (u w)."""
        a, u = (x, y) if varies(x) else (y, x)
        if varies(u):
            return None
        if a.name in self._scaled:
            b, w = self._scaled[a.name]
            both = self.factor(w, u)
            return (a, u) if both is None else (b, both)
        return a, u

    def _collected(self, name: str, xs: Sequence[Any]) -> Any:
        """a u + a u as a (2 u), where u does not vary; None if it is not such a sum."""
        if name not in ("add", "add_any") or not all(varies(x) and x.name in self._scaled for x in xs):
            return None
        (a, u), (b, w) = (self._scaled[x.name] for x in xs)
        if a.name != b.name or not (u is w or same(u, w)):
            return None
        twice = self.factor(u, number(2, u.dtype))
        return None if twice is None else self.scalar("mul", a, twice)

    def factor(self, u: Any, w: Any) -> Any:
        """u w of what does not vary; None if it is known to be out of range.

        If that turns out later, no steps are taken, unless u or w is 0 or ∞.
        """
        if known(u) and known(w):
            both = u * w
            return None if _extreme(both) else both
        if known(u):
            u, w = w, u
        if known(w) and id(u) in self._multiples:  # (c v) w is v (c w)
            c, v = self._multiples[id(u)]
            return self.factor(v, c * w) if not _extreme(c * w) else None
        key = (id(u), w) if known(w) else (min(id(u), id(w)), max(id(u), id(w)))
        if key not in self._factors:
            both = jax.lax.mul(u, w)
            self._factors[key] = both
            self.factors.append((both, u, w))  # keeps them, and so their identities
            if known(w):
                self._multiples[id(both)] = w, u
        return self._factors[key]

    def _simplified(self, name: str, dtype: Any, xs: Sequence[Any]) -> Any:
        """What an operation with some known numbers comes to without being done; None if it must be done."""
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
            return self.scalar("neg", y)
        if name == "div" and ((_is(x, 0) and dtype.kind == "f") or _is(y, 1)):
            return x
        if name == "div" and dtype.kind == "f" and varies(x) and not varies(y):
            inverse = self.inverse(y)
            return None if inverse is None else self.scalar("mul", x, inverse)
        if name == "select_n" and known(x):
            return xs[1 + int(x)]
        if name == "select_n" and len(xs) == 3 and (xs[1] is xs[2] or same(xs[1], xs[2])):
            return xs[1]
        if name in ("and", "or") and dtype.kind == "b" and (known(x) or known(y)):
            a, b = (x, y) if known(x) else (y, x)
            return b if bool(a) == (name == "and") else np.bool_(a)
        return None

    def operand(self, x: Any) -> Any:
        """A lane as the code reads it."""
        if not isinstance(x, jax.Array):
            return x
        if id(x) not in self._names:
            self._names[id(x)] = Value(f"{self.stem}{len(self.uniforms)}", x.dtype)
            self.uniforms.append((x, self._names[id(x)]))  # keeps x, and so its identity
        return self._names[id(x)]

    def inverse(self, y: Any) -> Any:
        """1/y of what is the same everywhere; None if it is known to be out of range.

        If that turns out later, no steps are taken, unless y is 0 or ∞.
        """
        if known(y):
            inverse = np.asarray(1.0 / y, y.dtype)[()]
            return None if _extreme(inverse) else inverse
        if id(y) not in self._inverses:
            inverse = jax.lax.div(number(1, y.dtype), y)
            self._inverses[id(y)] = (y, inverse)
            self.factors.append((inverse, y, y))
        return self._inverses[id(y)][1]

    def attempt(self, closed: jex.ClosedJaxpr, args: Sequence[LaneArray], before: Attempt | None = None) -> Attempt:
        """A step: what comes out, and whether it is taken: what the step says, and all that was taken for true.

        After another attempt `before`, this one takes nothing for true, and serves the members that need it.
        """
        code = self.code
        self.trusting, self.guards, self.left = before is None, [], self.limit
        *out, ok = self.evaluate(closed, args)
        flat = [self.operand(e) for x in out for e in x.ravel()]
        for x in flat:
            code.text(x)  # what comes out is used
        valid = self.operand(self.tree_reduce("and", [ok[()], *self.guards, *_in_range(self.factors)]))
        if before is not None:
            flat = [code.select(before.valid, a, b) for a, b in zip(before.results, flat, strict=True)]
            valid = self.operand(self.scalar("or", before.valid, valid))
        return Attempt(flat, valid, code.all_lanes(valid, "and"), code.block)


def _loops_last(eqns: Sequence[Any]) -> list[Any]:
    """Equations in their order, but those first that wait for no loop: a processor does them beside what does."""
    waiting: set[Any] = set()
    early, late = [], []
    for eqn in eqns:
        waits = eqn.primitive.name == "while" or any(v in waiting for v in eqn.invars if not isinstance(v, jex.Literal))
        (late if waits else early).append(eqn)
        waiting.update(eqn.outvars if waits else ())
    return early + late


def _is(x: Any, value: int) -> bool:
    return x is not None and known(x) and x.dtype.kind != "b" and x == value


def _extreme(factor: Any) -> Any:
    """Whether a factor, 1/y or u w, has lost digits, or all of them."""
    return (abs(factor) < jnp.finfo(factor.dtype).tiny) | (abs(factor) == np.inf)


def _in_range(assumed: Sequence[tuple]) -> list[Array]:
    """Whether factors y made from u and w have kept their digits, unless u or w was 0 or ∞; given as (y, u, w)."""
    out = []
    for dtype in dict.fromkeys(y.dtype for y, *_ in assumed):
        columns = zip(*(triple for triple in assumed if triple[0].dtype == dtype), strict=True)
        y, u, w = (jnp.stack([jnp.asarray(x, dtype) if known(x) else x for x in column]) for column in columns)
        out.append(_kept(y, u, w))
    return out


def _kept(y: Array, u: Array, w: Array) -> Array:
    return jnp.all(~_extreme(y) | _given(u) | _given(w))


def _given(x: Array) -> Array:
    """Whether x is ±0, by its bits, since for XLA the smallest numbers equal 0, or ±∞."""
    bits = jax.lax.bitcast_convert_type(x, jnp.uint64 if x.dtype == jnp.float64 else jnp.uint32)
    return (bits << 1 == 0) | jnp.isinf(x)


def _spread(x: LaneArray, shape: tuple[int, ...]) -> list[Any]:
    """The lanes of an array as those of one of another shape; the quick ways first."""
    if x.shape == shape:
        return list(x.flat)
    return [x[()]] * math.prod(shape) if x.ndim == 0 else list(np.broadcast_to(x, shape).flat)


def _known_among(eqn: Any, xs: Sequence[list]) -> dict[int, Any]:
    """An operation on each element of vectors, where all that it needs is known: by place, if NumPy can do it."""
    at = [i for i, lanes in enumerate(zip(*xs, strict=True)) if all(map(known, lanes))]
    if not at:
        return {}
    given, dtype = [v.aval.dtype for v in eqn.invars], eqn.outvars[0].aval.dtype
    arrays = [np.array([x[i] for i in at], d) for x, d in zip(xs, given, strict=True)]
    does = by_numpy(eqn.primitive.name, eqn.params, dtype, given, arrays)
    if does is None:
        return {}
    with np.errstate(all="ignore"):
        return dict(zip(at, np.asarray(does(*arrays), dtype), strict=True))


def _at_once(name: str, params: dict, dtype: Any, xs: Sequence[Any], bind: Callable) -> Any:
    """An operation on known numbers."""
    if name == "select_n":
        return xs[1 + int(xs[0])]
    if (does := by_numpy(name, params, dtype, [x.dtype for x in xs], xs)) is not None:
        with np.errstate(all="ignore"):
            return np.asarray(does(*xs), dtype)[()]
    with jax.ensure_compile_time_eval():
        return np.asarray(bind(*(np.asarray(x) for x in xs)))[()]


def _by_jax(jaxpr: jex.Jaxpr, eqn: Any, xs: Sequence[LaneArray]) -> list[LaneArray]:
    """An equation in which nothing varies: done now if all is known, else before the run."""
    arrays = _arrays(eqn, xs)
    if not all_known(*xs):
        return [split(y) for y in eval_equation(jaxpr, eqn, arrays)]
    types = eqn.outvars[0].aval.dtype, [a.dtype for a in arrays]
    if (does := by_numpy(eqn.primitive.name, eqn.params, *types, arrays)) is not None:
        return [split(np.asarray(does(*arrays)))]
    with jax.ensure_compile_time_eval():
        return [split(np.asarray(y)) for y in eval_equation(jaxpr, eqn, arrays)]


def _arrays(eqn: Any, xs: Sequence[LaneArray]) -> list[Any]:
    """Arrays of lanes that do not vary."""

    def one(x: LaneArray, dtype: Any) -> Any:
        if all_known(x):
            return x.astype(dtype)
        return jnp.stack([jnp.asarray(e, dtype) for e in x.ravel()]).reshape(x.shape)

    return [one(x, v.aval.dtype) for x, v in zip(xs, eqn.invars, strict=True)]
