"""Compositions: schemes and their order conditions, what is not supported, and how they combine with other features."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coadjoint as cj
from coadjoint.integrators.composition_schemes import SCHEMES, leaves_the_step, order_of

INERTIA = np.array([1.0, 2.0, 3.0])
START = np.array([0.6, 0.1, 0.8])
METHOD = cj.Composed(cj.LieMidpoint(), "mclachlan4")
RUN = {"t1": 2.0, "dt": 0.25, "integrator": METHOD}


def energy(m, p):
    return 0.5 * m @ (m / p) + 0.2 * m[0] ** 3 + 0.3 * m[2] ** 4


BODY = cj.System(cj.SO3(), energy, params=jnp.asarray(INERTIA))


def test_schemes_are_symmetric_and_have_the_order_of_their_name():
    for name, scheme in SCHEMES.items():
        assert order_of(scheme) == int(name[-1]), name
        assert scheme == scheme[::-1] and abs(sum(scheme) - 1.0) < 1e-15
    assert {n for n, s in SCHEMES.items() if leaves_the_step(s)} == {"yoshida4", "yoshida6", "yoshida8"}
    assert cj.Composed(scheme=(0.25, 0.5, 0.25)).claims.order == 2
    p = 1 / (2 - 2 ** (1 / 3))
    assert cj.Composed(scheme=[p, 1 - 2 * p, p]).claims.order == 4


def test_claims_are_those_of_the_method():
    claims = cj.Composed(cj.LieMidpoint(), "kahan-li6").claims
    assert claims.symplectic and claims.casimirs and claims.symmetric and not claims.strong
    assert cj.Composed(cj.DiscreteGradient(), "suzuki4").claims.energy == "any"
    assert cj.Composed(cj.Strang(), "yoshida4").claims.explicit


@pytest.mark.parametrize(
    ("error", "match", "make"),
    [
        (ValueError, "scheme must be .*suzuki4.*not 'suzuki5'", lambda: cj.Composed(scheme="suzuki5")),
        (ValueError, "add up to 1, not to 0.9", lambda: cj.Composed(scheme=(0.45, 0.45))),
        (ValueError, "must be symmetric", lambda: cj.Composed(scheme=(0.25, 0.75))),
        (ValueError, "one of suzuki4, .* sequence of coefficients", lambda: cj.Composed(scheme=[])),
        (TypeError, r"symmetric method of order 2, .* not RKMK", lambda: cj.Composed(cj.RKMK("rk4"))),
        (TypeError, "symmetric method of order 2", lambda: cj.Composed(METHOD)),
        (TypeError, "integrator must be an Integrator .*not 'TMK'", lambda: cj.Composed("TMK")),
    ],
)
def test_invalid_arguments(error, match, make):
    with pytest.raises(error, match=match):
        make()


def test_nothing_acts_backwards_in_time():
    h = lambda m: m[0] ** 2
    systems = {
        "noise": cj.System(cj.SO3(), h, [cj.salt([0, 0, 1.0])]),
        "forcing": cj.System(cj.SO3(), h, forcing=lambda m: m),
        "a torque": cj.System(cj.SO3(), h, torque=lambda m: -m),
        "dissipation": cj.System(cj.SO3(), h, dissipation=lambda m, dt: m * jnp.exp(-dt)),
    }
    for name, system in systems.items():
        with pytest.raises(ValueError, match=f"Composed does not support a system with {name}: .*negative steps"):
            cj.solve(system, START, **RUN, key=0 if name == "noise" else None)
    pulse = cj.inputs.piecewise([0.0, 1.0, 2.0], [1.0, 0.0])
    switching = cj.System(cj.SO3(), lambda m, t: 0.5 * m @ (m / INERTIA) + pulse(t) * m[2])
    with pytest.raises(ValueError, match=r"evaluates an input of hamiltonian outside the time step, .*kahan-li6"):
        cj.solve(switching, START, t1=2.0, dt=0.25, integrator=cj.Composed(scheme="yoshida4"))
    assert cj.solve(switching, START, **RUN).casimir_errors().max() < 5e-15


def test_runs_combine_with_other_features(tmp_path):
    """Backends, ensembles, params by member, group elements, stores, resume and traced runs agree."""
    sol = cj.solve(BODY, START, **RUN, group=True)
    assert sol.stats.backend == "native" and sol.stats.unsolved == 0
    np.testing.assert_allclose(cj.solve(BODY, START, **RUN, backend="xla").mu, sol.mu, atol=1e-14)
    np.testing.assert_allclose(np.einsum("tji,j->ti", sol.g, START), sol.mu, atol=1e-14)
    params = np.stack([INERTIA, INERTIA + 0.5])
    members = cj.ensemble(BODY, START, members=2, params=params, **RUN)
    np.testing.assert_allclose(members.mu[0], sol.mu, atol=1e-14)
    np.testing.assert_allclose(members.mu[1], cj.solve(BODY.with_params(params[1]), START, **RUN).mu, atol=1e-14)
    path = tmp_path / "run.zarr"
    cj.solve(BODY, START, **(RUN | {"t1": 1.0}), out=path)
    again = cj.solve(BODY, START, **RUN, out=path, resume=True)
    assert np.array_equal(again.mu, cj.solve(BODY, START, **RUN).mu)


def test_derivative():
    """Against central differences."""
    end = lambda p: cj.solve(BODY.with_params(p), START, **RUN).mu[-1]
    slope = jax.jacfwd(end)(jnp.asarray(INERTIA))
    step = 1e-5
    for k, e in enumerate(np.eye(3) * step):
        np.testing.assert_allclose(slope[:, k], (end(INERTIA + e) - end(INERTIA - e)) / (2 * step), atol=1e-8)


def test_functions_of_the_group_element():
    """TMK is symmetric there, and keeps the order of the scheme; other methods raise."""
    chi = np.array([0.2, 0.1, 0.9])
    top = cj.System(cj.SO3(), lambda m, g: 0.5 * m @ (m / INERTIA) + g[2] @ chi)
    end = lambda method, dt: cj.solve(top, START, t1=2.0, dt=dt, integrator=method).mu[-1]
    with pytest.raises(ValueError, match=r"argument g only with TMK\(\)"):
        end(METHOD, 0.25)
    exact = end(cj.RKMK("rk4"), 1 / 512)
    errors = [np.abs(end(cj.Composed(cj.TMK(), "suzuki4"), dt) - exact).max() for dt in (0.5, 0.25, 0.125, 0.0625)]
    assert abs(np.polyfit(np.log([0.5, 0.25, 0.125, 0.0625]), np.log(errors), 1)[0] - 4.0) < 0.3
