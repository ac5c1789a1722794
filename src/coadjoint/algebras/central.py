"""Central extensions."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from stepcompiler.jaxprs.interning import Constant

from ..numerics import validation
from ..numerics.signatures import check_function
from .base import LieAlgebra
from .compose import Vector, check_algebra
from .constants import structure_constants


class CentralExtension(LieAlgebra):
    """The central extension of an algebra g by a cocycle Σ.

    It is g ⊕ R with the bracket

        [(ξ, a), (η, b)] = ([ξ, η], Σ(ξ, η)).

    A state is (μ, c): the coordinates of a state of g, then one number c, which is a Casimir. For constant c the motion
    is affine on g*: μ' = s (ad*_ξ μ + c Σ(ξ, ·)) with ξ = ∂h/∂μ.

    Parameters
    ----------
    algebra : LieAlgebra
        The algebra g.
    cocycle : array_like, shape (dim, dim), or callable
        An antisymmetric matrix S with Σ(ξ, η) = ξᵀSη in coordinates, or a function of two elements.

    Raises
    ------
    TypeError, ValueError
        If the cocycle is not antisymmetric, or if Σ([ξ, η], ζ) + cyclic is not zero.
    """

    dim: int = eqx.field(static=True)
    algebra: LieAlgebra
    _cocycle: Constant = eqx.field(static=True)

    def __init__(self, algebra: LieAlgebra, cocycle: Any):
        check_algebra("algebra", algebra)
        S = _matrix(algebra, cocycle)
        _check_cocycle(algebra, S)
        self.algebra, self.dim, self._cocycle = algebra, algebra.dim + 1, Constant(S)

    @property
    def cocycle(self) -> np.ndarray:
        """S, the matrix of the cocycle in coordinates."""
        return self._cocycle.value

    def bracket(self, xi: Vector, eta: Vector) -> Vector:
        """([ξ, η], Σ(ξ, η))."""
        g, x, y = self.algebra, xi[:-1], eta[:-1]
        inner = g.coordinates(g.bracket(g.element(x), g.element(y)))
        return jnp.append(inner, x @ self.cocycle @ y)

    def ad_star(self, xi: Vector, mu: Vector) -> Vector:
        """(ad*_ξ μ + c Σ(ξ, ·), 0)."""
        g, x = self.algebra, xi[:-1]
        inner = g.coordinates(g.ad_star(g.element(x), g.element(mu[:-1])))
        return jnp.append(inner + mu[-1] * (x @ self.cocycle), 0.0)


def _matrix(algebra: LieAlgebra, cocycle: Any) -> np.ndarray:
    """The cocycle as an antisymmetric matrix. An invalid one raises an error that describes the defect."""
    n = algebra.dim
    if callable(cocycle):
        check_function("cocycle", cocycle, ("xi", "eta"))
        cocycle = _table(algebra, cocycle)
    S = np.asarray(
        validation.numbers("cocycle", cocycle, "a matrix of real numbers, or a function of two elements", "fiu")
    )
    if S.shape != (n, n):
        raise ValueError(f"cocycle must have shape ({n}, {n}) for {type(algebra).__name__}, not {S.shape}.")
    S = S.astype(np.float64)
    if not np.all(np.isfinite(S)):
        raise ValueError("cocycle must be finite: it has a NaN or an infinity.")
    wrong = np.abs(S + S.T)
    if wrong.max() > 1e-12 * max(np.abs(S).max(), 1e-300):
        i, j = np.unravel_index(np.argmax(wrong), S.shape)
        raise ValueError(f"cocycle must be antisymmetric, but Σ(e_{i}, e_{j}) = {S[i, j]:g} and back {S[j, i]:g}.")
    return 0.5 * (S - S.T)


def _table(algebra: LieAlgebra, cocycle: Callable) -> np.ndarray:
    def entry(a: Array, b: Array) -> Float[Array, ""]:
        return cocycle(algebra.element(a), algebra.element(b))

    basis = jnp.eye(algebra.dim)
    return np.asarray(jax.vmap(lambda a: jax.vmap(lambda b: entry(a, b))(basis))(basis))


def _check_cocycle(algebra: LieAlgebra, S: np.ndarray) -> None:
    C = structure_constants(algebra)
    sums = np.einsum("ijl,lk->ijk", C, S)
    sums = np.abs(sums + sums.transpose(1, 2, 0) + sums.transpose(2, 0, 1))
    scale = max(np.abs(C).max() * np.abs(S).max(), 1e-300)
    if sums.max() > 1e-12 * scale:
        i, j, k = (int(x) for x in np.unravel_index(np.argmax(sums), sums.shape))
        raise ValueError(
            f"cocycle is none: Σ([e_{i}, e_{j}], e_{k}) and its permutations sum to {sums[i, j, k]:.3g}, not to 0."
        )
