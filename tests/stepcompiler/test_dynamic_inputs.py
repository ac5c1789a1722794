"""Shared numbers that are free: nothing is made for their values, and 0 and 1 are numbers like others."""

import jax
import jax.numpy as jnp
import numpy as np
from native_steps import called, made

from stepcompiler.kernel import constant_pattern, dynamic_input

X = np.array([[1.0, 2.0], [np.inf, 1.0], [np.nan, 0.5], [-np.inf, 3.0], [0.0, 0.0], [-1.0, 1e300]])
PROGRAMS = (
    lambda x, a: a * x + x * a[::-1],
    lambda x, a: x + a,
    lambda x, a: (x - a) * (a - x),
    lambda x, a: x / a,
    lambda x, a: a / x,
    lambda x, a: x * (a * a) + a[0] * a[1],
    lambda x, a: jnp.where(a == 0, x, a * x),
)


def test_nothing_of_it_is_in_the_code():
    """The pattern is the same whatever the values are, so that passing through 0 or 1 makes no new code."""
    assert (
        dynamic_input(np.array([0.0, 1.0]))
        == dynamic_input(np.array([0.5, 2.0]))
        == dynamic_input(jnp.zeros(2))
        == ((2,), "float64", (None, None))
    )
    assert dynamic_input(3) == dynamic_input(4) and dynamic_input(True) == dynamic_input(False)
    assert constant_pattern(np.array([0.0, 0.5])) != constant_pattern(np.array([0.5, 0.5]))


def test_infinity_and_nan_travel_as_in_xla():
    """One and the same code, given 0, 1, −0, ∞ and ordinary numbers one after the other."""
    for fn in PROGRAMS:
        native = made(fn, X, patterns=[dynamic_input(np.zeros(2))])
        for a in ([0.5, 2.0], [0.0, 1.0], [1.0, 0.0], [-0.0, np.inf], [np.nan, 0.0]):
            shared = (np.array(a),)
            out, valid = called(native, X, shared)
            assert valid.all()
            np.testing.assert_allclose(out, jax.vmap(fn, (0, None))(X, jnp.array(a)), rtol=1e-15)


def test_a_divisor_whose_inverse_is_out_of_range():
    """A quotient is a product with the inverse, except where that would be wrong: then no step is taken."""
    native = made(lambda x, a: x / a, X, patterns=[dynamic_input(np.zeros(()))])
    for a in 1e-310, 1e308:
        assert not called(native, X, (np.array(a),))[1].any()
    out, _ = called(made(lambda x: x / 1e308, X), X)
    np.testing.assert_array_equal(out, X / 1e308)


def test_the_sign_of_zero_is_no_part_of_a_pattern():
    """0 and −0 are equal, so that code made for the one would be taken for the other: −0 is an input."""
    for dtype in (float, np.float32, complex):
        zero, minus = np.zeros(2, dtype), -np.zeros(2, dtype)
        assert constant_pattern(zero) != constant_pattern(minus) and constant_pattern(minus)[2] == (None,) * len(
            constant_pattern(minus)[2]
        )
    fn = lambda x, a: jnp.arctan2(a, -jnp.abs(x))
    for a in (np.array([0.0, -0.0]), np.array([-0.0, 0.0]), np.array([-0.0, -0.0])):
        np.testing.assert_allclose(called(made(fn, X[:2], [a]), X[:2], [a])[0], np.arctan2(a, -np.abs(X[:2])))
