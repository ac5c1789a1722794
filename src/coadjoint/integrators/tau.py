"""Maps τ from the algebra to the group: the exponential, the Cayley transform, or one of your own."""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from stepcompiler.device_arrays import compile_and_run

from ..algebras.base import Element, LieAlgebra, State
from ..numerics.special_functions import BERNOULLI


class Tau(eqx.Module):
    """The interface of a map τ: g → G with τ(0) = 1 and τ(−σ) = τ(σ)⁻¹, by which a method moves on the orbit.

    A subclass defines two methods, which are compared with each other before a run:

    - `action(algebra, sigma, mu)` = Ad*_{τ(σ)} μ, an exact group action for any σ;
    - `dtauinv(algebra, sigma, zeta)`, the inverse of dτ_σ: δ ↦ (Dτ(σ)δ) τ(σ)⁻¹.

    Optional methods are `group` (for the group element), and `orbit_memory` and `drift_free_flow` (for the round-off
    correction), as in an algebra.

    Method arguments
    ----------------
    algebra : LieAlgebra
        The Lie algebra.
    sigma, zeta : array, shape `algebra.shape`
        Elements of the algebra.
    mu : array, shape `algebra.shape`
        A state.
    order : int
        The order of the method that uses the series.
    orbit_memory : pytree
        The data of the orbit for the round-off correction, which the method `orbit_memory` returns.
    """

    @abc.abstractmethod
    def action(self, algebra: LieAlgebra, sigma: Element, mu: State) -> State:
        """Ad*_{τ(σ)} μ."""

    @abc.abstractmethod
    def dtauinv(self, algebra: LieAlgebra, sigma: Element, zeta: Element) -> Element:
        """dτ_σ⁻¹ ζ."""

    def dtauinv_to(self, order: int, algebra: LieAlgebra, sigma: Element, zeta: Element) -> Element:
        """dτ_σ⁻¹ ζ as exactly as a method of the given order needs."""
        return self.dtauinv(algebra, sigma, zeta)

    def dtau_star(self, algebra: LieAlgebra, sigma: Element, mu: State) -> State:
        """dτ*_σ μ, the dual of dτ_σ."""

        def column(e: Array) -> Array:
            return algebra.coordinates(self.dtauinv(algebra, sigma, algebra.element(e)))

        inverse = jax.vmap(column, out_axes=1)(jnp.eye(algebra.dim))
        return algebra.element(jnp.linalg.solve(inverse.T, algebra.coordinates(mu)))

    def orbit_memory(self, algebra: LieAlgebra, mu: State) -> PyTree:
        """The memory of the initial state for `drift_free_flow`."""
        return None

    def drift_free_flow(
        self, algebra: LieAlgebra, sigma: Element, mu: State, orbit_memory: PyTree
    ) -> tuple[State, PyTree]:
        """The action without round-off drift."""
        return self.action(algebra, sigma, mu), orbit_memory

    def group(self, algebra: LieAlgebra, sigma: Element) -> Array:
        """τ(σ) as a matrix."""
        raise TypeError(f"group=True needs {type(self).__name__}.group(algebra, sigma), the matrix τ(σ).")

    def check(self, algebra: LieAlgebra) -> None:
        """Raise unless `action` and `dtauinv` belong together, at a random state."""

        def both(coordinates: Array) -> tuple[State, State, State, State]:
            sigma, zeta, mu = map(algebra.element, coordinates)
            sigma = 0.3 * sigma
            moved = self.action(algebra, sigma, mu)
            back = self.action(algebra, -sigma, moved)
            direction = self.dtauinv(algebra, -sigma, zeta)
            _, rate = jax.jvp(lambda x: self.action(algebra, x, mu), (sigma,), (direction,))
            return back - mu, rate - algebra.ad_star(zeta, moved), mu, rate

        found = compile_and_run(both, np.random.default_rng(0).standard_normal((3, algebra.dim)))
        open_, wrong, mu, rate = map(_worst, found)
        if not open_ <= 1e-10 * (1 + mu):
            raise ValueError(
                "tau: action(algebra, σ, ·) and action(algebra, −σ, ·) must be inverse to each other. For "
                f"{type(self).__name__} a random state comes back changed by {open_:.3g}."
            )
        if not wrong <= 1e-8 * (1 + rate):
            raise ValueError(
                f"tau: dtauinv of {type(self).__name__} does not belong to its action: when σ changes at the rate "
                f"dtauinv(algebra, −σ, ζ), action(algebra, σ, μ) must change by ad*_ζ of it; it is off by {wrong:.3g}."
            )


class Exp(Tau):
    """τ = exp."""

    def action(self, algebra: LieAlgebra, sigma: Element, mu: State) -> State:
        """flow(σ, μ)."""
        return algebra.flow(sigma, mu)

    def dtauinv(self, algebra: LieAlgebra, sigma: Element, zeta: Element) -> Element:
        """dexpinv."""
        return algebra.dexpinv(sigma, zeta)

    def dtauinv_to(self, order: int, algebra: LieAlgebra, sigma: Element, zeta: Element) -> Element:
        """Σ_{k ≤ order − 2} (B_k/k!) ad_σ^k ζ: a method of order p needs p − 2 brackets."""
        if order - 2 >= len(BERNOULLI):
            return algebra.dexpinv(sigma, zeta)
        total = term = zeta
        for b in BERNOULLI[1 : max(order - 1, 1)]:
            term = algebra.bracket(sigma, term)
            total = total + b * term if b else total
        return total

    def dtau_star(self, algebra: LieAlgebra, sigma: Element, mu: State) -> State:
        """φ₁(ad*_σ) μ, φ₁(z) = (eᶻ − 1)/z."""
        return algebra.dexp_star(sigma, mu)

    def orbit_memory(self, algebra: LieAlgebra, mu: State) -> PyTree:
        """The algebra's."""
        return algebra.orbit_memory(mu)

    def drift_free_flow(
        self, algebra: LieAlgebra, sigma: Element, mu: State, orbit_memory: PyTree
    ) -> tuple[State, PyTree]:
        """The algebra's."""
        return algebra.drift_free_flow(sigma, mu, orbit_memory)

    def group(self, algebra: LieAlgebra, sigma: Element) -> Array:
        """exp(σ)."""
        return algebra.group_exp(sigma)

    def check(self, algebra: LieAlgebra) -> None:
        """Every algebra has it."""


class Cayley(Tau):
    """τ = cay, cay(σ) = (1 − σ/2)⁻¹(1 + σ/2) in a matrix representation: for `SO3`, `SE3`, `SU` and products."""

    def action(self, algebra: LieAlgebra, sigma: Element, mu: State) -> State:
        """Ad*_{cay(σ)} μ."""
        return algebra.cayley_flow(sigma, mu)

    def dtauinv(self, algebra: LieAlgebra, sigma: Element, zeta: Element) -> Element:
        """(1 − σ/2) ζ (1 + σ/2)."""
        return algebra.dcayinv(sigma, zeta)

    def dtau_star(self, algebra: LieAlgebra, sigma: Element, mu: State) -> State:
        """(1 + σ/2)⁻¹ μ (1 − σ/2)⁻¹."""
        return algebra.dcay_star(sigma, mu)

    def orbit_memory(self, algebra: LieAlgebra, mu: State) -> PyTree:
        """The algebra's."""
        return algebra.orbit_memory(mu)

    def drift_free_flow(
        self, algebra: LieAlgebra, sigma: Element, mu: State, orbit_memory: PyTree
    ) -> tuple[State, PyTree]:
        """The algebra's."""
        return algebra.drift_free_cayley_flow(sigma, mu, orbit_memory)

    def group(self, algebra: LieAlgebra, sigma: Element) -> Array:
        """cay(σ)."""
        return algebra.group_exp(algebra.log_cayley(sigma))

    def check(self, algebra: LieAlgebra) -> None:
        """Raise if the algebra has no Cayley transform."""
        jax.eval_shape(algebra.log_cayley, jax.ShapeDtypeStruct(algebra.shape, algebra.dtype))


def checked(tau: Any) -> Tau:
    """Return the user's τ; raise an error that lists the allowed ones."""
    if isinstance(tau, Tau):
        return tau
    hint = f"; did you mean {tau.__name__}()?" if isinstance(tau, type) and issubclass(tau, Tau) else "."
    raise TypeError(f"tau must be Exp(), Cayley() or a Tau of your own, not {tau!r}{hint}")


def _worst(x: Array) -> float:
    return float(np.max(np.abs(x)))
