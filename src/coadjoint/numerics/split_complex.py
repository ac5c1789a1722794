"""Complex matrices as pairs (re, im) of real arrays, (2, m, m): a product is three real ones, as exact as it must be.

A stack of k matrices, such as the layers of a fluid, is a pair of shape (k, 2, m, m). Functions act on each of them.

(A₀ + iA₁)(B₀ + iB₁) = P₀ − P₂ + i(P₁ − P₀ − P₂) with P₀ = A₀B₀, P₁ = (A₀ + A₁)(B₀ + B₁), P₂ = A₁B₁. Real products are
the fastest: XLA's complex ones take 1.5 times as long on a CPU, and 1.2 times on a GPU.

There are four levels of precision. The three lower ones are float32 on a CPU. On a GPU they use its matrix units, which
support bfloat16 (8 bits), float16 and TF32 (11 bits), with sums in float32. float16 takes half the time of TF32 but has
a short range. Therefore matrices are scaled by their largest entry, which pays for large ones.
"""

import math
from collections.abc import Callable
from enum import Enum
from functools import partial, wraps

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Complex, Float

from . import sharding

Pair = Float[Array, "*k 2 m m"]
F32, F64 = jnp.float32, jnp.float64
DIGITS = {False: 1e-7, True: 2e-5}  # relative errors of low-precision products, on a CPU and on a GPU
_PANELS, _BORDER = 1024, 64  # a GPU takes four panels of rows, of which each is a multiple of 256, and a few rows more
_LARGE = 1024  # rows from which a GPU scales matrices for float16 …
_SCALED = 2.0**14  # … so that their largest entry is this; float16 ends at 2¹⁶


class Level(Enum):
    """How exact a product is."""

    DOUBLE = "double"
    FINE = "fine"  # 2e-5 on a GPU: high and low halves in bfloat16, three products of them
    LOW = "low"  # 4e-4: float16, or TF32 for small matrices
    LEAST = "least"  # 3e-3: bfloat16


def _of_each(fn: Callable[..., Array]) -> Callable[..., Array]:
    """Return fn of one matrix, or of each matrix of a stack."""

    @wraps(fn)
    def call(*pairs: Array) -> Array:
        return fn(*pairs) if pairs[0].ndim == 3 else jax.vmap(fn)(*pairs)

    return call


def on_gpu() -> bool:
    """Whether JAX computes on an accelerator."""
    return jax.default_backend() != "cpu"


def padded(n: int) -> int:
    """The size at which products of n×n matrices are fast: on a GPU rows must be aligned (1.4 to 3.6 times).

    On a mesh it is a multiple of its devices.
    """
    unit = math.lcm(1 if not on_gpu() else 64 if n > 256 else 8, sharding.count())
    return -(-n // unit) * unit


@_of_each
def materialize(A: Pair) -> Pair:
    """Return A, on a CPU as an array in memory, if it is read in another order than it is computed.

    Otherwise XLA fuses its computation with each read. For a transpose of a sum this takes 2.5 times as long. A barrier
    does not prevent the fusion, but a concatenation of two parts does.
    """
    if on_gpu():
        return A
    half = A.shape[0] // 2
    return jnp.concatenate([lax.optimization_barrier(A[:half]), lax.optimization_barrier(A[half:])])


def pair(W: Complex[Array, "*k n n"]) -> Pair:
    """A complex matrix as a pair, padded with zeros."""
    n = W.shape[-1]
    more = padded(n) - n
    whole = ((0, 0),) * (W.ndim - 1)
    return sharding.shard_rows(jnp.pad(jnp.stack([W.real, W.imag], axis=-3), (*whole, (0, more), (0, more))))


def unpair(A: Pair, n: int) -> Complex[Array, "*k n n"]:
    """The complex matrix of a pair, without padding."""
    return sharding.shard_rows(lax.complex(A[..., 0, :n, :n], A[..., 1, :n, :n]))


@_of_each
def dagger(A: Pair) -> Pair:
    """The conjugate transpose."""
    A = A if on_gpu() else lax.optimization_barrier(A)  # or parts of it would be computed again, column by column
    return sharding.shard_rows(jnp.stack([A[0].T, -A[1].T]))


def skew(A: Pair) -> Pair:
    """A − Aᴴ."""
    return A - dagger(A)


def project_skew(A: Pair) -> Pair:
    """Return ½ (A − Aᴴ): the exactly skew-Hermitian part of a matrix that is skew-Hermitian to round-off."""
    A = materialize(A)
    return 0.5 * (A - dagger(A))


def norm(A: Pair) -> Float[Array, "*k"]:
    """The Frobenius norm, to single precision."""
    return jnp.sqrt(jnp.sum(jnp.square(A.astype(F32)), axis=(-3, -2, -1), dtype=F64))


def product(A: Pair, B: Pair, level: Level) -> Pair:
    """A B, at one of the levels; float64 for DOUBLE, float32 for the others."""
    return _of_each(partial(_product, level=level))(A, B)


def _product(A: Pair, B: Pair, level: Level) -> Pair:
    kind = F64 if level is Level.DOUBLE else F32
    C = _combined(_dot(_three(A.astype(kind)), _three(B.astype(kind)), level))
    materialized = on_gpu() and C.shape[-1] >= _LARGE and level is not Level.DOUBLE
    return (
        lax.optimization_barrier(C) if materialized else C
    )  # or three would be read, and transposed, wherever C is wanted


def symmetric_product(A: Pair, B: Pair, level: Level, sign: int = -1, right: int = -1) -> Pair:
    """Return A B if it is skew-Hermitian (sign −1) or Hermitian (+1) by construction, exactly so; B = `right` Bᴴ.

    About ⅔ of a product: on a CPU two real ones are enough (`_by_sum`); on a GPU, in double precision, the block below
    the diagonal is that above it.
    """
    return _of_each(partial(_symmetric_product, level=level, sign=sign, right=right))(A, B)


def _symmetric_product(A: Pair, B: Pair, level: Level, sign: int, right: int) -> Pair:
    if not on_gpu() and sharding.mesh() is None:
        kind = F64 if level is Level.DOUBLE else F32
        return _by_sum(A.astype(kind), B.astype(kind), sign)
    if level is Level.DOUBLE and sharding.mesh() is None:  # in single precision that gains nothing
        if on_gpu() and A.shape[-1] >= _PANELS and A.shape[-1] % _PANELS <= _BORDER:
            return _by_panels(A, B, sign, right)
        return _by_halves(_three(A), _three(B), sign, 2)
    C = product(A, B, level)
    return 0.5 * (C + sign * dagger(C))


def _by_sum(A: Pair, B: Pair, sign: int) -> Pair:
    """AB = C₀ + iC₁ from Z = C₀ + C₁, of which one part is symmetric and the other is not: C₀, C₁ = ½ (Z ± Zᵀ).

    Z = A₀(B₀ + B₁) + A₁(B₀ − B₁) is one real product, of rows and columns twice as long.
    """
    shard_rows, columns = jnp.concatenate([A[0], A[1]], axis=1), jnp.concatenate([B[0] + B[1], B[0] - B[1]], axis=0)
    Z = lax.dot_general(shard_rows, columns, (((1,), (0,)), ((), ())))
    return 0.5 * jnp.stack([Z + sign * Z.T, Z - sign * Z.T])


def _by_halves(A: Float[Array, "3 k m"], B: Float[Array, "3 m k"], sign: int, halvings: int) -> Array:
    """The blocks on the diagonal are done alike."""
    k = A.shape[1]
    if halvings == 0 or k < 64:  # small products cost more than they save
        C = _combined(_dot(A, B, Level.DOUBLE))
        return 0.5 * (C + sign * dagger(C))
    h = k // 2
    beside = _combined(_dot(A[:, :h], B[:, :, h:], Level.DOUBLE))
    first = _by_halves(A[:, :h], B[:, :, :h], sign, halvings - 1)
    last = _by_halves(A[:, h:], B[:, :, h:], sign, halvings - 1)
    shard_rows = [jnp.concatenate(row, axis=2) for row in ((first, beside), (sign * dagger(beside), last))]
    return jnp.concatenate(shard_rows, axis=1)


def _by_panels(A: Pair, B: Pair, sign: int, right: int) -> Pair:
    """By four panels of rows of A and B, for AB = ± ABᴴ: block (i, j) for j = i, i + 1 mod 4, and i + 2.

    Many blocks in one call fill a GPU, and rows of B, unlike its columns, need not be copied. The rows beyond the last
    panel are done whole.
    """
    m = A.shape[-1]
    rest = m % _PANELS
    a, b = (x[:, : m - rest].reshape(2, 4, -1, m) for x in (A, B))
    on, beside, across = (
        _times_dagger(*x, right) for x in ((a, b), (a, jnp.roll(b, -1, axis=1)), (a[:, :2], b[:, 2:]))
    )
    on, none = 0.5 * on, jnp.zeros_like(on[:, 0])
    blocks = [[on[:, 0], beside[:, 0], across[:, 0], none], [none, on[:, 1], beside[:, 1], across[:, 1]],
              [none, none, on[:, 2], beside[:, 2]], [beside[:, 3], none, none, on[:, 3]]]  # fmt: skip
    U = jnp.concatenate([jnp.concatenate(row, axis=2) for row in blocks], axis=1)
    if rest:
        below = _times_dagger(A[:, None, m - rest :], B[:, None], right)[:, 0]
        below = jnp.concatenate([below[:, :, : m - rest], 0.5 * below[:, :, m - rest :]], axis=2)
        U = jnp.concatenate([jnp.pad(U, ((0, 0), (0, 0), (0, rest))), below], axis=1)
    return U + sign * dagger(U)


def _times_dagger(A: Float[Array, "2 p h m"], B: Float[Array, "2 p k m"], right: int) -> Float[Array, "2 p h k"]:
    """± A Bᴴ of each of some blocks."""
    P = lax.dot_general(_three(A), _three(B, -1), (((3,), (3,)), ((0, 1), (0, 1))))
    return right * jnp.stack([P[0] + P[2], P[1] - P[0] + P[2]])


def _three(A: Float[Array, "2 *m"], sign: int = 1) -> Float[Array, "3 *m"]:
    """Return the sum of the halves behind a barrier: XLA would read A twice without it."""
    return jnp.stack([A[0], A[0] + sign * A[1], A[1]])


def _combined(P: Float[Array, "3 m k"]) -> Float[Array, "2 m k"]:
    return jnp.stack([P[0] - P[2], P[1] - P[0] - P[2]])


def _dot(A: Array, B: Array, level: Level) -> Array:
    if sharding.mesh() is None:
        return _local_dot(A, B, level)
    return sharding.ring_product(lambda a, b: _local_dot(a, b, level), A, B)


def _local_dot(A: Array, B: Array, level: Level) -> Array:
    axes = (((2,), (1,)), ((0,), (0,)))
    large = A.shape[2] >= _LARGE
    if level is Level.DOUBLE or not on_gpu() or (level is Level.LOW and not large):
        return lax.dot_general(A, B, axes)
    if level is Level.LOW:
        (A, a), (B, b) = _scaled(A), _scaled(B)
        return lax.dot_general(A, B, axes, preferred_element_type=F32) * a * b
    if level is Level.LEAST:
        return lax.dot_general(A.astype(jnp.bfloat16), B.astype(jnp.bfloat16), axes, preferred_element_type=F32)
    (high, low), (above, below) = _halves(A), _halves(B)
    left, right = jnp.concatenate([high, high, low], axis=2), jnp.concatenate([above, below, above], axis=1)
    return lax.dot_general(left, right, axes, preferred_element_type=F32)


def _scaled(x: Float[Array, "3 m k"]) -> tuple[Array, Float[Array, ""]]:
    """x in float16, scaled, and the factor that takes it back; the second of the three is the sum of the others."""
    size = jnp.maximum(jnp.maximum(jnp.max(jnp.abs(x[0])), jnp.max(jnp.abs(x[2]))), 1e-30)
    return (x * (_SCALED / size)).astype(jnp.float16), size / _SCALED


def _halves(x: Array) -> tuple[Array, Array]:
    """x as a sum of two in bfloat16. XLA would cancel x − float32(bfloat16(x)), but not this rounding."""
    high = lax.reduce_precision(x, 8, 7)
    return high.astype(jnp.bfloat16), (x - high).astype(jnp.bfloat16)
