"""Which elements of the result of a function depend on its argument, and whether it is smooth, from its program."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.extend import core as jex

from .data_movement import MOVES, Objects, object_array
from .equation_types import Equation
from .interpreter import Interpreter

_ELEMENTWISE = frozenset(
    """abs acos add add_any and asin atan atan2 cbrt ceil clamp complex conj convert_element_type copy copy_p cos cosh
    div eq erf erfc exp exp2 expm1 floor ge gt imag integer_pow is_finite le log log1p logistic lt max min mul ne neg
    not one_minus_square or pow real rem round rsqrt select_n sign sin sinh sqrt square sub tan tanh xor""".split()
)
_REDUCTIONS = frozenset("reduce_sum reduce_prod reduce_max reduce_min reduce_and reduce_or".split())
_SINGULAR = frozenset("acos asin atan2 cbrt div log log1p pow rem rsqrt sqrt tan".split())  # at some arguments


def depends_on(f: Callable[[Any], Any], x: Any) -> np.ndarray:
    """Return for each element of the array f(x) whether it may depend on x; False is certain."""
    closed = jax.make_jaxpr(f)(x)
    (out,) = _DEPENDENCE.evaluate(closed, [_all(True, x.shape)])
    return out.astype(bool)


def is_smooth(f: Callable[[Any], Any], x: Any) -> bool:
    """Return whether the program of f has no operation that is singular somewhere; False if that is not certain."""
    certain = True

    def equation(jaxpr: jex.Jaxpr, eqn: Equation, depends: list[bool]) -> list[bool]:
        nonlocal certain
        if any(depends):
            certain = certain and _is_smooth(eqn, depends)
        return [any(depends)] * len(eqn.outvars)

    never = lambda x: False
    Interpreter(equation, constant=never, literal=never).evaluate(jax.make_jaxpr(f)(x), [True])
    return certain


def _is_smooth(eqn: Equation, depends: list[bool]) -> bool:
    name = eqn.primitive.name
    if name == "div":
        return not depends[1]
    if name == "integer_pow":
        return eqn.params["y"] >= 0
    known = (_ELEMENTWISE - _SINGULAR) | _REDUCTIONS | MOVES.keys() | {"dot_general", "cumsum"}
    return name in known


def _all(value: bool, shape: tuple[int, ...]) -> Objects:
    return object_array([value] * int(np.prod(shape)), tuple(shape))


def _equation(jaxpr: jex.Jaxpr, eqn: Equation, xs: list[Objects]) -> list[Objects]:
    """Propagate elementwise for elementwise operations; otherwise all results depend on all operands."""
    name, shapes = eqn.primitive.name, [getattr(v.aval, "shape", ()) for v in eqn.outvars]
    if not any(x.any() for x in xs):
        return [_all(False, shape) for shape in shapes]
    if name in MOVES:
        return MOVES[name](eqn.params, *xs)
    if name in _ELEMENTWISE:
        out = _all(False, shapes[0])
        for x in xs:
            out = np.logical_or(out, np.broadcast_to(x, shapes[0]))
        return [object_array(list(np.ravel(out)), shapes[0])]
    if name in _REDUCTIONS:
        return [object_array(list(np.ravel(np.any(xs[0].astype(bool), axis=eqn.params["axes"]))), shapes[0])]
    return [_all(True, shape) for shape in shapes]


_DEPENDENCE = Interpreter(
    _equation, constant=lambda x: _all(False, np.shape(x)), literal=lambda v: _all(False, np.shape(v.val))
)
