"""Casimirs beyond quadratic ones, how many of them are known, and the error of the orbit itself."""

import itertools
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coadjoint as cj
from coadjoint.algebras.casimirs import knows_all_casimirs
from coadjoint.command import info
from coadjoint.runtime import health


def constants(basis):
    """Structure constants of matrices under the commutator."""
    B = np.array(basis, float)
    brackets = np.einsum("aij,bjk->abik", B, B) - np.einsum("bij,ajk->abik", B, B)
    C = np.linalg.lstsq(B.reshape(len(B), -1).T, brackets.reshape(len(B) ** 2, -1).T, rcond=None)[0].T
    return np.round(C.reshape((len(B),) * 3), 12)


def unit(n, *entries):
    m = np.zeros((n, n))
    for i, j, x in entries:
        m[i, j] = x
    return m


def so(n):
    return constants([unit(n, (i, j, 1), (j, i, -1)) for i, j in itertools.combinations(range(n), 2)])


def sl(n):
    off = [unit(n, (i, j, 1)) for i in range(n) for j in range(n) if i != j]
    return constants(off + [unit(n, (i, i, 1), (i + 1, i + 1, -1)) for i in range(n - 1)])


def galilei():
    turns = [unit(5, (i, j, -1), (j, i, 1)) for i, j in ((1, 2), (2, 0), (0, 1))]
    return constants(turns + [unit(5, (i, k, 1)) for k in (3, 4) for i in range(3)] + [unit(5, (3, 4, 1))])


def bianchi_v():
    C = np.zeros((3, 3, 3))
    for i in (1, 2):
        C[0, i, i], C[i, 0, i] = 1.0, -1.0
    return C


FOUND = {"Bianchi V": (bianchi_v, 1), "so(4)": (lambda: so(4), 2), "sl(3)": (lambda: sl(3), 2)}
FOUND |= {"so(5)": (lambda: so(5), 2), "Galilei": (galilei, 2)}
SLOW = {"sl(4)": (lambda: sl(4), 3), "so(6)": (lambda: so(6), 3)}


@pytest.mark.parametrize("name", [*FOUND, *(pytest.param(n, marks=pytest.mark.slow) for n in SLOW)])
def test_casimirs_are_found(name):
    """As many as there are, constant along flows, and seen where a state leaves its orbit."""
    make, count = (FOUND | SLOW)[name]
    algebra = cj.StructureConstants(make())
    assert algebra.known_casimirs == algebra.index == len(algebra.casimir_names) == count
    assert algebra.casimir_words == f"{count} of {count} Casimir{'s' if count > 1 else ''} known"
    rng = np.random.default_rng(0)
    mu, sigma, away = rng.standard_normal((3, algebra.dim))

    @jax.jit
    def found(mu, sigma, away):
        errors = (algebra.orbit_error(x, mu) for x in (algebra.flow(0.5 * sigma, mu), mu + 1e-6 * away))
        return jax.jacrev(algebra.casimirs)(mu), algebra.poisson(mu), *errors

    G, J, moved, left = map(np.asarray, found(mu, sigma, away))
    assert np.linalg.matrix_rank(G, rtol=1e-9) == count
    np.testing.assert_allclose(G @ J, 0.0, atol=1e-11 * np.abs(G).max())
    assert moved < 1e-12 < 1e-8 < left


def test_what_steps_are_brought_back_to_is_as_before():
    """Quadratic Casimirs fix the orbits of so(4), not those of so(5), which use double-double arithmetic."""
    assert knows_all_casimirs(cj.StructureConstants(so(4)))
    algebra = cj.StructureConstants(so(5))
    assert not knows_all_casimirs(algebra)
    assert algebra.orbit_memory(jnp.ones(10)).shape == (10,)


def test_unknown_casimirs_are_reported_by_the_orbit():
    """so(7) has Casimirs of degree 2, 4 and 6: the first is known, and the orbit speaks for the others."""
    algebra = cj.StructureConstants(so(7))
    assert (algebra.known_casimirs, algebra.index) == (1, 3)
    mu = np.linspace(-1.0, 1.0, 21)
    system = cj.System(algebra, lambda m: 0.5 * m @ (m / jnp.arange(1.0, 22.0)))
    assert "1 of 3 Casimirs known" in repr(system)
    quick = {"integrator": cj.HeunMK(), "backend": "xla"}  # others take longer to compile
    sol = cj.solve(system, mu, t1=0.2, dt=0.1, **quick)
    assert "1 of 3 Casimirs known, orbit within" in repr(sol)
    assert sol.orbit_error().shape == (3,) and sol.orbit_error().max() < 1e-14
    # A state of the same length on another orbit: the quadratic Casimir does not see it.
    other = mu[::-1] * np.where(np.arange(21) % 2, 1.0, -1.0)
    casimirs = jax.jit(algebra.casimirs)
    assert abs(casimirs(other)[0] - casimirs(mu)[0]) < 1e-12
    assert jax.jit(algebra.orbit_error)(other, mu) > 1e-3


def test_the_orbit_is_in_stores_in_info_and_in_progress(tmp_path, capfd):
    """Where Casimirs are not known, what is stored, `coadjoint info` and the run's last line show the orbit instead."""
    algebra, mu = cj.StructureConstants(so(7)), np.linspace(-1.0, 1.0, 21)
    system = cj.System(algebra, lambda m: 0.5 * m @ (m / jnp.arange(1.0, 22.0)), [cj.salt(np.eye(21)[:1])])
    run = {"members": 3, "dt": 0.1, "key": 0, "integrator": cj.HeunMK(), "backend": "xla"}
    run["out"] = tmp_path / "run.zarr"
    cj.ensemble(system, mu, t1=0.2, progress=True, **run)
    assert "Casimirs " in capfd.readouterr().err
    stored = cj.ensemble(system, mu, t1=0.4, resume=True, **run)
    data, ens = stored.open(), stored.load()
    assert data["orbit_error"].dims == ("member", "time")
    np.testing.assert_allclose(data["orbit_error"], ens.orbit_error(), atol=1e-15)
    assert data["orbit_error"].max() < 1e-14 and "orbit_error" in ens.to_xarray()
    said = info.summary(tmp_path / "run.zarr")
    assert said["orbit_error"] == float(data["orbit_error"].max())
    assert "not all are known: orbit within" in info.words(said)
    # It is the orbit that is seen: a state of the same length elsewhere.
    plan = types.SimpleNamespace(system=system)
    other = mu[::-1] * np.where(np.arange(21) % 2, 1.0, -1.0)
    assert health.casimir_error(plan, other[None], mu[None]) > 1e-3
    assert info.summary(_of_a_body(tmp_path / "body.zarr"))["orbit_error"] is None


def _of_a_body(path):
    cj.solve(*cj.models.rigid_body(alpha=None), t1=0.2, dt=0.1, out=path)
    return path


# ---------------------------------------------------------------------------------------------- matrices


def test_errors_of_matrices_do_not_flatter():
    """At n = 33 an eigenvalue wrong by 1e-9 is seen as that, by traces of a few powers and by the spectrum."""
    algebra = cj.SU(33)
    assert algebra.casimir_names == tuple(f"Tr H^{k}" for k in range(2, 6))
    lam = np.linspace(-1.0, 1.0, 33)
    for size in (1.0, 1e-20, 1e20):
        mu = jnp.asarray(np.diag(1j * size * lam))
        moved = jnp.asarray(np.diag(1j * size * (lam + 1e-9 * np.cos(np.arange(33.0)))))
        assert 5e-10 < algebra.orbit_error(moved, mu) < 2e-9
        errors = abs(algebra.casimirs(moved) - algebra.casimirs(mu)) / algebra.casimir_scales(mu)
        assert np.all(np.isfinite(errors)) and errors.max() > 1e-11
    zero = jnp.zeros((33, 33), complex)
    assert algebra.orbit_error(zero, zero) == 0.0


def test_orbit_error_of_a_fluid():
    system, W0 = cj.models.sine_euler(n=9)
    run = {"t1": 0.2, "dt": 0.1, "key": 0, "integrator": cj.HeunMK()}
    sol = cj.solve(system, W0, **run)
    lam = np.linalg.eigvalsh(-1j * sol.mu)
    expected = np.abs(lam - lam[0]).max(axis=1) / np.abs(lam[0]).max()
    np.testing.assert_allclose(sol.orbit_error(), expected, atol=1e-15)
    assert "orbit within" in repr(sol)
    ens = cj.ensemble(system, W0, members=2, **run)
    assert ens.orbit_error().shape == (2, 3)


def test_orbit_error_of_a_product():
    algebra = cj.SO3() ** 3 * cj.SE3()
    mu = np.random.default_rng(1).standard_normal(15)
    one = np.where(np.arange(15) == 4, (1.0 + 1e-6) * mu, mu)
    error, (a, b), scales = jax.jit(
        lambda x, y: (algebra.orbit_error(x, y), [algebra.casimirs(z) for z in (x, y)], algebra.casimir_scales(y))
    )(one, mu)
    np.testing.assert_allclose(error, np.max(np.abs(a - b) / scales), rtol=1e-12)
    assert algebra.known_casimirs == algebra.index == 5


def test_repr_is_short():
    system, mu0 = cj.models.spin_chain(64)
    text = repr(cj.solve(system, mu0, t1=0.1, dt=0.1, key=0, integrator=cj.HeunMK()))
    assert len(text) < 700 and "60 more within" in text
