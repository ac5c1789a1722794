"""Gauss methods and the discrete Moser–Veselov algorithm: what they support, and how they combine with features."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coadjoint as cj

INERTIA = np.array([1.0, 2.0, 3.0])
START = np.array([0.6, 0.1, 0.8])


def energy(m, p):
    return 0.5 * m @ (m / p) + 0.2 * m[0] ** 3 + 0.3 * m[2] ** 4


BODY = cj.System(cj.SO3(), energy, params=jnp.asarray(INERTIA))
FREE = cj.System(cj.SO3(), lambda m, p: 0.5 * m @ (m / p), params=jnp.asarray(INERTIA))
CASES = {"LieGauss": (BODY, cj.LieGauss(4)), "MoserVeselov": (FREE, cj.MoserVeselov(6))}


def of(**options):
    return cj.System(cj.SO3(), lambda m: m @ (m / INERTIA), **options)


NOT_SUPPORTED = [
    (cj.LieGauss(), of(torque=lambda m: -m), TypeError, r"LieGauss does not support a torque: .*RKMK\('gauss4'\)"),
    (
        cj.LieGauss(),
        cj.System(cj.SO3(), lambda m, g: m @ g[2]),
        TypeError,
        "LieGauss does not support functions of the group element g",
    ),
    (cj.IsospectralGauss(6), of(), ValueError, r"for SU\(n\), not for SO3: take LieGauss\(6\)"),
    (
        cj.IsospectralGauss(),
        cj.System(cj.SU(3) ** 2, lambda m: m @ m),
        ValueError,
        "not for Product: take LieGauss",
    ),
    (cj.MoserVeselov(), of(noise=[cj.salt([0, 0, 1.0])]), ValueError, "not a system with noise: LieGauss"),
    (cj.MoserVeselov(), of(forcing=lambda m: m), ValueError, "not a system with forcing"),
    (cj.MoserVeselov(), of(torque=lambda m: -m), ValueError, "not a system with a torque"),
    (
        cj.MoserVeselov(),
        cj.System(cj.SO3(), lambda m, t: t * m @ m),
        ValueError,
        "a Hamiltonian that depends on time: LieGauss",
    ),
    (cj.MoserVeselov(4), cj.models.heavy_top(alpha=None)[0], ValueError, r"MoserVeselov\(4\) is for one rigid body"),
    (cj.MoserVeselov(), cj.System(cj.SO3(), lambda m: m @ m + m[0] * m[1]), ValueError, "turn the body to its princ"),
    (cj.MoserVeselov(), cj.System(cj.SO3(), lambda m: m[0] ** 2 + m[1] ** 2), ValueError, "positive moments of iner"),
    (cj.MoserVeselov(), cj.System(cj.SO3(), lambda m: m @ m + m[0] ** 4), ValueError, "hamiltonian is another func"),
]


@pytest.mark.parametrize(("method", "system", "error", "match"), NOT_SUPPORTED)
def test_systems_that_are_not_supported(method, system, error, match):
    start = np.ones(system.algebra.dim)
    with pytest.raises(error, match=match):
        cj.solve(system, start, t1=1.0, dt=0.1, key=0 if system.n_noise else None, integrator=method)


def test_invalid_arguments():
    with pytest.raises(ValueError, match="order must be 4 or 6, not 5"):
        cj.LieGauss(5)
    with pytest.raises(ValueError, match="order must be 2, 4, 6 or 8, not 3"):
        cj.MoserVeselov(3)
    with pytest.raises(ValueError, match="solver must be one of 'auto', 'chord', 'newton', 'fixed_point', not 'prod"):
        cj.IsospectralGauss(solver="products")
    with pytest.raises(TypeError, match="symmetric method of order 2"):
        cj.Composed(cj.LieGauss(4))


@pytest.mark.parametrize("name", CASES)
def test_runs_combine_with_other_features(name, tmp_path):
    """Backends, ensembles, params by member, group elements, stores and resume agree."""
    system, method = CASES[name]
    run = {"t1": 2.0, "dt": 0.25, "integrator": method}
    sol = cj.solve(system, START, **run, group=True)
    assert sol.stats.backend == "native" and sol.stats.unsolved == 0
    np.testing.assert_allclose(cj.solve(system, START, **run, backend="xla").mu, sol.mu, atol=1e-14)
    np.testing.assert_allclose(np.einsum("tji,j->ti", sol.g, START), sol.mu, atol=1e-14)
    params = np.stack([INERTIA, INERTIA + 0.5])
    members = cj.ensemble(system, START, members=2, params=params, **run)
    np.testing.assert_allclose(members.mu[0], sol.mu, atol=1e-14)
    np.testing.assert_allclose(members.mu[1], cj.solve(system.with_params(params[1]), START, **run).mu, atol=1e-14)
    path = tmp_path / "run.zarr"
    cj.solve(system, START, **(run | {"t1": 1.0}), out=path)
    again = cj.solve(system, START, **run, out=path, resume=True)
    assert np.array_equal(again.mu, cj.solve(system, START, **run, out=tmp_path / "whole.zarr").mu)


@pytest.mark.parametrize("name", CASES)
def test_derivatives(name):
    """By the start and by the params, against central differences."""
    system, method = CASES[name]
    end = lambda m, p: jnp.sum(cj.solve(system.with_params(p), m, t1=1.0, dt=0.25, integrator=method).mu[-1] ** 3)
    by_state, by_params = jax.grad(end, argnums=(0, 1))(jnp.asarray(START), jnp.asarray(INERTIA))
    e = 1e-5 * np.eye(3)[1]
    np.testing.assert_allclose(by_state[1], (end(START + e, INERTIA) - end(START - e, INERTIA)) / 2e-5, rtol=1e-7)
    np.testing.assert_allclose(by_params[1], (end(START, INERTIA + e) - end(START, INERTIA - e)) / 2e-5, rtol=1e-7)


@pytest.mark.slow
def test_the_fallback_solver_takes_long_steps():
    """Steps that the chord method cannot take are solved otherwise, or reported; |π| is conserved."""
    hard = cj.System(cj.SO3(), lambda m: 20.0 * m[0] ** 2 + 3.0 * m[1] ** 2 + jnp.sin(3 * m[2]))
    sol = cj.solve(hard, START, t1=2.0, dt=0.1, integrator=cj.LieGauss(4), throw=False)
    assert sol.casimir_errors().max() < 5e-15
    loose = cj.solve(hard, START, t1=2.0, dt=0.1, integrator=cj.LieGauss(4, tol=1e-2, fallbacks=False), throw=False)
    assert loose.casimir_errors().max() < 5e-15
