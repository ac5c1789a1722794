"""The types of equations and their operands, which JAX declares more generally than traced programs need."""

from collections.abc import Sequence, Set
from typing import Any, Protocol, cast

import jax.core
from jax.extend import core as jex


class Variable(Protocol):
    """An operand or result of an equation; the operand may be a literal."""

    @property
    def aval(self) -> jax.core.ShapedArray:
        """Its shape and type."""
        ...


class Equation(Protocol):
    """The part of JAX's `JaxprEqn` that rules read, with the types of its fields."""

    @property
    def primitive(self) -> jex.Primitive:
        """The operation."""
        ...

    @property
    def params(self) -> dict[str, Any]:
        """The parameters of the operation."""
        ...

    @property
    def invars(self) -> Sequence[Variable]:
        """The operands."""
        ...

    @property
    def outvars(self) -> Sequence[Variable]:
        """The results."""
        ...

    @property
    def effects(self) -> Set[Any]:
        """The effects of the operation, such as a callback."""
        ...

    def replace(self, *args: Any, **changes: Any) -> "Equation":
        """The equation with other fields."""
        ...


def equations_of(jaxpr: jex.Jaxpr) -> Sequence[Equation]:
    """The equations of a program."""
    return cast(Sequence[Equation], jaxpr.eqns)
