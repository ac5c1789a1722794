"""Vectors of space."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


@jax.jit  # traced once, as all that is called again and again
def cross(a: Float[Array, "3"], b: Float[Array, "3"]) -> Float[Array, "3"]:
    """a × b, written out: `jnp.cross` costs a dozen gathers."""
    return jnp.stack([a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]])


@jax.jit
def plus_cross(c: Float[Array, "3"], a: Float[Array, "3"], b: Float[Array, "3"]) -> Float[Array, "3"]:
    """Return c + a × b as two fused operations per coordinate, for a c that is available before a and b."""
    first = jnp.stack([c[0] + a[1] * b[2], c[1] + a[2] * b[0], c[2] + a[0] * b[1]])
    return jnp.stack([first[0] - a[2] * b[1], first[1] - a[0] * b[2], first[2] - a[1] * b[0]])
