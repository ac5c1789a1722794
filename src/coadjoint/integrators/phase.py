"""The rotation about the state that a method leaves out of its steps, for the group element."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..algebras.base import Element, State
from ..stabilisers import removed_part
from ..systems import System


def phase(
    system: System, start: State, end: State, t: Float[Array, ""], dt: Float[Array, ""], S: Float[Array, " M"]
) -> Element:
    """∫ c(μ) |μ| dt over a step from μ_n to μ_{n+1}, as an element of the stabiliser of μ_{n+1}, by Simpson's rule.

    The state in the middle is ½ (μ_n + μ_{n+1}) + ⅛ (F(μ_n) − F(μ_{n+1})), F(μ) = s ad*_{ζ(μ)} μ, so the error
    of a step without noise is O(dt⁵). With G the reduced gradient, g' = g (G + c μ) has the solution
    g_{n+1} = g_n exp(σ) exp(phase), because exp(σ) takes the stabiliser of μ_n to that of μ_{n+1}.
    """
    first, middle, last = (system.at_node(t, dt, c) for c in (0.0, 0.5, 1.0))
    bend = 0.125 * (first.vector_field(start, dt, S) - last.vector_field(end, dt, S))
    rates = (
        removed_part(first, start, end),
        4.0 * removed_part(middle, 0.5 * (start + end) + bend, end),
        removed_part(last, end, end),
    )
    return dt / 6.0 * sum(rates, jnp.zeros_like(end))


def with_phase(system: System, g: Array, reference: State, end: State, turn: Element) -> Array:
    """g exp(turn) for a left-invariant system, exp(turn) g for a right-invariant one."""
    algebra, step = system.algebra, system.algebra.group_exp(turn)
    if system.sign == 1:
        return algebra.group_align(algebra.group_product(g, step), reference, end)
    return algebra.group_align(algebra.group_product(step, g), end, reference)
