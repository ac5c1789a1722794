"""Functions of a member that a run evaluates when it saves: `save`, and `observe` of a reducer."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from stepcompiler.jaxprs.interning import Function, intern

from ..numerics.signatures import check_captured, check_signature, check_time, takes_time
from ..params import whole
from ..systems import System


class MemberFunction(eqx.Module):
    """A traced function of a member, which may also take the member's params and the time."""

    function: Function
    params: bool = eqx.field(static=True)
    time: bool = eqx.field(static=True)

    def __call__(self, *first: PyTree, params: PyTree, t: Any) -> PyTree:
        """The value, at time t."""
        return self.function(*first, *([params] if self.params else []), *([t] if self.time else []))


def more_arguments(name: str, fn: Callable, first: tuple[str, ...], has_params: bool) -> tuple[bool, bool]:
    """Whether a user's function takes params and the time after its first arguments; raises if it has others."""
    check_time(name, fn, first)
    last = ("t",) if takes_time(fn) else ()
    forms = [(*first, *last), *([(*first, "params", *last)] if has_params else [])]
    called = f"{name}({', '.join((*first, 'params'))})"
    hint = "" if has_params else f"The system has no params: give System(..., params=...) to use {called}."
    found = check_signature(name, fn, *forms, hint=hint)
    check_captured(name, fn)
    return "params" in found, bool(last)


def trace(system: System, fn: Callable[..., PyTree], takes: tuple[bool, bool], shapes: Sequence) -> MemberFunction:
    """A function fn(*first, params, t) as a traced one, which takes of the last two those that are wanted."""
    params, time = takes

    def call(*args: PyTree) -> PyTree:
        rest = list(args[len(shapes) :])
        numbers = rest.pop(0) if params else None
        given = whole(numbers, system.fixed_params) if params else None
        return fn(*args[: len(shapes)], given, rest[0] if time else None)

    more = [jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), system.params)] if params else []
    more += [jax.ShapeDtypeStruct((), jnp.float64)] if time else []
    return MemberFunction(intern(call, *shapes, *more), params, time)


def trace_save(system: System, save: Any, with_states: bool) -> MemberFunction | None:
    """The user's `save`; if asked for, with the state beside its value."""
    if save is None:
        return None
    if not callable(save):
        raise TypeError(f"save must be a function of the state, not a {type(save).__name__}.")
    params, time = takes = more_arguments("save", save, ("mu",), system.params is not None)

    def call(mu: Any, given: PyTree, t: Any) -> PyTree:
        value = save(mu, *([given] if params else []), *([t] if time else []))
        return (value, mu) if with_states else value

    return trace(system, call, takes, [jax.ShapeDtypeStruct(system.algebra.shape, system.algebra.dtype)])
