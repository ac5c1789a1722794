"""Which method for a system: the claims of all methods, read for that system."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..drivers import Driver, Increments
from ..numerics import validation
from ..systems import System
from .base import Claims, Integrator, check_action
from .implicit import CHORD
from .split_terms import energy_parts, noise_parts
from .tau import Cayley

_ITERATIONS = 5, 10  # of an implicit step, typically: by the chord method; by fixed-point iteration in large algebras
_MANY = 16  # noises, whose pairs are many
_DEGREES = {"quadratic": 2, "polynomial": 6}  # kinds of energies, and the degree up to which they are looked for
_HIGH = 4  # an order above which paths are not ranked by it
_PAIRS = "areas", "log-signature"  # of a path: a number for each pair of noises
_GOALS = "paths", "statistics", "long time"
_KEEPS = {"quadratic": ("quadratic", "polynomial", "any"), "polynomial": ("polynomial", "any"), "any": ("any",)}


@dataclass(frozen=True)
class Row:
    """The claims of a method for one system."""

    name: str
    integrator: Integrator
    order: float | None  # without noise; along a driver that is no Brownian motion the order along its paths
    strong: float | None  # with the noise of the system, if it has any and it is white
    weak: float | None  # the same
    conserves: tuple[str, ...]  # the energy and time symmetry without noise
    path: str  # the integrals of the path that it needs besides increments
    actions: int  # a step; of an implicit one with a typical number of iterations
    gradients: int

    @property
    def merits(self) -> tuple:
        """What can be compared: a row whose every entry is at least as large as another's is at least as good."""
        easy = self.path == "", self.integrator.claims.explicit
        order = self.integrator.claims.order if self.order is None else self.order
        orders = self.strong or 0.0, self.weak or 0.0, order
        return *orders, frozenset(self.conserves), *easy, -self.actions, -self.gradients


class Recommendation(tuple[Row, ...]):
    """Ranked methods for a system, best first. Printed, it is a table.

    `recommendation[0].integrator` is the first choice.

    Parameters
    ----------
    rows : list of Row
        One row per method.
    system : str
        The system and the goal, in words.
    unsupported : dict
        The reasons why other methods do not support the system.
    """

    system: str
    unsupported: Mapping[str, str]

    def __new__(cls, rows: list[Row], system: str, unsupported: Mapping[str, str]) -> "Recommendation":
        """A tuple of rows."""
        self = super().__new__(cls, rows)
        self.system, self.unsupported = system, unsupported
        return self

    def __repr__(self) -> str:
        """The table as text."""
        noisy = any(row.strong is not None for row in self)
        cells = [("", "integrator", "order", "strong", "weak", "conserves", "path", "flows, gradients")]
        for k, row in enumerate(self, 1):
            about = "about " if row.integrator.claims.cost.each == "iteration" else ""
            cost = f"{about}{row.actions}, {row.gradients}"
            orders = "–" if row.order is None else f"{row.order:g}", f"{row.strong or 0:g}", f"{row.weak or 0:g}"
            cells.append((f"{k}.", row.name, *orders, ", ".join(row.conserves) or "–", row.path, cost))
        driven = any(row.path for row in self)
        left_out = () if noisy else ("strong", "weak") if driven else ("strong", "weak", "path")
        columns = [c for c in zip(*cells, strict=True) if c[0] not in left_out]
        lines = zip(*([x.ljust(max(map(len, c))) for x in c] for c in columns), strict=True)
        reasons: dict[str, list[str]] = {}
        for name, reason in self.unsupported.items():
            reasons.setdefault(reason.split(": ")[0], []).append(name)
        unfit = [f"Not {', '.join(names)}: {reason}." for reason, names in reasons.items()]
        return "\n".join([self.system, *("  ".join(line).rstrip() for line in lines), *unfit])


def recommend(
    system: System, goal: Literal["paths", "statistics", "long time"] = "paths", *, driver: Driver | None = None
) -> Recommendation:
    """Rank the methods of the library for a system and a goal, by their claims.

    Example:

        print(cj.recommend(system))
        cj.solve(system, mu0, t1=1.0, dt=0.01, integrator=cj.recommend(system)[0].integrator)

    The list contains methods that conserve every Casimir. A method that another one equals or exceeds in every respect
    is left out. The criteria, in order:

    - "paths": strong order with the noise of the system, order without noise, number of invariants, cost. Methods that
      need integrals of many noises, a number for each pair, come last.
    - "statistics": weak order, order without noise, cost. Methods that need a number for each pair of noises come last.
    - "long time": Poisson maps, conserved energy, time symmetry, order, cost.

    Parameters
    ----------
    system : System
        The system.
    goal : {"paths", "statistics", "long time"}, default "paths"
        Accurate trajectories, accurate means, or conserved structure.
    driver : Driver, optional
        The driver of the noises. The orders are those along its paths. None stands for Brownian motion.

    Returns
    -------
    Recommendation
    """  # fmt: skip
    from . import ALL, SPECIAL

    if not isinstance(system, System):
        raise TypeError(f"system must be a System, not {type(system).__name__}.")
    validation.choice("goal", goal, _GOALS)
    _check_driver(system, driver)
    energy = _energy_kind(system)
    rows, unsupported = [], {}
    matrices = (
        system.algebra.conjugated_shape is not None or len(system.algebra.shape) > 1
    )  # where a Cayley transform is half the work of an exponential
    known = ALL | SPECIAL
    for name in sorted(known, key=lambda n: not (matrices and isinstance(getattr(known[n], "tau", None), Cayley))):
        integrator = known[name]
        try:
            integrator.check(system.anywhere(0.0))
            check_action(system, integrator)
            if driver is not None:
                _check_path(driver, system, integrator)
        except (TypeError, ValueError) as error:
            if name in ALL:  # that the others are for particular systems is no news
                unsupported[name] = str(error)
            continue
        if integrator.claims.casimirs:
            rows.append(_row(name, integrator, system, energy, driver))
    rows = [row for k, row in enumerate(rows) if not any(_equals(a, row, j < k) for j, a in enumerate(rows) if j != k)]
    many = system.n_noise > _MANY

    def rank(r: Row) -> tuple:
        cost = r.actions + r.gradients
        if goal == "statistics":
            return r.path in _PAIRS, -(r.weak or 0), -min(r.order or 0, 2), cost
        if goal == "long time":
            kept = [what not in r.conserves for what in ("Poisson structure", "energy", "time symmetry")]
            return many and r.path in _PAIRS, *kept, -min(r.order or 0, 2), cost
        high = min(r.order or 0, _HIGH)
        price = cost if high > 2 else 0  # of accurate methods the cheapest comes first
        return many and r.path not in ("", "Rademacher"), -(r.strong or 0), -high, price, -len(r.conserves), cost

    aim = "a long time" if goal == "long time" else goal
    along = "" if driver is None else f" along {type(driver).__name__}"
    return Recommendation(sorted(rows, key=rank), f"{_words(system, energy)} for {aim}{along}:", unsupported)


def _check_driver(system: System, driver: Any) -> None:
    """Raise if the driver is none, or if the system has no noise."""
    if driver is None:
        return
    if not isinstance(driver, Driver):
        raise TypeError(f"driver must be a driver such as Increments(dS), not {type(driver).__name__}.")
    if not system.n_noise:
        raise ValueError("driver needs a system with noise, but this one has none.")


def _check_path(driver: Driver, system: System, integrator: Integrator) -> None:
    """Raise if the driver lacks a quantity that the method needs."""
    bound = driver.bound(system.n_noise)
    steps = bound.dS.shape[-2] if isinstance(bound, Increments) else 1
    bound.check(system.n_noise, steps, getattr(bound, "grid", None) or 1.0, integrator.needs(system))


def _equals(a: Row, b: Row, before: bool) -> bool:
    """Whether a is at least as good as b in all, and better in something or listed before it."""
    return all(x >= y for x, y in zip(a.merits, b.merits, strict=True)) and (before or a.merits != b.merits)


def _row(name: str, integrator: Integrator, system: System, energy: str, driver: Driver | None) -> Row:
    c, needs = integrator.claims, integrator.needs(system)
    strong = weak = None
    order: float | None = c.order
    if system.n_noise:
        commute = system.commuting or system.n_noise == 1
        strong = c.strong_commuting if commute else c.strong
        weak = max(c.weak, c.weak_commuting) if commute else c.weak
        if driver is not None and driver.effective_order(c.order, -1.0).order != -1.0:  # no part of it is white
            order, strong, weak = driver.effective_order(c.order, strong).order, None, None
    kept = {
        "Casimirs": c.casimirs and not system.leaves_orbit,
        "energy": c.energy in _KEEPS[energy] and not (system.forces or system.timed or system.leaves_orbit),
        "momenta": c.momentum and not (system.forces or system.leaves_orbit),
        "Poisson structure": c.symplectic and not (system.forces or system.leaves_orbit),
        "time symmetry": c.symmetric,
    }
    asked = {"log-signature": needs.third, "areas": needs.areas, "ΔZ": needs.Z, "Rademacher": needs.signs}
    path = next((what for what, yes in asked.items() if yes), "")
    times = _times(c, system)
    return Row(
        name,
        integrator,
        order,
        strong,
        weak,
        tuple(k for k, yes in kept.items() if yes),
        path,
        c.cost.flows + times * c.cost.flows_each,
        c.cost.gradients + times * c.cost.gradients_each,
    )


def _times(c: Claims, system: System) -> int:
    """How many iterations, parts or noises a step has."""
    if c.cost.each == "part":
        return len(energy_parts(system)) + len(noise_parts(system, jnp.ones(system.n_noise)))
    if c.cost.each == "noise":
        return sum(len(n.groups) for n in system.noises)
    chord, fixed_point = _ITERATIONS
    return 0 if not c.cost.each else chord if system.algebra.dim <= CHORD else fixed_point


def _energy_kind(system: System) -> str:
    """What kind of function h is along random lines: differences of order d + 1 vanish for degree d."""
    for kind, degree in _DEGREES.items():
        values = np.asarray(_along_lines(system, degree + 2))
        if np.max(np.abs(np.diff(values, degree + 1))) <= 1e-10 * (1.0 + np.max(np.abs(values))):
            return kind
    return "any"


@eqx.filter_jit
def _along_lines(system: System, points: int) -> Float[Array, "lines points"]:
    """h at equidistant points of a few lines of length one."""
    algebra = system.algebra
    starts, ways = (jnp.asarray(x) for x in np.random.default_rng(0).standard_normal((2, 4, algebra.dim)))

    def value(start: Array, way: Array, t: Array) -> Array:
        return system.anywhere(0.0).energy(algebra.element(start + t * way))

    return jax.vmap(lambda a, b: jax.vmap(lambda t: value(a, b, t))(jnp.linspace(0.0, 1.0, points)))(starts, ways)


def _words(system: System, energy: str) -> str:
    """The system in a line."""
    M = system.n_noise
    kind = "SALT" if system.additive else "nonlinear"
    commute = "" if M == 1 or not system.additive else " that commute" if system.commuting else " that do not commute"
    noise = "no noise" if M == 0 else f"{M} {kind} noise{'s' if M > 1 else ''}{commute}"
    h = {"any": "no polynomial"}.get(energy, energy)
    forcing = (" forcing;" if system.forces else "") + (" torque;" if system.torques else "")
    timed = " and of time" if system.timed else ""
    return f"{type(system.algebra).__name__}, dimension {system.algebra.dim}; h {h}{timed};{forcing} {noise};"
