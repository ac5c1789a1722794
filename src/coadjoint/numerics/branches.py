"""Branches that are hardly ever taken."""

import jax
from jaxtyping import Array


@jax.jit
def likely(condition: Array) -> Array:
    """The condition itself, marked as one that is nearly always true.

    Native code takes it for true, so that the other branch costs nothing; a step for which it was not is not valid and
    is taken by another program. Everywhere else this is the identity.
    """
    return condition
