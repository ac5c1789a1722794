"""su(n) ⋉ su(n)*: vorticity and something that it carries along, as pairs of matrices, no operator ever formed."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float

from ..numerics.special_functions import BERNOULLI
from .base import LieAlgebra
from .su import SU, dagger, exp_skew, unitary

Pair = Complex[Array, "2 n n"]  # (ξ, u) in the algebra, (W, Θ) in its dual
Matrix = Complex[Array, "n n"]

_LARGEST_DENSE = 64  # dimension up to which dexp and dexpinv form the matrix of ad
_CROSS = 4  # the largest power of Θ in a cross-helicity that is given as a Casimir


class MagneticSU(LieAlgebra):
    """su(n) ⋉ su(n)*, the algebra of reduced magnetohydrodynamics and of stratified flows.

    Elements and states are pairs of skew-Hermitian matrices:

        [(ξ, u), (η, w)] = ([ξ, η], [ξ, w] + [u, η]),   <(W, Θ), (ξ, u)> = −Tr(Wξ) − Tr(Θu),
        ad*_(ξ,u) (W, Θ) = ([W, ξ] + [Θ, u], [Θ, ξ]).

    These are the matrices of su(n) with dual numbers as entries: ζ = ξ + εu and M = Θ + εW with ε² = 0, and
    ad*_ζ M = [M, ζ]. A group element is U(1 + εA) with U unitary and A skew-Hermitian. It acts by

        Θ ↦ Θ₁ = UᴴΘU,   W ↦ UᴴWU + [Θ₁, A].

    This conserves all Casimirs for any A: the eigenvalues of Θ and the cross-helicities Tr(WΘᵏ).

    Parameters
    ----------
    n : int
        The number of rows, at least 2. The state has shape (2, n, n).
    """  # fmt: skip

    n: int = eqx.field(static=True)

    def __init__(self, n: int):
        self.n = SU(n).n

    @property
    def su(self) -> SU:
        """su(n)."""
        return SU(self.n)

    @property
    def dim(self) -> int:
        """2(n² − 1)."""
        return 2 * self.su.dim

    @property
    def shape(self) -> tuple[int, ...]:
        """(2, n, n)."""
        return (2, self.n, self.n)

    @property
    def dtype(self):
        """complex128."""
        return jnp.complex128

    def coordinates(self, x: Pair) -> Float[Array, " dim"]:
        """Those of the first matrix, then those of the second."""
        return jnp.concatenate([self.su.coordinates(x[0]), self.su.coordinates(x[1])])

    def element(self, c: Float[Array, " dim"]) -> Pair:
        """The pair with the given coordinates."""
        half = self.su.dim
        return jnp.stack([self.su.element(c[:half]), self.su.element(c[half:])])

    def state_error(self, mu: np.ndarray) -> str | None:
        """Whether both matrices are skew-Hermitian and traceless."""
        for name, part in zip(("W", "Θ"), mu, strict=True):
            wrong = self.su.state_error(part)
            if wrong is not None:
                return f"{name}: {wrong}"
        return None

    def bracket(self, xi: Pair, eta: Pair) -> Pair:
        """([ξ, η], [ξ, w] + [u, η])."""
        b = self.su.bracket
        return jnp.stack([b(xi[0], eta[0]), b(xi[0], eta[1]) + b(xi[1], eta[0])])

    def pairing(self, mu: Pair, xi: Pair) -> Float[Array, ""]:
        """−Tr(Wξ) − Tr(Θu)."""
        return jnp.sum(mu.real * xi.real + mu.imag * xi.imag)

    def ad_star(self, xi: Pair, mu: Pair) -> Pair:
        """([W, ξ] + [Θ, u], [Θ, ξ])."""
        b = self.su.bracket
        return jnp.stack([b(mu[0], xi[0]) + b(mu[1], xi[1]), b(mu[1], xi[0])])

    def gradient(self, h, mu: Pair) -> Pair:
        """As on su(n), of both parts."""
        g = jnp.conj(jax.grad(h)(mu))
        g = 0.5 * (g - dagger(g))
        trace = jnp.trace(g, axis1=1, axis2=2) / self.n
        return g - trace[:, None, None] * jnp.eye(self.n)

    # The group: exp(ξ + εu) = U(1 + εA), U = e^ξ, A = dexp_{−ξ} u.

    def flow(self, sigma: Pair, mu: Pair) -> Pair:
        """exp(ad*_σ) μ."""
        return _acted(exp_skew(sigma[0]), self.su.dexp(-sigma[0], sigma[1]), mu)

    def dexp(self, sigma: Pair, zeta: Pair) -> Pair:
        """By the matrix of ad, up to dimension 64."""
        if self.dim > _LARGEST_DENSE:
            raise TypeError(
                f"{self!r} has no dexp beyond dimension {_LARGEST_DENSE}: take IsospectralMidpoint() or TMK()."
            )
        return super().dexp(sigma, zeta)

    def dexpinv(self, sigma: Pair, zeta: Pair) -> Pair:
        """ζ − ½[σ, ζ] + (1/12)[σ,[σ, ζ]] − …: exact up to dimension 64, above to tenth order in σ."""
        if self.dim <= _LARGEST_DENSE:
            return super().dexpinv(sigma, zeta)
        total, term = zeta, zeta
        for b in BERNOULLI[1:]:
            term = self.bracket(sigma, term)
            total = total + b * term
        return total

    def orbit_memory(self, mu: Pair) -> tuple[Matrix, Matrix, Matrix]:
        """(U, V, Θ₀) with Θ = UΘ₀Uᴴ and W = UVUᴴ."""
        return jnp.eye(self.n, dtype=self.dtype), mu[0], mu[1]

    def drift_free_flow(self, sigma: Pair, mu: Pair, orbit_memory: tuple) -> tuple[Pair, tuple]:
        """U ← e^{−ξ}U, projected to unitary matrices, and V ← V + [Θ₀, UᴴAU], so no Casimir drifts."""
        return _moved(exp_skew(sigma[0]), self.su.dexp(-sigma[0], sigma[1]), orbit_memory)

    # Cayley: cay(ξ + εu) = U(1 + εA), U = cay(ξ), A = RᴴuR, R = (1 − ξ/2)⁻¹.

    def log_cayley(self, sigma: Pair) -> Pair:
        """Of su(n), and its derivative."""
        return jnp.stack(jax.jvp(self.su.log_cayley, (sigma[0],), (sigma[1],)))

    def cayley_flow(self, sigma: Pair, mu: Pair) -> Pair:
        """Ad*_{cay(σ)} μ."""
        return _acted(*_cayley(sigma), mu)

    def drift_free_cayley_flow(self, sigma: Pair, mu: Pair, orbit_memory: tuple) -> tuple[Pair, tuple]:
        """As `drift_free_flow`, without eigenvalues."""
        return _moved(*_cayley(sigma), orbit_memory)

    def dcayinv(self, sigma: Pair, zeta: Pair) -> Pair:
        """(1 − σ/2) ζ (1 + σ/2) in dual numbers, without trace."""
        one = jnp.eye(self.n)
        left, right = one - 0.5 * sigma[0], one + 0.5 * sigma[0]
        first = left @ zeta[0] @ right
        second = left @ zeta[1] @ right + 0.5 * (left @ zeta[0] @ sigma[1] - sigma[1] @ zeta[0] @ right)
        square = left @ right
        change = -0.25 * (sigma[0] @ sigma[1] + sigma[1] @ sigma[0])
        a = jnp.trace(first) / jnp.trace(square)
        b = (jnp.trace(second) - a * jnp.trace(change)) / jnp.trace(square)
        return jnp.stack([first - a * square, second - a * change - b * square])

    def dcay_star(self, sigma: Pair, mu: Pair) -> Pair:
        """(1 + σ/2)⁻¹ M (1 − σ/2)⁻¹ in dual numbers, without trace."""
        R = jnp.linalg.inv(jnp.eye(self.n) - 0.5 * sigma[0])
        W, theta = (dagger(R) @ x @ R for x in (mu[0], mu[1]))
        product = theta @ (0.5 * sigma[1]) @ R  # its −ᴴ is −Rᴴ(u/2)θ
        return self._without_trace(jnp.stack([W + product - dagger(product), theta]))

    def _without_trace(self, x: Pair) -> Pair:
        x = 0.5 * (x - dagger(x))
        trace = jnp.trace(x, axis1=1, axis2=2) / self.n
        return x - trace[:, None, None] * jnp.eye(self.n)

    def group_exp(self, sigma: Pair) -> Array:
        """Not written: a group element is a pair of matrices."""
        raise TypeError("group=True is not there for MagneticSU: its group elements are pairs of matrices.")

    # Casimirs.

    def casimirs(self, mu: Pair) -> Float[Array, " k"]:
        """Tr(Hᵏ), k = 2 … 5, of H = −iΘ, and Tr(−iW Hᵏ), k = 1 … 4."""
        return jnp.concatenate([self.su.casimirs(mu[1]), _cross(mu, self._cross_powers)])

    @property
    def _cross_powers(self) -> int:
        return min(self.n - 1, _CROSS)

    @property
    def casimir_names(self) -> tuple[str, ...]:
        """Powers of Θ, and cross-helicities."""
        powers = [name.replace("H", "Θ") for name in self.su.casimir_names]
        return (*powers, *(f"Tr WΘ^{k}" for k in range(1, self._cross_powers + 1)))

    def casimir_scales(self, mu: Pair) -> Float[Array, " k"]:
        """Σ|θ|ᵏ over the eigenvalues θ of H, and ‖W‖ ‖Hᵏ‖, or ‖Θ‖ ‖Hᵏ‖ where W is smaller: it may start from 0."""
        lam = jnp.abs(jnp.linalg.eigvalsh(-1j * mu[1]))
        k = np.arange(1, self._cross_powers + 1)[:, None]
        cross = _size(mu) * jnp.sqrt(jnp.sum(lam ** (2 * k), axis=1))
        return jnp.concatenate([self.su.casimir_scales(mu[1]), cross])

    @property
    def known_casimirs(self) -> int:
        """All: n − 1 eigenvalues of Θ, and as many cross-helicities."""
        return self.index

    @property
    def index(self) -> int:
        """2(n − 1)."""
        return 2 * (self.n - 1)

    def orbit_error(self, mu: Pair, start: Pair) -> Float[Array, ""]:
        """The largest change of an eigenvalue of Θ over ‖Θ‖₂, or of Tr(WΘᵏ), k < n and at most 8, scaled as there."""
        eigenvalues = self.su.orbit_error(mu[1], start[1])
        powers = min(self.n - 1, 8)
        lam = jnp.abs(jnp.linalg.eigvalsh(-1j * start[1]))
        size = jnp.where(jnp.max(lam) > 0, jnp.max(lam), 1.0)
        scaled = jnp.array([1.0, 1.0 / size])[:, None, None]
        k = np.arange(1, powers + 1)[:, None]
        scales = _size(start) * jnp.sqrt(jnp.sum((lam / size) ** (2 * k), axis=1))
        change = jnp.abs(_cross(scaled * mu, powers) - _cross(scaled * start, powers))
        return jnp.maximum(eigenvalues, jnp.max(change / jnp.where(scales > 0, scales, 1.0), initial=0.0))


def _size(mu: Pair) -> Float[Array, ""]:
    """The larger of ‖W‖ and ‖Θ‖."""
    return jnp.max(jnp.linalg.norm(mu, axis=(1, 2)))


def _cross(mu: Pair, powers: int) -> Float[Array, " k"]:
    """Tr(−iW Hᵏ), k = 1, 2 …, H = −iΘ."""
    H, product, out = -1j * mu[1], -1j * mu[0], []
    for _ in range(powers):
        product = product @ H
        out.append(jnp.trace(product).real)
    return jnp.stack(out)


def _cayley(sigma: Pair) -> tuple[Matrix, Matrix]:
    """U = cay(ξ) and A = RᴴuR."""
    one = jnp.eye(sigma.shape[-1])
    R = jnp.linalg.inv(one - 0.5 * sigma[0])
    return unitary(2.0 * R - one), dagger(R) @ sigma[1] @ R


def _skew(x: Matrix) -> Matrix:
    return 0.5 * (x - dagger(x))


def _commutator(a: Matrix, b: Matrix) -> Matrix:
    """[a, b] of skew-Hermitian matrices, skew-Hermitian to the last bit."""
    product = a @ b
    return product - dagger(product)


def _acted(u: Matrix, a: Matrix, mu: Pair) -> Pair:
    """U(1 + εA) on a state: Θ₁ = UᴴΘU, UᴴWU + [Θ₁, A]."""
    theta = _skew(dagger(u) @ mu[1] @ u)
    return jnp.stack([_skew(dagger(u) @ mu[0] @ u) + _commutator(theta, _skew(a)), theta])


def _moved(step: Matrix, a: Matrix, orbit_memory: tuple) -> tuple[Pair, tuple]:
    """The state after U(1 + εA), from the orbit memory."""
    u, v, start = orbit_memory
    u = unitary(dagger(step) @ u)
    v = v + _commutator(start, _skew(dagger(u) @ a @ u))
    W, theta = _skew(u @ v @ dagger(u)), _skew(u @ start @ dagger(u))
    return jnp.stack([W, theta]), (u, v, start)
