"""Flows of several layers: states are copies of su(n), one per layer, and stream functions are coupled."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ..algebras.product import Product
from ..algebras.su import SU, dagger
from ..noises import Noise
from ..numerics import validation
from .flow import FluidFlow
from .stratification import Stratification, by_layer
from .surface import Coefficients, Matrix, compiled, diagnostic


class LayeredFlow(FluidFlow):
    """Quasi-geostrophic flow of L layers. The state holds the matrices d_i W_i of potential vorticity times depth.

    The equations are

        q_i = Δψ_i − (Kψ)_i + b_i,   ω_i = Δψ_i,   W_i' = rate [P_i, W_i],   P = (−Δ + K)⁻¹(W − B),

    with the matrix K of `stratification`. A state is a vector of `SU(n) ** L`. d_i is the depth of layer i over their
    mean: for equal depths the state is W. Energy and enstrophy are means over depth and surface. Fields have an axis
    of layers, from the top, before those of the grid.

    Parameters
    ----------
    surface : Torus or Sphere
        The surface.
    screening : float, default 0.0
        F₀ of a free surface at the top.
    background : array, shape (L, n, n), optional
        B, the matrices of b: rotation and topography.
    stratification : Stratification
        Depths and coupling.
    base : array, shape (L, …), optional
        Coefficients of the vorticity of a base state, to which damping relaxes.
    """  # fmt: skip

    state_axes: ClassVar[int] = 1

    stratification: Stratification = eqx.field(static=True, default=Stratification((1.0,), ()))
    base: Array | None = None

    @property
    def layers(self) -> int:
        """L."""
        return self.stratification.layers

    @property
    def algebra(self) -> Product:
        """One su(n) per layer."""
        return Product(SU(self.surface.n), copies=self.layers)

    @property
    def deformation_radii(self) -> np.ndarray:
        """1/√λ of the vertical modes, from the barotropic one on, which is infinite without a free surface."""
        with np.errstate(divide="ignore"):
            return 1 / np.sqrt(self.stratification.modes()[0])

    @property
    def _depths(self) -> np.ndarray:
        return np.array(self.stratification.depths)

    # States.

    def state(self, vorticity: Coefficients) -> Array:
        """The state with these coefficients of ω, in addition to the base state."""
        total = vorticity if self.base is None else vorticity + self.base
        psi = -total * self.surface.inverse_eigenvalues()
        q = total - _mixed(self.stratification.matrix(), psi)
        W = self.surface.matrix(q)
        W = W if self.background is None else W + self.background
        return self.algebra.from_matrices(jnp.asarray(self._depths[:, None, None] * W))

    def vortical(self, mu: Array) -> Matrix:
        """W of each layer, shape (…, L, n, n)."""
        one = SU(self.surface.n)
        rows = jax.vmap(one.element)(mu.reshape(-1, one.dim))
        return rows.reshape(*mu.shape[:-1], self.layers, *one.shape) / self._depths[:, None, None]

    def _checked(self, mu: Any) -> Array:
        x = jnp.asarray(mu)
        if x.shape[-1:] != (self.algebra.dim,):
            raise ValueError(f"the state must have shape (…, {self.algebra.dim}), not {x.shape}.")
        return x

    # The equation.

    def _weighted(self, mu: Array) -> Matrix:
        """d_i (W_i − B_i)."""
        X = self.algebra.to_matrices(mu)
        return X if self.background is None else X - self._depths[:, None, None] * self.background

    def _streams(self, X: Matrix) -> Matrix:
        """Rate P of d (W − B)."""
        lam, T = self.stratification.modes()
        P = self.surface.inverses(_mixed(T.T, X), tuple(lam.tolist()))
        return _mixed(self.surface.rate * T, P)

    @eqx.filter_jit
    def stream(self, mu: Array) -> Array:
        """∂h/∂μ: rate P of each layer, as a vector."""
        return self.algebra.from_matrices(self._streams(self._weighted(mu)))

    @eqx.filter_jit
    def hamiltonian(self, mu: Array) -> Float[Array, ""]:
        """½ Σ <d_i (W_i − B_i), rate P_i>: the energy times L rate/norm of the surface."""
        X = self._weighted(mu)
        return 0.5 * jnp.sum((jnp.conj(X) * self._streams(X)).real)

    def damping(self, viscosity: Any, hyperviscosity: Any, order: Any, drag: Any, stirring: Any) -> Any:
        """D(μ, dt) of ∂q_i/∂t = −(ν(−Δ) + ν_p(−Δ)ᵖ + α_i)(ω_i − ω̄_i) + f_i, exactly; ω̄ is the base state.

        None if all of these are 0. For each eigenvalue λ of −Δ the layers are coupled: with X = d q' and C Cᵀ =
        (D(λ + K))⁻¹, Y = CᵀX decays by the symmetric matrix λ Cᵀ(Dγ)C.

        Parameters
        ----------
        viscosity, hyperviscosity : float
            ν and ν_p.
        order : int
            p.
        drag : float or sequence of float, shape (L,)
            α: of all layers, or of each.
        stirring : array_like, shape (L, …), optional
            f, as coefficients or as values on a grid.

        Returns
        -------
        callable or None
        """
        nu, nu_p = (validation.finite(k, x) for k, x in (("viscosity", viscosity), ("hyperviscosity", hyperviscosity)))
        alpha = by_layer("drag", drag, self.layers)
        p = validation.count("hyperviscosity_order", order, least=2)
        for name, x in (("viscosity", nu), ("hyperviscosity", nu_p), ("drag", alpha.min())):
            if x < 0:
                raise ValueError(f"{name} must not be below 0, not {x:g}.")
        if not (nu or nu_p or alpha.any()) and stirring is None:
            return None
        surface, d = self.surface, self._depths
        lam, where = np.unique(surface.eigenvalues, return_inverse=True)
        where = where.reshape(surface.shape)
        S = d[:, None] * (
            np.where(lam > 0, lam, 1.0)[:, None, None] * np.eye(self.layers) + self.stratification.matrix()
        )
        C = np.linalg.cholesky(np.linalg.inv(S))
        gamma = nu * lam[:, None] + nu_p * lam[:, None] ** p + alpha
        g, V = np.linalg.eigh(lam[:, None, None] * np.einsum("kia,ki,kib->kab", C, d * gamma, C))
        forth = np.einsum("kia,kab->kbi", C, V)  # X ↦ VᵀCᵀX …
        back = np.linalg.inv(forth)
        f = None if stirring is None else d.reshape(-1, *[1] * len(surface.shape)) * fields(self, "stirring", stirring)
        base = None if self.base is None else self.state(jnp.zeros_like(self.base))
        g = np.maximum(g, 0.0)[where]  # (*shape, L)

        def damp(mu: Array, dt: Float[Array, ""]) -> Array:
            X = self._weighted(mu) if base is None else self.algebra.to_matrices(mu - base)
            q = jnp.moveaxis(surface.coefficients(X), 0, -1)
            Y = jnp.einsum("...ab,...b->...a", forth[where], q)
            change = jnp.expm1(-g * dt)
            new = change * Y
            if f is not None:
                F = jnp.einsum("...ab,...b->...a", forth[where], jnp.moveaxis(f, 0, -1))
                new = new - jnp.where(g > 0, change / np.where(g > 0, g, 1.0), -dt) * F
            moved = jnp.moveaxis(jnp.einsum("...ab,...b->...a", back[where], new), -1, 0)
            return mu + self.algebra.from_matrices(surface.matrix(moved))

        return damp

    # Coefficients; `_moving` of q − b has an axis of layers.

    def _amplitudes(self, mu: Array) -> Coefficients:
        """The coefficients of Tᵀ d (q − b), by vertical mode."""
        X = _scaled(self._moving(mu), self._depths, self.surface)
        return _mixed(self.stratification.modes()[1].T, X, self._axis)

    @property
    def _axis(self) -> int:
        return -1 - len(self.surface.shape)

    def _inverses(self) -> np.ndarray:
        return np.stack([self.surface.inverse_eigenvalues(x) for x in self.stratification.modes()[0]])

    @compiled
    def stream_coefficients(self, mu: Array) -> Coefficients:
        """The coefficients of ψ, by layer."""
        return _mixed(-self.stratification.modes()[1], self._inverses() * self._amplitudes(mu), self._axis)

    @compiled
    def vorticity_coefficients(self, mu: Array) -> Coefficients:
        """The coefficients of ω = Δψ, by layer."""
        return -self.surface.eigenvalues * self.stream_coefficients(mu)

    def pictures(self, mu: Any) -> dict[str, Coefficients]:
        """The vorticity of each layer."""
        omega = jnp.moveaxis(self.vorticity_coefficients(self._checked(mu)), self._axis, 0)
        return {f"vorticity $\\omega_{i}$": x for i, x in enumerate(omega, 1)}

    # Diagnostics.

    @diagnostic
    def energy(self, mu: Array) -> Float[Array, ""]:
        """The mean over depth and surface of ½|u|², and of the potential energy."""
        return self.surface.norm / self.surface.rate / self.layers * self.hamiltonian(mu)

    @diagnostic
    def modal_spectrum(self, mu: Array) -> Float[Array, "L k"]:
        """The energy by vertical mode, from the barotropic one on, and by wavenumber."""
        density = 0.5 * self.surface.weight / self.layers * self._inverses() * jnp.abs(self._amplitudes(mu)) ** 2
        return jax.vmap(self.surface.by_shell)(jnp.asarray(density))

    @diagnostic
    def spectrum(self, mu: Array) -> Float[Array, " k"]:
        """E(k): the energy of all layers in each shell of wavenumbers."""
        return jnp.sum(self.modal_spectrum(mu), axis=0)

    @diagnostic
    def flux(self, mu: Array) -> Float[Array, " k"]:
        """Π(k): the energy that leaves the shells up to k."""
        product = self._streams(self._weighted(mu)) @ self.algebra.to_matrices(mu)
        rate = self.surface.coefficients(product - dagger(product))
        gain = self.surface.weight / self.layers * (jnp.conj(-self.stream_coefficients(mu)) * rate).real
        return -jnp.cumsum(self.surface.by_shell(jnp.sum(gain, axis=0)))

    @diagnostic
    def kinetic_energy(self, mu: Array) -> Float[Array, " L"]:
        """The mean of ½|u|² of each layer."""
        density = self.surface.eigenvalues * jnp.abs(self.stream_coefficients(mu)) ** 2
        return 0.5 * self.surface.weight * jnp.sum(density.reshape(self.layers, -1), axis=1)

    @diagnostic
    def enstrophy(self, mu: Array) -> Float[Array, ""]:
        """The mean over depth and surface of ½ω²."""
        density = jnp.abs(_scaled(self.vorticity_coefficients(mu), np.sqrt(self._depths), self.surface)) ** 2
        return 0.5 * self.surface.weight / self.layers * jnp.sum(density)

    @diagnostic
    def potential_enstrophy(self, mu: Array) -> Float[Array, " L"]:
        """The mean of ½q² of each layer, a Casimir."""
        return 0.5 * self.surface.norm * jnp.sum(jnp.abs(self.vortical(mu)) ** 2, axis=(-2, -1))

    def diagnostics(self, mu: Array) -> dict[str, Array]:
        """Energy and its spectra, kinetic energy and potential enstrophy of each layer, enstrophy, Π(k)."""
        return {
            "energy": self.energy(mu),
            "enstrophy": self.enstrophy(mu),
            "spectrum": self.spectrum(mu),
            "flux": self.flux(mu),
            "modal_spectrum": self.modal_spectrum(mu),
            "kinetic_energy": self.kinetic_energy(mu),
            "potential_enstrophy": self.potential_enstrophy(mu),
        }


class LayeredNoise(Noise):
    """SALT noise of layers: K copies of the noise of a surface, of which layer i takes the copies times row i of A."""

    size: int = eqx.field(static=True)
    noise: Noise
    loadings: Array  # A, (L, K)
    algebra: Product = eqx.field(static=True)
    additive: bool = eqx.field(default=True, static=True, init=False)

    def apply(self, mu: Any, dS: Float[Array, " M"], params: PyTree = None) -> Array:
        """Σ_i β_i dS^i of each layer."""
        own = self.loadings @ dS.reshape(self.loadings.shape[1], -1)
        return self.algebra.from_matrices(jax.vmap(lambda s: self.noise.apply(mu, s))(own))


def layered_noise(flow: LayeredFlow, noises: list[Any], layers: Any) -> list[Any]:
    """The noise of a flow of one layer, for all: "independent", "common", or a matrix A of loadings."""
    L = flow.layers
    if isinstance(layers, str):
        validation.choice("noise_layers", layers, ("independent", "common"))
        A = np.eye(L) if layers == "independent" else np.ones((L, 1))
    else:
        A = np.asarray(layers, float)
        if A.ndim != 2 or len(A) != L or not np.all(np.isfinite(A)):
            raise ValueError(
                f"noise_layers must be 'independent', 'common' or an array of shape ({L}, K), not of shape {A.shape}."
            )
    return [LayeredNoise(x.size * A.shape[1], x, jnp.asarray(A), flow.algebra) for x in noises]


def fields(flow: LayeredFlow, name: str, given: Any) -> Array:
    """One field per layer, as coefficients: from coefficients, or from values on a grid."""
    surface = flow.surface
    if len(np.shape(given)) < 2 or len(given) != flow.layers:
        raise ValueError(f"{name} must be {flow.layers} fields, one per layer, not of shape {np.shape(given)}.")
    return jnp.stack([surface.as_coefficients(f"{name}[{i}]", x) for i, x in enumerate(given)])


def _mixed(A: Any, x: Array, axis: int = 0) -> Array:
    """A times x along an axis."""
    return jnp.moveaxis(jnp.tensordot(A, jnp.moveaxis(x, axis, 0), 1), 0, axis)


def _scaled(x: Array, factors: np.ndarray, surface: Any) -> Array:
    """Each layer times its factor."""
    return x * factors.reshape(-1, *[1] * len(surface.shape))
