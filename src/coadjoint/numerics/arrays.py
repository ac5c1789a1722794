"""Arrays of NumPy's as JAX's."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array


def placed(x: Any) -> Array:
    """As `jnp.asarray`, which compiles a program for every shape and type that NumPy gives it; this does not."""
    if not isinstance(x, np.ndarray):
        return jnp.asarray(x)
    return jax.device_put(np.array(x))  # a copy: JAX may go on to use the memory that it is given
