"""Lattices so large that memory is what they cost."""

from itertools import pairwise

import numpy as np
import pytest

import coadjoint as cj
from coadjoint.running import loop
from coadjoint.running.backends import xla

DT = 0.02


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
