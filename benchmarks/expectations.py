"""The cost of multilevel Monte Carlo beside plain Monte Carlo, by tolerance.

    python benchmarks/expectations.py

The mean is that of isotropic diffusion of a spin, E m_z = e⁻¹, whose noises do not commute (antithetic twins). The cost
is the number of time steps of all runs. The cost of plain Monte Carlo follows from the measured variance and bias, for
the same standard error. Results go to benchmarks/results/expectations.json, the figure to docs/_static/stories.
"""

import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import coadjoint as cj

HERE = Path(__file__).parent
RESULTS, FIGURES = HERE / "results" / "expectations.json", HERE.parent / "docs" / "_static" / "stories"
SIGMA = 0.8
TOLERANCES = [1e-2, 3e-3, 1e-3, 3e-4]


def measure() -> list[dict]:
    """Costs and errors by tolerance."""
    system = cj.System(cj.SO3(), lambda m: 0.0 * m[0], [cj.salt(SIGMA * np.eye(3))])
    t1, rows, found = 1 / SIGMA**2, [], None
    for tolerance in TOLERANCES:
        options = {"t1": t1, "dt": t1 / 4, "tolerance": tolerance, "key": 5}
        found = cj.expectation(system, [0.0, 0.0, 1.0], lambda m: m[2], resume=found, **options)
        rows.append({
            "tolerance": tolerance, "error": float(abs(found.value - np.exp(-1.0))), "half_width": found.half_width,
            "steps": found.cost, "steps of plain Monte Carlo": found.plain_cost, "rate": found.rate,
            "levels": len(found.levels),
        })  # fmt: skip
        print(rows[-1], flush=True)
    return rows


def draw(rows: list[dict]) -> None:
    """Cost by tolerance, multilevel and plain."""
    fig, ax = plt.subplots(figsize=(4.5, 3.2), layout="constrained")
    x = [row["tolerance"] for row in rows]
    for column, line, label in (("steps", "o-", "multilevel"), ("steps of plain Monte Carlo", "s--", "plain")):
        ax.loglog(x, [row[column] for row in rows], line, label=f"{label} Monte Carlo")
    ax.set(xlabel="tolerance", ylabel="time steps", title="isotropic diffusion, $E\\,m_z = e^{-1}$")
    ax.legend()
    fig.savefig(FIGURES / "expectation_cost.png", dpi=150)


if __name__ == "__main__":
    found = measure()
    draw(found)
    RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
