"""Check the arguments of `solve` and `ensemble`, and make the plan of the run."""

from dataclasses import replace
from typing import Any

import jax
from jaxtyping import Array, PyTree

from ..callables import check_params
from ..drivers import Increments, SampledPaths
from ..inputs import check_cover, check_inputs
from ..integrators.base import Integrator, check_action
from ..integrators.dissipative import wrap_dissipation
from ..integrators.until import Until
from ..numerics import validation
from ..numerics.modules import method_of
from ..params import fit_params
from ..states import state_on_host
from ..systems import System
from .device_selection import select_devices
from .driven import driven, driver_of
from .events import check_start, with_event
from .group_validation import check_group
from .plan import Plan
from .reducers import as_reducer, check_spacing, trace_observe
from .saved_times import check_save_at, check_times
from .saved_values import MemberFunction, Save, trace_save


def plan_solve(system: Any, mu0: Any, *, key: Any, driver: Any, g0: Any = None, **options: Any) -> Plan:
    """The plan of `solve`."""
    plan = complete(check_options(system, **options), mu0, key=key, driver=driver, g0=g0)
    if plan.devices and plan.traced:
        raise TypeError("devices= spreads numbers, but this run is being traced by JAX.")
    return plan


def plan_ensemble(
    system: Any, mu0: Any, *, members: Any, params: Any, key: Any, driver: Any, g0: Any = None, **options: Any
) -> Plan:
    """The plan of `ensemble`."""
    fixed = check_options(system, members=validation.count("members", members), **options)
    return complete(fixed, mu0, key=key, driver=driver, g0=g0, params=params)


def check_options(
    system: Any,
    *,
    dt: Any,
    t0: Any,
    t1: Any = None,
    steps: Any = None,
    integrator: Any,
    save_every: Any,
    backend: Any,
    save: Any,
    group: bool,
    throw: bool,
    stored: bool,
    save_at: Any = None,
    adjoint: Any = "auto",
    adjoint_memory: Any = 2**28,
    devices: Any = None,
    members: int | None = None,
    reduce: Any = None,
    until: Any = None,
    direction: Any = "both",
) -> dict[str, Any]:
    """The fields of a plan that do not depend on initial states, path and params."""
    validation.require_float64()
    if not isinstance(system, System):
        raise TypeError(f"system must be a System, not {type(system).__name__}.")
    if not isinstance(integrator, Integrator):
        hint = f"; did you mean {integrator.__name__}()?" if isinstance(integrator, type) else "."
        raise TypeError(f"integrator must be an Integrator such as TMK(), not {integrator!r}{hint}")
    validation.choice("adjoint", adjoint, ("auto", "native", "xla"))
    adjoint_memory = validation.count("adjoint_memory", adjoint_memory)
    t0, t1, dt, steps = check_times(t0, t1, dt, steps)
    if validation.is_traced(t1):
        _check_traced_times(system, save_at, until)
    else:
        warn_of_inputs(system, t0, t1, dt)
    save_every = validation.count("save_every", save_every)
    if save_at is not None:
        if save_every != 1:
            raise ValueError(f"give save_every or save_at, not both: save_every is {save_every}.")
        save_at = check_save_at(save_at, t0, dt, steps)
    if steps % save_every:
        raise ValueError(f"save_every must divide the number of steps, {steps}, but is {save_every}.")
    integrator = with_event(system, wrap_dissipation(system, integrator), until, direction)
    reduce = as_reducer(reduce)
    saved = trace_save(system, save, stored, group, reduce is not None)
    check_member_inputs(integrator, saved, t0, t1)
    fixed = {
        "system": system, "integrator": integrator, "needs": None, "t0": t0,
        "dt": dt, "steps": steps, "save_every": save_every, "save_at": save_at, "backend": backend,
        "adjoint": adjoint, "adjoint_memory": adjoint_memory, "save": saved, "custom": save is not None,
        "group": saved.group, "throw": throw, "members": members, "reduce": reduce,
    }  # fmt: skip
    if devices is not None:
        if until is not None:
            raise ValueError("until= is not supported with devices=: leave out one of them.")
        found = select_devices(devices, system, integrator, saved.group, backend)
        fixed |= {"devices": found, "backend": "xla"}
    return fixed


def _check_traced_times(system: System, save_at: Any, until: Any) -> None:
    """Raise if a run needs t0 or dt as numbers."""
    for name, given in (("save_at", save_at), ("until", until)):
        if given is not None:
            raise TypeError(f"{name}= requires numbers as t0 and dt, but JAX traces one of them.")
    for use in system.inputs:
        if len(use.switches.value):
            raise TypeError(
                f"t0 or dt is traced by JAX, but an input of {use.name} switches at t = {use.switches.value[0]:g}: "
                "derivatives with respect to switch times are not supported. Use a smooth input, such as inputs.cubic."
            )


def warn_of_inputs(system: System, t0: float, t1: float, dt: float) -> None:
    """Warn of inputs that switch inside a step. One that does not cover the run raises an error."""
    for sentence in check_inputs(system.inputs, t0, t1, dt) if system.inputs else ():
        validation.warn(sentence, UserWarning)


def check_member_inputs(integrator: Integrator, saved: Save, t0: float, t1: float) -> None:
    """Raise if an input of `save` or `until` does not cover the run. Traced times are not checked."""
    if validation.is_traced((t0, t1)):
        return
    functions = (saved.function, integrator.event if isinstance(integrator, Until) else None)
    for use in (use for fn in functions if isinstance(fn, MemberFunction) for use in fn.inputs):
        check_cover(use, t0, t1)


def complete(
    fixed: dict[str, Any], mu0: Any, *, key: Any = None, driver: Any = None, g0: Any = None, params: PyTree = None
) -> Plan:
    """The plan of checked options with these initial states, path and params.

    `needs` of the options, if given, is that of their own system and method, which are known to fit.
    """
    members, needs = fixed["members"], fixed["needs"]
    driver = driver_of(fixed["system"], key, driver, fixed["steps"])
    system, integrator, driver = driven(fixed["system"], fixed["integrator"], driver)
    if needs is None or system is not fixed["system"] or integrator is not fixed["integrator"]:
        method_of(integrator, "check")(method_of(system, "anywhere")(fixed["t0"]))
        check_action(system, integrator)
        needs = method_of(integrator, "needs")(system)
    if validation.is_traced(fixed["dt"]) and not isinstance(driver, Increments | SampledPaths):
        raise TypeError(
            f"dt is traced by JAX, but the increments and jumps of {type(driver).__name__} depend on it: pass the "
            "increments as driver=Increments(dS). They stay fixed in the derivative."
        )
    method_of(driver, "check")(system.n_noise, fixed["steps"], fixed["dt"], needs)
    if members is None:
        states, by_member, axes = state_on_host(system.algebra, "mu0", mu0), False, None
    else:
        states, by_member = _states(system, mu0, members)
        params, axes = _params(system, params, members)
    method_of(driver, "check_members")(members)
    own = {"system": system, "integrator": integrator, "needs": needs, "driver": driver, "params": params, "axes": axes}
    plan = Plan(**fixed | own, mu0=states, mu0_by_member=by_member, mu0_given=mu0)
    if g0 is not None:
        g0, turned = check_group(system.algebra, g0, plan.follows_group, members)
        plan = replace(plan, g0=g0, g0_by_member=turned)
    check_start(plan)
    if plan.reduce is not None:
        plan = replace(plan, observe=trace_observe(system, plan.reduce, plan.snapshot_shape.values))
        plan.accumulator_shape  # noqa: B018, raises if the reducer does not support the saved values
        check_spacing(plan.reduce, plan.saved)
    return plan


def _states(system: System, mu0: Any, members: int) -> tuple[Array, bool]:
    shape = validation.numbers("mu0", mu0).shape
    if shape == (members, *system.algebra.shape):
        return state_on_host(system.algebra, "mu0", mu0, (members,)), True
    if len(shape) == len(system.algebra.shape) + 1 and shape[1:] == system.algebra.shape:
        raise ValueError(f"mu0 has {shape[0]} states, but there are {members} members.")
    return state_on_host(system.algebra, "mu0", mu0), False


def _params(system: System, params: PyTree, members: int) -> tuple[PyTree, PyTree]:
    """The parameters and, leaf by leaf, whether they lead with members (0) or are shared (None)."""
    if params is None:
        return None, None
    arrays = fit_params(system.params, system._fixed, params, on_host=True)

    def axis(path: tuple, a: Array, b: Array) -> int | None:
        if b.shape == a.shape:
            return None
        if b.shape == (members, *a.shape):
            return 0
        wanted = f"shape {a.shape}, or {(members, *a.shape)} to lead with members"
        raise ValueError(f"params{jax.tree_util.keystr(path)} must have {wanted}, not {b.shape}.")

    axes = jax.tree_util.tree_map_with_path(axis, system.params, arrays)
    check_params(system, arrays, axes if jax.tree.leaves(axes) else None)
    return arrays, axes
