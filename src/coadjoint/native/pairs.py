"""Complex numbers as pairs: a program with complex numbers, rewritten as one with real ones alone.

An array of complex numbers is carried as two arrays, its real and imaginary parts; one known to be real, as one.
What enters and leaves a program as complex numbers does so as real ones with one axis more, of length 2.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core as jex
from jaxtyping import PyTree

from ..numerics.functions import eval_equation
from ..numerics.jaxprs import CALLS, called, closed, scan_of
from .refused import Refused


class Pair(NamedTuple):
    """Real and imaginary part."""

    re: Any
    im: Any


# What enters and leaves.


def is_complex(x: Any) -> bool:
    """Whether an array, or the shape of one, is of complex numbers."""
    return isinstance(x.dtype, np.dtype) and x.dtype.kind == "c"  # types of JAX's own, of keys, are none of NumPy's


def as_reals(tree: PyTree) -> PyTree:
    """Complex arrays, or the shapes of such, as real ones with one axis more."""

    def one(x: Any) -> Any:
        if not hasattr(x, "dtype") or not is_complex(x):
            return x
        if isinstance(x, jax.ShapeDtypeStruct):
            return jax.ShapeDtypeStruct((*x.shape, 2), jnp.float64)
        xp: Any = np if isinstance(x, np.ndarray) else jnp
        return xp.stack([xp.real(x), xp.imag(x)], axis=-1)

    return jax.tree.map(one, tree)


def as_complex(tree: PyTree, like: PyTree) -> PyTree:
    """The way back: `like` says which ones were complex."""
    return jax.tree.map(lambda x, s: lax.complex(x[..., 0], x[..., 1]) if is_complex(s) else x, tree, like)


# The program.


def without_complex(program: jex.ClosedJaxpr) -> jex.ClosedJaxpr:
    """A program whose arguments and results are real, without complex numbers inside; itself if it has none."""
    if not _has_complex(program.jaxpr):
        return program
    structs = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in program.jaxpr.invars]
    return jax.make_jaxpr(lambda *args: _evaluated(program, args))(*structs)


def _has_complex(jaxpr: Any) -> bool:
    def inside(params: dict) -> bool:
        parts = [s for p in params.values() for s in (p if isinstance(p, (tuple, list)) else [p])]
        return any(_has_complex(closed(s).jaxpr) for s in parts if isinstance(s, (jex.Jaxpr, jex.ClosedJaxpr)))

    def touched(eqn: Any) -> bool:
        if any(_complex(v) for v in (*eqn.invars, *eqn.outvars)):
            return True
        return inside(eqn.params) or (eqn.primitive.name == "call_hi_primitive" and _has_complex(called(eqn).jaxpr))

    return any(touched(eqn) for eqn in jaxpr.eqns)


def _complex(v: Any) -> bool:
    return hasattr(v.aval, "dtype") and is_complex(v.aval)


def _evaluated(program: jex.ClosedJaxpr, args: Sequence[Any]) -> list[Any]:
    """What comes out; of complex arguments and results pairs."""
    jaxpr = program.jaxpr
    env: dict[Any, Any] = dict(zip(jaxpr.constvars, map(_split, program.consts), strict=True))
    env.update(zip(jaxpr.invars, args, strict=True))
    read = lambda v: _split(np.asarray(v.val, getattr(v.aval, "dtype", None))) if isinstance(v, jex.Literal) else env[v]
    for eqn in jaxpr.eqns:
        env.update(zip(eqn.outvars, _equation(jaxpr, eqn, [read(v) for v in eqn.invars]), strict=True))
    return [read(v) for v in jaxpr.outvars]


def _split(x: Any) -> Any:
    """Constants."""
    if not hasattr(x, "dtype") or not is_complex(x):
        return x
    return Pair(np.real(x), np.imag(x)) if np.any(np.imag(x)) else np.real(x)


def _equation(jaxpr: Any, eqn: Any, xs: list[Any]) -> list[Any]:
    name = eqn.primitive.name
    if any(_complex(v) and v.aval.dtype != np.complex128 for v in eqn.outvars):
        raise Refused("Numbers of type complex64 have no native rule.")
    plain = not any(_complex(v) for v in (*eqn.invars, *eqn.outvars))
    if name in CONTROL:
        if plain and not _has_complex(jex.Jaxpr([], [], [], [eqn], debug_info=jaxpr.debug_info)):
            return list(eval_equation(jaxpr, eqn, xs))
        return CONTROL[name](eqn, xs)
    if plain:
        return list(eval_equation(jaxpr, eqn, xs))
    if name in PARTWISE:
        return _partwise(eqn, xs)
    if name not in RULES:
        what = "" if name in _MATRICES else " of complex numbers"
        raise Refused(f"`{name}`{what} has no native rule.")
    return [RULES[name](eqn, *xs)]


def _re(x: Any) -> Any:
    return x.re if isinstance(x, Pair) else x


def _im(x: Any) -> Any:
    return x.im if isinstance(x, Pair) else jnp.zeros_like(x)


_MATRICES = frozenset(["eigh", "eig", "schur"])  # that have no rule at all

# Primitives that do the same to real and imaginary parts.

PARTWISE = frozenset(
    """
    add add_any sub neg broadcast_in_dim concatenate copy copy_p cumsum dynamic_slice dynamic_update_slice expand_dims
    gather name optimization_barrier pad reduce_sum reshape rev scatter scatter-add scatter_add select_n slice split
    squeeze stack stop_gradient tile transpose unstack
    """.split()
)


def _partwise(eqn: Any, xs: list[Any]) -> list[Any]:
    """To parts that are there: what is real throughout stays one array."""
    params = eqn.params
    if eqn.primitive.name.startswith("scatter"):
        params = params | {"update_jaxpr": None}

    def bound(part: Callable) -> list[Any]:
        out = eqn.primitive.bind(
            *(part(x) if _complex(v) else x for x, v in zip(xs, eqn.invars, strict=True)), **params
        )
        return list(out) if eqn.primitive.multiple_results else [out]

    if not any(isinstance(x, Pair) for x in xs):
        return bound(_re)
    return [Pair(a, b) for a, b in zip(bound(_re), bound(_im), strict=True)]


# Others.


def _bilinear(times: Callable, a: Any, b: Any) -> Any:
    """A product."""
    if not isinstance(a, Pair) and not isinstance(b, Pair):
        return times(a, b)
    if not isinstance(a, Pair):
        return Pair(times(a, b.re), times(a, b.im))
    if not isinstance(b, Pair):
        return Pair(times(a.re, b), times(a.im, b))
    return Pair(times(a.re, b.re) - times(a.im, b.im), times(a.re, b.im) + times(a.im, b.re))


def _multiply(eqn: Any, a: Any, b: Any) -> Any:
    return _bilinear(lax.mul, a, b)


def _dot(eqn: Any, a: Any, b: Any) -> Any:
    params = eqn.params | {"preferred_element_type": np.dtype(np.float64)}
    return _bilinear(lambda x, y: eqn.primitive.bind(x, y, **params), a, b)


def _divide(eqn: Any, a: Any, b: Any) -> Any:
    """a b̄/|b|², or part by part if b is real."""
    if not isinstance(b, Pair):
        return Pair(a.re / b, a.im / b) if isinstance(a, Pair) else a / b
    above = _bilinear(lax.mul, a, Pair(b.re, -b.im))
    square = b.re * b.re + b.im * b.im
    return Pair(above.re / square, above.im / square)


def _power(eqn: Any, a: Any) -> Any:
    """Repeated products."""
    exponent, out = eqn.params["y"], None
    power, left = a, abs(exponent)
    while left:
        if left & 1:
            out = power if out is None else _bilinear(lax.mul, out, power)
        left >>= 1
        power = _bilinear(lax.mul, power, power) if left else power
    out = jnp.ones_like(_re(a)) if out is None else out
    return out if exponent >= 0 else _divide(eqn, jnp.ones_like(_re(a)), out)


def _product_over(eqn: Any, a: Any) -> Any:
    """The product of all elements along some axes."""
    axes = eqn.params["axes"]
    parts = [jnp.moveaxis(x, axes, range(len(axes))) for x in (_re(a), _im(a))]
    rows = [x.reshape(-1, *x.shape[len(axes) :]) for x in parts]
    out: Any = jnp.ones(rows[0].shape[1:])
    for re, im in zip(*rows, strict=True):
        out = _bilinear(lax.mul, out, Pair(re, im))
    return out


def _absolute(eqn: Any, a: Any) -> Any:
    """√(x² + y²), of numbers over the larger part."""
    x, y = jnp.abs(_re(a)), jnp.abs(_im(a))
    most, least = jnp.maximum(x, y), jnp.minimum(x, y)
    ratio = least / jnp.where(most > 0, most, 1.0)
    return most * jnp.sqrt(1.0 + ratio * ratio)


def _exponential(eqn: Any, a: Any) -> Any:
    size = jnp.exp(_re(a))
    return Pair(size * jnp.cos(a.im), size * jnp.sin(a.im)) if isinstance(a, Pair) else size


def _fourier(eqn: Any, a: Any) -> Any:
    """Axis by axis, as products with a matrix: what is transformed here is small."""
    kind, lengths = eqn.params["fft_type"], eqn.params["fft_lengths"]
    if kind not in (lax.FftType.FFT, lax.FftType.IFFT):
        raise Refused("`fft` between real and complex numbers has no native rule.")
    for k, n in enumerate(lengths):
        axis = len(eqn.outvars[0].aval.shape) - len(lengths) + k
        turns = np.outer(np.arange(n), np.arange(n)) % n / n
        sine = np.sin(2 * np.pi * turns) * (1.0 if kind == lax.FftType.IFFT else -1.0)
        scale = 1.0 / n if kind == lax.FftType.IFFT else 1.0
        matrix = Pair(scale * np.cos(2 * np.pi * turns), scale * sine)
        along = lambda x, m, axis=axis: jnp.moveaxis(jnp.tensordot(x, m, ((axis,), (0,))), -1, axis)
        a = _bilinear(along, a, matrix)
    return a


def _equal(eqn: Any, a: Any, b: Any) -> Any:
    return (_re(a) == _re(b)) & (_im(a) == _im(b))


def _nothing(eqn: Any, *_: Any) -> Any:
    """An array that is about to be filled."""
    return jnp.zeros(eqn.outvars[0].aval.shape)


def _converted(eqn: Any, a: Any) -> Any:
    """From complex to complex, from real to complex; lax has nothing from complex to real but `real`."""
    return a if isinstance(a, Pair) else jnp.asarray(a, jnp.float64)


RULES: dict[str, Callable] = {
    "abs": _absolute,
    "complex": lambda eqn, *parts: Pair(*(jnp.broadcast_to(x, eqn.outvars[0].aval.shape) for x in parts)),
    "conj": lambda eqn, a: Pair(a.re, -a.im) if isinstance(a, Pair) else a,
    "convert_element_type": _converted,
    "div": _divide,
    "dot_general": _dot,
    "empty": _nothing,
    "empty2": _nothing,
    "eq": _equal,
    "exp": _exponential,
    "fft": _fourier,
    "imag": lambda eqn, a: _im(a),
    "integer_pow": _power,
    "mul": _multiply,
    "ne": lambda eqn, a, b: ~_equal(eqn, a, b),
    "real": lambda eqn, a: _re(a),
    "reduce_prod": _product_over,
    "square": lambda eqn, a: _bilinear(lax.mul, a, a),
}


# Calls, branches and loops, whose states have all their pairs.


def _full(xs: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
    return [Pair(_re(x), _im(x)) if _complex(v) else x for x, v in zip(xs, variables, strict=True)]


def _call(eqn: Any, xs: list[Any]) -> list[Any]:
    return _evaluated(called(eqn), xs)


def _while(eqn: Any, xs: list[Any]) -> list[Any]:
    nc, nb = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
    cond, body = closed(eqn.params["cond_jaxpr"]), closed(eqn.params["body_jaxpr"])
    init = tuple(_full(xs[nc + nb :], eqn.outvars))
    return list(
        lax.while_loop(
            lambda state: _evaluated(cond, [*xs[:nc], *state])[0],
            lambda state: tuple(_full(_evaluated(body, [*xs[nc : nc + nb], *state]), eqn.outvars)),
            init,
        )
    )


def _scan(eqn: Any, xs: list[Any]) -> list[Any]:
    body, nc, nk, length, reverse = scan_of(eqn.params)
    variables = body.jaxpr.outvars

    def once(carry: tuple, row: list) -> tuple[tuple, list]:
        out = _full(_evaluated(body, [*xs[:nc], *carry, *row]), variables)
        return tuple(out[:nk]), out[nk:]

    carry = tuple(_full(xs[nc : nc + nk], variables[:nk]))
    carry, rows = lax.scan(once, carry, xs[nc + nk :], length, reverse)
    return [*carry, *rows]


def _cond(eqn: Any, xs: list[Any]) -> list[Any]:
    index, *args = xs
    branches = [lambda *args, b=closed(b): _full(_evaluated(b, args), eqn.outvars) for b in eqn.params["branches"]]
    return list(lax.switch(index, branches, *args))


CONTROL: dict[str, Callable] = {**dict.fromkeys(CALLS, _call), "cond": _cond, "scan": _scan, "while": _while}
