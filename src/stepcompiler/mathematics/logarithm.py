"""log and functions derived from it.

x = 2^k (1 + f) with √½ ≤ 1 + f < √2, s = f/(2 + f): log(1 + f) = f − f²/2 + s (f²/2 + s² P(s²)), the first two terms
in a pair. Where more digits are wanted (powers), log(1 + f) = 2 s (1 + s²/3 + s⁴/5 + s⁶ P(s²)) in pairs throughout.
"""

from .coefficients import ATANH, FIFTH, LN2_SHORT, LOG, LOG2E, THIRD
from .exponential import TINY
from .ir_number import (
    Number,
    Pair,
    fast_sum,
    fma,
    over,
    plus,
    polynomial,
    power_of_two,
    times,
    two_product,
    two_sum,
    where,
)

_ROOT_HALF = 0x3FE6A09E667F3BCD  # the bits of √½
_LARGE = 2.0**60


def split(x: Number) -> tuple[Number, Number]:
    """(2^−k x, k) with √½ ≤ 2^−k x < √2, for x > 0, subnormal ones included."""
    small = x < 2.0**-1022
    bits = where(small, x * 2.0**54, x).bits()
    k = (bits - _ROOT_HALF).shift_right(52)
    return (bits - (k << 52)).as_real(), where(small, k - 54, k)


def log1p_pair(f: Number, low: Number | None = None) -> Pair:
    """log(1 + f + low) for √½ ≤ 1 + f < √2."""
    s = f / (2.0 + f)
    z = s * s
    half = 0.5 * f
    p = half * f
    h = f - p
    rest = ((f - h) - p) - fma(half, f, -p)
    if low is not None:  # over 1 + f = (1 + s)/(1 − s)
        rest = rest + low * ((1.0 - s) * (1.0 - s * (1.0 - s * (1.0 - s))))
    return h, fma(s, fma(z, polynomial(z, LOG), p), rest)


def with_exponent(k: Number, log: Pair) -> Pair:
    """k log 2 + log."""
    times = k.whole()
    h, low = fast_sum(times * LN2_SHORT[0], log[0])
    return h, low + fma(times, LN2_SHORT[1], log[1])


def _ends(x: Number, out: Number) -> Number:
    """The values of a logarithm at 0, at ∞ and at negative numbers."""
    out = where(x.equals(float("inf")), x, out)
    out = where(x.equals(0.0), float("-inf"), out)
    out = where(x < 0.0, float("nan"), out)
    return where(x.is_nan(), x, out)


def log(x: Number) -> Number:
    """log x."""
    m, k = split(x)
    h, low = with_exponent(k, log1p_pair(m - 1.0))
    return _ends(x, h + low)


def log2(x: Number) -> Number:
    """log x/log 2."""
    m, k = split(x)
    p, q = times(fast_sum(*log1p_pair(m - 1.0)), LOG2E)
    h, low = fast_sum(k.whole(), p)
    return _ends(x, h + (low + q))


def of_one_plus(f: Number, low: Number | None = None, doubled: Number | None = None) -> Pair:
    """log(1 + f + low) for f > −1, to nearly twice the digits; plus log 2 where `doubled`."""
    u, rest = two_sum(f, 1.0)
    m, k = split(u)
    scale = power_of_two(where(k > 1000, -1000, 0 - k))
    g, g_low = two_sum(m - 1.0, rest * scale)
    log = log1p_pair(g, g_low if low is None else fma(low, scale, g_low))
    return with_exponent(k if doubled is None else where(doubled, k + 1, k), log)


def log1p(x: Number) -> Number:
    """log(1 + x)."""
    h, low = of_one_plus(where(x > -1.0, x, 0.0))
    out = where(abs(x) < TINY * TINY, x, h + low)
    out = where(x > -1.0, out, where(x.equals(-1.0), float("-inf"), float("nan")))
    return where(x.equals(float("inf")), x, out)


def asinh(x: Number) -> Number:
    """log(1 + a + a²/(1 + √(1 + a²))) with a = |x|; of a large one log 2a."""
    large = abs(x) > _LARGE
    a = where(large, 1.0, abs(x))
    square = two_product(a, a)
    h, low = fast_sum(*two_sum(square[0], 1.0))
    root = _root(h, low + square[1])
    f, f_low = plus((a, 0.0), over(square, plus((1.0, 0.0), root)))
    h, low = of_one_plus(where(large, abs(x), f), where(large, 0.0, f_low), large)
    out = where(abs(x) < TINY, x, h + low)
    return where(abs(x) < float("inf"), out, x).signed(x)


def acosh(x: Number) -> Number:
    """log(1 + t + √(t (t + 2))) with t = x − 1; of a large x log 2x."""
    large = x > _LARGE
    t = two_sum(where(large, 1.0, x), -1.0)
    square = times(t, plus(t, (2.0, 0.0)))
    f, f_low = plus(t, _root(*square))
    h, low = of_one_plus(where(large, x, f), where(large, 0.0, f_low), large)
    return where(x >= 1.0, where(x.equals(float("inf")), x, h + low), float("nan"))


def atanh(x: Number) -> Number:
    """½ log(1 + 2a/(1 − a)) with a = |x|."""
    a = where(abs(x) < 1.0, abs(x), 0.0)
    f, f_low = over((2.0 * a, 0.0), fast_sum(1.0, -a))
    h, low = of_one_plus(f, f_low)
    out = where(abs(x) < TINY, x, 0.5 * (h + low))
    out = where(abs(x).equals(1.0), float("inf"), out)
    return where(abs(x) <= 1.0, out, float("nan")).signed(x)


def _root(h: Number, low: Number) -> Pair:
    """√(h + low)."""
    r = h.sqrt()
    rest = fma(-r, r, h) + low
    return r, where(h.equals(0.0), 0.0, rest / (2.0 * r))


def log_to_twice_the_digits(x: Number) -> Pair:
    """log x of x > 0 to some 70 bits."""
    m, k = split(x)
    f = m - 1.0
    den, den_low = fast_sum(2.0, f)
    s = f / den
    s_low = (fma(-s, den, f) - s * den_low) * (0.5 - 0.5 * s)  # 1/(2 + f) = (1 − s)/2
    w, e = two_product(s, s)
    w_low = fma(2.0 * s, s_low, e)
    a, a_low = fast_sum(FIFTH[0], w * polynomial(w, ATANH))
    b, b_low = times((w, w_low), (a, a_low + FIFTH[1]))
    b, rest = fast_sum(THIRD[0], b)
    b = times((w, w_low), (b, rest + (b_low + THIRD[1])))
    h, low = times((2.0 * s, 2.0 * s_low), b)
    log = fast_sum(2.0 * s, h)
    log = fast_sum(log[0], log[1] + (low + 2.0 * s_low))
    k = k.whole()
    h, low = fast_sum(k * LN2_SHORT[0], log[0])
    second, third = two_product(k, LN2_SHORT[1])
    low, rest = two_sum(low, second)
    return fast_sum(h, low + (rest + (third + log[1])))
