"""Inversion-free series of skew-Hermitian matrices, to the required precision: (1 − a)⁻¹, and a = tanh S."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..numerics.split_complex import DIGITS, F32, F64, Level, Pair, norm, on_gpu, product, skew, symmetric_product


def inverse_minus_one(s: Pair, exp: bool) -> tuple[Pair, Float[Array, "*k"], Float[Array, "*k"]]:
    """E = (1 − a)⁻¹ − 1, its relative error, and about ‖s‖: s + s² + …, or for a = tanh s, (e^{2s} − 1)/2.

    To s⁶; on a CPU, whose products are more exact, for tanh to s⁷.
    """
    c = (1.0, 2 / 3, 1 / 3, 2 / 15, 2 / 45, 4 / 315) if exp else (1.0,) * 6
    B = symmetric_product(s, s, Level.LOW, 1)
    if not (exp or on_gpu()):  # (s + s²)(1 + s² + s⁴)
        B2 = symmetric_product(B, B, Level.LEAST, 1, 1)
        size = jnp.sqrt(norm(B2) / jnp.maximum(norm(B), 1e-300))
        return s + B + product(s + B, B + B2, Level.LEAST), size**6 + DIGITS[False], size
    if on_gpu():
        C = product(c[1] * s + c[2] * B, B, Level.LEAST)
        F = product(c[3] / c[1] * C, B, Level.LEAST)  # for exp the last term half as large again as it is
        size = norm(C) / jnp.maximum(norm(B), 1e-300)
        return s + B + C + F, size**6 + DIGITS[on_gpu()] + (1e-4 * size if on_gpu() else 0.0), size
    B2 = symmetric_product(B, B, Level.LEAST, 1)
    B3 = symmetric_product(B2, B, Level.LEAST, 1)
    even = c[0] * B + c[2] * B2 + c[4] * B3
    odd = s + product(s, c[1] * B + c[3] * B2 + c[5] * B3, Level.LEAST)
    size = jnp.sqrt(norm(B3) / jnp.maximum(norm(B2), 1e-300))
    return odd + even, size**7 + DIGITS[False], size


def tanh(S: Pair) -> tuple[Pair, Float[Array, ""]]:
    """tanh S = S + S H(S²) by its series to S¹³, and about how large the first term left out is, relative to S.

    S² and the leading products are in double precision; a term c_k S²ᵏ needs ever fewer digits.
    """
    c = -1 / 3, 2 / 15, -17 / 315, 62 / 2835, -1382 / 155925, 21844 / 6081075
    B = symmetric_product(S, S, Level.DOUBLE, 1)
    b = B.astype(F32)
    B2 = symmetric_product(b, b, Level.FINE, 1)
    B3 = symmetric_product(B2, b, Level.LOW, 1)
    tail = product(B3, c[4] * b + c[5] * B2, Level.LEAST)
    inner = c[1] * B + (c[2] * B2 + c[3] * B3 + tail).astype(F64)
    H = c[0] * B + symmetric_product(B, inner, Level.DOUBLE, 1, 1)
    rho = norm(B3) / jnp.maximum(norm(B2), 1e-300)
    return S + symmetric_product(S, H, Level.DOUBLE, -1, 1), 1.5e-3 * jnp.max(rho) ** 7


def approximate_tanh(S: Pair) -> Pair:
    """tanh S to about six digits, skew-Hermitian to the last bit: S − ⅓ S³ + 2/15 S⁵."""
    B = symmetric_product(S, S, Level.LOW, 1)
    H = 2 / 15 * symmetric_product(B, B, Level.LEAST, 1) - B / 3
    return S + symmetric_product(S, H, Level.LOW).astype(F64)


def truncation_error(change: Pair, delta: Pair) -> Float[Array, ""]:
    """A bound on what the derivative of tanh in the direction δ leaves out, that is S⁴ δ."""
    return jnp.max(norm(change - delta) ** 2 / jnp.maximum(norm(delta), 1e-300))


def tanh_derivative(S: Pair, delta: Pair, level: Level) -> Pair:
    """The derivative of tanh in the direction δ, to second order in S: δ − ⅓ (SSδ + SδS + δSS)."""
    z = product(S, delta, level)
    return delta - skew(skew(product(S, z, level)) + product(z, S, level)) / 6
