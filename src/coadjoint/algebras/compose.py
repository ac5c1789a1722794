"""What algebras made of others share: vectors made of parts."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .base import LieAlgebra

Vector = Float[Array, " dim"]


def flatten(parts: Sequence[Array]) -> Vector:
    """The parts one after the other in one vector."""
    return jnp.concatenate([p.reshape(-1) for p in parts]) if len(parts) > 1 else parts[0].reshape(-1)


def join(places: Sequence[tuple[str, LieAlgebra | int]], parts: Sequence[Any]) -> Vector:
    """Coordinates of the parts in one vector; a place is a name with an algebra, or with the length of a vector."""
    if len(parts) != len(places):
        raise ValueError(f"join takes {len(places)} parts, not {len(parts)}: {', '.join(name for name, _ in places)}.")
    out = []
    for (name, place), part in zip(places, parts, strict=True):
        algebra = place if isinstance(place, LieAlgebra) else None
        shape = algebra.shape if algebra is not None else (place,)
        x = jnp.asarray(part)
        if x.shape != shape:
            raise ValueError(f"join: {name} needs shape {shape}, not {x.shape}.")
        if jnp.iscomplexobj(x) and (algebra is None or algebra.dtype == jnp.float64):
            raise TypeError(f"join: {name} is real, not complex.")
        out.append(x.astype(jnp.float64) if algebra is None else algebra.coordinates(x.astype(algebra.dtype)))
    return flatten(out)


def any_array(algebra: LieAlgebra) -> bool:
    """Whether every array of the right shape is a state."""
    return type(algebra).state_error is LieAlgebra.state_error


def state_error(algebra: LieAlgebra, c: np.ndarray) -> str | None:
    """What is wrong with the state of an algebra that has the coordinates c, if anything."""
    if any_array(algebra):
        return None
    return algebra.state_error(np.asarray(algebra.element(jnp.asarray(c))))


def check_algebra(name: str, algebra: Any) -> None:
    """Raise unless it is an algebra."""
    if not isinstance(algebra, LieAlgebra):
        hint = isinstance(algebra, type) and issubclass(algebra, LieAlgebra)
        got = f"the class {algebra.__name__}; did you mean {algebra.__name__}()?" if hint else f"{algebra!r}."
        raise TypeError(f"{name} must be a LieAlgebra such as SO3(), not {got}")
