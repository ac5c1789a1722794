"""Whether an array that a user passes as a group element acts as one."""

from functools import partial
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from .constants import structure_constants

if TYPE_CHECKING:
    from .base import LieAlgebra

GROUP_TOL = 1e-8  # of a group element that a user passes: smaller round-off is removed


def automorphism_error(algebra: "LieAlgebra", g: PyTree) -> str | None:
    """Whether Ad_g preserves brackets and Ad*_g Casimirs, as for every group element."""
    mu = np.random.default_rng(0).standard_normal(algebra.dim)
    A, before, after, scales = map(np.asarray, _moved(algebra, g, mu))
    C = structure_constants(algebra)
    wrong = np.abs(np.einsum("ijk,lk->ijl", C, A) - np.einsum("ai,bj,abl->ijl", A, A, C, optimize=True)).max(initial=0)
    if not wrong <= GROUP_TOL * max(1.0, np.abs(C).max(initial=0)) * np.abs(A).max() ** 2:
        return f"Ad_g does not keep brackets, [Ad_g ξ, Ad_g η] = Ad_g [ξ, η], but is off by {wrong:.3g}."
    moved = np.abs(after - before) / np.where(scales > 0, scales, 1.0)
    if not np.all(moved <= GROUP_TOL * np.abs(A).max() ** 4):
        return f"Ad*_g changes a Casimir, {algebra.casimir_names[int(np.argmax(moved))]}, by {moved.max():.3g}."
    return None


@partial(jax.jit, static_argnums=0)
def _moved(algebra: "LieAlgebra", g: PyTree, mu: Array) -> tuple[Array, Array, Array, Array]:
    """Ad_g, whose rows are Ad*_g e_k; the Casimirs of μ and of Ad*_g μ, and their scales."""
    act = jax.vmap(lambda x: algebra.coordinates(algebra.coadjoint(g, algebra.element(x))))
    A = act(jnp.eye(algebra.dim))
    before, after = (algebra.casimirs(algebra.element(x)) for x in (mu, mu @ A))
    return A, before, after, algebra.casimir_scales(algebra.element(mu))


def are_rotations(R: np.ndarray) -> bool:
    """Whether all of a stack of 3×3 matrices are rotations, by a quick test."""
    off = np.abs(R.swapaxes(1, 2) @ R - np.eye(3)).max(initial=0.0)
    return bool(off <= GROUP_TOL and np.all(np.einsum("ki,ki->k", np.cross(R[:, 0], R[:, 1]), R[:, 2]) > 0))


def rotation_error(R: np.ndarray, name: str = "it") -> str | None:
    """Whether a 3×3 matrix is a rotation."""
    off = np.abs(R.T @ R - np.eye(3)).max()
    if not off <= GROUP_TOL:
        return f"{name} is not orthogonal: RᵀR is off the identity by {off:.3g}."
    return None if np.linalg.det(R) > 0 else f"{name} is a reflection: its determinant is −1."
