"""Single precision, if low precision suffices (`hints.low_precision`).

Constants and uniform values stay in double precision until an operation with a varying operand. A GPU has separate
units for single precision.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.extend import core as jex

from .. import mathematics
from ..jaxprs.data_movement import MOVES
from ..jaxprs.equations import CALLS
from ..jaxprs.interning import primitives
from .instructions import Value
from .llvm_builder import Code
from .scalar_kinds import known
from .scalar_ops import converted

_PLAIN = frozenset(
    """
    abs add add_any and convert_element_type copy copy_p div dot_general eq ge gt integer_pow iota le lt max min mul ne
    neg not or reduce_max reduce_min reduce_sum select_n sqrt square sub
    """.split()
)


def is_supported(program: jex.ClosedJaxpr) -> bool:
    """Whether all of a program can be done in single precision, or, function by function, in double precision."""
    return primitives(program.jaxpr) <= _PLAIN | MOVES.keys() | CALLS.keys() | mathematics.FUNCTIONS.keys()


def narrow_operands(code: Code, name: str, dtype: Any, xs: Sequence[Any]) -> tuple[Any, list[Any]]:
    """Return the result type and the operands of an operation: single precision, except for our own functions."""
    if name in mathematics.FUNCTIONS:
        return dtype, [widen(code, x) for x in xs]
    single = lambda x: x if x.dtype != np.float64 else np.float32(x) if known(x) else converted(code, x, np.float32)
    return np.dtype(np.float32) if dtype == np.float64 else dtype, [single(x) for x in xs]


def widen(code: Code, x: Any) -> Any:
    """A number that varies in double precision, if it was in single precision; all others as they are."""
    return converted(code, x, np.float64) if isinstance(x, Value) and x.dtype == np.float32 else x
