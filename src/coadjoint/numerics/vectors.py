"""Vectors of space."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def cross(a: Float[Array, "3"], b: Float[Array, "3"]) -> Float[Array, "3"]:
    """a × b, written out: `jnp.cross` costs a dozen gathers."""
    return jnp.stack([a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]])
