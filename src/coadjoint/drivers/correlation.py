"""Correlated channels: dS = L dB with independent dB and L Lᵀ the correlation matrix."""

from typing import Any

import numpy as np

from ..numerics import validation

_ROUND_OFF = 1e-12


def checked_correlation(correlation: Any) -> tuple[tuple[float, ...], ...] | None:
    """A correlation matrix as tuples, or an error that states its defect."""
    if correlation is None:
        return None
    name = "correlation"
    matrix = np.asarray(validation.numbers(name, correlation, "a matrix of real numbers", "fiu"), np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"{name} must be a square matrix, not an array of shape {matrix.shape}.")
    if not np.all(np.isfinite(matrix)):
        raise ValueError(f"{name} must be finite.")
    if np.max(np.abs(matrix - matrix.T), initial=0.0) > _ROUND_OFF:
        raise ValueError(f"{name} must be symmetric.")
    if np.max(np.abs(np.diag(matrix) - 1.0), initial=0.0) > _ROUND_OFF:
        raise ValueError(
            f"{name} must have ones on its diagonal, not {np.diag(matrix)}: give amplitudes to the noise of the system."
        )
    least = float(np.min(np.linalg.eigvalsh(matrix), initial=1.0))
    if least < -_ROUND_OFF * max(1, len(matrix)):
        raise ValueError(f"{name} must be positive semidefinite, but its least eigenvalue is {least:.3g}.")
    return tuple(tuple(float(x) for x in row) for row in matrix)


def mixing_of(correlation: tuple[tuple[float, ...], ...] | None, channels: int) -> np.ndarray | None:
    """L, lower triangular with L Lᵀ the correlation matrix, which may be singular; None without correlation."""
    if correlation is None:
        return None
    if len(correlation) != channels:
        raise ValueError(f"correlation is of {len(correlation)} channels, but the driver has {channels}.")
    values, vectors = np.linalg.eigh(np.array(correlation))
    upper: Any = np.linalg.qr((vectors * np.sqrt(np.maximum(values, 0.0))).T, mode="r")
    lower = (upper * np.where(np.diag(upper) < 0, -1.0, 1.0)[:, None]).T
    lower[np.abs(lower) < _ROUND_OFF] = 0.0
    return lower
