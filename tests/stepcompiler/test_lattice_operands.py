"""Lattices in native code: every operand belongs to the sites that the program names, or XLA computes the step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tuned import tune

import coadjoint as cj
from stepcompiler.errors import NotCompilable
from stepcompiler.lattices.site_values import Addresses, Moved, PerSite, Sites, Sum

N, HALF = 128, 64
RNG = np.random.default_rng(0)
B, J, START = RNG.standard_normal((N, 3)), RNG.standard_normal(N), RNG.standard_normal(3 * N)


def spins(mu):
    return mu.reshape(N, 3)


def nothing(mu, *params):
    return 0.0 * jnp.sum(mu)


ENERGIES = {  # that read the numbers of single sites
    "row in a product": lambda m, p: jnp.sum((spins(m) @ p["B"][3]) ** 2),
    "row in a product of rows": lambda m, p: jnp.sum(jnp.einsum("a,ia->i", p["B"][5], spins(m)) ** 2),
    "scalar": lambda m, p: jnp.sum(jnp.tanh(p["J"][0] * spins(m))),
    "function of a scalar": lambda m, p: jnp.sum(jnp.tanh(p["J"][1]) * jnp.sin(spins(m))),
    "condition of a scalar": lambda m, p: jnp.sum(jnp.where(p["J"][2] > 0.0, spins(m), spins(m) ** 2)),
    "scalar of another": lambda m, p: jnp.sum(p["J"][2] * spins(m)[3] * spins(m)),
    "halves": lambda m, p: jnp.sum(jnp.einsum("ia,ia->i", spins(m)[:HALF], spins(m)[HALF:])),
    "halves of params": lambda m, p: jnp.sum(jnp.einsum("ia,ia->i", p["B"][:HALF], spins(m)[HALF:]) ** 2),
    "two scalars": lambda m, p: jnp.sum(p["J"][0] * p["J"][1] * spins(m) ** 2),
}
FORCINGS = {
    "products with one site": lambda m: (spins(m) @ spins(m)[0])[:, None] * spins(m),
    "one site": lambda m: spins(m) * jnp.sin(spins(m)[5]),
    "all sites in a loop": lambda m: jax.lax.map(lambda s: (spins(m) @ s)[0] * s, spins(m)),
    "moved sites in a loop": lambda m: jax.lax.map(lambda s, R=jnp.roll(spins(m), -3, 0): R[0] * s, spins(m)),
    "a shift in a loop": lambda m: jax.lax.map(lambda s: jnp.roll(s, 1, 0) * s, spins(m).reshape(8, -1, 3)),
    "uniform numbers in a loop": lambda m: jax.lax.map(lambda s: s * jnp.ones(3) + jnp.arange(3.0), spins(m)),
}
SYSTEMS = {name: (h, {"params": {"B": B, "J": J}}) for name, h in ENERGIES.items()}
SYSTEMS |= {name: (nothing, {"forcing": lambda m, own=g: own(m).reshape(-1)}) for name, g in FORCINGS.items()}


@pytest.fixture
def sweeps(monkeypatch):
    """Native code takes small lattices by sweeps, as it does large ones."""
    tune(monkeypatch, native_operations=10)


@pytest.mark.parametrize("case", SYSTEMS)
def test_operands_of_other_sites(sweeps, case):
    """Each of these was wrong, or could be, where an operand was taken for the site's own."""
    hamiltonian, options = SYSTEMS[case]
    system = cj.System(cj.SO3() ** N, hamiltonian, **options)
    given = {"t1": 0.1, "dt": 0.05, "integrator": cj.HeunMK()}
    ours, by_xla = cj.solve(system, START, **given), cj.solve(system, START, backend="xla", **given)
    np.testing.assert_allclose(ours.mu, by_xla.mu, rtol=0, atol=1e-13)
    assert "An error occurred" not in ours.stats.reason


# What is proved of operands.


def sited(shape, first=0, count=N, part=None, width=3):
    return PerSite(jnp.arange(float(width)), shape, Sites(part, first, count))


def test_operands_of_the_same_sites_are_aligned():
    places = Addresses(N)
    own = sited((N, 3))
    over, (a, b) = places.aligned([own, 2.0], [(N, 3)] * 2)
    assert over == Sites(None, 0, N)
    assert a is own.value
    np.testing.assert_array_equal(b, np.full(3, 2.0))


def unequal():
    places, other = Addresses(N), Addresses(N)
    own = sited((N, 3))
    yield "parts", places, [sited((HALF, 3), 0, HALF), sited((HALF, 3), HALF, HALF)], (HALF, 3)
    yield "part and whole", places, [own], (N, 3), Sites(None, 0, HALF)
    yield "another lattice", places, [sited((N, 3), part=other)], (N, 3)
    yield "addresses of another lattice", places, [Moved(other.places(own), other)], (N, 3)
    yield "a sum", places, [Sum([own], [], (N, 3))], (N, 3)
    yield "an object", places, [object()], (N, 3)
    yield "by place", places, [np.arange(3.0 * N).reshape(N, 3)], (N, 3)
    yield "transposed", places, [Moved(places.places(own).T.reshape(N, 3), places)], (N, 3)
    yield "too few", places, [sited((3,), 5, 1)], (HALF, 3)
    yield "nothing", places, [np.zeros((N, 0))], (N, 0)
    yield "a site in a part", Addresses(4, places), [Moved(np.zeros((4, 3), int), places)], (4, 3)


@pytest.mark.parametrize("case", list(unequal()), ids=lambda case: case[0])
def test_operands_of_unequal_sites_are_refused(case):
    _, places, operands, shape, *over = case
    with pytest.raises(NotCompilable, match=r"lattice"):
        places.aligned(operands, [shape] * len(operands), *over)


def test_arrays_have_the_sites_that_they_say():
    with pytest.raises(NotCompilable):
        sited((N, 4))
    with pytest.raises(NotCompilable):
        Sites(None, 0, N).outer((3, N))  # no leading axes are N sites
    assert Sites(None, 0, N).outer((1, 8, 16, 3)) == 3
