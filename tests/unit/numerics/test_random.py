"""The random stream: the cipher's known answers, the definition in `_random`, and what its numbers are like.

A change of any number here changes everyone's results: it needs a new version of the stream.
"""

import math
from functools import partial

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from coadjoint.numerics import random as _random
from coadjoint.numerics.random import INITIAL, PARAMETERS, PATH, Key, as_key


def u32(x):
    return jnp.uint32(x)


KNOWN = [  # key, counter, output: Salmon et al., Random123's kat_vectors for threefry2x32 with 20 rounds
    ((0x00000000, 0x00000000), (0x00000000, 0x00000000), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
]


@pytest.mark.parametrize("key, counter, output", KNOWN)
def test_threefry_known_answers(key, counter, output):
    got = _random.threefry(Key(*map(u32, key)), *map(u32, counter))
    assert tuple(map(int, got)) == output


# The stream written a second time, with Python's whole numbers and the math library.


def cipher(key, counter):
    mask = 2**32 - 1
    k = (*key, key[0] ^ key[1] ^ 0x1BD11BDA)
    x, y = (counter[0] + k[0]) & mask, (counter[1] + k[1]) & mask
    rotations = (13, 15, 26, 6, 17, 29, 16, 24)
    for r in range(20):
        x = (x + y) & mask
        n = rotations[r % 8]
        y = ((y << n | y >> (32 - n)) & mask) ^ x
        if r % 4 == 3:
            i = r // 4 + 1
            x, y = (x + k[i % 3]) & mask, (y + k[(i + 1) % 3] + i) & mask
    return x, y


def words(n):
    return n >> 32, n & (2**32 - 1)


def reference(key, domain, member, level, channel, n):
    """The n-th normal, from the docstring of `_random`."""
    k = cipher(words(key), (1, domain))
    k = cipher(k, words(member))
    k = cipher(k, (level, channel))

    def unit(m):
        a, b = cipher(k, words(m))
        return ((a << 32 | b) >> 12) / 2**52

    even = n - n % 2
    radius = math.sqrt(-2 * math.log(1 - unit(even)))
    angle = 2 * math.pi * unit(even + 1)
    return radius * (math.sin(angle) if n % 2 else math.cos(angle))


@partial(jax.jit, static_argnums=(1, 3, 4))
def draw(key, domain, member, level, channels, start):
    """64 numbers of each channel from `start` on."""
    return _random.normals(_random.member_key(key, domain, member), level, channels, start, 64)


def normals(key=0, domain=PATH, member=0, level=0, channels=2, start=0):
    return np.asarray(draw(as_key(key), domain, jnp.asarray(member), level, channels, jnp.asarray(start)))


@pytest.mark.parametrize(
    "place",
    [
        {},
        {"key": 1},
        {"key": 2**63 + 12345},
        {"member": 7},
        {"member": 2**40 + 3},
        {"start": 1000},
        {"start": 2**35 + 6},
        {"level": 3},
        {"domain": INITIAL},
        {"domain": PARAMETERS, "member": 5, "start": 62},
    ],
    ids=str,
)
def test_normals_follow_their_definition(place):
    got = normals(**place)
    full = {"key": 0, "domain": PATH, "member": 0, "level": 0} | place
    start = full.pop("start", 0)
    expected = [[reference(**full, channel=c, n=start + i) for c in range(2)] for i in range(64)]
    np.testing.assert_allclose(got, expected, rtol=1e-14, atol=1e-15)


def test_first_normals_of_key_0_are_pinned():
    """Numbers 0 … 3 of channels 0 and 1; the last digit may differ between processors."""
    pinned = [
        [-1.1403220983544629, 1.6773285178961541],
        [-0.3080005623065024, -0.5380356682376993],
        [1.8561353897004118, -0.0906126643224706],
        [0.12384018457401555, 1.1379441182056547],
    ]
    np.testing.assert_allclose(normals(0)[:4], pinned, rtol=4e-15)


# What the numbers are like.

many = jax.jit(
    jax.vmap(lambda member: _random.normals(_random.member_key(as_key(20), PATH, member), 0, 2, jnp.asarray(0), 1024))
)


@pytest.fixture(scope="module")
def sample():
    """256 members × 1024 numbers × 2 channels."""
    return np.asarray(many(jnp.arange(256)))


def test_moments(sample):
    """Mean 0, variance 1, skewness 0, kurtosis 3, each within 4 standard errors."""
    x, n = sample.ravel(), sample.size
    for power, moment, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96), (6, 15, 10395 - 225)):
        assert abs(np.mean(x**power) - moment) < 4 * math.sqrt(variance / n), power


def test_distribution(sample):
    """Kolmogorov and Smirnov: the distribution is normal, at the level 1e-4."""
    x = np.sort(sample.ravel())
    cdf = 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))
    n = len(x)
    distance = max(np.max(np.arange(1, n + 1) / n - cdf), np.max(cdf - np.arange(n) / n))
    assert distance * math.sqrt(n) < 2.23  # P(D√n > 2.23) = 2 exp(−2·2.23²) = 1e-4
    assert np.abs(x).max() > 4.5  # the tails are there


def test_pairs_are_independent(sample):
    """The two numbers of a Box–Muller pair, neighbours, channels and members: no correlation, nor of squares."""
    even, odd = sample[:, ::2], sample[:, 1::2]
    pairs = [
        (even, odd),
        (odd[:, :-1], even[:, 1:]),
        (sample[..., 0], sample[..., 1]),
        (sample[:-1], sample[1:]),
        (sample[:128], sample[128:]),
    ]
    for a, b in pairs:
        a, b = a.ravel(), b.ravel()
        for f in (lambda x: x), (lambda x: (x**2 - 1) / math.sqrt(2)):
            assert abs(np.mean(f(a) * f(b))) < 4.5 / math.sqrt(len(a))


def test_every_index_changes_all_numbers():
    """Another key, domain, member, level or start gives other numbers, uncorrelated with the first."""
    base = normals()
    others = [
        normals(key=1),
        normals(key=2**32),
        normals(domain=INITIAL),
        normals(domain=PARAMETERS),
        normals(member=1),
        normals(member=2**32),
        normals(level=1),
        normals(start=64),
        normals(start=2**32),
        normals(key=1, member=1),
    ]
    for i, a in enumerate([base, *others]):
        for b in others[i:]:
            assert np.all(a != b)
            assert abs(np.mean(a * b)) < 5 / math.sqrt(a.size)
    assert np.all(base[:, 0] != base[:, 1])


def test_counters_have_64_bits():
    """n and n mod 2³² are different numbers, and 2³² is passed without a seam."""
    assert np.all(normals(start=2**32) != normals(start=0))
    assert np.all(normals(member=2**32 + 5) != normals(member=5))
    across = normals(start=2**32 - 32)
    np.testing.assert_array_equal(across[32:], normals(start=2**32)[:32])


def test_a_number_does_not_depend_on_its_place_in_a_block():
    base = normals()
    for shift in (2, 10, 62):
        np.testing.assert_array_equal(normals(start=shift)[: 64 - shift], base[shift:])
    np.testing.assert_array_equal(normals(channels=1), base[:, :1])


def test_the_ends_of_the_unit_interval_are_safe():
    """The logarithm and the angle functions are right where u is 0 or almost 1, so that every number is finite."""
    u = jnp.array([2.0**-52, 2.0**-30, 0.3, 0.5, np.sqrt(0.5), 1 - 2.0**-52, 1.0])
    np.testing.assert_allclose(jax.jit(_random._log)(u), np.log(u), rtol=1e-15, atol=0)
    turns = jnp.array([0.0, 1e-10, 0.125, 0.25, 0.3, 0.5, 0.625, 0.75, 0.875, 1 - 2.0**-52])
    sine, cosine = jax.jit(_random._sincos)(turns)
    half_turns = [2 * mpmath.mpf(float(t)) for t in turns]
    np.testing.assert_allclose(sine, [float(mpmath.sinpi(t)) for t in half_turns], rtol=1e-15, atol=0)
    np.testing.assert_allclose(cosine, [float(mpmath.cospi(t)) for t in half_turns], rtol=1e-15, atol=0)


@pytest.mark.parametrize("key, member", [(5, 0), (jax.random.key(7), 3)])
def test_initial_normals_are_those_of_the_stream(key, member, compilations):
    """Bit for bit what JAX gives an operation at a time; another number of them compiles next to nothing."""
    with jax.disable_jit():
        own = _random.member_key(as_key(key), INITIAL, member)
        expected = _random.normals(own, 0, 3, 0, 64)
    np.testing.assert_array_equal(_random.initial_normals(key, 3, 63, member), expected[:63])
    with compilations() as count:
        np.testing.assert_array_equal(_random.initial_normals(key, 3, 61, member), expected[:61])
    assert count.n <= 6


def test_many_channels_are_drawn_as_few_are():
    """In parts, the last of which is not full."""
    member = _random.member_key(as_key(3), PATH, 1)
    many, few = (np.asarray(draw(member, 0, 2**14 + 3, 6, 4)) for draw in (_random.many_normals, _random.normals))
    np.testing.assert_allclose(many, few, rtol=1e-15, atol=1e-15)
