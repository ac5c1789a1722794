"""Paths by member, several reducers, inertia tensors, phases of noise, results inside of JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coadjoint as cj
from coadjoint.drivers import Needs
from coadjoint.runtime.reducers import MultiReducer, as_reducer

RUN = {"t1": 0.4, "dt": 0.1}
BODY, PI0 = cj.models.rigid_body()
TENSOR = np.array([[4.0, 0.1, 0.2], [0.1, 2.0, -0.3], [0.2, -0.3, 1.0]])


def test_paths_by_member():
    """Member k of an ensemble follows path k."""
    dS = 0.3 * np.random.default_rng(0).standard_normal((3, 4, 1))
    ens = cj.ensemble(BODY, PI0, members=3, **RUN, driver=cj.Increments(dS))
    for k in range(3):
        one = cj.solve(BODY, PI0, **RUN, driver=cj.Increments(dS[k]))
        np.testing.assert_allclose(ens.mu[k], one.mu, atol=1e-14)
    assert np.abs(ens.mu[0, -1] - ens.mu[1, -1]).max() > 1e-3


def test_paths_by_member_are_checked():
    driver = cj.Increments(np.zeros((3, 4, 2)), np.zeros((3, 4, 2)), np.zeros((3, 4, 2, 2)))
    driver.check(2, 4, 0.1, Needs(Z=True, areas=True))
    driver.check_members(3)
    with pytest.raises(ValueError, match="3 members, but there are 4 members"):
        driver.check_members(4)
    with pytest.raises(ValueError, match="solve follows one path"):
        driver.check_members(None)
    with pytest.raises(ValueError, match="Z must have the shape of dS"):
        cj.Increments(np.zeros((3, 4, 2)), np.zeros((4, 2)).reshape(1, 4, 2))
    with pytest.raises(ValueError, match="members, steps, M"):
        cj.Increments(np.zeros((2, 3, 4, 1)))


def test_several_reducers():
    """One run, the results of each."""
    reducers = {"mean": cj.Mean(), "spread": cj.Quantiles(low=-2, high=2)}
    several = as_reducer(reducers)
    assert isinstance(several, MultiReducer)
    both = cj.ensemble(BODY, PI0, members=5, **RUN, key=1, reduce=several)
    for name, one in reducers.items():
        alone = cj.ensemble(BODY, PI0, members=5, **RUN, key=1, reduce=one)
        close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-15)
        jax.tree.map(close, both.reduced[name], alone.reduced)
    for wrong in ({}, {1: cj.Mean()}, {"mean": cj.Mean}, cj.Mean, 3):
        with pytest.raises(TypeError, match="reduce must"):
            as_reducer(wrong)


def test_inertia_tensor():
    """In its principal axes it is the body with three moments; turned, the same motion turned."""
    moments, R = np.linalg.eigh(TENSOR)
    R *= np.linalg.det(R)
    plain, _ = cj.models.rigid_body(inertia=moments, alpha=None)
    turned, _ = cj.models.rigid_body(inertia=TENSOR, alpha=None)
    a, b = cj.solve(plain, R.T @ PI0, **RUN), cj.solve(turned, PI0, **RUN)
    np.testing.assert_allclose(b.mu, a.mu @ R.T, atol=1e-13)
    assert b.stats.backend == "native"
    diagonal, mu0 = cj.models.heavy_top(inertia=np.diag([4.0, 2.0, 1.0]), alpha=None)
    top, _ = cj.models.heavy_top(inertia=(4, 2, 1), alpha=None)
    np.testing.assert_allclose(*(cj.solve(s, mu0, **RUN).mu for s in (diagonal, top)), atol=1e-14)


@pytest.mark.parametrize("wrong", [np.array([[1.0, 2, 0], [0, 1, 0], [0, 0, 1]]), np.diag([1.0, -1, 1])])
def test_inertia_tensors_are_checked(wrong):
    with pytest.raises(ValueError, match="inertia must be"):
        cj.models.rigid_body(inertia=wrong)


def test_phases_of_noise():
    """A complex amplitude moves the field: i makes a sine of a cosine."""
    (cosine, _), (sine, _) = (cj.models.sine_euler(n=5, noise_modes=((1, 2),), amplitude=a) for a in (0.1, 0.1j))
    c, s = (cj.models.matrix_to_fourier(x.noises[0].beta[0]) for x in (cosine, sine))
    np.testing.assert_allclose(c[1, 2], 0.1, atol=1e-15)
    np.testing.assert_allclose(s[1, 2], 0.1j, atol=1e-15)
    np.testing.assert_allclose(s[-1, -2], -0.1j, atol=1e-15)
    both, _ = cj.models.sine_euler(n=5, noise_modes=((1, 2), (-1, -2)), amplitude=(0.1, 0.1j))
    assert both.n_noise == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"noise_modes": ((1, 1), (-1, -1))}, "make the same field"),
        ({"noise_modes": ((1, 1), (1, 1)), "amplitude": (1j, 2j)}, "make the same field"),
        ({"amplitude": (0.1, 0.2, 0.3)}, "one for each of the 2 noise_modes"),
        ({"amplitude": "much"}, "amplitude must be numbers, or the path"),
        ({"amplitude": np.nan}, "amplitude must be a finite number"),
    ],
)
def test_noise_of_fluids_is_checked(arguments, words):
    with pytest.raises(ValueError, match=words):
        cj.models.sine_euler(n=5, **arguments)


def test_too_many_noises_for_the_log_signature():
    modes = [(a, b) for a in range(1, 7) for b in range(-3, 4)][:40]
    system, W0 = cj.models.sine_euler(n=13, noise_modes=modes)
    with pytest.raises(ValueError, match=r"40³ numbers .* at most 32: TMKLevy"):
        cj.solve(system, W0, **RUN, key=0, integrator=cj.TMK15())


def test_jit_of_a_solution():
    sol = jax.jit(lambda mu: cj.solve(BODY, mu, **RUN, key=1))(PI0)
    np.testing.assert_allclose(sol.mu, cj.solve(BODY, PI0, **RUN, key=1).mu, atol=1e-14)
    assert sol.stats.backend == "native"
    ens = jax.vmap(lambda mu: cj.solve(BODY, mu, **RUN, key=1))(jnp.stack([PI0, PI0 + 0.1]))
    assert ens.mu.shape == (2, 5, 3)


def test_a_key_that_was_traced_first_is_a_number_afterwards():
    """Keys are kept: one first met inside of jax.jit made all later runs with it traced ones, by XLA."""
    run = {"t1": 0.02, "dt": 0.01, "key": 987_654, "integrator": cj.HeunMK()}
    system, mu0 = cj.models.rigid_body()
    jax.jit(lambda x: cj.solve(system, x, **run).mu)(jnp.asarray(mu0))
    assert cj.solve(system, mu0, **run).stats.backend == "native"


def test_derivative_of_an_attitude():
    @jax.jit
    @jax.value_and_grad
    def f(x):
        sol = cj.solve(BODY, jnp.asarray(PI0) * x, **RUN, key=1, group=True)
        return jnp.sum(sol.attitude("quaternion") @ jnp.arange(1.0, 5.0))

    e = 1e-5
    np.testing.assert_allclose(f(1.0)[1], (f(1.0 + e)[0] - f(1.0 - e)[0]) / (2 * e), rtol=1e-7)
