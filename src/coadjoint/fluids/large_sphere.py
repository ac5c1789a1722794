"""Fields on large spheres as matrices, diagonal by diagonal: without tables of n³ numbers."""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from stepcompiler.device_arrays import to_device

from ..numerics import sharding
from .harmonics import lowest
from .laplacians import from_diagonals
from .surface import Coefficients, Matrix

Host = np.ndarray


def to_matrix(n: int, coefficients: Host) -> Host:
    """`Sphere.matrix` of coefficients (…, n²) in NumPy: O(n) operations for each that is not 0, and O(n²) memory."""
    c = np.asarray(coefficients, float).reshape(-1, n**2)
    W = np.zeros((len(c), n * n), complex)
    found = np.flatnonzero(np.any(c, axis=0))
    degrees = int(np.sqrt(found.max(initial=0))) + 1
    for m in range(degrees):
        l = np.arange(m, degrees)
        cosine, sine = c[:, l**2 + l + m], c[:, l**2 + l - m]
        if not (cosine.any() or sine.any()):
            continue
        parts = np.concatenate([cosine, -sine]) * (np.sqrt(0.5) if m else 1.0) * np.sqrt(n / (4 * np.pi))
        real, imaginary = np.split(parts @ lowest(n, m, degrees).T, 2)
        if m:
            W[:, m * n :: n + 1] = imaginary + 1j * real
            _above(W, n, m)[:] = -imaginary + 1j * real
        else:
            W[:, :: n + 1] = 1j * real
    return W.reshape(*np.shape(coefficients)[:-1], n, n)


def to_coefficients(n: int, W: Host) -> Host:
    """`Sphere.coefficients` of skew-Hermitian matrices (…, n, n), likewise; diagonals of zeros cost nothing."""
    flat = np.asarray(W, complex).reshape(-1, n * n)
    c = np.zeros((len(flat), n**2))
    for m in range(n):
        diagonal = _above(flat, n, m)
        if not diagonal.any():
            continue
        l, scale = np.arange(m, n), (np.sqrt(2.0) if m else 1.0) * np.sqrt(4 * np.pi / n)
        parts = np.concatenate([np.imag(diagonal), np.real(diagonal)]) * scale
        cosine, sine = np.split(parts @ lowest(n, m, n), 2)
        if m:
            c[:, l**2 + l - m] = sine
        c[:, l**2 + l + m] = cosine
    return c.reshape(*np.shape(W)[:-2], n**2)


def _above(flat: Host, n: int, m: int) -> Host:
    """The diagonal m of flattened matrices."""
    return flat[:, m : (n - m) * n : n + 1]


class SparseDegrees(eqx.Module):
    """Fields with few (l, m), whose matrices have few diagonals that are not 0; for compiled programs.

    There is a row for each wrapped diagonal, which holds m and, from row m on, −m for m > n/2, and a last one of zeros.
    """

    at: Int[Array, "..."]  # the position of a mode in the flattened amplitudes of cosines, then of sines, [2, r, q]
    row: Int[Array, " d"]  # of the diagonals d = 0 … n//2
    sign: Float[Array, "r q"]  # of the imaginary part: the conjugate is below the diagonal
    basis: Float[Array, "r q n"]

    @staticmethod
    def of(n: int, at: Host) -> "SparseDegrees":
        """Modes by their places l² + l + m in the coefficients."""
        degree = np.sqrt(at).astype(int)
        order = at - degree**2 - degree
        pairs, which = np.unique(np.stack([np.abs(order).ravel(), degree.ravel()]), axis=1, return_inverse=True)
        (m, l), d = pairs, np.minimum(pairs[0], n - pairs[0])
        found, r = np.unique(d, return_inverse=True)
        q = np.array([np.count_nonzero(r[:k] == r[k]) for k in range(len(r))])
        row = np.full(n // 2 + 1, len(found))
        row[found] = np.arange(len(found))
        sign = np.zeros((len(found) + 1, q.max() + 1))
        basis = np.zeros((*sign.shape, n))
        sign[r, q] = np.where(2 * m <= n, -1.0, 1.0)
        for k in np.unique(m):
            of, begin = np.flatnonzero(m == k), 0 if 2 * k <= n else k
            V = lowest(n, k, l[of].max() + 1)[:, l[of] - k] * (np.sqrt(0.5) if k else 1.0)
            basis[r[of], q[of], begin : begin + n - k] = np.sqrt(n / (4 * np.pi)) * V.T
        where = (r * sign.shape[1] + q)[which.ravel()].reshape(at.shape) + sign.size * (order < 0)
        return SparseDegrees(to_device(where), to_device(row), to_device(sign), to_device(basis))

    def matrix(self, coefficients: Callable[[Array, int], Coefficients]) -> Matrix:
        """The matrix of the field whose coefficients(at, size) are amplitudes, flattened, of that size."""
        cosine, sine = coefficients(self.at, 2 * self.sign.size).reshape(2, *self.sign.shape)
        real, imaginary = jnp.einsum("rqn,crq->crn", self.basis, jnp.stack([cosine, self.sign * sine]))
        D = lax.complex(-imaginary, real)
        if sharding.mesh() is not None:
            return sharding.from_diagonals(lambda D: D, D[self.row])
        return from_diagonals(D, self.row)
