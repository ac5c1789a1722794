"""A run that JAX traces, as native code, if that is possible."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from stepcompiler.kernel import constant_pattern, dynamic_input

from ...integrators.base import Integrator
from ...integrators.until import Until
from ...systems import System
from ..backends.base import NotSupported
from ..backends.step_kernels import by_member, is_param
from ..plan import Plan
from ..run_state import Snapshot, SolverTotals, StepState, initial_state
from ..scan import path_of
from .kernels import Variant, kernel, width_for
from .primitives import trajectory
from .program import N_TOTALS, Program, snapshots


class NativeRun(NamedTuple):
    """The last state, the saved values, and the number of the reason if XLA computes them (`info`)."""

    point: StepState
    values: Snapshot
    code: Array


def run_natively(plan: Plan, integrator: Integrator) -> NativeRun | NotSupported:
    """The run as native code, or why it is not."""
    reason = _reason(plan)
    if reason:
        return _refused(plan, reason)
    program = _program(plan, integrator)
    if not _differentiated(plan):
        variant = Variant(width_for(plan.members), _by_member(plan), (False,) * sum(program.counts))
        made = kernel(program, variant, "run")
        if isinstance(made, NotSupported):
            return _refused(plan, made.reason)

    t = jnp.asarray(plan.t0 + plan.dt * program.save_every * np.arange(program.slots + 1))

    def one(member: Array, mu: Array, g0: PyTree, params: PyTree) -> tuple[Array, Snapshot, SolverTotals, Array]:
        system = plan.system if plan.axes is None else plan.system.with_params(params)
        raw, totals, code = _trajectory(plan, program, integrator, system, member, mu, g0)
        values, save = raw.values, plan.save
        if save.function is not None:
            values = jax.vmap(lambda own, t: save.value(system, own, system.params, t))(tuple(raw), t)
        return raw.values[-1], Snapshot(values, raw.g if plan.group else None), totals, code

    if plan.members is None:
        end, values, totals, code = one(jnp.asarray(0), jnp.asarray(plan.mu0), plan.g0, None)
    else:
        axes = 0, 0 if plan.mu0_by_member else None, 0 if plan.g0_by_member else None, plan.axes
        every = jax.vmap(one, in_axes=axes)
        end, values, totals, code = every(jnp.arange(plan.members), plan.mu0, plan.g0, plan.params)
    return NativeRun(StepState(end, None, totals), values, jnp.max(code))


def _reason(plan: Plan) -> str:
    """Why a run is not tried as native code; empty if it is."""
    if "xla" in (plan.adjoint, plan.backend):
        return 'You have chosen "xla".'
    if not plan.throw:
        return "throw=False requires the fallback solvers."
    if jax.default_backend() != "cpu":
        return "Native derivatives run on a CPU, but JAX's default device is another."
    if isinstance(plan.integrator, Until):
        return "Native derivatives do not support until=."
    if plan.devices:
        return "The state is distributed over several devices."
    return ""


def _refused(plan: Plan, reason: str) -> NotSupported:
    """The reason, or an error if native code is required."""
    for name in ("adjoint", "backend"):
        if getattr(plan, name) == "native":
            raise ValueError(f'{name}="native" is not possible for this run: {reason}')
    return NotSupported(reason)


def _differentiated(plan: Plan) -> bool:
    """Whether JAX differentiates the run, so that its adjoint is compiled too."""

    def moves(x: Any) -> bool:
        if type(x).__name__ in ("JVPTracer", "LinearizeTracer"):
            return True
        return isinstance(x, jax.core.Tracer) and moves(getattr(x, "val", None))

    return any(
        map(moves, jax.tree.leaves((plan.system, plan.mu0, plan.g0, plan.params, plan.driver, plan.t0, plan.dt)))
    )


def _by_member(plan: Plan) -> tuple[bool, ...]:
    """Return for each array, t0 and dt whether it has an axis of members."""
    return (*by_member(plan), False, False)


def _program(plan: Plan, integrator: Integrator) -> Program:
    """The run without its arrays."""
    numbers, statics = eqx.partition(plan.system, eqx.is_array)
    leaves, structure = jax.tree.flatten(numbers)
    own = jax.tree.leaves(plan.params) if plan.axes is not None else []
    dynamic = lambda x, p: p or isinstance(x, jax.core.Tracer)
    patterns = [
        dynamic_input(x) if dynamic(x, p) else constant_pattern(x) for x, p in zip(leaves, is_param(plan), strict=True)
    ]
    patterns += [dynamic_input(0.0), dynamic_input(0.0)]
    first, row = plan.state_shape, plan.increment_shape
    state = first.mu, first.carry, first.held
    about = plan.steps, plan.saved.spacing, plan.adjoint, plan.adjoint_memory
    shapes = tuple((x.shape, np.dtype(x.dtype)) for x in jax.tree.leaves((state, row)))
    key = (
        jax.tree.structure((plan.system, integrator)), plan.follows_group, tuple(patterns), shapes,
        jax.tree.structure((state, row)), len(own),
    )  # fmt: skip
    return Program(key, statics, structure, integrator, tuple(patterns), state, row, *about)


def _trajectory(
    plan: Plan, program: Program, integrator: Integrator, system: System, member: Array, mu: Array, g0: PyTree
) -> tuple[Snapshot, SolverTotals, Array]:
    """The run of one member."""
    numbers = jax.tree.leaves(eqx.filter(system, eqx.is_array))
    first = initial_state(system, integrator, mu, plan.time_grid.t0, plan.follows_group, g0)
    parts = jax.tree.leaves((first.mu, first.carry, first.held))
    rows = jax.tree.leaves(path_of(plan.whole_window, member, plan.steps))
    times = [jnp.asarray(plan.time_grid.t0), jnp.asarray(plan.time_grid.dt)]
    out = trajectory(program, [*map(jnp.asarray, (*numbers, *times, *parts, *rows))])
    return snapshots(program, parts, out[:-N_TOTALS]), SolverTotals(*out[-N_TOTALS:-1]), out[-1]
