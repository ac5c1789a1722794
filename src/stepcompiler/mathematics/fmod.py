"""The exact remainder of a division, and the next floating-point number."""

from .ir_number import Number, fma, scaled, where

_INFINITY = float("inf")
_STEP = 50  # bits of the quotient that are taken at a time


def remainder(x: Number, y: Number) -> Number:
    """x − q y with the quotient q rounded towards 0: r − q c, c = 2^k |y|, is exact, again and again for smaller k."""
    a, b = abs(x), abs(y)
    valid = (a < _INFINITY) & (b > 0.0)
    wanted = valid & (a >= b) & (b < _INFINITY)
    b = where(wanted, b, 1.0)
    rest = _divided(where(wanted, a, 0.0), b, _exponent(b))
    out = where(wanted, rest, a).signed(x)
    return where(valid, out, where(x.is_nan() | y.is_nan(), x + y, float("nan")))


def _exponent(x: Number) -> Number:
    """The exponent of the first bit of x > 0, up to a constant."""
    small = x < 2.0**-1022
    e = where(small, x * 2.0**54, x).bits() >> 52
    return where(small, e - 54, e)


def _divided(r: Number, b: Number, exponent: Number) -> Number:
    """Reduce r in a loop until it is less than b for all members."""
    code, entry = b.code, b.code.block
    code.jump("loop")
    code.begin("loop")
    top, start = len(code.lines), r
    r = Number(code, type(r.value)("%rest", r.value.dtype))
    going = r >= b
    code.branch(code.all_lanes(going.value, "or"), "body", "done")
    code.begin("body")
    k = _exponent(r) - exponent - _STEP
    c = scaled(b, where(going & (k > 0), k, 0))
    q = (r / c).function("floor")
    left = fma(-q, c, r)
    left = where(going, where(left < 0.0, left + c, left), r)
    code.jump("loop")
    code.lines.insert(top, code.phi(r.value, [(start.value, entry), (left.value, code.block)]))
    code.begin("done")
    return r


def nextafter(x: Number, y: Number) -> Number:
    """The floating-point number next to x towards y."""
    bits = x.bits()
    away = (x < y) ^ (x < 0.0)
    out = where(away, bits + 1, bits - 1).as_real()
    out = where(x.equals(0.0), Number(x.code, x.like(5e-324)).signed(y), out)
    out = where(x.equals(y), y, out)
    return where(x.is_nan() | y.is_nan(), x + y, out)
