"""The structure constants of any algebra."""

from functools import lru_cache
from typing import TYPE_CHECKING

import jax
import numpy as np
from jaxtyping import Array

from stepcompiler.device_arrays import compile_and_run

if TYPE_CHECKING:
    from .base import LieAlgebra


@lru_cache(maxsize=256)
def structure_constants(algebra: "LieAlgebra") -> np.ndarray:
    """C with [e_i, e_j] = Σ_k C[i, j, k] e_k, from the bracket."""

    def bracket(a: Array, b: Array) -> Array:
        return algebra.coordinates(algebra.bracket(algebra.element(a), algebra.element(b)))

    basis = np.eye(algebra.dim)
    table = jax.vmap(jax.vmap(bracket, (None, 0)), (0, None))
    return np.array(compile_and_run(table, basis, basis), dtype=np.float64)


@lru_cache(maxsize=64)
def commuting_blocks(algebra: "LieAlgebra") -> tuple[np.ndarray, ...]:
    """A partition of the coordinates into blocks whose basis elements commute: each goes to the first block it fits."""
    commute = ~np.any(structure_constants(algebra), axis=2)
    blocks: list[list[int]] = []
    for i in range(algebra.dim):
        block = next((b for b in blocks if commute[i, b].all()), None)
        if block is None:
            blocks.append([i])
        else:
            block.append(i)
    return tuple(np.isin(np.arange(algebra.dim), b).astype(float) for b in blocks)
