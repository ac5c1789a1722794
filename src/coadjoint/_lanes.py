"""Lanes: a program on small arrays, evaluated with every array element as a scalar of its own.

XLA's CPU compiler is made for large arrays: a loop whose body works on vectors of length six spends its time between
operations, not in them. Here a traced program is evaluated anew with each array replaced by a NumPy array of *lanes*:
scalars (or, for many members at once, vectors over the members) that are either known while tracing or traced. What is
known is folded: sums with 0, products with 0 and 1. What only moves elements (slices, reshapes, transposes) costs
nothing. The loop that remains is straight-line scalar code, as one would write it in C.

    lanes_fn = in_lanes(fn, *args)     # fn: arrays → arrays, any JAX function
    out, valid = lanes_fn(*lanes)      # lanes → lanes

Primitives without a rule are bound as they are, on arrays packed from their lanes and split again. A condition wrapped
in `likely` is taken for true, so that the other branch costs nothing; `valid` says whether it was.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jex
from jaxtyping import Array, PyTree

from ._intern import eval_equation

Lanes = np.ndarray  # dtype object; entries: NumPy scalars (known) or JAX arrays of shape `batch` (traced)


class TooLong(Exception):
    """The program has more scalar operations than was allowed."""


_ELEMENTWISE = frozenset(
    "abs acos acosh add add_any and asin asinh atan atan2 atanh cbrt ceil clamp complex conj convert_element_type copy "
    "copy_p cos cosh digamma div eq erf erf_inv erfc exp exp2 expm1 floor ge gt imag integer_pow is_finite le lgamma "
    "log log1p logistic lt max min mul ne neg nextafter not or pow real rem round rsqrt select_n shift_left "
    "shift_right_arithmetic shift_right_logical sign sin sinh sqrt square sub tan tanh xor".split()
)
_MOVES = frozenset(
    "broadcast_in_dim concatenate expand_dims reshape rev slice split squeeze stack transpose gather dynamic_slice "
    "pad".split()
)
_REDUCTIONS = {
    "reduce_sum": "add",
    "reduce_prod": "mul",
    "reduce_max": "max",
    "reduce_min": "min",
    "reduce_and": "and",
    "reduce_or": "or",
}
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


@jax.jit
def likely(condition: Array) -> Array:
    """The condition itself; in lanes it is taken for true, and what comes out is valid only if it is."""
    return condition


def known(x: Any) -> bool:
    """Whether a lane is a number already."""
    return not isinstance(x, jax.Array)


def split(array: Any, batch: tuple[int, ...] = ()) -> Lanes:
    """The lanes of an array whose leading axes are the batch."""
    shape = array.shape[len(batch) :]
    out = np.empty(shape, object)
    for index in np.ndindex(*shape):
        out[index] = array[(..., *index)] if isinstance(array, jax.Array) else np.asarray(array)[(..., *index)][()]
    return out


def pack(lanes: Lanes, batch: tuple[int, ...], dtype: Any) -> Array:
    """The array of some lanes, the batch leading."""
    flat = [traced(x, batch, dtype) for x in lanes.ravel()]
    if not flat:
        return jnp.zeros((*batch, *lanes.shape), dtype)
    return jnp.stack(flat, axis=-1).reshape(*batch, *lanes.shape)


def traced(x: Any, batch: tuple[int, ...], dtype: Any) -> Array:
    """A lane as an array of the shape of the batch."""
    if not known(x) and x.shape == batch and x.dtype == dtype:
        return x
    return jnp.broadcast_to(jnp.asarray(x, dtype), batch)


def in_lanes(fn: Callable, *args: PyTree, batch: tuple[int, ...] = (), limit: int = 10**6) -> Callable[..., tuple]:
    """`fn`, traced at `args` (arrays or shapes), as a function from lanes to lanes and whether they are valid.

    Raises `TooLong` when it is called and needs more than `limit` scalar operations.
    """
    closed, shape = jax.make_jaxpr(fn, return_shape=True)(*args)
    out_tree = jax.tree.structure(shape)

    def call(*lanes: PyTree, inverses: dict[int, tuple[Array, Array]] | None = None) -> tuple[PyTree, Array]:
        interpreter = _Interpreter(batch, limit)
        interpreter.inverses = inverses or {}
        flat = jax.tree.leaves(lanes, is_leaf=lambda x: isinstance(x, np.ndarray))
        consts = [split(c) for c in closed.consts]
        out = jax.tree.unflatten(out_tree, interpreter.run(closed.jaxpr, consts, flat))
        return out, interpreter.guard()

    return call


def inverses_of(lanes: PyTree) -> dict[int, tuple[Array, Array]]:
    """Reciprocals of lanes that stay the same in a loop, taken before it: dividing by them is then a product."""
    flat = [x for a in jax.tree.leaves(lanes, is_leaf=lambda x: isinstance(x, np.ndarray)) for x in a.ravel()]
    return {id(x): (x, 1.0 / x) for x in flat if not known(x) and jnp.issubdtype(x.dtype, jnp.floating)}


class _Interpreter:
    """Evaluates a jaxpr on lanes, counting the scalar operations it emits."""

    def __init__(self, batch: tuple[int, ...], limit: int):
        self.batch, self.left = batch, limit
        self.guards: list[Array] = []  # what was taken for true
        self.inverses: dict[int, tuple[Array, Array]] = {}  # of what stays the same: by id, with the number itself

    def guard(self) -> Array:
        """Whether all that was taken for true is true; forgets it."""
        guards, self.guards = self.guards, []
        return traced(self.chain("and", guards) if guards else np.bool_(True), self.batch, bool)

    def run(self, jaxpr: jex.Jaxpr, consts: Sequence[Lanes], args: Sequence[Lanes]) -> list[Lanes]:
        env: dict[Any, Lanes] = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args], strict=True))

        def read(v: Any) -> Lanes:
            return split(np.asarray(v.val)) if isinstance(v, jex.Literal) else env[v]

        for eqn in jaxpr.eqns:
            out = self.equation(jaxpr, eqn, [read(v) for v in eqn.invars])
            env.update(zip(eqn.outvars, out, strict=True))
        return [read(v) for v in jaxpr.outvars]

    def equation(self, jaxpr: jex.Jaxpr, eqn: Any, xs: list[Lanes]) -> list[Lanes]:
        name, params = eqn.primitive.name, eqn.params
        if name in _ELEMENTWISE:
            return [self.elementwise(eqn, xs)]
        if name in _MOVES and (name not in ("gather", "dynamic_slice") or _all_known(xs[1:])):
            return self.move(eqn, xs)
        if name in _REDUCTIONS:
            return [self.reduce(_REDUCTIONS[name], xs[0], params["axes"])]
        if name == "dot_general":
            return [self.dot(xs[0], xs[1], params["dimension_numbers"])]
        if name in ("jit", "pjit") and params["name"] == "likely":
            self.guards += [x for x in xs[0].ravel() if not known(x)]
            return [split(np.ones(xs[0].shape, bool))]
        if name in _INLINED and _INLINED[name] in params:
            inner = params[_INLINED[name]]
            closed = inner if isinstance(inner, jex.ClosedJaxpr) else jex.ClosedJaxpr(inner, [])
            return self.run(closed.jaxpr, [split(c) for c in closed.consts], xs)
        if name == "while":
            return self.loop(params, xs)
        if name in ("stop_gradient", "optimization_barrier"):
            return xs
        if _all_known(xs):
            with jax.ensure_compile_time_eval():
                return [split(np.asarray(y)) for y in eval_equation(jaxpr, eqn, _arrays(eqn, xs))]
        return self.packed(jaxpr, eqn, xs)

    # Rules.

    def scalar(self, name: str, *xs: Any) -> Any:
        """One operation of a rule's own, folded if it can be."""
        return self.fold(name, xs, lambda *ys: getattr(jax.lax, _LAX.get(name, name))(*ys))

    def fold(self, name: str, xs: Sequence[Any], bind: Callable) -> Any:
        if all(known(x) for x in xs):
            with jax.ensure_compile_time_eval():
                return np.asarray(bind(*(np.asarray(x) for x in xs)))[()]
        x, y = (xs[0], xs[1]) if len(xs) > 1 else (xs[0], None)
        if name == "mul":
            if _is(x, 0) or _is(y, 0):
                return _like(x if known(x) else y, 0)
            if _is(x, 1):
                return y
            if _is(y, 1):
                return x
        if name in ("add", "add_any"):
            if _is(x, 0):
                return y
            if _is(y, 0):
                return x
        if name == "sub" and _is(y, 0):
            return x
        if name == "sub" and _is(x, 0):
            return self.scalar("neg", y)
        if name == "div" and (_is(x, 0) or _is(y, 1)):
            return x
        if name == "div" and known(y) and y != 0 and np.issubdtype(np.asarray(y).dtype, np.floating):
            return self.scalar("mul", x, np.float64(1.0) / np.asarray(y)[()])
        if name == "div" and id(y) in self.inverses:
            return self.scalar("mul", x, self.inverses[id(y)][1])
        if name == "select_n" and known(x):
            return xs[1 + int(x)]
        if name == "select_n" and len(xs) == 3 and xs[1] is xs[2]:
            return xs[1]
        self.left -= 1
        if self.left < 0:
            raise TooLong
        return bind(*(traced(v, self.batch, v.dtype) for v in xs))

    def elementwise(self, eqn: Any, xs: list[Lanes]) -> Lanes:
        shape = eqn.outvars[0].aval.shape
        out = np.empty(shape, object)
        wide = [np.broadcast_to(x, shape) for x in xs]
        params = eqn.params

        def bind(*ys):
            return eqn.primitive.bind(*ys, **params)

        for index in np.ndindex(*shape):
            out[index] = self.fold(eqn.primitive.name, [w[index] for w in wide], bind)
        return out

    def move(self, eqn: Any, xs: list[Lanes]) -> list[Lanes]:
        """Run the primitive on numbers of elements; what comes out says where each element goes."""
        start, ids = 0, []
        for k, x in enumerate(xs):
            if eqn.primitive.name in ("gather", "dynamic_slice") and k > 0:
                ids.append(x.astype(eqn.invars[k].aval.dtype))
                continue
            ids.append(np.arange(start, start + x.size).reshape(x.shape))
            start += x.size
        with jax.ensure_compile_time_eval():
            out = eqn.primitive.bind(*ids, **eqn.params)
            where = [np.asarray(w) for w in (out if eqn.primitive.multiple_results else [out])]
        pool = [e for x in xs for e in x.ravel()]
        outs = []
        for w in where:
            out = np.empty(w.shape, object)
            for index in np.ndindex(*w.shape):
                out[index] = pool[w[index]]
            outs.append(out)
        return outs

    def reduce(self, name: str, x: Lanes, axes: Sequence[int]) -> Lanes:
        kept = [a for a in range(x.ndim) if a not in axes]
        rows = x.transpose(*kept, *axes).reshape((*(x.shape[a] for a in kept), -1))
        out = np.empty(rows.shape[:-1], object)
        for index in np.ndindex(*out.shape):
            out[index] = self.chain(name, list(rows[index]))
        return out

    def chain(self, name: str, terms: list[Any]) -> Any:
        total = terms[0]
        for term in terms[1:]:
            total = self.scalar(name, total, term)
        return total

    def dot(self, a: Lanes, b: Lanes, dimension_numbers: Any) -> Lanes:
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
            out[g, i, j] = self.chain("add", terms) if terms else np.float64(0.0)
        return out.reshape((*lead, *(a.shape[i] for i in fa), *(b.shape[i] for i in fb)))

    def loop(self, params: Any, xs: list[Lanes]) -> list[Lanes]:
        """A while loop whose carry is a tuple of scalars; entries that stay the same known number are left out."""
        nc, nb = params["cond_nconsts"], params["body_nconsts"]
        cond, body = params["cond_jaxpr"], params["body_jaxpr"]
        cond_consts, body_consts, init = xs[:nc], xs[nc : nc + nb], xs[nc + nb :]
        dtypes = [v.aval.dtype for v in body.jaxpr.outvars]
        shapes = [x.shape for x in init]
        flat = [(x, dtypes[i]) for i, a in enumerate(init) for x in a.ravel()]
        moving = [not known(x) for x, _ in flat]
        outside, self.guards = self.guards, []

        def unflatten(values: Sequence[Any]) -> list[Lanes]:
            full, it = [], iter(values)
            for (x, _), m in zip(flat, moving, strict=True):
                full.append(next(it) if m else x)
            out, at = [], 0
            for shape in shapes:
                size = math.prod(shape)
                a = np.empty(size, object)
                for i in range(size):
                    a[i] = full[at + i]
                out.append(a.reshape(shape))
                at += size
            return out

        def one_pass(values: Sequence[Any]) -> list[Any]:
            out = self.run(body.jaxpr, [split(c) for c in body.consts], [*body_consts, *unflatten(values)])
            return [x for a in out for x in a.ravel()]

        def test(values: Sequence[Any]) -> Any:
            (p,) = self.run(cond.jaxpr, [split(c) for c in cond.consts], [*cond_consts, *unflatten(values)])
            return p[()]

        # Which known entries stay what they are? Trace the body until no more of them move.
        while True:
            changed: list[bool] = []

            def probe(*values, changed=changed, moving=moving):
                out = one_pass(values)
                pairs = zip(flat, moving, out, strict=True)
                changed[:] = [not m and not (known(y) and y == x) for (x, _), m, y in pairs]
                return 0

            left = self.left
            self.guards = []
            jax.eval_shape(
                probe, *(jax.ShapeDtypeStruct(self.batch, d) for (_, d), m in zip(flat, moving, strict=True) if m)
            )
            self.left, self.guards = left, []
            if not any(changed):
                break
            moving = [m or c for m, c in zip(moving, changed, strict=True)]

        start = [traced(x, self.batch, d) for (x, d), m in zip(flat, moving, strict=True) if m]

        def going(state):
            p = traced(test(state[1:]), self.batch, bool)
            return jnp.any(p) if self.batch else p

        def step(state):
            valid, *values = state
            out = one_pass(values)
            out = [traced(y, self.batch, d) for y, (_, d), m in zip(out, flat, moving, strict=True) if m]
            out = [valid & self.guard(), *out]
            if self.batch:
                p = traced(test(values), self.batch, bool)
                out = [jnp.where(p, y, x) for y, x in zip(out, state, strict=True)]
            return tuple(out)

        valid, *values = jax.lax.while_loop(going, step, (traced(np.bool_(True), self.batch, bool), *start))
        self.guards = [*outside, valid]
        return unflatten(values)

    def packed(self, jaxpr: jex.Jaxpr, eqn: Any, xs: list[Lanes]) -> list[Lanes]:
        """Any other primitive, on whole arrays."""
        self.left -= 1 + sum(x.size for x in xs)
        if self.left < 0:
            raise TooLong
        batched = [not _all_known([x]) for x in xs]
        arrays = [
            pack(x, self.batch, v.aval.dtype) if m else x.astype(v.aval.dtype)
            for x, v, m in zip(xs, eqn.invars, batched, strict=True)
        ]

        def bind(*ys):
            return eval_equation(jaxpr, eqn, ys)

        for _ in self.batch:
            bind = jax.vmap(bind, in_axes=tuple(0 if m else None for m in batched))
        return [split(y, self.batch) for y in bind(*arrays)]


_LAX = {"and": "bitwise_and", "or": "bitwise_or"}


def _is(x: Any, value: int) -> bool:
    return x is not None and known(x) and not isinstance(x, (bool, np.bool_)) and x == value


def _like(x: Any, value: int) -> Any:
    return np.asarray(value, np.asarray(x).dtype)[()]


def _all_known(xs: Sequence[Lanes]) -> bool:
    return all(known(e) for x in xs for e in x.ravel())


def _arrays(eqn: Any, xs: Sequence[Lanes]) -> list[np.ndarray]:
    return [x.astype(v.aval.dtype) for x, v in zip(xs, eqn.invars, strict=True)]
