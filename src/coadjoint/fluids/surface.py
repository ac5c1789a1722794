"""Common parts of torus and sphere: fields as coefficients, as matrices and as values on a grid."""

import abc
from collections.abc import Callable
from functools import wraps
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float

from ..numerics import validation

Matrix = Complex[Array, "*b n n"]
Coefficients = Any  # of a field: (…, *surface.shape), complex on the torus, real on the sphere


class Surface(eqx.Module):
    """A surface on which fields are matrices of su(n).

    A real field f without mean has coefficients in a basis of eigenfunctions of the Laplacian. `matrix` maps them to
    a skew-Hermitian matrix, `coefficients` back. The equation of ideal flow is W' = rate [P, W], P = (−Δ)⁻¹W.

    Method arguments
    ----------------
    coefficients : array, shape `shape`
        The coefficients of a field.
    W : array, shape (n, n)
        The matrix of a field. It may have leading axes.
    values : array
        The values of a field on a grid.
    points : int or array, optional
        The size of the grid. On the sphere it is the number of latitudes, or an array of latitudes.
    at : array
        The modes of the fields.
    field : array
        Coefficients, or values on a grid.
    screening : float, default 0.0
        F, the inverse squared deformation radius.
    densities : array, shape `shape`
        A number per coefficient.
    derivative : bool, default False
        Whether the field is differentiated along y, or towards the north.
    name : str
        The name of the field in an error message.
    """

    n: int = eqx.field(static=True)

    @property
    @abc.abstractmethod
    def shape(self) -> tuple[int, ...]:
        """The shape of the coefficients of a field."""

    @property
    @abc.abstractmethod
    def eigenvalues(self) -> np.ndarray:
        """The eigenvalues of −Δ, one per coefficient; 0 for the mean."""

    @property
    @abc.abstractmethod
    def shells(self) -> np.ndarray:
        """The wavenumber of each coefficient, rounded: k = 0, 1, 2 …"""

    @property
    @abc.abstractmethod
    def rate(self) -> float:
        """c in W' = c [P, W]."""

    @property
    @abc.abstractmethod
    def weight(self) -> float:
        """The mean of f² over the surface is `weight` Σ |f_k|²."""

    @property
    @abc.abstractmethod
    def norm(self) -> float:
        """The mean of f² over the surface is `norm` ‖W‖²."""

    @property
    def large(self) -> bool:
        """Whether tables are so large that `matrix` and `coefficients` are compiled only while they are traced."""
        return False

    def sparse_modes(self, at: np.ndarray) -> Any:
        """The map from fields on a small number of modes to matrices; None: no special map."""
        return None

    def for_gpu(self) -> "Surface":
        """The same surface with a program for GPUs, if there is one; a store does not record it."""
        return self

    @abc.abstractmethod
    def matrix(self, coefficients: Coefficients) -> Matrix:
        """The matrix of a field."""

    @abc.abstractmethod
    def coefficients(self, W: Matrix) -> Coefficients:
        """The coefficients of the field of a matrix: the inverse of `matrix`."""

    @abc.abstractmethod
    def values(self, coefficients: Coefficients, points: Any = None) -> np.ndarray:
        """A field at the points of a grid; see `grid`."""

    @abc.abstractmethod
    def from_values(self, values: Any, name: str = "values") -> Coefficients:
        """The coefficients of a field from its values on a grid. The mean and unresolved parts are left out."""

    @abc.abstractmethod
    def grid(self, points: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """The coordinates of the points along both axes."""

    @abc.abstractmethod
    def gradient(self, coefficients: Coefficients, points: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """∇f along both axes of the grid, in unit vectors."""

    @abc.abstractmethod
    def zonal(self, coefficients: Coefficients, points: Any = None, derivative: bool = False) -> Array:
        """The mean of f, or of ∂f/∂y, over x by y on the torus, and over longitude by latitude on the sphere.

        Parameters
        ----------
        coefficients : array
            Those of f, with any leading axes.
        points : int or array, optional
            As for `values`.
        derivative : bool, default False
            Whether the mean is that of the derivative, towards the north on the sphere.

        Returns
        -------
        array, shape (…, points)
        """

    @abc.abstractmethod
    def check(self, name: str, coefficients: Any) -> Coefficients:
        """Coefficients of a real field without mean. Invalid ones raise an error that describes the defect."""

    def as_coefficients(self, name: str, field: Any) -> Coefficients:
        """A field of the user: values if the shape is that of a grid, else coefficients."""
        as_values = not np.iscomplexobj(field) and np.ndim(field) == 2
        return self.from_values(field, name) if as_values else self.check(name, field)

    def check_matrix(self, name: str, W: Any) -> None:
        """Raise unless it is a stack of n×n matrices."""
        if np.shape(W)[-2:] != (self.n, self.n):
            raise ValueError(f"{name} must be matrices of shape (…, {self.n}, {self.n}), not {np.shape(W)}.")

    def inverse(self, W: Matrix, screening: float = 0.0) -> Matrix:
        """(−Δ + F)⁻¹ W, F = `screening`."""
        return self.matrix(self.coefficients(W) * self.inverse_eigenvalues(screening))

    def inverses(self, W: Matrix, screenings: tuple[float, ...]) -> Matrix:
        """(−Δ + F_i)⁻¹ W_i of a stack of matrices.

        Parameters
        ----------
        W : array, shape (L, n, n)
            The matrices.
        screenings : tuple of float
            F_i.

        Returns
        -------
        array, shape (L, n, n)
        """
        return jnp.stack([self.inverse(X, F) for X, F in zip(W, screenings, strict=True)])

    @eqx.filter_jit
    def laplacian(self, W: Matrix) -> Matrix:
        """ΔW."""
        return self.matrix(-self.eigenvalues * self.coefficients(W))

    def inverse_eigenvalues(self, screening: float = 0.0) -> np.ndarray:
        """1/(λ + F), 0 for the mean."""
        shifted = self.eigenvalues + screening
        return np.where(self.eigenvalues > 0, 1.0 / np.where(shifted > 0, shifted, 1.0), 0.0)

    def by_shell(self, densities: Float[Array, "*b"]) -> Float[Array, " k"]:
        """Sums over the shells k = 0, 1, 2 …"""
        shells = self.shells
        return jnp.zeros(int(shells.max()) + 1).at[shells.ravel()].add(densities.ravel())


def compiled(method: Callable[[Any, Array], Any]) -> Callable[[Any, Array], Any]:
    """A method of a flow, compiled. On a large surface, which needs large tables, only while it is traced."""
    program = eqx.filter_jit(method)

    @wraps(method)
    def call(flow: Any, mu: Array) -> Any:
        by_hand = flow.surface.large and not validation.is_traced((flow, mu))
        return method(flow, mu) if by_hand else program(flow, mu)

    return call


def diagnostic(method: Callable[[Any, Array], Array]) -> Callable[[Any, Array], Array]:
    """A compiled method of a flow for one state, which also takes several states along leading axes."""
    one = compiled(method)

    @wraps(method)
    def call(flow: Any, mu: Array) -> Array:
        more = jnp.ndim(mu) - flow.state_axes
        if more < 0:
            raise ValueError(
                f"a state of this flow has {flow.state_axes} axes, but {method.__name__} received an array of shape "
                f"{jnp.shape(mu)}."
            )
        if more == 0:
            return one(flow, mu)
        rows = jnp.reshape(mu, (-1, *jnp.shape(mu)[more:]))
        large = flow.surface.large and not validation.is_traced((flow, mu))
        values = jnp.stack([one(flow, row) for row in rows]) if large else _of_rows(one, flow, rows)
        return values.reshape(*jnp.shape(mu)[:more], *values.shape[1:])

    return call


@eqx.filter_jit
def _of_rows(one: Callable, flow: Any, rows: Array) -> Array:
    return jax.vmap(lambda row: one(flow, row))(rows)
