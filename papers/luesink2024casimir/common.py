"""What the experiments share: medians and spreads in words, slopes with their errors, starting states."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import coadjoint as cj

from ..claims import Verdict

# The chord method of the paper and nothing else: a step it cannot solve raises.
PLAIN = cj.TMK(drift_free=False, fallbacks=False)  # the paper's update
DRIFT_FREE = cj.TMK(fallbacks=False)  # the library's
MIDPOINT = cj.ImplicitMidpoint(fallbacks=False)
TRAPEZOIDAL = cj.Trapezoidal(fallbacks=False)


def spread(x: Any, form: str = ".1e") -> str:
    """`median (least … largest)`, or just the number if there is one."""
    x = np.ravel(np.asarray(x, float))
    if len(x) == 1:
        return f"{x[0]:{form}}"
    return f"{np.median(x):{form}} ({x.min():{form}} … {x.max():{form}})"


def summary(x: Any) -> dict[str, float]:
    """Median, least and largest, for claims.json."""
    x = np.ravel(np.asarray(x, float))
    return {"median": float(np.median(x)), "least": float(x.min()), "largest": float(x.max())}


def verdict(holds: bool, condition: bool = False) -> Verdict:
    """The verdict on a claim that holds, or holds under a condition."""
    return Verdict.HOLDS if holds else Verdict.CONDITION if condition else Verdict.FAILS


def slope(x: Any, y: Any) -> float:
    """The exponent of y ~ x^slope by least squares."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def jackknife(statistic: Any, members: np.ndarray) -> tuple[float, float]:
    """A statistic of the members (first axis) and its standard error, leaving out one member at a time."""
    n = len(members)
    left_out = np.array([statistic(np.delete(members, k, axis=0)) for k in range(n)])
    return float(statistic(members)), float(np.sqrt((n - 1) / n * np.sum((left_out - left_out.mean()) ** 2)))


def top(p: Any, inertia: Sequence[float] | None = None, *, noise: bool = True) -> Any:
    """The heavy top of the parameters: system and starting state."""
    return cj.models.heavy_top(
        inertia=p.inertia if inertia is None else inertia,
        chi=p.chi,
        alpha=p.alpha if noise else None,
        pi0=np.sqrt(0.5) * np.array(p.pi0_times_sqrt2),
        gamma0=np.sqrt(0.5) * np.array(p.gamma0_times_sqrt2),
    )


def fluid(p: Any, key: int, members: int) -> tuple[Any, np.ndarray]:
    """The sine-Euler system and initial states with random complex coefficients, one per member."""
    models = [
        cj.models.sine_euler(
            n=p.n, noise_modes=p.noise_modes, amplitude=p.amplitude, key=(key << 20) + k, orientation="paper"
        )
        for k in range(members)
    ]
    return models[0][0], np.stack([np.asarray(W0) for _, W0 in models])


class Runs(NamedTuple):
    """Realisations: times, states and Casimirs (realisations, times, …), and the Casimirs' scaled signed errors."""

    t: np.ndarray
    mu: np.ndarray
    casimirs: np.ndarray
    errors: np.ndarray


def realise(system: Any, mu0: Any, members: int, key: int, **options: Any) -> Runs:
    """Realisations of a system, side by side if they are many, one after the other if they are few."""
    if members > 8:
        parts = [cj.ensemble(system, mu0, members=members, key=key, **options)]
        mu, casimirs, errors = parts[0].mu, parts[0].casimirs(), parts[0].casimir_errors()
    else:
        starts = np.broadcast_to(mu0, (members, *system.algebra.shape))
        parts = [cj.solve(system, start, key=(key << 20) + k, **options) for k, start in enumerate(starts)]
        mu, casimirs, errors = (
            np.stack(x) for x in zip(*((s.mu, s.casimirs(), s.casimir_errors()) for s in parts), strict=True)
        )
    return Runs(parts[0].t, mu, casimirs, np.sign(casimirs - casimirs[:, :1]) * errors)


def diag(inertia: Sequence[float]) -> str:
    """diag(4,4,1) and the like."""
    return f"diag({','.join(f'{x:g}' for x in inertia)})"
