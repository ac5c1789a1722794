"""Commutator-free methods: what is refused. Orders and Casimirs: in verification."""

import pytest

import coadjoint as cj


def test_what_is_refused():
    with pytest.raises(ValueError, match="order must be 3 or 4, not 5"):
        cj.CommutatorFree(5)
    system, mu0 = cj.models.heavy_top()
    with pytest.raises(ValueError, match=r"CommutatorFree is made for systems without noise, .* has 1: TMK\(\)"):
        cj.solve(system, mu0, t1=1.0, dt=0.1, key=0, integrator=cj.CommutatorFree(3))
