"""Exponentials of elements of any size: arguments from a diverging iteration must not take for ever."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from coadjoint.algebras.exponentials import mean_flow, taylor
from coadjoint.algebras.su import exp_skew


def random_skew(n, size):
    a = np.random.default_rng(n).standard_normal((n, n))
    return size * (a - a.T) / np.linalg.norm(a - a.T)


@pytest.mark.parametrize("size", [0.3, 40.0, 63.9, 64.1, 3e4, 4e5])
def test_exponentials_of_any_size(size):
    """By substeps, and from 64 of them on by squarings: both against eigenvalues; rounding grows with the size."""
    a, v = random_skew(6, size), np.random.default_rng(1).standard_normal(6)
    norm2 = np.sum(a * a)
    lam, w = np.linalg.eigh(-1j * a)
    atol = 1e-15 * max(1.0, size) * np.linalg.norm(v)
    exact = lambda f: (w @ (f(1j * lam) * (w.conj().T @ v))).real
    np.testing.assert_allclose(jax.jit(taylor)(a, norm2, v), exact(np.exp), rtol=0, atol=3 * atol)
    np.testing.assert_allclose(jax.jit(mean_flow)(a, v), exact(lambda z: np.expm1(z) / z), rtol=0, atol=3 * atol)
    both = jax.jit(jax.vmap(lambda a, v: taylor(a, jnp.sum(a * a), v)))(np.stack([a, a / size]), np.stack([v, v]))
    np.testing.assert_allclose(both[1], scipy.linalg.expm(a / size) @ v, rtol=0, atol=1e-14)
    sigma = random_skew(3, size) + 1j * np.diag([1.0, 2.0, -3.0]) * size / 9
    u = np.asarray(jax.jit(exp_skew)(sigma))
    np.testing.assert_allclose(u @ u.conj().T, np.eye(3), rtol=0, atol=1e-14 * max(1.0, size))


@pytest.mark.parametrize("size", [0.9, 70.0, 3000.0, 5000.0])
def test_exponentials_in_large_dimensions_take_substeps_up_to_norm_4096(size):
    a, v = random_skew(24, size), np.random.default_rng(1).standard_normal(24)
    out = jax.jit(taylor)(a, np.sum(a * a), v)
    expected = np.full(24, np.nan) if size > 4096 else scipy.linalg.expm(a) @ v
    np.testing.assert_allclose(out, expected, rtol=0, atol=1e-14 * max(1.0, size))


def test_beyond_all_sizes_they_are_nan():
    """And known to be at once: 10¹² substeps would take days."""
    a = random_skew(6, 1e12)
    assert np.isnan(jax.jit(taylor)(a, np.sum(a * a), np.ones(6))).all()
    assert np.isnan(jax.jit(mean_flow)(a, np.ones(6))).all()
