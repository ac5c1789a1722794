"""Fuzzing: native code against XLA, primitive by primitive, and with random programs and their gradients."""

import itertools
from collections import Counter

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from jax import lax
from native_steps import called, made
from programs import SAMPLES, gradient, program, reference

from stepcompiler.errors import NotCompilable

X = 1.5 * np.random.default_rng(7).standard_normal((8, 4))
SPECIAL = [0.0, 1.0, 0.5, 2.0, np.inf, np.nan, 5e-324, 1e-310, 2.0**-1022, 1e-300, 1e300, np.finfo(float).max, np.pi]
SPECIAL += [-s for s in SPECIAL]
UNARY = """
    abs acos acosh asin asinh atan atanh cbrt ceil cos cosh erf erf_inv erfc exp exp2 expm1 floor is_finite lgamma
    log log1p logistic neg round rsqrt sign sin sinh sqrt square tan tanh
"""
BINARY = "add sub mul div max min pow atan2 rem nextafter eq ne lt le gt ge"
TRUTH = {
    **{name: getattr(mpmath, name) for name in "acosh asinh atanh sinh cosh tan tanh erf erfc log1p expm1".split()},
    "cbrt": lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)),
    "erf_inv": mpmath.erfinv,
    "exp2": lambda x: mpmath.power(2, x),
    "lgamma": mpmath.loggamma,
    "logistic": lambda x: 1 / (1 + mpmath.exp(-x)),
    "pow": mpmath.power,
}


def numbers(count, seed=0):
    """Of all sizes, mostly ordinary."""
    rng = np.random.default_rng(seed)
    wide = rng.choice([-1.0, 1.0], count) * 2.0 ** rng.uniform(-1000, 1000, count)
    return np.concatenate([SPECIAL, wide, rng.uniform(-1, 1, count), rng.uniform(-30, 30, 2 * count)])


def close(out, expected, name, args):
    """To 4 ulps of what XLA has, or of the truth where XLA is further from it; XLA takes subnormal numbers for 0."""
    tiny = np.finfo(float).tiny
    with np.errstate(all="ignore"):
        good = (out == expected) | (np.isnan(out) & np.isnan(expected))
        good |= np.abs(out - expected) <= 4 * np.spacing(np.abs(expected))
        good |= (np.abs(out) <= 4 * tiny) & (np.abs(expected) <= 4 * tiny)
        good |= np.any([(x != 0) & (np.abs(x) < tiny) for x in args], axis=0)
    for i in np.flatnonzero(~good):
        if name in TRUTH and all(np.isfinite(x[i]) for x in args):
            with mpmath.workdps(60):
                truth = TRUTH[name](*(mpmath.mpf(float(x[i])) for x in args))
                truth = float(truth.real) if abs(truth) < mpmath.mpf(2) ** 1024 else np.sign(out[i]) * np.inf
            good[i] = out[i] == truth or abs(out[i] - truth) <= 4 * np.spacing(abs(truth))
    return good


def check(name, args):
    """One primitive at many numbers, eight side by side."""
    primitive = getattr(lax, name)
    args = [np.resize(x, 8 * (-(-len(x) // 8))) for x in args]
    fn = lambda x: 1.0 * primitive(*(x[i] for i in range(len(args))))
    rows = np.stack(args, axis=1)
    out = called(made(fn, rows, width=8), rows)[0].ravel()
    expected = np.asarray(jax.jit(lambda *x: 1.0 * primitive(*x))(*args))
    good = close(out, expected, name, args)
    assert good.all(), [(*(x[i] for x in args), out[i], expected[i]) for i in np.flatnonzero(~good)[:5]]


@pytest.mark.parametrize("name", UNARY.split())
def test_functions_of_one_number(name):
    check(name, [numbers(100)])


@pytest.mark.parametrize("name", BINARY.split())
def test_functions_of_two_numbers(name):
    pairs = np.array([*itertools.product(SPECIAL, SPECIAL), *zip(numbers(60, 1), numbers(60, 2), strict=True)])
    check(name, list(pairs.T))


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint32, np.uint8])
def test_whole_numbers(dtype):
    info = np.iinfo(dtype)
    rng = np.random.default_rng(3)
    some = np.concatenate([[info.min, info.max, 0, 1, 2, 7], rng.integers(info.min, info.max, 6, dtype, endpoint=True)])
    some = np.concatenate([some, [-1, -2]]) if info.min < 0 else some
    pairs = np.array(list(itertools.product(some.astype(np.int64), repeat=2)), np.int64)
    names = "add sub mul div rem max min bitwise_and bitwise_or bitwise_xor shift_left shift_right_logical "
    names = (names + "shift_right_arithmetic eq lt ge").split()

    def fn(x):
        a, b = x.astype(dtype)
        out = [getattr(lax, name)(a, b) for name in names]
        out += [getattr(lax, name)(a) for name in ("neg", "sign", "bitwise_not", "population_count", "clz")]
        return jnp.stack([jnp.asarray(y).astype(jnp.int64) for y in [*out, *([lax.abs(a)] if info.min else [])]])

    out = called(made(fn, pairs), pairs)[0].view(np.int64)
    np.testing.assert_array_equal(out, jax.jit(jax.vmap(fn))(pairs))


def outside(fn, seed, out, samples=SAMPLES):
    """The results with errors above round-off: the result, the expected number, and the allowed error."""
    expected, bound, certain, huge = reference(fn, X, seed, samples)
    with np.errstate(all="ignore"):
        good = (np.abs(out - expected) <= bound) | (out == expected) | (np.isnan(out) & np.isnan(expected))
        good |= ~certain | huge[:, None] | ~(bound < np.inf)
    return [(out[tuple(i)], expected[tuple(i)], bound[tuple(i)]) for i in np.argwhere(~good)]


def compare(fn, seed, counts):
    """One random program, at width 1 and 8; counts what became of it."""
    try:
        natives = [made(fn, X, width=width, limit=20_000) for width in (1, 8)]
    except NotCompilable as refusal:
        assert str(refusal).endswith(("rule.", "operations.", "the most.")), (seed, str(refusal))
        counts[str(refusal)] += 1
        return
    (one, _), (many, _) = (called(native, X) for native in natives)
    np.testing.assert_array_equal(one, many, f"program {seed}: bits depend on the width")
    bad = outside(fn, seed, one)
    if bad:  # few samples of what round-off can do may have been too few
        bad = outside(fn, seed, one, 10 * SAMPLES)
    assert not bad, (seed, bad[:3])
    counts["compared"] += 1


def fuzz(seeds, show=False):
    counts = Counter()
    for seed in seeds:
        compare(program(seed), seed, counts)
        compare(gradient(seed), seed, counts)
        if show and seed % 50 == 49:
            jax.clear_caches()
            print(seed + 1, dict(counts), flush=True)
    assert counts["compared"] >= 0.9 * 2 * len(seeds), counts
    return counts


def test_random_programs():
    """A slice of the thousands that `make verify` runs."""
    fuzz(range(6))


@pytest.mark.slow
def test_thousands_of_random_programs():
    fuzz(range(1000, 2500), show=True)
