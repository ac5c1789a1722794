"""sin, cos and tan.

x = k π/2 + r with |r| ≤ π/4, r in a pair. Up to 2³⁰, k is the nearest whole number to 2x/π, and k π/2 is subtracted
in three parts, the first exactly. Beyond that after M. Payne and R. Hanek (1983): x = M 2^e, and of the product of M
and 2/π only the digits around the point are formed, in integers; those before it make multiples of 4, which are full
turns.
"""

import itertools

from .coefficients import COS, HALF_PI, SIN, TWO_OVER_PI, TWO_OVER_PI_DIGITS
from .exponential import TINY
from .ir_number import (
    INTEGER,
    MAGIC,
    MAGIC_BITS,
    Number,
    Pair,
    call,
    fast_sum,
    fma,
    number,
    over,
    plus,
    polynomial,
    times,
    two_product,
    two_sum,
    where,
)

_FAR = 2.0**30
_DIGIT = 0xFFFFFFFF
_DIGITS = 6  # of 32 bits each, that are used of 2/π


def sin(x: Number) -> Number:
    """sin x."""
    odd, turns, (s, s_low), (c, c_low) = _quarter(x)
    out = _turned(where(odd, c + c_low, s + s_low), turns)
    return where(abs(x) < TINY, x, out)


def cos(x: Number) -> Number:
    """cos x."""
    odd, turns, (s, s_low), (c, c_low) = _quarter(x)
    return _turned(where(odd, s + s_low, c + c_low), turns + 1)


def tan(x: Number) -> Number:
    """sin x/cos x."""
    odd, _, s, c = _quarter(x)
    s, c = fast_sum(*s), fast_sum(*c)
    above = where(odd, -c[0], s[0]), where(odd, -c[1], s[1])
    below = where(odd, s[0], c[0]), where(odd, s[1], c[1])
    h, low = over(above, below)
    return where(abs(x) < TINY, x, h + low)


def _turned(x: Number, turns: Number) -> Number:
    """−x after two quarter turns or three."""
    return (x.bits() ^ ((turns & 2) << 62)).as_real()


def _quarter(x: Number) -> tuple[Number, Number, Pair, Pair]:
    """Whether k is odd, k, and sin r and cos r, of x = k π/2 + r."""
    shifted, r, low = call("quarter_turns", _reduced, x, results=3)
    turns = shifted.bits()
    z = r * r
    sine = r, fma(z * r, polynomial(z, SIN), fma(low, -0.5 * z, low))
    half, rest = 0.5 * z, 0.5 * fma(r, r, -z)
    c, c_low = fast_sum(1.0, -half)
    cosine = c, (c_low - rest) + fma(z * z, polynomial(z, COS), -r * low)
    return (turns & 1).equals(1), turns, sine, cosine


def _reduced(x: Number) -> tuple[Number, Number, Number]:
    """k, in the last bits of a floating-point number, and r; NaN if x is not finite."""
    code, near = x.code, _near(x)
    small = ~(abs(x) >= _FAR)
    entry = code.block
    code.branch(code.all_lanes(small.value, "and"), "near", "far", likely=True)
    code.begin("far")
    far = [where(small, a, b) for a, b in zip(near, call("far_quarter_turns", _far, x, results=3), strict=True)]
    code.jump("near")
    last = code.block
    code.begin("near")
    out = []
    for a, b in zip(near, far, strict=True):
        value = code.value(a.value.dtype)
        code.lines.append(code.phi(value, [(a.value, entry), (b.value, last)]))
        out.append(Number(code, value))
    return out[0], out[1], out[2]


def _near(x: Number) -> tuple[Number, Number, Number]:
    """k and r for |x| < 2³⁰."""
    shifted = fma(x, TWO_OVER_PI[0], MAGIC)
    k = shifted - MAGIC
    exact = fma(-k, HALF_PI[0], x)
    p, q = two_product(k, HALF_PI[1])
    r, low = two_sum(exact, -p)
    r, low = fast_sum(r, low - fma(k, HALF_PI[2], q))
    return shifted, r, low


def _far(x: Number) -> tuple[Number, Number, Number]:
    """k and r for |x| ≥ 2³⁰.

    |x| = M 2^(p − 22). The digits of 2^−24 2/π after its first p bits are some V < 1, and 2|x|/π is 4 M V up to a
    multiple of 4.
    """
    bits = abs(x).bits()
    p = (bits >> 52) - (1075 - 22)
    m = (bits & 0x000FFFFFFFFFFFFF) | (1 << 52)
    word = _product(m, _bits_from(p))
    top = (word[-1] << 32) | word[-2]  # as a part of the circle
    k = (top + (1 << 61)) >> 62
    rest = top - (k << 62)
    above = two_sum(rest.shift_right(32).whole() * 2.0**-30, (rest & _DIGIT).whole() * 2.0**-62)
    below = two_sum(word[-3].whole() * 2.0**-94, word[-4].whole() * 2.0**-126)
    r, low = times(plus(above, below), HALF_PI[:2])
    negative = x < 0.0
    shifted = (where(negative, 0 - k, k) + MAGIC_BITS).as_real()
    nothing = x - x  # NaN if x is not finite
    return shifted, where(negative, -r, r) + nothing, where(negative, -low, low) + nothing


def _bits_from(p: Number) -> list[Number]:
    """Digits of 2^−24 2/π from bit p on."""
    digits = [Number(p.code, number(d, INTEGER)) for d in TWO_OVER_PI_DIGITS]
    for step in 16, 8, 4, 2, 1:
        jump = ((p >> 5) & step).equals(step)
        count = _DIGITS + step  # the last of those that can be meant, and one more
        digits = [where(jump, b, a) for a, b in zip(digits[:count], digits[step:], strict=False)]
    s = p & 31
    return [((a << s) & _DIGIT) | (b >> (32 - s)) for a, b in itertools.pairwise(digits)]


def _product(m: Number, digits: list[Number]) -> list[Number]:
    """The fractional part of m < 2⁵³ times 0.digits, the lowest digit first."""
    low, high = m & _DIGIT, m >> 32
    out: list[Number] = []
    carry = Number(m.code, number(0, INTEGER))
    for u in reversed(digits):
        p = low * u
        total = carry + (p & _DIGIT)
        out.append(total & _DIGIT)
        carry = (total >> 32) + (p >> 32) + high * u
    return out
