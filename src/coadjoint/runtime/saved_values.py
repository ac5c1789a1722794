"""Functions of a member that a run evaluates when it saves: `save`, and `observe` of a reducer."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from stepcompiler.jaxprs.interning import Function, intern

from ..inputs import Use, recorded, uses
from ..integrators.base import Integrator
from ..numerics.modules import made
from ..numerics.signatures import SPECIAL, check_captured, check_signature, check_special, special_arguments
from ..params import whole
from ..systems import System


class MemberFunction(eqx.Module):
    """A traced function of a member. It may also have the arguments params and, by name, t, g and u."""

    function: Function
    params: bool = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)
    inputs: tuple[Use, ...] = eqx.field(default=(), static=True)  # functions of time whose times are known

    def __call__(self, *first: PyTree, params: PyTree, t: Any, g: PyTree = None, u: PyTree = None) -> PyTree:
        """The value, at time t."""
        given = {"t": t, "g": g, "u": u}
        return self.function(*first, *([params] if self.params else []), *(given[name] for name in self.names))


class Save(eqx.Module):
    """The values that a run saves of a member: the state or a function of it, and the group element if required."""

    function: MemberFunction | None
    group: bool = eqx.field(static=True)

    def receives(self, name: str) -> bool:
        """Whether the function has this argument."""
        return self.function is not None and name in self.function.names

    def raw(self, integrator: Integrator, mu: Any, carry: PyTree, held: tuple) -> tuple[Any, PyTree, PyTree]:
        """The state, the group element and the control, of which those are None that are not needed."""
        g = integrator.group(carry) if self.group or self.receives("g") else None
        return mu, g, held if self.receives("u") else None

    def value(self, system: System, raw: tuple, params: PyTree, t: Any) -> PyTree:
        """The value, at time t."""
        mu, g, held = raw
        if self.function is None:
            return mu
        return self.function(mu, params=params, t=t, g=g, u=None if held is None else system.control_value(held))


def more_arguments(
    name: str, fn: Callable, first: tuple[str, ...], has_params: bool, names: tuple[str, ...] = ("t",)
) -> tuple[bool, tuple[str, ...]]:
    """Return whether a user's function has the argument params, and its arguments by name. Others raise an error."""
    check_special(name, fn, first, names)
    last = special_arguments(fn, names)
    forms = [(*first, *last), *([(*first, "params", *last)] if has_params else [])]
    called = f"{name}({', '.join((*first, 'params'))})"
    hint = "" if has_params else f"The system has no params: give System(..., params=...) to use {called}."
    found = check_signature(name, fn, *forms, hint=hint)
    check_captured(name, fn)
    return "params" in found, last


def trace(
    name: str, system: System, fn: Callable[..., PyTree], takes: tuple[bool, tuple[str, ...]], shapes: Sequence
) -> MemberFunction:
    """Trace a function fn(*first, params, t, …); it receives params only if it has this argument."""
    params, names = takes
    inputs: list[Use] = []

    def call(*args: PyTree) -> PyTree:
        rest = list(args[len(shapes) :])
        given = [whole(rest.pop(0), system.fixed_params)] if params else []
        with recorded(rest[names.index("t")] if "t" in names else None) as found:
            out = fn(*args[: len(shapes)], *given, *rest)
        inputs.extend(uses(name, found))
        return out

    algebra, like = system.algebra, lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype)
    more = [jax.tree.map(like, system.params)] if params else []
    shape = {
        "t": lambda: jax.ShapeDtypeStruct((), jnp.float64),
        "g": lambda: jax.eval_shape(algebra.group_exp, jax.ShapeDtypeStruct(algebra.shape, algebra.dtype)),
        "u": lambda: jax.tree.map(like, system.control_zero),
    }
    function = intern(call, *shapes, *more, *(shape[name]() for name in names))
    return MemberFunction(function, params, names, tuple(dict.fromkeys(inputs)))


def trace_save(system: System, save: Any, stored: bool, group: bool, reduced: bool = False) -> Save:
    """The user's `save`; for a store with the state beside its value.

    The state of a system on T*G includes the group element. A store needs that for the energy.
    """
    group = group or (system.has_attitude and not reduced and (save is None or stored))
    if save is None:
        return made(Save, function=None, group=group)
    if not callable(save):
        raise TypeError(f"save must be a function of the state, not a {type(save).__name__}.")
    names = (*SPECIAL, "u") if system.laws else SPECIAL
    takes = more_arguments("save", save, ("mu",), system.params is not None, names)

    def call(mu: Any, *rest: PyTree) -> PyTree:
        value = save(mu, *rest)
        return (value, mu) if stored and not reduced else value

    shapes = [jax.ShapeDtypeStruct(system.algebra.shape, system.algebra.dtype)]
    return Save(trace("save", system, call, takes, shapes), group)
