"""The algebra g ⋉ g* of a system on T*G: its group moves a pair of a group element and a momentum."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from .affine import Affine
from .base import Element, LieAlgebra, State


class Cotangent(LieAlgebra):
    """g ⋉ g*, acting on T*G: elements are pairs (ξ, a), and states are pairs (θ, μ), stacked along a first axis.

    A pair (θ, μ) stands for the momentum μ at the group element k exp(θ), where k is that at the start of a time step.
    The flow is the solution at time 1 of k' = kξ, μ' = ad*_ξ μ + a,

        flow((ξ, a), (θ, μ)) = (log(exp θ exp ξ), flow(ξ, μ) + φ₁(ad*_ξ) a),

    with the logarithm up to brackets of four elements: θ is of the size of a time step, no method has an order above 4
    that moves a pair twice, and a pair that moves once starts from θ = 0, where the logarithm is ξ.
    """

    base: LieAlgebra
    pairs: Affine

    def __init__(self, base: LieAlgebra):
        self.base, self.pairs = base, Affine(base)

    @property
    def dim(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """That of pairs."""
        return 2 * self.base.dim

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a pair."""
        return (2, *self.base.shape)

    @property
    def dtype(self) -> Any:
        """That of g."""
        return self.base.dtype

    def coordinates(self, x: Array) -> Float[Array, " dim"]:
        """Those of both."""
        return jnp.concatenate([self.base.coordinates(x[0]), self.base.coordinates(x[1])])

    def element(self, c: Float[Array, " dim"]) -> Array:
        """The pair with these coordinates."""
        n = self.base.dim
        return jnp.stack([self.base.element(c[:n]), self.base.element(c[n:])])

    def pairing(self, mu: State, xi: Element) -> Float[Array, ""]:
        """<θ, ξ> + <μ, a>, of a pair and a pair of derivatives."""
        return self.base.pairing(mu[0], xi[0]) + self.base.pairing(mu[1], xi[1])

    def bracket(self, xi: Element, eta: Element) -> Element:
        """([ξ, η], ad*_η a − ad*_ξ b)."""
        return self.pairs.bracket(xi, eta)

    def ad_star(self, xi: Element, mu: State) -> State:
        """The velocity of a pair: (ξ + ½ [θ, ξ] + (1/12) [θ,[θ, ξ]] − …, ad*_ξ μ + a)."""
        once, twice = self._brackets(xi[0], mu[0])
        return jnp.stack([xi[0] + 0.5 * once + twice / 12.0, self.pairs.ad_star(xi, mu[1])])

    def flow(self, sigma: Element, mu: State) -> State:
        """(log(exp θ exp ξ), flow(ξ, μ) + φ₁(ad*_ξ) a)."""
        return mu + self.change(sigma, mu)

    def change(self, sigma: Element, mu: State) -> State:
        """flow(σ, μ) − μ, with the formula of Baker, Campbell and Hausdorff."""
        xi, g = sigma[0], self.base
        once, twice = self._brackets(xi, mu[0])
        moved = xi + 0.5 * once + (twice - g.bracket(xi, once)) / 12.0 - g.bracket(xi, twice) / 24.0
        return jnp.stack([moved, self.pairs.change(sigma, mu[1])])

    def dexp_star(self, sigma: Element, mu: State) -> State:
        """The mean of flow(tσ, μ) over t in [0, 1]."""
        xi, g = sigma[0], self.base
        once, twice = self._brackets(xi, mu[0])
        mean = mu[0] + 0.5 * xi + 0.25 * once + twice / 24.0 - g.bracket(xi, once) / 36.0
        return jnp.stack([mean, self.pairs.dexp_star(sigma, mu[1])])

    def _brackets(self, xi: Element, theta: Element) -> tuple[Element, Element]:
        """[θ, ξ] and [θ,[θ, ξ]]."""
        once = self.base.bracket(theta, xi)
        return once, self.base.bracket(theta, once)

    def gradient(self, h: Any, mu: State) -> Element:
        """∂h/∂μ, an element of g, of a function of the momentum."""
        return self.base.gradient(h, mu)

    def log_cayley(self, sigma: Element) -> Element:
        """There is none."""
        raise TypeError("tau=Cayley() does not support functions of the group element: use tau=Exp().")

    # The group element of G.

    def group_exp(self, sigma: Element) -> Array:
        """exp(ξ)."""
        return self.base.group_exp(sigma[0])

    def group_product(self, g: Array, k: Array) -> Array:
        """g k."""
        return self.base.group_product(g, k)
