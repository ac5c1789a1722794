"""∂h without its part in the stabiliser of the state, which moves nothing and makes steps larger.

On so(3) every ξ = c μ is in the stabiliser of μ. With b = ∂h(0), the gradient of the linear part of h, or b = 0 if h
may be singular somewhere, methods use

    G(μ) = ∂h(μ) − c μ,   c = <∂h(μ) − b, μ>/|μ|²,

or, if they are Poisson maps, the derivative of the function h̃ that equals h on the orbit of μ_n,

    h̃(μ) = <μ, b> + k(|μ_n| μ/|μ|),   k(μ) = h(μ) − <μ, b>.

Any b is allowed; b = ∂h(0) leaves a linear h as it is. In products this holds factor by factor.

In a product G may vary faster than ∂h: the ∂h of a spin is the sum of its neighbours, which may vary little while the
spin itself turns. `weights` therefore compares their rates of change at the initial state.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from stepcompiler.jaxprs.sparsity import depends_on, is_smooth

from .algebras.base import Element, State

_SLOWER = 0.5  # of |d∂h/dt|²: the largest |dG/dt|² for which G is used
_LARGEST = 64  # dimension up to which a linear h is recognised, which then keeps what is faster without a state

Weights = Float[Array, " factors"] | None  # how much of c μ is left out in each factor, 0 or 1; None: 1


class Reduction(eqx.Module):
    """How a system reduces its gradients in a step from `start`: by G, or if `canonical`, by the derivative of h̃."""

    linear: Element  # b
    start: State
    canonical: bool = eqx.field(static=True)
    weights: Weights = None

    @property
    def rule(self) -> tuple[State, bool, Weights]:
        """The arguments of `System.without_stabiliser`."""
        return self.start, self.canonical, self.weights


def reduction_of(system: Any, start: State, canonical: bool, weights: Weights) -> Reduction:
    """The reduction at the time of the system."""
    return Reduction(_linear_part(system, start), start, canonical, weights)


def _linear_part(system: Any, mu: State) -> Element:
    zero = jnp.zeros_like(mu)
    return system.energy_gradient(zero) if is_smooth(lambda m: system.energy_gradient(m), zero) else zero


def reduction_weights(system: Any, mu: State) -> Float[Array, " factors"]:
    """1 for each factor if G changes more slowly than ∂h along the motion from μ: |dG/dt|² < ½ |d∂h/dt|²; else 0.

    Both are sums over all factors. The weights are constant in a run, so all invariants and symmetries of G remain.
    """
    algebra, b = system.algebra, _linear_part(system, mu)

    def both(m: State) -> tuple[Element, Element]:
        dh = system.energy_gradient(m)
        return dh, dh - algebra.stabiliser_part(dh - b, m)

    rate = system.sign * algebra.ad_star(system.energy_gradient(mu) + system.force(mu), mu)
    full, reduced = jax.jvp(both, (mu,), (rate,))[1]
    slower = jnp.sum(reduced**2) < _SLOWER * jnp.sum(full**2)
    factors = sum(count for _, count in algebra.summands)
    return jax.lax.stop_gradient(jnp.full(factors, 1.0) * slower)


def _by_coordinate(algebra: Any, weights: Float[Array, " factors"]) -> Float[Array, " dim"]:
    """The weight of the factor of each coordinate."""
    pieces, at = [], 0
    for dim, count in algebra.summands:
        pieces.append(jnp.broadcast_to(weights[at : at + count, None], (count, dim)).reshape(-1))
        at += count
    return pieces[0] if len(pieces) == 1 else jnp.concatenate(pieces)


def is_reducible(system: Any) -> bool:
    """Whether ∂h has a part to be left out: the algebra knows stabilisers, and ∂h depends on the state."""
    algebra = system.algebra
    if not algebra.knows_stabilisers or algebra.dim > _LARGEST:
        return algebra.knows_stabilisers
    state = jax.ShapeDtypeStruct(algebra.shape, algebra.dtype)
    return bool(depends_on(lambda mu: algebra.coordinates(system.energy_gradient(mu)), state).any())


def reduced_gradient(system: Any, mu: State) -> Element:
    """∂h, G or ∂h̃ at μ."""
    reduction = system.reduction
    if reduction is None:
        return system.energy_gradient(mu)
    if not reduction.canonical:
        return without_stabiliser(system, system.energy_gradient(mu), mu)
    near, pull_back = jax.vjp(lambda m: _onto_orbit(system, m), mu)
    return reduction.linear + pull_back(system.energy_gradient(near) - reduction.linear)[0]


def without_stabiliser(system: Any, dh: Element, mu: State) -> Element:
    """∂h − c μ for a given ∂h."""
    if system.reduction is None:
        return dh
    return dh - _weighted(system, system.algebra.stabiliser_part(dh - system.reduction.linear, mu))


def removed_part(system: Any, mu: State, end: State) -> Element:
    """The part c μ of ∂h that was removed at μ, transported to a state on its orbit."""
    reduction, algebra = system.reduction, system.algebra
    near = _onto_orbit(system, mu) if reduction.canonical else mu
    return _weighted(system, algebra.stabiliser_part(system.energy_gradient(near) - reduction.linear, near, end))


def _weighted(system: Any, part: Element) -> Element:
    weights = system.reduction.weights
    return part if weights is None else _by_coordinate(system.algebra, weights) * part


def _onto_orbit(system: Any, mu: State) -> State:
    """|μ_n| μ/|μ| in each factor of weight 1, μ in the others."""
    reduction, algebra = system.reduction, system.algebra
    on = algebra.onto_orbit(mu, reduction.start)
    return on if reduction.weights is None else jnp.where(_by_coordinate(algebra, reduction.weights) > 0.0, on, mu)
