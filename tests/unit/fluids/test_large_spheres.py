"""Large spheres: eigenvectors by their recurrence, fields and matrices without tables of n³ numbers."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coadjoint as cj
from coadjoint.fluids import Flow, Sphere, harmonics, index, noise, sphere, vortices
from coadjoint.fluids.harmonics import eigenvectors, lowest

RNG = np.random.default_rng(3)


@pytest.fixture
def large(monkeypatch):
    """Calls a function as it is, then with all spheres taken for large ones, which must make no tables."""

    def no_tables(n):
        raise AssertionError("tables of n³ numbers")

    def both(fn):
        small = fn()
        jax.clear_caches()  # what was compiled would be taken for both
        with monkeypatch.context() as patch:
            patch.setattr(sphere, "_LARGE", 1)
            patch.setattr(sphere, "_tables", no_tables)
            by_hand = fn()
        jax.clear_caches()
        return small, by_hand

    return both


def close(pair, rtol=1e-14):
    """Two trees of arrays agree, as far as the largest number in each array goes."""
    for a, b in zip(*map(jax.tree.leaves, pair), strict=True):
        np.testing.assert_allclose(b, a, rtol=0, atol=rtol * np.abs(a).max())


@pytest.mark.parametrize("n", [2, 3, 9, 20, 65, pytest.param(129, marks=pytest.mark.slow)])
def test_eigenvectors_by_recurrence_are_those_of_lapack(n):
    """To 3e-16, all of them or the lowest, signs included: positive at the north pole, however small they are there."""
    for m in range(n):
        V = eigenvectors(n, m)
        assert np.all(lowest(n, m, n)[0] > 0)
        for degrees in {n, m + 1, max(m + 1, n // 8), (m + n + 1) // 2}:
            np.testing.assert_allclose(lowest(n, m, degrees), V[:, : degrees - m], rtol=0, atol=3e-16)


@pytest.mark.parametrize("m", [0, 1, 100, 400])
def test_they_are_orthogonal_at_larger_n(m):
    """And the lowest are the first of all, where rows are taken from two ways."""
    V = lowest(700, m, 700)
    np.testing.assert_allclose(V.T @ V, np.eye(700 - m), rtol=0, atol=1e-14)
    np.testing.assert_allclose(lowest(700, m, m + 90), V[:, :90], rtol=0, atol=1e-16)


def test_numbers_of_less_range_and_precision_will_do(monkeypatch):
    """Where longdouble is double."""
    monkeypatch.setattr(harmonics.np, "longdouble", np.float64)
    for m in (0, 1, 50, 300):
        V = lowest(400, m, 400)
        np.testing.assert_allclose(V.T @ V, np.eye(400 - m), rtol=0, atol=1e-13)
        assert np.all(V[0] >= 0)


@pytest.mark.parametrize("n", [2, 15, 16])
@pytest.mark.parametrize("lead", [(), (3,), (2, 3)])
def test_fields_go_in_and_out_without_tables(large, n, lead):
    c = RNG.standard_normal((*lead, n * n))
    W = jnp.asarray(Sphere(n).matrix(c))
    pair = large(lambda: (Sphere(n).matrix(c), Sphere(n).coefficients(W)))
    close(pair)
    np.testing.assert_array_equal(pair[1][0], -np.conj(np.swapaxes(pair[1][0], -1, -2)))
    np.testing.assert_allclose(pair[1][1], c, atol=1e-14)


def test_few_degrees_are_as_many_as_there_are(large):
    """Of a field on (4, 2) and (3, −1) the diagonals ±1, ±2 only."""
    c = np.zeros(400)
    c[[index(4, 2), index(3, -1)]] = 1.0, 2.0
    pair = large(lambda: Sphere(20).matrix(c))
    close(pair)
    W = np.asarray(pair[1])
    assert {int(j - i) for i, j in np.argwhere(W)} == {-2, -1, 1, 2}
    assert not np.any(large(lambda: Sphere(20).matrix(0 * c))[1])


MODELS = {
    "rotation and modes": lambda: cj.models.euler_sphere(
        16, rotation=0.7, screening=2.0, noise_modes=[(1, 0), (3, 2), (3, -2), (15, 7), (15, -9), (8, 8)], key=2
    ),
    "shells and topography": lambda: cj.models.euler_sphere(
        9, noise_shells=(1, 9 - 1), topography=vortices(Sphere(9), [(0.3, 1.0)], 1.0), rotation=0.3
    ),
    "fields and stirring": lambda: cj.models.euler_sphere(
        9, noise_fields=np.eye(81)[[3, 17, 80]], stirring_shells=(2, 4), stirring_amplitude=0.3
    ),
    "magnetic": lambda: cj.models.mhd(16, surface="sphere", rotation=0.5, noise_shells=(2, 3)),
    "buoyant": lambda: cj.models.boussinesq(9, surface="sphere", noise_modes=[(2, 1)]),
}  # fmt: skip


@pytest.mark.slow
def test_models_need_no_tables(large, monkeypatch):
    """Nor do their steps, their noise in a compiled program, or what a state means.

    What is compiled is forgotten, before and after; so all models are made together.
    """
    monkeypatch.setattr(noise, "_STACKED", 1)

    def found(make):
        system, W = make()
        flow = cj.fluids.of(system)
        dS = np.cos(np.arange(system.n_noise))
        traced = eqx.filter_jit(
            lambda W: (system.vector_field(W, 1.0, dS), system.h(W), flow.energy(W), flow.enstrophy(W))
        )
        return W, traced(W), flow.vorticity(W, 12), flow.velocity(W, 12), flow.pictures(W), flow.diagnostics(W)

    close(large(lambda: [found(make) for make in MODELS.values()]), 3e-14)


def test_diagnostics_of_states_are_labelled_without_tables(large):
    system, W = cj.models.euler_sphere(9, noise_shells=(1, 2))
    sol = cj.solve(system, W, t1=0.2, dt=0.1, key=0, integrator=cj.HeunMK(), backend="xla")  # soon compiled
    flow = Flow(Sphere(9))
    small, by_hand = large(lambda: flow.to_xarray(sol))
    assert small.sizes == by_hand.sizes
    close(tuple({k: x[k].values for k in x} for x in (small, by_hand)))


def test_what_is_traced_has_tables_by_the_same_recurrence(monkeypatch):
    c = RNG.standard_normal(19**2)
    small = Sphere(19).matrix(c)
    monkeypatch.setattr(sphere, "_LARGE", 1)
    sphere._tables.cache_clear()
    W = jax.jit(lambda c: Sphere(19).matrix(c))(c)
    sphere._tables.cache_clear()
    close((small, W))


def test_legendre_functions_of_large_degree_do_not_underflow():
    """Orthonormal at Gauss's nodes, where they begin below the least double and end near 1."""
    n, m = 2400, 883
    z, w = harmonics.gauss(n)
    assert np.all(np.diff(z) < 0)
    P = harmonics.associated_legendre(m, n, z)[0][-30:]
    np.testing.assert_allclose(2 * np.pi * (P * w) @ P.T, np.eye(30), rtol=0, atol=2e-12)
