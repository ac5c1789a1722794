"""Inversion-free functions of matrices, and the solver of the stages that uses them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matrix_flows import skew

from coadjoint.fluids import laplacians as dg
from coadjoint.integrators import extrapolation, matrix_products, su_n_series
from coadjoint.integrators.su_n_solver import Rule, _Step, products_step, tanh
from coadjoint.numerics import split_complex as sc
from stepcompiler.jaxprs import mixed_precision


def test_tanh_and_its_reach():
    n = 20
    for size, exact in ((0.05, True), (0.2, True), (0.6, False)):
        S = skew(n, size)
        lam, v = np.linalg.eigh(-1j * np.asarray(S))
        want = (v * (1j * np.tan(lam))) @ v.conj().T
        a, left = jax.jit(tanh)(sc.pair(S))
        error = np.abs(np.asarray(sc.unpair(a, n)) - want).max() / np.abs(want).max()
        assert (error < 1e-12) == exact == (float(left) < 1e-12), (size, error, left)


@jax.jit
def _mean_state(W, S, both):
    got, left = _Step(Rule(False, True, 1e-13, 30), W, lambda X: X, None).mean_state(sc.pair(S), sc.pair(both))
    return sc.unpair(got, len(W)), left


@pytest.mark.parametrize(("size", "exact"), [(0.02, True), (0.1, True), (0.5, False), (1.3, False)])
def test_the_mean_state_and_its_reach(size, exact):
    """φ₁(2 ad_S) W from the mean of the ends, by eigenvalues λ of −iS: (e^{id} − 1)/id of entries, d = 2(λ_i − λ_j)."""
    n = 20
    S, W = skew(n, size), skew(n, 2.0, 1)
    lam, v = np.linalg.eigh(-1j * np.asarray(S))
    d = 2 * (lam[:, None] - lam) + 1e-300
    inside = v.conj().T @ np.asarray(W) @ v
    turned = v @ (np.exp(1j * d) * inside) @ v.conj().T
    want = v @ (np.where(abs(d) < 1e-9, 1, np.expm1(1j * d) / (1j * d)) * inside) @ v.conj().T
    got, left = _mean_state(W, S, (turned - np.asarray(W)) / 2)
    error = np.abs(np.asarray(W) + np.asarray(got) - want).max() / np.abs(want).max()
    assert (error < 3e-13) == exact == (float(left) < 1e-13), (error, left)


def test_products_of_pairs():
    n = 70
    levels = sc.Level.DOUBLE, sc.Level.FINE, sc.Level.LOW, sc.Level.LEAST

    @jax.jit
    def products(A, B):
        a, b = sc.pair(A), sc.pair(B)
        square = sc.symmetric_product(a, a, sc.Level.DOUBLE, 1)
        return [sc.unpair(x, n) for x in (*(sc.product(a, b, level) for level in levels), square)]

    A, B = np.asarray(skew(n, 1.0, 1)), np.asarray(skew(n, 1.0, 2))
    got, *roughly, square = products(A, B)
    want = A @ B
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-15)
    assert len(roughly) == 3
    for rough in roughly:
        assert np.abs(np.asarray(rough) - want).max() < 1e-2 * np.abs(want).max()
    np.testing.assert_allclose(square, A @ A, rtol=0, atol=1e-15)
    np.testing.assert_array_equal(np.asarray(square), np.asarray(square).conj().T)


@pytest.mark.parametrize(("sign", "right"), [(-1, -1), (1, -1), (1, 1), (-1, 1)])
def test_symmetric_products_by_two_real_ones(sign, right):
    """As exact as any product, and symmetric to the last bit, at an odd size and in both precisions."""
    n = 23
    S, W = np.asarray(skew(n, 1.0, 1)), np.asarray(skew(n, 1.0, 2))
    A, B = {(-1, -1): (S @ W, S), (1, -1): (S, S), (1, 1): (S @ S, S @ S @ S @ S), (-1, 1): (S, S @ S)}[sign, right]
    levels = {sc.Level.DOUBLE: 1e-15, sc.Level.LOW: 1e-6}

    @jax.jit
    def products(A, B):
        a, b = sc.pair(A), sc.pair(B)
        return [sc.unpair(sc.symmetric_product(a, b, level, sign, right), n) for level in levels]

    for got, error in zip(map(np.asarray, products(A, B)), levels.values(), strict=True):
        np.testing.assert_allclose(got, A @ B, rtol=0, atol=error)
        np.testing.assert_array_equal(got, sign * got.conj().T)


@jax.jit
def _one_less(s):
    E, digits, _ = su_n_series.inverse_minus_one(sc.pair(s).astype(sc.F32), False)
    return sc.unpair(E, len(s)), digits


@pytest.mark.parametrize("size", [0.02, 0.3])
def test_the_inverse_that_corrections_use_says_how_exact_it_is(size):
    """(1 − s)⁻¹ − 1 by three products: with an error below the reported bound, which is not much too large."""
    n = 33
    s = skew(n, size, 5)
    E, digits = _one_less(s)
    want = np.linalg.inv(np.eye(n) - np.asarray(s)) - np.eye(n)
    error = np.linalg.norm(np.asarray(E) - want) / np.linalg.norm(want)
    assert error < 3 * float(digits) and (size < 0.1 or float(digits) < 100 * error)


def test_fields_of_corrections_are_in_single_precision():
    """If they have no loops: the same to seven digits; with one, in double."""
    x = np.asarray(skew(9, 1.0, 1)).astype(np.complex64)
    field = lambda X: dg.apply_symbol(dg.inverse_squared, X)
    got = jax.jit(lambda X: mixed_precision.single_precision(field, X))(x)
    assert got.dtype == np.complex64
    np.testing.assert_allclose(got, jax.jit(field)(x.astype(complex)), rtol=0, atol=1e-6)
    looped = lambda X: jax.lax.fori_loop(0, 2, lambda _, Y: 2.0 * Y, X)
    assert jax.jit(lambda X: mixed_precision.single_precision(looped, X))(x).dtype == np.complex128


def test_a_trace_is_left_out():
    """By its n entries: what is left has none, and is X elsewhere."""
    X = np.asarray(skew(9, 1.0, 1)) + 0.7j * np.eye(9)
    got = np.asarray(matrix_products._without_trace(jnp.asarray(X)))
    np.testing.assert_allclose(got, X - np.trace(X) / 9 * np.eye(9), rtol=0, atol=1e-15)


def test_the_polynomial_through_the_last_steps():
    """Exact for the polynomial whose degree fits, and where a path is rough not of a high degree."""
    n, dt, one = 5, np.asarray(0.1), np.ones(())
    append_step, extrapolate = jax.jit(extrapolation.append_step), jax.jit(extrapolation.extrapolate)
    matrix = lambda t: np.stack([np.full((n, n), t), np.full((n, n), t**3 - t)])

    def after(path):
        kept = extrapolation.empty_history((n, n))
        for k, x in enumerate(path):
            kept = append_step(kept, extrapolation.Prediction(x, x, x, one, one, np.asarray(k)), dt)
        return kept

    times = 0.1 * np.arange(13)
    found = extrapolate(after(map(matrix, times)), dt, one)
    np.testing.assert_allclose(found.D, matrix(1.3), rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.S, found.D)
    assert bool(found.near)
    other = extrapolate(after(map(matrix, times)), 2 * dt, one)
    assert int(other.known) == 0 and not bool(other.near)
    rough = [np.random.default_rng(k).normal(size=(2, n, n)) for k in range(13)]
    found = extrapolate(after(rough), dt, one)
    assert not bool(found.near) and float(jnp.abs(found.D).max()) < 10


def test_a_defect_is_driven_to_round_off_and_reported():
    n = 9
    W = skew(n, 2.0)
    field = lambda X: 0.3 * dg.apply_symbol(dg.inverse_squared, X)
    step = jax.jit(lambda most: products_step(Rule(True, False, 1e-3, most), W, field))  # one program for both
    few = step(1)
    assert not bool(few.converged)  # one evaluation leaves a defect that its correction does not bring to round-off
    many = step(30)
    assert bool(many.converged) and float(many.residual) < 1e-3
