"""Inverses of sin, cos and tan.

arctan(y/x): with a = min(|x|, |y|), b = max(|x|, |y|), the angle of a/b is that of u = a/b if a/b < tan(π/8), else
π/4 plus that of u = (a − b)/(a + b). So it is a multiple of π/4, in a pair, ± u (1 + u² P(u²)). arcsin(x) = x (1 + x²
P(x²)) up to ½, and beyond it π/2 − 2 arcsin √((1 − x)/2).
"""

from .coefficients import ASIN, ATAN, HALF_PI, PI
from .ir_number import Number, Pair, choose, fast_sum, fma, over, plus, polynomial, two_sum, where

_TAN_EIGHTH = 0.41421356237309503
_INFINITY = float("inf")
_HALF_PI: Pair = HALF_PI[0], HALF_PI[1]
_QUARTER_PI: Pair = HALF_PI[0] / 2, HALF_PI[1] / 2


def atan(x: Number) -> Number:
    """The angle of (1, x)."""
    out = _angle(abs(x), Number(x.code, x.like(1.0)))
    return where(abs(x) < 2.0**-28, x, out).signed(x)


def atan2(y: Number, x: Number) -> Number:
    """The angle of (x, y), from −π to π."""
    b, a = abs(x), abs(y)
    both = a.equals(_INFINITY) & b.equals(_INFINITY)
    a, b = where(both, 1.0, a), where(both, 1.0, b)
    nothing = b.equals(0.0) & a.equals(0.0)
    b = where(nothing, 1.0, b)
    most, least = where(a > b, a, b), where(a > b, b, a)
    scale = where(most > 2.0**800, 2.0**-100, where(least < 2.0**-800, 2.0**200, 1.0))
    out = _angle(a * scale, b * scale, x.bits() < 0)
    return where(x.is_nan() | y.is_nan(), x + y, out).signed(y)


def _angle(a: Number, b: Number, left: Number | None = None) -> Number:
    """The angle of (b, a), or of (−b, a) if it is to the left, for a, b ≥ 0."""
    steep = a > b
    low, high = where(steep, b, a), where(steep, a, b)
    middle = low > _TAN_EIGHTH * high
    endless = high.equals(_INFINITY)
    one = where(endless, 1.0, high)
    above = choose(middle, two_sum(low, -high), (low, 0.0))
    below = choose(middle, two_sum(low, one), (one, 0.0))
    u, rest = over((where(endless, 0.0, above[0]), where(endless, 0.0, above[1])), below)
    z = u * u
    rest = fma(u * z, polynomial(z, ATAN), fma(rest, -z, rest))
    base = choose(middle, _QUARTER_PI, (0.0, 0.0))
    # The angle is base + u, or π/2 minus it if it is steep, or π minus that to the left.
    turn = choose(steep, _HALF_PI, (0.0, 0.0))
    minus = steep
    if left is not None:
        turn = choose(left & ~steep, (PI[0], PI[1]), turn)
        minus = steep ^ left
    u, rest = where(minus, -u, u), where(minus, -rest, rest)
    base = plus(turn, choose(minus, (-base[0], -base[1]), base))
    h, low = fast_sum(base[0], u)
    return h + (low + (base[1] + rest))


def _arcsine(x: Number) -> tuple[Number, Number, Pair]:
    """Whether |x| ≤ ½, and arcsin of |x| or of √((1 − |x|)/2)."""
    a = abs(x)
    inside = a <= 0.5
    z = where(inside, a * a, 0.5 - 0.5 * a)
    root = where(inside, a, z.sqrt())
    rest = where(inside | z.equals(0.0), 0.0, fma(-root, root, z) / (2.0 * root))
    return inside, root, (root, fma(root * z, polynomial(z, ASIN), rest))


def asin(x: Number) -> Number:
    """The angle from −π/2 to π/2 whose sine is x."""
    inside, _, (s, low) = _arcsine(x)
    h, rest = fast_sum(HALF_PI[0], -2.0 * s)
    out = where(inside, s + low, h + (rest + fma(-2.0, low, HALF_PI[1])))
    out = where(abs(x) <= 1.0, out, float("nan"))
    return where(abs(x) < 2.0**-28, x, out).signed(x)


def acos(x: Number) -> Number:
    """The angle from 0 to π whose cosine is x: π/2 − arcsin x, or 2 arcsin √((1 − x)/2), or π minus that of −x."""
    inside, _, (s, low) = _arcsine(x)
    sign = where(x < 0.0, -1.0, 1.0)
    h, rest = fast_sum(HALF_PI[0], -sign * s)
    middle = h + (rest + fma(-sign, low, HALF_PI[1]))
    h, rest = fast_sum(PI[0], -2.0 * s)
    left = h + (rest + fma(-2.0, low, PI[1]))
    out = where(inside, middle, where(x < 0.0, left, 2.0 * (s + low)))
    return where(abs(x) <= 1.0, out, float("nan"))
