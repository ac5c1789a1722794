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
    return jax.device_put(np.array(x))  # a copy: JAX may go on to use the memory that it is given


def compile_and_run(fn: Callable[..., PyTree], *args: PyTree) -> PyTree:
    """fn(*args) of known arrays as one program, also where JAX is tracing something else.

    Under `jax.ensure_compile_time_eval` every operation on constants would be a program of its own, inside `jit` too.
    """
    return jax.jit(fn).lower(*args).compile()(*args)
