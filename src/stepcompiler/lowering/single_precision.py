"""Single precision, for what needs few digits (`hints.low_precision`).

What is known, or the same everywhere, stays in double precision until something that varies is done with it. On a GPU
single precision has units of its own, beside those for double precision.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.extend import core as jex

from .. import mathematics
from ..jaxprs.data_movement import MOVES
from ..jaxprs.equations import CALLS
from ..jaxprs.interning import primitives
from .llvm_builder import Code, Value
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
    """The type of what an operation gives, and its operands: single precision, but for functions of our own."""
    if name in mathematics.FUNCTIONS:
        return dtype, [widen(code, x) for x in xs]
    single = lambda x: x if x.dtype != np.float64 else np.float32(x) if known(x) else converted(code, x, np.float32)
    return np.dtype(np.float32) if dtype == np.float64 else dtype, [single(x) for x in xs]


def widen(code: Code, x: Any) -> Any:
    """A number that varies in double precision, if it was in single precision; all others as they are."""
    return converted(code, x, np.float64) if isinstance(x, Value) and x.dtype == np.float32 else x
