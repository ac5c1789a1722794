"""se(3): rotations and translations of space. ξ = (ω, v), μ = (π, γ)."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from stepcompiler.derivatives import custom_derivative

from ..numerics.special_functions import arctan, stumpffs
from ..numerics.vectors import cross, plus_cross
from .automorphisms import are_rotations, rotation_error
from .base import LieAlgebra
from .casimirs import clip_correction
from .so3 import SO3, Vec3, added, align, orthogonal, reciprocal, rescaling, rotation

Vec6 = Float[Array, "6"]

_so3 = SO3()


class SE3(LieAlgebra):
    """se(3), rotations and translations of space, with ξ = (ω, v) and μ = (π, γ).

    The bracket and the coadjoint action are

        [(ω, v), (η, w)] = (ω×η, ω×w − η×v),   ad*_ξ μ = (π×ω + γ×v, γ×ω).

    The Casimirs are π·γ and |γ|². The matrix of ad_(ω,v) is block triangular with ω̂ on the diagonal and v̂ below. A
    function of it has the same function of ω̂ on the diagonal, and below it the derivative in the direction v. So each
    closed form of so(3) becomes one of se(3) by differentiation.
    """

    dim: int = eqx.field(default=6, static=True, init=False)

    def bracket(self, xi: Vec6, eta: Vec6) -> Vec6:
        """(ω×η, ω×w − η×v)."""
        (omega, v), (theta, w) = _halves(xi), _halves(eta)
        return jnp.concatenate([cross(omega, theta), cross(omega, w) - cross(theta, v)])

    def ad_star(self, xi: Vec6, mu: Vec6) -> Vec6:
        """(π×ω + γ×v, γ×ω)."""
        (omega, v), (pi, gamma) = _halves(xi), _halves(mu)
        return jnp.concatenate([cross(pi, omega) + cross(gamma, v), cross(gamma, omega)])

    def flow(self, sigma: Vec6, mu: Vec6) -> Vec6:
        """(Rπ + (D_v R)γ, Rγ) with R = R(ω) Rodrigues' rotation."""
        return mu + _turn(sigma, mu)

    def change(self, sigma: Vec6, mu: Vec6) -> Vec6:
        """The same without μ."""
        return _turn(sigma, mu)

    def dexp(self, sigma: Vec6, zeta: Vec6) -> Vec6:
        """The function of so(3) on the diagonal, its derivative below."""
        return _lift(_so3.dexp, sigma, zeta)

    def dexpinv(self, sigma: Vec6, zeta: Vec6) -> Vec6:
        """The function of so(3) on the diagonal, its derivative below; |ω| < 2π."""
        return _lift(_so3.dexpinv, sigma, zeta)

    def dexp_star(self, sigma: Vec6, mu: Vec6) -> Vec6:
        """(f(ω) π + (D_v f(ω)) γ, f(ω) γ) with f = dexp* of so(3)."""
        (omega, v), (pi, gamma) = _halves(sigma), _halves(mu)
        below, drift = jax.jvp(lambda o: _so3.dexp_star(o, gamma), (omega,), (v,))
        return jnp.concatenate([_so3.dexp_star(omega, pi) + drift, below])

    # The Cayley transform of 4×4 matrices ((ω̂, v), (0, 0)).

    def log_cayley(self, sigma: Vec6) -> Vec6:
        """(a₁ ω, v + ¼ a₃ ω×(ω×v)), a_k functions of |ω|²/4: the logarithm is 2 artanh(σ/2), an odd series in σ."""
        omega, v = _halves(sigma)
        x = 0.25 * (omega @ omega)
        return jnp.concatenate([arctan(1, x) * omega, v + 0.25 * arctan(3, x) * cross(omega, cross(omega, v))])

    def dcayinv(self, sigma: Vec6, zeta: Vec6) -> Vec6:
        """(1 − σ/2) ζ (1 + σ/2) = ζ − ½ [σ, ζ] − ¼ σζσ, with σζσ = (−(ω·η) ω, ω×(η×v))."""
        (omega, v), (eta, _) = _halves(sigma), _halves(zeta)
        third = jnp.concatenate([-(omega @ eta) * omega, cross(omega, cross(eta, v))])
        return zeta - 0.5 * self.bracket(sigma, zeta) - 0.25 * third

    def dcay_star(self, sigma: Vec6, mu: Vec6) -> Vec6:
        """(dcay*_ω π − ½ Bv × Bγ, Bγ) with B = (1 + ω̂/2)⁻¹."""
        (omega, v), (pi, gamma) = _halves(sigma), _halves(mu)
        scale = 1.0 / (1.0 + 0.25 * (omega @ omega))

        def B(x: Vec3) -> Vec3:
            return scale * (x - 0.5 * cross(omega, x) + 0.25 * (omega @ x) * omega)

        moved = B(gamma)
        return jnp.concatenate([_so3.dcay_star(omega, pi) - 0.5 * cross(B(v), moved), moved])

    def casimirs(self, mu: Vec6) -> Float[Array, "2"]:
        """(π·γ, |γ|²)."""
        pi, gamma = _halves(mu)
        return jnp.stack([pi @ gamma, gamma @ gamma])

    @property
    def casimir_names(self) -> tuple[str, ...]:
        """The Casimirs."""
        return ("π·γ", "|γ|²")

    @property
    def index(self) -> int:
        """2."""
        return 2

    @property
    def known_casimirs(self) -> int:
        """All."""
        return 2

    def casimir_scales(self, mu: Vec6) -> Float[Array, "2"]:
        """(|π||γ|, |γ|²), also where the square of π underflows and π·γ does not."""
        pi, gamma = _halves(mu)
        largest = jnp.max(jnp.abs(pi))
        size = largest * jnp.linalg.norm(pi / jnp.where(largest > 0.0, largest, 1.0))
        return jnp.stack([size * jnp.linalg.norm(gamma), gamma @ gamma])

    def orbit_memory(self, mu: Vec6) -> tuple[Float[Array, "2"], Vec6]:
        """(π₀·γ₀, |γ₀|²), and the low-order words of μ."""
        return self.casimirs(mu), jnp.zeros_like(mu)

    def without_energy_memory(self, orbit_memory: tuple) -> tuple:
        """Without the low-order words."""
        return orbit_memory[0], None

    def drift_free_flow(self, sigma: Vec6, mu: Vec6, orbit_memory: tuple) -> tuple[Vec6, tuple]:
        """Act, and make good what μ was wrong by: rescale γ to |γ₀|, put π on its plane, π += γ (C₁ − π·γ)/|γ|².

        The round-off of the addition to μ is carried to the next step. Without noise the energy then does not drift
        either; with noise it is not carried (`without_energy_memory`).
        """
        return self.drift_free_from_change(sigma, mu, _turn(sigma, mu), orbit_memory)

    def drift_free_from_change(self, sigma: Vec6, mu: Vec6, change: Vec6, orbit_memory: tuple) -> tuple[Vec6, tuple]:
        """`drift_free_flow` by a known change."""
        values, low = orbit_memory
        pi, gamma = _halves(jax.lax.stop_gradient(mu))
        along = pi @ gamma
        stretch = rescaling(gamma, None if low is None else low[3:], values[1])
        lacking = 0.0 if low is None else low[:3] @ gamma + pi @ low[3:]
        error = values[0] - along - (lacking + stretch * along)
        multiples = jnp.stack([error * reciprocal(values[1]), stretch])  # of γ, to be added to π and to γ
        size2 = (multiples @ multiples) * values[1]
        multiples = clip_correction(multiples, size2, pi @ pi + values[1])
        moved = gamma + jax.lax.stop_gradient(change)[3:]
        high, low = added(mu, change, jnp.concatenate([multiples[0] * moved, multiples[1] * moved]), low)
        return high, (values, low)

    # The group SE(3), as 4×4 matrices ((R, p), (0, 1)).

    def group_exp(self, sigma: Vec6) -> Float[Array, "4 4"]:
        """R = exp(ω̂), p = dexp_ω v."""
        omega, v = _halves(sigma)
        return _rigid(rotation(omega), _so3.dexp(omega, v))

    def group_product(self, g: Float[Array, "4 4"], k: Float[Array, "4 4"]) -> Float[Array, "4 4"]:
        """g k, with the rotation projected to orthogonal matrices."""
        R, p = g[:3, :3], g[:3, 3]
        return _rigid(orthogonal(R @ k[:3, :3]), R @ k[:3, 3] + p)

    def group_inverse(self, g: Float[Array, "4 4"]) -> Float[Array, "4 4"]:
        """(Rᵀ, −Rᵀp)."""
        R, p = g[:3, :3], g[:3, 3]
        return _rigid(R.T, -R.T @ p)

    def coadjoint(self, g: Float[Array, "4 4"], mu: Vec6) -> Vec6:
        """(Rᵀ(π + γ×p), Rᵀγ)."""
        R, p = g[:3, :3], g[:3, 3]
        pi, gamma = _halves(mu)
        return jnp.concatenate([R.T @ (pi + cross(gamma, p)), R.T @ gamma])

    def group_error(self, g: Float[Array, "4 4"]) -> str | None:
        """Whether g is ((R, p), (0, 1))."""
        last = np.asarray(g)[3]
        if not np.array_equal(last, [0, 0, 0, 1]):
            return f"its last row must be (0, 0, 0, 1), not {last}."
        return rotation_error(np.asarray(g)[:3, :3], "its rotation, the upper left 3×3 matrix,")

    def in_group(self, g: Float[Array, "k 4 4"]) -> bool:
        """Whether all are ((R, p), (0, 1))."""
        all_of = np.asarray(g)
        return bool(np.all(all_of[:, 3] == (0, 0, 0, 1))) and are_rotations(all_of[:, :3, :3])

    def group_align(self, g: Float[Array, "4 4"], source: Vec6, target: Vec6) -> Float[Array, "4 4"]:
        """g moved by round-off so that Ad*_g source = target: Rᵀγ = γ', and γ×p = Rπ' − π for the part of p across γ.

        The part of p along γ is free and may grow without bound, and its round-off with it; this keeps the rest of g
        as accurate as the momentum.
        """
        (pi, gamma), (pi1, gamma1) = _halves(source), _halves(target)
        R, p = align(g[:3, :3], gamma, gamma1), g[:3, 3]
        across = cross(R @ pi1 - pi, gamma) - cross(cross(gamma, p), gamma)
        return _rigid(R, p + jax.lax.stop_gradient(across * reciprocal(gamma @ gamma)))

    def rotation_part(self, g: Float[Array, "... 4 4"]) -> Float[Array, "... 3 3"]:
        """R."""
        return g[..., :3, :3]

    def rotation_of_adjoint(self, Ad: Float[Array, "... 6 6"]) -> Float[Array, "... 3 3"]:
        """The rotation, which is on the diagonal of Ad_g."""
        return Ad[..., :3, :3]


def _rigid(R: Float[Array, "3 3"], p: Vec3) -> Float[Array, "4 4"]:
    return jnp.eye(4).at[:3, :3].set(R).at[:3, 3].set(p)


def _halves(x: Vec6) -> tuple[Vec3, Vec3]:
    return x[:3], x[3:]


@custom_derivative
def _turn(sigma: Vec6, mu: Vec6) -> Vec6:
    """flow(σ, μ) − μ: Rodrigues' Rγ − γ = c₁ γ×ω + c₂ (γ×ω)×ω, and the same of π with its derivative along v,

        c₁ aμ + c₂ a²μ + 2 (ω·v) (c₁′ γ×ω + c₂′ (γ×ω)×ω, 0),   a = ad*_σ,

    c_k at |ω|².
    """  # fmt: skip
    omega, v = _halves(sigma)
    c1, c2, d1, d2 = stumpffs(omega @ omega)
    pi, gamma = _halves(mu)
    moved, turned = plus_cross(cross(gamma, v), pi, omega), cross(gamma, omega)
    again = cross(turned, omega)
    along = omega @ v
    shift = c1 * moved + c2 * (cross(moved, omega) + cross(turned, v))
    shift = shift + ((along * d2) * again + (along * d1) * turned)
    return jnp.concatenate([shift, c1 * turned + c2 * again])


@_turn.def_rule
def _turn_slope(change, primals, tangents):
    """turn(σ, δμ) + ad*_{dexp_{−σ} δσ} flow(σ, μ): smaller than the derivative of a derivative."""
    (sigma, mu), (dsigma, dmu) = primals, tangents
    tangent = jnp.zeros_like(change) if dmu is None else _turn(sigma, dmu)
    if dsigma is not None:
        tangent = tangent + SE3().ad_star(_lift(_so3.dexp, -sigma, dsigma), mu + change)
    return tangent


def _lift(function, sigma: Vec6, zeta: Vec6) -> Vec6:
    """f(ad_(ω,v)) (η, w) = (f(ad_ω) η, f(ad_ω) w + (D_v f(ad_ω)) η)."""
    (omega, v), (eta, w) = _halves(sigma), _halves(zeta)
    top, below = jax.jvp(lambda o: function(o, eta), (omega,), (v,))
    return jnp.concatenate([top, function(omega, w) + below])
