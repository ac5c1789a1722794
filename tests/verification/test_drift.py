"""Item 4: the round-off correction removes round-off only."""

from functools import lru_cache
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from algebras import ALGEBRAS, LAMBDA, SO4, SU3, se3_constants

import coadjoint as cj

from .measurement import INERTIAS, SU3_EXACT, casimir_errors, growth, slope, su3_casimirs, worst

EPS = 2.0**-52
MEMBERS, STEPS, EVERY = 32, 16_384, 64

# ------------------------------------------------------------------------------------------ with and without


def heavy_top_errors(inertia, integrator):
    """Casimir errors of 32 members, (members, saved, 2)."""
    system, mu0 = cj.models.heavy_top(inertia=inertia)
    kw = {"members": MEMBERS, "t1": 0.01 * STEPS, "dt": 0.01, "key": 3, "save_every": EVERY}
    return casimir_errors(cj.ensemble(system, mu0, integrator=integrator, **kw))


METHODS = [cj.TMK, pytest.param(cj.HeunMK, marks=pytest.mark.slow)]


@pytest.mark.parametrize("inertia", INERTIAS)
@pytest.mark.parametrize("method", METHODS)
def test_without_the_cure_a_random_walk(method, inertia):
    """Switched off, the Casimirs wander like 1e-16·√n, no worse: the action itself keeps them."""
    errors = heavy_top_errors(inertia, method(drift_free=False))
    at = 2 ** np.arange(2, 9)  # in units of 64 steps: 256 to 16384
    rms = np.sqrt(np.mean(errors[:, at] ** 2, axis=0))
    exponents = slope(np.log(at), np.log(rms).T)
    assert np.all((exponents > 0.3) & (exponents < 0.7))
    amplitude = rms / np.sqrt(EVERY * at)[:, None]
    assert 2e-17 < amplitude.min() and amplitude.max() < 2e-16
    assert np.median(np.abs(errors[:, -1]), axis=0).min() > 2e-15  # so that the next test is one


@pytest.mark.parametrize("inertia", INERTIAS)
@pytest.mark.parametrize("method", METHODS)
def test_with_the_cure_flat(method, inertia):
    """On, by default, none of 32 members leaves 2e-15 or grows."""
    errors = heavy_top_errors(inertia, method())
    assert worst(errors) < 2e-15
    assert growth(np.moveaxis(errors, 0, 1).reshape(STEPS // EVERY + 1, -1), windows=64) < 2e-16
    rms = np.sqrt(np.mean(errors[:, 1:] ** 2, axis=(0, 2))).reshape(64, -1).mean(axis=1)
    assert abs(slope(np.log(np.arange(1, 65)), np.log(rms))) < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("drift_free", [False, True])
@pytest.mark.parametrize("inertia", INERTIAS)
def test_many_members_many_steps(inertia, drift_free):
    """The same over 10⁶ steps and 256 members of HeunMK: √n over four decades, or flat."""
    system, mu0 = cj.models.heavy_top(inertia=inertia)
    integrator = cj.HeunMK(drift_free=drift_free)
    ens = cj.ensemble(system, mu0, members=256, t1=1e4, dt=0.01, key=4, save_every=100, integrator=integrator)
    errors = casimir_errors(ens)
    if drift_free:
        assert worst(errors) < 5e-15
        lengths = np.linalg.norm(
            ens.mu.reshape(*ens.mu.shape[:2], 2, 3), axis=3
        )  # noise heats |π|, which rounds coarser
        errors = errors / np.maximum(lengths, 1.0)
        assert growth(np.moveaxis(errors, 0, 1).reshape(10_001, -1)) < 1e-16
    else:
        at = (10 ** np.linspace(1, 4, 7)).astype(int)
        exponents = slope(np.log(at), np.log(np.sqrt(np.mean(errors[:, at] ** 2, axis=0))).T)
        assert np.all((exponents > 0.45) & (exponents < 0.55))


# --------------------------------------------------------------------------------------------- a few ulps


@lru_cache
def cured_and_plain(algebra):
    """transport and flow, as functions of stacked coordinates σ and μ."""
    element, coordinates = algebra.element, algebra.coordinates

    def cured(s, m):
        return coordinates(algebra.drift_free_flow(element(s), element(m), algebra.orbit_memory(element(m)))[0])

    def plain(s, m):
        return coordinates(algebra.flow(element(s), element(m)))

    both = jax.jit(jax.vmap(lambda s, m: (cured(s, m), plain(s, m))))
    return lambda sigma, mu: tuple(map(np.asarray, both(sigma, mu)))


def ulps(a, b):
    """|a − b| in units of eps·|b|, rows by rows."""
    size = np.linalg.norm(b, axis=-1)
    return np.linalg.norm(a - b, axis=-1) / np.where(size > 0, EPS * size, 1.0)


KINDS = ["SO3", "SE3", "se(3)", "so(4)", "sl(2,R)", "su(3)", "SU(3)"]  # closed forms, Newton, double-double, U W Uᴴ


@pytest.mark.parametrize("name", [n if n in KINDS else pytest.param(n, marks=pytest.mark.slow) for n in ALGEBRAS])
def test_a_few_ulps(name):
    """A step with the correction and one without differ by a few ulps of |μ|, at 1000 random states."""
    algebra = ALGEBRAS[name].algebra
    rng = np.random.default_rng(0)
    sigma, mu = 0.3 * rng.standard_normal((1000, algebra.dim)), rng.standard_normal((1000, algebra.dim))
    distance = ulps(*cured_and_plain(algebra)(sigma, mu))
    few = 16 if "SU" in name else 4 if algebra.dim <= 8 else 8  # the rounding of a step itself, larger for matrices
    assert distance.max() < few
    assert np.median(distance) < few / 3


@pytest.mark.parametrize("size", [1e-3, 1e-8, 1e-16, 1e-50, 1e-100, 1e-150, 0.0])
@pytest.mark.parametrize("kind", ["SE3", "structure constants"])
def test_a_few_ulps_where_gamma_vanishes(kind, size):
    """γ → 0: π, and γ in units of itself, move by a few ulps; γ = 0 stays 0."""
    algebra = cj.SE3() if kind == "SE3" else cj.StructureConstants(se3_constants())
    rng = np.random.default_rng(1)
    sigma, mu = 0.3 * rng.standard_normal((1000, 6)), rng.standard_normal((1000, 6))
    mu[:, 3:] *= size
    cured, plain = cured_and_plain(algebra)(sigma, mu)
    assert ulps(cured, plain).max() < 4
    assert ulps(cured[:, 3:], plain[:, 3:]).max() < (4 if kind == "SE3" else 16)
    if size == 0:
        assert not np.any(cured[:, 3:])


@lru_cache
def cured_chain(algebra):
    """transport by each σ in turn, as a function of μ₀ and the stacked σ: the states."""

    def step(state, sigma):
        mu, orbit_memory = algebra.drift_free_flow(sigma, *state)
        return (mu, orbit_memory), mu

    return jax.jit(lambda mu0, sigmas: jax.lax.scan(step, (mu0, algebra.orbit_memory(mu0)), sigmas)[1])


def random_state_of_spectrum(eigenvalues):
    """Coordinates in su(3)* of a Hermitian matrix with the given eigenvalues."""
    rng = np.random.default_rng(5)
    q = np.linalg.qr(rng.standard_normal((3, 3)) + 1j * rng.standard_normal((3, 3)))[0]
    matrix = q @ np.diag(eigenvalues) @ q.conj().T
    return np.einsum("aij,ji->a", LAMBDA, matrix).real


def su3_with_casimirs():
    """su(3) told of its cubic Casimir, so that it is kept by Newton steps and not in double-double."""
    cubic = np.einsum("aij,bjk,cki->abc", LAMBDA, LAMBDA, LAMBDA).real
    return cj.StructureConstants(SU3, lambda m: jnp.stack([m @ m, jnp.einsum("abc,a,b,c", cubic, m, m, m)]))


# e_ij − e_ji with i < j; the self-dual part has μ_01 = μ_23, μ_02 = −μ_13, μ_03 = μ_12.
SELF_DUAL = np.array([0.5, -0.3, 0.7, 0.7, 0.3, 0.5])
OFF = np.array([0.3, 0.1, -0.5, 0.2, 0.4, -0.6])
DEGENERATE = {
    "se(3), γ = 1e-9": (cj.SE3(), [0.5, -0.7, 0.4, 4e-10, 8e-10, -3e-10]),
    "se(3), γ = 1e-150": (cj.SE3(), [0.5, -0.7, 0.4, 4e-151, 8e-151, -3e-151]),
    "se(3), γ = 0": (cj.SE3(), [0.5, -0.7, 0.4, 0, 0, 0]),
    "se(3) by constants, γ = 1e-9": (cj.StructureConstants(se3_constants()), [0.5, -0.7, 0.4, 4e-10, 8e-10, -3e-10]),
    "se(3) by constants, γ = 0": (cj.StructureConstants(se3_constants()), [0.5, -0.7, 0.4, 0, 0, 0]),
    "so(4), self-dual": (cj.StructureConstants(SO4), SELF_DUAL),
    "so(4), nearly self-dual": (cj.StructureConstants(SO4), SELF_DUAL + 1e-9 * OFF),
    "su(3), a repeated eigenvalue": (su3_with_casimirs(), random_state_of_spectrum([1, 1, -2])),
    "su(3), nearly so": (su3_with_casimirs(), random_state_of_spectrum([1 + 1e-9, 1 - 1e-9, -2])),
    "su(3), double-double": (cj.StructureConstants(SU3), random_state_of_spectrum([1, 1, -2])),
}


@pytest.mark.parametrize("name", DEGENERATE)
def test_a_hundred_steps_at_degenerate_points(name):
    """Where the gradients of the Casimirs vanish or are parallel, the correction amplifies nothing.

    After each of 100 steps the state is as near to the exact one (70 digits) as round-off allows.
    """
    algebra, mu0 = DEGENERATE[name]
    mu0 = np.asarray(mu0, dtype=float)
    sigmas = 0.3 * np.random.default_rng(2).standard_normal((100, algebra.dim))
    cured = np.asarray(cured_chain(algebra)(mu0, sigmas))[-1]
    error = oracles.chain_residual(se3_constants() if "se(3)" in name else algebra.constants, sigmas, mu0, cured)
    few = 1 if "double-double" in name else 20  # 2 √100
    assert np.linalg.norm(error) < few * EPS * np.linalg.norm(mu0)


def test_degenerate_points_are_degenerate():
    """The premise of the test above: the gradients of the Casimirs are dependent there, and not elsewhere."""
    for name, generic in (
        ("so(4), self-dual", OFF),
        ("su(3), a repeated eigenvalue", random_state_of_spectrum([1, 2, -3])),
    ):
        algebra, mu0 = DEGENERATE[name]
        rank = [
            np.linalg.matrix_rank(jax.jacobian(algebra.casimirs)(jnp.asarray(m)), tol=1e-10) for m in (mu0, generic)
        ]
        assert rank == [1, 2]


# ---------------------------------------------------------------------- limits of the correction


class Cured(cj.Integrator):
    """A classical method, which does not move along orbits, with the round-off correction of an orbit method."""

    direct: cj.Integrator
    claims: ClassVar[cj.Claims] = cj.Claims(order=2, strong_commuting=1.0, strong=0.5, casimirs=False)

    def init(self, system, mu):
        return system.algebra.orbit_memory(mu)

    def step(self, system, mu, t, dt, dS, carry):
        mu, _, info = self.direct.step(system, mu, t, dt, dS, None)
        mu, carry = system.algebra.drift_free_flow(jnp.zeros_like(mu), mu, carry)  # σ = 0: nothing but the cure
        return mu, carry, info


PAIRS = [
    ("SE3", cj.Heun()),
    pytest.param("structure constants", cj.Heun(), marks=pytest.mark.slow),
    pytest.param("SE3", cj.Trapezoidal(), marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("kind", "direct"), PAIRS)
def test_it_does_not_make_a_method_look_preserving(kind, direct):
    """A classical method with the correction loses the Casimirs as without it, to 1 %: 1e-5 over 10⁴ steps."""
    system, mu0 = cj.models.heavy_top()
    if kind != "SE3":
        algebra = cj.StructureConstants(se3_constants())
        system = cj.System(algebra, system.h, list(system.noises), params=system.params)
    lost = []
    for integrator in (direct, Cured(direct)):
        sol = cj.solve(system, mu0, t1=100.0, dt=0.01, key=0, integrator=integrator)
        pi, gamma = sol.mu[:, :3], sol.mu[:, 3:]
        values = np.stack([np.sum(pi * gamma, axis=1), np.sum(gamma**2, axis=1)], axis=1)
        lost.append(np.abs(values - values[0]).max(axis=0))
    assert np.all(lost[0] > 1e-6)
    np.testing.assert_allclose(lost[1], lost[0], rtol=0.01)
    assert worst(lost[1] - lost[0]) > 0  # the correction acted


def test_the_cure_is_capped():
    """From an anchor that is wrong by 1 % a step moves the state by 16 ulps at most, not by 1 %."""
    for algebra in (cj.SO3(), cj.SE3(), cj.StructureConstants(SO4)):
        mu = jnp.asarray(np.random.default_rng(3).standard_normal(algebra.dim))
        moved, _ = jax.jit(algebra.drift_free_flow)(jnp.zeros(algebra.dim), mu, algebra.orbit_memory(1.01 * mu))
        assert 4 < ulps(np.asarray(moved), np.asarray(mu)) < 17


# --------------------------------------------------------------------------- no Casimirs known


def test_unknown_casimirs_in_double_double():
    """An algebra that knows none of its Casimirs is kept drift-free all the same.

    Over 20000 steps the Casimirs of the state are those of the start to the rounding of the state.
    """

    class Quiet(cj.LieAlgebra):
        dim: int = eqx.field(default=8, static=True)

        def bracket(self, xi, eta):
            return jnp.einsum("i,j,ijk->k", xi, eta, SU3_EXACT)

        def casimirs(self, mu):
            return jnp.zeros(0)

        @property
        def casimir_names(self):
            return ()

    algebra = Quiet()
    assert algebra.index == 2
    mu0 = np.array([0.3, -0.4, 0.2, 0.5, -0.1, 0.3, 0.4, -0.4])
    sigmas = 0.1 * np.random.default_rng(4).standard_normal((8, 20_000, 8))
    plain = jax.jit(lambda m, s: jax.lax.scan(lambda m, x: (algebra.flow(x, m),) * 2, m, s)[1])

    def errors(states):
        return np.asarray(su3_casimirs(states) - su3_casimirs(mu0), dtype=float)

    kept = errors(cured_chain(algebra)(mu0, sigmas[0]))
    assert worst(kept) < 1e-15
    assert growth(kept[99:]) < 5e-17
    # Without the correction it is a random walk, and one of those may end where it began: the median of eight does not.
    drifting = errors(jax.vmap(plain, in_axes=(None, 0))(mu0, sigmas))
    assert np.median([growth(chain[99:]) for chain in drifting]) > 2e-15
