"""Semidirect products of an algebra with a vector space."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from stepcompiler.device_arrays import compile_and_run
from stepcompiler.jaxprs.interning import Constant

from ..numerics import validation
from ..numerics.signatures import check_function
from .base import Element, LieAlgebra
from .compose import Vector, check_algebra, flatten, join, state_error
from .constants import structure_constants
from .structure import trace_casimirs


class Semidirect(LieAlgebra):
    """The semidirect product g ⋉ V of an algebra g that acts on a vector space V = ℝᵐ by a representation ρ.

    The bracket and the coadjoint action are

        [(ξ, u), (η, w)] = ([ξ, η], ρ(ξ)w − ρ(η)u),
        ad*_(ξ,u) (μ, a) = (ad*_ξ μ − u⋄a, ρ(ξ)ᵀ a),   <u⋄a, η> = a·ρ(η)u.

    Elements and states are real vectors: the coordinates of g, then those of each copy of V. `split` returns
    (μ, a₁, a₂, …) with μ a state of g, and `join` is its inverse. `Semidirect(SO3(), SO3().bracket, dim=3)` is `SE3()`.

    Parameters
    ----------
    algebra : LieAlgebra
        The algebra g.
    representation : callable or array_like, shape (dim g, m, m)
        A JAX function rho(xi, v) of an element of g and a vector of length m. It may also be an array R, where R[i] is
        the matrix of ρ(e_i).
    dim : int, optional
        m. Required if `representation` is a function.
    copies : int, default 1
        The number of copies of V on which g acts.
    casimirs : callable, optional
        A function of the state that returns all Casimirs as a vector. By default Casimirs are found up to degree 4, if
        the dimension allows it.
    casimir_names : sequence of str, optional
        Their names.

    Raises
    ------
    TypeError, ValueError
        If ρ is not a representation, or if a function in `casimirs` is not a Casimir.
    """  # fmt: skip

    dim: int = eqx.field(static=True)
    algebra: LieAlgebra
    copies: int = eqx.field(static=True)
    _matrices: Constant = eqx.field(static=True)
    given_casimirs: Constant | None = eqx.field(static=True)
    given_names: tuple[str, ...] = eqx.field(static=True)

    def __init__(
        self,
        algebra: LieAlgebra,
        representation: Callable[[Element, Array], Array] | Any,
        dim: int | None = None,
        copies: int = 1,
        casimirs: Callable[[Array], Array] | None = None,
        casimir_names: Sequence[str] | None = None,
    ):
        validation.require_float64()
        check_algebra("algebra", algebra)
        R = _representation_matrices(algebra, representation, dim) + 0.0  # no −0, so that equal is equal
        _check_representation(algebra, R)
        R.flags.writeable = False
        self.algebra = algebra
        self.copies = validation.count("copies", copies)
        self._matrices = Constant(R)
        self.dim = algebra.dim + self.copies * R.shape[1]
        self.given_casimirs, self.given_names = None, ()
        if casimirs is not None or casimir_names is not None:
            self.given_casimirs, self.given_names = trace_casimirs(self, casimirs, casimir_names)

    @property
    def matrices(self) -> np.ndarray:
        """R, shape (dim g, m, m): R[i] is the matrix of ρ(e_i)."""
        return self._matrices.value

    def split(self, x: Vector) -> tuple[Element, ...]:
        """(μ, a₁, a₂, …) of the vector `x`."""
        mu, a = self._parts(x)
        return self.algebra.element(mu), *a

    def join(self, *parts: Element) -> Vector:
        """The vector with the `parts` (μ, a₁, a₂, …)."""
        places: list = [(type(self.algebra).__name__, self.algebra)]
        places += [(f"vector {i + 1}", self.matrices.shape[1]) for i in range(self.copies)]
        return join(places, parts)

    def state_error(self, mu: np.ndarray) -> str | None:
        """The defect of the part in g*."""
        return state_error(self.algebra, mu[: self.algebra.dim])

    def bracket(self, xi: Vector, eta: Vector) -> Vector:
        """([ξ, η], ρ(ξ)w − ρ(η)u)."""
        g = self.algebra
        (x, u), (y, w) = self._parts(xi), self._parts(eta)
        top = g.coordinates(g.bracket(g.element(x), g.element(y)))
        return flatten([top, w @ self._rho(x).T - u @ self._rho(y).T])

    def ad_star(self, xi: Vector, mu: Vector) -> Vector:
        """(ad*_ξ μ − u⋄a, ρ(ξ)ᵀ a)."""
        g = self.algebra
        (x, u), (m, a) = self._parts(xi), self._parts(mu)
        top = g.coordinates(g.ad_star(g.element(x), g.element(m))) - self._diamond(u, a)
        return flatten([top, a @ self._rho(x)])

    def rotation_part(self, g: Array) -> Array:
        """That of the algebra that acts, from Ad_g."""
        return self.rotation_of_adjoint(g)

    def rotation_of_adjoint(self, Ad: Array) -> Array:
        """The same."""
        d = self.algebra.dim
        return self.algebra.rotation_of_adjoint(Ad[..., :d, :d])

    def _parts(self, x: Vector) -> tuple[Float[Array, " d"], Float[Array, "copies m"]]:
        d = self.algebra.dim
        return x[:d], x[d:].reshape(self.copies, -1)

    def _rho(self, xi: Float[Array, " d"]) -> Float[Array, "m m"]:
        return jnp.tensordot(xi, self.matrices, axes=1)

    def _diamond(self, u: Float[Array, "copies m"], a: Float[Array, "copies m"]) -> Float[Array, " d"]:
        return jnp.tensordot(self.matrices, a.T @ u, axes=2)


def coadjoint_representation(algebra: LieAlgebra) -> np.ndarray:
    """The representation of g on its dual, ρ(ξ)α = −ad*_ξ α, as an array for `Semidirect`.

    Parameters
    ----------
    algebra : LieAlgebra
        The algebra g.

    Returns
    -------
    array, shape (dim, dim, dim)
        R with R[i] the matrix of ρ(e_i). `Semidirect(g, coadjoint_representation(g))` is g ⋉ g*.
    """
    check_algebra("algebra", algebra)
    return -structure_constants(algebra)


def _representation_matrices(algebra: LieAlgebra, representation: Any, dim: Any) -> np.ndarray:
    """R[i] = ρ(e_i), from a function or an array."""
    m = None if dim is None else validation.count("dim", dim)
    if callable(representation):
        if m is None:
            raise ValueError("dim, the dimension of the vector space, must be given with a function representation.")
        check_function("representation", representation, ("xi", "v"))
        return _matrices_of_function(algebra, representation, m)
    what = "a function rho(xi, v) or an array of real numbers"
    R = np.array(validation.numbers("representation", representation, what, "fiu"))
    d = algebra.dim
    if R.ndim != 3 or R.shape[0] != d or R.shape[1] != R.shape[2] or R.shape[1] == 0 or m not in (None, R.shape[1]):
        size = "m" if m is None else m
        raise ValueError(
            f"representation must have shape ({d}, {size}, {size}), a matrix for each of the {d} basis elements of "
            f"{type(algebra).__name__}, not {R.shape}."
        )
    if not np.all(np.isfinite(R)):
        i, j, k = np.argwhere(~np.isfinite(R))[0]
        raise ValueError(f"representation must be finite: entry [{i}, {j}, {k}] is {R[i, j, k]}.")
    return R.astype(np.float64)


def _matrices_of_function(algebra: LieAlgebra, rho: Callable, m: int) -> np.ndarray:
    def action(c: Array, v: Array) -> Array:
        return rho(algebra.element(c), v)

    vector = jax.ShapeDtypeStruct((m,), jnp.float64)
    try:
        out = jax.eval_shape(action, jax.ShapeDtypeStruct((algebra.dim,), jnp.float64), vector)
    except Exception as error:
        error.add_note(
            f"This was raised by representation(xi, v) for xi of shape {algebra.shape} and v of shape ({m},)."
        )
        raise
    if getattr(out, "shape", None) != (m,) or jnp.issubdtype(out.dtype, jnp.complexfloating):
        got = f"{out.dtype} of shape {out.shape}" if hasattr(out, "shape") else type(out).__name__
        raise ValueError(f"representation(xi, v) must return a real vector of length dim = {m}, not {got}.")
    rng = np.random.default_rng(0)
    c, v = rng.standard_normal(algebra.dim), rng.standard_normal(m)
    columns = jax.vmap(jax.vmap(action, (None, 0)), (0, None))
    both = compile_and_run(lambda e, f, c, v: (columns(e, f), action(c, v)), np.eye(algebra.dim), np.eye(m), c, v)
    R, given = np.asarray(both[0], dtype=np.float64).transpose(0, 2, 1), np.asarray(both[1])
    if not np.all(np.isfinite(R)):
        i = int(np.argwhere(~np.isfinite(R))[0][0])
        raise ValueError(f"representation must be finite, but the matrix of ρ(e_{i}) is not.")
    defect = np.max(np.abs(given - np.einsum("i,ijk,k->j", c, R, v)))
    if not defect <= 1e-10 * max(np.abs(R).max(), np.abs(given).max(), 1e-300) * (algebra.dim + m):
        raise ValueError(
            "representation(xi, v) must be linear in xi and in v, but at random ones it differs from its values on "
            f"the bases, combined, by {defect:.3g}."
        )
    return R


def _check_representation(algebra: LieAlgebra, R: np.ndarray) -> None:
    worst, (i, j) = _worst_pair(algebra, R)
    if worst == 0.0:
        return
    hint = " −ρ is one: change its sign." if _worst_pair(algebra, -R)[0] == 0.0 else ""
    raise ValueError(
        f"representation is not a representation: for the basis elements e_{i} and e_{j}, ρ([e_{i}, e_{j}]) differs "
        f"from ρ(e_{i})ρ(e_{j}) − ρ(e_{j})ρ(e_{i}) by {worst:.3g} in an entry; they must be equal.{hint}"
    )


def _worst_pair(algebra: LieAlgebra, R: np.ndarray) -> tuple[float, tuple[int, int]]:
    """The largest defect of ρ([e_i, e_j]) = [ρ(e_i), ρ(e_j)], 0 if it is round-off, and where."""
    C = structure_constants(algebra)
    scale = np.abs(R).max() * max(np.abs(R).max() * R.shape[1], np.abs(C).max() * R.shape[0])
    worst, where = 0.0, (0, 0)
    for i in range(len(R)):
        defect = np.abs(np.tensordot(C[i], R, axes=1) - (R[i] @ R - R @ R[i])).max(axis=(1, 2))
        if defect.max() > max(worst, 1e-12 * scale):
            worst, where = float(defect.max()), (i, int(np.argmax(defect)))
    return worst, where
