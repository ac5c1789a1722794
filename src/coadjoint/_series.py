"""Stumpff functions: the sinc-like series of rotations, safe at zero with all their derivatives."""

from functools import partial
from math import factorial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

_SWITCH = 2.0  # below it the power series, above it the closed form; both are exact to a few ulps there
_TERMS = 13  # 2^13 / 27! < 1e-24: the tail of the series at the switch, for derivatives too


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def stumpff(k: int, x: Float[Array, "..."]) -> Float[Array, "..."]:
    """The Stumpff function c_k(x) = Σ_j (−x)^j / (2j + k)!, for x ≥ 0.

    With x = θ²: c₀ = cos θ, c₁ = sin θ/θ, c₂ = (1 − cos θ)/θ², c₃ = (θ − sin θ)/θ³, and
    c_{k+2} = (1/k! − c_k)/x. The derivative is again made of Stumpff functions,
    c_k′ = (k c_{k+2} − c_{k+1})/2, so that every derivative is as accurate as the value.

    Reference: Stumpff, Himmelsmechanik I (1959), chapter V.
    """
    small = x < _SWITCH
    series = jnp.zeros_like(x)
    y = jnp.where(small, x, 0.0)
    for j in reversed(range(_TERMS)):
        series = 1.0 / factorial(2 * j + k) - y * series
    z = jnp.where(small, _SWITCH, x)
    theta = jnp.sqrt(z)
    closed = jnp.cos(theta) if k % 2 == 0 else jnp.sin(theta) / theta
    for i in range(k % 2, k, 2):
        closed = (1.0 / factorial(i) - closed) / z
    return jnp.where(small, series, closed)


@stumpff.defjvp
def _stumpff_jvp(k, primals, tangents):
    (x,), (dx,) = primals, tangents
    return stumpff(k, x), 0.5 * (k * stumpff(k + 2, x) - stumpff(k + 1, x)) * dx


def half_cot(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """(1 − (θ/2) cot(θ/2))/θ² with x = θ², that is 1/12 + x/720 + …, written without cancellation."""
    return (0.5 * stumpff(3, x) - stumpff(4, x)) / stumpff(2, x)
