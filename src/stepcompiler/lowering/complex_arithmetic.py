"""Arithmetic and functions of complex numbers that are given as pairs of real ones.

A complex number is a `Pair` of its parts. A number that is known to be real is its real part alone.

Errors are a few units in the last place of |f(z)|, as in NumPy. Functions with a branch cut take the side that the sign
of a zero imaginary part gives; a number known to be real has the imaginary part +0. No intermediate result overflows
or underflows where parts are between 1e-150 and 1e150 in size; products, quotients and |z| take all finite numbers.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

_LARGE = 1e8  # from which on the difference between z and z ± 1 is done without
_FLAT = 20.0  # from which on tanh x is ±1 to the last bit


class Pair(NamedTuple):
    """Real and imaginary part."""

    re: Any
    im: Any


def real(x: Any) -> Any:
    """The real part."""
    return x.re if isinstance(x, Pair) else x


def imag(x: Any) -> Any:
    """The imaginary part."""
    return x.im if isinstance(x, Pair) else jnp.zeros_like(x)


def pair(x: Any) -> Pair:
    """Both parts."""
    return Pair(real(x), imag(x))


# Arithmetic.


def bilinear(times: Callable[..., Any], a: Any, b: Any) -> Any:
    """A product of some kind."""
    if not isinstance(a, Pair) and not isinstance(b, Pair):
        return times(a, b)
    if not isinstance(a, Pair):
        return Pair(times(a, b.re), times(a, b.im))
    if not isinstance(b, Pair):
        return Pair(times(a.re, b), times(a.im, b))
    return Pair(times(a.re, b.re) - times(a.im, b.im), times(a.re, b.im) + times(a.im, b.re))


def multiply(a: Any, b: Any) -> Any:
    """a b."""
    return bilinear(lax.mul, a, b)


def add(a: Any, b: Any) -> Any:
    """a + b."""
    if not isinstance(a, Pair) and not isinstance(b, Pair):
        return a + b
    if isinstance(a, Pair) and isinstance(b, Pair):
        return Pair(a.re + b.re, a.im + b.im)
    return Pair(real(a) + real(b), a.im if isinstance(a, Pair) else b.im)


def negative(a: Any) -> Pair:
    """−a; of a real number the imaginary part is −0."""
    return Pair(-real(a), -imag(a))


def conjugate(a: Any) -> Pair:
    """ā; of a real number the imaginary part is −0."""
    return Pair(real(a), -imag(a))


def turned(a: Pair) -> Pair:
    """i a."""
    return Pair(-a.im, a.re)


def turned_back(a: Pair) -> Pair:
    """−i a."""
    return Pair(a.im, -a.re)


def divide(a: Any, b: Any) -> Any:
    """a b̄/|b|², b brought near 1 by a power of two first; part by part if b is real."""
    if not isinstance(b, Pair):
        return Pair(a.re / b, a.im / b) if isinstance(a, Pair) else a / b
    scale = _power_of_two(jnp.maximum(jnp.abs(b.re), jnp.abs(b.im)))
    b = Pair(b.re * scale, b.im * scale)
    above = multiply(a, Pair(b.re, -b.im))
    square = b.re * b.re + b.im * b.im
    return Pair(above.re / square * scale, above.im / square * scale)


def _power_of_two(size: Any) -> Any:
    """Return 2⁻ᵏ for 2ᵏ ≤ size < 2ᵏ⁺¹, if 2⁻ᵏ is a normal number."""
    info = jnp.finfo(size.dtype)
    integer = np.dtype(f"int{info.bits}")
    one = integer.type(1) << integer.type(info.nmant)
    bits = lax.bitcast_convert_type(size, integer)
    exponent = jnp.clip(lax.shift_right_arithmetic(bits, integer.type(info.nmant)), 1, 2 * info.maxexp - 3)
    return lax.bitcast_convert_type((2 * info.maxexp - 2 - exponent) * one, size.dtype)


def integer_power(a: Any, exponent: int) -> Any:
    """Repeated products."""
    out: Any = None
    power, left = a, abs(exponent)
    while left:
        if left & 1:
            out = power if out is None else multiply(out, power)
        left >>= 1
        power = multiply(power, power) if left else power
    out = jnp.ones_like(real(a)) if out is None else out
    return out if exponent >= 0 else divide(jnp.ones_like(real(a)), out)


def absolute(a: Any) -> Any:
    """√(x² + y²), of numbers over the larger part."""
    x, y = jnp.abs(real(a)), jnp.abs(imag(a))
    most, least = jnp.maximum(x, y), jnp.minimum(x, y)
    ratio = least / jnp.where((most > 0) & (most < jnp.inf), most, 1.0)
    return most * jnp.sqrt(1.0 + ratio * ratio)


def sign(a: Any) -> Any:
    """a/|a|; 0 of 0."""
    if not isinstance(a, Pair):
        return jnp.sign(a)
    scale = _power_of_two(jnp.maximum(jnp.abs(a.re), jnp.abs(a.im)))
    a = Pair(a.re * scale, a.im * scale)
    size = absolute(a)
    size = jnp.where(size == 0.0, 1.0, size)
    return Pair(a.re / size, a.im / size)


def equal(a: Any, b: Any) -> Any:
    """a = b."""
    return (real(a) == real(b)) & (imag(a) == imag(b))


def larger(a: Any, b: Any) -> Pair:
    """The one with the larger real part; of those with equal ones, that with the larger imaginary part."""
    return _ordered(a, b, jnp.greater)


def smaller(a: Any, b: Any) -> Pair:
    """The other one."""
    return _ordered(a, b, jnp.less)


def _ordered(a: Any, b: Any, test: Callable[..., Any]) -> Pair:
    a, b = pair(a), pair(b)
    first = test(a.re, b.re) | ((a.re == b.re) & test(a.im, b.im))
    return Pair(jnp.where(first, a.re, b.re), jnp.where(first, a.im, b.im))


# Exponentials and logarithms.


def exp(a: Any) -> Any:
    """eˣ (cos y + i sin y)."""
    size = jnp.exp(real(a))
    return Pair(size * jnp.cos(a.im), size * jnp.sin(a.im)) if isinstance(a, Pair) else size


def exp2(a: Any) -> Any:
    """2ᵃ."""
    return exp(multiply(a, np.log(2.0).astype(real(a).dtype))) if isinstance(a, Pair) else jnp.exp2(a)


def expm1(a: Any) -> Any:
    """eᵃ − 1 without cancellation."""
    if not isinstance(a, Pair):
        return jnp.expm1(a)
    half = jnp.sin(0.5 * a.im)
    return Pair(jnp.expm1(a.re) * jnp.cos(a.im) - 2.0 * half * half, jnp.exp(a.re) * jnp.sin(a.im))


def angle(a: Any) -> Any:
    """The argument, between −π and π."""
    return jnp.arctan2(imag(a), real(a))


def log(a: Any) -> Pair:
    """log |a| + i arg a."""
    return Pair(_log_size(a), angle(a))


def _log_size(a: Any) -> Any:
    """log |a|; near |a| = 1 by way of |a|² − 1."""
    x, y = jnp.abs(real(a)), jnp.abs(imag(a))
    most, least = jnp.maximum(x, y), jnp.minimum(x, y)
    near = 0.5 * jnp.log1p((most - 1.0) * (most + 1.0) + least * least)
    ratio = least / jnp.where((most > 0) & (most < jnp.inf), most, 1.0)
    return jnp.where((most > 0.5) & (most < 2.0), near, jnp.log(most) + 0.5 * jnp.log1p(ratio * ratio))


def log1p(a: Any) -> Pair:
    """log (1 + a) without cancellation."""
    x, y = real(a), imag(a)
    small = jnp.maximum(jnp.abs(x), jnp.abs(y)) < 0.5
    u, v = jnp.where(small, x, 0.0), jnp.where(small, y, 0.0)
    near = 0.5 * jnp.log1p(u * (2.0 + u) + v * v)
    return Pair(jnp.where(small, near, _log_size(Pair(1.0 + x, y))), jnp.arctan2(y, 1.0 + x))


def power(a: Any, b: Any) -> Any:
    """eᵇ ˡᵒᵍ ᵃ; 0 to a power with a positive real part is 0, to the power 0 it is 1."""
    nought = (real(a) == 0.0) & (imag(a) == 0.0)
    base = Pair(jnp.where(nought, 1.0, real(a)), imag(a))
    out = pair(exp(multiply(b, log(base))))
    at_zero = jnp.where(equal(b, jnp.zeros_like(real(b))), 1.0, jnp.where(real(b) > 0.0, 0.0, jnp.nan))
    return Pair(jnp.where(nought, at_zero, out.re), jnp.where(nought, 0.0, out.im))


def sqrt(a: Any) -> Pair:
    """The root with a real part that is not negative."""
    x, y = real(a), imag(a)
    root = jnp.sqrt(0.5 * jnp.abs(x) + 0.5 * absolute(a))
    other = 0.5 * jnp.abs(y) / jnp.where(root > 0.0, root, 1.0)
    right = x >= 0.0
    return Pair(jnp.where(right, root, other), jnp.copysign(jnp.where(right, other, root), y))


def reciprocal_root(a: Any) -> Any:
    """1/√a."""
    return divide(jnp.ones_like(real(a)), sqrt(a))


def logistic(a: Any) -> Any:
    """1/(1 + e⁻ᵃ), by the exponential that is not large."""
    if not isinstance(a, Pair):
        return lax.logistic(a)
    right = a.re >= 0.0
    decay = exp(Pair(-jnp.abs(a.re), jnp.where(right, -a.im, a.im)))
    above = Pair(jnp.where(right, 1.0, decay.re), jnp.where(right, 0.0, decay.im))
    return divide(above, Pair(1.0 + decay.re, decay.im))


# Circular and hyperbolic functions.


def sinh(a: Any) -> Any:
    """sinh x cos y + i cosh x sin y."""
    if not isinstance(a, Pair):
        return jnp.sinh(a)
    return Pair(jnp.sinh(a.re) * jnp.cos(a.im), jnp.cosh(a.re) * jnp.sin(a.im))


def cosh(a: Any) -> Any:
    """cosh x cos y + i sinh x sin y."""
    if not isinstance(a, Pair):
        return jnp.cosh(a)
    return Pair(jnp.cosh(a.re) * jnp.cos(a.im), jnp.sinh(a.re) * jnp.sin(a.im))


def tanh(a: Any) -> Any:
    """As Kahan has it: (β ρ s + i t)/(1 + β s²) with t = tan y, β = 1 + t², s = sinh x, ρ = cosh x."""
    if not isinstance(a, Pair):
        return jnp.tanh(a)
    x = jnp.clip(a.re, -_FLAT, _FLAT)
    s, rho, sine, cosine = jnp.sinh(x), jnp.cosh(x), jnp.sin(a.im), jnp.cos(a.im)
    below = cosine * cosine + s * s  # times cos² y, which may be 0
    decay = jnp.exp(-2.0 * (jnp.abs(a.re) - jnp.abs(x)))
    return Pair(rho * s / below, sine * cosine / below * decay)


def sin(a: Any) -> Any:
    """−i sinh ia."""
    return turned_back(sinh(turned(a))) if isinstance(a, Pair) else jnp.sin(a)


def cos(a: Any) -> Any:
    """cosh ia."""
    return cosh(turned(a)) if isinstance(a, Pair) else jnp.cos(a)


def tan(a: Any) -> Any:
    """−i tanh ia."""
    return turned_back(tanh(turned(a))) if isinstance(a, Pair) else jnp.tan(a)


# Their inverses, as Kahan has them.


def _roots(a: Pair) -> tuple[Pair, Pair]:
    """√(1 − a) and √(1 + a)."""
    return sqrt(Pair(1.0 - a.re, -a.im)), sqrt(Pair(1.0 + a.re, a.im))


def asin(a: Any) -> Pair:
    """The inverse of sin."""
    a = pair(a)
    minus, plus = _roots(a)
    return Pair(jnp.arctan2(a.re, multiply(minus, plus).re), jnp.arcsinh(multiply(Pair(minus.re, -minus.im), plus).im))


def acos(a: Any) -> Pair:
    """The inverse of cos."""
    minus, plus = _roots(pair(a))
    return Pair(2.0 * jnp.arctan2(minus.re, plus.re), jnp.arcsinh(multiply(Pair(plus.re, -plus.im), minus).im))


def asinh(a: Any) -> Any:
    """−i asin ia."""
    return turned_back(asin(turned(a))) if isinstance(a, Pair) else jnp.arcsinh(a)


def acosh(a: Any) -> Pair:
    """The inverse of cosh."""
    a = pair(a)
    minus, plus = sqrt(Pair(a.re - 1.0, a.im)), sqrt(Pair(a.re + 1.0, a.im))
    return Pair(jnp.arcsinh(multiply(Pair(minus.re, -minus.im), plus).re), 2.0 * jnp.arctan2(minus.im, plus.re))


def atanh(a: Any) -> Pair:
    """¼ log1p(4x/((1 − x)² + y²)) + ½ i arg((1 − x)(1 + x) − y² + 2iy), which is odd in x; far out 1/a ± ½ i π."""
    a = pair(a)
    x, y = jnp.abs(a.re), jnp.where(jnp.signbit(a.re), -a.im, a.im)
    far = jnp.maximum(x, jnp.abs(y)) > _LARGE
    u, v = jnp.where(far, 0.0, x), jnp.where(far, 0.0, y)
    near = 0.25 * jnp.log1p(4.0 * u / ((1.0 - u) * (1.0 - u) + v * v))
    turn = 0.5 * jnp.arctan2(2.0 * v, (1.0 - u) * (1.0 + u) - v * v)
    inverse = divide(jnp.ones_like(x), Pair(x, y))
    re = jnp.where(far, inverse.re, near)
    im = jnp.where(far, jnp.copysign(jnp.asarray(np.pi / 2, x.dtype), y) + inverse.im, turn)
    flip = jnp.signbit(a.re)
    return Pair(jnp.where(flip, -re, re), jnp.where(flip, -im, im))


def atan(a: Any) -> Any:
    """−i atanh ia."""
    return turned_back(atanh(turned(a))) if isinstance(a, Pair) else jnp.arctan(a)


# Fourier transforms, axis by axis, as products with a matrix: arrays in native code are small.


def fourier(a: Any, inverse: bool, lengths: tuple[int, ...]) -> Any:
    """Of complex numbers along the last axes."""
    for k, n in enumerate(lengths):
        a = _along(a, _waves(n, inverse), real(a).ndim - len(lengths) + k)
    return a


def real_fourier(a: Any, lengths: tuple[int, ...]) -> Any:
    """Of real numbers: half of the last axis."""
    waves, axis = _waves(lengths[-1], False), a.ndim - 1
    half = lengths[-1] // 2 + 1
    a = _along(a, Pair(waves.re[:, :half], waves.im[:, :half]), axis)
    for k, n in enumerate(lengths[:-1]):
        a = _along(a, _waves(n, False), axis + 1 - len(lengths) + k)
    return a


def real_inverse_fourier(a: Any, lengths: tuple[int, ...]) -> Any:
    """Back to real numbers."""
    axis, n = real(a).ndim - 1, lengths[-1]
    for k, m in enumerate(lengths[:-1]):
        a = _along(a, _waves(m, True), axis + 1 - len(lengths) + k)
    waves, half = _waves(n, True), n // 2 + 1
    twice = np.where((np.arange(half) == 0) | (2 * np.arange(half) == n), 1.0, 2.0)[:, None]
    parts = jnp.tensordot(real(a), twice * waves.re[:half], 1)
    return parts - jnp.tensordot(imag(a), twice * waves.im[:half], 1)


def _waves(n: int, inverse: bool) -> Pair:
    turns = np.outer(np.arange(n), np.arange(n)) % n / n
    sine = np.sin(2 * np.pi * turns) * (1.0 if inverse else -1.0)
    scale = 1.0 / n if inverse else 1.0
    return Pair(scale * np.cos(2 * np.pi * turns), scale * sine)


def _along(a: Any, matrix: Pair, axis: int) -> Any:
    dtype = real(a).dtype
    matrix = Pair(matrix.re.astype(dtype), matrix.im.astype(dtype))
    return bilinear(lambda x, m: jnp.moveaxis(jnp.tensordot(x, m, ((axis,), (0,))), -1, axis), a, matrix)
