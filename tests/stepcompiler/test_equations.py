"""Native code on every JAX that is supported: the parameters of jaxprs are read whatever they are called."""

import jax
import jax.numpy as jnp
import pytest

import coadjoint as cj
from stepcompiler.jaxprs.equations import callee, scan_of


@pytest.mark.parametrize("reverse", [False, True])
def test_scan(reverse):
    """Two constants, one of three carried numbers does not change, and one row comes out as it went in."""

    def fn(x, y):
        body = lambda s, a: ((jnp.sin(s[0]) + a + x, s[1] + y, s[2]), (s[0], a))
        return jax.lax.scan(body, (x, y, x), jnp.ones((3, 4)), reverse=reverse)

    closed = jax.make_jaxpr(fn)(jnp.ones(4), jnp.ones(()))
    (eqn,) = (e for e in closed.eqns if e.primitive.name == "scan")
    scan = scan_of(eqn.params)
    assert (scan.length, scan.reverse) == (3, reverse)
    assert len(scan.body.jaxpr.invars) == len(eqn.invars) == scan.constants + scan.carry + 1
    assert [v.aval for v in eqn.outvars[: scan.carry]] == [v.aval for v in eqn.invars[scan.constants :][: scan.carry]]


@pytest.mark.parametrize("fn", [jax.jit(jnp.sin), jax.nn.relu, jax.checkpoint(jnp.sin)], ids=["jit", "jvp", "remat"])
def test_calls(fn):
    (eqn,) = jax.make_jaxpr(fn)(jnp.ones(4)).eqns
    assert len(callee(eqn).jaxpr.invars) == len(eqn.invars)


def test_the_native_path_is_taken():
    """One heavy top and many, on whatever JAX this is."""
    system, mu0 = cj.models.heavy_top()
    run = {"t1": 0.1, "dt": 0.01, "key": 0}
    assert cj.solve(system, mu0, **run).stats.backend == "native"
    assert cj.ensemble(system, mu0, members=9, **run).stats.backend == "native"
