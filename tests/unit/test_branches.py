"""Branches that are hardly ever taken, in many rows at once."""

import jax
import jax.numpy as jnp
import numpy as np

import coadjoint as cj
from coadjoint.numerics.branches import guessed
from coadjoint.numerics.series import stumpff


def test_a_guess_is_what_it_guesses():
    """Of rows for all of which it is right, and of rows for one of which it is not; and its derivatives."""
    small = jnp.linspace(0.0, 1.9, 7)
    fn = lambda x: jnp.stack([stumpff(1, x), stumpff(2, x)])
    both = (
        lambda x: guessed(fn, jnp.stack([x, x[::-1] ** 2])),
        lambda x: jax.vmap(jax.vmap(fn))(jnp.stack([x, x[::-1] ** 2])),
    )
    for x in (small, small.at[3].set(5.0)):
        quick, plain = (jax.jit(lambda x, f=f: f(x)) for f in both)
        np.testing.assert_allclose(quick(x), plain(x), rtol=4e-16)
        slopes = [jax.grad(lambda x, f=f: jnp.sum(f(x) ** 2))(x) for f in (quick, plain)]
        np.testing.assert_allclose(*slopes, rtol=1e-14)


def test_the_gradient_of_a_lattice():
    """By slices of the lattice continued on all sides, against that of the energy as it is written."""
    terms = {"anisotropy": 0.2, "field": (0.1, -0.2, 0.3), "dm": np.arange(6).reshape(2, 3) / 5, "dipole": 0.15}
    system, start = cj.models.spin_lattice((4, 5), coupling=1.3, cutoff=1.5, **terms)
    expected = jax.grad(lambda mu: system.energy(mu))(start)
    np.testing.assert_allclose(system.energy_gradient(start), expected, atol=1e-15)
    along = jnp.asarray(np.random.default_rng(0).standard_normal(60))
    second = [jax.jvp(g, (start,), (along,))[1] for g in (system.energy_gradient, jax.grad(system.energy))]
    np.testing.assert_allclose(*second, atol=1e-14)
