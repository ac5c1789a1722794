"""Branches that are hardly ever taken, in many rows at once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from native_steps import called, made

import coadjoint as cj
from coadjoint.numerics.special_functions import stumpff
from stepcompiler.hints import likely, low_precision, unlikely
from stepcompiler.jaxprs.optimistic import optimistic_map
from stepcompiler.targets import cpu


def test_a_guess_is_what_it_guesses():
    """Of rows for all of which it is right, and of rows for one of which it is not; and its derivatives."""
    small, large = np.linspace(0.0, 1.9, 7), np.linspace(0.0, 1.9, 7)
    large[3] = 5.0
    fn = lambda x: jnp.stack([stumpff(1, x), stumpff(2, x)])
    both = (
        lambda x: optimistic_map(fn, jnp.stack([x, x[::-1] ** 2])),
        lambda x: jax.vmap(jax.vmap(fn))(jnp.stack([x, x[::-1] ** 2])),
    )
    quick, plain = (jax.jit(lambda x, f=f: f(x)) for f in both)
    slopes = [jax.jit(jax.grad(lambda x, f=f: jnp.sum(f(x) ** 2))) for f in (quick, plain)]
    for x in (small, large):
        np.testing.assert_allclose(quick(x), plain(x), rtol=4e-16)
        np.testing.assert_allclose(*(slope(x) for slope in slopes), rtol=1e-14)


def test_the_gradient_of_a_lattice():
    """By slices of the lattice continued on all sides, against that of the energy as it is written."""
    terms = {"anisotropy": 0.2, "field": (0.1, -0.2, 0.3), "dm": np.arange(6).reshape(2, 3) / 5, "dipole": 0.15}
    system, start = cj.models.spin_lattice((4, 5), coupling=1.3, cutoff=1.5, **terms)
    along = np.random.default_rng(0).standard_normal(60)
    first, second = zip(
        *(
            jax.jit(lambda mu, g=g: jax.jvp(g, (mu,), (along,)))(start)
            for g in (system.energy_gradient, jax.grad(system.energy))
        ),
        strict=True,
    )
    np.testing.assert_allclose(*first, atol=1e-15)
    np.testing.assert_allclose(*second, atol=1e-14)


@unlikely
def _halved(case, otherwise, x):
    """x/2 where it is, and only by a trusted condition."""
    y, n = otherwise
    near = likely(x < 100.0)
    return jnp.where(case, jnp.where(near, x / 2.0, x / 4.0), y), jnp.where(case, n + 1, n)


def seldom_halved(x):
    """Three numbers, of which the first decides."""
    y, n = _halved(x[0] > 1.0, (x[1], 7), x[0])
    return jnp.stack([y + x[2], 1.0 * n])


@pytest.mark.parametrize("width", [1, 8])
def test_what_is_seldom_wanted(width, monkeypatch):
    """In native code it is passed by unless it is wanted for a member; elsewhere it is a choice. Guards hold in it."""
    texts, compiled = [], cpu.compiled
    monkeypatch.setattr(cpu, "compiled", lambda text: (texts.append(text), compiled(text))[1])
    x = np.random.default_rng(0).uniform(0.0, 1.0, (64, 3))
    x[[9, 33], 0] = 3.0, 5.0
    native = made(seldom_halved, x, width=width)
    out, valid = called(native, x)
    np.testing.assert_array_equal(out, jax.vmap(seldom_halved)(x))
    assert valid.all() and "unlikely" in texts[0]
    x[9, 0] = 1000.0
    _, valid = called(native, x)
    assert np.flatnonzero(~valid).tolist() == [9 // width]


def test_what_is_seldom_wanted_of_many_is_done_for_all():
    """Of a whole vector of conditions, as `vmap` makes them, there is no one branch."""
    x = np.random.default_rng(0).uniform(0.0, 2.0, (8, 12))
    fn = lambda x: jax.vmap(seldom_halved)(x.reshape(4, 3)).ravel()
    np.testing.assert_array_equal(called(made(fn, x), x)[0], jax.vmap(fn)(x))


def rough_sum(x):
    """A product and a sum in single precision, a function of our own in double precision."""
    return low_precision(lambda x: x[0] * x[1] + jnp.sin(x[2]))(x)


@pytest.mark.parametrize("width", [1, 8])
def test_what_needs_few_digits_is_computed_in_single_precision(width):
    x = np.random.default_rng(0).standard_normal((64, 3))
    a, b = np.float32(x[:, :2]).T
    sine = called(made(lambda x: jnp.sin(x[2]), x), x)[0].ravel()
    expected = np.float32(np.float64(a) * np.float64(b) + np.float64(np.float32(sine)))
    np.testing.assert_array_equal(called(made(rough_sum, x, width=width), x)[0].ravel(), np.float64(expected))
    plain = jax.vmap(lambda x: x[0] * x[1] + jnp.sin(x[2]))(x)
    np.testing.assert_allclose(
        jax.vmap(rough_sum)(x), plain, rtol=0, atol=2e-15
    )  # XLA may contract the product and sum


def test_loops_are_none_of_what_is_computed_in_single_precision():
    halve = lambda x: jax.lax.while_loop(lambda y: y > 1.0, lambda y: y / 3.0, x[0])
    x = np.random.default_rng(0).uniform(1.0, 9.0, (8, 1))
    np.testing.assert_array_equal(*(called(made(f, x), x)[0] for f in (halve, lambda x: low_precision(halve)(x))))


@pytest.mark.parametrize("unit", [1e-30, 1e60])
def test_units_beyond_single_precision(unit):
    """Where it is out of range, steps are solved from elsewhere: a run is the same in other units."""
    body = lambda unit: cj.System(cj.SO3(), lambda m, u: 0.5 * m @ (m / (u * jnp.array([1.0, 2.0, 3.0]))), params=unit)
    run = lambda unit: cj.solve(body(unit), unit * np.array([1.0, -0.5, 0.3]), t1=2.0, dt=0.02)
    found, plain = run(unit), run(1.0)
    assert found.stats.backend == "native" and found.stats.unsolved == 0
    np.testing.assert_allclose(found.mu / unit, plain.mu, rtol=0, atol=1e-14)
