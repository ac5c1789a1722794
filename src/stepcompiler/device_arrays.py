"""Arrays of NumPy's as JAX's, and functions of them."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree


def to_device(x: Any) -> Array:
    """As `jnp.asarray`, which compiles a program for every shape and type that NumPy gives it; this does not."""
    if not isinstance(x, np.ndarray):
        return jnp.asarray(x)
    return jax.device_put(np.array(x))  # a copy: JAX may keep using the memory of its argument


def compile_and_run(fn: Callable[..., PyTree], *args: PyTree) -> PyTree:
    """Return fn(*args) of concrete arrays, computed by one program, even while JAX is tracing.

    Under `jax.ensure_compile_time_eval` every operation on constants would be a separate program, inside `jit` too.
    """
    return jax.jit(fn).lower(*args).compile()(*args)
