"""Parameters that differ between the members of an ensemble."""

from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, PyTree

from ..numerics import validation
from ..systems import System

_STATES = 1024  # states whose energies one call computes


def params_of(params: PyTree, axes: PyTree, member: np.ndarray | int) -> PyTree:
    """Return the parameters of the given members; `axes` is 0 for leaves that have an axis of members."""

    def own(x: Any) -> Any:
        """Index with NumPy, which compiles nothing, unless JAX is tracing."""
        return x[member] if validation.is_traced((x, member)) else np.asarray(np.asarray(x)[member])

    return jax.tree.map(lambda x, a: own(x) if a == 0 else x, params, axes)


def with_params(system: System, params: PyTree) -> System:
    """Return the system with other parameters, which have been checked."""
    return system.given(params)


@eqx.filter_jit
def energy_of_states(system: System, params: PyTree, axes: PyTree, mu: Array, t: Any, g: PyTree = None) -> Array:
    """Return h of each state at its time and group element; with `axes`, the parameters differ between states."""
    if axes is None:
        return jax.vmap(lambda m, t, g: system.anywhere(t, g).energy(m))(mu, t, g)
    one = lambda p, m, t, g: with_params(system, p).anywhere(t, g).energy(m)
    return jax.vmap(one, in_axes=(axes, 0, 0, 0))(params, mu, t, g)


def energy_of_members(system: System, params: PyTree, axes: PyTree, mu: Any, t: Any, g: PyTree = None) -> Any:
    """Return h of each member at its saved times t, in chunks of fixed shape, so that one program serves all."""
    if validation.is_traced((system, params, mu, g)):
        of_member = lambda p, states, own: energy_of_states(
            system if axes is None else with_params(system, p), None, None, states, t, own
        )
        return jax.vmap(of_member, in_axes=(axes, 0, 0))(params, mu, g)
    members, times = mu.shape[:2]
    rows = np.arange(members * times + -(members * times) % _STATES).clip(max=members * times - 1)
    parts = []
    for at in rows.reshape(-1, _STATES):
        member, time = at // times, at % times
        own = None if axes is None else params_of(params, axes, member)
        turned = jax.tree.map(lambda x, member=member, time=time: x[member, time], g)
        parts.append(np.asarray(energy_of_states(system, own, axes, mu[member, time], np.asarray(t)[time], turned)))
    return np.concatenate(parts)[: members * times].reshape(members, times)
