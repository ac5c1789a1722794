"""Double-double arithmetic against fractions: exact operations, 30 digits in the others, compiled and mapped."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coadjoint.numerics import doubledouble as dd
from coadjoint.numerics.doubledouble import DoubleDouble

TINY = Fraction(1, 2**100)
numbers = st.floats(-1e9, 1e9).map(lambda x: x if abs(x) > 1e-60 else 0.0)

# One program for all: compiled, and mapped over 4 pairs at once.
two_sum = jax.jit(jax.vmap(dd.two_sum))
two_prod = jax.jit(jax.vmap(dd.two_prod))
add = jax.jit(jax.vmap(dd.add))
multiply = jax.jit(jax.vmap(dd.multiply))
expm_action = jax.jit(jax.vmap(dd.expm_action))


def value(x, i=...):
    """hi + lo, exactly."""
    return Fraction(float(np.asarray(x.hi)[i])) + Fraction(float(np.asarray(x.lo)[i]))


def fractions(a):
    return [Fraction(float(x)) for x in a]


def normalised(x):
    """|lo| ≤ ulp(hi)/2, so that hi is the nearest double."""
    return bool(np.all(np.asarray(x.hi + x.lo) == np.asarray(x.hi)))


fours = st.tuples(*[st.lists(numbers, min_size=4, max_size=4).map(np.array)] * 2)


@given(fours)
def test_two_sum_is_exact(pair):
    a, b = pair
    s = two_sum(a, b)
    assert [value(s, i) for i in range(4)] == [x + y for x, y in zip(fractions(a), fractions(b), strict=True)]
    np.testing.assert_array_equal(s.hi, a + b)


@given(fours)
def test_two_prod_has_105_bits(pair):
    a, b = pair
    p = two_prod(a, b)
    for i, (x, y) in enumerate(zip(fractions(a), fractions(b), strict=True)):
        assert abs(value(p, i) - x * y) <= abs(x * y) / 2**104
    assert normalised(p)


def test_two_prod_of_doubles_that_fill_their_mantissa():
    """(1 + 2^-52)² = 1 + 2^-51 + 2^-104: the last bit counts."""
    x = np.full(4, 1 + 2.0**-52)
    exact_square = (1 + Fraction(1, 2**52)) ** 2
    assert abs(value(two_prod(x, x), 0) - exact_square) <= Fraction(1, 2**104)
    assert abs(value(two_prod(x, x), 0) - exact_square) < abs(Fraction(float(x[0] * x[0])) - exact_square)


def doubles(pair):
    """Two arrays as one array of double-doubles: the second far below the first."""
    a, b = pair
    return DoubleDouble(a, np.asarray(b) * 2.0**-53 * np.abs(a) / 1e9 / 2)


@given(fours, fours)
def test_add_and_multiply_have_thirty_digits(p, q):
    x, y = doubles(p), doubles(q)
    s, m = add(x, y), multiply(x, y)
    for i in range(4):
        a, b = value(x, i), value(y, i)
        assert abs(value(s, i) - (a + b)) <= TINY * (abs(a) + abs(b))
        assert abs(value(m, i) - a * b) <= TINY * abs(a * b)
    assert normalised(s) and normalised(m)


def test_cancellation_keeps_the_low_words():
    """(1 + 2^-80) − 1 = 2^-80."""
    x = DoubleDouble(np.ones(4), np.full(4, 2.0**-80))
    y = DoubleDouble(-np.ones(4), np.zeros(4))
    assert value(add(x, y), 0) == Fraction(1, 2**80)


def test_contract_and_matvec():
    rng = np.random.default_rng(0)
    T, v = rng.standard_normal((3, 4, 5)), rng.standard_normal(5)
    got = jax.jit(dd.contract)(T, v)
    for m in range(3):
        for n in range(4):
            exact_sum = sum(x * y for x, y in zip(fractions(T[m, n]), fractions(v), strict=True))
            assert abs(value(got, (m, n)) - exact_sum) < Fraction(1, 10**30)
    w = DoubleDouble(rng.standard_normal(4), 1e-17 * rng.standard_normal(4))
    moved = jax.jit(dd.matvec)(got, w)
    for m in range(3):
        assert abs(value(moved, m) - sum(value(got, (m, n)) * value(w, n) for n in range(4))) < Fraction(1, 10**30)


@pytest.mark.parametrize("size", [0.0, 1e-20, 0.3, 1.0, 7.5, 40.0])
def test_expm_action(size):
    """exp(a) v by substeps of a Taylor series agrees with exact arithmetic to 1e-29, also when mapped."""
    rng = np.random.default_rng(1)
    skew = rng.standard_normal((2, 4, 4))
    skew = size * (skew - skew.transpose(0, 2, 1)) / 4
    v = rng.standard_normal((2, 4))
    zero, low = jnp.zeros((2, 4, 4)), jnp.zeros((2, 4))
    got = expm_action(DoubleDouble(skew, zero), DoubleDouble(v, low))
    for i in range(2):
        # oracles.flow_residual takes exp(ad*_σ) μ with ad*_σ = Σ_i σ_i C[i]: here one generator, C[0] = a.
        C = np.zeros((4, 4, 4))
        C[0] = skew[i]
        error = oracles.flow_residual(C, np.array([1.0, 0, 0, 0]), v[i], got.hi[i], got.lo[i])
        assert np.max(np.abs(error)) < 1e-29 * max(size, 1.0) * np.linalg.norm(v[i])
    assert normalised(got)
