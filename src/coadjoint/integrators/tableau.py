"""Butcher tableaux of Runge–Kutta methods."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..numerics import validation


@dataclass(frozen=True)
class Tableau:
    """A Runge–Kutta method with stages k_i = f(y + Σ_j a_ij k_j) and the result y + Σ_i b_i k_i.

    Parameters
    ----------
    A : array_like, shape (s, s)
        The matrix of the stages.
    b : array_like, shape (s,)
        The weights.
    order : int
        The claimed order. The order conditions up to order 4 are checked.
    name : str, default "own"
        The name in tables.
    """

    A: tuple[tuple[float, ...], ...]
    b: tuple[float, ...]
    order: int
    name: str = "own"

    def __init__(self, A: Any, b: Any, order: int, name: str = "own"):
        matrix, weights = _numbers("A", A), _numbers("b", b)
        s = len(weights)
        if weights.ndim != 1 or s == 0:
            raise ValueError(f"b must be a vector, one weight a stage, not of shape {weights.shape}.")
        if matrix.shape != (s, s):
            raise ValueError(f"A must have shape ({s}, {s}), as b has {s} stages, not {matrix.shape}.")
        order = validation.count("order", order)
        for p, value, needed in _conditions(matrix, weights):
            if p <= order and abs(value - needed) > 1e-12:
                raise ValueError(
                    f"order is given as {order}, but the tableau breaks a condition of order {p}: a sum that must be "
                    f"{needed:.6g} is {value:.6g}."
                )
        for field, content in (
            ("A", tuple(map(tuple, matrix.tolist()))),
            ("b", tuple(weights.tolist())),
            ("order", order),
            ("name", str(name)),
        ):
            object.__setattr__(self, field, content)

    @property
    def stages(self) -> int:
        """How many stages."""
        return len(self.b)

    @property
    def nodes(self) -> tuple[float, ...]:
        """c_i = Σ_j a_ij, the times of the stages."""
        return tuple(float(np.sum(row)) for row in np.array(self.A))

    @property
    def explicit(self) -> bool:
        """Whether each stage needs only those before it."""
        return not np.any(np.triu(np.array(self.A)))


def get_tableau(given: "str | Tableau") -> Tableau:
    """A tableau by its name, or the one that was given."""
    if isinstance(given, Tableau):
        return given
    if not isinstance(given, str):
        raise TypeError(f"tableau must be a Tableau or one of {', '.join(map(repr, TABLEAUX))}, not {given!r}.")
    return TABLEAUX[validation.choice("tableau", given, tuple(TABLEAUX))]


def _numbers(name: str, value: Any) -> np.ndarray:
    try:
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be an array of numbers, not {value!r}.") from None
    if not np.all(np.isfinite(array)):
        raise ValueError(f"{name} must be finite, not {value!r}.")
    return array


def _conditions(A: np.ndarray, b: np.ndarray) -> Sequence[tuple[int, float, float]]:
    """(order, what is, what must be) for the trees of order 1 to 4 (Hairer, Nørsett and Wanner, II.2)."""
    c = A.sum(axis=1)
    return (
        (1, b.sum(), 1.0),
        (2, b @ c, 1 / 2),
        (3, b @ c**2, 1 / 3),
        (3, b @ A @ c, 1 / 6),
        (4, b @ c**3, 1 / 4),
        (4, b @ (c * (A @ c)), 1 / 8),
        (4, b @ A @ c**2, 1 / 12),
        (4, b @ A @ A @ c, 1 / 24),
    )


_ROOT = 3**0.5 / 6
TABLEAUX = {
    t.name: t
    for t in (
        Tableau([[0.0]], [1.0], 1, "euler"),
        Tableau([[0.0, 0.0], [0.5, 0.0]], [0.0, 1.0], 2, "midpoint"),
        Tableau([[0.0, 0.0], [1.0, 0.0]], [0.5, 0.5], 2, "heun"),
        Tableau(
            [[0.0, 0.0, 0.0, 0.0], [0.5, 0.0, 0.0, 0.0], [0.0, 0.5, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]],
            [1 / 6, 1 / 3, 1 / 3, 1 / 6],
            4,
            "rk4",
        ),
        Tableau([[0.5]], [1.0], 2, "gauss2"),
        Tableau([[0.25, 0.25 - _ROOT], [0.25 + _ROOT, 0.25]], [0.5, 0.5], 4, "gauss4"),
    )
}
