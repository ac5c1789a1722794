"""The error function, its complement, its inverse.

erf(x) = x (1 + P(x²)) up to 1. erfc(x) = exp(−x²) P(t)/(1 + 2x), t = (x − 4)/(x + 4), for all x ≥ 0 (M. Shepherd and
J. Laframboise, 1981), the last terms in pairs. The inverse is a coarse fit (in the variables of M. Giles, 2012), and
one step of Halley's.
"""

from .coefficients import ERF, ERFC, ERFINV, ERFINV_TAIL, TWO_OVER_ROOT_PI
from .exponential import clamped, exp, exp_pair
from .ir_number import (
    Number,
    Pair,
    choose,
    fast_sum,
    fma,
    minus,
    over,
    plus,
    polynomial,
    polynomial_of_pairs,
    scaled,
    times,
    two_product,
    two_sum,
    where,
)
from .logarithm import log1p


def _erf_near(x: Number) -> Pair:
    """erf x for |x| ≤ 1."""
    z, z_low = two_product(x, x)
    h, low = polynomial_of_pairs((z, z_low), ERF)
    p, q = times((h, low), (x, 0.0))
    s, t = fast_sum(x, p)
    return s, t + q


def _erfc_far(x: Number) -> tuple[Pair, Number]:
    """erfc x = (pair) 2^k for x ≥ 0."""
    t, t_low = over(fast_sum(*two_sum(-4.0, x)), fast_sum(*two_sum(4.0, x)))
    shape = fast_sum(*polynomial_of_pairs((t, t_low), ERFC))
    square, low = two_product(x, x)
    e, k = exp_pair(-square, -low)
    return times(over(shape, fast_sum(*two_sum(1.0, 2.0 * x))), e), k


def erf(x: Number) -> Number:
    """(2/√π) ∫₀ˣ exp(−t²) dt."""
    a = abs(x)
    near = a < 1.0
    h, low = _erf_near(where(near, a, 0.0))
    far, k = _erfc_far(clamped(a, 1.0, 7.0))
    c = scaled(far[0], k)
    out = where(near, h + low, 1.0 - c)
    return where(a < 2.0**-500, 1.1283791670955126 * x, where(x.is_nan(), x, out)).signed(x)


def erfc(x: Number) -> Number:
    """1 − erf x."""
    a = abs(x)
    (h, low), k = _erfc_far(clamped(a, 0.0, 28.0))
    positive = scaled(h + low, k)
    c, c_low = scaled(h, k), scaled(low, k)
    s, t = fast_sum(2.0, -c)
    return where(x.is_nan(), x, where(x < 0.0, s + (t - c_low), positive))


def erf_inv(x: Number) -> Number:
    """y with erf y = x, by Halley's step y − u/(1 + u y) from a y near by, u = (erf y − x)/erf′(y)."""
    a = abs(x)
    inside = a < 1.0
    b = where(inside & (a > 2.0**-500), a, 0.5)
    w = -log1p(-b * b)
    slope = where(w < 6.25, polynomial(w - 3.0, ERFINV), polynomial(w.sqrt() - 4.0, ERFINV_TAIL))
    y = slope * b
    near = y < 1.0
    error = plus(_erf_near(where(near, y, 0.0)), (-b, 0.0))
    far, k = _erfc_far(where(near, 1.0, y))
    missing = plus(fast_sum(1.0, -b), minus((scaled(far[0], k), scaled(far[1], k))))
    h, low = choose(near, error, missing)
    u = (h + low) / (TWO_OVER_ROOT_PI[0] * exp(-y * y))
    out = y - u / fma(u, y, 1.0)
    out = where(a > 2.0**-500, out, 0.886226925452758 * a)
    return where(inside, out, where(a.equals(1.0), float("inf"), float("nan"))).signed(x)
