"""Mathematical functions as polynomials, bitwise identical on every processor.

One family a file, written with the operators of `numbers`; coefficients are fitted by tools/coefficients.py. All are
within 1 ulp of the truth (tests/stepcompiler/test_mathematics.py), ends and subnormal numbers included, and without
branches, except for arguments of sin, cos and tan beyond 2³⁰: eight members side by side cost as much as one.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import NotCompilable
from ..lowering.llvm_builder import Code
from . import circular, errors, exponential, fmod, gamma, inverse, logarithm, powers
from .ir_number import LARGEST_INLINE, Number, call

FUNCTIONS: dict[str, Callable] = {
    "acos": inverse.acos,
    "acosh": logarithm.acosh,
    "asin": inverse.asin,
    "asinh": logarithm.asinh,
    "atan": inverse.atan,
    "atan2": inverse.atan2,
    "atanh": logarithm.atanh,
    "cbrt": powers.cbrt,
    "cos": circular.cos,
    "cosh": exponential.cosh,
    "erf": errors.erf,
    "erf_inv": errors.erf_inv,
    "erfc": errors.erfc,
    "exp": exponential.exp,
    "exp2": exponential.exp2,
    "expm1": exponential.expm1,
    "lgamma": gamma.lgamma,
    "log": logarithm.log,
    "log1p": logarithm.log1p,
    "log2": logarithm.log2,
    "logistic": exponential.logistic,
    "nextafter": fmod.nextafter,
    "pow": powers.power,
    "rem": fmod.remainder,
    "sin": circular.sin,
    "sinh": exponential.sinh,
    "tan": circular.tan,
    "tanh": exponential.tanh,
}


def write(code: Code, name: str, xs: Sequence[Any]) -> Any:
    """The function with this name, of float64 only."""
    if xs[0].dtype != np.float64:
        raise NotCompilable.operation(name, f" of numbers of type {xs[0].dtype}")
    return call(_called(name), FUNCTIONS[name], *(Number(code, x) for x in xs))[0].value


def size(code: Code, name: str) -> int:
    """Return the number of operations of a call of a function."""
    count = code.functions.get(_called(name), "").count("\n")
    return count if 0 < count <= LARGEST_INLINE else 1


def _called(name: str) -> str:
    return f"stepcompiler.{name}"
