"""su(n): traceless skew-Hermitian matrices. No operator on matrices is ever formed."""

import math
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float

from stepcompiler.derivatives import custom_derivative

from ..numerics import validation
from ..numerics.special_functions import BERNOULLI, arctan
from .automorphisms import GROUP_TOL
from .base import LieAlgebra
from .conjugation import conjugated
from .exponentials import expm, taylor

Matrix = Complex[Array, "n n"]

_LARGEST_POWER = 5  # of the traces that are given as Casimirs
_SMALL = 8  # n up to which the basis of diagonal matrices is written out
_TABLES = 16  # n up to which indices are tables; above, they are counted in a program, whose constants they would be
_LARGEST_TAYLOR = 5  # n up to which exp is a Taylor polynomial
_LARGEST_DENSE = 64  # dimension up to which dexp and dexpinv form the matrix of ad


def dagger(a: Matrix) -> Matrix:
    """The conjugate transpose."""
    return jnp.conj(jnp.swapaxes(a, -1, -2))


class SU(LieAlgebra):
    """su(n), the traceless skew-Hermitian n×n matrices.

    The pairing is <μ, ξ> = −Tr(μξ), so that

        ad*_ξ μ = [μ, ξ],   flow(σ, μ) = e^{−σ} μ e^{σ}.

    All Casimirs are the eigenvalues of the Hermitian matrix H = −iμ. `casimirs` returns the traces Tr(Hᵏ) up to k = 5,
    and `orbit_error` compares all eigenvalues. Coordinates are orthonormal under the pairing.

    Parameters
    ----------
    n : int
        The number of rows, at least 2. The state has shape (n, n) and type complex128.
    """

    n: int = eqx.field(static=True)

    def __init__(self, n: int):
        self.n = validation.count("n", n, least=2)

    @property
    def dim(self) -> int:
        """n² − 1."""
        return self.n**2 - 1

    @property
    def shape(self) -> tuple[int, ...]:
        """(n, n)."""
        return (self.n, self.n)

    @property
    def dtype(self):
        """complex128."""
        return jnp.complex128

    def coordinates(self, x: Matrix) -> Float[Array, " dim"]:
        """√2 times the real and imaginary parts above the diagonal, then the diagonal in an orthonormal basis."""
        return _coordinates(x)

    def element(self, c: Float[Array, " dim"]) -> Matrix:
        """The matrix with the given coordinates."""
        return _element(self.n, c)

    def state_error(self, mu: np.ndarray) -> str | None:
        """Whether the matrix is skew-Hermitian and traceless."""
        scale, asymmetry = _norm(mu), _norm(mu + mu.conj().T)
        if asymmetry > 1e-10 * scale:
            return f"it is not skew-Hermitian: the norm of μ + μᴴ is {asymmetry:.3g}, not 0."
        trace = np.trace(mu)
        if abs(trace) > 1e-10 * scale:
            return f"its trace is {trace:.3g}, not 0."
        return None

    def are_states(self, mu: np.ndarray) -> bool:
        """Whether all are skew-Hermitian and traceless."""
        norm2 = lambda x: np.einsum("kij,kij->k", x.real, x.real) + np.einsum("kij,kij->k", x.imag, x.imag)
        most, trace = 1e-20 * norm2(mu), np.trace(mu, axis1=1, axis2=2)
        return bool(np.all(norm2(mu + mu.conj().swapaxes(1, 2)) <= most) and np.all(np.abs(trace) ** 2 <= most))

    def nearest_states(self, mu: np.ndarray) -> np.ndarray:
        """½(μ − μᴴ), without the trace unless that is round-off: a state of an earlier run remains as it is."""
        mu = 0.5 * (mu - mu.conj().swapaxes(1, 2))
        trace = np.array([np.trace(x).imag for x in mu])  # one by one, so that roundings are those of one state
        drifted = np.abs(trace) > np.finfo(float).eps * np.array([_norm(x) for x in mu])
        if np.any(drifted):
            np.einsum("kii->ki", mu)[drifted] -= 1j * (trace[drifted] / self.n)[:, None]
        return mu

    def bracket(self, xi: Matrix, eta: Matrix) -> Matrix:
        """[ξ, η] = ξη − (ξη)ᴴ."""
        product = xi @ eta
        return product - dagger(product)

    def pairing(self, mu: Matrix, xi: Matrix) -> Float[Array, ""]:
        """−Tr(μξ)."""
        return jnp.sum(mu.real * xi.real + mu.imag * xi.imag)

    def ad_star(self, xi: Matrix, mu: Matrix) -> Matrix:
        """[μ, ξ]."""
        return self.bracket(mu, xi)

    def flow(self, sigma: Matrix, mu: Matrix) -> Matrix:
        """e^{−σ} μ e^{σ}."""
        if self.dim > _LARGEST_DENSE:  # with derivatives by products
            return conjugated(sigma, mu)
        u = exp_skew(sigma)
        return dagger(u) @ mu @ u

    def dexp(self, sigma: Matrix, zeta: Matrix) -> Matrix:
        """In the eigenbasis of σ, where ad_σ is diagonal with entries i(λ_j − λ_k); dense up to dimension 64."""
        if self.dim <= _LARGEST_DENSE:  # differentiable where eigenvalues meet
            return super().dexp(sigma, zeta)
        return _dexp(sigma, zeta)

    def dexp_star(self, sigma: Matrix, mu: Matrix) -> Matrix:
        """dexp_{−σ} μ, since ad*_σ = ad_{−σ}."""
        return self.dexp(-sigma, mu)

    def dexpinv(self, sigma: Matrix, zeta: Matrix) -> Matrix:
        """ζ − ½[σ, ζ] + (1/12)[σ,[σ, ζ]] − …: exact up to dimension 64, above to tenth order in σ."""
        if self.dim <= _LARGEST_DENSE:
            return super().dexpinv(sigma, zeta)
        total, term = zeta, zeta
        for b in BERNOULLI[1:]:
            term = self.bracket(sigma, term)
            total = total + b * term
        return total

    def gradient(self, h, mu: Matrix) -> Matrix:
        """The element of su(n) with <δμ, ∂h/∂μ> = Dh(μ)δμ: JAX's gradient is its conjugate, before projection."""
        g = jnp.conj(jax.grad(h)(mu))
        g = 0.5 * (g - dagger(g))
        return g - (jnp.trace(g) / self.n) * jnp.eye(self.n)

    def casimirs(self, mu: Matrix) -> Float[Array, " k"]:
        """Tr(Hᵏ) for k = 2 … min(5, n), from the eigenvalues of H = −iμ."""
        lam = jnp.linalg.eigvalsh(-1j * mu)
        return jnp.sum(lam ** self._powers[:, None], axis=1)

    @property
    def casimir_names(self) -> tuple[str, ...]:
        """The traces of powers."""
        return tuple(f"Tr H^{k}" for k in self._powers)

    def casimir_scales(self, mu: Matrix) -> Float[Array, " k"]:
        """Σ|λ|ᵏ over the eigenvalues λ of H."""
        lam = jnp.linalg.eigvalsh(-1j * mu)
        return jnp.sum(jnp.abs(lam) ** self._powers[:, None], axis=1)

    @property
    def _powers(self) -> np.ndarray:
        """A few: the trace of a high power is that of the largest eigenvalue alone."""
        return np.arange(2, min(self.n, _LARGEST_POWER) + 1)

    @property
    def known_casimirs(self) -> int:
        """All: the eigenvalues."""
        return self.n - 1

    def orbit_error(self, mu: Matrix, start: Matrix) -> Float[Array, ""]:
        """The largest change of an eigenvalue divided by ‖μ‖₂, the largest absolute eigenvalue."""
        lam, before = (jnp.linalg.eigvalsh(-1j * x) for x in (mu, start))
        scale = jnp.max(jnp.abs(before))
        return jnp.max(jnp.abs(lam - before)) / jnp.where(scale > 0, scale, 1.0)

    @property
    def index(self) -> int:
        """n − 1."""
        return self.n - 1

    def orbit_memory(self, mu: Matrix) -> tuple[Matrix, Matrix]:
        """(U, W₀) with W_n = U W₀ Uᴴ."""
        return jnp.eye(self.n, dtype=self.dtype), mu

    def drift_free_flow(self, sigma: Matrix, mu: Matrix, orbit_memory: tuple[Matrix, Matrix]) -> tuple[Matrix, tuple]:
        """U ← e^{−σ} U with a Newton–Schulz step towards the unitary group, then W = U W₀ Uᴴ: no errors accumulate."""
        return _moved(dagger(exp_skew(sigma)), orbit_memory)

    @property
    def is_matrix_conjugation(self) -> bool:
        """Yes: steps are products of matrices."""
        return True

    # The Cayley transform cay(σ) = (1 − σ/2)⁻¹(1 + σ/2) lies in U(n): its phase, which acts on nothing, is left out.

    def log_cayley(self, sigma: Matrix) -> Matrix:
        """In the eigenbasis of σ, iλ ↦ 2i arctan(λ/2), without trace."""
        log = _log_cayley(sigma)
        return log - (jnp.trace(log) / self.n) * jnp.eye(self.n)

    def cayley_flow(self, sigma: Matrix, mu: Matrix) -> Matrix:
        """cay(σ)ᴴ μ cay(σ)."""
        u = _cayley(sigma)
        return dagger(u) @ mu @ u

    def drift_free_cayley_flow(
        self, sigma: Matrix, mu: Matrix, orbit_memory: tuple[Matrix, Matrix]
    ) -> tuple[Matrix, tuple]:
        """As `drift_free_flow`, with cay(σ)ᴴ in place of e^{−σ}: no eigenvalues are computed."""
        return _moved(dagger(_cayley(sigma)), orbit_memory)

    def dcayinv(self, sigma: Matrix, zeta: Matrix) -> Matrix:
        """(1 − σ/2) ζ (1 + σ/2) + c (1 − σ²/4), c such that the trace vanishes."""
        one = jnp.eye(self.n)
        product = (one - 0.5 * sigma) @ zeta @ (one + 0.5 * sigma)
        square = one - 0.25 * (sigma @ sigma)
        return product - (jnp.trace(product) / jnp.trace(square)) * square

    def dcay_star(self, sigma: Matrix, mu: Matrix) -> Matrix:
        """(1 + σ/2)⁻¹ μ (1 − σ/2)⁻¹, without trace."""
        factor = jax.scipy.linalg.lu_factor(jnp.eye(self.n) + 0.5 * sigma)
        half = jax.scipy.linalg.lu_solve(factor, mu)
        m = -jax.scipy.linalg.lu_solve(factor, dagger(half))  # m is skew-Hermitian, and this is −mᴴ
        m = 0.5 * (m - dagger(m))
        return m - (jnp.trace(m) / self.n) * jnp.eye(self.n)

    # The group SU(n).

    def group_exp(self, sigma: Matrix) -> Matrix:
        """e^σ."""
        return exp_skew(sigma)

    def group_product(self, g: Matrix, k: Matrix) -> Matrix:
        """g k, projected to unitary matrices."""
        return unitary(g @ k)

    def group_inverse(self, g: Matrix) -> Matrix:
        """gᴴ."""
        return dagger(g)

    def group_error(self, g: Matrix) -> str | None:
        """Whether g is unitary, with determinant 1."""
        u = np.asarray(g)
        off = np.abs(u.conj().T @ u - np.eye(self.n)).max()
        if not off <= GROUP_TOL:
            return f"it is not unitary: gᴴg is off the identity by {off:.3g}."
        det = np.linalg.det(u)
        return None if abs(det - 1) <= GROUP_TOL * self.n else f"its determinant is {det:.6g}, not 1."

    def rotation_part(self, g: Array) -> Array:
        """Of SU(2): R with g σ_j g⁻¹ = Σ_i R_ij σ_i, σ_i the Pauli matrices."""
        if self.n != 2:
            return LieAlgebra.rotation_part(self, g)
        xp: Any = np if isinstance(g, np.ndarray) else jnp
        pauli = np.array([[[0, 1], [1, 0]], [[0, -1j], [1j, 0]], [[1, 0], [0, -1]]])
        turned = xp.einsum("...ab,jbc,...dc->...jad", g, pauli, xp.conj(g))
        return 0.5 * xp.real(xp.einsum("iab,...jba->...ij", pauli, turned))

    def coadjoint(self, g: Matrix, mu: Matrix) -> Matrix:
        """Ad*_g μ = g⁻¹ μ g."""
        return dagger(g) @ mu @ g


def _norm(a: np.ndarray) -> float:
    """The Frobenius norm."""
    return math.sqrt(np.vdot(a, a).real)


def _moved(step: Matrix, orbit_memory: tuple[Matrix, Matrix]) -> tuple[Matrix, tuple]:
    """W = U W₀ Uᴴ after U ← step U, projected to unitary matrices."""
    u, start = orbit_memory
    u = unitary(step @ u)
    w = u @ start @ dagger(u)
    return 0.5 * (w - dagger(w)), (u, start)


def _cayley(sigma: Matrix) -> Matrix:
    """(1 − σ/2)⁻¹(1 + σ/2), unitary to round-off."""
    one = jnp.eye(sigma.shape[0])
    return jnp.linalg.solve(one - 0.5 * sigma, one + 0.5 * sigma)


def unitary(u: Matrix) -> Matrix:
    """One Newton–Schulz step towards the nearest unitary matrix; the derivative is that of the identity."""
    correction = 0.5 * (u - u @ (dagger(u) @ u))
    return u + jax.lax.stop_gradient(correction)


@custom_derivative
def exp_skew(sigma: Matrix) -> Matrix:
    """e^σ of a skew-Hermitian matrix, unitary to round-off: V e^{iλ} Vᴴ with −iσ = V λ Vᴴ; small ones by Taylor."""
    if sigma.shape[0] <= _LARGEST_TAYLOR:  # no eigenvalue problem: that has native code, and is faster
        one = jnp.eye(sigma.shape[0], dtype=sigma.dtype)
        return taylor(sigma, jnp.sum(sigma.real**2 + sigma.imag**2), one)
    lam, v = jnp.linalg.eigh(-1j * sigma)
    return (v * jnp.exp(1j * lam)) @ dagger(v)


@exp_skew.def_rule
def _exp_skew_slope(out, primals, tangents):
    """By products, which are smooth where eigenvalues meet; those of `eigh` are not."""
    return jax.jvp(expm, primals, tangents)[1]


@custom_derivative
def _dexp(sigma: Matrix, zeta: Matrix) -> Matrix:
    """In the eigenbasis of σ."""
    lam, v = jnp.linalg.eigh(-1j * sigma)
    return v @ (_phi1(lam[:, None] - lam) * (dagger(v) @ zeta @ v)) @ dagger(v)


@_dexp.def_rule
def _dexp_slope(out, primals, tangents):
    """That of (D exp(σ) ζ) e^{−σ}, by products."""
    along = tuple(jnp.zeros_like(x) if t is None else t for x, t in zip(primals, tangents, strict=True))
    return jax.jvp(lambda s, z: jax.jvp(expm, (s,), (z,))[1] @ expm(-s), primals, along)[1]


@custom_derivative
def _log_cayley(sigma: Matrix) -> Matrix:
    """The function iλ ↦ 2i arctan(λ/2) of a skew-Hermitian matrix."""
    lam, v = jnp.linalg.eigh(-1j * sigma)
    return (v * (2j * jnp.arctan(0.5 * lam))) @ dagger(v)


@_log_cayley.def_rule
def _log_cayley_slope(out, primals, tangents):
    """By divided differences: arctan a − arctan b = arctan((a − b)/(1 + ab)) where 1 + ab > 0, as it is where a = b."""
    (sigma,), (delta,) = primals, tangents
    lam, v = jnp.linalg.eigh(-1j * sigma)
    a, b = 0.5 * lam[:, None], 0.5 * lam
    near = 1.0 + a * b > 0.5
    scale = jnp.where(near, 1.0 + a * b, 1.0)
    close = arctan(1, ((a - b) / scale) ** 2) / scale
    far = (jnp.arctan(a) - jnp.arctan(b)) / jnp.where(near, 1.0, a - b)
    inner = jnp.where(near, close, far) * (dagger(v) @ delta @ v)
    return v @ inner @ dagger(v)


def _phi1(x: Float[Array, "..."]) -> Complex[Array, "..."]:
    """(e^{ix} − 1)/(ix) = e^{ix/2} sin(x/2)/(x/2)."""
    return jnp.exp(0.5j * x) * jnp.sinc(x / (2 * np.pi))


def _entries(n: int) -> tuple[Any, Any, Any]:
    """Row and column of each entry of a matrix, and the number of the one above the diagonal to which it belongs."""
    few = n <= _TABLES
    xp: Any = np if few else jnp
    i, j = np.indices((n, n)) if few else (jax.lax.broadcasted_iota(jnp.int32, (n, n), axis) for axis in (0, 1))
    low, high = xp.minimum(i, j), xp.maximum(i, j)
    return i, j, xp.where(i == j, 0, low * (2 * n - low - 1) // 2 + high - low - 1)


@jax.jit  # traced once, and one program if called outside of others
def _coordinates(x: Matrix) -> Float[Array, " dim"]:
    upper = np.sqrt(2.0) * x.reshape(-1)[_above_diagonal(len(x))]
    return jnp.concatenate([upper.real, upper.imag, _traceless(jnp.diagonal(x).imag)])


@partial(jax.jit, static_argnums=0)
def _element(n: int, c: Float[Array, " dim"]) -> Matrix:
    m = n * (n - 1) // 2
    i, j, at = _entries(n)  # a gather: complex scatters are slow
    upper = (jax.lax.complex(c[:m], c[m : 2 * m]) / np.sqrt(2.0))[at]
    real = jnp.where(i == j, 0.0, jnp.where(i < j, upper.real, -upper.real))
    return jax.lax.complex(real, jnp.where(i == j, _diagonal(c[2 * m :])[:, None], upper.imag))


def _above_diagonal(n: int) -> Any:
    """Where the entries above the diagonal lie, row by row, in the flattened matrix."""
    if n <= _TABLES:
        return np.ravel_multi_index(np.triu_indices(n, 1), (n, n))
    k = jax.lax.iota(jnp.int64, n * (n - 1) // 2)
    first = lambda row: row * (2 * n - row - 1) // 2  # the number of entries before a row
    row = jnp.floor((2 * n - 1 - jnp.sqrt((2.0 * n - 1) ** 2 - 8.0 * k)) / 2).astype(jnp.int64)
    row = row - (first(row) > k) + (first(row + 1) <= k)  # the root may be off by a rounding
    return row * n + k - first(row) + row + 1


def _traceless(x: Float[Array, " n"]) -> Float[Array, " n-1"]:
    """Coordinates of a vector without its mean, in Helmert's orthonormal basis (1, …, 1, −k, 0, …)/√(k(k + 1))."""
    if len(x) <= _SMALL:
        return jnp.asarray(_basis(len(x)) @ x)
    k = jnp.arange(1.0, len(x))
    return (jnp.cumsum(x)[:-1] - k * x[1:]) / jnp.sqrt(k * (k + 1.0))


def _diagonal(c: Float[Array, " n-1"]) -> Float[Array, " n"]:
    """The vector with these coordinates."""
    if len(c) < _SMALL:
        return jnp.asarray(c @ _basis(len(c) + 1))
    k = jnp.arange(1.0, len(c) + 1)
    c = c / jnp.sqrt(k * (k + 1.0))
    sums = jnp.concatenate([jnp.cumsum(c[::-1])[::-1], jnp.zeros(1)])
    return sums - jnp.concatenate([jnp.zeros(1), k * c])


def _basis(n: int) -> np.ndarray:
    """Rows: the basis itself, for small n."""
    rows = [[1.0] * k + [-float(k)] + [0.0] * (n - k - 1) for k in range(1, n)]
    return np.array([np.array(r) / np.linalg.norm(r) for r in rows])
