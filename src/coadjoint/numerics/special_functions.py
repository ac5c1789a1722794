"""The series of rotations: Stumpff functions, Bernoulli numbers, the arc tangent; safe at zero with all derivatives."""

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import cache
from math import factorial

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from stepcompiler.derivatives import custom_derivative
from stepcompiler.hints import likely, unlikely

_SMALL = Fraction(1, 16)  # of |σ|²: up to it shorter polynomials do

# B_k/k!: the coefficients of dexpinv.
BERNOULLI = (1.0, -1 / 2, 1 / 12, 0.0, -1 / 720, 0.0, 1 / 30240, 0.0, -1 / 1209600, 0.0, 1 / 47900160)


def _switch(k: int) -> float:
    """Below it the power series, above it the closed form; both are exact to a few ulps there.

    For larger k the closed form loses more digits and the series fewer.
    """
    return 2.0 if k < 4 else min(k * k / 1.5, 40.0)


def _terms(k: int) -> int:
    """How many terms of the series are needed at the switch."""
    j = 1
    while _switch(k) ** j * factorial(k) / factorial(2 * j + k) > 1e-19:
        j += 1
    return j


@custom_derivative
def stumpff(k: int, x: Float[Array, "..."]) -> Float[Array, "..."]:
    """The Stumpff function c_k(x) = Σ_j (−x)^j / (2j + k)!, for x ≥ 0.

    With x = θ²: c₀ = cos θ, c₁ = sin θ/θ, c₂ = (1 − cos θ)/θ², c₃ = (θ − sin θ)/θ³, and
    c_{k+2} = (1/k! − c_k)/x. The derivative is again made of Stumpff functions,
    c_k′ = (k c_{k+2} − c_{k+1})/2, so that every derivative is as accurate as the value.

    Reference: Stumpff, Himmelsmechanik I (1959), chapter V.
    """
    near = likely(x < 2.0)
    return _distant(k)(~near, _near(k, jnp.where(near, x, 0.0)), x)


@cache
def _distant(k: int) -> Callable[[Array, Array, Array], Array]:
    """Return c_k(x) for x ≥ 2, else the given value."""
    return unlikely(lambda case, otherwise, x: jnp.where(case, _far(k, jnp.where(case, x, 2.0)), otherwise))


def stumpffs(x: Float[Array, ""]) -> Float[Array, "4"]:
    """Return c₁, c₂, 2c₁′ and 2c₂′ for x ≥ 0: the coefficients of a rigid motion.

    2c₁′ = c₃ − c₂ = (c₀ − c₁)/x and 2c₂′ = 2c₄ − c₃ = (c₁ − 2c₂)/x: for large x the first forms cancel.
    """
    small = _of_two(zip(_economized(3, 4, _SMALL), _economized(4, 4, _SMALL), strict=True), x)
    return _not_small(~(x < float(_SMALL)), small, x)


@unlikely
def _not_small(case: Array, otherwise: Array, x: Array) -> Array:
    near = likely(x < 2.0)
    medium = _of_two(zip(_economized(3, 7), (*_economized(4, 6), 0.0), strict=True), jnp.where(near, x, 0.0))
    return jnp.where(case, _not_near(~near, medium, x), otherwise)


@unlikely
def _not_near(case: Array, otherwise: Array, x: Array) -> Array:
    z = jnp.where(case, x, 2.0)
    c0, c1, c2 = (_far(k, z) for k in range(3))
    return jnp.where(case, jnp.stack([c1, c2, (c0 - c1) / z, (c1 - 2.0 * c2) / z]), otherwise)


def _of_two(coefficients: Iterable[tuple[float, float]], x: Array) -> Array:
    """c₁, c₂, 2c₁′, 2c₂′ from the polynomials of c₃ and c₄."""
    c3, c4 = _polynomial([np.array(pair) for pair in coefficients], x)
    c1, c2 = 1.0 - x * c3, 0.5 - x * c4
    return jnp.stack([c1, c2, c3 - c2, 2.0 * c4 - c3])


def _near(k: int, x: Array) -> Array:
    """For x < 2; c₁ and c₂ from c₃ and c₄, so that two polynomials serve a rotation and its derivative."""
    if k < 3:
        return 1.0 / factorial(k) - x * _near(k + 2, x)
    return _polynomial(_economized(k, 7 if k == 3 else 6), x)


@cache
def _economized(k: int, degree: int, end: int | Fraction = 2) -> tuple[float, ...]:
    """The polynomial that is c_k on [0, 2] to 7e-17 of it (k = 3: degree 7, k ≥ 4: 6), by powers; or on [0, end].

    Of the series in t = x/end the highest power is again and again replaced by a multiple of Chebyshev's polynomial on
    [0, 1] (Lanczos).
    """
    chebyshev = [[1], [-1, 2]]
    c = [Fraction(-end) ** j / factorial(2 * j + k) for j in range(16)]
    while len(chebyshev) < len(c):
        shifted = [-2 * a + 4 * b for a, b in zip([*chebyshev[-1], 0], [0, *chebyshev[-1]], strict=True)]
        chebyshev.append([a - b for a, b in zip(shifted, [*chebyshev[-2], 0, 0], strict=True)])
    while len(c) > degree + 1:
        last, high = c[-1], chebyshev[len(c) - 1]
        c = [a - last / high[-1] * b for a, b in zip(c, high, strict=True)][:-1]
    return tuple(float(a / end**j) for j, a in enumerate(c))


def _series(k: int, x: Array, terms: int) -> Array:
    """Σ_j (−x)^j / (2j + k)!."""
    return _polynomial([(-1) ** j / factorial(2 * j + k) for j in range(terms)], x)


def _polynomial(coefficients: Sequence, x: Array) -> Array:
    """Σ_j a_j x^j, pairing terms (Estrin), which a processor can do side by side."""
    total = list(coefficients)
    while len(total) > 1:
        pairs = [a + x * b for a, b in zip(total[::2], total[1::2], strict=False)]
        total = pairs if len(total) % 2 == 0 else [*pairs, total[-1]]
        x = x * x
    return total[0]


def _far(k: int, x: Array) -> Array:
    """Longer series below the switch of c_k, the closed form above it."""
    switch = _switch(k)
    if switch <= 2.0:
        return _closed(k, x)
    small = x < switch
    series = _series(k, jnp.where(small, x, 0.0), _terms(k))
    return jnp.where(small, series, _closed(k, jnp.where(small, switch, x)))


def _closed(k: int, x: Array) -> Array:
    """From cos θ or sin θ/θ, θ² = x."""
    theta = jnp.sqrt(x)
    closed = jnp.cos(theta) if k % 2 == 0 else jnp.sin(theta) / theta
    for i in range(k % 2, k, 2):
        closed = (1.0 / factorial(i) - closed) / x
    return closed


@stumpff.def_rule
def _stumpff_slope(out, primals, tangents):
    (k, x), (_, dx) = primals, tangents
    return 0.5 * (k * stumpff(k + 2, x) - stumpff(k + 1, x)) * dx


def half_cot(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """(1 − (θ/2) cot(θ/2))/θ² with x = θ², that is 1/12 + x/720 + …, written without cancellation."""
    return (0.5 * stumpff(3, x) - stumpff(4, x)) / stumpff(2, x)


def arctan(k: int, x: Float[Array, "..."], halvings: int = 3) -> Float[Array, "..."]:
    """a_k(x) = Σ_j (−x)^j / (2j + k), k = 1 or 3, for x ≥ 0; with x = θ²: a₁ = arctan θ/θ, a₃ = (1 − a₁)/x.

    The angle is halved until the series is short for any x: with c = 2/(1 + √(1 + x)) and y = x c²/4,
    a₁(x) = c a₁(y) and a₃(x) = (c²/4)(1 + c a₃(y)). Three times leave y < 0.04.
    """
    if halvings == 0:
        series = jnp.zeros_like(x)
        for j in reversed(range(12)):
            series = 1.0 / (2 * j + k) - x * series
        return series
    c = 2.0 / (1.0 + jnp.sqrt(1.0 + x))
    inner = arctan(k, 0.25 * x * c * c, halvings - 1)
    return c * inner if k == 1 else 0.25 * c * c * (1.0 + c * inner)
