"""Forcing: an element of the algebra beside the gradient of h. Every method supports it, or raises an error with the
reason."""

import copy

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coadjoint as cj
from coadjoint.drivers import Increment
from coadjoint.integrators import ALL

A = jnp.array([[0.6, 0.1, 0.0], [0.1, -0.3, 0.2], [0.0, 0.2, 0.5]])
I = jnp.array([1.0, 2.0, 3.0])
MU0 = np.array([0.6, -0.7, 0.9])
BETA = np.array([[0.3, 0.1, -0.2], [0.0, 0.4, 0.1]])


def body(mu):
    return 0.5 * mu @ (mu / I)


def more(mu):
    return 0.5 * mu @ A @ mu


def friction(mu, p):
    return p["theta"] * jnp.cross(mu, mu / I)


def damped(noise=(), theta=0.3, side="left"):
    """A rigid body with double-bracket friction: the energy falls."""
    return cj.System(cj.SO3(), lambda m, p: body(m), noise, params={"theta": theta}, side=side, forcing=[friction])


QUICK = "TMK15", "HeunMK", 'DiscreteGradient("gonzalez")', "CommutatorFree(4)", "LieTrotter", "Strang", "Heun"


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in ALL])
def test_a_gradient_as_forcing(name):
    """h and the gradient of h′ as forcing are h + h′, by every method that takes it, derivatives included."""
    method = ALL[name]
    if hasattr(method, "remove_stabiliser"):  # of ∂h, not of forcing
        method = copy.copy(method)
        object.__setattr__(method, "remove_stabiliser", False)
    noise = [cj.salt(BETA[:1])] if method.claims.strong else []
    forced = cj.System(cj.SO3(), body, noise, side="right", forcing=lambda mu: A @ mu)
    whole = cj.System(cj.SO3(), lambda mu: body(mu) + more(mu), noise, side="right")
    if name.startswith(("LieTrotter", "Strang", "BlanesMoan")):
        with pytest.raises(
            ValueError, match=f"{type(method).__name__} takes the exact flows of parts of h, and a forcing is no part"
        ):
            method.check(forced)
        return
    method.check(forced)
    dS = Increment(0.4 * jnp.ones(len(noise)), jnp.ones(()), Z=0.03 * jnp.ones(len(noise)))
    step = jax.jit(lambda s, mu: method.fast().step(s, mu, 0.0, 0.2, dS, method.init(s, mu))[0])
    a, b = (step(system, jnp.asarray(MU0)) for system in (forced, whole))
    np.testing.assert_allclose(a, b, rtol=0, atol=4e-15)


def test_two_forces_are_their_sum():
    one = cj.System(cj.SO3(), body, forcing=lambda mu: A @ mu - 0.1 * mu[0] * mu)
    two = cj.System(cj.SO3(), body, forcing=[lambda mu: A @ mu, lambda mu: -0.1 * mu[0] * mu])
    np.testing.assert_allclose(one.drift(MU0), two.drift(MU0), rtol=1e-15)
    np.testing.assert_allclose(two.drift(MU0), two.energy_gradient(MU0) + two.force(MU0), rtol=1e-15)
    assert "with forcing" in repr(two) and "forcing" not in repr(cj.System(cj.SO3(), body))


def test_friction_keeps_casimirs_and_takes_energy():
    """To the least energy on the sphere, the long axis; by TMK and by the discrete gradient, native code included."""
    for method in (cj.TMK(), cj.DiscreteGradient()):
        sol = cj.solve(damped(theta=1.0), MU0, t1=60.0, dt=0.1, integrator=method)
        assert sol.stats.backend == "native"
        assert sol.casimir_errors().max() < 5e-15
        assert np.all(np.diff(sol.energy()) <= 1e-16)
        np.testing.assert_allclose(sol.energy()[-1], MU0 @ MU0 / 6, rtol=1e-10)


def test_work_of_the_forcing():
    """DiscreteGradient: the energy changes by −<Δ, g(m)> dt exactly, that is by what σ's other part works."""
    quartic = cj.System(cj.SO3(), lambda m: body(m) + 0.2 * m[0] ** 4, forcing=lambda m: 0.3 * jnp.cross(m, m / I))
    sol = cj.solve(quartic, MU0, t1=2.0, dt=0.1, integrator=cj.DiscreteGradient())
    mu = np.asarray(sol.mu)
    m, delta = 0.5 * (mu[1:] + mu[:-1]), np.diff(mu, axis=0)
    work = -np.sum(delta * np.stack([quartic.force(x) for x in m]), axis=1)
    np.testing.assert_allclose(np.diff(sol.energy()), work, rtol=0, atol=4e-16)


def test_params_by_member_and_derivatives():
    """Friction that varies by member, natively and by XLA; and its derivative against differences."""
    theta = np.linspace(0.0, 0.5, 5)
    options = {"members": 5, "params": {"theta": theta}, "t1": 1.0, "dt": 0.1, "key": 0, "integrator": cj.HeunMK()}
    system = damped([cj.salt(BETA)])
    native, xla = (cj.ensemble(system, MU0, backend=b, **options) for b in ("native", "xla"))
    np.testing.assert_allclose(native.mu, xla.mu, rtol=0, atol=1e-13)

    def end(theta):
        system = damped([cj.salt(BETA)], theta)
        return cj.solve(system, MU0, t1=1.0, dt=0.1, key=0, integrator=cj.HeunMK()).mu[-1, 0]

    assert abs(end(0.0) - native.mu[0, -1, 0]) < 1e-13

    slope = jax.jit(jax.grad(end))(0.3)
    assert abs(slope - (end(0.3001) - end(0.2999)) / 2e-4) < 1e-7


def test_stores_know_the_forcing(tmp_path):
    """A run resumes with its forcing and with no other."""
    out = tmp_path / "run.zarr"
    whole = cj.solve(damped(), MU0, t1=2.0, dt=0.1)
    cj.solve(damped(), MU0, t1=1.0, dt=0.1, out=out)
    quiet = cj.System(cj.SO3(), lambda m, p: body(m), params={"theta": 0.3})
    with pytest.raises(cj.StoreError, match="forcing"):
        cj.solve(quiet, MU0, t1=2.0, dt=0.1, out=out, resume=True)
    again = cj.solve(damped(), MU0, t1=2.0, dt=0.1, out=out, resume=True)
    assert np.array_equal(again.mu, whole.mu)


def test_recommend():
    """What needs a Hamiltonian is not promised."""
    forced, quiet = cj.recommend(damped()), cj.recommend(cj.System(cj.SO3(), body))
    assert "forcing" in forced.system and "Strang" in forced.unsupported
    kept = {what for row in forced for what in row.conserves}
    assert kept == {"Casimirs", "time symmetry"}
    assert {"energy", "Poisson structure"} <= {what for row in quiet for what in row.conserves}


BAD = {
    "a number": (3.0, TypeError, r"forcing must be a function of the state, not a float"),
    "of another shape": ([lambda m: m[:2]], ValueError, r"forcing\[0\] must return an element .* \(3,\), not \(2,\)"),
    "of one number": (lambda m: m @ m, ValueError, r"forcing must return an element of the algebra, .* not \(\)"),
    "complex": (lambda m: 1j * m, TypeError, "forcing must return real numbers on a real algebra"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_forcing(case):
    forcing, kind, words = BAD[case]
    with pytest.raises(kind, match=words):
        cj.System(cj.SO3(), body, forcing=forcing)


def test_forcing_outside_of_the_algebra():
    with pytest.raises(ValueError, match=r"forcing\[0\] must return an element of SU"):
        cj.System(cj.SU(3), lambda W: jnp.sum(jnp.abs(W) ** 2), forcing=[lambda W: W @ W])
