"""Associated Legendre functions, and their likes on the diagonals of a matrix."""

import numpy as np

_SAFE = 1500  # the n up to which Legendre functions need no more than the range of doubles
_BLOCK = 128  # rows that are computed together, so that their pivots fit into a cache


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
    # The first entries may be below round-off, but the first column has one sign, and each is coupled to the one before
    # it by A_l > 0 (see `lowest`).
    coupling = np.sum(v[:, 1:] * (z[:size] + z[m:]).astype(float)[:, None] * v[:, :-1], axis=0)
    return v * np.cumprod(np.sign(np.append(np.sum(v[:, 0]), coupling)))


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


def lowest(n: int, m: int, degrees: int) -> np.ndarray:
    """The columns l = m … `degrees` − 1 of `eigenvectors(n, m)`, in O(n) operations each: for large n.

    ½{S₃, T_lm} = A_{l+1} T_{l+1,m} + A_l T_{l−1,m}, A_l = ½ √((l² − m²)(n² − l²)/(4l² − 1)), and ½{S₃, ·} multiplies
    the entry of row j by λ_j = (n − m − 1)/2 − j. So these entries V_l have a recurrence as Legendre functions have it,

        λ V_l = A_{l+1} V_{l+1} + A_l V_{l−1},   V_m(j)² ∝ (j+1) … (j+m) (n−1−j) … (n−m−j).

    Upwards in l it is stable until V begins to decay, where |λ| > 2A_l and A_l falls: rows for which that is before the
    last degree, those near the poles or all of them, are taken whole, by `twisted`.
    """  # fmt: skip
    size, count, l = n - m, degrees - m, np.arange(m + 1, n, dtype=np.longdouble)
    A = 0.5 * np.sqrt((l * l - m * m) * (n * n - l * l) / (4 * l * l - 1))
    j = np.arange((size + 1) // 2, dtype=np.longdouble)  # the northern half: V_l(size − 1 − j) = (−1)^{l−m} V_l(j)
    z = np.longdouble(size - 1) / 2 - j
    falls = count > 1 and A[count - 2] < A[: count - 1].max()
    whole = int(np.count_nonzero(z > 2 * A[count - 2])) if falls else 0
    half = np.empty((count, len(j)))
    half[:, whole:] = _upwards(_first(n, m)[whole:], A[: count - 1], z[whole:])
    for begin in range(0, whole, _BLOCK):
        rows = slice(begin, min(begin + _BLOCK, whole))
        half[:, rows] = twisted(A, z[rows])[:count]
    half[np.abs(half) < 1e-250] = 0.0  # products of denormal numbers are slow
    parity = np.where(np.arange(count) % 2, -1.0, 1.0)[:, None]
    return np.concatenate([half, (parity * half)[:, : size // 2][:, ::-1]], axis=1).T


def _first(n: int, m: int) -> np.ndarray:
    """V_m in the northern half, from the middle outwards."""
    size = n - m
    i = np.arange((size - 1) // 2, dtype=np.longdouble)[::-1]
    ratios = (i + 1) * (n - 1 - i) / ((i + m + 1) * (size - 1 - i))  # of squares, that of i over that of i + 1
    squares = np.cumprod(np.append(np.ones(1, np.longdouble), ratios))[::-1]
    return np.sqrt(squares / (2 * np.sum(squares) - (squares[-1] if size % 2 else 0)))


def _upwards(first: np.ndarray, A: np.ndarray, z: np.ndarray) -> np.ndarray:
    """V_l by its recurrence, as rows."""
    out = np.empty((len(A) + 1, len(z)))
    before, now, coupling = np.zeros_like(first), first, np.longdouble(0)
    out[0] = now
    for k, a in enumerate(A):
        before, now, coupling = now, (z * now - coupling * before) / a, a
        out[k + 1] = now
    return out


def twisted(beta: np.ndarray, eigenvalues: np.ndarray) -> np.ndarray:
    """Columns: eigenvectors of norm 1, positive where they begin, of the tridiagonal matrix with 0 and β_k > 0 in it.

    By twisted factorisations (Dhillon and Parlett 2004), for eigenvalues λ that are known as exactly as β:

        d⁺_1 = −λ,   d⁺_{k+1} = −λ − β_k²/d⁺_k;      d⁻_N = −λ,   d⁻_k = −λ − β_k²/d⁻_{k+1},

    v_t = 1 at the t where |d⁺_t + d⁻_t + λ| is smallest, from there v_i = −(β_i/d⁺_i) v_{i+1} towards the beginning and
    v_{i+1} = −(β_i/d⁻_{i+1}) v_i towards the end: always the way in which v decays, so that nothing grows.
    """  # fmt: skip
    size, count = len(beta) + 1, len(eigenvalues)
    d = np.empty((size, 2, count), beta.dtype)
    squares = np.stack([beta**2, beta[::-1] ** 2], axis=1)[:, :, None]
    tiny = np.asarray(1e-40, beta.dtype)  # in the place of a pivot that is 0, far below round-off
    d[0] = np.where(eigenvalues == 0, tiny, -eigenvalues)
    for k in range(1, size):
        np.divide(squares[k - 1], d[k - 1], out=d[k])
        np.subtract(-eigenvalues, d[k], out=d[k])
        d[k][d[k] == 0] = tiny
    plus, minus = d[:, 0], d[::-1, 1]
    twist = np.argmin(np.abs(plus + minus + eigenvalues), axis=0)
    below = np.arange(size - 1)[:, None] < twist
    ratio = -beta[:, None] / np.where(below, plus[:-1], minus[1:])
    v = np.ones((size, count), beta.dtype)
    v[:-1] = np.cumprod(np.where(below, ratio, 1)[::-1], axis=0)[::-1]
    v[1:] *= np.cumprod(np.where(below, 1, ratio), axis=0)
    odd = np.count_nonzero(below & (ratio < 0), axis=0) % 2  # the sign of v_1, which may be too small a number
    return v * (np.where(odd, -1, 1) / np.sqrt(np.sum(v * v, axis=0)))


def associated_legendre(m: int, n: int, z: np.ndarray, derivatives: bool = False) -> tuple[np.ndarray, ...]:
    """N_lm P_lm(z) for l = m … n − 1 as rows, orthonormal on the sphere with e^{imφ}, and d/dθ of it, z = cos θ.

    By the recurrence upwards in l, without the phase of Condon and Shortley.
    """
    y = np.sqrt(np.maximum(1 - z**2, 0.0))
    k = np.arange(1, m + 1)
    with np.errstate(divide="ignore"):
        start = 0.5 * np.sum(np.log((2 * k + 1) / (2 * k))) - 0.5 * np.log(4 * np.pi) + m * np.log(y)
    # Numbers are now · 2^power: above n = 1900 a number below the smallest double may grow to about 1. Up to _SAFE bits
    # remain, and the loss is below 1e-60.
    wanted = np.clip(start / np.log(2) + 900, -1e6, 0) if n > _SAFE else np.zeros(len(z))
    power = np.floor(wanted).astype(np.intc)
    now, before = np.exp(start - power * np.log(2)), np.zeros(len(z))
    out = np.zeros((n - m, len(z)))
    out[0] = np.ldexp(now, power)
    for i in range(1, n - m):
        l = m + i
        a = np.sqrt((4.0 * l * l - 1) / (l * l - m * m))
        b = np.sqrt(((l - 1.0) ** 2 - m * m) / (4 * (l - 1.0) ** 2 - 1)) if i > 1 else 0.0
        now, before = a * (z * now - b * before), now
        if n > _SAFE and np.any(large := np.abs(now) > 2.0**512):
            shift = np.where(large, 512, 0)
            now, before, power = np.ldexp(now, -shift), np.ldexp(before, -shift), power + shift
        out[i] = np.ldexp(now, power)
    if not derivatives:
        return (out,)
    l = np.arange(m, n, dtype=float)[:, None]
    before = np.vstack([np.zeros(len(z)), out[:-1]])
    factor = np.sqrt(np.maximum((l * l - m * m) * (2 * l + 1) / np.maximum(2 * l - 1, 1), 0.0))
    return out, (l * z * out - factor * before) / y


def gauss(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes z from north to south, and weights, of Gauss's quadrature on [−1, 1]."""
    if n > 512:  # as `sphere._LARGE`: the other takes n³ operations
        from scipy.special import roots_legendre

        z, w = roots_legendre(n)
    else:
        z, w = np.polynomial.legendre.leggauss(n)
    return z[::-1], w[::-1]
