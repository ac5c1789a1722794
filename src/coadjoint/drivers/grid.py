"""The base grid of a path that is drawn from a key: multiples of its spacing, and dyadic fractions."""

import numpy as np

from ..numerics import validation
from .base import Needs

MOST_LEVELS = 40  # below the grid


def check_depth(depth: int | None) -> int | None:
    """The depth, or an error that states the allowed values."""
    if depth is None:
        return None
    if validation.count("depth", depth, least=0) > MOST_LEVELS:
        raise ValueError(f"depth must be at most {MOST_LEVELS}, not {depth}.")
    return depth


def levels(grid: float | None, dt: float) -> tuple[int, int]:
    """(m, L): dt = m·grid/2^L with m = 1 or L = 0."""
    if grid is None:
        return 1, 0
    ratio = dt / grid
    nearest = round(ratio)
    if nearest >= 1 and abs(ratio - nearest) <= 1e-9 * nearest:
        return nearest, 0
    level = round(np.log2(1 / ratio))
    if 1 <= level <= MOST_LEVELS and abs(ratio * 2.0**level - 1) <= 1e-9:
        return 1, level
    raise ValueError(
        f"dt = {dt} does not fit grid = {grid}: dt must be a whole multiple of the grid, or grid/2, grid/4, …"
    )


def check_grid(name: str, grid: float | None, depth: int | None, steps: int, dt: float, needs: Needs) -> None:
    """Raise if dt is neither a multiple nor a dyadic fraction of the grid, or the path is not fine enough."""
    m, level = levels(grid, dt)
    if steps >= 2**62:
        raise ValueError(f"a run has at most 2^62 steps, not {steps}.")
    if needs.halvings and m > 1:
        raise ValueError(
            f"steps are halved from the grid down, so dt must be grid/2^k, k ≥ 0, but dt = {dt:g} is {m} times "
            f"grid = {grid:g}: take grid = {dt:g}."
        )
    below = level + needs.halvings
    if needs.integrals and depth is not None and depth < below:
        raise ValueError(
            "the method needs integrals of the path, which are sampled on its finest grid, "
            f"grid/2^depth = {(grid or dt) / 2**depth:g}, but its smallest step is "
            f"{dt / 2**needs.halvings:g}: give {name}(..., depth={below})."
        )
