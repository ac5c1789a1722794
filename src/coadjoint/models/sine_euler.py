"""The sine-Euler equations: two-dimensional ideal fluid on the torus, truncated to su(N)."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float

from ..algebras.su import SU
from ..numerics import checks, random
from ..systems import System, salt
from .origin import model

Matrix = Complex[Array, "N N"]


@model
def sine_euler(
    n: int = 3,
    *,
    noise_modes: Any = ((1, 1), (1, -1)),
    amplitude: Any = 0.1,
    omega: Any = None,
    key: Any = 0,
) -> tuple[System, Matrix]:
    """The sine-Euler equations on su(n), n odd, with SALT noise on chosen modes (Zeitlin 1991):

        W' = [P, W],   W = (i/2ε) Σ ω_m T_m,   P = (i/2ε) Σ ω_m/|m|² T_m,   ε = 2π/n,

    m ≠ 0 in [−K, K]², K = (n − 1)/2, in the paper's orientation of time. In Fourier coefficients this is

        dω_m = Σ_k (1/ε) sin(ε m∧k) ω_{m+k} (ω_{−k}/|k|² dt + Σ_i ζ_{i,−k} ∘ dW^i).

    - `omega`: the coefficients at the start, an (n, n) array with omega[m1 % n, m2 % n], of a real field without mean;
      by default real and imaginary parts are uniform on [−½, ½], drawn from `key`.
    - `noise_modes`: pairs (m1, m2); ζ_i is `amplitude` at m and its conjugate at −m: a cosine, moved by the phase of a
      complex amplitude. One number, or one a mode. None for no noise.

    The state is the matrix W; see `matrix_to_fourier`. Casimirs: the eigenvalues of H = −iW = (1/2ε) Σ ω_m T_m.
    """  # fmt: skip
    n = _odd(n)
    omega = _random_field(n, random.as_key(key)) if omega is None else _real_field("omega", omega, n)
    inverse_laplacian = 1.0 / _squared_wavenumbers(n)
    noise = []
    if noise_modes is not None and len(noise_modes):
        noise = [salt(jnp.stack([fourier_to_matrix(z) for z in _noise_fields(n, noise_modes, amplitude)]))]

    def stream(W: Matrix) -> Matrix:
        return fourier_to_matrix(matrix_to_fourier(W) * inverse_laplacian)

    def hamiltonian(W: Matrix) -> Float[Array, ""]:
        return 0.5 * jnp.sum((jnp.conj(W) * stream(W)).real)  # −½ Tr(WP)

    system = System(SU(n), hamiltonian, noise, side="right", gradient=stream)
    return system, fourier_to_matrix(omega)


@jax.jit
def fourier_to_matrix(omega: Complex[Array, "*b N N"]) -> Complex[Array, "*b N N"]:
    """W = (i/2ε) Σ_m ω_m T_m, T_m[j, (j+m₂) mod N] = exp(iε(m₁m₂ + 2m₁j)); omega[m1 % N, m2 % N].

    Along each wrapped diagonal this is a discrete Fourier transform in m₁, read at the index 2j mod N.
    """
    N = omega.shape[-1]
    phases, at, diagonals = _tables(N)
    values = jnp.fft.ifft(omega * phases, axis=-2, norm="forward")[..., at, :]  # [j, m₂]
    rows = np.arange(N)[:, None]
    return (0.25j * N / np.pi) * jnp.zeros(omega.shape, jnp.complex128).at[..., rows, diagonals].set(values)


@jax.jit
def matrix_to_fourier(W: Complex[Array, "*b N N"]) -> Complex[Array, "*b N N"]:
    """The coefficients ω of W = (i/2ε) Σ ω_m T_m, as omega[m1 % N, m2 % N]: the inverse of `fourier_to_matrix`."""
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


def _wavenumbers(n: int) -> np.ndarray:
    """0, 1, …, K, −K, …, −1."""
    m = np.arange(n)
    return np.where(m <= n // 2, m, m - n)


def _squared_wavenumbers(n: int) -> np.ndarray:
    """|m|², infinite at m = 0, which is thereby left out."""
    m = _wavenumbers(n)
    squared = (m[:, None] ** 2 + m**2).astype(float)
    squared[0, 0] = np.inf
    return squared


def _odd(n: Any) -> int:
    n = checks.count("n", n, least=3)
    if n % 2 == 0:
        raise ValueError(f"n must be odd, so that the modes fill [−K, K]², not {n}.")
    return n


def _mirror(omega: Any) -> Any:
    """ω_{−m}."""
    return jnp.roll(omega[::-1, ::-1], (1, 1), axis=(0, 1))


def _real_field(name: str, omega: Any, n: int) -> Array:
    if not checks.is_traced(omega):
        host = np.asarray(omega)
        if host.shape != (n, n):
            raise ValueError(f"{name} must have shape ({n}, {n}), indexed [m1 % n, m2 % n], not {host.shape}.")
        if host.dtype.kind not in "fiuc" or not np.all(np.isfinite(host)):
            raise ValueError(f"{name} must be finite numbers.")
        defect = np.abs(host - np.conj(np.asarray(_mirror(host))))
        if defect.max() > 1e-12 * max(np.abs(host).max(), 1e-300):
            i, j = (int(_wavenumbers(n)[k]) for k in np.unravel_index(np.argmax(defect), defect.shape))
            raise ValueError(
                f"{name} is not a real field: the coefficient of ({-i}, {-j}) must be the conjugate of that of "
                f"({i}, {j})."
            )
        if abs(host[0, 0]) > 1e-12 * max(np.abs(host).max(), 1e-300):
            raise ValueError(f"{name}[0, 0], the mean vorticity, must be 0, not {host[0, 0]:g}.")
    omega = jnp.asarray(omega, jnp.complex128)
    return (0.5 * (omega + jnp.conj(_mirror(omega)))).at[0, 0].set(0.0)


@partial(jax.jit, static_argnums=0)
def _random_field(n: int, key: random.Key) -> Array:
    """Real and imaginary parts of the independent coefficients uniform on [−½, ½]."""
    member = random.member_key(key, random.INITIAL, 0)
    u = random.uniforms(member, 0, 2, 0, n * n).reshape(n, n, 2) - 0.5
    m1, m2 = np.meshgrid(_wavenumbers(n), _wavenumbers(n), indexing="ij")
    independent = (m1 > 0) | ((m1 == 0) & (m2 > 0))
    half = jnp.where(independent, jax.lax.complex(u[..., 0], u[..., 1]), 0.0)
    return half + jnp.conj(_mirror(half))


def _noise_fields(n: int, modes: Any, amplitude: Any) -> list[Array]:
    try:
        pairs = [tuple(int(x) for x in mode) for mode in modes]
        exact = all(len(p) == 2 and tuple(m) == p for p, m in zip(pairs, modes, strict=True))
    except (TypeError, ValueError):
        exact, pairs = False, []
    if not exact:
        raise ValueError(f"noise_modes must be pairs of whole numbers such as ((1, 1), (1, -1)), not {modes!r}.")
    K = n // 2
    amplitudes = _amplitudes(pairs, amplitude)
    fields = []
    for (a, b), size in zip(pairs, amplitudes, strict=True):
        if (a, b) == (0, 0) or max(abs(a), abs(b)) > K:
            raise ValueError(f"noise_modes: ({a}, {b}) is not a mode of n = {n}: entries in [{-K}, {K}], not both 0.")
        fields.append(jnp.zeros((n, n), jnp.complex128).at[a % n, b % n].set(size))
        mirrored = jnp.conj(size) if jnp.iscomplexobj(size) else size
        fields[-1] = fields[-1].at[-a % n, -b % n].set(mirrored)
    return fields


def _amplitudes(pairs: list[tuple[int, ...]], amplitude: Any) -> Array:
    """One a mode; raises where two modes make the same field."""
    if checks.is_traced(amplitude):
        return jnp.broadcast_to(jnp.asarray(amplitude), (len(pairs),))
    try:
        given = np.asarray(amplitude)
    except ValueError:
        given = np.asarray(None)
    if given.dtype.kind not in "fiuc" or not np.all(np.isfinite(given)):
        raise ValueError(f"amplitude must be a finite number, real or complex, or one a mode, not {amplitude!r}.")
    if given.shape not in ((), (len(pairs),)):
        raise ValueError(
            f"amplitude must be one number, or one for each of the {len(pairs)} noise_modes, not of shape "
            f"{given.shape}."
        )
    given = np.broadcast_to(given if given.dtype.kind == "c" else given.astype(float), (len(pairs),))
    seen: dict[tuple[int, ...], list[tuple[tuple[int, ...], complex]]] = {}
    for pair, a in zip(pairs, given, strict=True):
        mirror = tuple(-x for x in pair)
        mode, a = (pair, a) if pair >= mirror else (mirror, np.conj(a))
        for other, b in seen.setdefault(mode, []):
            if abs((a * np.conj(b)).imag) <= 1e-12 * abs(a * b):
                raise ValueError(
                    f"noise_modes: {other} and {pair} make the same field: leave one out, or give them amplitudes of "
                    "different phase, such as 0.1 and 0.1j."
                )
        seen[mode].append((pair, a))
    return jnp.asarray(given)
