"""Matrices by their wrapped diagonals: what is written comes back, and the inverse Laplacians invert."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from coadjoint.fluids import laplacians as dg
from coadjoint.models import matrix_to_fourier


def skew(n, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((n, n)) + 1j * rng.standard_normal((n, n))
    a = a - a.conj().T
    return jnp.asarray(a - np.trace(a) / n * np.eye(n))


def spin(n):
    """S_x, S_y, S_z."""
    s = (n - 1) / 2
    r = np.sqrt((np.arange(n - 1) + 1.0) * (n - 1 - np.arange(n - 1)))
    up = np.diag(r, 1)
    return (up + up.T) / 2, (up - up.T) / 2j, np.diag(s - np.arange(n))


there_and_back = jax.jit(lambda W: dg.from_diagonals(dg.diagonals(W)))
minus_laplacian = jax.jit(dg.minus_laplacian)
inverse_on_sphere = jax.jit(dg.inverse_on_sphere)


@pytest.mark.parametrize("n", [2, 3, 8, 9])
def test_diagonals_come_back_to_the_last_bit(n):
    W = skew(n)
    back = there_and_back(W)
    np.testing.assert_array_equal(np.asarray(back), np.asarray(W))
    noisy = there_and_back(W + 0.1)  # what is not skew-Hermitian is made so, exactly
    np.testing.assert_array_equal(np.asarray(noisy), -np.asarray(noisy).conj().T)


def test_a_symbol_on_the_torus_multiplies_fourier_coefficients():
    n = 9
    W = skew(n)
    m = np.where(np.arange(n) <= n // 2, np.arange(n), np.arange(n) - n)
    symbol = lambda m1, m2: 1.0 + m1 * m1 + 3.0 * m2 * m2 + 0.5 * m1 * m2
    got = matrix_to_fourier(jax.jit(lambda W: dg.apply_symbol(symbol, W))(W), "paper")
    want = matrix_to_fourier(W, "paper") * symbol(m[:, None], m[None])
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-13 * float(jnp.abs(want).max()))


@pytest.mark.parametrize("n", [3, 8, 9])
def test_the_laplacian_of_the_sphere_is_the_double_bracket_with_spins(n):
    W = np.asarray(skew(n))
    want = sum(a @ (a @ W - W @ a) - (a @ W - W @ a) @ a for a in spin(n))
    np.testing.assert_allclose(minus_laplacian(jnp.asarray(W)), want, rtol=0, atol=1e-13 * np.abs(want).max())


@pytest.mark.parametrize("n", [2, 8, 33])
@pytest.mark.parametrize("screening", [0.0, 2.5])
@pytest.mark.parametrize("parallel", [False, True])
def test_the_inverse_laplacian_of_the_sphere_inverts(n, screening, parallel):
    W = skew(n)
    P = inverse_on_sphere(dg.sphere_solve(n, screening, parallel), W)
    np.testing.assert_array_equal(np.asarray(P), -np.asarray(P).conj().T)
    back = minus_laplacian(P) + screening * P
    np.testing.assert_allclose(back, W, rtol=0, atol=1e-12 * float(jnp.abs(W).max()))


def test_no_large_constants_and_no_scatters():
    n = 65
    solve = dg.sphere_solve(n)
    for f in (lambda W, s: dg.inverse_on_sphere(s, W), lambda W, s: dg.apply_symbol(dg.inverse_squared, W)):
        jaxpr = jax.make_jaxpr(f)(skew(n), solve)
        assert "scatter" not in str(jaxpr)
        assert all(np.size(c) < n for c in jaxpr.consts)
