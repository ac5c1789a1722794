"""The torus [0, 2π)²: Fourier coefficients, matrices of su(n) for odd n, values on a grid."""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Int

from stepcompiler.device_arrays import to_device

from ..numerics import sharding, validation
from .laplacians import apply_symbol, diagonals, from_diagonals, inverse_squared
from .surface import Coefficients, Matrix, Surface

ORIENTATIONS = ("physical", "paper")
_SMALL = 9  # up to here all is as stores of the first version know it


class Torus(Surface):
    """The torus [0, 2π)²: fields ω(x, y) = Σ_m ω_m exp(i m·x), and their matrices W = (i/2ε) Σ ω_m T_m with ε = 2π/n.

    m lies in [−K, K]² with n = 2K + 1. Coefficients are omega[m1 % n, m2 % n]. In the orientation of the paper W' = [P,
    W], P = (−Δ)⁻¹W, tends to ∂ω/∂t = J(ψ, ω) for n → ∞, with Δψ = ω and J(a, b) = a_x b_y − a_y b_x. Its time runs
    backwards. The physical orientation mirrors the plane: ω_(m1, −m2) takes the place of ω_m. The same matrix equation
    then tends to ∂ω/∂t = −J(ψ, ω).

    Parameters
    ----------
    n : int
        The size of the matrices, odd.
    orientation : {"physical", "paper"}, default "physical"
        The orientation. A matrix does not record it.

    Method arguments
    ----------------
    derivative : bool, default False
        Whether the field is differentiated along y.
    """

    orientation: str = eqx.field(static=True)
    _gpu: bool = eqx.field(static=True, repr=False)  # write the inverse for a GPU

    def __init__(self, n: int, orientation: str = "physical", *, _gpu: bool = False):
        self.n = validation.count("n", n, least=3)
        if self.n % 2 == 0:
            raise ValueError(f"n must be odd, so that the modes fill [−K, K]², not {n}.")
        self.orientation = validation.choice("orientation", orientation, ORIENTATIONS)
        self._gpu = _gpu

    @property
    def shape(self) -> tuple[int, ...]:
        """(n, n)."""
        return self.n, self.n

    @property
    def eigenvalues(self) -> np.ndarray:
        """|m|²."""
        m = wavenumbers(self.n)
        return (m[:, None] ** 2 + m**2).astype(float)

    @property
    def shells(self) -> np.ndarray:
        """|m|, rounded."""
        return np.rint(np.sqrt(self.eigenvalues)).astype(int)

    @property
    def rate(self) -> float:
        """1: it is in the scale of W."""
        return 1.0

    @property
    def weight(self) -> float:
        """The mean of ω² is Σ |ω_m|²."""
        return 1.0

    @property
    def norm(self) -> float:
        """‖W‖² = n/(4ε²) Σ |ω_m|²."""
        return 16 * np.pi**2 / self.n**3

    @eqx.filter_jit
    def matrix(self, coefficients: Coefficients) -> Matrix:
        """(i/2ε) Σ ω_m T_m, skew-Hermitian to the last bit: half of the diagonals, of which the others follow."""
        omega = self._reorient(jnp.asarray(coefficients))
        return _matrix_of(omega) if self.n <= _SMALL else _from_modes(omega)

    @eqx.filter_jit
    def coefficients(self, W: Matrix) -> Coefficients:
        """ω."""
        return self._reorient(_coefficients_of(W) if self.n <= _SMALL else _to_modes(jnp.asarray(W)))

    @eqx.filter_jit
    def inverse(self, W: Matrix, screening: float = 0.0) -> Matrix:
        """(−Δ + F)⁻¹ W, a Fourier transform along each diagonal."""
        if self.n <= _SMALL and not self._gpu:
            return super().inverse(W, screening)
        return apply_symbol(lambda m1, m2: inverse_squared(m1, m2, screening), W, gpu=self._gpu and self.n > _SMALL)

    def for_gpu(self) -> "Torus":
        """With another program for the inverse."""
        return Torus(self.n, self.orientation, _gpu=True)

    def sparse_modes(self, at: np.ndarray) -> "SparseModes | None":
        """The map from fields on a small number of modes to matrices; `at`: their positions in the coefficients."""
        return None if self.n <= _SMALL else SparseModes.of(self, at)

    def _reorient(self, omega: Any) -> Any:
        return reorient(omega, self.orientation)

    def grid(self, points: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """x and y, `points` of them along each axis, by default n."""
        size = self._points(points)
        x = 2 * np.pi * np.arange(size) / size
        return x, x

    def values(self, coefficients: Coefficients, points: Any = None) -> Any:
        """ω(x_i, y_j) as [i, j]."""
        size, n, m = self._points(points), self.n, wavenumbers(self.n)
        if validation.is_traced(coefficients):
            omega: Any = jnp.asarray(coefficients)
            fine: Any = jnp.zeros((*omega.shape[:-2], size, size), complex)
            return jnp.fft.ifft2(fine.at[..., (m % size)[:, None], m % size].set(omega), norm="forward").real
        omega = np.asarray(coefficients)
        fine = np.zeros((*omega.shape[:-2], size, size), complex)
        fine[..., (m % size)[:, None], m % size] = omega.reshape(*omega.shape[:-2], n, n)
        return np.fft.ifft2(fine, norm="forward").real

    def gradient(self, coefficients: Coefficients, points: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """(∂ω/∂x, ∂ω/∂y)."""
        omega, m = _on_host(coefficients), wavenumbers(self.n)
        return self.values(1j * m[:, None] * omega, points), self.values(1j * m * omega, points)

    def zonal(self, coefficients: Coefficients, points: Any = None, derivative: bool = False) -> Array:
        """From the coefficients of the modes (0, m₂)."""
        m = wavenumbers(self.n)
        waves = np.exp(1j * m[:, None] * self.grid(points)[1])
        row = jnp.asarray(coefficients)[..., 0, :]
        return jnp.real(row @ (1j * m[:, None] * waves if derivative else waves))

    def from_values(self, values: Any, name: str = "values") -> Coefficients:
        """From real values[i, j] at x_i = 2πi/N, y_j = 2πj/N, N ≥ n."""
        field = real_values(name, values)
        if field.ndim != 2 or field.shape[0] != field.shape[1] or len(field) < self.n:
            raise ValueError(
                f"{name} must be values on a square grid of at least {self.n} × {self.n} points, not of shape "
                f"{field.shape}."
            )
        m = wavenumbers(self.n) % len(field)
        omega = np.fft.fft2(field, norm="forward")[np.ix_(m, m)]
        omega[0, 0] = 0.0
        return to_device(0.5 * (omega + np.conj(mirror(omega))))

    def check(self, name: str, coefficients: Any) -> Coefficients:
        """Conjugate at opposite modes, no mean, and of a size that a vorticity may have."""
        if validation.is_traced(coefficients):
            omega = jnp.asarray(coefficients, jnp.complex128)
            return (0.5 * (omega + jnp.conj(mirror(omega)))).at[0, 0].set(0.0)
        host = _real_field(name, coefficients, self.n).astype(complex)
        host = 0.5 * (host + np.conj(mirror(host)))
        host[0, 0] = 0.0
        return to_device(host)

    def _points(self, points: Any) -> int:
        size = self.n if points is None else validation.count("points", points)
        if size < self.n:
            raise ValueError(f"points must be at least n = {self.n}, not {size}.")
        return size


def reorient(omega: Any, orientation: str) -> Any:
    """ω_(m1, −m2) in the physical orientation, ω_m in that of the paper."""
    return omega if orientation == "paper" else jnp.roll(omega[..., ::-1], 1, axis=-1)


def fourier_to_matrix(omega: Complex[Array, "*b N N"], orientation: str = "physical") -> Complex[Array, "*b N N"]:
    """The matrix W = (i/2ε) Σ_m ω_m T_m of Fourier coefficients, T_m[j, (j+m₂) mod N] = exp(iε(m₁m₂ + 2m₁j)).

    A matrix does not record its orientation. Pass the orientation of the model that uses it.

    Parameters
    ----------
    omega : array, shape (…, N, N), complex
        Coefficients omega[m1 % N, m2 % N] of exp(i m·x), N odd.
    orientation : {"physical", "paper"}, default "physical"
        In "physical" ω_(m1, −m2) takes the place of ω_m.

    Returns
    -------
    array, shape (…, N, N), complex
    """
    validation.choice("orientation", orientation, ORIENTATIONS)
    return _matrix_of(reorient(jnp.asarray(omega), orientation))


def matrix_to_fourier(W: Complex[Array, "*b N N"], orientation: str = "physical") -> Complex[Array, "*b N N"]:
    """The Fourier coefficients omega[m1 % N, m2 % N] of a matrix W: the inverse of `fourier_to_matrix`.

    Parameters
    ----------
    W : array, shape (…, N, N), complex
        A matrix, or a stack of matrices, of `cj.models.sine_euler`.
    orientation : {"physical", "paper"}, default "physical"
        The orientation of the model. A matrix does not record it.

    Returns
    -------
    array, shape (…, N, N), complex
    """
    validation.choice("orientation", orientation, ORIENTATIONS)
    return reorient(_coefficients_of(jnp.asarray(W)), orientation)


@jax.jit
def _matrix_of(omega: Complex[Array, "*b N N"]) -> Complex[Array, "*b N N"]:
    """Along each wrapped diagonal a discrete Fourier transform in m₁, read at the index 2j mod N."""
    N = omega.shape[-1]
    phases, at, diagonals = _tables(N)
    values = jnp.fft.ifft(omega * phases, axis=-2, norm="forward")[..., at, :]  # [j, m₂]
    rows = np.arange(N)[:, None]
    return (0.25j * N / np.pi) * jnp.zeros(omega.shape, jnp.complex128).at[..., rows, diagonals].set(values)


@jax.jit
def _coefficients_of(W: Complex[Array, "*b N N"]) -> Complex[Array, "*b N N"]:
    """The inverse of `_matrix_of`."""
    N = W.shape[-1]
    phases, at, diagonals = _tables(N)
    values = W[..., np.arange(N)[:, None], diagonals]
    values = jnp.zeros_like(values).at[..., at, :].set(values)
    return jnp.fft.fft(values, axis=-2, norm="forward") * np.conj(phases) / (0.25j * N / np.pi)


def _tables(N: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """exp(iε m₁m₂); the index 2j mod N; the column (j + m₂) mod N of row j on diagonal m₂."""
    m = np.arange(N)
    phases = np.exp(2j * np.pi * ((m[:, None] * m) % N) / N)
    return phases, (2 * m) % N, (m[:, None] + m) % N


@partial(jnp.vectorize, signature="(n,n)->(n,n)")
def _from_modes(omega: Complex[Array, "n n"]) -> Complex[Array, "n n"]:
    """`_matrix_of` a real field, by gathers: frequency q = 2m₁ mod n along diagonal m₂."""
    n = omega.shape[-1]
    phases, _, _ = _tables(n)
    half = np.arange(n) * ((n + 1) // 2) % n  # q/2 mod n
    spectrum = (omega * phases)[half, : n // 2 + 1].T
    if sharding.mesh() is not None:
        return sharding.from_diagonals(_along_diagonal, spectrum)
    return from_diagonals(_along_diagonal(spectrum))


def _along_diagonal(spectrum: Complex[Array, "d n"]) -> Complex[Array, "d n"]:
    """Diagonals of (i/2ε) Σ ω_m T_m from the coefficients at their frequencies q, times exp(iε m₁m₂)."""
    return (0.25j * spectrum.shape[-1] / np.pi) * jnp.fft.ifft(spectrum, axis=1, norm="forward")


class SparseModes(eqx.Module):
    """Real fields on few modes, whose matrices have few diagonals that are not 0: no more than these are transformed.

    Their spectrum has a row for each diagonal, with the frequencies q = 2m₁ mod n, and a last one of zeros.
    """

    at: Int[Array, "..."]  # position of a mode in the flattened spectrum; one of two opposite modes is beyond its end
    row: Int[Array, " d"]  # of the diagonals d = 0 … n//2
    phases: Complex[Array, "k n"]  # exp(iε m₁m₂)

    @staticmethod
    def of(torus: Torus, at: np.ndarray) -> "SparseModes":
        """Modes by their places in the flattened coefficients."""
        n = torus.n
        m1, m2 = at // n, at % n if torus.orientation == "paper" else -at % n
        found = np.unique(m2[m2 <= n // 2])
        row = np.full(n // 2 + 1, len(found))
        row[found] = np.arange(len(found))
        half = np.arange(n) * ((n + 1) // 2) % n
        phases = np.exp(2j * np.pi * (np.append(found, 0)[:, None] * half % n) / n)
        q = 2 * m1 % n
        beyond = phases.size
        where = np.where(m2 <= n // 2, row[np.minimum(m2, n // 2)] * n + q, beyond)
        return SparseModes(to_device(where), to_device(row), to_device(phases))

    def matrix(self, coefficients: Callable[[Array, int], Array]) -> Matrix:
        """The matrix of the field whose coefficients(at, size) form a flattened spectrum of that size."""
        spectrum = coefficients(self.at, self.phases.size).reshape(self.phases.shape) * self.phases
        if sharding.mesh() is not None:
            return sharding.from_diagonals(_along_diagonal, spectrum[self.row])
        return from_diagonals(_along_diagonal(spectrum), self.row)


@partial(jnp.vectorize, signature="(n,n)->(n,n)")
def _to_modes(W: Complex[Array, "n n"]) -> Complex[Array, "n n"]:
    """`_coefficients_of` a skew-Hermitian matrix, by gathers."""
    n = W.shape[-1]
    phases, at, _ = _tables(n)
    spectrum = jnp.fft.fft(diagonals(W), axis=1, norm="forward") / (0.25j * n / np.pi)
    half = spectrum[:, at].T * np.conj(phases[:, : n // 2 + 1])
    opposite = jnp.conj(jnp.roll(half[::-1, :0:-1], 1, axis=0))  # ω_{−m} is the conjugate of ω_m
    return jnp.concatenate([half, opposite], axis=1)


def wavenumbers(n: int) -> np.ndarray:
    """0, 1, …, K, −K, …, −1."""
    m = np.arange(n)
    return np.where(m <= n // 2, m, m - n)


def mirror(omega: Any) -> Any:
    """ω_{−m}."""
    xp: Any = np if isinstance(omega, np.ndarray) else jnp  # without a program for each operation
    return xp.roll(omega[::-1, ::-1], (1, 1), axis=(0, 1))


def _on_host(x: Any) -> Any:
    """An array of NumPy's, unless it is traced by JAX."""
    return x if validation.is_traced(x) else np.asarray(x)


def real_values(name: str, values: Any) -> np.ndarray:
    """Finite real numbers. Others raise an error."""
    try:
        field = np.asarray(values)
    except ValueError:
        field = np.asarray(None)
    if field.dtype.kind not in "fiu":
        raise TypeError(f"{name} must be real numbers, not {'complex ones' if field.dtype.kind == 'c' else field}.")
    if not np.all(np.isfinite(field)):
        raise ValueError(f"{name} must be finite: it has a NaN or an infinity.")
    return field.astype(float)


def _real_field(name: str, omega: Any, n: int) -> np.ndarray:
    host = np.asarray(omega)
    if host.shape != (n, n):
        raise ValueError(f"{name} must have shape ({n}, {n}), indexed [m1 % n, m2 % n], not {host.shape}.")
    if host.dtype.kind not in "fiuc" or not np.all(np.isfinite(host)):
        raise ValueError(f"{name} must be finite numbers.")
    largest = max(np.abs(host).max(), 1e-300)
    defect = np.abs(host - np.conj(mirror(host)))
    if defect.max() > 1e-12 * largest:
        i, j = (int(wavenumbers(n)[k]) for k in np.unravel_index(np.argmax(defect), defect.shape))
        raise ValueError(
            f"{name} is not a real field: the coefficient of ({-i}, {-j}) must be the conjugate of that of ({i}, {j})."
        )
    if abs(host[0, 0]) > 1e-12 * largest:
        raise ValueError(f"{name}[0, 0], the mean vorticity, must be 0, not {host[0, 0]:g}.")
    size = float(np.sqrt(np.sum(np.abs(host) ** 2)))
    if size > max(n**2 / 4, 20):
        raise ValueError(
            f"{name} has a root mean square of {size:.3g}, as np.fft.fft2 of values of size {size / n**2:.2g} has, "
            f"which is n² = {n**2} times the coefficients: give np.fft.fft2(values, norm='forward'), or the values "
            "themselves as vorticity=."
        )
    return host
