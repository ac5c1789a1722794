"""The algebra g ⋉ g* of a system with a torque: its group moves a state by μ ↦ Ad*_g μ + ν."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .base import Element, LieAlgebra, State


class Affine(LieAlgebra):
    """g ⋉ g*, acting on g*: elements are pairs (ξ, a), stacked along a first axis; states are those of g.

        [(ξ, a), (η, b)] = ([ξ, η], ad*_η a − ad*_ξ b),
        flow((ξ, a), μ) = flow(ξ, μ) + φ₁(ad*_ξ) a,   φ₁(z) = (eᶻ − 1)/z.

    The flow is the solution of μ' = ad*_ξ μ + a at time 1. Methods that move by flows of elements integrate a system
    with a torque in this algebra, with the same equations and the same order.
    """

    base: LieAlgebra

    def __init__(self, base: LieAlgebra):
        self.base = base

    @property
    def dim(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """That of pairs."""
        return 2 * self.base.dim

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a state."""
        return self.base.shape

    @property
    def dtype(self) -> Any:
        """That of g."""
        return self.base.dtype

    def _is_pair(self, x: Array) -> bool:
        return x.ndim > len(self.base.shape)

    def coordinates(self, x: Array) -> Float[Array, " dim"]:
        """Of a pair, those of ξ and a; of a state, its own."""
        if not self._is_pair(x):
            return self.base.coordinates(x)
        return jnp.concatenate([self.base.coordinates(x[0]), self.base.coordinates(x[1])])

    def element(self, c: Float[Array, " dim"]) -> Array:
        """The pair, or the state, with these coordinates."""
        n = self.base.dim
        return (
            self.base.element(c) if c.shape[0] == n else jnp.stack([self.base.element(c[:n]), self.base.element(c[n:])])
        )

    def bracket(self, xi: Element, eta: Element) -> Element:
        """([ξ, η], ad*_η a − ad*_ξ b)."""
        g = self.base
        return jnp.stack([g.bracket(xi[0], eta[0]), g.ad_star(eta[0], xi[1]) - g.ad_star(xi[0], eta[1])])

    def ad_star(self, xi: Element, mu: State) -> State:
        """The velocity ad*_ξ μ + a of a state; it is affine in μ."""
        return self.base.ad_star(xi[0], mu) + xi[1]

    def flow(self, sigma: Element, mu: State) -> State:
        """flow(ξ, μ) + φ₁(ad*_ξ) a."""
        return self.base.flow(sigma[0], mu) + self.base.dexp_star(sigma[0], sigma[1])

    def change(self, sigma: Element, mu: State) -> State:
        """flow(σ, μ) − μ."""
        return self.base.change(sigma[0], mu) + self.base.dexp_star(sigma[0], sigma[1])

    def dexp_star(self, sigma: Element, mu: State) -> State:
        """The mean of flow(tσ, μ) over t in [0, 1], up to |ξ|²: φ₁(ad*_ξ) μ + ½ φ₁(⅔ ad*_ξ) a."""
        return self.base.dexp_star(sigma[0], mu) + 0.5 * self.base.dexp_star(sigma[0] * (2.0 / 3.0), sigma[1])

    def gradient(self, h: Any, mu: State) -> Element:
        """∂h/∂μ, an element of g."""
        return self.base.gradient(h, mu)

    def log_cayley(self, sigma: Element) -> Element:
        """There is none."""
        raise TypeError("tau=Cayley() does not support a torque: use tau=Exp().")

    # The group element of G.

    def group_exp(self, sigma: Element) -> Array:
        """exp(ξ)."""
        return self.base.group_exp(sigma[0])

    def group_product(self, g: Array, k: Array) -> Array:
        """g k."""
        return self.base.group_product(g, k)


def paired(xi: Element, a: State | np.ndarray) -> Element:
    """The pair (ξ, a)."""
    return jnp.stack([xi, jnp.asarray(a)])
