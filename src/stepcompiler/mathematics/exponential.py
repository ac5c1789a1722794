"""exp and functions derived from it.

x = k log 2 + r with |r| ≤ ½ log 2, r in a pair; e^r = 1 + r + r² P(r). What is near 0 is the last thing to be added,
so that one rounding is all that is lost. sinh and cosh of x are those of r, combined with 2^k and 2^−k: nothing is
divided.
"""

from .coefficients import COSH, EXP, LN2, LOG2E, SINH
from .ir_number import (
    MAGIC,
    MAGIC_BITS,
    Number,
    Pair,
    fast_sum,
    fma,
    over,
    polynomial,
    power_of_two,
    scaled,
    two_product,
    two_sum,
    where,
)

TINY = 2.0**-28  # below, an odd function with slope 1 at 0 is x; below its square, any with slope 1


def reduced(x: Number, low: Number | None = None) -> tuple[Number, Pair]:
    """The whole number k, and r, of x + low = k log 2 + r."""
    shifted = fma(x, LOG2E[0], MAGIC)
    k = shifted - MAGIC
    exact = fma(-k, LN2[0], x)
    r = fma(-k, LN2[1], exact)
    rest = fma(-k, LN2[1], exact - r)
    return shifted.bits() - MAGIC_BITS, ((r, rest) if low is None else fast_sum(r, rest + low))


def _exp_of_rest(r: Pair) -> Pair:
    """e^r."""
    h, low = r
    head, tail = fast_sum(1.0, h)
    return head, tail + fma(h * h, polynomial(h, EXP), fma(low, h, low))


def clamped(x: Number, low: float, high: float) -> Number:
    """x, or the nearest number between bounds; NaN stays."""
    x = where(x < low, low, x)
    return where(x > high, high, x)


def exp_pair(x: Number, low: Number | None = None) -> tuple[Pair, Number]:
    """e^(x + low) = (pair) 2^k."""
    k, r = reduced(x, low)
    return fast_sum(*_exp_of_rest(r)), k


def exp(x: Number) -> Number:
    """e^x."""
    k, r = reduced(clamped(x, -746.0, 710.0))
    h, low = _exp_of_rest(r)
    return scaled(h + low, k)


def exp2(x: Number) -> Number:
    """2^x."""
    x = clamped(x, -1080.0, 1030.0)
    shifted = x + MAGIC
    f = x - (shifted - MAGIC)
    r, low = two_product(f, LN2[0])
    h, low = _exp_of_rest((r, fma(f, LN2[1], low)))
    return scaled(h + low, shifted.bits() - MAGIC_BITS)


def expm1(x: Number) -> Number:
    """e^x − 1: half of it is 2^(k−1) − ½ + 2^(k−1)(r + …)."""
    near = clamped(x, -40.0, 710.0)
    k, (r, low) = reduced(near)
    scale = power_of_two(k - 1)
    a, b = two_sum(scale, -0.5)
    s, t = two_sum(a, scale * r)
    rest = fma(r * r, polynomial(r, EXP), fma(low, r, low))
    out = 2.0 * (s + ((t + b) + scale * rest))
    return where(abs(x) < TINY * TINY, x, out).signed(x)


def _sinh_cosh(x: Number) -> tuple[Pair, Pair]:
    """½ sinh and ½ cosh of x ≥ 0."""
    k, (r, low) = reduced(x)
    up, down = power_of_two(k - 2), power_of_two(_at_least(-2 - k, -1022))
    z = r * r
    sinh = fma(z * r, polynomial(z, SINH), fma(low, 0.5 * z, low))  # without r
    cosh = fma(z, polynomial(z, COSH), low * r)  # without 1
    a, a_low = two_sum(up, -down)
    b, b_low = two_sum(up, down)

    def combined(u: Number, u_low: Number, v: Number, v_low: Number) -> Pair:
        """u cosh r + v sinh r."""
        p, q = two_product(v, r)
        s, t = two_sum(u, p)
        return s, t + ((u_low + fma(v_low, r, q)) + fma(u, cosh, v * sinh))

    return combined(a, a_low, b, b_low), combined(b, b_low, a, a_low)


def _at_least(k: Number, low: int) -> Number:
    return where(k < low, low, k)


def sinh(x: Number) -> Number:
    """(e^x − e^−x)/2."""
    (h, low), _ = _sinh_cosh(clamped(abs(x), 0.0, 710.48))
    return where(abs(x) < TINY, x, 2.0 * (h + low)).signed(x)


def cosh(x: Number) -> Number:
    """(e^x + e^−x)/2."""
    _, (h, low) = _sinh_cosh(clamped(abs(x), 0.0, 710.48))
    return 2.0 * (h + low)


def tanh(x: Number) -> Number:
    """sinh x/cosh x."""
    sinh, cosh = _sinh_cosh(clamped(abs(x), 0.0, 22.0))
    h, low = over(fast_sum(*sinh), fast_sum(*cosh))
    return where(abs(x) < TINY, x, h + low).signed(x)


def logistic(x: Number) -> Number:
    """1/(1 + e^−x): e^−|x| or 1, over 1 + e^−|x|."""
    (h, low), k = exp_pair(clamped(-abs(x), -746.0, 0.0))
    t, t_low = scaled(h, k), scaled(low, k)
    total, rest = fast_sum(1.0, t)
    h, low = over((where(x < 0.0, t, 1.0), where(x < 0.0, t_low, 0.0)), (total, rest + t_low))
    return h + low
