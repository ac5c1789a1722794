"""Coefficients of symmetric compositions of symmetric methods, and the conditions for their order."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..numerics import validation

_ROUND_OFF = 1e-12  # up to which an order condition counts as met


def _mirrored(*half: float) -> tuple[float, ...]:
    """γ_1 … γ_k, the middle coefficient that makes the sum 1, γ_k … γ_1."""
    return (*half, 1.0 - 2.0 * sum(half), *half[::-1])


def _suzuki(order: int) -> tuple[float, ...]:
    """Suzuki's fractal: five copies of the scheme of order − 2, of lengths p, p, 1 − 4p, p, p."""
    if order == 2:
        return (1.0,)
    p = 1.0 / (4.0 - 4.0 ** (1.0 / (order - 1)))
    return tuple(c * x for c in (p, p, 1.0 - 4.0 * p, p, p) for x in _suzuki(order - 2))


SCHEMES: dict[str, tuple[float, ...]] = {
    "suzuki4": _suzuki(4),
    "suzuki6": _suzuki(6),
    "yoshida4": _mirrored(1.0 / (2.0 - 2.0 ** (1.0 / 3.0))),
    "yoshida6": _mirrored(0.78451361047755726381949763, 0.23557321335935813368479318, -1.17767998417887100694641568),
    "yoshida8": _mirrored(
        0.74167036435061295344822780, -0.40910082580003159399730010, 0.19075471029623837995387626,
        -0.57386247111608226665638773, 0.29906418130365592384446354, 0.33462491824529818378495798,
        0.31529309239676659663205666,
    ),
    "mclachlan4": _mirrored(0.28, 0.62546642846767004501),
    "kahan-li6": _mirrored(
        0.39216144400731413927925056, 0.33259913678935943859974864, -0.70624617255763935980996482,
        0.08221359629355080023149045,
    ),
    "kahan-li8": _mirrored(
        0.13020248308889008087881763, 0.56116298177510838456196441, -0.38947496264484728640807860,
        0.15884190655515560089621075, -0.39590389413323757733623154, 0.18453964097831570709183254,
        0.25837438768632204729397911, 0.29501172360931029887096624,
    ),
}  # fmt: skip


def get_scheme(scheme: Any) -> tuple[float, ...]:
    """The coefficients of a scheme that is given by name or by its coefficients."""
    if isinstance(scheme, str):
        return SCHEMES[validation.choice("scheme", scheme, tuple(SCHEMES))]
    values = np.asarray(validation.numbers("scheme", scheme, "coefficients of a composition", "fiu"), float)
    if values.ndim != 1 or not values.size or not np.all(np.isfinite(values)):
        raise ValueError(f"scheme must be one of {', '.join(SCHEMES)}, or a sequence of coefficients, not {scheme!r}.")
    if np.max(np.abs(values - values[::-1])) > _ROUND_OFF:
        raise ValueError(f"scheme must be symmetric, so that its last coefficient is its first one, not {scheme!r}.")
    if abs(values.sum() - 1.0) > _ROUND_OFF:
        raise ValueError(f"scheme must have coefficients that add up to 1, not to {values.sum():.12g}.")
    return tuple(values.tolist())


def order_of(scheme: Sequence[float]) -> int:
    """The order of a symmetric composition of a symmetric method of order 2: 2, 4, 6 or 8.

    With s_k = Σ_{j<k} γ_j + ½ γ_k and u_k = Σ_{j<k} γ_j³ + ½ γ_k³ the conditions are (Hairer, Lubich and Wanner, V.3.2)

        order 4:   Σ γ_k³ = 0,
        order 6:   Σ γ_k⁵ = 0,   Σ γ_k³ s_k² = 0,
        order 8:   Σ γ_k⁷ = 0,   Σ γ_k⁵ s_k² = 0,   Σ γ_k³ s_k u_k = 0,   Σ γ_k³ s_k⁴ = 0.
    """  # fmt: skip
    g = np.array(scheme)
    s, u = (np.cumsum(x) - 0.5 * x for x in (g, g**3))
    conditions = [[g**3], [g**5, g**3 * s**2], [g**7, g**5 * s**2, g**3 * s * u, g**3 * s**4]]
    order = 2
    for terms in conditions:
        if any(abs(x.sum()) > _ROUND_OFF * max(1.0, np.abs(x).sum()) for x in terms):
            break
        order += 2
    return order


def leaves_the_step(scheme: Sequence[float]) -> bool:
    """Whether a part begins or ends outside the interval of the step."""
    ends = np.cumsum(scheme)
    return bool(np.any(ends < -_ROUND_OFF) or np.any(ends > 1.0 + _ROUND_OFF))
