"""Rewrites a program with complex numbers as one with only real numbers.

An array of complex numbers is carried as two arrays, its real and imaginary parts; one known to be real, as one.
Complex arguments and results of a program become real ones with an additional axis of length 2.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core as jex
from jaxtyping import PyTree

from ..errors import NotCompilable
from ..jaxprs.equation_types import Equation, Variable, equations_of
from ..jaxprs.equations import CALLS, bind, callee, closed, eval_equation, inner_programs, scan_of, while_of
from ..jaxprs.interpreter import Interpreter, typed_literal
from . import complex_arithmetic as c
from .complex_arithmetic import Pair

# Arguments and results.


def is_complex(x: Any) -> bool:
    """Whether an array, or the shape of one, is of complex numbers."""
    return isinstance(x.dtype, np.dtype) and x.dtype.kind == "c"  # types of JAX's own, of keys, are none of NumPy's


def part_of(dtype: Any) -> Any:
    """The type of the parts of complex numbers."""
    return np.dtype(np.float32 if dtype == np.complex64 else np.float64)


def as_reals(tree: PyTree) -> PyTree:
    """Complex arrays, or the shapes of such, as real ones with one axis more."""

    def one(x: Any) -> Any:
        if not hasattr(x, "dtype") or not is_complex(x):
            return x
        if isinstance(x, jax.ShapeDtypeStruct):
            return jax.ShapeDtypeStruct((*x.shape, 2), part_of(x.dtype))
        xp: Any = np if isinstance(x, np.ndarray) else jnp
        return xp.stack([xp.real(x), xp.imag(x)], axis=-1)

    return jax.tree.map(one, tree)


def as_complex(tree: PyTree, like: PyTree) -> PyTree:
    """The inverse; `like` states which arrays were complex."""
    return jax.tree.map(lambda x, s: lax.complex(x[..., 0], x[..., 1]) if is_complex(s) else x, tree, like)


# The program.


def without_complex(program: jex.ClosedJaxpr) -> jex.ClosedJaxpr:
    """Return a program without complex numbers; the program itself if it has none."""
    if not _has_complex(program.jaxpr):
        return program
    structs = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in program.jaxpr.invars]
    return jax.make_jaxpr(lambda *args: _PARTS.evaluate(program, args))(*structs)


def _has_complex(jaxpr: jex.Jaxpr) -> bool:
    return any(map(_computes_complex, equations_of(jaxpr)))


def _computes_complex(eqn: Equation) -> bool:
    """Whether an equation, or a program that it runs, has complex numbers."""
    if any(_complex(v) for v in (*eqn.invars, *eqn.outvars)):
        return True
    inner = [callee(eqn)] if eqn.primitive.name == "call_hi_primitive" else inner_programs(eqn.params)
    return any(_has_complex(program.jaxpr) for program in inner)


def _complex(v: Variable) -> bool:
    return hasattr(v.aval, "dtype") and is_complex(v.aval)


def _split(x: Any) -> Any:
    """Constants."""
    if not hasattr(x, "dtype") or not is_complex(x):
        return x
    im = np.imag(x)
    return Pair(np.real(x), im) if np.any(im) or np.any(np.signbit(im)) else np.real(x)


def _equation(jaxpr: jex.Jaxpr, eqn: Equation, xs: list[Any]) -> list[Any]:
    name = eqn.primitive.name
    if name in CONTROL:
        return CONTROL[name](eqn, xs) if _computes_complex(eqn) else eval_equation(jaxpr, eqn, xs)
    if not any(_complex(v) for v in (*eqn.invars, *eqn.outvars)):
        return eval_equation(jaxpr, eqn, xs)
    if name in PARTWISE:
        return _partwise(eqn, xs)
    if name not in RULES:
        raise NotCompilable.operation(name, "" if name in NEVER else " of complex numbers")
    out = RULES[name](eqn, *xs)
    return out if isinstance(out, list) else [out]


_PARTS = Interpreter(_equation, inline=lambda eqn: False, constant=_split, literal=lambda v: _split(typed_literal(v)))
NEVER = frozenset(["eigh", "eig", "schur"])  # that have no rule for real numbers either


# Primitives that do the same to real and imaginary parts.

PARTWISE = frozenset(
    """
    add add_any sub broadcast_in_dim concatenate copy copy_p cumsum dynamic_slice dynamic_update_slice expand_dims
    gather name optimization_barrier pad pvary reduce_sum reduce_window_sum reshape rev scatter scatter-add scatter_add
    scatter-sub scatter_sub select_n slice split squeeze stack stop_gradient tile transpose unstack
    """.split()
)


def _partwise(eqn: Equation, xs: list[Any]) -> list[Any]:
    """Apply to the parts that exist: a real array stays one array."""
    params = eqn.params
    if eqn.primitive.name.startswith("scatter"):
        params = params | {"update_jaxpr": None}
    fill = _fill_value(eqn)

    def bound(part: Callable[..., Any], fill: Any) -> list[Any]:
        own = params if fill is None else params | {"fill_value": fill}
        return bind(eqn.primitive, own, (part(x) if _complex(v) else x for x, v in zip(xs, eqn.invars, strict=True)))

    if not any(isinstance(x, Pair) for x in xs) and (fill is None or not fill.imag):
        return bound(c.real, None if fill is None else fill.real)
    parts = (
        (bound(c.real, None), bound(c.imag, None))
        if fill is None
        else (
            bound(c.real, fill.real),
            bound(c.imag, fill.imag),
        )
    )
    both = zip(eqn.outvars, *parts, strict=True)
    return [Pair(a, b) if _complex(v) else a for v, a, b in both]


def _fill_value(eqn: Equation) -> complex | None:
    """Return the value of elements out of bounds of a `gather`: NaN + 0i by default."""
    if "fill_value" not in eqn.params:
        return None
    value = eqn.params["fill_value"]
    return complex(np.nan if value is None else value)


# Others: rules (equation, numbers …) → number or list of numbers.


def _of(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of complex numbers that the equation has no parameters for."""
    return lambda eqn, *xs: function(*xs)


def _dot(eqn: Equation, a: Any, b: Any) -> Any:
    params = eqn.params | {"preferred_element_type": _part_type(eqn)}
    return c.bilinear(lambda x, y: eqn.primitive.bind(x, y, **params), a, b)


def _product_over(eqn: Equation, a: Any) -> Any:
    """The product of all elements along some axes."""
    axes = eqn.params["axes"]
    parts = [jnp.moveaxis(x, axes, range(len(axes))) for x in (c.real(a), c.imag(a))]
    rows = [x.reshape(-1, *x.shape[len(axes) :]) for x in parts]
    out: Any = jnp.ones(rows[0].shape[1:], _part_type(eqn))
    for re, im in zip(*rows, strict=True):
        out = c.multiply(out, Pair(re, im))
    return out


def _running_product(eqn: Equation, a: Any) -> Any:
    """The products of the first elements along an axis, of so many."""
    axis, count = eqn.params["axis"], c.real(a).shape[eqn.params["axis"]]
    rows = [Pair(*(lax.index_in_dim(x, i, axis) for x in c.pair(a))) for i in range(count)]
    if not rows:
        return a
    out = list(accumulate(rows[::-1] if eqn.params["reverse"] else rows, c.multiply))
    out = out[::-1] if eqn.params["reverse"] else out
    return Pair(*(lax.concatenate(parts, axis) for parts in zip(*out, strict=True)))


def _fourier(eqn: Equation, a: Any) -> Any:
    kind, lengths = eqn.params["fft_type"], eqn.params["fft_lengths"]
    if kind == lax.FftType.RFFT:
        return c.real_fourier(a, lengths)
    if kind == lax.FftType.IRFFT:
        return c.real_inverse_fourier(a, lengths)
    return c.fourier(a, kind == lax.FftType.IFFT, lengths)


def _nothing(eqn: Equation, *_: Any) -> Any:
    """An array that is about to be filled."""
    return jnp.zeros(eqn.outvars[0].aval.shape, _part_type(eqn))


def _converted(eqn: Equation, a: Any) -> Any:
    """Part by part; to a real number the real part, and to a truth value whether it is not 0."""
    new = np.dtype(eqn.params["new_dtype"])
    if new.kind == "c":
        part = _part_type(eqn)
        return Pair(*(lax.convert_element_type(x, part) for x in a)) if isinstance(a, Pair) else jnp.asarray(a, part)
    if new.kind == "b":
        return ~c.equal(a, jnp.zeros_like(c.real(a)))
    return lax.convert_element_type(c.real(a), new)


def _sort(eqn: Equation, *xs: Any) -> list[Any]:
    """By the real part, then by the imaginary one."""
    flat, keys = [], 0
    for i, (x, v) in enumerate(zip(xs, eqn.invars, strict=True)):
        flat += list(c.pair(x)) if _complex(v) else [x]
        keys = len(flat) if i < eqn.params["num_keys"] else keys
    out = iter(eqn.primitive.bind(*flat, **eqn.params | {"num_keys": keys}))
    return [Pair(next(out), next(out)) if _complex(v) else next(out) for v in eqn.invars]


def _part_type(eqn: Equation) -> Any:
    """Return the type of the parts of a result."""
    return np.dtype(np.float32 if eqn.outvars[0].aval.dtype in (np.complex64, np.float32) else np.float64)


RULES: dict[str, Callable[..., Any]] = {
    **{
        name: _of(getattr(c, name))
        for name in """
        acos acosh asin asinh atan atanh cos cosh exp exp2 expm1 imag log log1p logistic real sign sin sinh sqrt tan
        tanh
        """.split()
    },
    "abs": _of(c.absolute),
    "complex": lambda eqn, *parts: Pair(*(jnp.broadcast_to(x, eqn.outvars[0].aval.shape) for x in parts)),
    "conj": _of(c.conjugate),
    "convert_element_type": _converted,
    "cumprod": _running_product,
    "div": _of(c.divide),
    "dot_general": _dot,
    "empty": _nothing,
    "empty2": _nothing,
    "eq": _of(c.equal),
    "fft": _fourier,
    "integer_pow": lambda eqn, a: c.integer_power(a, eqn.params["y"]),
    "max": _of(c.larger),
    "min": _of(c.smaller),
    "mul": _of(c.multiply),
    "ne": lambda eqn, a, b: ~c.equal(a, b),
    "neg": _of(c.negative),
    "pow": _of(c.power),
    "reduce_prod": _product_over,
    "rsqrt": _of(c.reciprocal_root),
    "sort": _sort,
    "square": lambda eqn, a: c.multiply(a, a),
}


# Calls, branches and loops, whose states have all their pairs.


def _full(xs: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
    return [c.pair(x) if _complex(v) else x for x, v in zip(xs, variables, strict=True)]


def _call(eqn: Equation, xs: list[Any]) -> list[Any]:
    return _PARTS.evaluate(callee(eqn), xs)


def _while(eqn: Equation, xs: list[Any]) -> list[Any]:
    """Loops under `vmap` iterate until the last is done; those that are done are frozen."""
    loop = while_of(eqn.params)
    of_cond, of_body, initial = loop.split(xs)
    init = tuple(_full(initial, eqn.outvars))

    def going(state: tuple[Any, ...]) -> Any:
        return _PARTS.evaluate(loop.cond, [*of_cond, *state])[0]

    def once(state: tuple[Any, ...]) -> tuple[Any, ...]:
        new = tuple(_full(_PARTS.evaluate(loop.body, [*of_body, *state]), eqn.outvars))
        if not loop.cond.out_avals[0].shape:
            return new
        return jax.tree.map(partial(_chosen, going(state)), new, state)

    return list(lax.while_loop(lambda state: jnp.any(going(state)), once, init))


def _chosen(which: Any, a: Any, b: Any) -> Any:
    """Return a where `which`, with the first axes of a, is true, else b."""
    return jnp.where(which.reshape(which.shape + (1,) * (jnp.ndim(a) - which.ndim)), a, b)


def _scan(eqn: Equation, xs: list[Any]) -> list[Any]:
    body, nc, nk, length, reverse = scan_of(eqn.params)
    variables = body.jaxpr.outvars

    def once(carry: tuple[Any, ...], row: list) -> tuple[tuple, list]:
        out = _full(_PARTS.evaluate(body, [*xs[:nc], *carry, *row]), variables)
        return tuple(out[:nk]), out[nk:]

    carry = tuple(_full(xs[nc : nc + nk], variables[:nk]))
    carry, rows = lax.scan(once, carry, xs[nc + nk :], length, reverse)
    return [*carry, *rows]


def _cond(eqn: Equation, xs: list[Any]) -> list[Any]:
    index, *args = xs
    branches = [lambda *args, b=closed(b): _full(_PARTS.evaluate(b, args), eqn.outvars) for b in eqn.params["branches"]]
    return list(lax.switch(index, branches, *args))


CONTROL: dict[str, Callable[..., Any]] = {**dict.fromkeys(CALLS, _call), "cond": _cond, "scan": _scan, "while": _while}
