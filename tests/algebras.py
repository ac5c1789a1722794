"""The algebras under test, by name. The laws hold for every entry of ALGEBRAS: add an algebra here and it is tested."""

from collections.abc import Callable
from itertools import combinations
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np

import coadjoint as cj


def constants(dim, brackets):
    """C from {(i, j): {k: value}}, meaning [e_i, e_j] = Σ_k value e_k."""
    C = np.zeros((dim, dim, dim))
    for (i, j), components in brackets.items():
        for k, value in components.items():
            C[i, j, k], C[j, i, k] = value, -value
    return C


def matrix_constants(basis):
    """C of the matrix algebra with the given (linearly independent) basis."""
    rows = np.array([np.concatenate([b.real.ravel(), b.imag.ravel()]) for b in map(np.asarray, basis)])
    C = np.zeros((len(basis),) * 3)
    for i, a in enumerate(basis):
        for j, b in enumerate(basis):
            c = a @ b - b @ a
            C[i, j] = np.linalg.lstsq(rows.T, np.concatenate([c.real.ravel(), c.imag.ravel()]), rcond=None)[0]
    nice = np.round(C * 4) / 4
    C = np.where(abs(C - nice) < 1e-12, nice, C)
    return 0.5 * (C - C.transpose(1, 0, 2))


def rotation_generators(n):
    """The basis E_ij − E_ji, i < j, of so(n)."""
    out = []
    for i, j in combinations(range(n), 2):
        m = np.zeros((n, n))
        m[i, j], m[j, i] = 1.0, -1.0
        out.append(m)
    return out


def gell_mann():
    """The eight Gell-Mann matrices."""
    m = np.zeros((8, 3, 3), complex)
    for k, (i, j) in zip((0, 3, 5), ((0, 1), (0, 2), (1, 2)), strict=True):
        m[k, i, j] = m[k, j, i] = 1
        m[k + 1, i, j], m[k + 1, j, i] = -1j, 1j
    m[2] = np.diag([1, -1, 0])
    m[7] = np.diag([1, 1, -2]) / np.sqrt(3)
    return m


LAMBDA = gell_mann()
# d_abc of {λ_a, λ_b} = (4/3) δ_ab + 2 Σ_c d_abc λ_c: the cubic Casimir of su(3).
CUBIC = np.einsum("aij,bjk,cki->abc", LAMBDA, LAMBDA, LAMBDA).real / 2

SO3 = constants(3, {(0, 1): {2: 1}, (1, 2): {0: 1}, (2, 0): {1: 1}})
SO4 = matrix_constants(rotation_generators(4))
SL2 = constants(3, {(0, 1): {1: 2}, (0, 2): {2: -2}, (1, 2): {0: 1}})  # h, e, f
SL2_MATRICES = np.array([[[1, 0], [0, -1]], [[0, 1], [0, 0]], [[0, 0], [1, 0]]])
HEISENBERG = constants(3, {(0, 1): {2: 1}})
SU3 = matrix_constants([-0.5j * m for m in LAMBDA])
AFF1 = constants(2, {(0, 1): {1: 1}})
DILATIONS = constants(3, {(2, 0): {0: 1}, (2, 1): {1: 1}})  # Bianchi V; Casimir μ₀/μ₁, which is no polynomial


def se3_constants():
    """(ω, v): [ω_i, ω_j] = ε_ijk ω_k, [ω_i, v_j] = ε_ijk v_k."""
    C = np.zeros((6, 6, 6))
    C[:3, :3, :3] = SO3
    C[:3, 3:, 3:] = SO3
    C[3:, :3, 3:] = SO3
    return C


class E2(cj.LieAlgebra):
    """Motions of the plane, as a user would write them: a dimension and a bracket, nothing else."""

    dim: int = eqx.field(default=3, static=True)

    def bracket(self, xi, eta):
        return jnp.stack([0.0 * xi[0], eta[0] * xi[2] - xi[0] * eta[2], xi[0] * eta[1] - eta[0] * xi[1]])


class Case(NamedTuple):
    algebra: cj.LieAlgebra
    hidden: Callable | None = None  # a Casimir that the algebra does not know of, of degree `degree`
    degree: int = 1
    slow: bool = False  # more of a kind that is here already: tested by `make verify`


def semidirect(algebra, **kwargs):
    """g ⋉ g*, with copies of g* if asked for."""
    return cj.Semidirect(algebra, cj.coadjoint_representation(algebra), **kwargs)


PLANE = cj.Semidirect(cj.StructureConstants(np.zeros((1, 1, 1))), [[[0.0, -1.0], [1.0, 0.0]]])


def cubic_in_the_field(m):
    """Σ d_abc b_a b_b b_c: a Casimir of su(3) ⋉ su(3)*, whose states are (w, b)."""
    return jnp.einsum("abc,a,b,c", CUBIC, m[8:], m[8:], m[8:])


ALGEBRAS: dict[str, Case] = {
    "SO3": Case(cj.SO3()),
    "SE3": Case(cj.SE3()),
    "so(3)": Case(cj.StructureConstants(SO3), slow=True),
    "se(3)": Case(cj.StructureConstants(se3_constants()), slow=True),
    "so(4)": Case(cj.StructureConstants(SO4)),
    "sl(2,R)": Case(cj.StructureConstants(SL2)),
    "Heisenberg": Case(cj.StructureConstants(HEISENBERG)),
    "su(3)": Case(cj.StructureConstants(SU3), hidden=lambda m: jnp.einsum("abc,a,b,c", CUBIC, m, m, m), degree=3),
    "aff(1)": Case(cj.StructureConstants(AFF1)),
    "dilations": Case(cj.StructureConstants(DILATIONS), hidden=lambda m: m[0] / m[1], degree=0),
    "e(2)": Case(E2()),
    "e(2), extended": Case(cj.CentralExtension(E2(), [[0, 0, 0], [0, 0, -1], [0, 1, 0]])),
    "SU(3)": Case(cj.SU(3)),
    "SU(2) ⋉ su(2)*, matrices": Case(cj.MagneticSU(2)),
    "SO3 × SU(2)²": Case(cj.SO3() * cj.SU(2) ** 2),
    "SO3 ⋉ R³": Case(cj.Semidirect(cj.SO3(), cj.SO3().bracket, dim=3)),
    "sl(2,R) ⋉ 2R²": Case(cj.Semidirect(cj.StructureConstants(SL2), SL2_MATRICES, copies=2)),
    "SO3 × SE3": Case(cj.SO3() * cj.SE3(), slow=True),
    "SO3³": Case(cj.SO3() ** 3, slow=True),
    "so(2) ⋉ R²": Case(PLANE, slow=True),
    "SO3 ⋉ 2R³": Case(cj.Semidirect(cj.SO3(), cj.SO3().bracket, dim=3, copies=2), slow=True),
    "SU(2) ⋉ su(2)*": Case(semidirect(cj.SU(2)), slow=True),
    "su(3) ⋉ su(3)*": Case(semidirect(cj.StructureConstants(SU3)), hidden=cubic_in_the_field, degree=3, slow=True),
}
