"""Noise that depends on params: SALT fields and scales, objects with apply(mu, dS, params)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coadjoint as cj

BETA = np.array([[0.3, 0.1, -0.2], [0.0, 0.4, 0.1]])
MU0 = np.array([0.6, -0.7, 0.9])
RUN = {"t1": 0.5, "dt": 0.1}


def h(mu, p):
    return 0.5 * mu @ (mu / jnp.array([1.0, 2.0, 3.0]))


def system(noise, params):
    return cj.System(cj.SO3(), h, [noise], params=params)


def fixed(factor=1.0):
    return cj.System(cj.SO3(), lambda mu: h(mu, None), [cj.salt(factor * BETA)])


@pytest.mark.parametrize(
    ("noise", "params"),
    [
        (cj.salt(lambda p: p["beta"]), {"beta": 2.0 * BETA}),
        (cj.salt(BETA, scale=lambda p: p["s"]), {"s": 2.0}),
        (cj.salt(BETA, scale=lambda p: p["s"]), {"s": np.array([2.0, 2.0])}),
    ],
)
def test_salt_of_params_is_salt(noise, params):
    """The same run as with fields that are fixed, by native code too."""
    s = system(noise, params)
    assert s.n_noise == 2 and s.additive and not s.commuting
    for method in (cj.TMK(), cj.TMK15()):
        a = cj.solve(s, MU0, **RUN, key=1, integrator=method)
        b = cj.solve(fixed(2.0), MU0, **RUN, key=1, integrator=method)
        np.testing.assert_allclose(a.mu, b.mu, atol=1e-14)
        assert a.stats.backend == b.stats.backend


def test_salt_by_member():
    s = system(cj.salt(BETA, scale=lambda p: p["s"]), {"s": 1.0})
    factors = np.array([0.0, 0.5, 2.0])
    ens = cj.ensemble(s, MU0, members=3, params={"s": factors}, **RUN, key=1)
    for k, factor in enumerate(factors):
        one = cj.ensemble(fixed(factor), MU0, members=3, **RUN, key=1)
        np.testing.assert_allclose(ens.mu[k], one.mu[k], atol=1e-13)


def test_amplitude_can_be_fitted():
    """The derivative with respect to an amplitude is that of central differences."""

    def end(sigma):
        s = system(cj.salt(BETA, scale=lambda p: p), sigma)
        return cj.solve(s, MU0, **RUN, key=1).mu[-1] @ np.arange(1.0, 4.0)

    e = 1e-5
    slope = (end(1.3 + e) - end(1.3 - e)) / (2 * e)
    np.testing.assert_allclose(jax.jit(jax.grad(end))(1.3), slope, rtol=1e-7)


def test_salt_of_params_says_what_is_wrong():
    with pytest.raises(ValueError, match="the system has none"):
        cj.System(cj.SO3(), lambda mu: mu @ mu, [cj.salt(lambda p: p)])
    with pytest.raises(ValueError, match="beta of shape"):
        system(cj.salt(lambda p: p), np.zeros(4))
    with pytest.raises(ValueError, match="one per field"):
        system(cj.salt(BETA, scale=lambda p: p), np.zeros(3))
    with pytest.raises(TypeError, match="scale must be a function"):
        cj.salt(BETA, scale=2.0)
    with pytest.raises(TypeError, match="not both"):
        cj.salt(lambda p: p, scale=lambda p: p)


class Old:
    size = 2

    def apply(self, mu, dS):
        return dS @ (2.0 * BETA)


class New:
    size = 2
    additive = True

    def apply(self, mu, dS, params):
        return dS @ (params["s"] * BETA)


def test_objects_may_take_params():
    """`apply(mu, dS, params)` gets them, by member too; `apply(mu, dS)` works as before."""
    a, b = (system(noise, {"s": 2.0}) for noise in (New(), Old()))
    np.testing.assert_allclose(*(cj.solve(s, MU0, **RUN, key=1).mu for s in (a, b)), atol=1e-13)
    ens = cj.ensemble(a, MU0, members=2, params={"s": np.array([1.0, 2.0])}, **RUN, key=1)
    np.testing.assert_allclose(ens.mu[1], cj.ensemble(b, MU0, members=2, **RUN, key=1).mu[1], atol=1e-13)
