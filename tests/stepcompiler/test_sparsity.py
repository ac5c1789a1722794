"""Smooth programs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stepcompiler.jaxprs.sparsity import is_smooth

I = np.array([1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    ("smooth", "f"),
    [
        (True, lambda x: jnp.sum(x * x / I) / jnp.sqrt(2.0)),
        (True, lambda x: jnp.exp(-(x @ x)) + jnp.tanh(x[0]) * x[1] ** 3),
        (True, lambda x: jnp.roll(x, 1) @ x),
        (False, lambda x: jnp.linalg.norm(x)),
        (False, lambda x: jnp.log(1.0 - x[0])),
        (False, lambda x: x[0] / (1.0 + x @ x)),
        (False, lambda x: x[0] ** -2),
        (False, lambda x: jax.lax.while_loop(lambda s: s < 1.0, lambda s: s + 1.0, x[0])),
    ],
)
def test_smooth_programs(smooth, f):
    assert is_smooth(f, jax.ShapeDtypeStruct((3,), float)) is smooth
