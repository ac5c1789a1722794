"""The state of the members of a batch while it runs: iterations, residuals, errors of Casimirs."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from stepcompiler.jaxprs.interning import Constant

from ..algebras.base import LieAlgebra
from ..numerics.scaled_errors import scaled_errors
from .lapack_lock import exclusive_xla, uses_lapack
from .multiprocess import is_multiprocess
from .plan import Plan
from .run_state import StepState


class Health(NamedTuple):
    """The state of the members of a batch."""

    iterations: float  # per step
    residual: float  # the worst so far
    casimir_error: float | None  # scaled, of the worst member
    unsolved: int


NOTHING = Health(0.0, 0.0, None, 0)


def health_of(plan: Plan, points: StepState, mu0: Array) -> Health:
    """The state of the members of a batch."""
    totals = jax.tree.map(np.asarray, points.totals)
    steps = max(float(np.mean(totals.substeps)), 1.0)
    return Health(
        float(np.mean(totals.iterations)) / steps,
        float(np.max(totals.residual)),
        None if is_multiprocess(plan) or plan.system.leaves_orbit else casimir_error(plan, points.mu, mu0),
        int(np.sum(totals.unsolved)),
    )


def casimir_error(plan: Plan, mu: Array, mu0: Array) -> float | None:
    """The largest scaled |C(μ) − C(μ₀)| over Casimirs and members; None without known Casimirs.

    If only some Casimirs are known, the result is the distance from the orbit.
    """
    algebra = plan.system.algebra
    if not algebra.casimir_names and not algebra.watches_orbit:
        return None
    rows = [jnp.asarray(x).reshape(-1, *algebra.shape) for x in (mu, mu0)]
    with exclusive_xla(
        uses_lapack(lambda mu: _error(algebra, mu, mu), jax.ShapeDtypeStruct(algebra.shape, algebra.dtype))
    ):
        return float(np.max(np.asarray(_errors(Constant(algebra), *rows))))


@eqx.filter_jit
def _errors(algebra: Constant, mu: Array, mu0: Array) -> Array:
    return jax.vmap(lambda a, b: _error(algebra.value, a, b))(mu, mu0)


def _error(algebra: LieAlgebra, mu: Array, start: Array) -> Array:
    if algebra.watches_orbit:
        return algebra.orbit_error(mu, start)
    return scaled_errors(algebra.casimirs(mu), algebra.casimirs(start), algebra.casimir_scales(start))
