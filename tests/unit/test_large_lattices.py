"""Lattices so large that memory is what they cost."""

from functools import partial
from itertools import pairwise

import equinox as eqx
import jax
import numpy as np
import pytest

import coadjoint as cj
from coadjoint.drivers import Increment
from coadjoint.integrators.base import OrbitCarry
from coadjoint.running import loop
from coadjoint.running.backends import xla

DT = 0.02
NOTHING = OrbitCarry(None, None, None)


@pytest.fixture(scope="module")
def bath():
    """32³ spins in a heat bath, and their start."""
    system, start = cj.models.spin_lattice((32, 32, 32))
    return cj.heat_bath(system, temperature=1.0, friction=0.1), start


def stepped(bath, steps):
    return cj.solve(*bath, t1=steps * DT, dt=DT, key=0, integrator=cj.HeunMK(), save_every=steps)


def test_a_chunk_of_steps_takes_the_memory_of_few_states(bath, monkeypatch):
    """The system gives it, page by page, to every chunk: a path drawn for 32 steps at once took 40 states and more."""
    calls, advance = [], xla._advance
    monkeypatch.setattr(xla, "_advance", lambda *args: calls.append(args) or advance(*args))
    stepped(bath, 1)
    memory = advance.lower(*calls[0]).compile().compiled.memory_analysis()
    assert memory.temp_size_in_bytes < 20 * bath[1].nbytes


def test_where_chunks_end_changes_nothing(bath, monkeypatch):
    """Parts of a block of steps are drawn more than once."""
    whole = stepped(bath, 19)
    cuts = [0, 1, 2, 5, 8, 18, 19]
    monkeypatch.setattr(loop, "pieces", lambda *_: pairwise(cuts))
    np.testing.assert_array_equal(stepped(bath, 19).mu, whole.mu)


LATTICES = {
    "chain": ((3 * 4096,), {"dm": [(0.1, 0.2, 0.3)], "dipole": 0.3, "cutoff": 3.0}),
    "square": ((128, 96), {"anisotropy": 0.2, "field": (0.1, 0.2, 0.3), "dm": np.eye(2, 3)}),
    "cubic": ((32, 16, 16), {"dipole": 0.3, "anisotropy": -0.1}),
}


@pytest.mark.parametrize("lattice", LATTICES)
def test_the_drift_of_the_parts_is_that_of_the_whole(lattice):
    shape, more = LATTICES[lattice]
    system, mu = cj.models.spin_lattice(shape, **more)
    for made in (system, cj.double_bracket(system, friction=0.1)):
        parts, drift = made.sweep.parts, eqx.filter_jit(made.sweep.drift)
        by_parts = np.concatenate([drift(k, mu, made.params) for k in range(parts)])
        assert parts > 1
        np.testing.assert_allclose(by_parts, eqx.filter_jit(made.drift)(mu), rtol=0, atol=1e-14)


def test_what_a_bath_does_not_know_part_by_part_is_done_at_once():
    """The friction of a bath is that of ∂h alone, and fields of one's own reach over all spins."""
    system, _ = cj.models.spin_lattice((32, 16, 16))
    bath = cj.double_bracket(system, friction=0.1)
    assert bath.sweep is not None
    assert cj.double_bracket(bath, friction=0.1).sweep is None
    assert cj.double_bracket(system, friction=0.1, fields=np.eye(1, system.algebra.dim)).sweep is None


def unswept(system):
    return eqx.tree_at(lambda s: s.sweep, system, None)


def test_a_swept_step_is_a_step():
    system, mu = cj.models.spin_lattice((32, 16, 16))
    bath = cj.heat_bath(system, temperature=1.0, friction=0.1)
    run = partial(cj.solve, mu0=mu, t1=2 * DT, dt=DT, key=0, integrator=cj.HeunMK(), group=True)
    swept, whole = run(bath), run(unswept(bath))
    np.testing.assert_allclose(swept.mu, whole.mu, rtol=0, atol=1e-15)
    np.testing.assert_allclose(swept.g, whole.g, rtol=0, atol=1e-15)


def test_the_drift_of_a_bath_without_its_noise_is_swept():
    """As `BathSplitting` takes it: the same step as with friction alone."""
    system, mu = cj.models.spin_lattice((32, 16, 16))
    bath = cj.heat_bath(system, temperature=1.0, friction=0.1)
    step = eqx.filter_jit(
        lambda s: cj.HeunMK(drift_free=False).step(s, mu, 0.0, DT, Increment(np.zeros(0), np.inf), NOTHING)[0]
    )
    quiet = eqx.tree_at(lambda s: s.noises, bath, ())
    np.testing.assert_array_equal(step(quiet), step(cj.double_bracket(system, friction=0.1)))


def test_members_and_derivatives_of_swept_steps():
    """Each member has its own friction; the derivative of a sweep is that of the whole."""
    system, mu = cj.models.spin_lattice((32, 16, 16))
    bath = cj.double_bracket(system, friction=0.1)

    def energy(friction, bath):
        params = bath.params | {"friction": friction}
        end = cj.solve(bath.with_params(params), mu, t1=DT, dt=DT, integrator=cj.HeunMK()).mu[-1]
        return bath.energy(end) / len(mu), end

    both = jax.jit(jax.value_and_grad(energy, has_aux=True))
    ends = []
    for friction in (0.1, 0.3):
        (_, end), swept = both(friction, bath)
        ends.append(end)
        np.testing.assert_allclose(swept, both(friction, unswept(bath))[1], rtol=1e-12)
    params = {"friction": np.array([0.1, 0.3]), "system": bath.params["system"]}
    made = cj.ensemble(bath, mu, members=2, params=params, t1=DT, dt=DT, key=None, integrator=cj.HeunMK())
    np.testing.assert_allclose(made.mu[:, -1], ends, rtol=0, atol=1e-15)


def test_a_sweep_takes_the_memory_of_few_states(monkeypatch):
    """It took twice as much where every stage of a step was one of the whole lattice."""
    calls, advance = [], xla._advance
    monkeypatch.setattr(xla, "_advance", lambda *args: calls.append(args) or advance(*args))
    system, start = cj.models.spin_lattice((32, 32, 32))
    made = cj.double_bracket(system, friction=0.1)
    cj.solve(made, start, t1=DT, dt=DT, integrator=cj.HeunMK())
    memory = advance.lower(*calls[0]).compile().compiled.memory_analysis()
    assert memory.temp_size_in_bytes < 6 * start.nbytes
