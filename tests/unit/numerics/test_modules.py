"""Modules that are made without the checks of Equinox are those that their constructors make."""

import dataclasses

import jax
import numpy as np
import pytest

import coadjoint as cj
from coadjoint.numerics.modules import method_of, with_fields
from coadjoint.runtime.saved_values import Save, trace_save


def made_again(module):
    """The same module by its constructor."""
    return type(module)(*(getattr(module, field.name) for field in dataclasses.fields(module)))


@pytest.fixture(scope="module")
def top():
    return cj.models.heavy_top()


def test_results_have_all_fields_of_their_classes(top):
    system, mu0 = top
    sol = cj.solve(system, mu0, t1=0.02, dt=0.01, key=0)
    runs = cj.ensemble(system, mu0, members=8, t1=0.02, dt=0.01, key=0)
    for module in (sol, sol.stats, runs, runs.stats):
        other = made_again(module)
        assert vars(module).keys() == vars(other).keys()
        assert jax.tree.structure(module) == jax.tree.structure(other)


@pytest.mark.parametrize("key", [3, 2**63 + 5])
def test_the_driver_of_a_key_is_the_constructed_one(key):
    short, constructed = cj.Brownian.of_key(key), cj.Brownian(key)
    assert jax.tree.structure(short) == jax.tree.structure(constructed)
    assert jax.tree.leaves(short) == jax.tree.leaves(constructed)


@pytest.mark.parametrize("group", [False, True])
def test_states_are_saved_without_a_function(top, group):
    assert jax.tree.structure(trace_save(top[0], None, False, group)) == jax.tree.structure(Save(None, group))


def test_a_copy_has_other_fields_and_no_other_attributes(top):
    system, _ = top
    assert hasattr(system, "_origin")
    copy = with_fields(system, side="right")
    assert copy.side == "right" and system.side == "left" and not hasattr(copy, "_origin")
    assert vars(copy).keys() == {field.name for field in dataclasses.fields(system)}


def test_a_method_is_that_of_the_class(top):
    system, mu0 = top
    assert np.asarray(method_of(system, "energy")(mu0)) == np.asarray(system.energy(mu0))
