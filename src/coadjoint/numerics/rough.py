"""Numbers of which a few digits are wanted."""

from collections.abc import Callable

import jax


def roughly(fn: Callable) -> Callable:
    """The function fn of arrays, marked as one whose results need few digits.

    A program may compute it in single precision, if it can do without where that is out of range: numbers above 10³⁸
    become infinite. Everywhere else this is fn.
    """

    @jax.jit
    def roughly(*args):
        return fn(*args)

    return roughly
