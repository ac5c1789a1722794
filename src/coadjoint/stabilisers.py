"""∂h without its part in the stabiliser of the state, which moves nothing and makes steps larger.

On so(3) every ξ = c μ is in the stabiliser of μ. With b = ∂h(0), the gradient of the linear part of h, or b = 0 if h
may be singular somewhere, methods use

    G(μ) = ∂h(μ) − c μ,   c = <∂h(μ) − b, μ>/|μ|²,

or, if they are Poisson maps, the derivative of the function h̃ that equals h on the orbit of μ_n,

    h̃(μ) = <μ, b> + k(|μ_n| μ/|μ|),   k(μ) = h(μ) − <μ, b>.

Any b is allowed; b = ∂h(0) leaves a linear h as it is. In products this holds factor by factor.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from stepcompiler.jaxprs.sparsity import depends_on, is_smooth

from .algebras.base import Element, State

_LARGEST = 64  # dimension up to which a linear h is recognised, which then keeps what is faster without a state


class Reduction(eqx.Module):
    """How a system reduces its gradients in a step from `start`: by G, or if `canonical`, by the derivative of h̃."""

    linear: Element  # b
    start: State
    canonical: bool = eqx.field(static=True)

    @property
    def rule(self) -> tuple[State, bool]:
        """The arguments of `System.without_stabiliser`."""
        return self.start, self.canonical


def reduction_of(system: Any, start: State, canonical: bool) -> Reduction:
    """The reduction at the time of the system."""
    zero = jnp.zeros_like(start)
    finite = is_smooth(lambda mu: system.energy_gradient(mu), zero)
    return Reduction(system.energy_gradient(zero) if finite else zero, start, canonical)


def is_reducible(system: Any) -> bool:
    """Whether ∂h has a part to be left out: the algebra knows stabilisers, and ∂h depends on the state."""
    algebra = system.algebra
    if not algebra.knows_stabilisers or algebra.dim > _LARGEST:
        return algebra.knows_stabilisers
    state = jax.ShapeDtypeStruct(algebra.shape, algebra.dtype)
    return bool(depends_on(lambda mu: algebra.coordinates(system.energy_gradient(mu)), state).any())


def reduced_gradient(system: Any, mu: State) -> Element:
    """∂h, G or ∂h̃ at μ."""
    reduction, algebra = system.reduction, system.algebra
    if reduction is None:
        return system.energy_gradient(mu)
    if not reduction.canonical:
        return without_stabiliser(system, system.energy_gradient(mu), mu)
    near, pull_back = jax.vjp(lambda m: algebra.onto_orbit(m, reduction.start), mu)
    return reduction.linear + pull_back(system.energy_gradient(near) - reduction.linear)[0]


def without_stabiliser(system: Any, dh: Element, mu: State) -> Element:
    """∂h − c μ for a given ∂h."""
    if system.reduction is None:
        return dh
    return dh - system.algebra.stabiliser_part(dh - system.reduction.linear, mu)


def removed_part(system: Any, mu: State, end: State) -> Element:
    """The part c μ of ∂h that was removed at μ, transported to a state on its orbit."""
    reduction, algebra = system.reduction, system.algebra
    near = algebra.onto_orbit(mu, reduction.start) if reduction.canonical else mu
    return algebra.stabiliser_part(system.energy_gradient(near) - reduction.linear, near, end)
