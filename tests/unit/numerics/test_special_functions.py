"""Stumpff functions and their derivatives against mpmath, near machine precision on both sides of every switch."""

import math
from functools import cache

import jax
import mpmath
import numpy as np
import pytest

from coadjoint.numerics.special_functions import _switch, arctan, half_cot, stumpff

EPS = np.finfo(float).eps


def near(x):
    """x and its neighbours."""
    return [np.nextafter(x, 0), x, np.nextafter(x, np.inf)]


POINTS = np.array(
    [0.0, 1e-300, 1e-16, 1e-8, 1e-4, 0.1, 0.7, 1.0, 1.9, 2.1, 3.0, 5.0, 9.0, 15.0, 20.0, 30.0, 39.0]
    + [y for k in range(9) for y in near(_switch(k))]
)


@cache
def exact_stumpff(k, x, derivative=0):
    """Σ_j (−x)^j / (2j + k)!, differentiated term by term, in 60 digits."""
    with mpmath.workdps(60):
        x, total = mpmath.mpf(float(x)), mpmath.mpf(0)
        for j in range(derivative, 50):
            total += (-1) ** j * math.perm(j, derivative) * x ** (j - derivative) / math.factorial(2 * j + k)
        return total


def exact_half_cot(x, derivative=0):
    """The quotient, by Leibniz's rule from exact derivatives of numerator and denominator."""
    with mpmath.workdps(60):
        n = [exact_stumpff(3, x, d) / 2 - exact_stumpff(4, x, d) for d in range(3)]
        q = [exact_stumpff(2, x, d) for d in range(3)]
        f0 = n[0] / q[0]
        f1 = (n[1] - f0 * q[1]) / q[0]
        f2 = (n[2] - 2 * f1 * q[1] - f0 * q[2]) / q[0]
        return (f0, f1, f2)[derivative]


@cache
def compiled(fn, derivative):
    for _ in range(derivative):
        fn = jax.grad(fn)
    return jax.jit(jax.vmap(fn))


_STUMPFF = [lambda x, k=k: stumpff(k, x) for k in range(6)]


@pytest.mark.parametrize("k", range(6))
@pytest.mark.parametrize("derivative", range(3))
def test_stumpff(k, derivative):
    """Within a few ulps of the value at 0, the largest of all: c_k^(d)(0) = ± d!/(2d + k)!."""
    values = compiled(_STUMPFF[k], derivative)(POINTS)
    scale = math.factorial(derivative) / math.factorial(2 * derivative + k)
    for x, value in zip(POINTS, values, strict=True):
        error = abs(float(mpmath.mpf(float(value)) - exact_stumpff(k, x, derivative)))
        assert error <= (4, 4, 20)[derivative] * EPS * scale, (
            f"c_{k}^({derivative})({x!r}) is off by {error / (EPS * scale):.1f} ulps"
        )


@pytest.mark.parametrize("k", [0, 1, 2, 3])
def test_stumpff_in_words(k):
    """c₀ = cos θ, c₁ = sin θ/θ, c₂ = (1 − cos θ)/θ², c₃ = (θ − sin θ)/θ³."""
    t = 2.5
    closed = [np.cos(t), np.sin(t) / t, (1 - np.cos(t)) / t**2, (t - np.sin(t)) / t**3]
    assert float(stumpff(k, t**2)) == pytest.approx(closed[k], rel=1e-15)


def test_stumpff_far_away():
    """Large angles, where only the closed form will do."""
    for k in range(6):
        for x in (100.0, 1e4):
            t = mpmath.sqrt(x)
            c = mpmath.cos(t) if k % 2 == 0 else mpmath.sin(t) / t
            for i in range(k % 2, k, 2):
                c = (1 / mpmath.factorial(i) - c) / x
            assert float(stumpff(k, x)) == pytest.approx(float(c), rel=1e-13, abs=1e-15)


@pytest.mark.parametrize("derivative", range(3))
def test_half_cot(derivative):
    """(1 − (θ/2) cot(θ/2))/θ² and derivatives within a few ulps of its value, more only towards its pole at θ = 2π."""
    points = POINTS[POINTS < 39.4]
    for x, value in zip(points, compiled(half_cot, derivative)(points), strict=True):
        condition = (2 * np.pi) ** 2 / ((2 * np.pi) ** 2 - x)
        error = abs(float(mpmath.mpf(float(value)) - exact_half_cot(x, derivative)))
        ulps = error / (EPS * float(exact_half_cot(x)))
        assert ulps <= 6 * condition ** (derivative + 1), f"{ulps:.1f} ulps at {x!r}"


def test_half_cot_at_zero():
    """1/12 + x/720 + x²/30240 + …"""
    assert [float(compiled(half_cot, d)(POINTS[POINTS < 39.4])[0]) for d in range(3)] == pytest.approx(
        [1 / 12, 1 / 720, 2 / 30240], rel=1e-14
    )


def test_forward_and_reverse_agree():
    fn = lambda x: stumpff(2, x) * half_cot(x)
    x = np.array([0.0, 1e-8, 2.0, 7.0])
    forward = jax.jit(jax.vmap(jax.jacfwd(jax.jacfwd(fn))))(x)
    backward = jax.jit(jax.vmap(jax.jacrev(jax.jacrev(fn))))(x)
    np.testing.assert_allclose(forward, backward, rtol=1e-13)


@cache
def exact_arctan(k, x, derivative):
    """∫₀¹ t^{k−1}/(1 + x t²) dt, differentiated under the integral."""
    with mpmath.workdps(40):
        x = mpmath.mpf(float(x))
        factor = (-1) ** derivative * math.factorial(derivative)
        return mpmath.quad(
            lambda t: factor * t ** (k - 1 + 2 * derivative) / (1 + x * t**2) ** (derivative + 1), [0, 1]
        )


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("derivative", range(2))
def test_arctan(k, derivative):
    """Values to a few ulps, derivatives to a few more, at any angle."""
    points = np.array([0.0, 1e-300, 1e-8, 0.05, 0.3, 1.0, 10.0, 1e3, 1e8])
    found = compiled(_ARCTAN[k], derivative)(points)
    truth = np.array([float(exact_arctan(k, x, derivative)) for x in points])
    np.testing.assert_allclose(found, truth, rtol=2e-15 if derivative == 0 else 1e-14)


_ARCTAN = {k: lambda x, k=k: arctan(k, x) for k in (1, 3)}
