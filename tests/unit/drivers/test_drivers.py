"""Drivers: one Brownian path at every step size, prescribed paths, and keys."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coadjoint as cj
from coadjoint.drivers import BLOCK, Needs, Window

GRID = 0.1


@eqx.filter_jit
def _blocks(window, member, numbers):
    return jax.vmap(lambda b: window.block(member, b))(numbers)


def increments(driver, dt, steps, n_noise=2, member=0):
    """ΔS of the first `steps` steps, at most 512: always 16 blocks, to compile but once."""
    driver.check(n_noise, steps, dt)
    window = driver.window(n_noise, dt, 0, 16)
    return np.asarray(_blocks(window, jnp.asarray(member), jnp.arange(16)).S).reshape(-1, n_noise)[:steps]


def summed(dS, m):
    return dS.reshape(-1, m, dS.shape[1]).sum(axis=1)


def same_path(a, b):
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-14)


# Brownian motion.


@pytest.mark.parametrize("m", [2, 3, 5, 32, 37])
def test_coarse_increments_are_sums_of_fine_ones(m):
    driver = cj.Brownian(3, grid=GRID)
    n = 512 // m
    same_path(increments(driver, m * GRID, n), summed(increments(driver, GRID, n * m), m))


@pytest.mark.parametrize("level", [1, 2, 3])
def test_bridged_increments_sum_up_to_those_they_refine(level):
    """Down from the grid, level by level, across block boundaries."""
    driver = cj.Brownian(3, grid=GRID)
    fine = increments(driver, GRID / 2**level, 512)
    same_path(summed(fine, 2), increments(driver, GRID / 2 ** (level - 1), 256))
    same_path(summed(fine, 2**level), increments(driver, GRID, 512 // 2**level))


@pytest.mark.parametrize(
    "window",
    [
        cj.Brownian(3).window(2, GRID, 0, 4),
        cj.Brownian(3, grid=GRID).window(2, 3 * GRID, 0, 4),
        cj.Brownian(3, grid=GRID).window(2, GRID / 4, 0, 4),
        cj.Brownian(3, grid=GRID).window(2, GRID / 2, 0, 4, Needs(Z=True, areas=True, signs=1)),
        cj.Increments(np.arange(256.0).reshape(128, 2)).window(2, GRID, 0, 4),
    ],
    ids=["own grid", "summed", "bridged", "integrals", "given"],
)
@pytest.mark.parametrize("count", [2, 8])
def test_steps_are_those_of_their_block(window, count):
    """Large states draw few steps at once."""
    parts = eqx.filter_jit(jax.vmap(lambda n: window.steps(jnp.asarray(1), n, count)))(jnp.arange(0, 4 * BLOCK, count))
    blocks = _blocks(window, jnp.asarray(1), jnp.arange(4))
    for a, b in zip(jax.tree.leaves(parts), jax.tree.leaves(blocks), strict=True):
        same_path(a.reshape(-1, *a.shape[2:]), b.reshape(-1, *b.shape[2:]))


def test_grid_is_the_step_unless_it_is_given():
    np.testing.assert_array_equal(increments(cj.Brownian(3), GRID, 64), increments(cj.Brownian(3, GRID), GRID, 64))
    # Without a grid the same normals are scaled: another dt is then another path.
    same_path(increments(cj.Brownian(3), 4 * GRID, 64), 2 * increments(cj.Brownian(3), GRID, 64))


@pytest.mark.parametrize("dt", [GRID, 3 * GRID, GRID / 2, GRID / 16], ids=["grid", "3 grid", "grid/2", "grid/16"])
def test_increments_are_brownian(dt):
    """Variance dt; neighbours, channels and members are uncorrelated: also where a bridge was put in."""
    driver = cj.Brownian(11, grid=GRID)
    paths = np.stack([increments(driver, dt, 512, member=k) for k in range(64)]) / math.sqrt(dt)
    n = paths.size
    assert abs(np.mean(paths)) < 4.5 / math.sqrt(n)
    assert abs(np.mean(paths**2) - 1) < 4.5 * math.sqrt(2 / n)
    assert abs(np.mean(paths**4) - 3) < 4.5 * math.sqrt(96 / n)
    for lag in (1, 2, 3, 16):
        assert abs(np.mean(paths[:, lag:] * paths[:, :-lag])) < 4.5 / math.sqrt(n), lag
    assert abs(np.mean(paths[..., 0] * paths[..., 1])) < 4.5 / math.sqrt(n / 2)
    assert abs(np.mean(paths[::2] * paths[1::2])) < 4.5 / math.sqrt(n / 2)


def test_members_and_keys_have_their_own_paths():
    paths = [increments(cj.Brownian(k), GRID, 64, member=m) for k in (0, 1) for m in (0, 1)]
    for i in range(4):
        for j in range(i):
            assert np.all(paths[i] != paths[j])


def test_a_channel_does_not_depend_on_how_many_there_are():
    alone = increments(cj.Brownian(3, GRID), GRID, 64, n_noise=1)
    np.testing.assert_array_equal(alone, increments(cj.Brownian(3, GRID), GRID, 64)[:, :1])


@pytest.mark.parametrize("factor", [1.5, 0.75, 1 / 3, 2 + 1e-6, 1e-13])
def test_a_step_that_does_not_fit_the_grid_is_refused(factor):
    with pytest.raises(ValueError, match=r"dt = .* does not fit grid = 0\.1: .*whole multiple.*grid/2"):
        cj.Brownian(0, grid=GRID).check(1, 10, factor * GRID)


@pytest.mark.parametrize("factor", [1.0, 3.0, 7.0, 0.5, 2.0**-10])
def test_a_step_that_fits_up_to_round_off_is_taken(factor):
    for wobble in (1 - 1e-12, 1 + 1e-12):
        cj.Brownian(0, grid=GRID).check(1, 10, factor * GRID * wobble)


@pytest.mark.parametrize(
    "grid, error", [(0.0, ValueError), (-1, ValueError), (math.nan, ValueError), ("1s", TypeError)]
)
def test_grid_must_be_a_number_above_zero(grid, error):
    with pytest.raises(error, match="grid must be"):
        cj.Brownian(0, grid=grid)


def test_bound_grows_with_the_step():
    """Where an implicit method may cut: √(4 dt |ln dt|), above all but rare increments."""
    for dt in (1e-4, 1e-2):
        window = cj.Brownian(0).window(1, dt, 0, 1)
        bound = np.asarray(_blocks(window, jnp.asarray(0), jnp.arange(1)).bound)
        np.testing.assert_allclose(bound, math.sqrt(4 * dt * abs(math.log(dt))))


# Given paths.


def test_given_increments_are_handed_out_as_they_are():
    dS = np.random.default_rng(0).standard_normal((70, 2))
    np.testing.assert_array_equal(increments(cj.Increments(dS), GRID, 70), dS)
    np.testing.assert_array_equal(increments(cj.Increments(dS), GRID, 70, member=5), dS)
    window = cj.Increments(dS).window(2, GRID, 1, 2)  # a window that starts later and ends in padding
    got = np.asarray(_blocks(window, jnp.asarray(0), jnp.array([1, 2])).S)
    np.testing.assert_array_equal(got.reshape(-1, 2)[: 70 - BLOCK], dS[BLOCK:])
    assert np.all(got.reshape(-1, 2)[70 - BLOCK :] == 0)
    assert np.all(np.isinf(_blocks(window, jnp.asarray(0), jnp.array([1])).bound))


@pytest.mark.parametrize(
    "dS", [[1, 2, 3], np.array([1.0, 2.0, 3.0]), jnp.array([[1.0], [2.0], [3.0]]), np.arange(1, 4)]
)
def test_one_noise_may_be_given_as_a_vector(dS):
    np.testing.assert_array_equal(increments(cj.Increments(dS), GRID, 3, n_noise=1), [[1.0], [2.0], [3.0]])


@pytest.mark.parametrize(
    "dS, error, message",
    [
        (np.zeros((2, 3, 4, 1)), ValueError, r"dS must have shape \(steps, M\), or .*, not \(2, 3, 4, 1\)"),
        (np.array(1.0), ValueError, r"dS must have shape \(steps, M\), or \(members, steps, M\), not \(\)"),
        (np.zeros((3, 1), complex), TypeError, "dS must be an array of real numbers, not of type complex128"),
        (["a", "b"], TypeError, "dS must be an array of real numbers"),
        ([True, False], TypeError, "dS must be an array of real numbers, not of type bool"),
        ([[0.0, 1.0], [0.0, math.nan]], ValueError, r"dS must be finite: dS\[1, 1\] is nan"),
        ([0.0, math.inf], ValueError, r"dS must be finite: dS\[1, 0\] is inf"),
    ],
)
def test_increments_that_are_none(dS, error, message):
    with pytest.raises(error, match=message):
        cj.Increments(dS)


def test_increments_must_fit_the_run():
    driver = cj.Increments(np.zeros((10, 2)))
    driver.check(2, 10, GRID)
    with pytest.raises(ValueError, match="dS must have 3 columns, one per noise of the system, not 2"):
        driver.check(3, 10, GRID)
    with pytest.raises(ValueError, match="dS must have 11 rows, one per step of the run, not 10"):
        driver.check(2, 11, GRID)


# Keys.


@pytest.mark.parametrize(
    "key",
    [np.int64(7), np.uint8(7), jax.random.key(7), jax.random.PRNGKey(7), jnp.asarray(7)],
    ids=["int64", "uint8", "key", "PRNGKey", "jax int"],
)
def test_the_same_key_in_another_form_is_the_same_path(key):
    np.testing.assert_array_equal(increments(cj.Brownian(key), GRID, 32), increments(cj.Brownian(7), GRID, 32))


def test_all_words_of_a_key_count():
    """64 bits of an int; split keys; the four words of an `rbg` key."""
    keys = [7, 7 + 2**32, 2**64 - 1, jax.random.key(7, impl="rbg"), jax.random.key(8, impl="rbg")]
    keys += list(jax.random.split(jax.random.key(7), 3))
    paths = [increments(cj.Brownian(k), GRID, 32) for k in keys]
    for i in range(len(paths)):
        for j in range(i):
            assert np.all(paths[i] != paths[j]), (keys[i], keys[j])


@pytest.mark.parametrize(
    "key, error, message",
    [
        (-1, ValueError, "key must be at least 0, not -1"),
        (2**64, ValueError, "key must be below 2\\^64, not 18446744073709551616"),
        (True, TypeError, "key must be an integer or a JAX key, not True"),
        (1.0, TypeError, "key must be an integer or a JAX key, not 1.0"),
        ("0", TypeError, "key must be an integer or a JAX key, not '0'"),
        (None, TypeError, "key must be an integer or a JAX key, not None"),
        (
            jax.random.split(jax.random.key(0), 2),
            ValueError,
            r"key must be one JAX key, not an array of keys of shape \(2,\)",
        ),
    ],
)
def test_keys_that_are_none(key, error, message):
    with pytest.raises(error, match=message):
        cj.Brownian(key)


@pytest.mark.parametrize("needs", [Needs(), Needs(signs=3), Needs(Z=True), Needs(halvings=1)])
@pytest.mark.parametrize("grid", [None, 0.05, 0.4])
def test_the_shape_of_a_step_is_that_of_its_increments(needs, grid):
    """Brownian paths without integrals know it without being traced."""
    window = cj.Brownian(1, grid=grid).window(2, 0.1, 0, 1, needs)
    known, traced = window.step_shape(), Window.step_shape(window)
    assert jax.tree.structure(known) == jax.tree.structure(traced)
    about = lambda tree: [(x.shape, x.dtype, x.weak_type) for x in jax.tree.leaves(tree)]
    assert about(known) == about(traced)
