"""Displacements S of Gauss methods: a group element from the increments ζ_i at the Gauss–Legendre nodes of a step.

For a left-invariant system g' = gξ, for a right-invariant one g' = ξg. With the bracket −s[·,·] both have the formulas
of U' = ξU.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..algebras.base import Element, LieAlgebra, State
from .tableau import TABLEAUX, Tableau

_R = 15**0.5
_GAUSS6 = Tableau(
    [
        [5 / 36, 2 / 9 - _R / 15, 5 / 36 - _R / 30],
        [5 / 36 + _R / 24, 2 / 9, 5 / 36 - _R / 24],
        [5 / 36 + _R / 30, 2 / 9 + _R / 15, 5 / 36],
    ],
    [5 / 18, 4 / 9, 5 / 18],
    6,
    "gauss6",
)
GAUSS = {4: TABLEAUX["gauss4"], 6: _GAUSS6}  # by order


def lie_displacement(order: int, algebra: LieAlgebra, s: int, zeta: Array) -> Element:
    """Magnus' expansion to the given order (Blanes, Casas and Ros, 2000).

    Order 4: S = ½ (ζ_1 + ζ_2) − (√3/12) [ζ_1, ζ_2]. Order 6, in the moments α_1 = ζ_2, α_2 = (√15/3)(ζ_3 − ζ_1) and
    α_3 = (10/3)(ζ_3 − 2ζ_2 + ζ_1): S = α_1 + α_3/12 + (1/240) [X, Y], with X and Y of `_parts`.
    """
    if order == 4:
        return 0.5 * (zeta[0] + zeta[1]) - s * (-(3**0.5) / 12.0) * algebra.bracket(zeta[0], zeta[1])
    a1, _, a3 = moments = _moments(zeta)
    X, Y, *_ = _parts(algebra, s, *moments)
    return a1 + a3 / 12.0 - (s / 240.0) * algebra.bracket(X, Y)


def lie_states(order: int, algebra: LieAlgebra, s: int, zeta: Array, mean: State) -> list[State]:
    """(1/b_i) (∂S/∂ζ_i)* λ for λ = `mean`, by the rule <λ, [δ, η]> = −<ad*_η λ, δ>."""
    dual = lambda xi, m: -s * algebra.ad_star(xi, m)
    if order == 4:
        r = 3**0.5 / 6.0
        return [mean + r * dual(zeta[1], mean), mean - r * dual(zeta[0], mean)]
    a1, a2, _ = moments = _moments(zeta)
    X, Y, Z = _parts(algebra, s, *moments)
    x, y = dual(Y, mean) / -240.0, dual(X, mean) / 240.0  # the duals of X and Y …
    z = dual(a1, y) / -60.0  # … of Z …
    c = x + z  # … and of [α_1, α_2]
    d1 = mean - 20.0 * x + dual(Z, y) / 60.0 - dual(a2, c)
    d2 = y + dual(a1, c)
    d3 = mean / 12.0 - x + 2.0 * z
    even, odd = (10 / 3) * d3, (_R / 3) * d2
    return [(18 / 5) * (even - odd), (9 / 4) * (d1 - 2.0 * even), (18 / 5) * (even + odd)]


def _moments(zeta: Array) -> tuple[Element, Element, Element]:
    return zeta[1], (_R / 3) * (zeta[2] - zeta[0]), (10 / 3) * (zeta[2] - 2.0 * zeta[1] + zeta[0])


def _parts(algebra: LieAlgebra, s: int, a1: Element, a2: Element, a3: Element) -> tuple[Element, Element, Element]:
    """X = −20 α_1 − α_3 + [α_1, α_2], Y = α_2 − (1/60) [α_1, Z], Z = 2 α_3 + [α_1, α_2]."""
    bracket = lambda xi, eta: -s * algebra.bracket(xi, eta)
    c = bracket(a1, a2)
    Z = 2.0 * a3 + c
    return c - 20.0 * a1 - a3, a2 - bracket(a1, Z) / 60.0, Z


def linear_displacement(order: int, s: int, zeta: Array) -> Element:
    """σ with cay(σ) = 1 + Σ_i b_i ζ_i U_i, U_i = 1 + Σ_j a_ij ζ_j U_j, for matrices.

    As 1 + cay σ = 2 (1 − σ/2)⁻¹, the products V_i = U_i (1 − σ/2) solve V_i = 1 + Σ_j (a_ij − b_j/2) ζ_j V_j, and
    σ = Σ_i b_i ζ_i V_i. σ is in u(n): its trace belongs to the Cayley transform, and only the phase of that is free.
    """
    A, b = np.array(GAUSS[order].A), np.array(GAUSS[order].b)
    sigma = jnp.tensordot(b, zeta @ _stages(A - 0.5 * b, -s * zeta), axes=1)
    return 0.5 * (sigma - jnp.conj(sigma.T))


def linear_states(order: int, s: int, zeta: Array, mu: State) -> list[State]:
    """U_i W U_iᴴ; without its trace, which means nothing, as U_i is not unitary."""
    U = _stages(np.array(GAUSS[order].A), -s * zeta)
    W, one = U @ mu @ jnp.conj(jnp.swapaxes(U, 1, 2)), jnp.eye(len(mu))
    return [w - (jnp.trace(w) / len(mu)) * one for w in W]


def _stages(A: np.ndarray, B: Array) -> Array:
    """The solution of U_i = 1 + Σ_j a_ij B_j U_j."""
    count, n = B.shape[:2]
    blocks = jnp.einsum("ij,jkl->ikjl", A, B).reshape(count * n, count * n)
    ones = jnp.tile(jnp.eye(n, dtype=B.dtype), (count, 1))
    return jnp.linalg.solve(jnp.eye(count * n) - blocks, ones).reshape(count, n, n)
