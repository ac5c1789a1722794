"""A composition that is not an algebra raises an error that names the argument."""

import jax.numpy as jnp
import numpy as np
import pytest
from algebras import SO3
from composed_algebras import PAULI, PLANE, se3, so2

import coadjoint as cj


@pytest.mark.parametrize(
    "make, error, message",
    [
        (lambda: cj.Product(), ValueError, "at least one algebra"),
        (lambda: cj.Product(cj.SO3(), 3), TypeError, r"factor 2 must be a LieAlgebra such as SO3\(\), not 3"),
        (lambda: cj.Product(cj.SO3(), cj.SE3), TypeError, r"did you mean SE3\(\)\?"),
        (lambda: cj.SO3() * 3, TypeError, "factor 2 must be a LieAlgebra"),
        (lambda: cj.SO3() * np.eye(3), TypeError, "factor 2 must be a LieAlgebra"),
        (lambda: cj.Product(cj.SO3(), copies=0), ValueError, "copies must be at least 1, not 0"),
        (lambda: cj.SO3() ** -1, ValueError, "copies must be at least 1, not -1"),
        (lambda: cj.SO3() ** 1.5, TypeError, "copies must be a whole number"),
        (lambda: (cj.SO3() * cj.SE3()).join(np.zeros(3)), ValueError, r"takes 2 parts, not 1: factor 1 \(SO3\)"),
        (
            lambda: (cj.SO3() * cj.SE3()).join(np.zeros(3), np.zeros(3)),
            ValueError,
            r"factor 2 \(SE3\) needs shape \(6,\), not \(3,\)",
        ),
        (lambda: (cj.SO3() ** 2).join(np.zeros(3), 1j * np.ones(3)), TypeError, "factor 2 .* is real, not complex"),
        (lambda: se3().join(np.zeros(3), np.zeros(2)), ValueError, r"vector 1 needs shape \(3,\), not \(2,\)"),
        (lambda: cj.Semidirect(cj.SO3, PLANE), TypeError, r"algebra must be .* did you mean SO3\(\)\?"),
        (lambda: cj.Semidirect(cj.SO3(), lambda xi, v: v), ValueError, "dim, the dimension of the vector space, must"),
        (lambda: cj.Semidirect(cj.SO3(), "adjoint"), TypeError, "must be a function rho"),
        (lambda: cj.Semidirect(cj.SO3(), [[1.0, 2.0], [3.0]]), TypeError, "must be a function rho"),
        (lambda: cj.Semidirect(cj.SO3(), 1j * SO3), TypeError, "real numbers, not of type complex"),
        (lambda: cj.Semidirect(cj.SO3(), PLANE), ValueError, r"shape \(3, m, m\), .* SO3, not \(1, 2, 2\)"),
        (lambda: cj.Semidirect(cj.SO3(), SO3, dim=4), ValueError, r"shape \(3, 4, 4\)"),
        (lambda: cj.Semidirect(so2(), PLANE * np.nan), ValueError, r"entry \[0, 0, 0\] is nan"),
        (lambda: cj.Semidirect(so2(), PLANE, dim=0), ValueError, "dim must be at least 1"),
        (lambda: cj.Semidirect(so2(), PLANE, copies=0), ValueError, "copies must be at least 1"),
        (lambda: cj.Semidirect(cj.SO3(), lambda xi, v: v[:2], dim=3), ValueError, r"length dim = 3, not .*\(2,\)"),
        (lambda: cj.Semidirect(cj.SO3(), lambda xi, v: 1j * v, dim=3), ValueError, "real vector"),
        (lambda: cj.Semidirect(cj.SO3(), lambda xi, v: (v, v), dim=3), ValueError, "not tuple"),
        (lambda: cj.Semidirect(cj.SO3(), lambda xi, v: v / 0.0, dim=3), ValueError, r"matrix of ρ\(e_0\) is not"),
        (lambda: cj.Semidirect(cj.SO3(), lambda xi, v: (xi @ xi) * v, dim=3), ValueError, "linear in xi and in v"),
        (lambda: cj.Semidirect(cj.SO3(), lambda xi, v: jnp.cross(xi, v) + 1, dim=3), ValueError, "linear in xi"),
        (lambda: cj.Semidirect(so2(), PLANE, casimir_names=["a"]), ValueError, "without casimirs"),
        (
            lambda: cj.Semidirect(so2(), PLANE, casimirs=lambda m: m[1:] ** 2, casimir_names=["a", "b"]),
            ValueError,
            "'a' is not a Casimir",
        ),
    ],
)
def test_what_is_wrong_is_said(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_a_function_that_fails_says_where():
    with pytest.raises(TypeError) as caught:
        cj.Semidirect(cj.SO3(), lambda xi, v: xi @ v, dim=2)
    assert "representation(xi, v) for xi of shape (3,) and v of shape (2,)" in "".join(caught.value.__notes__)


def test_the_failing_pair_of_a_wrong_representation_is_named():
    wrong = SO3.copy()  # −ad, which is one only with its sign changed
    with pytest.raises(ValueError, match=r"e_0 and e_1, .* by 2 in an entry.* −ρ is one: change its sign"):
        cj.Semidirect(cj.SO3(), wrong)
    wrong = -SO3
    wrong[2] *= 1.5
    with pytest.raises(
        ValueError, match=r"e_0 and e_1, ρ\(\[e_0, e_1\]\) differs .* by 0\.5 in an entry; they must be equal\.$"
    ):
        cj.Semidirect(cj.SO3(), wrong)
    wrong = -SO3 / 2  # of a spin-½, but without its other half
    with pytest.raises(ValueError, match=r"by 0\.25 in an entry"):
        cj.Semidirect(cj.SO3(), wrong)
    spin = -0.5j * PAULI  # as real 4×4 matrices it is one
    real = np.block([[spin.real, -spin.imag], [spin.imag, spin.real]])
    assert cj.Semidirect(cj.SO3(), real).dim == 7


def test_a_state_of_the_wrong_shape():
    system = cj.System(cj.SO3() * cj.SE3(), lambda mu: mu @ mu)
    with pytest.raises(ValueError, match=r"mu0 must have shape \(9,\) for Product, not \(3, 3\)"):
        cj.solve(system, np.zeros((3, 3)), t1=1.0, dt=0.1)
