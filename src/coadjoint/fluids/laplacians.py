"""Skew-Hermitian matrices by their wrapped diagonals, on which the Laplacians of torus and sphere act one by one.

Diagonal d of an n×n matrix W holds W[j, (j + d) mod n]; d = 0 … n//2 are enough, the others follow from Wᴴ = −W.

- Torus (n odd): T_m lies on diagonal m₂ and is exp(iε(m₁m₂ + 2m₁j)) there, ε = 2π/n, so that whatever acts on Fourier
  modes by a factor is a Fourier transform along each diagonal, at the frequency q = 2m₁ mod n.
- Sphere (Hoppe and Yau 1998): −Δ W = Σ_a [S_a, [S_a, W]] with the spin matrices S_a of s = (n − 1)/2, eigenvalues
  l(l + 1). It couples neighbours on a diagonal: with z_j = s − j, r_j = √((j + 1)(n − 1 − j)) and c = j + d mod n,

      (−Δ W)_j = (2s(s + 1) − 2 z_j z_c) W_j − r_j r_c W_{j+1} − r_{j−1} r_{c−1} W_{j−1};   r = 0 where one wraps.

Diagonals are read and written by gathers whose indices are counted on the spot: on a GPU a scatter of complex numbers
is a serial loop, and tables of indices as large as the matrix would be constants of the compiled program.
"""  # fmt: skip

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Complex, Float, Int

from ..numerics import sharding
from ..numerics.split_complex import on_gpu

Matrix = Complex[Array, "n n"]
Diagonals = Complex[Array, "d n"]


def _counted(shape: tuple[int, ...]) -> tuple[Array, Array]:
    return lax.broadcasted_iota(jnp.int32, shape, 0), lax.broadcasted_iota(jnp.int32, shape, 1)


def diagonals(W: Matrix, gpu: bool | None = None) -> Diagonals:
    """D[d, j] = W[j, (j + d) mod n] for d = 0 … n//2. `gpu`: as a GPU has it best; None: wherever this is one."""
    n = W.shape[-1]
    if (
        on_gpu() if gpu is None else gpu
    ):  # neighbours in a row are read together; behind the barrier XLA does not turn that round
        j, d = _counted((n, n // 2 + 1))
        c = jnp.where(j + d >= n, j + d - n, j + d)
        rows = W.at[j, c].get(mode="promise_in_bounds")
        return lax.optimization_barrier(rows.reshape(-1)).reshape(rows.shape).T
    d, j = _counted((n // 2 + 1, n))
    c = jnp.where(j + d >= n, j + d - n, j + d)
    return W.at[j, c].get(mode="promise_in_bounds")


def from_diagonals(D: Diagonals, row: Int[Array, " d"] | None = None, gpu: bool | None = None) -> Matrix:
    """The skew-Hermitian matrix with the diagonals d = 0 … n//2, exactly so: of diagonal 0 the imaginary part.

    Where diagonals are alike, such as those that are 0, `row` says in which row of D each is.
    """
    n = D.shape[-1]
    j, c = _counted((n, n))
    d = jnp.where(c < j, c - j + n, c - j)
    given = (2 * d < n) | ((2 * d == n) & (j < c))
    at = jnp.where(given, d, n - d), jnp.where(given, j, c)
    first = jnp.where(d == 0, 0, at[0])
    first = first if row is None else row.at[first].get(mode="promise_in_bounds")
    value = D.at[first, at[1]].get(mode="promise_in_bounds")
    real = jnp.where(d == 0, 0.0, jnp.where(given, value.real, -value.real))
    W = lax.complex(real.astype(value.real.dtype), value.imag)
    return (
        lax.optimization_barrier(W) if (on_gpu() if gpu is None else gpu) else W
    )  # once, not for every use of an entry


# The torus.

Symbol = Callable[[Float[Array, "d q"], Float[Array, "d q"]], Float[Array, "d q"]]


def apply_symbol(symbol: Symbol, W: Matrix, gpu: bool = False) -> Matrix:
    """Σ_m f(m₁, m₂) w_m T_m of W = Σ_m w_m T_m, n odd; f = `symbol` is even and real, and is given arrays."""
    n = W.shape[-1]

    def act(D: Diagonals, first: Array | None, _: tuple = ()) -> Diagonals:
        spectrum = jnp.fft.fft(D, axis=1)
        m2, q = _counted(spectrum.shape)
        m2 = m2 if first is None else m2 + first
        half = jnp.where(q % 2 == 0, q // 2, (q + n) // 2)  # q/2 mod n
        m1 = jnp.where(half > n // 2, half - n, half)
        factor = symbol(m1.astype(W.real.dtype), m2.astype(W.real.dtype))
        if gpu:  # without a pass that divides by n
            return jnp.conj(jnp.fft.fft(jnp.conj(spectrum) * (factor / n), axis=1))
        return jnp.fft.ifft(spectrum * factor, axis=1)

    if sharding.mesh() is not None:
        return sharding.along_diagonals(act, W)
    return from_diagonals(act(diagonals(W, gpu), None), gpu=gpu)


def inverse_squared(m1: Array, m2: Array, screening: float | Array = 0.0) -> Array:
    """1/(|m|² + F), 0 at m = 0: the symbol of (F − Δ)⁻¹ on fields without mean."""
    squared = m1 * m1 + m2 * m2
    return jnp.where(squared > 0, 1.0 / jnp.where(squared > 0, squared + screening, 1.0), 0.0)


# The sphere.


def minus_laplacian(W: Matrix) -> Matrix:
    """−Δ W, eigenvalues l(l + 1)."""
    n = W.shape[-1]
    D = diagonals(W)
    d, j = _counted(D.shape)
    z, r = _spin(n, W.real.dtype)
    c = jnp.where(j + d >= n, j + d - n, j + d)
    s = 0.5 * (n - 1)
    up = r(j) * r(c) * jnp.roll(D, -1, axis=1)
    down = jnp.roll(r(j) * r(c), 1, axis=1) * jnp.roll(D, 1, axis=1)
    return from_diagonals((2 * s * (s + 1) - 2 * z(j) * z(c)) * D - up - down)


def _spin(n: int, dtype: jnp.dtype) -> tuple[Callable[[Array], Array], Callable[[Array], Array]]:
    """z_j and r_j as functions of j."""

    def r(j: Array) -> Array:
        return jnp.sqrt((j + 1).astype(dtype) * (n - 1 - j).astype(dtype))

    return lambda j: 0.5 * (n - 1) - j.astype(dtype), r


class ThomasFactors(NamedTuple):
    """Gaussian elimination on all diagonals at once, row after row: x_j = (y_j − o_j x_{j−1})/den, then backwards."""

    before: Float[Array, "n d"]  # the coupling of j and j − 1 …
    scale: Float[Array, "n d"]  # … the inverse pivots …
    after: Float[Array, "n d"]  # … and the factors of the way back


class CyclicReduction(NamedTuple):
    """Cyclic reduction: x_j ← x_j + low_j x_{j−h} + high_j x_{j+h} for h = 1, 2, 4, …, then x_j times `scale`."""

    low: tuple[Float[Array, "d n"], ...]
    high: tuple[Float[Array, "d n"], ...]
    scale: Float[Array, "d n"]


class SphereSolve(NamedTuple):
    """The tables of `inverse_on_sphere`, made once per model; they are inputs of the compiled program."""

    table: ThomasFactors | CyclicReduction
    screened: Float[Array, ""]  # whether diagonal 0 is regular: 1 or 0


def sphere_solve(n: int, screening: float = 0.0, parallel: bool | None = None) -> SphereSolve:
    """The tables of (F − Δ)⁻¹ for matrices n×n, F = `screening`.

    `parallel`: cyclic reduction, whose tables have 2 log₂ n times the size of the matrix, for a GPU (2 ms at n = 4097
    on an H200; the elimination would take n steps); else elimination, which is faster on a CPU. None: as JAX computes.
    """
    parallel = jax.default_backend() != "cpu" if parallel is None else parallel
    s, j, d = 0.5 * (n - 1), np.arange(n)[:, None], np.arange(n // 2 + 1)[None]
    c = (j + d) % n
    z, r = s - np.arange(n), np.sqrt((np.arange(n) + 1.0) * (n - 1 - np.arange(n)))
    pivot, coupling = 2 * s * (s + 1) + screening - 2 * z[j] * z[c], -r[j] * r[c]
    if not screening:
        pivot[:, 0], coupling[:, 0] = 1.0, 0.0  # singular: done by sums
    table = _reduction(pivot.T, coupling.T) if parallel else _sweeps(pivot, coupling)
    place = jnp.asarray if sharding.mesh() is None else lambda x: _spread(x, _spec(table))
    return SphereSolve(jax.tree.map(place, table), jnp.asarray(float(screening != 0)))


def _spec(table: ThomasFactors | CyclicReduction) -> P:
    """How tables are distributed on a mesh: in the same way as the diagonals."""
    return P(sharding.AXIS, None) if isinstance(table, CyclicReduction) else P(None, sharding.AXIS)


def _spread(x: np.ndarray, spec: P) -> Array:
    axis = spec.index(sharding.AXIS)
    more = [(0, sharding.padded_size(size) - size if i == axis else 0) for i, size in enumerate(x.shape)]
    return sharding.to_device(np.pad(x, more), spec)


def _sweeps(pivot: np.ndarray, coupling: np.ndarray) -> ThomasFactors:
    scale, after, before = np.empty_like(pivot), np.zeros_like(pivot), np.zeros_like(pivot)
    before[1:] = coupling[:-1]
    scale[0] = 1.0 / pivot[0]
    for i in range(1, len(pivot)):
        after[i - 1] = coupling[i - 1] * scale[i - 1]
        scale[i] = 1.0 / (pivot[i] - coupling[i - 1] * after[i - 1])
    return ThomasFactors(before, scale, after)  # type: ignore[arg-type]


def _reduction(b: np.ndarray, coupling: np.ndarray) -> CyclicReduction:
    n, h, lows, highs = b.shape[1], 1, [], []
    a, c = np.zeros_like(coupling), coupling.copy()
    a[:, 1:], c[:, -1] = coupling[:, :-1], 0.0
    while h < n:
        low, high = np.zeros_like(a), np.zeros_like(a)
        low[:, h:], high[:, :-h] = -a[:, h:] / b[:, :-h], -c[:, :-h] / b[:, h:]
        b, (old_a, old_c) = b.copy(), (a, c)
        a, c = np.zeros_like(a), np.zeros_like(a)
        b[:, h:] += low[:, h:] * old_c[:, :-h]
        b[:, :-h] += high[:, :-h] * old_a[:, h:]
        a[:, h:], c[:, :-h] = low[:, h:] * old_a[:, :-h], high[:, :-h] * old_c[:, h:]
        lows.append(low)
        highs.append(high)
        h *= 2
    return CyclicReduction(tuple(lows), tuple(highs), 1.0 / b)  # type: ignore[arg-type]


def inverse_on_sphere(solve: SphereSolve, W: Matrix) -> Matrix:
    """(F − Δ)⁻¹ W of a matrix without trace (of any other, without its trace where F = 0)."""

    def act(D: Diagonals, first: Array | None, solve: SphereSolve) -> Diagonals:
        table = jax.tree.map(lambda x: x.astype(W.real.dtype), solve.table)
        x = _reduced(table, D) if isinstance(table, CyclicReduction) else _swept(table, D.T).T
        middle = jnp.where(solve.screened > 0, x[0], _middle(D[0]))
        d = lax.broadcasted_iota(jnp.int32, (len(D), 1), 0)
        return jnp.where((d if first is None else d + first) == 0, middle, x)

    if sharding.mesh() is not None:
        return sharding.along_diagonals(act, W, solve, SphereSolve(_spec(solve.table), P()))  # type: ignore[arg-type]
    return from_diagonals(act(diagonals(W), None, solve))


def _swept(table: ThomasFactors, y: Complex[Array, "n d"]) -> Complex[Array, "n d"]:
    def forth(x: Array, row: tuple) -> tuple[Array, Array]:
        y, before, scale = row
        x = (y - before * x) * scale
        return x, x

    def back(x: Array, row: tuple) -> tuple[Array, Array]:
        y, after = row
        x = y - after * x
        return x, x

    zero = jnp.zeros_like(y[0])
    _, y = lax.scan(forth, zero, (y, table.before, table.scale))
    return lax.scan(back, zero, (y, table.after), reverse=True)[1]


def _reduced(table: CyclicReduction, x: Diagonals) -> Diagonals:
    n, h = x.shape[1], 1
    for low, high in zip(table.low, table.high, strict=True):
        before, after = jnp.pad(x, ((0, 0), (h, 0)))[:, :n], jnp.pad(x, ((0, 0), (0, h)))[:, h:]
        x = x + low * before + high * after
        h *= 2
    return x * table.scale


def _middle(y: Complex[Array, " n"]) -> Complex[Array, " n"]:
    """Diagonal 0 of (−Δ)⁻¹, where −Δ is a difference of differences: two sums, without mean before and after."""
    n = y.shape[0]
    j = lax.iota(jnp.int32, n - 1)
    squares = ((j + 1).astype(y.real.dtype) * (n - 1 - j).astype(y.real.dtype)).astype(y.real.dtype)
    steps = jnp.cumsum(y - jnp.mean(y))[:-1] / squares
    x = jnp.concatenate([jnp.zeros(1, y.dtype), -jnp.cumsum(steps)])
    return x - jnp.mean(x)
