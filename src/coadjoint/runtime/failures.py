"""The message of a run with steps that could not be solved."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..integrators.base import GroupMethod
from ..integrators.jump_adapted import user_method
from ..numerics import validation
from ..stabilisers import is_reducible
from ..systems import System
from .plan import Plan
from .stats import Stats

_MEMBERS = 64  # initial states that are checked


def unsolved_message(plan: Plan, stats: Stats, members: int) -> str:
    """The number of failed steps, the criterion, and the fix."""
    where = "" if plan.members is None else f" (over {members} members)"
    fix = "or throw=False to continue regardless; this error's `solution` contains the steps computed."
    return f"{failed_steps(plan, stats, where)}, {fix}"


def failed_steps(plan: Plan, stats: Stats, where: str = "") -> str:
    """The number of failed steps, and the criterion."""
    method, first = plan.integrator, int(stats.first_unsolved)
    what = "failed" if method.claims.explicit else "could not be solved"
    if validation.is_traced((plan.t0, plan.dt)):
        return f"{stats.unsolved} of {stats.steps} steps {what}{where}, first at step {first}: take a smaller dt"
    why = method.failure(float(plan.dt), float(stats.residual), _size_of_sigma(plan))
    if not method.claims.explicit:
        why += _other_gradient(plan)
    time = float(plan.t0) + first * float(plan.dt)
    return f"{stats.unsolved} of {stats.steps} steps {what}{where}, first at step {first} (t = {time:g}): {why}"


def _other_gradient(plan: Plan) -> str:
    """The advice to try the other gradient in a product: the end of a sentence."""
    method, system = user_method(plan.integrator), plan.system
    chosen = getattr(method, "remove_stabiliser", False)
    if not system.is_sum or chosen is False or not is_reducible(system) or system.has_torque:
        return ""
    if chosen:
        return ", or leave out remove_stabiliser=True"
    if (
        not isinstance(method, GroupMethod)
        or not method.removes_stabiliser(system)
        or validation.is_traced((system, plan.mu0))
    ):
        return ""
    first = jnp.asarray(plan.mu0)[0] if plan.mu0_by_member else jnp.asarray(plan.mu0)
    used = bool(np.all(np.asarray(system.anywhere(plan.t0).reduction_weights(first))))
    return f", or try remove_stabiliser={not used}; the initial state has selected {used}"


def _size_of_sigma(plan: Plan) -> float:
    """The largest dt |∂h + g| of the initial states; NaN if they are traced, or functions have an argument g or u."""
    if validation.is_traced((plan.system, plan.mu0)) or plan.system.received & {"g", "u"}:
        return float("nan")
    system: System = plan.system.at(plan.t0)
    states = jnp.asarray(plan.mu0)[:_MEMBERS] if plan.mu0_by_member else jnp.asarray(plan.mu0)[None]

    def size(mu: Any) -> Any:
        x = jnp.abs(system.energy_gradient(mu) + system.force(mu))
        largest = jnp.max(x)  # whose square may be too large
        return jnp.where(largest > 0, largest * jnp.sqrt(jnp.sum((x / largest) ** 2)), 0.0)

    return float(plan.dt) * float(np.max(np.asarray(jax.jit(jax.vmap(size))(states))))
