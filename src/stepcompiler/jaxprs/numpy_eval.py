"""Small programs without loops, evaluated by NumPy, which needs no compiler.

Results are bitwise identical for every compiler of the other programs.
NumPy computes only operations with an exactly defined result (IEEE 754, integers, moves). All others, such as
logarithms, are JAX's own, one at a time.
"""

import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.extend import core as jex

from ..cache import LRUCache
from .data_movement import MOVES
from .equation_types import Equation
from .equations import eval_equation
from .interpreter import Interpreter, typed_literal

_REAL: dict[str, Callable] = {
    "add": np.add,
    "add_any": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "neg": np.negative,
    "abs": np.abs,
    "max": np.maximum,
    "min": np.minimum,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}
_FLOAT: dict[str, Callable] = {
    "div": np.divide,
    "sqrt": np.sqrt,
    "floor": np.floor,
    "is_finite": np.isfinite,
    "square": np.square,
}
_BITS: dict[str, Callable] = {
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
}
_SHIFTS: dict[str, tuple[Callable, str]] = {  # and of which kinds of numbers
    "shift_left": (np.left_shift, "iu"),
    "shift_right_logical": (np.right_shift, "u"),
    "shift_right_arithmetic": (np.right_shift, "i"),
}
_WHOLE: dict[str, Callable] = {"div": lambda a, b: (a - np.fmod(a, b)) // b, "rem": np.fmod}  # towards zero
_MOVES = {"broadcast_in_dim", "concatenate", "expand_dims", "reshape", "rev", "slice", "squeeze", "stack", "transpose"}

_OPERATORS: dict[Any, Callable] = {  # the same results, in a tenth of the time for single numbers
    np.add: operator.add,
    np.subtract: operator.sub,
    np.multiply: operator.mul,
    np.divide: operator.truediv,
    np.less: operator.lt,
    np.less_equal: operator.le,
    np.greater: operator.gt,
    np.greater_equal: operator.ge,
    np.equal: operator.eq,
    np.not_equal: operator.ne,
    np.bitwise_and: operator.and_,
    np.bitwise_or: operator.or_,
    np.bitwise_xor: operator.xor,
    np.left_shift: operator.lshift,
    np.right_shift: operator.rshift,
}

_LARGEST_KEY = 256  # bytes

Step = tuple[Callable[..., Any], list[int], list[int], bool]  # operation, operands, results, whether it is a function


def numpy_function(program: jex.ClosedJaxpr) -> Callable[[Sequence[Any]], list[np.ndarray]]:
    """Return the results of a program as NumPy arrays."""
    first: list[Any] = [None] * len(program.jaxpr.invars)  # values: arguments, constants, results
    steps: list[Step] = []

    def new(value: Any = None) -> int:
        first.append(value)
        return len(first) - 1

    def equation(jaxpr: jex.Jaxpr, eqn: Equation, inputs: list[int]) -> list[int]:
        outputs = [new() for _ in eqn.outvars]
        does, alone = _operation(jaxpr, eqn)
        steps.append((does, inputs, outputs, alone))
        return outputs

    number = lambda x: np.asarray(x)[()]  # of one number no array but NumPy's scalar, whose operators are faster
    places = Interpreter(equation, constant=lambda x: new(number(x)), literal=lambda v: new(typed_literal(v)))
    results = places.evaluate(program, range(len(first)))

    def run(args: Sequence[Any]) -> list[np.ndarray]:
        values = first.copy()
        values[: len(args)] = [number(x) for x in args]
        with np.errstate(all="ignore"):
            for does, inputs, outputs, alone in steps:
                if alone and len(inputs) == 2:
                    values[outputs[0]] = does(values[inputs[0]], values[inputs[1]])
                elif alone:
                    values[outputs[0]] = does(*[values[i] for i in inputs])
                else:
                    for k, x in zip(outputs, does(*[values[i] for i in inputs]), strict=True):
                        values[k] = x
        return [np.asarray(values[k]) for k in results]

    return run


def _operation(jaxpr: jex.Jaxpr, eqn: Equation) -> tuple[Callable[..., Any], bool]:
    """One equation, as a function of NumPy's values, and whether it returns its result alone, not in a list."""
    name, params = eqn.primitive.name, eqn.params
    if name in _MOVES:
        return (lambda *xs: MOVES[name](params, *xs)), False
    known = [v.val if isinstance(v, jex.Literal) else None for v in eqn.invars]
    does = by_numpy(name, params, eqn.outvars[0].aval.dtype, [v.aval.dtype for v in eqn.invars], known)
    return (_by_jax(jaxpr, eqn), False) if does is None else (_OPERATORS.get(does, does), True)


def by_numpy(name: str, params: dict, dtype: Any, given: Sequence[Any], known: Sequence[Any]) -> Callable | None:
    """Return the NumPy function of an operation, from the types of operands and results; None if JAX must compute it.

    `known`: the arguments that are constant, and None for the others.
    """
    dtype, given = np.dtype(dtype), [np.dtype(x) for x in given]
    kinds = {x.kind for x in (dtype, *given)}
    if name in ("real", "imag", "complex"):
        return _complex if name == "complex" else getattr(np, name)
    if not kinds <= set("fiub"):
        return None
    if name == "iota":
        shape, axis = params["shape"], params["dimension"]
        column = np.arange(shape[axis], dtype=dtype).reshape([-1 if k == axis else 1 for k in range(len(shape))])
        return lambda: np.broadcast_to(column, shape)
    if name == "select_n" and len(given) == 3:
        return lambda which, no, yes: np.where(which, yes, no)[()]
    if name == "convert_element_type" and (given[0].kind in "iub" or dtype.kind == "f"):
        return lambda x: np.asarray(x).astype(dtype)[()]
    if name == "bitcast_convert_type" and given[0].itemsize == dtype.itemsize and "b" not in kinds:
        return lambda x: np.asarray(x).view(dtype)[()]
    if name in ("reduce_and", "reduce_or") and dtype.kind == "b":
        reduce = np.all if name == "reduce_and" else np.any
        return lambda x: reduce(x, axis=params["axes"])
    if name in _SHIFTS:
        shift, signs = _SHIFTS[name]
        if len(kinds) > 1 or not kinds <= set(signs) or known[1] is None:
            return None
        by = np.asarray(known[1])
        return shift if np.all((by >= 0) & (by < 8 * dtype.itemsize)) else None  # for others languages differ
    if name in _WHOLE and kinds <= set("iu"):
        return _WHOLE[name] if known[1] is not None and np.all(np.asarray(known[1]) > 0) else None
    if name == "sign" and kinds == {"i"}:
        return np.sign
    if name == "integer_pow" and kinds == {"f"}:
        return partial(_power, params["y"])
    if name in _FLOAT:
        return _FLOAT[name] if kinds <= set("fb") else None
    if name in _BITS:
        return _BITS[name] if kinds <= set("iub") else None
    return _REAL.get(name)


def _power(n: int, x: Any) -> Any:
    """xⁿ by repeated squaring, as in kernels."""
    out = None
    for k in range(abs(n).bit_length()):
        x = x * x if k else x
        out = out if not abs(n) >> k & 1 else x if out is None else out * x
    one = np.ones_like(x)
    return one if out is None else one / out if n < 0 else out


def _complex(a: Any, b: Any) -> Any:
    """Return a + ib without an addition, which would change signs of zeros and values that are not finite."""
    out = np.empty(np.shape(a), np.result_type(a, np.complex64))
    out.real, out.imag = a, b
    return out[()]


def _by_jax(jaxpr: jex.Jaxpr, eqn: Equation) -> Callable[..., list[np.ndarray]]:
    """An equation done by JAX, whose results for the small arrays met last are kept."""
    kept: LRUCache[list[np.ndarray]] = LRUCache(16)

    def evaluate(xs: list[np.ndarray]) -> list[np.ndarray]:
        with jax.ensure_compile_time_eval():
            return [np.asarray(x) for x in eval_equation(jaxpr, eqn, xs)]

    def of(*given: Any) -> list[np.ndarray]:
        xs = [np.asarray(x) for x in given]
        if sum(x.nbytes for x in xs) > _LARGEST_KEY:
            return evaluate(xs)
        return kept.get(tuple((x.tobytes(), x.shape, x.dtype.str) for x in xs), lambda: evaluate(xs))

    return of
