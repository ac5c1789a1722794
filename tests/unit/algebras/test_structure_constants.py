"""Algebras from structure constants, and from a user's own bracket: what is checked, what is found, what runs."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from algebras import AFF1, DILATIONS, E2, HEISENBERG, SL2, SO3, SO4, SU3, constants, se3_constants

import coadjoint as cj

EM = cj.EulerMaruyamaMK()

# What is no Lie algebra.


def test_broken_antisymmetry_is_named():
    C = SO3.copy()
    C[1, 2, 0] = 3.0
    with pytest.raises(ValueError, match=r"C is not antisymmetric: C\[1, 2, 0\] = 3, but C\[2, 1, 0\] = -1"):
        cj.StructureConstants(C)


def test_a_bracket_with_itself_is_named():
    C = SO3.copy()
    C[1, 1, 0] = 0.5
    with pytest.raises(ValueError, match=r"not antisymmetric: C\[1, 1, 0\] = 0\.5"):
        cj.StructureConstants(C)


def test_broken_jacobi_is_named():
    """[e0, e1] = e2, [e1, e2] = e0, [e0, e2] = e0: the cyclic sum is [e2, e2] + [e0, e0] − [e0, e1] = −e2."""
    C = constants(3, {(0, 1): {2: 1}, (1, 2): {0: 1}, (0, 2): {0: 1}})
    message = r"C breaks the Jacobi identity for \(e_0, e_1, e_2\): .* has component 1 along e_2, not 0"
    with pytest.raises(ValueError, match=message):
        cj.StructureConstants(C)


@pytest.mark.parametrize(
    "C, error, message",
    [
        (np.zeros((3, 3)), ValueError, r"C must have shape \(n, n, n\), not \(3, 3\)"),
        (np.zeros((3, 3, 4)), ValueError, r"C must have shape \(n, n, n\), not \(3, 3, 4\)"),
        (np.zeros((0, 0, 0)), ValueError, r"C must have shape \(n, n, n\), not \(0, 0, 0\)"),
        (np.where(SO3 == 1, np.nan, SO3), ValueError, r"C\[0, 1, 2\] is nan: structure constants must be finite"),
        (1j * SO3, TypeError, "C must be an array of real numbers, not of type complex128"),
        ("so(3)", TypeError, "C must be an array of real numbers"),
    ],
)
def test_constants_that_are_none(C, error, message):
    with pytest.raises(error, match=message):
        cj.StructureConstants(C)


def test_round_off_in_the_constants_is_allowed():
    cj.StructureConstants(SU3 * (1 + 1e-16) / 3)
    cj.StructureConstants(SO4 * 1e-8)
    cj.StructureConstants(SO4 * 1e8)


def test_later_changes_of_the_array_do_not_matter():
    C = SO3.copy()
    algebra = cj.StructureConstants(C)
    C[:] = 7.0
    np.testing.assert_array_equal(algebra.constants, SO3)
    with pytest.raises(ValueError, match="read-only"):
        algebra.constants[0, 1, 2] = 5.0


def test_equality_is_by_content():
    assert cj.StructureConstants(SO3) == cj.StructureConstants(SO3.copy())
    assert hash(cj.StructureConstants(SO3)) == hash(cj.StructureConstants(SO3.copy()))
    assert cj.StructureConstants(SO3) != cj.StructureConstants(2 * SO3)
    assert cj.StructureConstants(SO3) != cj.SO3()
    assert E2() == E2() and cj.SO3() == cj.SO3() and cj.SO3() != E2()


# Casimirs.


@pytest.mark.parametrize(
    "C, names, index",
    [
        (SO3, 1, 1),
        (se3_constants(), 2, 2),
        (SO4, 2, 2),
        (SL2, 1, 1),
        (HEISENBERG, 1, 1),
        (SU3, 2, 2),
        (AFF1, 0, 0),
        (DILATIONS, 1, 1),
        (np.zeros((2, 2, 2)), 2, 2),
    ],
    ids=["so(3)", "se(3)", "so(4)", "sl(2,R)", "Heisenberg", "su(3)", "aff(1)", "dilations", "abelian"],
)
def test_casimirs_found(C, names, index):
    """Polynomials and a quotient, those independent; the index is how many there are in truth."""
    algebra = cj.StructureConstants(C)
    assert algebra.casimir_names == tuple(f"C{k + 1}" for k in range(names))
    assert algebra.index == index
    assert algebra.casimirs(np.ones(algebra.dim)).shape == (names,)


def quadratic(algebra):
    """The symmetric matrices of the Casimirs, from their values."""
    n, e = algebra.dim, np.eye(algebra.dim)
    value = lambda v: np.asarray(algebra.casimirs(v))
    return np.array([[(value(e[i] + e[j]) - value(e[i] - e[j])) / 4 for j in range(n)] for i in range(n)]).transpose(
        2, 0, 1
    )


def spanned(found, expected):
    """Whether the rows of `found` span the same space as those of `expected`."""
    a, b = (np.reshape(x, (len(x), -1)) for x in (found, expected))
    rank = np.linalg.matrix_rank
    return len(a) == len(b) == rank(a) == rank(b) == rank(np.concatenate([a, b]))


def test_casimirs_are_the_known_ones():
    assert spanned(quadratic(cj.StructureConstants(SO3)), [np.eye(3)])
    # sl(2,R) with basis h, e, f: h² + 4 e f as a function on the dual, pairs (h, e, f).
    assert spanned(quadratic(cj.StructureConstants(SL2)), [[[1, 0, 0], [0, 0, 2], [0, 2, 0]]])
    # so(4) with basis 01, 02, 03, 12, 13, 23: the sum of squares, and the Pfaffian.
    pfaffian = np.zeros((6, 6))
    for i, j, sign in ((0, 5, 1), (1, 4, -1), (2, 3, 1)):
        pfaffian[i, j] = pfaffian[j, i] = sign
    assert spanned(quadratic(cj.StructureConstants(SO4)), [np.eye(6), pfaffian])
    zero, one = np.zeros((3, 3)), np.eye(3)
    expected = [np.block([[zero, one], [one, zero]]), np.block([[zero, zero], [zero, one]])]
    assert spanned(quadratic(cj.StructureConstants(se3_constants())), expected)
    # Heisenberg: the centre, a linear one; its square is not another.
    np.testing.assert_allclose(cj.StructureConstants(HEISENBERG).casimirs(np.array([1.0, 2.0, 3.0])), [3.0])


def cubic(m):
    from algebras import CUBIC

    return jnp.einsum("abc,a,b,c", CUBIC, m, m, m)


def test_given_casimirs_are_taken():
    algebra = cj.StructureConstants(SU3, lambda m: jnp.stack([m @ m, cubic(m)]), ["|μ|²", "d"])
    assert algebra.casimir_names == ("|μ|²", "d")
    m = np.arange(8.0)
    np.testing.assert_allclose(algebra.casimirs(m), [m @ m, cubic(m)])
    unnamed = cj.StructureConstants(DILATIONS, lambda m: jnp.stack([m[0] / m[1]]))
    assert unnamed.casimir_names == ("C1",)


@pytest.mark.parametrize(
    "casimirs, names, error, message",
    [
        (lambda m: jnp.stack([m @ m, m[0]]), ["r", "x"], ValueError, "'x' is not a Casimir: its Poisson bracket"),
        (lambda m: m @ m, None, ValueError, "must return a vector"),
        (lambda m: jnp.stack([m @ m]), ["a", "b"], ValueError, "2 names, but .* 1 value"),
        (None, ["a"], ValueError, "casimir_names was given without casimirs"),
        (3.0, None, TypeError, "casimirs must be a function of the state, not a float"),
    ],
)
def test_false_casimirs_are_refused(casimirs, names, error, message):
    with pytest.raises(error, match=message):
        cj.StructureConstants(SO3, casimirs, names)


def test_given_casimirs_may_close_over_arrays():
    """Two algebras whose Casimirs differ in a captured array are different algebras."""
    one, two = (cj.StructureConstants(SO3, lambda m, k=k: jnp.stack([m @ (jnp.full(3, k) * m)])) for k in (1.0, 2.0))
    assert one != two
    np.testing.assert_allclose(2 * one.casimirs(np.ones(3)), two.casimirs(np.ones(3)))


# A user's algebra with a user's Hamiltonian runs.


@pytest.mark.parametrize(
    "C, casimirs, integrator",
    [(SO4, 2, EM), (SL2, 1, cj.TMK()), (HEISENBERG, 1, EM)],
    ids=["so(4)", "sl(2,R)", "Heisenberg"],
)
def test_ten_lines(C, casimirs, integrator):
    """Structure constants, a Hamiltonian, noise, solve: it runs, and keeps its Casimirs."""
    algebra = cj.StructureConstants(C)
    A = np.diag(1.0 + np.arange(algebra.dim))
    system = cj.System(algebra, lambda m: 0.5 * m @ A @ m, cj.salt(0.1 * np.ones(algebra.dim)))
    mu0 = np.linspace(0.5, 1.0, algebra.dim)
    sol = cj.solve(system, mu0, t1=0.2, dt=0.01, key=0, integrator=integrator)
    assert sol.casimirs().shape == (21, casimirs)
    assert np.max(sol.casimir_errors()) < 5e-15
    assert sol.stats.unsolved == 0
    assert np.max(np.abs(sol.mu[-1] - mu0)) > 1e-2
    assert "StructureConstants" in repr(sol)


def test_the_mean_state_of_a_step_has_derivatives():
    """dexp*_σ μ in one substep and in several, forward and reverse, against central differences."""
    algebra = cj.StructureConstants(SO4)
    rng = np.random.default_rng(0)
    sigma, mu, weight, along = rng.standard_normal((4, algebra.dim))
    mean = jax.jit(lambda s, m: weight @ algebra.dexp_star(s, m))
    for scale in (0.1, 3.0):
        s, eps = scale * sigma, 1e-5
        gradients = jax.grad(mean, argnums=(0, 1))(s, mu)
        for k, shift in enumerate(((along, 0 * along), (0 * along, along))):
            ends = [mean(s + e * shift[0], mu + e * shift[1]) for e in (eps, -eps)]
            forward = jax.jvp(mean, (s, mu), shift)[1]
            np.testing.assert_allclose(forward, (ends[0] - ends[1]) / (2 * eps), rtol=1e-7, atol=1e-8)
            np.testing.assert_allclose(gradients[k] @ along, forward, rtol=1e-12, atol=1e-13)


class Rotations(cj.LieAlgebra):
    """A user's algebra that keeps an array of its own."""

    stretch: np.ndarray
    dim: int = eqx.field(default=3, static=True)

    def bracket(self, xi, eta):
        return self.stretch * jnp.cross(xi, eta)


def test_dim_and_bracket_are_enough():
    """An algebra that gives nothing else goes through solve and ensemble, and agrees with the closed one."""
    h = lambda m: 0.5 * m @ (m / jnp.array([4.0, 2.0, 1.0]))
    noise, mu0 = cj.salt([0.1, 0.2, 0.3]), np.array([0.6, 0.0, 0.8])
    own, closed = (cj.System(a, h, noise) for a in (Rotations(np.ones(3)), cj.SO3()))
    options = {"t1": 1.0, "dt": 0.1, "key": 0, "integrator": cj.EulerMaruyamaMK(remove_stabiliser=False)}
    a, b = (cj.solve(s, mu0, **options) for s in (own, closed))
    np.testing.assert_allclose(a.mu, b.mu, atol=1e-13)
    np.testing.assert_allclose(a.casimirs(), b.casimirs(), atol=1e-14)
    assert a.casimir_errors().max() < 5e-15
    assert repr(a).startswith("Solution: Rotations")
    many = cj.ensemble(own, mu0, members=3, **options)
    np.testing.assert_allclose(many.mu[0], b.mu, atol=1e-13)
    assert many.casimirs().shape == (3, 11, 1)


def test_arrays_of_an_algebra_are_part_of_it():
    assert Rotations(np.ones(3)) == Rotations(np.ones(3))
    assert Rotations(np.ones(3)) != Rotations(2 * np.ones(3))
    slow, fast = (
        cj.solve(cj.System(Rotations(k * np.ones(3)), lambda m: m[2]), [1.0, 0, 0], t1=1.0, dt=0.1, integrator=EM).mu[
            -1
        ]
        for k in (1.0, 2.0)
    )
    np.testing.assert_allclose(slow, [np.cos(1), -np.sin(1), 0], atol=1e-14)
    np.testing.assert_allclose(fast, [np.cos(2), -np.sin(2), 0], atol=1e-14)


def test_a_class_without_bracket_is_no_algebra():
    class Nothing(cj.LieAlgebra):
        dim: int = 3

    with pytest.raises(TypeError, match="bracket"):
        Nothing()  # type: ignore[abstract]
