"""Complex matrices as pairs (re, im) of real arrays, (2, m, m): a product is three real ones, as exact as it must be.

(A₀ + iA₁)(B₀ + iB₁) = P₀ − P₁ + i(P₂ − P₀ − P₁) with P₀ = A₀B₀, P₁ = A₁B₁, P₂ = (A₀ + A₁)(B₀ + B₁). Real products are
what processors are fastest at: XLA's complex ones take 1.5 times as long on a CPU, and 1.2 times on a GPU.

A product is asked for at one of four levels. The relative errors of the three lower ones are those of float32 on a CPU;
on a GPU they use its matrix units, which know bfloat16 (8 bits) and TF32 (11 bits), with sums in float32.
"""

import math
from enum import Enum

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Complex, Float

from . import spread

Pair = Float[Array, "2 m m"]
F32, F64 = jnp.float32, jnp.float64


class Level(Enum):
    """How exact a product is."""

    DOUBLE = "double"
    FINE = "fine"  # 2e-5 on a GPU: high and low halves in bfloat16, three products of them
    LOW = "low"  # 4e-4: TF32
    LEAST = "least"  # 3e-3: bfloat16


def on_gpu() -> bool:
    """Whether JAX computes on an accelerator."""
    return jax.default_backend() != "cpu"


def padded(n: int) -> int:
    """The size at which products of n×n matrices are fast: on a GPU rows must be aligned (1.4 to 3.6 times).

    On a mesh it is a multiple of its devices.
    """
    unit = math.lcm(1 if not on_gpu() else 64 if n > 256 else 8, spread.count())
    return -(-n // unit) * unit


def pair(W: Complex[Array, "n n"]) -> Pair:
    """A complex matrix as a pair, padded with zeros."""
    n = W.shape[-1]
    more = padded(n) - n
    return spread.rows(jnp.pad(jnp.stack([W.real, W.imag]), ((0, 0), (0, more), (0, more))))


def unpair(A: Pair, n: int) -> Complex[Array, "n n"]:
    """The complex matrix of a pair, without padding."""
    return spread.rows(lax.complex(A[0, :n, :n], A[1, :n, :n]))


def dagger(A: Pair) -> Pair:
    """The conjugate transpose."""
    return spread.rows(jnp.stack([A[0].T, -A[1].T]))


def skew(A: Pair) -> Pair:
    """A − Aᴴ."""
    return A - dagger(A)


def made_skew(A: Pair) -> Pair:
    """½ (A − Aᴴ): what is skew-Hermitian but for rounding, exactly so."""
    return 0.5 * (A - dagger(A))


def norm(A: Pair) -> Float[Array, ""]:
    """The Frobenius norm, to single precision."""
    return jnp.sqrt(jnp.sum(jnp.square(A.astype(F32)), dtype=F64))


def product(A: Pair, B: Pair, level: Level) -> Pair:
    """A B, at one of the levels; float64 for DOUBLE, float32 for the others."""
    kind = F64 if level is Level.DOUBLE else F32
    return _combined(_dot(_three(A.astype(kind)), _three(B.astype(kind)), level))


def symmetric_product(A: Pair, B: Pair, level: Level, sign: int = -1) -> Pair:
    """A B where it is known to be skew-Hermitian (sign −1) or Hermitian (+1), exactly so: about ¾ of a product.

    The block below the diagonal is that above it, and the blocks on the diagonal are done alike.
    """
    kind = F64 if level is Level.DOUBLE else F32
    halvings = 2 if level is Level.DOUBLE and spread.mesh() is None else 0  # in single precision that gains nothing
    return _symmetric(_three(A.astype(kind)), _three(B.astype(kind)), level, sign, halvings)


def _symmetric(A: Float[Array, "3 k m"], B: Float[Array, "3 m k"], level: Level, sign: int, halvings: int) -> Array:
    k = A.shape[1]
    if halvings == 0 or k < 64:  # small products cost more than they save
        C = _combined(_dot(A, B, level))
        return 0.5 * (C + sign * dagger(C))
    h = k // 2
    beside = _combined(_dot(A[:, :h], B[:, :, h:], level))
    first = _symmetric(A[:, :h], B[:, :, :h], level, sign, halvings - 1)
    last = _symmetric(A[:, h:], B[:, :, h:], level, sign, halvings - 1)
    rows = [jnp.concatenate(row, axis=2) for row in ((first, beside), (sign * dagger(beside), last))]
    return jnp.concatenate(rows, axis=1)


def _three(A: Pair) -> Float[Array, "3 m m"]:
    return jnp.concatenate([A, A[:1] + A[1:]])


def _combined(P: Float[Array, "3 m k"]) -> Float[Array, "2 m k"]:
    return jnp.stack([P[0] - P[1], P[2] - P[0] - P[1]])


def _dot(A: Array, B: Array, level: Level) -> Array:
    if spread.mesh() is None:
        return _local_dot(A, B, level)
    return spread.ring_product(lambda a, b: _local_dot(a, b, level), A, B)


def _local_dot(A: Array, B: Array, level: Level) -> Array:
    axes = (((2,), (1,)), ((0,), (0,)))
    if level in (Level.DOUBLE, Level.LOW) or not on_gpu():
        return lax.dot_general(A, B, axes)
    if level is Level.LEAST:
        return lax.dot_general(A.astype(jnp.bfloat16), B.astype(jnp.bfloat16), axes, preferred_element_type=F32)
    (high, low), (above, below) = _halves(A), _halves(B)
    left, right = jnp.concatenate([high, high, low], axis=2), jnp.concatenate([above, below, above], axis=1)
    return lax.dot_general(left, right, axes, preferred_element_type=F32)


def _halves(x: Array) -> tuple[Array, Array]:
    """x as a sum of two in bfloat16. XLA would cancel x − float32(bfloat16(x)), but not this rounding."""
    high = lax.reduce_precision(x, 8, 7)
    return high.astype(jnp.bfloat16), (x - high).astype(jnp.bfloat16)
