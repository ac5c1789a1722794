"""Lanes: a program on small arrays, evaluated with every array element as a number of its own.

XLA's CPU compiler is made for large arrays: a loop whose body works on vectors of length six spends its time between
operations, not in them. Here a traced program is evaluated anew with each array replaced by a NumPy array of *lanes*.
A lane is one of three things:

- known while tracing: a NumPy scalar. What is known is folded: sums with 0, products with 0 and 1;
- uniform: the same for all steps and members, since it depends on the numbers of the system alone. A JAX scalar,
  computed once, before the run (so is what is divided by it: a quotient becomes a product);
- varying: a `Value` of the native code that is being written (`code`).

What only moves elements (slices, reshapes, transposes) costs nothing, loops stay loops, and what remains is the
straight-line code that one would write in C.

    loop = native_loop(step, …)     # a step, as a JAX function; the compiled loop over steps and members

Where a primitive has no rule, or there are more than `limit` operations, `Unsuited` is raised. A condition wrapped in
`likely` is taken for true, so that the other branch costs nothing; a step for which it was not is not taken.
"""

import itertools
import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jex
from jax.lax import GatherScatterMode
from jaxtyping import Array, PyTree

from ..numerics.functions import eval_equation
from .code import Code, StepLoop, Unsuited, Value, step_loop

LaneArray = np.ndarray  # dtype object

_ELEMENTWISE = frozenset(
    "abs acos acosh add add_any and asin asinh atan atan2 atanh bitcast_convert_type cbrt ceil clamp "
    "convert_element_type copy copy_p cos cosh digamma div eq erf erf_inv erfc exp exp2 expm1 floor ge gt integer_pow "
    "is_finite le lgamma log log1p logistic lt max min mul ne neg nextafter not or pow real rem round rsqrt select_n "
    "shift_left shift_right_arithmetic shift_right_logical sign sin sinh sqrt square sub tan tanh xor".split()
)
_REDUCTIONS = {
    "reduce_sum": "add",
    "reduce_prod": "mul",
    "reduce_max": "max",
    "reduce_min": "min",
    "reduce_and": "and",
    "reduce_or": "or",
}
_CUMULATIVE = {"cumsum": "add", "cumprod": "mul", "cummax": "max", "cummin": "min"}
_INLINED = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
    "remat2": "jaxpr",
    "checkpoint": "jaxpr",
}
_KNOWN: dict[str, Callable] = {
    "add": np.add,
    "add_any": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "neg": np.negative,
    "and": np.logical_and,
    "or": np.logical_or,
    "max": np.maximum,
    "min": np.minimum,
}
_LAX = {"and": "bitwise_and", "or": "bitwise_or", "not": "bitwise_not"}


_LONGEST_UNROLLED = 32  # passes through a loop


def known(x: Any) -> bool:
    """Whether a lane is a number already."""
    return not isinstance(x, (jax.Array, Value))


def varies(x: Any) -> bool:
    """Whether a lane differs between steps or members."""
    return isinstance(x, Value)


def split(array: Any) -> LaneArray:
    """The lanes of an array: of a traced one uniform, else known."""
    if isinstance(array, jax.Array):
        out = np.empty(array.shape, object)
        for index in np.ndindex(*array.shape):
            out[index] = array[index]
        return out
    return objects(list(np.asarray(array).ravel()), np.shape(array))


def objects(entries: Sequence[Any], shape: tuple[int, ...]) -> LaneArray:
    """An array of lanes from a flat list of them."""
    out = np.empty(len(entries), object)
    for i, x in enumerate(entries):
        out[i] = x
    return out.reshape(shape)


class NativeLoop(NamedTuple):
    """The compiled loop over steps, and what it has to be given."""

    loop: StepLoop
    uniforms: Callable[[list], Array]  # of the shared numbers: what the code reads of them
    columns: tuple[int, ...]  # the elements of the path that the step reads
    saved: PyTree  # what a step saves, as shapes


def pattern(x: Any) -> Hashable:
    """Where numbers are exactly 0 or 1 (or whole): code is made for the pattern; the other values are inputs."""
    values = np.asarray(x)
    fixed = values.ravel().tolist()
    if values.dtype.kind == "f":
        fixed = [v if v in (0.0, 1.0) else None for v in fixed]
    return values.shape, str(values.dtype), tuple(fixed)


def native_loop(
    step: Callable, patterns: Sequence, own: Sequence, state: PyTree, path: PyTree, width: int, limit: int = 10**6
) -> NativeLoop:
    """The loop over `step(shared, own, state, n, path) → (state, saved, ok)`, written for JAX and one member.

    `shared` is a list of arrays with the given patterns, the same for all; `own`, `state` and `path` are shapes of each
    member's own arrays, of its state and of what it reads of the path in a step; n is the number of the step.
    """
    structs = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype, _ in patterns]
    counter = jax.ShapeDtypeStruct((), jnp.int64)
    closed, shapes = jax.make_jaxpr(step, return_shape=True)(structs, list(own), state, counter, path)
    code = Code(width)
    owned, own_lanes = _named("%o", own)
    before, state_lanes = _named("%s", jax.tree.leaves(state))
    read, path_lanes = _named("%d", jax.tree.leaves(path))
    n = Value("%n.each", np.int64)
    made: list[Any] = []

    def write(shared: list[Array]) -> list[Array]:
        """Writes the step; what it reads of the shared numbers comes out."""
        lanes = Lanes(code, limit)
        given = [_with_pattern(x, p) for x, p in zip(shared, patterns, strict=True)]
        out = lanes.evaluate(closed, [*given, *own_lanes, *state_lanes, objects([n], ()), *path_lanes])
        flat = [lanes.operand(e) for x in out[:-1] for e in x.ravel()]
        valid = lanes.operand(lanes.chain("and", [out[-1][()], *lanes.guards]))
        made[:] = [flat, valid, [name for _, name in lanes.uniforms]]
        return [_as_word(x) for x, _ in lanes.uniforms]

    uniforms = jax.make_jaxpr(write)(structs)
    flat, valid, names = made
    for x in flat:
        code.text(x)  # what comes out is used
    columns = tuple(i for i, x in enumerate(read) if x.name in code.used)
    inputs = {"state": before, "own": owned, "path": [read[i] for i in columns], "uniforms": names, "n": [n]}
    loop = step_loop(code, inputs, flat[: len(before)], flat[len(before) :], valid)

    @jax.jit
    def words(shared: list) -> Array:
        out = jex.jaxpr_as_fun(uniforms)(*shared)
        return jnp.stack(out) if out else jnp.zeros(0)

    return NativeLoop(loop, words, columns, shapes[1])


def _with_pattern(x: Array, pattern: Any) -> LaneArray:
    """The lanes of shared numbers, those of the pattern known."""
    shape, dtype, fixed = pattern
    if all(v is not None for v in fixed):
        return split(np.asarray(fixed, dtype).reshape(shape))
    flat = split(x).ravel()
    return objects([e if v is None else np.asarray(v, dtype)[()] for e, v in zip(flat, fixed, strict=True)], shape)


def _named(stem: str, structs: Sequence) -> tuple[list[Value], list[LaneArray]]:
    """Names for all elements of some arrays, flat and as lanes."""
    flat: list[Value] = []
    lanes = []
    for s in structs:
        new = [Value(f"{stem}{len(flat) + i}", s.dtype) for i in range(math.prod(s.shape))]
        flat += new
        lanes.append(objects(new, s.shape))
    return flat, lanes


def _as_word(x: Array) -> Array:
    """Eight bytes."""
    if x.dtype == jnp.float64:
        return x
    return jax.lax.bitcast_convert_type(x.astype(jnp.int64), jnp.float64)


class Lanes:
    """Evaluates a program on lanes, writing what varies as code and counting the operations."""

    def __init__(self, code: Code, limit: int):
        self.code, self.left = code, limit
        self.guards: list[Any] = []  # what was taken for true
        self.uniforms: list[tuple[Array, Value]] = []  # what the code reads of what is the same everywhere
        self._names: dict[int, Value] = {}
        self._inverses: dict[int, tuple[Array, Array]] = {}

    def evaluate(self, closed: jex.ClosedJaxpr, args: Sequence[LaneArray]) -> list[LaneArray]:
        """What comes out of a program."""
        jaxpr = closed.jaxpr
        env: dict[Any, LaneArray] = dict(zip(jaxpr.constvars, map(split, closed.consts), strict=True))
        env.update(zip(jaxpr.invars, args, strict=True))

        def read(v: Any) -> LaneArray:
            return split(np.asarray(v.val, getattr(v.aval, "dtype", None))) if isinstance(v, jex.Literal) else env[v]

        for eqn in jaxpr.eqns:
            out = self.equation(jaxpr, eqn, [read(v) for v in eqn.invars])
            env.update(zip(eqn.outvars, out, strict=True))
        return [read(v) for v in jaxpr.outvars]

    def equation(self, jaxpr: jex.Jaxpr, eqn: Any, xs: list[LaneArray]) -> list[LaneArray]:
        name, params = eqn.primitive.name, eqn.params
        if name in _ELEMENTWISE:
            return [self.elementwise(eqn, xs)]
        if name in _MOVES:
            return _MOVES[name](params, *xs)
        if name in _REDUCTIONS:
            return [self.reduce(_REDUCTIONS[name], xs[0], params["axes"])]
        if name in ("jit", "pjit") and params["name"] == "likely":
            self.guards += [x for x in xs[0].ravel() if not known(x)]
            return [split(np.ones(xs[0].shape, bool))]
        if name in _INLINED and _INLINED[name] in params:
            inner = params[_INLINED[name]]
            return self.evaluate(inner if isinstance(inner, jex.ClosedJaxpr) else jex.ClosedJaxpr(inner, []), xs)
        if name in ("stop_gradient", "optimization_barrier"):
            return xs
        if name == "dot_general":
            return [self.dot(xs[0], xs[1], params["dimension_numbers"], eqn.outvars[0].aval.dtype)]
        if all(known(e) for x in xs for e in x.ravel()):
            with jax.ensure_compile_time_eval():
                return [split(np.asarray(y)) for y in eval_equation(jaxpr, eqn, _arrays(eqn, xs))]
        if not any(varies(e) for x in xs for e in x.ravel()):
            return [split(y) for y in eval_equation(jaxpr, eqn, _arrays(eqn, xs))]
        rule = getattr(self, name.replace("-", "_") + "_rule", None)
        if name in _CUMULATIVE:
            return [self.cumulate(_CUMULATIVE[name], params, xs[0])]
        if rule is None:
            raise Unsuited(name)
        return rule(jaxpr, eqn, xs)

    # One operation.

    def scalar(self, name: str, *xs: Any) -> Any:
        """One operation of a rule's own."""
        dtype = np.dtype(bool) if name in ("lt", "gt", "eq", "ne") else xs[-1].dtype
        return self.fold(name, {}, dtype, xs, lambda *ys: getattr(jax.lax, _LAX.get(name, name))(*ys))

    def fold(self, name: str, params: dict, dtype: Any, xs: Sequence[Any], bind: Callable) -> Any:
        """One operation: folded if it can be, done beforehand if it is the same everywhere, else written."""
        if all(known(x) for x in xs):
            if name in _KNOWN and (dtype.kind in "fb"):
                return np.asarray(_KNOWN[name](*xs), dtype)[()]
            if name == "convert_element_type":
                return np.asarray(xs[0], dtype)[()]
            with jax.ensure_compile_time_eval():
                return np.asarray(bind(*(np.asarray(x) for x in xs)))[()]
        x, y = (xs[0], xs[1]) if len(xs) > 1 else (xs[0], None)
        if name == "mul" and (_is(x, 0) or _is(y, 0)):
            return np.zeros((), dtype)[()]
        if name == "mul" and (_is(x, 1) or _is(y, 1)):
            return y if _is(x, 1) else x
        if name in ("add", "add_any") and (_is(x, 0) or _is(y, 0)):
            return y if _is(x, 0) else x
        if name == "sub" and _is(y, 0):
            return x
        if name == "sub" and _is(x, 0):
            return self.scalar("neg", y)
        if name == "div" and (_is(x, 0) or _is(y, 1)):
            return x
        if name == "div" and dtype.kind == "f" and varies(x) and not varies(y) and not _is(y, 0):
            return self.scalar("mul", x, self.inverse(y))
        if name == "select_n" and known(x):
            return xs[1 + int(x)]
        if name == "select_n" and len(xs) == 3 and (xs[1] is xs[2] or _same(xs[1], xs[2])):
            return xs[1]
        if name == "and" and dtype.kind == "b" and (known(x) or known(y)):
            a, b = (x, y) if known(x) else (y, x)
            return b if a else np.bool_(False)
        if name == "or" and dtype.kind == "b" and (known(x) or known(y)):
            a, b = (x, y) if known(x) else (y, x)
            return np.bool_(True) if a else b
        if not any(varies(v) for v in xs):
            return bind(*xs)
        self.left -= 1
        if self.left < 0:
            raise Unsuited("too many operations")
        return self.code.operation(name, params, dtype, [self.operand(v) for v in xs])

    def operand(self, x: Any) -> Any:
        """A lane as the code reads it."""
        if not isinstance(x, jax.Array):
            return x
        if id(x) not in self._names:
            self._names[id(x)] = Value(f"%u{len(self.uniforms)}", x.dtype)
            self.uniforms.append((x, self._names[id(x)]))  # keeps x, and so its identity
        return self._names[id(x)]

    def inverse(self, y: Any) -> Any:
        """1/y of what is the same everywhere."""
        if known(y):
            return np.asarray(1.0 / y, y.dtype)[()]
        if id(y) not in self._inverses:
            self._inverses[id(y)] = (y, 1.0 / y)
        return self._inverses[id(y)][1]

    # Rules.

    def elementwise(self, eqn: Any, xs: list[LaneArray]) -> LaneArray:
        aval, name, params = eqn.outvars[0].aval, eqn.primitive.name, eqn.params
        wide = [np.broadcast_to(x, aval.shape).ravel() for x in xs]

        def bind(*ys):
            return eqn.primitive.bind(*ys, **params)

        out = [self.fold(name, params, aval.dtype, lanes, bind) for lanes in zip(*wide, strict=True)]
        return objects(out, aval.shape)

    def reduce(self, name: str, x: LaneArray, axes: Sequence[int]) -> LaneArray:
        kept = [a for a in range(x.ndim) if a not in axes]
        shape = tuple(x.shape[a] for a in kept)
        rows = x.transpose(*kept, *axes).reshape(math.prod(shape), -1)
        return objects([self.chain(name, list(row)) for row in rows], shape)

    def chain(self, name: str, terms: Sequence[Any]) -> Any:
        """All terms together, in pairs and pairs of pairs: a processor can do those side by side."""
        terms = list(terms)
        while len(terms) > 1:
            pairs = zip(terms[::2], terms[1::2], strict=False)
            terms = [self.scalar(name, a, b) for a, b in pairs] + terms[len(terms) & ~1 :]
        return terms[0]

    def cumulate(self, name: str, params: dict, x: LaneArray) -> LaneArray:
        rows = np.moveaxis(x, params["axis"], 0).copy()
        order = range(len(rows))[:: -1 if params["reverse"] else 1]
        for a, b in itertools.pairwise(order):
            for index in np.ndindex(*rows.shape[1:]):
                rows[(b, *index)] = self.scalar(name, rows[(a, *index)], rows[(b, *index)])
        return np.moveaxis(rows, 0, params["axis"])

    def dot(self, a: LaneArray, b: LaneArray, dimension_numbers: Any, dtype: Any) -> LaneArray:
        (ca, cb), (ba, bb) = dimension_numbers
        fa = [i for i in range(a.ndim) if i not in (*ca, *ba)]
        fb = [i for i in range(b.ndim) if i not in (*cb, *bb)]
        lead = [a.shape[i] for i in ba]
        k = math.prod(a.shape[i] for i in ca)
        left = a.transpose(*ba, *fa, *ca).reshape(math.prod(lead), math.prod(a.shape[i] for i in fa), k)
        right = b.transpose(*bb, *fb, *cb).reshape(math.prod(lead), math.prod(b.shape[i] for i in fb), k)
        out = np.empty((left.shape[0], left.shape[1], right.shape[1]), object)
        for g, i, j in np.ndindex(*out.shape):
            terms = [self.scalar("mul", p, q) for p, q in zip(left[g, i], right[g, j], strict=True)]
            out[g, i, j] = self.chain("add", terms) if terms else np.zeros((), dtype)[()]
        return out.reshape((*lead, *(a.shape[i] for i in fa), *(b.shape[i] for i in fb)))

    def argmax_rule(self, jaxpr: Any, eqn: Any, xs: list[LaneArray], test: str = "gt") -> list[LaneArray]:
        (axis,), dtype = eqn.params["axes"], eqn.params["index_dtype"]
        rows = np.moveaxis(xs[0], axis, 0)
        out = []
        for row in rows.reshape(len(rows), -1).T:
            best, at = row[0], np.zeros((), dtype)[()]
            for i, x in enumerate(row[1:], 1):
                better = self.scalar(test, x, best)
                best = self.scalar("select_n", better, best, x)
                at = self.scalar("select_n", better, at, np.asarray(i, dtype)[()])
            out.append(at)
        return [objects(out, rows.shape[1:])]

    def argmin_rule(self, jaxpr: Any, eqn: Any, xs: list[LaneArray]) -> list[LaneArray]:
        return self.argmax_rule(jaxpr, eqn, xs, "lt")

    def sort_rule(self, jaxpr: Any, eqn: Any, xs: list[LaneArray]) -> list[LaneArray]:
        """A sorting network: neighbours change places if they stand wrong."""
        if eqn.params["num_keys"] != 1:
            raise Unsuited("sort by several keys")
        axis = eqn.params["dimension"]
        rows = [np.moveaxis(x, axis, 0).copy() for x in xs]
        for index in np.ndindex(*rows[0].shape[1:]):
            for end in range(len(rows[0]) - 1, 0, -1):
                for i in range(end):
                    wrong = self.scalar("lt", rows[0][(i + 1, *index)], rows[0][(i, *index)])
                    for r in rows:
                        a, b = r[(i, *index)], r[(i + 1, *index)]
                        r[(i, *index)] = self.scalar("select_n", wrong, a, b)
                        r[(i + 1, *index)] = self.scalar("select_n", wrong, b, a)
        return [np.moveaxis(r, 0, axis) for r in rows]

    def gather_rule(self, jaxpr: Any, eqn: Any, xs: list[LaneArray]) -> list[LaneArray]:
        """Where the indices are known; and x[p] with others."""
        if all(known(e) for e in xs[1].ravel()):
            return [self.taken(eqn, *xs)]
        return [self.chosen(eqn, *xs)]

    def dynamic_slice_rule(self, jaxpr: Any, eqn: Any, xs: list[LaneArray]) -> list[LaneArray]:
        return [self.taken(eqn, *xs)]

    def taken(self, eqn: Any, x: LaneArray, *indices: LaneArray) -> LaneArray:
        """Elements at known indices: run the primitive on their numbers."""
        where = self.places(eqn, [x], list(indices))
        return objects([x.ravel()[i] for i in where.ravel()], where.shape)

    def chosen(self, eqn: Any, x: LaneArray, indices: LaneArray) -> LaneArray:
        """Elements at indices along one axis, such as x[p]: each is one of those that its index may mean."""
        axes, mode = eqn.params["dimension_numbers"].start_index_map, eqn.params["mode"]
        if len(axes) != 1 or mode not in (GatherScatterMode.PROMISE_IN_BOUNDS, GatherScatterMode.CLIP):
            raise Unsuited("gather with varying indices along several axes, or that may be out of bounds")
        dtype = eqn.invars[1].aval.dtype
        last = x.shape[axes[0]] - eqn.params["slice_sizes"][axes[0]]

        def at(r: int, v: int) -> LaneArray:
            """The places with index v in row r, and 0 elsewhere."""
            numbers = np.zeros(indices.shape, dtype)
            numbers.ravel()[r] = v
            return self.places(eqn, [x], [split(numbers)])

        elements = x.ravel()
        out = objects([elements[i] for i in at(0, 0).ravel()], eqn.outvars[0].aval.shape)
        for r, index in enumerate(indices.ravel()):
            places = [at(r, v) for v in range(last + 1)]
            bounded = self.scalar("max", self.scalar("min", index, dtype.type(last)), dtype.type(0))
            here = [self.scalar("eq", bounded, dtype.type(v)) for v in range(last + 1)]
            for o in zip(*np.nonzero(places[0] != places[-1]), strict=True):
                for v in range(1, last + 1):
                    out[o] = self.scalar("select_n", here[v], out[o], elements[places[v][o]])
        return out

    def scatter_rule(self, jaxpr: Any, eqn: Any, xs: list[LaneArray]) -> list[LaneArray]:
        """Where the indices are known, and each element is set once at most."""
        x, indices, updates = xs
        where = self.places(eqn, [x, updates], [indices], order=(0, 2, 1))
        pool = [*x.ravel(), *updates.ravel()]
        return [objects([pool[i] for i in where.ravel()], where.shape)]

    def scatter_add_rule(self, jaxpr: Any, eqn: Any, xs: list[LaneArray]) -> list[LaneArray]:
        """Where the indices are known: element i gets update k if a one there arrives at i."""
        x, indices, updates = xs
        indices = indices.astype(eqn.invars[1].aval.dtype)
        basis = np.eye(updates.size).reshape(updates.size, *updates.shape)
        if any(not known(e) for e in xs[1].ravel()):
            raise Unsuited("scatter-add")
        with jax.ensure_compile_time_eval():
            one = jax.vmap(lambda u: eqn.primitive.bind(jnp.zeros(x.shape), indices, u, **eqn.params))
            arrives = np.asarray(one(basis)).reshape(updates.size, -1)
        out = list(x.ravel())
        for k, i in zip(*np.nonzero(arrives), strict=True):
            out[i] = self.scalar("add", out[i], updates.ravel()[k])
        return [objects(out, x.shape)]

    def places(self, eqn: Any, movers: list, indices: list, order: Sequence[int] = ()) -> np.ndarray:
        """Where each element of what comes out is taken from, if the indices are known."""
        if any(not known(e) for x in indices for e in x.ravel()):
            raise Unsuited(f"{eqn.primitive.name} with varying indices")
        start, ids = 0, []
        for x in movers:
            ids.append(np.arange(start, start + x.size).reshape(x.shape))
            start += x.size
        fixed = [x.astype(np.int64) for x in indices]
        args = [*ids, *fixed]
        args = [args[i] for i in order] if order else args
        with jax.ensure_compile_time_eval():
            return np.asarray(eqn.primitive.bind(*args, **eqn.params))

    def dynamic_update_slice_rule(self, jaxpr: Any, eqn: Any, xs: list[LaneArray]) -> list[LaneArray]:
        x, update, *at = xs
        where = self.places(eqn, [x, update], at)
        pool = [*x.ravel(), *update.ravel()]
        return [objects([pool[i] for i in where.ravel()], where.shape)]

    def triangular_solve_rule(self, jaxpr: Any, eqn: Any, xs: list[LaneArray]) -> list[LaneArray]:
        """By substitution."""
        params = eqn.params
        a, b = xs
        if a.ndim != 2 or params["conjugate_a"]:
            raise Unsuited("triangular solve of many matrices, or of complex ones")
        lower = params["lower"] != params["transpose_a"]
        a, b = (a.T if params["transpose_a"] else a), b.copy()
        if not params["left_side"]:
            a, b, lower = a.T, b.T, not lower
        order = list(range(len(a)))[:: 1 if lower else -1]
        for column in b.T:  # a view: what is set is set in b
            for k, i in enumerate(order):
                terms = [self.scalar("mul", a[i, j], column[j]) for j in order[:k]]
                value = self.scalar("sub", column[i], self.chain("add", terms)) if terms else column[i]
                column[i] = value if params["unit_diagonal"] else self.scalar("div", value, a[i, i])
        return [b if params["left_side"] else b.T]

    def custom_linear_solve_rule(self, jaxpr: Any, eqn: Any, xs: list[LaneArray]) -> list[LaneArray]:
        lengths, jaxprs = eqn.params["const_lengths"], eqn.params["jaxprs"]
        start = lengths.matvec + lengths.vecmat
        consts, b = xs[start : start + lengths.solve], xs[sum(lengths) :]
        return self.evaluate(jaxprs.solve, [*consts, *b])

    def cond_rule(self, jaxpr: Any, eqn: Any, xs: list[LaneArray]) -> list[LaneArray]:
        """All branches, and the one that is meant is taken."""
        index, branches = xs[0][()], eqn.params["branches"]
        if known(index):
            return self.evaluate(branches[int(np.clip(index, 0, len(branches) - 1))], xs[1:])
        outs, outside = [], self.guards
        guards: list[Any] = []
        for i, branch in enumerate(branches):
            self.guards = []
            outs.append(self.evaluate(branch, xs[1:]))
            chosen = self.scalar("eq", index, np.asarray(i, index.dtype)[()])
            guards += [self.scalar("or", self.scalar("not", chosen), g) for g in self.guards]
        self.guards = [*outside, *guards]
        result = outs[-1]
        for i in reversed(range(len(outs) - 1)):
            chosen = self.scalar("eq", index, np.asarray(i, index.dtype)[()])
            result = [
                objects(
                    [self.scalar("select_n", chosen, q, p) for p, q in zip(a.ravel(), b.ravel(), strict=True)], a.shape
                )
                for a, b in zip(outs[i], result, strict=True)
            ]
        return result

    def scan_rule(self, jaxpr: Any, eqn: Any, xs: list[LaneArray]) -> list[LaneArray]:
        """Unrolled."""
        params = eqn.params
        nc, nk = params["num_consts"], params["num_carry"]
        consts, carry, rows = xs[:nc], xs[nc : nc + nk], xs[nc + nk :]
        stacks: list[list[LaneArray]] = []
        order = range(params["length"])[:: -1 if params["reverse"] else 1]
        for i in order:
            out = self.evaluate(params["jaxpr"], [*consts, *carry, *(_row(r, i) for r in rows)])
            carry = out[:nk]
            stacks.append(out[nk:])
        stacks = stacks[:: -1 if params["reverse"] else 1]
        shapes = [v.aval.shape for v in eqn.outvars[nk:]]
        flat = [[e for row in stacks for e in row[k].ravel()] for k in range(len(shapes))]
        return [*carry, *(objects(f, shape) for f, shape in zip(flat, shapes, strict=True))]

    def unrolled(self, test: Callable, one_pass: Callable, start: list[LaneArray]) -> list[LaneArray] | None:
        """A loop of which it is known beforehand, each time, whether it goes on; None if it is not such a loop."""
        mark, left, values = self.code.mark(), self.left, start
        for _ in range(_LONGEST_UNROLLED):
            (p,) = test(values)
            if not known(p[()]):
                break
            if not p[()]:
                return values
            values = one_pass(values)
        self.code.back_to(mark)
        self.left, self.guards = left, []
        return None

    def while_rule(self, jaxpr: Any, eqn: Any, xs: list[LaneArray]) -> list[LaneArray]:
        """A loop whose carry is a tuple of numbers; entries that stay the same known number are left out.

        Members that are done are frozen while the others of their group go on.
        """
        params, code = eqn.params, self.code
        nc, nb = params["cond_nconsts"], params["body_nconsts"]
        cond, body = params["cond_jaxpr"], params["body_jaxpr"]
        cond_consts, body_consts, init = xs[:nc], xs[nc : nc + nb], xs[nc + nb :]
        shapes = [x.shape for x in init]
        flat = [e for x in init for e in x.ravel()]
        moving = [not known(e) for e in flat]
        outside, self.guards = self.guards, []

        def tree(values: Sequence[Any]) -> list[LaneArray]:
            it = iter(values)
            full = [next(it) if m else e for e, m in zip(flat, moving, strict=True)]
            ends = np.cumsum([0, *(math.prod(s) for s in shapes)])
            return [objects(full[a:b], s) for a, b, s in zip(ends, ends[1:], shapes, strict=False)]

        def one_pass(values: Sequence[Any]) -> list[Any]:
            return [e for x in self.evaluate(body, [*body_consts, *tree(values)]) for e in x.ravel()]

        def heads() -> list[Value]:
            return [Value("%" + code.fresh(), e.dtype) for e, m in zip(flat, moving, strict=True) if m]

        values = self.unrolled(
            lambda values: self.evaluate(cond, [*cond_consts, *values]),
            lambda values: self.evaluate(body, [*body_consts, *values]),
            init,
        )
        if values is not None:
            self.guards = [*outside, *self.guards]
            return values

        # Which known entries stay what they are? Try the body until no more of them move.
        while True:
            mark, left = code.mark(), self.left
            out = one_pass(heads())
            code.back_to(mark)
            self.left, self.guards = left, []
            changed = [not m and not (known(y) and y == e) for e, m, y in zip(flat, moving, out, strict=True)]
            if not any(changed):
                break
            moving = [m or c for m, c in zip(moving, changed, strict=True)]

        label = code.fresh("loop")
        entry, values, fine = code.block, heads(), Value("%" + code.fresh(), bool)
        starts = [self.operand(e) for e, m in zip(flat, moving, strict=True) if m]
        code.lines.append(f"  br label %{label}.head")
        code.begin(f"{label}.head")
        top = len(code.lines)
        (p,) = self.evaluate(cond, [*cond_consts, *tree(values)])
        p = self.operand(p[()])
        going = code.everywhere(p, "or")
        code.lines.append(f"  br i1 {going}, label %{label}.body, label %{label}.exit")
        code.begin(f"{label}.body")
        out = one_pass(values)
        out = [self.operand(y) for y, m in zip(out, moving, strict=True) if m]
        still = self.operand(self.chain("and", [fine, *self.guards]))
        if code.width > 1:
            out = [code.select(p, y, x) for y, x in zip(out, values, strict=True)]
            still = code.select(p, still, fine)
        phis = [
            f"  {x.name} = phi {code.kind(x.dtype)} [{code.text(a)}, %{entry}], [{code.text(b)}, %{code.block}]"
            for x, a, b in zip([*values, fine], [*starts, np.bool_(True)], [*out, still], strict=True)
        ]
        code.lines[top:top] = phis
        code.lines.append(f"  br label %{label}.head")
        code.begin(f"{label}.exit")
        self.guards = [*outside, fine]
        return tree(values)


def _is(x: Any, value: int) -> bool:
    return x is not None and known(x) and x.dtype != bool and x == value


def _same(x: Any, y: Any) -> bool:
    return known(x) and known(y) and bool(x == y)


def _arrays(eqn: Any, xs: Sequence[LaneArray]) -> list[Any]:
    """Arrays of lanes that do not vary."""

    def one(x: LaneArray, dtype: Any) -> Any:
        if all(known(e) for e in x.ravel()):
            return x.astype(dtype)
        return jnp.stack([jnp.asarray(e, dtype) for e in x.ravel()]).reshape(x.shape)

    return [one(x, v.aval.dtype) for x, v in zip(xs, eqn.invars, strict=True)]


def _row(x: LaneArray, i: int) -> LaneArray:
    return objects([x[i]], ()) if x.ndim == 1 else x[i]


# What only moves elements.


def _broadcast(params: dict, x: LaneArray, *_: Any) -> list[LaneArray]:
    shape, where = params["shape"], params["broadcast_dimensions"]
    inner = [1] * len(shape)
    for axis, size in zip(where, x.shape, strict=True):
        inner[axis] = size
    return [np.broadcast_to(x.reshape(inner), shape)]


def _slice(params: dict, x: LaneArray) -> list[LaneArray]:
    strides = params["strides"] or (1,) * x.ndim
    return [x[tuple(map(slice, params["start_indices"], params["limit_indices"], strides))]]


def _pad(params: dict, x: LaneArray, value: LaneArray) -> list[LaneArray]:
    low, high, inside = (np.array(c, int) for c in zip(*params["padding_config"], strict=True))
    size = np.maximum(np.array(x.shape), 1)
    spread = np.where(np.array(x.shape) > 0, (size - 1) * (inside + 1) + 1, 0)
    shape = spread + np.maximum(low, 0) + np.maximum(high, 0)
    out = objects([value[()]] * int(np.prod(shape)), tuple(shape))
    out[tuple(slice(max(a, 0), max(a, 0) + s, i + 1) for a, s, i in zip(low, spread, inside, strict=True))] = x
    return [out[tuple(slice(max(-a, 0), n - max(-b, 0)) for a, b, n in zip(low, high, shape, strict=True))]]


def _split(params: dict, x: LaneArray) -> list[LaneArray]:
    return np.split(x, np.cumsum(params["sizes"])[:-1], axis=params["axis"])


_MOVES: dict[str, Callable[..., list[LaneArray]]] = {
    "broadcast_in_dim": _broadcast,
    "concatenate": lambda params, *xs: [np.concatenate(xs, axis=params["dimension"])],
    "expand_dims": lambda params, x: [np.expand_dims(x, params["dimensions"])],
    "pad": _pad,
    "reshape": lambda params, x: [x.reshape(params["new_sizes"])],
    "stack": lambda params, *xs: [np.stack(xs, axis=params["axis"])],
    "rev": lambda params, x: [np.flip(x, params["dimensions"])],
    "slice": _slice,
    "split": _split,
    "squeeze": lambda params, x: [x.reshape(np.squeeze(np.empty(x.shape), params["dimensions"]).shape)],
    "tile": lambda params, x: [np.tile(x, params["reps"])],
    "unstack": lambda params, x: [_row(np.moveaxis(x, params["axis"], 0), i) for i in range(x.shape[params["axis"]])],
    "transpose": lambda params, x: [x.transpose(params["permutation"])],
}
