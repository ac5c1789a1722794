"""Runs inside a transformation of JAX: native code (`gradients`), or a scan of XLA.

Fallbacks take long to compile, especially in a gradient, and are rarely needed. So a traced run has none, and raises an
error if a step needs them. With throw=False it has them.
"""

from dataclasses import replace

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree

from ..drivers import Window
from ..integrators.base import Integrator
from ..systems import System
from .backends.base import NotSupported
from .backends.observer import observe_along
from .events import events_of
from .failures import failed_steps
from .gradients.growth import unwatched, watched
from .gradients.info import GradientInfo, note_gradient
from .gradients.native_run import run_natively
from .orbits import examined
from .plan import Plan
from .reduction_tree import result, update
from .results import Ensemble, RunSummary, Solution, UnsolvedStepError, make_result
from .run_state import Snapshot, SolverTotals, StepState, TimeGrid, initial_state, take_snapshot, take_step
from .saved_values import Save
from .scan import path_of, scan_steps
from .stats import Stats, combine_totals, order_limit

_UNSOLVED = (
    "a step did not converge in a run that JAX traces, which has no fallbacks: use a smaller dt, or throw=False, "
    "which compiles the fallbacks too (then check stats.unsolved)."
)
_REASON = "JAX traces the run (differentiates, compiles or maps it), and XLA computes it as a scan."


def run_traced(plan: Plan) -> Solution | Ensemble:
    """Run as part of a computation that JAX traces."""
    if _varies(plan):
        raise TypeError("runs do not support the checks of manual axes. Pass check_vma=False to shard_map.")
    on_device = {name: jax.tree.map(jnp.asarray, getattr(plan, name)) for name in ("mu0", "g0", "params")}
    plan = replace(plan, **on_device)
    integrator = (plan.integrator.fast() if plan.throw else plan.integrator).differentiable()
    token, inner = None, plan
    if plan.save.function is None:  # a function may scale what it saves, so that sizes cannot be compared
        given = plan.system, plan.params, plan.driver, plan.g0, plan.t0, plan.dt
        mu0, token = watched(plan.mu0, given, plan.dt * plan.steps)
        inner = replace(plan, mu0=mu0)
    native = run_natively(inner, integrator)
    if isinstance(native, NotSupported):
        backend, reason, code = "xla", f"{_REASON} {native.reason}", 0
        note_gradient(GradientInfo("xla", reason))
        point, values = _by_xla(inner, integrator)
    else:
        backend, reason = "native", ""
        point, values, code = native
    if token is not None:
        values = values._replace(values=unwatched(values.values, token))
    start = jax.tree.map(lambda x: x[:, 0], values.values) if plan.observe is not None else None
    if plan.save_at is not None:
        rows = plan.save_at[1] // plan.saved.spacing
        values = jax.tree.map(lambda x: x[rows] if plan.members is None else x[:, rows], values)
    totals = examined(plan, plan.mu0, point)
    stats = _stats(totals, plan.steps, plan.members or 1, backend, reason, code, order_limit(plan))
    values = _checked(plan, stats, values) if plan.throw else values
    reduced = None
    if plan.reduce is not None:
        rows = values.values if plan.observe is None else _observed(plan, start, values.values)
        reduced = result(plan.reduce, update(plan.reduce, rows, jnp.ones(plan.members or 1)))
        values = Snapshot(None, None)
    return make_result(
        plan, RunSummary(stats, plan.members or 1, reduced, events_of(plan, point)), values, plan.times()
    )


def _varies(plan: Plan) -> bool:
    """Whether an array is marked as different between the devices of a `shard_map`."""
    given = jax.tree.leaves((plan.mu0, plan.system, plan.params, plan.driver, plan.g0))
    types = [jax.typeof(x) for x in given if isinstance(x, jax.core.Tracer)]
    return any(getattr(getattr(a, "manual_axis_type", None), "varying", getattr(a, "vma", ())) for a in types)


def _by_xla(plan: Plan, integrator: Integrator) -> tuple[StepState, Snapshot]:
    if plan.members is not None:
        return _scan_members(plan, integrator)
    return scan_one(
        plan.system, integrator, plan.whole_window, plan.save, plan.time_grid, plan.mu0, plan.steps,
        plan.saved.spacing, plan.follows_group, g0=plan.g0,
    )  # fmt: skip


def _observed(plan: Plan, start: PyTree, values: PyTree) -> PyTree:
    """The values that a reducer with a state per member makes of those saved (member, time, …)."""
    observe, t = plan.observe, jnp.asarray(plan.t0 + plan.dt * plan.saved.step(np.arange(plan.n_saved)))
    assert observe is not None
    states = jax.vmap(plan.reduce.start)(start)
    params = plan.system.params if plan.axes is None else plan.params
    along = lambda params, state, x: observe_along(observe, params, state, x, t, len(t))[1]
    return jax.vmap(along, in_axes=(plan.axes, 0, 0))(params, states, values)


@eqx.filter_jit
def _stats(
    totals: SolverTotals, steps: int, members: int, backend: str, reason: str, code: Array | int, limit: str
) -> Stats:
    """How the steps were solved: one program, not one for each sum."""
    return Stats.of(combine_totals(totals), steps, members, backend, reason, code, limit)


def _checked(plan: Plan, stats: Stats, values: Snapshot) -> Snapshot:
    """The values, if all steps were solved.

    A run that is differentiated and not compiled has numbers, so that the error is that of other runs.
    """
    try:
        unsolved = int(stats.unsolved)
    except jax.errors.ConcretizationTypeError:
        return eqx.filter_jit(eqx.error_if)(values, stats.unsolved > 0, _UNSOLVED)
    if unsolved:
        raise UnsolvedStepError(
            f"{failed_steps(plan, stats)}, or throw=False, with which a run that JAX differentiates has fallbacks too.",
            None,
        )
    return values


def _scan_members(plan: Plan, integrator: Integrator) -> tuple[StepState, Snapshot]:
    window = plan.whole_window

    def one(member: Array, mu: Array, g0: PyTree, params: PyTree) -> tuple[StepState, Snapshot]:
        system = plan.system if plan.axes is None else plan.system.with_params(params)
        ends = plan.steps, plan.saved.spacing, plan.follows_group
        return scan_run(system, integrator, window, plan.save, plan.time_grid, mu, *ends, member, g0)

    axes = 0, 0 if plan.mu0_by_member else None, 0 if plan.g0_by_member else None, plan.axes
    return jax.vmap(one, in_axes=axes)(jnp.arange(plan.members), plan.mu0, plan.g0, plan.params)


def scan_run(
    system: System,
    integrator: Integrator,
    window: Window,
    save: Save,
    clock: TimeGrid,
    mu0: Array,
    steps: int,
    save_every: int,
    group: bool = False,
    member: Int[Array, ""] | int = 0,
    g0: PyTree = None,
) -> tuple[StepState, Snapshot]:
    """Return the run as nested scans, for `jax.grad`, `jax.vmap` and `jax.jit`."""
    increments = path_of(window, member, steps)
    first = initial_state(system, integrator, mu0, clock.t0, group, g0)
    step = lambda n, dS, point: take_step(system, integrator, clock.t0, clock.dt, n, dS, point)

    def snapshot(point: StepState, n: Array) -> Snapshot:
        return take_snapshot(integrator, save, system, point, system.params, clock.t0 + n * clock.dt)

    point, saved = scan_steps(step, snapshot, first, increments, steps, save_every)
    return point, jax.tree.map(
        lambda a, b: jnp.concatenate([a[None], b]),
        take_snapshot(integrator, save, system, first, system.params, jnp.asarray(clock.t0)),
        saved,
    )


scan_one = eqx.filter_jit(scan_run)
