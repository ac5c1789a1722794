"""x^y and the cube root."""

from .coefficients import CBRT
from .exponential import exp_pair
from .ir_number import Number, fma, polynomial, power_of_two, scaled, two_product, where
from .logarithm import log_to_twice_the_digits

_INFINITY = float("inf")


def power(x: Number, y: Number) -> Number:
    """x^y = exp(y log |x|), log to some 70 bits; signs and ends as in C."""
    a = abs(x)
    h, low = log_to_twice_the_digits(a)
    p, q = two_product(y, h)
    far = abs(p) > 800.0
    q = where(far, 0.0, fma(y, low, q))
    p = where(far, where(p > 0.0, 800.0, -800.0), p)
    (h, low), k = exp_pair(where(p.is_nan(), 0.0, p), where(q.is_nan(), 0.0, q))
    out = scaled(h + low, k)
    # 0 and ∞, to powers that are positive or negative; and powers ±∞.
    out = where(a.equals(0.0), where(y < 0.0, _INFINITY, 0.0), out)
    out = where(a.equals(_INFINITY), where(y < 0.0, 0.0, _INFINITY), out)
    grows = (a > 1.0) ^ (y < 0.0)
    endless = where(a.equals(1.0), 1.0, where(grows, _INFINITY, 0.0))
    out = where(abs(y).equals(_INFINITY), endless, out)
    # Of a negative number: only whole powers, and odd ones are negative.
    whole = y.function("floor").equals(y)
    half = 0.5 * y
    odd = whole & ~half.function("floor").equals(half)
    negative = x.bits() < 0
    out = where(negative & odd, -out, out)
    out = where((x < 0.0) & (a < _INFINITY) & ~whole, float("nan"), out)
    out = where(x.is_nan() | y.is_nan(), x + y, out)
    return where(x.equals(1.0) | y.equals(0.0), 1.0, out)


def cbrt(x: Number) -> Number:
    """The cube root: of m = 2^−3k |x| in [½, 4) by two steps of an iteration of third order for m^(−⅓)."""
    a = abs(x)
    small = a < 2.0**-1022
    bits = where(small, a * 2.0**54, a).bits()
    exponent = (bits >> 52) - 1022  # |x| = 2^exponent m, ½ ≤ m < 1
    third = ((exponent.whole() + 0.9) * (1.0 / 3.0)).function("floor")
    k = (third + 6755399441055744.0).bits() - 0x4338000000000000
    m = ((bits & 0x000FFFFFFFFFFFFF) | (1022 << 52)).as_real() * power_of_two(exponent - k * 3)
    z = polynomial(m - 2.0, CBRT)
    for _ in range(2):
        e = fma(-m * z, z * z, 1.0)
        z = fma(z * e, fma(e, 2.0 / 9.0, 1.0 / 3.0), z)
    c = m * z * z
    square, low = two_product(c, c)
    rest = fma(-square, c, m) - low * c
    root = fma(rest, z * z * (1.0 / 3.0), c)
    out = scaled(root, where(small, k - 18, k)).signed(x)
    return where((a < _INFINITY) & (a > 0.0), out, x)
