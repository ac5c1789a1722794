"""The Lie algebra: a dimension and a bracket; everything else is derived and may be overridden."""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from .automorphisms import automorphism_error
from .casimirs import independent_casimirs, index, knows_all_casimirs, polynomial_casimirs, project_casimirs
from .constants import commuting_blocks
from .exponentials import expm, flow, flow_doubledouble, mean_flow, phi1
from .invariants import adjoint_errors, evaluate, higher_casimirs

Element = Array  # an element of the algebra g: shape `algebra.shape`
State = Array  # an element of its dual g*: the same shape


class LieAlgebra(eqx.Module):
    """The interface of a Lie algebra: `dim` and `bracket` define it, and everything else is derived from them.

    Elements and states are coordinate vectors of length `dim`, paired by the dot product. Derived are, among others:

    - ad*: `<ad*_ξ μ, η> = <μ, [ξ, η]>`
    - flow: `flow(σ, μ) = exp(ad*_σ) μ`, the solution of μ' = ad*_σ μ at time 1
    - dexpinv: the inverse of `dexp_σ = (exp(ad_σ) − 1)/ad_σ`
    - Casimirs: linear, quadratic and, up to degree 4, polynomial ones.

    A subclass may override any method by a closed form. The derived method is then the oracle of the tests. An algebra
    is a constant of the compiled program: it is hashed and compared by its content.

    Method arguments
    ----------------
    xi, eta, sigma, zeta : array, shape `shape`
        Elements of the algebra: velocities, the element σ of a step, and its rate ζ.
    mu, start, end : array, shape `shape`
        States, elements of the dual: the present one, the initial one, and one at the end of a step.
    x : array, shape `shape`
        An element or a state.
    c : array, shape (dim,)
        The real coordinates of an element or a state.
    h : callable
        A function of a state that returns one real number.
    change : array, shape `shape`
        The change of the state by the flow.
    orbit_memory : pytree
        The data of the orbit for the round-off correction, which the method `orbit_memory` returns.
    g, k : pytree
        Elements of the group, as `group_exp` returns them.
    source, target : array, shape `shape`
        States with Ad*_g source = target up to round-off.
    Ad : array, shape (dim, dim)
        The matrix of Ad_g in coordinates.
    """

    dim: eqx.AbstractVar[int]

    @abc.abstractmethod
    def bracket(self, xi: Element, eta: Element) -> Element:
        """[ξ, η] = ad_ξ η."""

    # How elements are written.

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of an element and of a state."""
        return (self.dim,)

    @property
    def summands(self) -> tuple[tuple[int, int], ...]:
        """(dimension, number) of the algebras whose direct sum this is. By default the algebra itself."""
        return ((self.dim, 1),)

    @property
    def dtype(self) -> Any:
        """Type of the entries: float64, or complex128 for matrices."""
        return jnp.float64

    def coordinates(self, x: Element) -> Float[Array, " dim"]:
        """Real coordinates of an element or a state, in which the pairing is the dot product."""
        return x

    def element(self, c: Float[Array, " dim"]) -> Element:
        """The element or state with the given real coordinates."""
        return c

    def state_error(self, mu: np.ndarray) -> str | None:
        """The defect of a state of the right shape with finite entries; None if there is none."""
        return None

    def are_states(self, mu: np.ndarray) -> bool:
        """Whether all of a stack are states, by a quick test. `state_error` examines each if this is false."""
        return type(self).state_error is LieAlgebra.state_error

    def nearest_states(self, mu: np.ndarray) -> np.ndarray | None:
        """A stack of states without round-off that is no part of the algebra; None: `element` of `coordinates`."""
        return None

    # The algebra and its dual.

    def pairing(self, mu: State, xi: Element) -> Float[Array, ""]:
        """<μ, ξ>."""
        return jnp.sum(mu * xi)

    def ad(self, xi: Element) -> Float[Array, "dim dim"]:
        """The matrix of η ↦ [ξ, η] in coordinates."""
        columns = jax.vmap(lambda e: self.coordinates(self.bracket(xi, self.element(e))))(jnp.eye(self.dim))
        return columns.T

    def ad_star(self, xi: Element, mu: State) -> State:
        """ad*_ξ μ."""
        return self.element(_transposed(self, lambda eta: self.bracket(xi, eta), mu))

    def poisson(self, mu: State) -> Float[Array, "dim dim"]:
        """The Poisson matrix J(μ), with ad*_ξ μ = −J(μ) ξ."""
        columns = jax.vmap(lambda e: self.coordinates(self.ad_star(self.element(e), mu)))(jnp.eye(self.dim))
        return -columns.T

    def flow(self, sigma: Element, mu: State) -> State:
        """exp(ad*_σ) μ."""
        return self.element(flow(self, self.coordinates(sigma), self.coordinates(mu)))

    def change(self, sigma: Element, mu: State) -> State:
        """flow(σ, μ) − μ, without cancellation if there is a closed form."""
        return self.flow(sigma, mu) - mu

    def dexp(self, sigma: Element, zeta: Element) -> Element:
        """dexp_σ ζ = ζ + ½[σ, ζ] + (1/6)[σ,[σ, ζ]] + …"""
        return self.element(mean_flow(self.ad(sigma), self.coordinates(zeta)))

    def dexpinv(self, sigma: Element, zeta: Element) -> Element:
        """dexp_σ⁻¹ ζ = ζ − ½[σ, ζ] + (1/12)[σ,[σ, ζ]] − …"""
        return self.element(jnp.linalg.solve(phi1(self.ad(sigma)), self.coordinates(zeta)))

    def dexp_star(self, sigma: Element, mu: State) -> State:
        """dexp*_σ μ = (exp(ad*_σ) − 1)/ad*_σ μ, the mean of flow(tσ, μ) over t in [0, 1]."""
        return self.element(mean_flow(self.ad(sigma).T, self.coordinates(mu)))

    def gradient(self, h: Callable[[State], Float[Array, ""]], mu: State) -> Element:
        """∂h/∂μ: the element of g with <δμ, ∂h/∂μ> = Dh(μ)δμ."""
        return jax.grad(h)(mu)

    @property
    def commuting_blocks(self) -> tuple[np.ndarray, ...]:
        """A partition of the coordinates, as masks, into blocks whose basis elements commute."""
        return commuting_blocks(self)

    # The stabiliser of a state: the elements ξ with ad*_ξ μ = 0. Its part of ∂h moves nothing, and makes steps larger.

    @property
    def knows_stabilisers(self) -> bool:
        """Whether `stabiliser_part` and `onto_orbit` are given. By default they are not."""
        return False

    def stabiliser_part(self, xi: Element, mu: State, end: State | None = None) -> Element:
        """The part of ξ in the stabiliser of μ; with `end`, a state on its orbit, transported there."""
        return jnp.zeros_like(xi)

    def onto_orbit(self, mu: State, start: State) -> State:
        """A state near μ on the orbit of `start`; μ itself if it is there."""
        return mu

    def resolvent(self, zeta: Element, xi: Element) -> Element:
        """The η with η + [ζ, η] = ξ, for a ζ in the stabiliser of a state."""
        return xi

    # Casimirs, and keeping them.

    def casimirs(self, mu: State) -> Float[Array, " k"]:
        """The known Casimirs at μ. By default they are found as null spaces, up to degree 4."""
        given = getattr(self, "given_casimirs", None)
        if given is not None:
            return given(mu)
        linear, quadratic = polynomial_casimirs(self)
        c = self.coordinates(mu)
        more = [evaluate(p, c)[None] for p in higher_casimirs(self)]
        return jnp.concatenate([linear @ c, jnp.einsum("kij,i,j->k", quadratic, c, c), *more])

    @property
    def casimir_names(self) -> tuple[str, ...]:
        """A name for each known Casimir."""
        if not self.casimirs_are_found:
            return getattr(self, "given_names", ())
        count = sum(len(c) for c in polynomial_casimirs(self)) + len(higher_casimirs(self))
        return tuple(f"C{k + 1}" for k in range(count))

    @property
    def casimirs_are_found(self) -> bool:
        """Whether the library found the Casimirs itself."""
        return type(self).casimirs is LieAlgebra.casimirs and getattr(self, "given_casimirs", None) is None

    @property
    def known_casimirs(self) -> int:
        """How many of the `index` independent Casimirs are known."""
        return independent_casimirs(self)

    @property
    def watches_orbit(self) -> bool:
        """Whether `orbit_error` measures more than the known Casimirs, because some Casimirs are unknown."""
        if not self.casimirs_are_found or self.known_casimirs >= self.index:
            return False
        return len(polynomial_casimirs(self)[1]) > 0

    @property
    def casimir_words(self) -> str:
        """The number of known Casimirs, in words."""
        return f"{self.known_casimirs} of {self.index} Casimir{'s' if self.index != 1 else ''} known"

    def casimir_scales(self, mu: State) -> Float[Array, " k"]:
        """The scale of each Casimir at a state of this size. Errors are divided by it."""
        grads = jax.jacrev(self.casimirs)(mu)
        return jnp.linalg.norm(grads.reshape(grads.shape[0], mu.size), axis=1) * jnp.linalg.norm(mu)

    def orbit_error(self, mu: State, start: State) -> Float[Array, ""]:
        """The distance of μ from the orbit of the start, scaled: the largest error of a Casimir.

        If some Casimirs are unknown, it includes the largest scaled change of Tr(ad_{Qμ}ᵏ), k ≤ 8, for each quadratic
        Casimir μᵀQμ. The map μ ↦ Qμ takes coadjoint orbits to adjoint orbits, so the spectrum of ad_{Qμ} is conserved.
        """
        scales = self.casimir_scales(start)
        errors = jnp.abs(self.casimirs(mu) - self.casimirs(start)) / jnp.where(scales > 0, scales, 1.0)
        if self.watches_orbit:
            errors = jnp.concatenate([errors, adjoint_errors(self, mu, start)])
        return jnp.max(errors, initial=0.0)

    @property
    def index(self) -> int:
        """The number of independent Casimirs: the corank of J(μ) at a generic μ."""
        return index(self)

    def orbit_memory(self, mu: State) -> PyTree:
        """The data of the initial state μ₀ that `drift_free_flow` needs in addition to the state.

        If all Casimirs are known, their values; if not, the low-order words of a state in double-double.
        """
        return self.casimirs(mu) if knows_all_casimirs(self) else jnp.zeros(self.dim)

    def without_energy_memory(self, orbit_memory: PyTree) -> PyTree:
        """The part of the orbit memory that `drift_free_flow` needs with noise, when no energy is conserved."""
        return orbit_memory

    def drift_free_flow(self, sigma: Element, mu: State, orbit_memory: PyTree) -> tuple[State, PyTree]:
        """The action flow(σ, μ) without round-off drift: the new state and the new anchor.

        If all Casimirs are known the state is brought back to their values, by one regularised Newton step of at
        most a few ulps. If not, the action is computed in double-double.
        """
        if knows_all_casimirs(self):
            return project_casimirs(self, self.flow(sigma, mu), orbit_memory), orbit_memory
        high, low = flow_doubledouble(self, self.coordinates(sigma), self.coordinates(mu), orbit_memory)
        return self.element(high), low

    def drift_free_from_change(
        self, sigma: Element, mu: State, change: State, orbit_memory: PyTree
    ) -> tuple[State, PyTree]:
        """`drift_free_flow` with a known `change(σ, μ)`, which an algebra may ignore."""
        if type(self).drift_free_flow is LieAlgebra.drift_free_flow and knows_all_casimirs(self):
            return project_casimirs(self, mu + change, orbit_memory), orbit_memory
        return self.drift_free_flow(sigma, mu, orbit_memory)

    # The Cayley transform cay(σ) = (1 − σ/2)⁻¹(1 + σ/2) in a faithful matrix representation, if there is one.

    def log_cayley(self, sigma: Element) -> Element:
        """The element with exp(log_cayley(σ)) = cay(σ), from which the rest follows."""
        raise TypeError(
            f"{type(self).__name__} has no Cayley transform: that needs a matrix representation, which SO3, SE3, SU "
            "and products of these have. Use tau=Exp(), or override `log_cayley` in an algebra of your own."
        )

    def cayley_flow(self, sigma: Element, mu: State) -> State:
        """Ad*_{cay(σ)} μ."""
        return self.flow(self.log_cayley(sigma), mu)

    def drift_free_cayley_flow(self, sigma: Element, mu: State, orbit_memory: PyTree) -> tuple[State, PyTree]:
        """`cayley_flow` without round-off drift, as `drift_free_flow`."""
        return self.drift_free_flow(self.log_cayley(sigma), mu, orbit_memory)

    def dcayinv(self, sigma: Element, zeta: Element) -> Element:
        """The inverse of dcay_σ: δ ↦ (D cay(σ) δ) cay(σ)⁻¹."""
        return self.element(jnp.linalg.solve(_dcay_matrix(self, sigma), self.coordinates(zeta)))

    def dcay_star(self, sigma: Element, mu: State) -> State:
        """dcay*_σ μ, the dual of dcay_σ."""
        return self.element(_dcay_matrix(self, sigma).T @ self.coordinates(mu))

    @property
    def is_matrix_conjugation(self) -> bool:
        """Whether states are skew-Hermitian matrices with flow(σ, W) = e^{−σ} W e^σ and cayley_flow alike."""
        return False

    @property
    def conjugated_shape(self) -> tuple[int, ...] | None:
        """The shape of a state as the matrix, or stack of matrices, that flows conjugate; None if there is none."""
        return self.shape if self.is_matrix_conjugation else None

    def to_matrices(self, x: Element) -> Array:
        """The matrix, or stack of matrices, of an element or state."""
        return x

    def from_matrices(self, X: Array) -> Element:
        """The element or state of the matrices `X`: the inverse of `to_matrices`."""
        return X

    # The group, as matrices; by default its adjoint representation.

    def group_exp(self, sigma: Element) -> Array:
        """exp(σ) as a matrix; here Ad_{exp σ} = exp(ad_σ)."""
        return expm(self.ad(sigma))

    def group_product(self, g: Array, k: Array) -> Array:
        """g k, projected to the group, so that round-off does not accumulate."""
        return g @ k

    def group_inverse(self, g: Array) -> Array:
        """g⁻¹."""
        return jnp.linalg.inv(g)

    def coadjoint(self, g: Array, mu: State) -> State:
        """Ad*_g μ, with <Ad*_g μ, η> = <μ, Ad_g η>."""
        return self.element(g.T @ self.coordinates(mu))

    def group_error(self, g: PyTree) -> str | None:
        """The defect of an array of the right shape as an element of the group; None if there is none.

        Here: Ad_g must preserve brackets, and Ad*_g Casimirs.
        """
        return automorphism_error(self, g)

    def in_group(self, g: PyTree) -> bool:
        """Whether all of a stack are in the group, by a quick test. `group_error` examines each if this is false."""
        return False

    def group_align(self, g: Array, source: State, target: State) -> Array:
        """g, changed by round-off so that Ad*_g source = target, if the algebra supports it; here g itself."""
        return g

    def rotation_part(self, g: Array) -> Array:
        """The rotation matrix in a group element, if there is one."""
        raise TypeError(
            f"an element of the group of {type(self).__name__} has no attitude; SO3, SE3, SU(2), and products and "
            "semidirect products of these have one."
        )

    def rotation_of_adjoint(self, Ad: Array) -> Array:
        """The rotation matrix in the matrix of Ad_g, in coordinates, if there is one."""
        raise TypeError(f"the adjoint representation of {type(self).__name__} has no attitude; SO3 and SE3 have one.")

    # Direct sums.

    def __mul__(self, other: "LieAlgebra") -> "LieAlgebra":
        """The direct sum g ⊕ h."""
        from .product import Product

        return Product(self, other)

    def __pow__(self, copies: int) -> "LieAlgebra":
        """The direct sum of several copies of g."""
        from .product import Product

        return Product(self, copies=copies)

    # Identity: by content, so that an algebra made anew is the same algebra.

    def _content(self) -> tuple:
        leaves, treedef = jax.tree.flatten(self)
        arrays = (np.asarray(x) if eqx.is_array_like(x) else x for x in leaves)
        return (
            type(self),
            treedef,
            tuple((x.shape, str(x.dtype), x.tobytes()) if isinstance(x, np.ndarray) else x for x in arrays),
        )

    def __hash__(self) -> int:
        """By content."""
        return hash(self._content())

    def __eq__(self, other: object) -> bool:
        """By content."""
        return self is other or (isinstance(other, LieAlgebra) and self._content() == other._content())


def _transposed(algebra: LieAlgebra, linear: Callable[[Element], Element], mu: State) -> Float[Array, " dim"]:
    """The coordinates of the state ν with <ν, ζ> = <μ, linear(ζ)> for all ζ."""
    _, transpose = jax.vjp(lambda c: algebra.coordinates(linear(algebra.element(c))), jnp.zeros(algebra.dim))
    return transpose(algebra.coordinates(mu))[0]


def _dcay_matrix(algebra: LieAlgebra, sigma: Element) -> Float[Array, "dim dim"]:
    """dcay_σ = dexp_{log cay σ} D log_cayley(σ)."""

    def column(e: Float[Array, " dim"]) -> Float[Array, " dim"]:
        log, derivative = jax.jvp(algebra.log_cayley, (sigma,), (algebra.element(e),))
        return algebra.coordinates(algebra.dexp(log, derivative))

    return jax.vmap(column, out_axes=1)(jnp.eye(algebra.dim))
