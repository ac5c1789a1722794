"""Branches that are hardly ever taken."""

import jax
from jaxtyping import Array


@jax.jit
def likely(condition: Array) -> Array:
    """The condition itself, marked as one that is nearly always true.

    A program may take it for true, so that the other branch costs nothing, if it says where it was not: what it
    computed there is not valid. Everywhere else this is the identity.
    """
    return condition
