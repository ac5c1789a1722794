"""Where the equation of an implicit step has several roots, the step's is the one that continues from σ = 0."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coadjoint as cj
from coadjoint.drivers import Increment
from coadjoint.integrators import tmk
from coadjoint.integrators.implicit import from_near

I = jnp.array([1.0, 2.0, 3.0])
BODY = cj.System(cj.SO3(), lambda m: 0.5 * m @ (m / I))
NEAR = from_near(cj.TMK().fast())
ROUGH = cj.System(
    cj.SO3(), lambda m: BODY.h(m) + jnp.sin(2 * m[0]) * m[1] + 0.3 * m[2] ** 4, [cj.salt([0.3, 0.2, 0.1])]
)


def so4():
    """A user's so(4), with its basis E_ij = e_i e_jᵀ − e_j e_iᵀ."""
    pairs = [(i, j) for i in range(4) for j in range(i)]
    basis = np.array([np.eye(4)[[i]].T @ np.eye(4)[[j]] - np.eye(4)[[j]].T @ np.eye(4)[[i]] for i, j in pairs])
    brackets = [[a @ b - b @ a for b in basis] for a in basis]
    constants = np.array([[[c[i, j] for i, j in pairs] for c in row] for row in brackets])
    return cj.System(
        cj.StructureConstants(constants), lambda m: 0.5 * m @ (m / jnp.arange(1, 7)), [cj.salt(0.3 * np.eye(6)[:3])]
    )


SYSTEMS = {
    "so(3), bath": lambda: cj.heat_bath(BODY, temperature=0.1, friction=1.0),
    "se(3)": lambda: cj.models.heavy_top(alpha=0.4 * np.eye(3))[0],
    "so(4)": so4,
}


def steps(system, count):
    """Random states and increments of a step of length one."""
    rng = np.random.default_rng(0)
    return rng.standard_normal((count, system.algebra.dim)), rng.standard_normal((count, system.n_noise))


def found(system, method):
    """σ of steps, and whether they were solved: a function of states, step and increments."""

    def one(mu, dt, S):
        sigma, info, *_ = method.sigma(system, mu, 0.0, dt, Increment(jnp.sqrt(dt) * S, jnp.inf))
        return sigma, info.converged

    return mapped(one)


def followed(system):
    """The same of roots that are followed by Newton's method from no step to the whole step; whether none jumped."""

    def one(mu, dt, S):
        f = cj.TMK().equation(system, mu, dt, jnp.sqrt(dt) * S)
        residual = lambda x, lam: f(x, lam)[0]

        def along(x, lam):
            newton = lambda _, x: x - jnp.linalg.solve(jax.jacfwd(residual)(x, lam), residual(x, lam))
            new = jax.lax.fori_loop(0, 3, newton, x)
            return new, jnp.linalg.norm(new - x)

        x, moved = jax.lax.scan(along, jnp.zeros(system.algebra.dim), jnp.linspace(0.0, 1.0, 101))
        left = jnp.linalg.norm(residual(x, jnp.ones(())))
        return x, (left < 1e-13 * (1.0 + jnp.linalg.norm(x))) & (jnp.max(moved) < 0.1)

    return mapped(one)


def mapped(one):
    """Over states and increments."""
    each = jax.jit(jax.vmap(one, (0, None, 0)))
    return lambda mu, dt, S: [np.asarray(x) for x in each(mu, jnp.asarray(dt), S)]


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_root_that_continues_from_zero(name):
    """Of all steps that are solved without fallbacks, small and large: they are most of them."""
    system = SYSTEMS[name]()
    mu, S = steps(system, 100)
    roots, sigmas = followed(system), found(system, NEAR)
    for dt, most in ((0.05, 0.99), (0.2, 0.9), (0.8, 0.4)):
        (root, ended), (sigma, solved) = roots(mu, dt, S), sigmas(mu, dt, S)
        both = solved & ended
        assert np.mean(both) > most
        np.testing.assert_allclose(sigma[both], root[both], rtol=0, atol=1e-12)


def test_from_zero_a_large_step_may_find_another_root():
    """The chord method from near the root does not here, so that this would tell if it did."""
    step = np.array([[0.64, 2.23, 0.67]]), 0.4, np.array([[-1.62]])
    root, ended = followed(ROUGH)(*step)
    sigma, solved = found(ROUGH, NEAR)(*step)
    assert ended.all() and solved.all()
    np.testing.assert_allclose(sigma, root, rtol=0, atol=1e-12)
    other, solved = found(ROUGH, cj.TMK().fast())(*step)
    assert solved.all() and np.linalg.norm(other - root) > 0.1


@pytest.mark.parametrize(("size", "near"), [(0.1, True), (3.0, False)])
def test_a_start_that_is_not_near_is_none(size, near):
    """Where the expansion does not converge, the step is called unsolved: another program takes it, from σ = 0."""
    mu, dt = size * np.array([1.0, -2.0, 1.5]), 0.8

    @jax.jit
    def jacobians(mu):
        start = tmk.near_root(BODY, mu, dt, jnp.zeros(0))
        f = cj.TMK().equation(BODY, mu, dt, jnp.zeros(0))
        return start.G, jax.jacfwd(lambda x: f(x, jnp.ones(()))[0])(start.x)

    G, true = jacobians(mu)
    assert (np.abs(np.eye(3) - G - true).max() < 2e-2) == near
    assert found(BODY, NEAR)(mu[None], dt, np.zeros((1, 0)))[1].all() == near
