"""Numbers that are the same for all steps and members. JAX computes them before the run."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .instructions import Value
from .scalar_kinds import known, number


class SharedValues:
    """The numbers that do not vary. Each is computed once, and is an input of the code."""

    def __init__(self, stem: str):
        self.stem = stem
        self.inputs: list[tuple[Array, Value]] = []  # the numbers that the code reads, and their names
        self._names: dict[int, Value] = {}  # by identity, as below: `inputs` and others keep the arrays alive
        self._memo: dict[tuple[Any, ...], tuple[Any, Any]] = {}
        self._inverses: dict[int, tuple[Array, Array]] = {}
        self._products: dict[tuple[Any, ...], Any] = {}
        self._multiples: dict[int, tuple[Any, Any]] = {}  # products of a number and a known one
        self._checked: list[
            tuple[Any, Any, Any]
        ] = []  # results y of u and w, as (y, u, w), that must not under- or overflow

    def memoize(self, about: tuple[Any, ...], lanes: Sequence[Any], work: Callable[[], Any]) -> Any:
        """Return work(), a function of lanes that do not vary, computed once for the same lanes."""
        key = about, tuple(id(x) if isinstance(x, jax.Array) else (x.dtype, x.tobytes()) for x in lanes)
        try:
            found = key in self._memo
        except TypeError:  # parameters without a hash
            return work()
        if not found:
            self._memo[key] = work(), lanes  # keeps the lanes, and so their identities
        return self._memo[key][0]

    def operand(self, x: Any) -> Any:
        """Return a lane as the code reads it."""
        if not isinstance(x, jax.Array):
            return x
        if id(x) not in self._names:
            self._names[id(x)] = Value(f"{self.stem}{len(self.inputs)}", x.dtype)
            self.inputs.append((x, self._names[id(x)]))  # keeps x, and so its identity
        return self._names[id(x)]

    def inverse(self, y: Any) -> Any:
        """Return 1/y; None if it is known to be out of range.

        If it is out of range in the run, no steps are taken, unless y is 0 or ∞.
        """
        if known(y):
            inverse = np.asarray(1.0 / y, y.dtype)[()]
            return None if _extreme(inverse) else inverse
        if id(y) not in self._inverses:
            inverse = jax.lax.div(number(1, y.dtype), y)
            self._inverses[id(y)] = (y, inverse)
            self._checked.append((inverse, y, y))
        return self._inverses[id(y)][1]

    def product(self, u: Any, w: Any) -> Any:
        """Return u w; None if it is known to be out of range.

        If it is out of range in the run, no steps are taken, unless u or w is 0 or ∞.
        """
        if known(u) and known(w):
            both = u * w
            return None if _extreme(both) else both
        if known(u):
            u, w = w, u
        if known(w) and id(u) in self._multiples:  # (c v) w is v (c w)
            c, v = self._multiples[id(u)]
            return self.product(v, c * w) if not _extreme(c * w) else None
        key = (id(u), w) if known(w) else (min(id(u), id(w)), max(id(u), id(w)))
        if key not in self._products:
            both = jax.lax.mul(u, w)
            self._products[key] = both
            self._checked.append((both, u, w))  # keeps them, and so their identities
            if known(w):
                self._multiples[id(both)] = w, u
        return self._products[key]

    def in_range(self) -> list[Array]:
        """Return the conditions that inverses and products neither underflow nor overflow."""
        out = []
        for dtype in dict.fromkeys(y.dtype for y, *_ in self._checked):
            columns = zip(*(triple for triple in self._checked if triple[0].dtype == dtype), strict=True)
            y, u, w = (jnp.stack([jnp.asarray(x, dtype) if known(x) else x for x in column]) for column in columns)
            out.append(_kept(y, u, w))
        return out


def _extreme(factor: Any) -> Any:
    """Whether an inverse or a product underflows or overflows."""
    return (abs(factor) < jnp.finfo(factor.dtype).tiny) | (abs(factor) == np.inf)


def _kept(y: Array, u: Array, w: Array) -> Array:
    return jnp.all(~_extreme(y) | _given(u) | _given(w))


def _given(x: Array) -> Array:
    """Whether x is ±0, by its bits, since for XLA the smallest numbers equal 0, or ±∞."""
    bits = jax.lax.bitcast_convert_type(x, jnp.uint64 if x.dtype == jnp.float64 else jnp.uint32)
    return (bits << 1 == 0) | jnp.isinf(x)
