"""The unit sphere: real spherical harmonics, matrices of su(n), values on a grid of latitudes and longitudes."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from stepcompiler.device_arrays import to_device

from ..numerics import sharding, validation
from .harmonics import associated_legendre, eigenvectors, gauss, lowest
from .laplacians import SphereSolve, diagonals, from_diagonals, inverse_on_sphere, minus_laplacian, sphere_solve
from .large_sphere import SparseDegrees, to_coefficients, to_matrix
from .surface import Coefficients, Matrix, Surface
from .torus import real_values

# Above this n eigenvectors are computed by their recurrence, and n³ numbers are stored for compiled programs only. Up
# to it LAPACK computes them.
_LARGE = 512


class Sphere(Surface):
    """The unit sphere: fields ω = Σ ω_lm Y_lm with l < n, and their matrices W = i √(n/4π) Σ ω_lm T_lm.

    The coefficient at l² + l + m belongs to the real orthonormal harmonic Y_lm, without Condon–Shortley phase:

        Y_lm = √2 N_lm P_lm(cos θ) cos mφ for m > 0,   √2 N_l|m| P_l|m| sin |m|φ for m < 0,   N_l0 P_l for m = 0.

    T_lm are the eigenvectors, of norm 1, of the Laplacian Δ = −Σ_a [S_a, [S_a, ·]] of Hoppe and Yau with spin matrices
    S_a. Its eigenvalues are −l(l + 1).
    The equation

        W' = (1/ħ)[Δ⁻¹W, W] = −(1/ħ)[P, W],   P = (−Δ)⁻¹W,   ħ = 2/√(n² − 1),

    tends to ∂ω/∂t = −{ψ, ω} for n → ∞ with Δψ = ω and {a, b} = x·(∇a × ∇b), the physical orientation. Rossby–Haurwitz
    waves are exact at every n. With this sign h is a negative multiple of the energy. References: Hoppe (1989), Zeitlin
    (2004).

    Parameters
    ----------
    n : int
        The size of the matrices. Fields have degrees l < n.

    Method arguments
    ----------------
    derivative : bool, default False
        Whether the field is differentiated towards the north.
    """  # fmt: skip

    def __init__(self, n: int):
        self.n = validation.count("n", n, least=2)

    @property
    def shape(self) -> tuple[int, ...]:
        """(n²,)."""
        return (self.n**2,)

    @property
    def eigenvalues(self) -> np.ndarray:
        """l(l + 1)."""
        return (self.shells * (self.shells + 1)).astype(float)

    @property
    def shells(self) -> np.ndarray:
        """l."""
        return np.sqrt(np.arange(self.n**2)).astype(int)

    @property
    def rate(self) -> float:
        """−1/ħ."""
        return float(-0.5 * np.sqrt(self.n**2 - 1.0))

    @property
    def weight(self) -> float:
        """The mean of ω² is Σ ω_lm²/4π."""
        return 1 / (4 * np.pi)

    @property
    def norm(self) -> float:
        """‖W‖² = n/(4π) Σ ω_lm²."""
        return 1 / self.n

    @property
    def large(self) -> bool:
        """Above n = 512."""
        return self.n > _LARGE

    def sparse_modes(self, at: np.ndarray) -> SparseDegrees | None:
        """The map from fields on a small number of modes to matrices; `at`: their positions in the coefficients."""
        return SparseDegrees.of(self.n, at) if self.large else None

    def matrix(self, coefficients: Coefficients) -> Matrix:
        """i √(n/4π) Σ ω_lm T_lm."""
        if self.large and not validation.is_traced(coefficients):
            return jax.device_put(to_matrix(self.n, np.asarray(coefficients)))
        return self._matrix(coefficients)

    def coefficients(self, W: Matrix) -> Coefficients:
        """ω_lm at l² + l + m."""
        if self.large and not validation.is_traced(W):
            return jax.device_put(to_coefficients(self.n, np.asarray(W)))
        return self._coefficients(W)

    @eqx.filter_jit
    def _matrix(self, coefficients: Coefficients) -> Matrix:
        t = _tables(self.n)
        c = jnp.asarray(coefficients, float)
        packed = c[..., t.cosine] * t.real + 1j * (c[..., t.sine] * t.imaginary)  # [d, q]
        values = jnp.einsum("djq,...dq->...dj", t.basis, packed)
        return _each(from_diagonals, 1j * np.sqrt(self.n / (4 * np.pi)) * values)

    @eqx.filter_jit
    def _coefficients(self, W: Matrix) -> Coefficients:
        t = _tables(self.n)
        packed = jnp.einsum(
            "djq,...dj->...dq", t.basis, -1j * np.sqrt(4 * np.pi / self.n) * _each(diagonals, jnp.asarray(W))
        )
        flat = packed.reshape(*packed.shape[:-2], -1)[..., t.back]
        return flat.real * t.take_real + flat.imag * t.take_imaginary

    @eqx.filter_jit
    def inverse(self, W: Matrix, screening: float = 0.0) -> Matrix:
        """(−Δ + F)⁻¹ W, a tridiagonal system on each diagonal."""
        return inverse_on_sphere(_solve(self.n, screening, sharding.current()), W)

    def inverses(self, W: Matrix, screenings: tuple[float, ...]) -> Matrix:
        """(−Δ + F_i)⁻¹ W_i of a stack of matrices: all systems are solved together.

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
        tables = [_solve(self.n, F, sharding.current()) for F in screenings]
        return jax.vmap(inverse_on_sphere)(jax.tree.map(lambda *x: jnp.stack(x), *tables), W)

    @eqx.filter_jit
    def laplacian(self, W: Matrix) -> Matrix:
        """ΔW."""
        return -minus_laplacian(W)

    # Grids: equiangular by default, θ from north to south, poles left out; Gauss's where fields come in.

    def grid(self, points: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """Latitudes from north to south, centres of cells, and longitudes from 0 on: N and 2N, by default N = n."""
        size = self.n if points is None else validation.count("points", points)
        theta = np.pi * (np.arange(size) + 0.5) / size
        return np.pi / 2 - theta, np.pi * np.arange(2 * size) / size

    def gauss_grid(self) -> tuple[np.ndarray, np.ndarray]:
        """The n latitudes of Gauss–Legendre quadrature, and 2n longitudes: `from_values` is exact on this grid."""
        z, _ = gauss(self.n)
        return np.arcsin(z), np.pi * np.arange(2 * self.n) / self.n

    def values(self, coefficients: Coefficients, points: Any = None) -> np.ndarray:
        """ω at [latitude, longitude]. `points`: the number of latitudes, or an array of latitudes."""
        return self._synthesis(coefficients, points)[0]

    def gradient(self, coefficients: Coefficients, points: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """The components towards the north and towards the east."""
        south, east = self._synthesis(coefficients, points, derivatives=True)[1:]
        return -south, east

    def zonal(self, coefficients: Coefficients, points: Any = None, derivative: bool = False) -> Array:
        """From the coefficients of order 0."""
        latitude = points if np.ndim(points) == 1 else self.grid(points)[0]
        legendre = associated_legendre(0, self.n, np.sin(latitude), derivative)
        l = np.arange(self.n)
        return jnp.asarray(coefficients)[..., l**2 + l] @ (-legendre[1] if derivative else legendre[0])

    def _synthesis(self, coefficients: Coefficients, points: Any, derivatives: bool = False) -> tuple:
        xp: Any = jnp if validation.is_traced(coefficients) else np
        c = xp.asarray(coefficients, float)
        latitude = points if np.ndim(points) == 1 else self.grid(points)[0]
        z, width = np.sin(latitude), 2 * max(len(latitude), self.n)
        columns = []
        for m in range(self.n):
            l = np.arange(m, self.n)
            amplitude = c[..., l**2 + l + m] - (1j * c[..., l**2 + l - m] if m else 0.0)  # of e^{imφ}, real part taken
            legendre = associated_legendre(m, self.n, z, derivatives)
            scale = np.sqrt(2.0) if m else 1.0
            kinds = [legendre[0]]
            if derivatives:
                kinds += [legendre[1], 1j * m * legendre[0] / np.sqrt(1 - z**2)]
            factor = 0.5 if m else 1.0  # irfft adds the conjugate
            columns.append(xp.stack([factor * (scale * amplitude @ kind) for kind in kinds]))
        out = xp.stack(columns, axis=-1)  # irfft fills up with zeros
        return tuple(xp.fft.irfft(out * width, n=width, axis=-1))

    def from_values(self, values: Any, name: str = "values") -> Coefficients:
        """From real values[latitude, longitude] on the Gauss–Legendre grid (n × 2n), or equiangular (N × 2N, N ≥ 2n).

        Latitudes run from north to south, as in `gauss_grid` and `grid`.
        """
        field = real_values(name, values)
        n = self.n
        if field.ndim != 2 or field.shape[1] != 2 * field.shape[0] or (len(field) != n and len(field) < 2 * n):
            raise ValueError(
                f"{name} must be values on the Gauss grid, {n} × {2 * n}, or on an equiangular grid of N × 2N points "
                f"with N at least {2 * n}, not of shape {field.shape}."
            )
        if len(field) == n:
            z, weights = gauss(n)
        else:
            z, weights = np.sin(self.grid(len(field))[0]), _fejer(len(field))
        modes = np.fft.rfft(field, axis=1) / field.shape[1]  # of e^{imφ}
        c = np.zeros(n**2)
        for m in range(n):
            l = np.arange(m, n)
            legendre = associated_legendre(m, n, z)[0]
            amplitude = 2 * np.pi * legendre @ (weights * modes[:, m]) * (np.sqrt(2.0) if m else 1.0)
            c[l**2 + l + m] = amplitude.real
            if m:
                c[l**2 + l - m] = -amplitude.imag
        c[0] = 0.0
        return to_device(c)

    def check(self, name: str, coefficients: Any) -> Coefficients:
        """n² real numbers, that of l = 0 zero."""
        if validation.is_traced(coefficients):
            return jnp.asarray(coefficients, float).at[0].set(0.0)
        host = real_values(name, coefficients)
        if host.shape != self.shape:
            raise ValueError(
                f"{name} must be {self.n**2} coefficients of real spherical harmonics, at l² + l + m with l < "
                f"{self.n}, not of shape {host.shape}."
            )
        if abs(host[0]) > 1e-12 * max(np.abs(host).max(), 1e-300):
            raise ValueError(f"{name}[0], the mean vorticity (l = 0), must be 0, not {host[0]:g}.")
        host[0] = 0.0
        return to_device(host)


def _each(fn: Callable[[Array], Array], x: Array) -> Array:
    """fn of every matrix of a stack."""
    return fn(x) if x.ndim == 2 else jax.vmap(lambda y: _each(fn, y))(x)


@lru_cache(maxsize=16)
def _solve(n: int, screening: float, mesh: Any) -> SphereSolve:
    """The tables for one device, or for a mesh."""
    with jax.ensure_compile_time_eval():
        return sphere_solve(n, screening)


def index(l: int, m: int) -> int:
    """The position l² + l + m of the coefficient of Y_lm.

    Parameters
    ----------
    l : int
        The degree.
    m : int
        The order, −l ≤ m ≤ l.

    Returns
    -------
    int
    """
    return l * l + l + m


class _Tables(NamedTuple):
    """What takes coefficients to wrapped diagonals: diagonal d holds m = d and, from row n − d on, −m for m = n − d."""

    basis: Array  # [d, j, q]: orthogonal for each d
    cosine: Array  # [d, q]: positions of the coefficients of cos and sin, and their factors
    sine: Array
    real: Array
    imaginary: Array
    back: Array  # position of each coefficient in [d, q], flattened
    take_real: Array
    take_imaginary: Array


@lru_cache(maxsize=4)
def _tables(n: int) -> _Tables:
    half = n // 2 + 1
    basis = np.zeros((half, n, n))
    cosine, sine = np.zeros((half, n), int), np.zeros((half, n), int)
    real, imaginary = np.zeros((half, n)), np.zeros((half, n))
    back, take = np.zeros(n**2, int), np.zeros((2, n**2))
    for m in range(n):
        first = m < half
        d, start = (m, 0) if first else (n - m, m)  # on diagonal n − m the entries of −m begin at row m
        size = n - m
        V = lowest(n, m, n) if n > _LARGE else eigenvectors(n, m)
        basis[d, start : start + size, start : start + size] = V
        l, q = np.arange(m, n), start + np.arange(size)
        cosine[d, q], sine[d, q] = l**2 + l + m, l**2 + l - m
        sign = -1.0 if first else 1.0  # of the imaginary part: the conjugate is below the diagonal
        real[d, q], imaginary[d, q] = (1.0, 0.0) if m == 0 else (np.sqrt(0.5), sign * np.sqrt(0.5))
        back[l**2 + l + m] = back[l**2 + l - m] = d * n + q
        if m:
            take[0, l**2 + l + m], take[1, l**2 + l - m] = np.sqrt(2.0), sign * np.sqrt(2.0)
        else:
            take[0, l**2 + l] = 1.0
    with jax.ensure_compile_time_eval():
        return _Tables(*map(to_device, (basis, cosine, sine, real, imaginary, back, *take)))


def _fejer(size: int) -> np.ndarray:
    """Weights of Fejér's first rule in z = cos θ at θ = π(i + ½)/N."""
    theta = np.pi * (np.arange(size) + 0.5) / size
    k = np.arange(1, size // 2 + 1)
    return (2 / size) * (1 - 2 * np.sum(np.cos(2 * k * theta[:, None]) / (4 * k**2 - 1), axis=1))
