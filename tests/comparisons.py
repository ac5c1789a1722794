"""Comparison of trees of arrays: bitwise, to a tolerance, and relative to their size."""

import jax
import numpy as np


def pairs(a, b):
    """The arrays of two trees, side by side. A list is an array; trees have dictionaries and tuples."""
    leaves = (jax.tree.leaves(tree, is_leaf=lambda x: isinstance(x, list)) for tree in (a, b))
    return [(np.asarray(x), np.asarray(y)) for x, y in zip(*leaves, strict=True)]


def same_bits(a, b):
    """The arrays of two trees are bitwise identical, or equal zeros, or NaNs at the same places."""
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y))


def close(a, b, atol=1e-13, rtol=0.0):
    """The arrays of two trees differ by at most atol + rtol·|b|."""
    for x, y in pairs(a, b):
        np.testing.assert_allclose(x, y, rtol=rtol, atol=atol)


def close_to_round_off(a, b):
    """Numbers of order one that XLA computed in batches of different shapes, which its rounding depends on."""
    close(a, b, atol=1e-15, rtol=1e-15)


def close_in_size(a, b, tol, least=1.0):
    """The arrays of two trees differ by at most tol times the largest entry of b, at least `least`."""
    for x, y in pairs(a, b):
        np.testing.assert_allclose(x, y, rtol=0, atol=tol * max(least, np.max(np.abs(y), initial=0.0)))
