"""Updates of arrays at an index, computed by XLA as users have it: with fusion, which `make test` leaves out.

XLA on a CPU computes some of them in place and then reads elements that it has overwritten (docs/development/xla.md).
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import coadjoint as cj
from stepcompiler.jaxprs.interning import intern

X = np.array([0.1, -0.7, 1.1, 0.4])


def index(v):
    return (v[0] * 10).astype(jnp.int32)


def repeated(body, times=3):
    return lambda v: lax.fori_loop(0, times, lambda _, v: body(v), v)


def shifted(v):
    return lax.dynamic_update_slice(v, v[:2] * 2, (index(v),))


def rows(v):
    return jnp.reshape(v, (2, 2))


FORMS = {
    "dynamic_update_slice": shifted,
    "start out of range": lambda v: lax.dynamic_update_slice(v, v[:2] * 2, (index(v) + 9,)),
    "rows": lambda v: lax.dynamic_update_slice(rows(v), rows(v)[:1] * 2, (index(v), jnp.int32(0))),
    "complex": lambda v: jnp.real(shifted_complex(v)),
    "set": lambda v: v.at[1:].set(v[:-1]),
    "set at an index": lambda v: v.at[index(v) + jnp.arange(2)].set(v[:2]),
    "add": lambda v: v.at[1:].add(v[:-1]),
    "multiply": lambda v: v.at[1:].multiply(v[:-1]),
    "apply": lambda v: v.at[:3].apply(jnp.exp),
    "row at an index": lambda v: rows(v).at[index(v)].add(rows(v)[0]),
    "row beyond the end": lambda v: rows(v).at[index(v) + 4].add(rows(v)[0]),
    "columns": lambda v: rows(v).at[:, index(v)].set(rows(v)[0] * 2),
    "in a loop": repeated(shifted),
    "in a branch": lambda v: lax.cond(v[0] > 0, shifted, jnp.sin, v),
    "in a while loop": lambda v: lax.while_loop(lambda v: v[0] < 0.3, lambda v: shifted(v).at[0].add(0.1), v),
    "in a scan": lambda v: lax.scan(lambda v, t: (shifted(v) * t, v), v, jnp.arange(1.0, 4.0))[1],
    "in a jit": jax.jit(shifted),
    "collected in a loop": lambda v: lax.fori_loop(0, 4, lambda k, a: a.at[k].set(v * k), jnp.zeros((4, 4))),
    "recurrence": lambda v: lax.fori_loop(1, 4, lambda k, a: a.at[k].set(a[k - 1] * 2), v),
    "slice of a slice": lambda v: lax.dynamic_slice(lax.dynamic_slice(v, (index(v) - 9,), (3,)), (index(v) - 4,), (2,)),
    "slice of a roll": lambda v: lax.dynamic_slice(jnp.roll(v, index(v) - 9), (index(v) - 12,), (2,)),
    "integers": lambda v: jnp.asarray(shifted_integers(v), float),
}


def shifted_complex(v):
    z = v * (1 - 2j)
    return lax.dynamic_update_slice(z, z[:2] * 2j, (index(v),))


def shifted_integers(v):
    k = (v * 10).astype(jnp.int32)
    return lax.dynamic_update_slice(k, k[:2] * 2, (k[0],))


NOT_IN_REVERSE, NOT_DIFFERENTIABLE = {"in a while loop", "apply"}, {"apply"}  # by JAX


def derived(name, fn):
    """What runs make of a function of a state: derivatives and maps."""

    def gradient(x):
        return jax.grad(lambda x: jnp.sum(jnp.sin(fn(jnp.sin(x)[0])) * 1.7))(x)

    def tangent(x):
        return jax.jvp(lambda x: fn(jnp.sin(x)[0]), (x,), (jnp.cos(x),))

    def members(x):
        return jax.vmap(fn)(jnp.sin(x)), jax.vmap(fn)(jnp.sin(x) * jnp.array([[1.0], [2.0], [3.0]]))

    return lambda x: [
        members(x),
        tangent(x) if name not in NOT_DIFFERENTIABLE else (),
        gradient(x) if name not in NOT_IN_REVERSE else (),
    ]


def evaluated(name, fn):
    """The form itself."""
    return lambda x: fn(jnp.sin(x)[0])


@pytest.mark.xla_as_it_is
@pytest.mark.parametrize("make", [evaluated, pytest.param(derived, marks=pytest.mark.slow)])
def test_updates_are_right(make):
    """Each form, or its derivatives and its maps, against JAX's operations one by one."""
    for name, fn in FORMS.items():
        function = intern(fn, jax.ShapeDtypeStruct(X.shape, jnp.float64))
        with jax.disable_jit():
            right = jax.tree.leaves(make(name, fn)(X[None]))
        got = jax.tree.leaves(jax.jit(make(name, function))(X[None]))
        for a, b in zip(got, right, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-14, atol=1e-14, err_msg=name)


W = np.array([2.0, 0.3, 0.1])
MU = [0.3, -0.7, 1.1]


def energy(m):
    return jnp.sum(lax.dynamic_update_slice(m, m[:2] * 2, (jnp.int32(m[0] * 10),)) ** 2 * W)


def final(mu=MU, integrator=cj.HeunMK(), h=energy, **options):
    return cj.solve(cj.System(cj.SO3(), h), mu, t1=0.1, dt=1e-2, integrator=integrator, **options).mu[-1]


@pytest.mark.xla_as_it_is
def test_runs_are_right():
    """The same numbers as native code, in runs, in ensembles of one and more, and under JAX's transformations."""
    for integrator in (cj.HeunMK(), cj.Heun(), cj.RKMK()):
        native = final(integrator=integrator, backend="native")
        np.testing.assert_allclose(final(integrator=integrator, backend="xla"), native, rtol=1e-13)
        np.testing.assert_allclose(jax.jit(lambda m, i=integrator: final(m, i))(jnp.array(MU)), native, rtol=1e-13)
    system = cj.System(cj.SO3(), energy)
    for members in (1, 3):
        options = dict(members=members, t1=0.1, dt=1e-2, integrator=cj.HeunMK(), backend="xla")
        for mu in cj.ensemble(system, MU, **options).mu[:, -1]:
            np.testing.assert_allclose(mu, final(backend="native"), rtol=1e-13)


@pytest.mark.xla_as_it_is
def test_derivatives_of_runs_are_right():
    def last(mu):
        return final(mu)[0] + 2 * final(mu)[1]

    eps = 1e-5
    gradient = jax.grad(last)(jnp.array(MU))
    tangent = jax.jvp(last, (jnp.array(MU),), (jnp.ones(3),))[1]
    step = lambda k: last(np.array(MU) + eps * np.eye(3)[k]) - last(np.array(MU) - eps * np.eye(3)[k])
    np.testing.assert_allclose(gradient, [step(k) / (2 * eps) for k in range(3)], rtol=1e-7)
    np.testing.assert_allclose(tangent, jnp.sum(gradient), rtol=1e-12)


def test_what_needs_no_care_stays_as_it_is():
    """Updates of one element, or by values that do not depend on the array, are left to XLA."""
    for fn in (
        lambda v: v.at[0].set(v[1]),
        lambda v: jnp.zeros(9).at[2:6].add(v),
        lambda v: lax.fori_loop(0, 4, lambda k, a: a.at[k].set(v * k), jnp.zeros((4, 4))),
    ):
        given, ours = (str(jax.make_jaxpr(f)(X)) for f in (fn, intern(fn, X)))
        assert given.count("select_n") == ours.count("select_n")
