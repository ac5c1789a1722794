"""The table of integrators, made from their claims."""

from collections.abc import Mapping

from .base import Claims, Integrator

_HEAD = (
    "integrator",
    "order",
    "strong, one or commuting SALT noises",
    "strong, any SALT noises",
    "weak",
    "Casimirs",
    "energy without noise",
    "linear momenta",
    "symplectic",
    "symmetric",
    "explicit",
    "actions per step",
    "gradients per step",
)


def claims_table(integrators: Mapping[str, Integrator]) -> str:
    """A Markdown table with a row for each integrator."""
    rows = [_HEAD, tuple("---" for _ in _HEAD), *(_row(name, i.claims) for name, i in integrators.items())]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def cost_words(once: int, more: int, each: str) -> str:
    """A number a step, and more for each iteration, part or noise: 1 + 2/iteration, 2/part − 1."""
    if not more:
        return str(once)
    return f"{once} + {more}/{each}" if once > 0 else f"{more}/{each}" + (f" − {-once}" if once else "")


def _row(name: str, c: Claims) -> tuple[str, ...]:
    def yes(flag: bool) -> str:
        return "yes" if flag else "–"

    def order(value: float) -> str:
        return f"{value:g}" if value else "–"

    return (
        f"`{name}`",
        str(c.order),
        order(c.strong_commuting),
        order(c.strong),
        order(c.weak) + (f", {c.weak_commuting:g} if they commute" if c.weak_commuting > c.weak else ""),
        yes(c.casimirs),
        {"": "–", "quadratic": "if h is quadratic", "polynomial": "if h is polynomial", "any": "yes"}[c.energy],
        yes(c.momentum),
        yes(c.symplectic),
        yes(c.symmetric),
        yes(c.explicit),
        cost_words(c.cost.flows, c.cost.flows_each, c.cost.each),
        cost_words(c.cost.gradients, c.cost.gradients_each, c.cost.each),
    )
