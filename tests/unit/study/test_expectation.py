"""Multilevel Monte Carlo: rates of the variance, intervals, resumed estimates, invalid arguments."""

import jax.numpy as jnp
import numpy as np
import pytest

import coadjoint as cj
from coadjoint.drivers import Needs

SIGMA, NORTH = 0.8, [0.0, 0.0, 1.0]
DIFFUSION = cj.System(cj.SO3(), lambda m: 0.0 * m[0], [cj.salt(SIGMA * np.eye(3))])
RUN = {"t1": 1 / SIGMA**2, "key": 2, "dt": 0.25 / SIGMA**2}  # E m(t1) = m(0)/e


def height(m):
    return m[2]


def test_twins_exchange_the_halves_of_each_step():
    window = lambda twin: cj.Brownian(3, grid=0.5, twin=twin).window(2, 0.25, 0, 1, Needs())
    path, twin = (np.asarray(window(t).block(jnp.asarray(5), jnp.asarray(1)).S) for t in (False, True))
    np.testing.assert_array_equal(twin.reshape(-1, 2, 2)[:, ::-1], path.reshape(-1, 2, 2))
    spin = cj.System(cj.SO3(), lambda m: m[2], [cj.salt(np.eye(3))])
    run = {"members": 16, "t1": 1.0, "dt": 0.25, "driver": cj.Brownian(3, grid=0.5, twin=True)}
    native, xla = (cj.ensemble(spin, [0.6, 0.0, 0.8], **run, backend=b).mu for b in ("native", "xla"))
    np.testing.assert_allclose(native, xla, atol=1e-14)
    for dt, method in ((0.5, cj.TMK()), (0.25, cj.TMKLevy())):
        with pytest.raises(ValueError, match=r"twin=True .* needs dt = grid/2 and a method of increments alone"):
            cj.ensemble(spin, [0.6, 0.0, 0.8], **(run | {"dt": dt, "integrator": method}))


def test_isotropic_diffusion():
    """The exact mean, the rate β = 2 by twins, and the same estimate continued."""
    found = cj.expectation(DIFFUSION, NORTH, height, **RUN, tolerance=4e-3)
    assert abs(found.value - np.exp(-1.0)) <= found.half_width <= 4e-3
    assert 1.5 < found.rate < 2.6 and found.cost < 0.5 * found.plain_cost
    rough = cj.expectation(DIFFUSION, NORTH, height, **RUN, tolerance=1e-2)
    finer = cj.expectation(DIFFUSION, NORTH, height, **RUN, tolerance=4e-3, resume=rough)
    assert abs(finer.value - np.exp(-1.0)) <= finer.half_width <= 4e-3
    assert all(b.members >= a.members for a, b in zip(rough.levels, finer.levels, strict=False))
    assert "plain Monte Carlo needs" in repr(found) and repr(found).count("\n") == 2 + len(found.levels)
    other = cj.System(cj.SO3(), lambda m: 0.0 * m[0], [cj.salt(0.5 * SIGMA * np.eye(3))])
    changes = [{"key": 1}, {"functional": lambda m: m[0]}, {"system": other}, {"mu0": [0.0, 0.6, 0.8]}]
    same = {"system": DIFFUSION, "mu0": NORTH, "functional": height, **RUN}
    for change in changes:
        with pytest.raises(ValueError, match="resume is the result of another problem"):
            cj.expectation(**(same | change), tolerance=4e-3, resume=rough)


@pytest.mark.slow
def test_areas_in_place_of_twins_and_vectors():
    found = cj.expectation(DIFFUSION, NORTH, lambda m: m[1:], **RUN, tolerance=2e-2, integrator=cj.TMKLevy())
    assert found.value.shape == (2,) and 1.5 < found.rate < 2.6
    np.testing.assert_allclose(found.value, [0.0, np.exp(-1.0)], atol=2e-2)
    assert np.all(found.interval[0] < found.interval[1])


def test_the_default_coarsest_step_resolves_the_noise():
    strong = cj.System(cj.SO3(), lambda m: 20.0 * m[2], [cj.salt([[1.0, 0, 0], [0, 1.0, 0]])])
    found = cj.expectation(strong, [0.6, 0, 0.8], height, t1=0.5, tolerance=5e-2, key=1)
    assert 0.5 / 2**14 <= found.levels[0].dt <= 0.125


BAD = [
    (ValueError, "tolerance must be above 0", {"tolerance": 0.0}),
    (ValueError, "multiple of dt", {"dt": 0.7}),
    (ValueError, "functional must return one real number or a vector", {"functional": lambda m: jnp.outer(m, m)}),
    (ValueError, "no noise, .* use solve", {"system": cj.System(cj.SO3(), lambda m: m[2])}),
    (ValueError, "strong order, such as TMK", {"integrator": cj.TMKWeak()}),
    (ValueError, r"twins=True exchanges increments", {"integrator": cj.TMKLevy(), "twins": True}),
    (TypeError, "resume must be an earlier result", {"resume": 3}),
    (TypeError, "system must be a System", {"system": None}),
]


@pytest.mark.parametrize(("error", "match", "given"), BAD, ids=range(len(BAD)))
def test_invalid_arguments(error, match, given):
    options = {"system": DIFFUSION, "mu0": NORTH, "functional": height, "tolerance": 1e-2, **RUN} | given
    with pytest.raises(error, match=match):
        cj.expectation(**options)


def test_a_bias_that_stays():
    with pytest.raises(RuntimeError, match=r"the bias is still .* after 2 refinements"):
        cj.expectation(DIFFUSION, NORTH, height, **(RUN | {"dt": RUN["t1"]}), tolerance=1e-2, max_levels=2)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["diffusion", "damped spin"])
def test_intervals_cover(case):
    """The tolerance holds in at least 90 of 100 repetitions."""
    system, mu0, exact, t1 = DIFFUSION, NORTH, np.exp(-1.0), RUN["t1"]
    if case == "damped spin":  # dephasing about an axis while the spin precesses: m_x decays as exp(−σ²t/2) cos t
        system, mu0, t1 = cj.System(cj.SO3(), lambda m: m[2], [cj.salt([0.0, 0.0, SIGMA])]), [1.0, 0.0, 0.0], 1.0
        exact = np.exp(-0.5 * SIGMA**2) * np.cos(1.0)
    functional = height if case == "diffusion" else (lambda m: m[0])
    options = {"t1": t1, "dt": t1 / 4, "tolerance": 1e-2}
    errors = [cj.expectation(system, mu0, functional, key=k, **options).value - exact for k in range(100)]
    assert np.sum(np.abs(errors) <= 1e-2) >= 90
