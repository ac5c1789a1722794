"""Fractional Brownian motion: its covariance within the stated error, and one path at every step size."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coadjoint as cj
from coadjoint.drivers import Needs
from coadjoint.drivers.fractional import spectrum, variance

GRID = 0.1


@eqx.filter_jit
def _blocks(window, members, count):
    one = lambda member: jax.vmap(lambda b: window.block(member, b))(jnp.arange(count))
    return jax.vmap(one)(members)


def increments(driver, dt, blocks, members, channels=1, needs=Needs()):
    driver.check(channels, 32 * blocks, dt, needs)
    window = driver.window(channels, dt, 0, blocks, needs)
    return jax.tree.map(
        lambda x: np.asarray(x).reshape(members, -1, *x.shape[3:]), _blocks(window, jnp.arange(members), blocks)
    )


@pytest.mark.parametrize("hurst", [0.1, 0.3, 0.45, 0.55, 0.7, 0.95])
def test_the_stated_error_bounds_the_error_of_variances(hurst):
    """At other times than those it was measured at, with few processes."""
    found = spectrum(hurst, 0.01, 1e4, 1e-3)
    t = np.geomspace(0.01, 1e4, 997)
    error = np.max(np.abs(variance(hurst, found.rates, found.variances, t) / t ** (2 * hurst) - 1))
    assert error <= 1.02 * found.error <= 1.02e-3
    assert len(found.rates) <= 25


@pytest.mark.parametrize("hurst", [0.3, pytest.param(0.7, marks=pytest.mark.slow)])
def test_sampled_covariances_are_those_of_fractional_brownian_motion(hurst):
    S = increments(cj.FractionalBrownian(hurst, key=4), GRID, 2, 4000).S[:, :, 0]
    path = np.cumsum(S, axis=1)
    t = GRID * np.arange(1, 65)
    exact = 0.5 * (t[:, None] ** (2 * hurst) + t ** (2 * hurst) - np.abs(t[:, None] - t) ** (2 * hurst))
    for i, j in [(0, 0), (0, 63), (7, 8), (31, 31), (15, 63), (63, 63)]:
        products = path[:, i] * path[:, j]
        assert abs(products.mean() - exact[i, j]) < 4 * products.std() / np.sqrt(4000) + 1e-3 * exact[i, j]
    lagged = S[:, 10] * S[:, 12]
    assert abs(lagged.mean() - (exact[12, 10] - exact[11, 10] - exact[12, 9] + exact[11, 9])) < 4 * lagged.std() / 63


@pytest.mark.slow
@pytest.mark.parametrize("hurst", [0.3, 0.7])
def test_coarse_and_fine_steps_follow_one_path(hurst):
    driver = cj.FractionalBrownian(hurst, key=4, grid=GRID, depth=2)
    base, fine = increments(driver, GRID, 2, 2, 2).S, increments(driver, GRID / 4, 4, 2, 2).S
    np.testing.assert_allclose(fine.reshape(2, -1, 4, 2).sum(2), base[:, :32], atol=1e-12)
    coarse = increments(driver, 2 * GRID, 1, 2, 2).S
    np.testing.assert_allclose(base.reshape(2, -1, 2, 2).sum(2), coarse, atol=1e-12)


@pytest.mark.slow
def test_runs():
    system = cj.System(cj.SO3(), lambda m: 0.5 * m[2] ** 2, [cj.salt(np.eye(3)[:2])])
    commuting = cj.System(cj.SO3(), lambda m: 0.4 * m[2], [cj.salt(np.eye(3)[2:])])
    mu0 = np.array([0.0, 0.6, 0.8])
    sol = cj.solve(system, mu0, t1=3.2, dt=0.1, driver=cj.FractionalBrownian(0.7, key=1))
    assert sol.stats.backend == "native"
    driver = cj.FractionalBrownian(0.2, key=1)
    end = cj.solve(commuting, mu0, t1=3.2, dt=0.1, driver=driver).mu[-1]
    angle = 0.4 * 3.2 + increments(driver, 0.1, 1, 1).S.sum()
    np.testing.assert_allclose(end, [np.sin(angle) * 0.6, np.cos(angle) * 0.6, 0.8], atol=1e-12)
    with pytest.raises(ValueError, match="hurst at most 1/3"):
        cj.solve(system, mu0, t1=3.2, dt=0.1, driver=driver)
    with pytest.raises(ValueError, match="horizon of FractionalBrownian is 2"):
        cj.solve(commuting, mu0, t1=3.2, dt=0.1, driver=cj.FractionalBrownian(0.2, horizon=2.0))
    with pytest.raises(ValueError, match="give depth=2"):
        cj.solve(commuting, mu0, t1=3.2, dt=0.1, driver=cj.FractionalBrownian(0.2, grid=0.4))


@pytest.mark.parametrize("hurst", [0.0, 0.5, 1.0, -1.0, np.nan])
def test_invalid_exponents(hurst):
    with pytest.raises(ValueError, match="hurst must be"):
        cj.FractionalBrownian(hurst)
