"""Flows that advect a second field, which acts back on them: a magnetic potential, or buoyancy."""

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..noises import Noise, Salt, salt
from .flow import FluidFlow
from .surface import Coefficients, Matrix, diagnostic


class AdvectingFlow(FluidFlow):
    """States (W, Θ) of su(n) ⋉ su(n)*: the potential vorticity, and a field a that the flow advects.

    The equations are

        Θ' = rate [P, Θ],   W' = rate ([P, W] + [K, Θ]),   P = (−Δ + F)⁻¹(W − B).

    Without `height`, a is the magnetic potential, K = −ΔΘ, and the energy includes the mean of ½|∇a|². With a height h,
    a is the buoyancy, K = −H, and the energy includes the mean of −a h. In a thermal flow the buoyancy is a part of W
    too: P = (−Δ + F)⁻¹(W − Θ − B) and K = −P − H.

    Parameters
    ----------
    surface : Torus or Sphere
        The surface.
    screening : float, default 0.0
        F = 1/L_d², the inverse squared deformation radius.
    background : array, shape (n, n), optional
        B, the matrix of rotation and topography.
    height : array, shape (n, n), optional
        H, the matrix of h.
    thermal : bool, default False
        Whether W contains Θ, as in thermal quasi-geostrophic flow.
    """  # fmt: skip

    state_axes: ClassVar[int] = 3

    height: Matrix | None = None  # H, the matrix of h
    thermal: bool = eqx.field(static=True, default=False)

    def vortical(self, mu: Array) -> Matrix:
        """W; in a thermal flow W − Θ."""
        return mu[..., 0, :, :] - mu[..., 1, :, :] if self.thermal else mu[..., 0, :, :]

    def state(self, vorticity: Coefficients, advected: Coefficients) -> Array:
        """(W, Θ) of a flow with these coefficients of ω and a."""
        W, theta = self.vorticity_matrix(vorticity), self.surface.matrix(advected)
        return jnp.stack([W + theta if self.thermal else W, theta])

    # The equation.

    @eqx.filter_jit
    def gradient(self, mu: Array) -> Array:
        """∂h/∂(W, Θ) = rate (P, K)."""
        surface = self.surface
        K = -surface.laplacian(mu[1]) if self.height is None else -self.height
        P = self.stream(self.vortical(mu))
        return jnp.stack([P, surface.rate * K - P if self.thermal else surface.rate * K])

    @eqx.filter_jit
    def total(self, mu: Array) -> Float[Array, ""]:
        """h, the total energy times rate/norm of the surface."""
        return self.hamiltonian(self.vortical(mu)) + self.surface.rate / self.surface.norm * self.advected_energy(mu)

    # Fields.

    def advected_coefficients(self, mu: Array) -> Coefficients:
        """The coefficients of a."""
        return self.surface.coefficients(mu[..., 1, :, :])

    def advected_field(self, mu: Any, points: Any = None) -> Any:
        """a on a grid."""
        return self.surface.values(self.advected_coefficients(self._checked(mu)), points)

    def pictures(self, mu: Any) -> dict[str, Coefficients]:
        """Vorticity, and the current −Δa or the buoyancy."""
        a = self.advected_coefficients(self._checked(mu))
        magnetic = self.height is None
        name = "current $-\\Delta a$" if magnetic else "buoyancy $b$"
        vorticity = self.vorticity_coefficients(self._checked(mu))
        return {"vorticity $\\omega$": vorticity, name: self.surface.eigenvalues * a if magnetic else a}

    # Diagnostics.

    @diagnostic
    def advected_energy(self, mu: Array) -> Float[Array, ""]:
        """The mean of ½|∇a|²; with a height, of −a h."""
        if self.height is not None:
            return -self.surface.norm * jnp.sum((jnp.conj(self.height) * mu[1]).real)
        if self.surface.large:  # without coefficients: h has it in it
            return -0.5 * self.surface.norm * jnp.sum((jnp.conj(mu[1]) * self.surface.laplacian(mu[1])).real)
        a = self.advected_coefficients(mu)
        return 0.5 * self.surface.weight * jnp.sum(self.surface.eigenvalues * jnp.abs(a) ** 2)

    @diagnostic
    def cross_helicity(self, mu: Array) -> Float[Array, ""]:
        """The mean of a times the field of W, a Casimir."""
        if self.surface.large:
            return self.surface.norm * jnp.sum((jnp.conj(mu[0]) * mu[1]).real)
        q = self.surface.coefficients(mu[0])
        return self.surface.weight * jnp.sum((jnp.conj(q) * self.advected_coefficients(mu)).real)

    def diagnostics(self, mu: Array) -> dict[str, Array]:
        """Kinetic energy and its spectrum, enstrophy, energy of the advected field, cross-helicity."""
        return {
            "energy": self.energy(mu),
            "enstrophy": self.enstrophy(mu),
            "spectrum": self.spectrum(mu),
            "advected_energy": self.advected_energy(mu),
            "cross_helicity": self.cross_helicity(mu),
        }


class VorticityNoise(Noise):
    """SALT noise of a flow that also acts on the advected field: (Σ_i β_i dS^i, 0)."""

    size: int = eqx.field(static=True)
    noise: Noise
    additive: bool = eqx.field(default=True, static=True, init=False)

    def apply(self, mu: Any, dS: Float[Array, " M"], params: PyTree = None) -> Array:
        """The same element for W and Θ."""
        beta = self.noise.apply(mu, dS, params)
        return jnp.stack([beta, jnp.zeros_like(beta)])


def advecting_noise(noises: list[Any]) -> list[Any]:
    """The noise of a flow for a flow with an advected field."""

    def wider(noise: Any) -> Any:
        if isinstance(noise, Salt):
            return salt(jnp.stack([noise.beta, jnp.zeros_like(noise.beta)], axis=1))
        return VorticityNoise(size=noise.size, noise=noise)

    return [wider(n) for n in noises]
