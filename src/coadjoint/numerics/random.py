"""The random stream of coadjoint: version 1. Changing anything here changes everyone's results.

A normal number is a function only of (key, domain, member, level, channel, n):

    k₁ = T(key, (version, domain)),  k₂ = T(k₁, member),  k₃ = T(k₂, (level, channel)),
    bits(n) = T(k₃, n),

where T is Threefry-2x32 with 20 rounds and `member` and `n` are 64-bit counters. The numbers n and n + 1 (n even)
are one Box–Muller pair: bits(n) gives the radius, bits(n + 1) the angle, both with 52 bits.

A path takes its increments from channels below 2^24 and levels below 2^8. Other numbers of `drivers/` (integrals
of the path) use the other channels and levels.

Reference: Salmon, Moraes, Dror and Shaw, Parallel random numbers: as easy as 1, 2, 3, SC'11.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt32

from stepcompiler.device_arrays import to_device
from stepcompiler.hints import no_fma
from stepcompiler.jaxprs.numpy_eval import numpy_function

from . import validation

VERSION = 1
PATH, INITIAL, PARAMETERS = 0, 1, 2  # domains: the purposes of the numbers
LEVELS = 16  # the domain of the keys of multilevel Monte Carlo
FILTERS = 32  # the domain of the numbers of particle and Kalman filters
_MANY = 2**16  # numbers that are worth a compiler
_CHANNELS, _TOGETHER = 2**14, 2**12  # from so many channels on so many are drawn at a time


class Key(NamedTuple):
    """Two 32-bit words."""

    a: UInt32[Array, "..."]
    b: UInt32[Array, "..."]


@jax.jit  # traced once, whatever draws from it
def threefry(key: Key, hi: UInt32[Array, "..."], lo: UInt32[Array, "..."]) -> Key:
    """Threefry-2x32, 20 rounds: the block (hi, lo) enciphered under the key."""
    words = (key.a, key.b, key.a ^ key.b ^ jnp.uint32(0x1BD11BDA))
    x, y = hi + words[0], lo + words[1]
    for i in range(5):
        for r in ((13, 15, 26, 6), (17, 29, 16, 24))[i % 2]:
            x = x + y
            y = ((y << np.uint32(r)) | (y >> np.uint32(32 - r))) ^ x
        x = x + words[(i + 1) % 3]
        y = y + words[(i + 2) % 3] + np.uint32(i + 1)
    return Key(x, y)


def split_uint64(n: Int[Array, "..."] | int) -> tuple[Array, Array]:
    """A 64-bit counter as its high and low words."""
    n = jnp.asarray(n, jnp.int64)
    return (n >> 32).astype(jnp.uint32), n.astype(jnp.uint32)


def member_key(key: Key, domain: int, member: Int[Array, ""] | int) -> Key:
    """The key of one ensemble member in one domain."""
    return threefry(threefry(key, jnp.uint32(VERSION), jnp.uint32(domain)), *split_uint64(member))


def _whole(n: Int[Array, "..."]) -> Float[Array, "..."]:
    """Convert an integer below 2⁵¹ to float64 by its bits, because conversion is slow on a GPU."""
    return jax.lax.bitcast_convert_type(n + 0x4338000000000000, jnp.float64) - (2.0**52 + 2.0**51)


@jax.jit
def _log(u: Float[Array, "..."]) -> Float[Array, "..."]:
    """ln u for 2^-52 ≤ u ≤ 1: exponent and mantissa apart, then 2 artanh((m − 1)/(m + 1)) as a polynomial."""
    bits = jax.lax.bitcast_convert_type(u, jnp.int64)
    offset = bits - 0x3FE6A09E667F3BCD  # √½ ≤ m < √2
    exponent = _whole(offset >> 52)
    m = jax.lax.bitcast_convert_type(bits - (offset & ~0xFFFFFFFFFFFFF), jnp.float64)
    f = (m - 1.0) / (m + 1.0)
    g = f * f
    p = jnp.zeros_like(g)
    for k in reversed(range(12)):
        p = p * g + 1.0 / (2 * k + 1)
    return exponent * 0.6931471805599453 + no_fma(2.0 * f * p)


@jax.jit
def _sincos(u: Float[Array, "..."]) -> tuple[Array, Array]:
    """Sine and cosine of 2πu for u = 0, 2⁻⁵², … < 1: nearest quarter turn, then Taylor polynomials on ±π/4."""
    eighths = jax.lax.bitcast_convert_type(1.0 + u, jnp.int64) >> 49 & 7
    quarter = eighths + 1 >> 1
    t = (4.0 * u - _whole(quarter)) * (np.pi / 2)
    z = t * t
    s, c = jnp.zeros_like(z), jnp.zeros_like(z)
    for k in reversed(range(9)):  # by 1/n, as XLA compiles a division by a constant
        s = 1.0 - z * (1.0 / ((2 * k + 2) * (2 * k + 3))) * s
        c = 1.0 - z * (1.0 / ((2 * k + 1) * (2 * k + 2))) * c
    s = t * s
    odd, half = (quarter & 1) == 1, (quarter & 2) == 2
    sine, cosine = jnp.where(odd, c, s), jnp.where(odd, -s, c)
    return jnp.where(half, -sine, sine), jnp.where(half, -cosine, cosine)


def _unit(bits: Key) -> Float[Array, "..."]:
    """A number in [0, 1) from the upper 52 bits."""
    mantissa = (bits.a.astype(jnp.int64) << 20) | (bits.b >> 12).astype(jnp.int64)
    return jax.lax.bitcast_convert_type(mantissa | 0x3FF0000000000000, jnp.float64) - 1.0


def _uniform_pairs(key: Key, even: Int[Array, "..."]) -> Float[Array, "2 ..."]:
    """The uniforms of the radii and of the angles of pairs n, n + 1: by one program of Threefry's, not by two."""
    return _unit(threefry(key, *split_uint64(jnp.stack([even, even + 1]))))


def _box_muller(u: Array, v: Array) -> tuple[Array, Array]:
    """Both normals of each pair."""
    radius = jnp.sqrt(-2.0 * _log(1.0 - u))
    sine, cosine = _sincos(v)
    return radius * cosine, radius * sine


def uniforms(
    member: Key, level: int, channels: int, start: Int[Array, ""] | int, count: int
) -> Float[Array, "count channels"]:
    """Uniform numbers on [0, 1), n = start … start + count − 1, of each channel."""
    key = threefry(member, jnp.uint32(level), jnp.arange(channels, dtype=jnp.uint32))
    n = jnp.asarray(start, jnp.int64) + jnp.arange(count)[:, None]
    return _unit(threefry(key, *split_uint64(n)))


def normals(
    member: Key, level: int, channels: int | Int[Array, " M"], start: Int[Array, ""] | int, count: int
) -> Float[Array, "count channels"]:
    """The standard normals n = start … start + count − 1 of each channel; start and count even.

    `channels`: how many, or their numbers.
    """
    numbers = jnp.arange(channels) if isinstance(channels, int) else channels
    key = threefry(member, jnp.uint32(level), numbers.astype(jnp.uint32))
    n = jnp.asarray(start, jnp.int64) + 2 * jnp.arange(count // 2)[:, None]
    both = jnp.stack(_box_muller(*_uniform_pairs(key, n)), axis=1)
    return both.reshape(count, len(numbers))


def initial_normals(key: Any, channels: int, count: int, member: int = 0) -> Float[Array, "count channels"]:
    """The first standard normals for an initial state.

    JAX would compile dozens of programs of one operation each for a few numbers: NumPy draws them, with bitwise
    identical results.
    """

    def draw(key: Key) -> Array:
        return normals(member_key(key, INITIAL, member), 0, channels, 0, count + count % 2)[:count]

    given = as_key(key)
    if validation.is_traced(given) or count * channels > _MANY:
        return draw(given)
    return to_device(numpy_function(jax.make_jaxpr(draw)(given))(given)[0])


def many_normals(
    member: Key, level: int, channels: int, start: Int[Array, ""] | int, count: int
) -> Float[Array, "count channels"]:
    """Normals of many channels; on a CPU some at a time, so that intermediate results fit in a cache.

    Every product is rounded before it is added, so that XLA does not fuse the two.
    """
    if channels < _CHANNELS or jax.default_backend() != "cpu":
        return normals(member, level, channels, start, count)
    size = next((k for k in range(_TOGETHER, _TOGETHER // 2, -1) if channels % k == 0), _TOGETHER)
    parts, pairs = -(-channels // size), count // 2
    key = threefry(member, jnp.uint32(level), jnp.arange(parts * size, dtype=jnp.uint32).reshape(parts, size))
    n = jnp.asarray(start, jnp.int64) + 2 * jnp.arange(pairs)[:, None]

    # Part i is stored while the next two are computed; see `Numbers`.
    def part(i: Array, state: tuple) -> tuple:
        (u, v), (radius, sine, cosine), out = state
        both = jnp.stack([radius * cosine, radius * sine], axis=1)[:, :, None]
        out = jax.lax.dynamic_update_slice_in_dim(out, both, jnp.maximum(i, 0), 2)
        own = jax.tree.map(lambda x: x[jnp.minimum(i + 2, parts - 1)], key)
        uniforms = _unit(threefry(own, *split_uint64(n))), _unit(threefry(own, *split_uint64(n + 1)))
        return uniforms, (jnp.sqrt(-2.0 * _log(1.0 - u)), *_sincos(v)), out

    empty = jnp.zeros((pairs, size))
    begun = (empty, empty), (empty, empty, empty), jnp.zeros((pairs, 2, parts, size))
    out = jax.lax.fori_loop(-2, parts, part, begun)[2]
    return out.reshape(count, parts * size)[:, :channels]


def channel_keys(member: Key, level: Int[Array, ""] | int, channels: np.ndarray) -> Key:
    """k₃ of the channels with the given numbers."""
    return threefry(member, jnp.asarray(level).astype(jnp.uint32), jnp.asarray(channels, jnp.uint32))


def signs(key: Key, n: Int[Array, "*at"]) -> Float[Array, "*at channels"]:
    """±1 from the last bit of each number n of each channel."""
    bits = threefry(key, *split_uint64(n[..., None]))
    return 1.0 - 2.0 * (bits.b.astype(jnp.int64) & 1).astype(jnp.float64)


class Numbers(NamedTuple):
    """The numbers n of the stream to draw; `paired`: row by row, n consists of pairs (even, even + 1), half the work.

    Normals are made in three stages, keys, uniforms, normals, for loops that carry each stage along: XLA computes again
    whatever it can fuse with its use.
    """

    n: Int[Array, "*at"]
    paired: bool

    def uniforms(self, key: Key) -> tuple[Array, Array]:
        """The uniforms of the radius and of the angle, for one number of each pair."""
        even = (self.n.reshape(-1, 2)[:, 0] if self.paired else self.n & ~1)[..., None]
        u, v = _uniform_pairs(key, even)
        return u, v

    def box_muller(self, u: Array, v: Array) -> tuple[Array, Array]:
        """Both normals of each pair."""
        return _box_muller(u, v)

    def choose(self, first: Array, second: Array) -> Float[Array, "*at channels"]:
        """Return these normals."""
        if self.paired:
            return jnp.stack([first, second], axis=1).reshape(*self.n.shape, first.shape[-1])
        return jnp.where((self.n & 1)[..., None] == 1, second, first)

    def normals(self, key: Key) -> Float[Array, "*at channels"]:
        """All stages at once."""
        return self.choose(*self.box_muller(*self.uniforms(key)))


def uniforms_at(keys: Key, n: Int[Array, "..."]) -> Float[Array, "..."]:
    """Numbers n of the stream of each key, uniform on [0, 1)."""
    return _unit(threefry(keys, *split_uint64(n)))


def log(u: Float[Array, "..."]) -> Float[Array, "..."]:
    """ln u for 2⁻⁵² ≤ u ≤ 1."""
    return _log(u)


class Request(NamedTuple):
    """Normals n of some channels on one level; `paired`: n is pairs (even, even + 1)."""

    level: Any
    channels: np.ndarray
    n: Int[Array, " k"]
    paired: bool


def requested_normals(member: Key, requests: Sequence[Request]) -> list[Float[Array, "k channels"]]:
    """The normals of several requests with equal numbers of channels, by one program: each site costs compile time."""
    level = jnp.stack([jnp.asarray(r.level).astype(jnp.uint32) for r in requests])[:, None]
    keys = threefry(member, level, jnp.asarray(np.stack([r.channels for r in requests]), jnp.uint32))
    even = [r.n.reshape(-1, 2)[:, 0] if r.paired else r.n & ~1 for r in requests]
    owner = np.repeat(np.arange(len(requests)), [len(n) for n in even])
    own = Key(keys.a[owner], keys.b[owner])
    both = _box_muller(*_uniform_pairs(own, jnp.concatenate(even)[:, None]))
    ends, out = np.cumsum([0, *(len(n) for n in even)]), []
    for r, a, b in zip(requests, ends[:-1], ends[1:], strict=True):
        out.append(Numbers(r.n, r.paired).choose(both[0][a:b], both[1][a:b]))
    return out


def as_key(key: Any) -> Key:
    """The two words of a key: an int of 64 bits, or a JAX key."""
    if isinstance(key, Key):
        return key
    if isinstance(key, jax.Array) and (jnp.issubdtype(key.dtype, jax.dtypes.prng_key) or key.dtype == jnp.uint32):
        data = jax.random.key_data(key) if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else key
        if data.ndim == 1 and data.shape[0] % 2 == 0:
            out = Key(data[0], data[1])
            for i in range(2, data.shape[0], 2):
                out = threefry(out, data[i], data[i + 1])
            return out
        raise ValueError(f"key must be one JAX key, not an array of keys of shape {key.shape}.")
    try:
        number = validation.count("key", key, least=0)
    except TypeError:
        raise TypeError(f"key must be an integer or a JAX key, not {key!r}.") from None
    if number >= 2**64:
        raise ValueError(f"key must be below 2^64, not {number}.")
    return _key_of(number)


@lru_cache(256)  # on the host: making JAX's arrays costs a short run its time
def _key_of(number: int) -> Key:
    words: Any = np.array([number >> 32, number & 0xFFFFFFFF], np.uint32)
    return Key(words[0:1].reshape(()), words[1:2].reshape(()))
