"""Splitting: the parts of systems, errors, and exact flows. Orders: in verification."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coadjoint as cj

INERTIA = jnp.array([1.0, 2.0, 3.0])
START = np.array([0.6, -0.7, 0.9])


def run(system, integrator, mu0=START, dt=0.25, key=0, **options):
    key = key if system.n_noise else None
    return cj.solve(system, mu0, t1=2.0, dt=dt, key=key, integrator=integrator, **options)


@pytest.mark.parametrize(
    ("algebra", "blocks"),
    [
        (cj.SO3(), [[0], [1], [2]]),
        (cj.SE3(), [[0, 3], [1, 4], [2, 5]]),
        (cj.SO3() ** 3, [[0, 3, 6], [1, 4, 7], [2, 5, 8]]),
        (cj.SU(2), [[0], [1], [2]]),
    ],
)
def test_blocks(algebra, blocks):
    """Coordinates that commute go together: screws on se(3), components of a spin chain."""
    assert [np.flatnonzero(b).tolist() for b in algebra.commuting_blocks] == blocks


@pytest.mark.parametrize("integrator", [pytest.param(cj.LieTrotter(), marks=pytest.mark.slow), cj.Strang()])
def test_parts_given_and_found(integrator):
    """A rigid body split axis by axis, by itself and by a list, is the same."""
    noise = [cj.salt([0.3, -0.2, 0.5])]
    whole = cj.System(cj.SO3(), lambda m: 0.5 * m @ (m / INERTIA), noise)
    parts = cj.System(cj.SO3(), [lambda m, i=i: 0.5 * m[i] ** 2 / INERTIA[i] for i in range(3)], noise)
    np.testing.assert_allclose(run(parts, integrator).mu, run(whole, integrator).mu, rtol=0, atol=1e-15)


def test_a_list_is_a_sum():
    """For energies, gradients and every other method, with params too."""
    parts = [lambda m, p: p["a"] * m[0] ** 2, lambda m, p: p["b"] * m[1] * m[2]]
    params = {"a": 0.7, "b": 0.3}
    system = cj.System(cj.SO3(), parts, params=params)
    whole = cj.System(cj.SO3(), lambda m, p: p["a"] * m[0] ** 2 + p["b"] * m[1] * m[2], params=params)
    assert len(system.parts) == 2 and whole.parts == ()
    mu = jnp.asarray(START)
    assert float(system.energy(mu)) == float(whole.energy(mu))
    np.testing.assert_array_equal(system.drift(mu), whole.drift(mu))
    np.testing.assert_array_equal(sum(system.part_gradient(k, mu) for k in range(2)), whole.drift(mu))


@pytest.mark.parametrize("integrator", [pytest.param(cj.LieTrotter(), marks=pytest.mark.slow), cj.Strang()])
def test_one_solvable_part_is_solved_exactly(integrator):
    """h = φ(<μ, a>) alone, and a noise φ(<μ, b>) alone: whatever the step, the state is exact."""
    a = jnp.array([0.3, -0.5, 0.8])
    system = cj.System(cj.SO3(), [lambda m: jnp.exp(m @ a)])
    exact = cj.SO3().flow(2.0 * jnp.exp(START @ a) * a, jnp.asarray(START))
    np.testing.assert_allclose(run(system, integrator).mu[-1], exact, rtol=0, atol=1e-14)
    noisy = cj.System(cj.SO3(), [lambda m: 0.0 * m[0]], [lambda m: jnp.sin(m @ a)])
    dS = np.random.default_rng(0).standard_normal((8, 1))
    sol = cj.solve(noisy, START, t1=2.0, dt=0.25, driver=cj.Increments(dS), integrator=integrator)
    exact = cj.SO3().flow(dS.sum() * jnp.cos(START @ a) * a, jnp.asarray(START))
    np.testing.assert_allclose(sol.mu[-1], exact, rtol=0, atol=1e-14)


@pytest.mark.slow
def test_derivatives():
    """Through the parameters of a body that is split by itself."""

    def end(inertia):
        system, pi0 = cj.models.rigid_body(inertia=inertia, alpha=None)
        return jnp.asarray(cj.solve(system, pi0, t1=1.0, dt=0.125, integrator=cj.Strang()).mu[-1])[0]

    inertia, direction = jnp.array([4.0, 2.0, 1.0]), jnp.array([0.0, 1.0, 0.0])
    slope = jax.jvp(end, (inertia,), (direction,))[1]
    difference = (end(inertia + 1e-5 * direction) - end(inertia - 1e-5 * direction)) / 2e-5
    assert abs(slope - difference) < 1e-8 and abs(slope) > 1e-3


def refused(message):
    return pytest.raises(ValueError, match=message)


def test_what_is_refused():
    """Before the step is compiled, with the part that is at fault."""
    with refused(r"Strang needs a Hamiltonian .* couple the coordinates \[0\] to others: give its parts"):
        run(cj.System(cj.SO3(), lambda m: m[0] * m[1]), cj.Strang())
    with refused(r"LieTrotter .* the gradient of hamiltonian\[1\] changes along its own motion, by 0\.\d+"):
        run(cj.System(cj.SO3(), [lambda m: m[0] ** 2, lambda m: m[0] * m[1]]), cj.LieTrotter())
    with refused(r"Strang .* the gradient of noise 2 changes along its own motion"):
        noise = [lambda m: m[0] ** 3, lambda m: m[0] * m[1]]
        run(cj.System(cj.SO3(), lambda m: m[0] ** 2, noise), cj.Strang())
    with refused("Strang splits a Hamiltonian by itself up to dimension 200 only: give its parts"):
        run(cj.System(cj.SO3() ** 67, lambda m: m @ m), cj.Strang(), np.ones(201))
    with refused("hamiltonian must hold at least one function, but the list is empty"):
        cj.System(cj.SO3(), [])
    with pytest.raises(TypeError, match=r"hamiltonian\[1\] must be a function of the state, not a float"):
        cj.System(cj.SO3(), [lambda m: m[0], 3.0])


# ----------------------------------------------------------------------------------------- Maxwell–Bloch


def test_two_pi_pulse():
    """The exact solution E = 2 sech t, θ = 4 arctan eᵗ, by methods that do not use it: order 2."""
    t0, t1 = -2.0, 2.0

    def exact(t):
        theta = 4 * np.arctan(np.exp(t))
        return np.array([2 / np.cosh(t), np.sin(theta), np.cos(theta)])

    system, _ = cj.models.maxwell_bloch(alpha=None)
    for integrator in (cj.Strang(), cj.TMK()):
        errors = []
        for dt in (0.1, 0.05, 0.025, 0.0125):
            sol = cj.solve(system, exact(t0), t0=t0, t1=t1, dt=dt, integrator=integrator)
            errors.append(np.linalg.norm(sol.mu[-1] - exact(t1)))
        orders = np.log2(np.array(errors[:-1]) / errors[1:])
        assert errors[-1] < 1e-2 and np.all(abs(orders - 2) < 0.1)


def test_maxwell_bloch_is_what_it_says():
    """Its vector field is the one in the docstring, noise included; P² + D² is its Casimir, and it may be refused."""
    system, mu = cj.models.maxwell_bloch(alpha=(0.3, 0.7), start=(1.2, 0.5, -0.4))
    E, P, D = np.asarray(mu)
    rate = system.vector_field(mu, jnp.asarray(1.0), jnp.array([2.0, 3.0]))
    one, two = 1 + 0.3 * 2.0, 1 + 0.7 * 3.0
    np.testing.assert_allclose(rate, [P * two, E * D * one, -E * P * one], atol=1e-15)
    assert system.algebra.casimir_names == ("P² + D²",) and system.algebra.index == 1
    with refused(r"alpha must be 2 numbers"):
        cj.models.maxwell_bloch(alpha=0.1)
