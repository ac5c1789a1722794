"""No needless compilation: what differs only in numbers reuses what was compiled."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coadjoint as cj

EM = cj.EulerMaruyamaMK()


def body(inertia=(4.0, 2.0, 1.2), kick=0.1, alpha=(0.1, 0.2, 0.3), power=2, factor=0.5):
    """A system made anew: re-created lambdas that close over arrays, nonlinear and SALT noise, params."""
    weights = jnp.asarray(inertia)
    hamiltonian = lambda m, p: factor * jnp.sum(m**power / weights) + p["k"] * m[0]
    return cj.System(cj.SO3(), hamiltonian, [cj.salt(alpha), lambda m, p: kick * p["k"] * m[2] ** 2], params={"k": 0.3})


def run(system=None, mu0=(0.6, 0.0, 0.8), **options):
    options = {"t1": 1.0, "dt": 0.1, "key": 0, "integrator": EM} | options
    return cj.solve(body() if system is None else system, np.asarray(mu0, float), **options)


def ensemble(system=None, mu0=(0.6, 0.0, 0.8), **options):
    options = {"t1": 1.0, "dt": 0.1, "key": 0, "integrator": EM, "members": 4} | options
    return cj.ensemble(body() if system is None else system, np.asarray(mu0, float), **options)


def everything(sol):
    return sol.mu, sol.casimirs(), sol.energy(), sol.casimir_errors(), repr(sol)


@pytest.fixture(scope="module", autouse=True)
def warm():
    everything(run())
    run(key=jax.random.key(1))
    run(driver=cj.Increments(np.zeros((10, 2))), key=None)
    run(save=lambda m: {"x": m[0]})
    everything(ensemble())
    ensemble(mu0=np.tile([0.6, 0.0, 0.8], (4, 1)))
    ensemble(params={"k": np.arange(4.0)})
    ensemble(reduce=cj.Mean())


def test_a_new_program_is_counted(compilations):
    """So that the zeros below mean something."""
    with compilations() as count:
        jax.jit(lambda x: x * 17.25)(jnp.ones(3))
    assert count.n >= 1


RUNS = {
    "again": lambda: run(),
    "another key": lambda: run(key=12345),
    "a JAX key": lambda: run(key=jax.random.key(3)),
    "another t1": lambda: run(t1=2.3),
    "a long run": lambda: run(t1=500.0),
    "another t0": lambda: run(t0=-1.0),
    "another dt": lambda: run(dt=0.05),
    "another save_every": lambda: run(save_every=5),
    "another state": lambda: run(mu0=(0.0, 1.0, 0.0)),
    "a state as a list": lambda: cj.solve(body(), [1, 0, 0], t1=1.0, dt=0.1, key=0, integrator=EM),
    "other params": lambda: run(body().with_params({"k": 0.7})),
    "params of another type": lambda: run(body().with_params({"k": np.float32(0.5)})),
    "another captured array": lambda: run(body(inertia=(3.0, 2.5, 1.5))),
    "another SALT field": lambda: run(body(alpha=(0.4, 0.5, 0.1))),
    "a new integrator": lambda: run(integrator=cj.EulerMaruyamaMK()),
    "given increments": lambda: run(driver=cj.Increments(np.full((10, 2), 0.1)), key=None),
    "given increments of another length": lambda: run(driver=cj.Increments(np.ones((45, 2))), key=None, t1=4.5),
    "throw=False": lambda: run(throw=False),
    "a re-created save": lambda: run(save=lambda mu: {"x": mu[0]}),
}


@pytest.mark.parametrize("name", RUNS)
def test_solve_is_not_compiled_again(name, compilations):
    RUNS["again"]()
    with compilations() as count:
        RUNS[name]()
    assert count.n == 0


def test_exact_zeros_and_ones_cost_one_program_at_most(compilations):
    """Small programs may fold in numbers that are exactly 0 or 1: a new pattern of them is compiled once, no more."""
    with compilations() as count:
        run(body(inertia=(1.0, 2.0, 3.0), alpha=(0.0, 0.5, 0.0)))
    assert count.n <= 1
    with compilations() as count:
        run(body(inertia=(1.0, 2.5, 3.5), alpha=(0.0, 0.7, 0.0)))
    assert count.n == 0


def test_diagnostics_are_not_compiled_again(compilations):
    solutions = run(t1=1.7, key=1), run(body(inertia=(3.0, 2.5, 1.5)), t1=200.0), ensemble(t1=0.7, members=3)
    with compilations() as count:
        for sol in solutions:
            everything(sol)
    assert count.n == 0


ENSEMBLES = {
    "again": lambda: ensemble(),
    "another key": lambda: ensemble(key=9),
    "another t1, dt, save_every": lambda: ensemble(t1=3.0, dt=0.05, save_every=4),
    "fewer members of a batch": lambda: ensemble(members=3),
    "another state": lambda: ensemble(mu0=(0.0, 0.0, 1.0)),
    "other states": lambda: ensemble(mu0=np.eye(3)[[0, 1, 2, 0]]),
    "other params": lambda: ensemble(params={"k": np.arange(4.0) + 1}),
    "another captured array": lambda: ensemble(body(inertia=(3.0, 2.5, 1.5))),
    "a reducer": lambda: ensemble(reduce=cj.Mean(), key=4, t1=2.0),
}


@pytest.mark.parametrize("name", ENSEMBLES)
def test_ensemble_is_not_compiled_again(name, compilations):
    with compilations() as count:
        ENSEMBLES[name]()
    assert count.n == 0


CHANGED = {
    "another literal": lambda: run(body(factor=0.75)),
    "another literal in the noise": lambda: run(body(kick=0.2)),
    "another function": lambda: run(body(power=4)),
    "another side": lambda: run(cj.System(cj.SO3(), lambda m: m @ m, cj.salt((1.0, 0, 0)), side="right")),
}


@pytest.mark.parametrize("name", CHANGED)
def test_changed_code_is_compiled(name, compilations):
    """A Hamiltonian that does something else must not meet the old program; and then gives another result."""
    with compilations() as count:
        sol = CHANGED[name]()
    assert count.n >= 1
    assert not np.allclose(sol.mu[-1], run().mu[-1])


def test_tmk_and_a_new_system_of_a_model(compilations):
    """The default method on a model, made anew with other numbers."""
    system, mu0 = cj.models.rigid_body(inertia=(4, 2, 1.2))
    cj.solve(system, mu0, t1=1.0, dt=0.1, key=0)
    with compilations() as count:
        system, mu0 = cj.models.rigid_body(inertia=(3, 2, 1.5), alpha=(0.3, 0.2, 0.1), pi0=(1, 0, 0))
        cj.solve(system, mu0, t1=2.0, dt=0.2, key=1, integrator=cj.TMK())
    assert count.n == 0
    with compilations() as count:
        cj.solve(system, mu0, t1=2.0, dt=0.2, key=1, integrator=cj.TMK(tol=1e-10))
    assert count.n >= 1  # the tolerance is part of the program


def test_another_fluid_and_more_chunks(compilations):
    """A system too large for lanes: another start, another chunk and another length are the same program."""
    cj.solve(*cj.models.sine_euler(key=0), t1=1.0, dt=0.1, key=0, integrator=EM)
    with compilations() as count:
        cj.solve(*cj.models.sine_euler(key=1, amplitude=0.2), t1=100.0, dt=0.1, key=1, integrator=EM)
    assert count.n == 0


def test_an_algebra_made_anew_is_the_same_algebra(compilations):
    def go():
        C = np.zeros((3, 3, 3))
        C[0, 1, 2], C[1, 0, 2] = 1.0, -1.0
        system = cj.System(cj.StructureConstants(C), lambda m: 0.5 * m @ m)
        return everything(cj.solve(system, np.ones(3), t1=1.0, dt=0.1, integrator=EM))

    go()
    with compilations() as count:
        go()
    assert count.n == 0
