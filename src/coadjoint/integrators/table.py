"""The table of integrators, made from their claims."""

from collections.abc import Iterable

from .base import Claims, Integrator

_HEAD = (
    "integrator",
    "order",
    "strong, one or commuting SALT noises",
    "strong, any SALT noises",
    "Casimirs",
    "energy without noise",
    "symplectic",
    "symmetric",
    "explicit",
)


def claims_table(integrators: Iterable[type[Integrator]]) -> str:
    """A Markdown table with a row for each integrator."""
    rows = [_HEAD, tuple("---" for _ in _HEAD), *(_row(i.__name__, i.claims) for i in integrators)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def _row(name: str, c: Claims) -> tuple[str, ...]:
    def yes(flag: bool) -> str:
        return "yes" if flag else "–"

    return (
        f"`{name}`",
        str(c.order),
        f"{c.strong_commuting:g}",
        f"{c.strong:g}",
        yes(c.casimirs),
        {"": "–", "quadratic": "if h is quadratic", "any": "yes"}[c.energy],
        yes(c.symplectic),
        yes(c.symmetric),
        yes(c.explicit),
    )
