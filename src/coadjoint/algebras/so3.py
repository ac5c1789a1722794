"""so(3): rotations of space, in coordinates by the hat map."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..numerics import doubledouble as dd
from ..numerics.special_functions import arctan, half_cot, stumpff
from ..numerics.vectors import cross
from .automorphisms import are_rotations, rotation_error
from .base import LieAlgebra
from .casimirs import clip_correction

Vec3 = Float[Array, "3"]


def turn(sigma: Vec3, mu: Vec3) -> Vec3:
    """exp(ad*_σ) μ − μ on so(3)*: what turning μ by −|σ| about σ changes (Rodrigues), analytic in σ at 0."""
    x = sigma @ sigma
    turned = cross(mu, sigma)
    return stumpff(1, x) * turned + stumpff(2, x) * cross(turned, sigma)


def rotate(sigma: Vec3, mu: Vec3) -> Vec3:
    """exp(ad*_σ) μ on so(3)*."""
    return mu + turn(sigma, mu)


class SO3(LieAlgebra):
    """so(3), rotations of space, with [ξ, η] = ξ × η and ad*_ξ μ = μ × ξ. The Casimir is |μ|²."""

    dim: int = eqx.field(default=3, static=True, init=False)

    def bracket(self, xi: Vec3, eta: Vec3) -> Vec3:
        """ξ × η."""
        return cross(xi, eta)

    def ad_star(self, xi: Vec3, mu: Vec3) -> Vec3:
        """μ × ξ."""
        return cross(mu, xi)

    def flow(self, sigma: Vec3, mu: Vec3) -> Vec3:
        """Rodrigues' formula."""
        return rotate(sigma, mu)

    def change(self, sigma: Vec3, mu: Vec3) -> Vec3:
        """Rodrigues' formula minus μ, without cancellation."""
        return turn(sigma, mu)

    def dexp(self, sigma: Vec3, zeta: Vec3) -> Vec3:
        """ζ + c₂ σ×ζ + c₃ σ×(σ×ζ), Stumpff functions of |σ|²."""
        x = sigma @ sigma
        once = cross(sigma, zeta)
        return zeta + stumpff(2, x) * once + stumpff(3, x) * cross(sigma, once)

    def dexpinv(self, sigma: Vec3, zeta: Vec3) -> Vec3:
        """ζ − ½ σ×ζ + (1 − (θ/2) cot(θ/2))/θ² σ×(σ×ζ), θ = |σ| < 2π."""
        once = cross(sigma, zeta)
        return zeta - 0.5 * once + half_cot(sigma @ sigma) * cross(sigma, once)

    def dexp_star(self, sigma: Vec3, mu: Vec3) -> Vec3:
        """dexp_{−σ} μ, since ad*_σ = ad_{−σ}."""
        return self.dexp(-sigma, mu)

    def log_cayley(self, sigma: Vec3) -> Vec3:
        """cay(σ̂) turns about σ by the angle 2 arctan(|σ|/2)."""
        return arctan(1, 0.25 * (sigma @ sigma)) * sigma

    def dcayinv(self, sigma: Vec3, zeta: Vec3) -> Vec3:
        """ζ − ½ σ×ζ + ¼ (σ·ζ) σ."""
        return zeta - 0.5 * cross(sigma, zeta) + 0.25 * (sigma @ zeta) * sigma

    def dcay_star(self, sigma: Vec3, mu: Vec3) -> Vec3:
        """(μ − ½ σ×μ)/(1 + |σ|²/4)."""
        return (mu - 0.5 * cross(sigma, mu)) / (1.0 + 0.25 * (sigma @ sigma))

    @property
    def knows_stabilisers(self) -> bool:
        """Yes: the multiples of μ."""
        return True

    def stabiliser_part(self, xi: Vec3, mu: Vec3, end: Vec3 | None = None) -> Vec3:
        """(ξ·μ/|μ|²) μ; at `end` the multiple of it that has the same length and sense."""
        if end is None:
            return (xi @ mu) * reciprocal(mu @ mu) * mu
        return (xi @ mu) * jnp.sqrt(reciprocal((mu @ mu) * (end @ end))) * end

    def onto_orbit(self, mu: Vec3, start: Vec3) -> Vec3:
        """|start| μ/|μ|."""
        return jnp.sqrt((start @ start) * reciprocal(mu @ mu)) * mu

    def resolvent(self, zeta: Vec3, xi: Vec3) -> Vec3:
        """(ξ − ζ×ξ + (ζ·ξ) ζ)/(1 + |ζ|²)."""
        return (xi - cross(zeta, xi) + (zeta @ xi) * zeta) / (1.0 + zeta @ zeta)

    def casimirs(self, mu: Vec3) -> Float[Array, "1"]:
        """|μ|²."""
        return (mu @ mu)[None]

    @property
    def casimir_names(self) -> tuple[str, ...]:
        """The Casimir."""
        return ("|μ|²",)

    @property
    def index(self) -> int:
        """1."""
        return 1

    @property
    def known_casimirs(self) -> int:
        """All."""
        return 1

    def casimir_scales(self, mu: Vec3) -> Float[Array, "1"]:
        """|μ|²."""
        return self.casimirs(mu)

    def orbit_memory(self, mu: Vec3) -> tuple[Float[Array, "1"], Vec3]:
        """|μ₀|², and the low-order words of μ."""
        return self.casimirs(mu), jnp.zeros_like(mu)

    def without_energy_memory(self, orbit_memory: tuple) -> tuple:
        """Without the low-order words."""
        return orbit_memory[0], None

    def drift_free_flow(self, sigma: Vec3, mu: Vec3, orbit_memory: tuple) -> tuple[Vec3, tuple]:
        """Rotate, and rescale to |μ₀|. The round-off of the addition is carried to the next step."""
        return self.drift_free_from_change(sigma, mu, turn(sigma, mu), orbit_memory)

    def drift_free_from_change(self, sigma: Vec3, mu: Vec3, change: Vec3, orbit_memory: tuple) -> tuple[Vec3, tuple]:
        """`drift_free_flow` by a known change."""
        values, low = orbit_memory
        stretch = rescaling(jax.lax.stop_gradient(mu), low, values[0])
        stretch = clip_correction(stretch, stretch * stretch, jnp.ones(()))  # in units of μ
        high, low = added(mu, change, stretch * jax.lax.stop_gradient(mu + change), low)
        return high, (values, low)

    # The group SO(3), as rotation matrices.

    def group_exp(self, sigma: Vec3) -> Float[Array, "3 3"]:
        """The rotation by |σ| about σ."""
        return rotation(sigma)

    def group_product(self, g: Float[Array, "3 3"], k: Float[Array, "3 3"]) -> Float[Array, "3 3"]:
        """g k, projected to orthogonal matrices."""
        return orthogonal(g @ k)

    def group_inverse(self, g: Float[Array, "3 3"]) -> Float[Array, "3 3"]:
        """gᵀ."""
        return g.T

    def coadjoint(self, g: Float[Array, "3 3"], mu: Vec3) -> Vec3:
        """gᵀ μ."""
        return g.T @ mu

    def group_error(self, g: Float[Array, "3 3"]) -> str | None:
        """Whether g is a rotation."""
        return rotation_error(np.asarray(g))

    def in_group(self, g: Float[Array, "k 3 3"]) -> bool:
        """Whether all are rotations."""
        return are_rotations(np.asarray(g))

    def group_align(self, g: Float[Array, "3 3"], source: Vec3, target: Vec3) -> Float[Array, "3 3"]:
        """g turned by round-off so that gᵀ source = target."""
        return align(g, source, target)

    def rotation_part(self, g: Float[Array, "... 3 3"]) -> Float[Array, "... 3 3"]:
        """g itself."""
        return g

    def rotation_of_adjoint(self, Ad: Float[Array, "... 3 3"]) -> Float[Array, "... 3 3"]:
        """Ad_g is the rotation."""
        return Ad


def rotation(sigma: Vec3) -> Float[Array, "3 3"]:
    """exp(σ̂): the rotation by |σ| about σ."""
    return jax.vmap(lambda e: rotate(-sigma, e), out_axes=1)(jnp.eye(3))


def align(R: Float[Array, "3 3"], source: Vec3, target: Vec3) -> Float[Array, "3 3"]:
    """R turned by the small rotation that takes R target to source; the derivative is that of the identity."""
    length = source @ source
    turn = cross(R @ target, source) / jnp.where(length > 0, length, 1.0)
    return R + jax.lax.stop_gradient(orthogonal(R + jax.vmap(cross, (None, 1), 1)(turn, R)) - R)


def orthogonal(g: Float[Array, "3 3"]) -> Float[Array, "3 3"]:
    """One Newton–Schulz step towards the nearest orthogonal matrix; the derivative is that of the identity."""
    return g + jax.lax.stop_gradient(0.5 * (g - g @ (g.T @ g)))


def added(mu: Array, change: Array, correction: Array, low: Array | None) -> tuple[Array, Array | None]:
    """μ + change + correction, and the round-off of the sum if `low` carries it."""
    if low is None:
        return mu + (change + jax.lax.stop_gradient(correction)), None
    high, low = dd.fast_two_sum(
        mu, change + jax.lax.stop_gradient(low + correction)
    )  # exact, or to the change's last digit
    return high, jax.lax.stop_gradient(low)


def rescaling(v: Vec3, low: Vec3 | None, squared_length: Float[Array, ""]) -> Float[Array, ""]:
    """The multiple of v to be added, so that v + low has this length (it differs by round-off only)."""
    error = squared_length - v @ v
    error = error if low is None else error - 2.0 * (v @ low)
    return error * (0.5 * reciprocal(squared_length))


def reciprocal(x: Float[Array, ""]) -> Float[Array, ""]:
    """1/x, or 0 for x = 0."""
    return jnp.where(x > 0, 1.0 / jnp.where(x > 0, x, 1.0), 0.0)
