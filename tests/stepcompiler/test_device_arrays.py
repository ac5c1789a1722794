"""Arrays of NumPy's as JAX's."""

import jax
import jax.numpy as jnp
import numpy as np

from stepcompiler.device_arrays import to_device


def test_no_program_is_compiled_and_memory_is_not_shared(compilations):
    """For shapes that occur for the first time; what NumPy does to its array later is its own."""
    given = np.arange(1009.0)
    expected = given.copy()
    with compilations() as count:
        array = to_device(given)
    assert count.n == 0 and isinstance(array, jax.Array) and array.dtype == jnp.float64
    given[:] = 0.0
    np.testing.assert_array_equal(array, expected)


def test_it_is_what_jax_makes_of_it():
    for x in (np.arange(3), np.ones((2, 0)), np.array(1j), np.float64(2.0), 1.5, [1, 2], jnp.ones(2)):
        a, b = to_device(x), jnp.asarray(x)
        assert (a.shape, a.dtype, a.aval.weak_type) == (b.shape, b.dtype, b.aval.weak_type)
    programs = [str(jax.make_jaxpr(lambda x, f=f: x + f(np.ones(3)))(1.0)) for f in (to_device, jnp.asarray)]
    assert programs[0] == programs[1]
