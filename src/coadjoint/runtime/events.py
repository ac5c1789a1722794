"""Events: the argument `until` of runs, and the times and states at which members have stopped."""

from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from ..integrators.base import Integrator
from ..integrators.until import Until
from ..numerics import validation
from ..numerics.signatures import SPECIAL, described
from ..systems import System
from .run_state import StepState, initial_state
from .saved_values import MemberFunction, more_arguments, trace

if TYPE_CHECKING:
    from .plan import Plan


class Events(NamedTuple):
    """The event of a trajectory, or of each member: its time and the state there, NaN where there was none."""

    time: Any
    state: Any


def with_event(system: System, integrator: Integrator, until: Any, direction: Any) -> Integrator:
    """The method up to the event, or as it is without `until`."""
    validation.choice("direction", direction, ("both", "up", "down"))
    if until is None:
        if direction != "both":
            raise ValueError(f'direction="{direction}" is that of an event: give until= the function that vanishes.')
        return integrator
    return Until(integrator, _traced(system, until), direction)


def _traced(system: System, until: Any) -> MemberFunction:
    """The user's function, which returns one real number."""
    if not callable(until):
        raise TypeError(f"until must be a function of the state, not {described(until)}.")
    names = (*SPECIAL, "u") if system.laws else SPECIAL
    takes = more_arguments("until", until, ("mu",), system.params is not None, names)
    state = jax.ShapeDtypeStruct(system.algebra.shape, system.algebra.dtype)
    call = lambda *args: _number(until(*args))
    return trace("until", system, call, takes, [state])


def _number(value: Any) -> Array:
    """The value of the function as a float, or an error."""
    leaves = jax.tree.leaves(value)
    if len(leaves) != 1 or leaves[0] is not value or jnp.shape(value) != ():
        got = f"shape {jnp.shape(value)}" if len(leaves) == 1 and leaves[0] is value else described(value)
        raise ValueError(f"until must return one real number, not {got}.")
    kind = jnp.result_type(value)
    if not (jnp.issubdtype(kind, jnp.floating) or jnp.issubdtype(kind, jnp.integer)):
        raise ValueError(f"until must return a real number that changes its sign at the event, not one of type {kind}.")
    return jnp.asarray(value, float)


def check_start(plan: "Plan") -> None:
    """Raise if the function is not finite at an initial state."""
    if not isinstance(plan.integrator, Until) or plan.traced:
        return
    axes = 0 if plan.mu0_by_member else None, 0 if plan.g0_by_member else None, plan.axes
    about = plan.system, plan.integrator, plan.follows_group, plan.time_grid.t0
    params = plan.params if plan.axes is not None else None
    values = np.atleast_1d(np.asarray(_values(*about, axes, plan.mu0, plan.g0, params)))
    if np.all(np.isfinite(values)):
        return
    k = int(np.argmax(~np.isfinite(values)))
    which = f" of member {k}" if values.size > 1 else ""
    raise ValueError(f"until must be finite, but it returns {values[k]} at the initial state{which}.")


@eqx.filter_jit
def _values(
    system: System, integrator: Until, group: bool, t0: Any, axes: tuple, mu0: Array, g0: PyTree, params: PyTree
) -> Array:
    def one(mu: Array, g0: PyTree, params: PyTree) -> Array:
        own = system if params is None else system.given(params)
        return initial_state(own, integrator, mu, t0, group, g0).carry.value

    alike = not any(a == 0 for a in jax.tree.leaves(axes))
    return one(mu0, g0, params) if alike else jax.vmap(one, in_axes=axes)(mu0, g0, params)


def events_of(plan: "Plan", points: StepState) -> Events | None:
    """The events up to some step states, with or without an axis of members; None for runs without `until`."""
    if not isinstance(plan.integrator, Until):
        return None
    xp: Any = jnp if validation.is_traced(points) else np
    time, mu = xp.asarray(points.carry.time), xp.asarray(points.mu)
    never = xp.isnan(time).reshape(*time.shape, *(1,) * (mu.ndim - time.ndim))
    return Events(time, xp.where(never, xp.nan, mu))


def joined(parts: list[Events | None], counts: list[int], plan: "Plan") -> Events | None:
    """The events of all members from those of batches, which are None where a batch could not be computed."""
    if not isinstance(plan.integrator, Until):
        return None
    algebra = plan.system.algebra
    lost = lambda n: Events(np.full(n, np.nan), np.full((n, *algebra.shape), np.nan, algebra.dtype))
    whole = [lost(n) if x is None else x for x, n in zip(parts, counts, strict=True)]
    events = Events(*(np.concatenate(x) for x in zip(*whole, strict=True)))
    return Events(*(x[0] for x in events)) if plan.members is None else events
