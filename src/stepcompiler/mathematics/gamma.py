"""log |Γ(x)|.

From 10 on by Stirling's series. Below, with 1.5 ≤ w = x − n < 2.5, log Γ(x) = log Γ(w) + log(w (w + 1) … (x − 1)),
the first by a polynomial that vanishes at w = 2, all in pairs. Left of ½, Γ(x) Γ(1 − x) = π/sin(πx). At its zeros
among the negative numbers it is a difference of two numbers that agree in all but their last digits, so that its
error is absolute.
"""

from .coefficients import COS, HALF_LOG_2PI, LGAMMA, LOG_PI, PI, SIN, STIRLING
from .ir_number import (
    Number,
    Pair,
    choose,
    fast_sum,
    fma,
    minus,
    plus,
    polynomial,
    polynomial_of_pairs,
    times,
    two_sum,
    where,
)
from .logarithm import log, log_to_twice_the_digits

_LARGE = 10.0
_INFINITY = float("inf")


def lgamma(x: Number) -> Number:
    """log |Γ(x)|."""
    mirrored = x < 0.5
    v = choose(mirrored, two_sum(1.0, -where(mirrored, x, 0.0)), (x, 0.0))
    large = v[0] >= _LARGE
    near = _near(choose(large, (2.0, 0.0), v))
    out = choose(large, _stirling(choose(large, v, (_LARGE, 0.0))), near)
    sine = _log_sine(where(mirrored & (abs(x) > 2.0**-60), x, 0.25))
    there = plus((LOG_PI[0], LOG_PI[1]), minus(plus(sine, out)))
    h, low = choose(mirrored, there, out)
    whole = (x <= 0.0) & x.function("floor").equals(x)
    result = where(abs(h) < _INFINITY, h + low, h)
    result = where(abs(x) < 2.0**-60, -log(abs(x)), result)
    result = where(whole | abs(x).equals(_INFINITY) | (x > 2.6e305), _INFINITY, result)
    return where(x.is_nan(), x, result)


def _log(x: Pair) -> Pair:
    """log x of a pair."""
    return plus(log_to_twice_the_digits(x[0]), (x[1] / x[0], 0.0))


def _near(v: Pair) -> Pair:
    """log Γ(v) for ½ ≤ v < 10."""
    n = (v[0] - 1.5).function("floor")
    z = fast_sum(v[0] - (n + 2.0), v[1])
    product: Pair = (1.0, 0.0)
    for j in range(8):
        p, q = two_sum(2.0 + j, z[0])
        product = choose(n > float(j), times(product, (p, q + z[1])), product)
    below = n < 0.0  # v < 1.5: Γ(v) = Γ(v + 1)/v
    other = _log(choose(below, v, product))
    return plus(times(z, polynomial_of_pairs(z, LGAMMA)), choose(below, minus(other), other))


def _stirling(v: Pair) -> Pair:
    """(v − ½) log v − v + ½ log 2π + …, for v ≥ 10."""
    inverse = 1.0 / v[0]
    series = inverse * polynomial(inverse * inverse, STIRLING)
    main = times(plus(v, (-0.5, 0.0)), plus(_log(v), (-1.0, 0.0)))
    return plus(main, plus((HALF_LOG_2PI[0] - 0.5, HALF_LOG_2PI[1]), (series, 0.0)))


def _log_sine(x: Number) -> Pair:
    """log |sin(πx)|; the nearest whole number does not matter."""
    f = abs(x - x.function("roundeven"))
    steep = f > 0.25
    r = times((where(steep, 0.5 - f, f), 0.0), (PI[0], PI[1]))
    z = r[0] * r[0]
    sine = fast_sum(r[0], fma(z * r[0], polynomial(z, SIN), fma(r[1], -0.5 * z, r[1])))
    c, rest = fast_sum(1.0, -0.5 * z)
    cosine = fast_sum(c, (rest - 0.5 * fma(r[0], r[0], -z)) + fma(z * z, polynomial(z, COS), -r[0] * r[1]))
    return _log(choose(steep, cosine, sine))
