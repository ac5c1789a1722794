"""Associated Legendre functions, and their likes on the diagonals of a matrix."""

import numpy as np


def eigenvectors(n: int, m: int) -> np.ndarray:
    """Columns l = m … n − 1: the diagonal m of T_lm, of norm 1, positive where it begins (towards the north pole).

    They are the eigenvectors, to the eigenvalues l(l + 1), of −Δ of Hoppe and Yau on that diagonal,

        (−Δv)_j = (2s(s+1) − 2 z_j z_{j+m}) v_j − r_j r_{j+m} v_{j+1} − r_{j−1} r_{j+m−1} v_{j−1},

    s = (n − 1)/2, z_j = s − j, r_j = √((j + 1)(n − 1 − j)).
    """  # fmt: skip
    from scipy.linalg import eigh_tridiagonal

    j = np.arange(n, dtype=np.longdouble)
    s, size = np.longdouble(n - 1) / 2, n - m
    z, squares = s - j, (j + 1) * (n - 1 - j)
    diagonal = 2 * s * (s + 1) - 2 * z[:size] * z[m:]
    off = -np.sqrt(squares[: size - 1] * squares[m : m + size - 1])
    if size == 1:
        return np.ones((1, 1))
    _, v = eigh_tridiagonal(diagonal.astype(float), off.astype(float))
    v = _refined(diagonal, off, np.arange(m, n) * np.arange(m + 1.0, n + 1), v)
    # Before its first zero a vector has one sign, but its first entries may be below round-off.
    begins = np.argmax(np.abs(v) > 1e-6 * np.abs(v).max(axis=0), axis=0)
    return v * np.sign(v[begins, np.arange(size)])


def _refined(diagonal: np.ndarray, off: np.ndarray, eigenvalues: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Eigenvectors to round-off, by one Newton step with a residual in extended precision.

    Where V = X(1 − E), X exact, Vᵀ(AV − VΛ) = EΛ − ΛE. Without it an error of 1e-16 |A|/gap, n² as large, is left.
    """
    x = v.astype(np.longdouble)
    residual = (diagonal[:, None] - eigenvalues) * x
    residual[:-1] += off[:, None] * x[1:]
    residual[1:] += off[:, None] * x[:-1]
    gaps = eigenvalues - eigenvalues[:, None]
    np.fill_diagonal(gaps, np.inf)
    E = (v.T @ residual.astype(float)) / gaps
    x = x + v @ E
    return (x / np.sqrt(np.sum(x * x, axis=0))).astype(float)


def associated_legendre(m: int, n: int, z: np.ndarray, derivatives: bool = False) -> tuple[np.ndarray, ...]:
    """N_lm P_lm(z) for l = m … n − 1 as rows, orthonormal on the sphere with e^{imφ}, and d/dθ of it, z = cos θ.

    By the recurrence upwards in l, without the phase of Condon and Shortley.
    """
    y = np.sqrt(np.maximum(1 - z**2, 0.0))
    k = np.arange(1, m + 1)
    with np.errstate(divide="ignore"):
        start = 0.5 * np.sum(np.log((2 * k + 1) / (2 * k))) - 0.5 * np.log(4 * np.pi) + m * np.log(y)
    out = np.zeros((n - m, len(z)))
    out[0] = np.exp(start)
    for i in range(1, n - m):
        l = m + i
        a = np.sqrt((4.0 * l * l - 1) / (l * l - m * m))
        b = np.sqrt(((l - 1.0) ** 2 - m * m) / (4 * (l - 1.0) ** 2 - 1)) if i > 1 else 0.0
        out[i] = a * (z * out[i - 1] - (b * out[i - 2] if i > 1 else 0.0))
    if not derivatives:
        return (out,)
    l = np.arange(m, n, dtype=float)[:, None]
    before = np.vstack([np.zeros(len(z)), out[:-1]])
    factor = np.sqrt(np.maximum((l * l - m * m) * (2 * l + 1) / np.maximum(2 * l - 1, 1), 0.0))
    return out, (l * z * out - factor * before) / y


def gauss(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes z from north to south, and weights, of Gauss's quadrature on [−1, 1]."""
    z, w = np.polynomial.legendre.leggauss(n)
    return z[::-1], w[::-1]
