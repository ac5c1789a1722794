"""The lattice backend: a step as native sweeps over the sites (`site_kernel`), divided among threads.

So a step costs each site the same, however many there are, and little is written to memory. No result depends on the
number of threads.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from stepcompiler.lattices.lattice_loops import groups_of, plane_of

from ...drivers import BLOCK, Window
from ...systems import System
from ..lapack_lock import run_exclusive
from ..member_params import params_of, with_params
from ..plan import Batch, Plan
from ..run_state import Snapshot, StepState
from ..saved_values import Save
from .base import NotSupported, on_cpu
from .nonconverged_steps import fallback_program
from .observer import begin, observer_for, unsupported_reason
from .site_kernel import SiteKernel, clock_of, copies, kernel_for, threads_for
from .step_definition import InitialStateCache, StepDefinition, reduced_by_xla
from .step_kernels import width_of

FEWEST = 128  # the least number of copies for which sweeps are faster than XLA


def takes(plan: Plan) -> bool:
    """Whether a system has so many equal copies that sweeps over them may pay."""
    return copies(plan) >= FEWEST


def prepare(plan: Plan, reason: str) -> "LatticeProgram | NotSupported":
    """Sweeps for the step of the plan, or why there are none."""
    if plan.backend == "auto" and jax.default_backend() != "cpu":
        return NotSupported("A large lattice is done by XLA on an accelerator.", expected=True)
    kernel = kernel_for(plan)
    return kernel if isinstance(kernel, NotSupported) else LatticeProgram(plan, kernel, reason)


class LatticeProgram:
    """Runs batches of large lattices, one member after the other, each on all cores."""

    backend = "native"
    batches_per_launch: int = 1
    short_runs: Callable[[Batch], Any] | None = None
    max_concurrency: int | None = 1
    merge: Callable[[PyTree, PyTree], PyTree] | None = None

    def __init__(self, plan: Plan, kernel: SiteKernel, reason: str):
        self.plan, self.kernel, self.definition = plan, kernel, StepDefinition.of(plan)
        self.starts = InitialStateCache(plan, self.definition)
        self.reason = reason or unsupported_reason(plan, width_of(plan))

    def renewed(self, plan: Plan) -> "LatticeProgram":
        """Return a program with the same code for another plan."""
        return LatticeProgram(plan, self.kernel, self.reason)

    def device_context(self) -> AbstractContextManager[Any]:
        """The CPU."""
        return on_cpu()

    def slots(self, batch: Batch) -> int:
        """As the plan has it."""
        return self.plan.save_slots

    def initial_state(self, batch: Batch) -> tuple[StepState, PyTree]:
        """Return the states before the first step, and the rows saved of them."""
        points, first = begin(self.plan, batch, *self.starts(batch), width_of(self.plan))
        return points, reduced_by_xla(self.plan, first, 1)

    def stepper(self, batch: Batch, points: StepState, n: int) -> "LatticeStepper":
        """Return a stepper that starts before step n."""
        return LatticeStepper(self, batch, points, n)


class LatticeStepper:
    """The members of a batch in the memory layout of the sweeps; members share the intermediate arrays of a step."""

    def __init__(self, program: LatticeProgram, batch: Batch, points: StepState, n: int):
        self.program, self.plan, self.batch, self.n = program, program.plan, batch, n
        self.full = False
        self.totals = jax.tree.map(np.array, points.totals)
        self.observer = observer_for(self.plan, batch, width_of(self.plan))
        if self.observer is not None:
            self.observer.states = points.observed
        leaves = [np.asarray(x) for x in jax.tree.leaves((points.mu, points.carry))]
        layout = program.kernel.layout
        self.numbers = [self._numbers(i) for i in range(batch.member.size)]
        self.states = [self._laid_out(i, [x[i] for x in leaves]) for i in range(batch.member.size)]
        self.spare, self.kept = (np.empty((layout.planes[x], plane_of(layout.sites))) for x in ("old", "kept"))
        self.path = np.zeros((2 * layout.path, plane_of(layout.sites)))
        self.kernel = program.kernel

    def _numbers(self, i: int) -> tuple[list, list[np.ndarray]]:
        """Return the arrays of a member's system that all sites share, with dt, and those with an axis of sites."""
        plan, batch = self.plan, self.batch
        own = plan.system if plan.axes is None else with_params(plan.system, params_of(batch.params, plan.axes, i))
        both = list(zip(jax.tree.leaves(eqx.filter(own, eqx.is_array)), self.program.kernel.by_site, strict=True))
        return [*(x for x, here in both if not here), *clock_of(plan)], [np.asarray(x) for x, here in both if here]

    def _laid_out(self, i: int, leaves: list[np.ndarray]) -> dict[str, np.ndarray]:
        """Return the arrays of a member, and those of its system with an axis of sites, as planes."""
        layout = self.program.kernel.layout
        sites = layout.sites
        out = {area: np.empty((layout.planes[area], plane_of(sites))) for area in ("old", "fixed")}
        for x, (area, at), size in zip([*leaves, *self.numbers[i][1]], layout.places, layout.sizes, strict=True):
            planes = out[area][at : at + size]
            planes[:, :sites] = x.reshape(sites, size).T
            planes[:, sites:] = planes[:, :1]
        return out

    def _point(self, i: int) -> tuple[Any, PyTree]:
        """Return the state of a member and the carry of the method."""
        layout, state = self.kernel.layout, self.states[i]
        structs, treedef = jax.tree.flatten(self.plan.state_shape[:2])
        both = zip(structs, layout.places, layout.sizes, strict=False)
        planes = ((s, state[area][at : at + size, : layout.sites]) for s, (area, at), size in both)
        return jax.tree.unflatten(treedef, [np.ascontiguousarray(x.T).reshape(s.shape) for s, x in planes])

    def points(self) -> StepState:
        """Return the states of the members."""
        each = [self._point(i) for i in range(len(self.states))]
        mu, carry = jax.tree.map(lambda *x: np.stack(x), *each)
        observed = None if self.observer is None else self.observer.states
        return StepState(mu, carry, jax.tree.map(np.array, self.totals), (), observed)

    def advance(self, n1: int, every: int) -> PyTree:
        """Advance one member after the other to step n₁."""
        workers = threads_for(self.kernel)
        with ThreadPoolExecutor(workers) as pool:
            rows = [_Run(self, i, pool, workers).advance(n1, every) for i in range(len(self.states))]
        self.n = n1
        saved: Snapshot = jax.tree.map(lambda *x: np.stack(x), *rows[: self.batch.n_members])
        if self.observer is not None:
            saved = self.observer.observed(saved, self.plan.saved.up_to(n1) - len(jax.tree.leaves(saved)[0][0]))
        return reduced_by_xla(self.plan, saved, self.plan.call_slots + 1)

    def use_full_kernel(self) -> bool:
        """Continue with the full kernel; return False if it is in use already, or cannot be compiled."""
        kernel = None if self.full else kernel_for(self.plan, full=True)
        self.full = True
        if not isinstance(kernel, SiteKernel):
            return False
        self.kernel = kernel
        return True

    def take_fallback_step(self, i: int, n: int, window: Window) -> None:
        """Take step n of a member by XLA, which reports if it does not converge."""
        batch, one = self.batch, slice(i, i + 1)
        mu, carry = jax.tree.map(lambda x: x[None], self._point(i))
        point = StepState(mu, carry, jax.tree.map(lambda x: x[one], self.totals))
        params = None if self.plan.axes is None else params_of(batch.params, self.plan.axes, np.array([i]))
        args = self.program.definition, window, self.plan.time_grid, batch.member[one], params, np.full(1, n)
        after = jax.tree.map(np.asarray, run_exclusive(fallback_program, *args, np.ones(1, bool), point))
        self.states[i] = self._laid_out(i, [x[0] for x in jax.tree.leaves(after[:2])])
        for total, new in zip(self.totals, after.totals, strict=True):
            total[one] = new

    def record(self, i: int, n: int) -> Snapshot:
        """Return the values saved of a member after n steps."""
        mu, carry = self._point(i)
        plan = self.plan
        raw = plan.save.raw(plan.integrator, mu, carry, ())
        values = mu
        if plan.save.function is not None:
            own = plan.system.params if plan.axes is None else params_of(self.batch.params, plan.axes, i)
            t = np.asarray(plan.t0 + n * plan.dt)
            values = jax.tree.map(np.asarray, _saved(plan.save, plan.system, raw, own, t))
        return Snapshot(values, raw[1] if plan.group else None)


class _Run:
    """One member on its way."""

    def __init__(self, stepper: LatticeStepper, i: int, pool: ThreadPoolExecutor, workers: int):
        self.stepper, self.i, self.pool = stepper, i, pool
        self.plan, self.kernel = stepper.plan, stepper.kernel
        groups = groups_of(self.kernel.layout.sites)
        self.parts = [(groups * k // workers, groups * (k + 1) // workers) for k in range(workers)]
        self.member, self.window = stepper.batch.member[i], self.plan.window(stepper.n // BLOCK)
        self.sweeps: dict[Any, list[Callable]] = {}  # by the arrays that they read and write
        self.pair = -1  # of steps, for which increments are there
        if (draw := self.kernel.draw) is not None:
            numbers = draw.uniforms([*jax.tree.leaves(self.window), np.int64(self.member)])
            self.draw = draw.over(numbers, {"path": stepper.path})

    def advance(self, n1: int, every: int) -> Snapshot:
        """Advance to step n₁ and return the saved rows."""
        stepper, saved = self.stepper, []
        for n in range(stepper.n, n1):
            self._step(n)
            if (n + 1) % every == 0:
                saved.append(stepper.record(self.i, n + 1))
        empty = jax.tree.map(lambda s: np.empty((0, *s.shape), s.dtype), self.plan.snapshot_shape)
        return jax.tree.map(lambda *x: np.stack(x), *saved) if saved else empty

    def _step(self, n: int) -> None:
        stepper, i = self.stepper, self.i
        self._draw(n)
        while any(self._swept(sweep, n) for sweep in self._over(n)):
            if not stepper.use_full_kernel():
                return stepper.take_fallback_step(i, n, self.window)
            self.sweeps = {}
        state = stepper.states[i]
        state["old"], stepper.spare = stepper.spare, state["old"]
        stepper.totals.substeps[i] += 1
        return None

    def _over(self, n: int) -> list[Callable]:
        """The sweeps of step n, over the memory that they read and write then."""
        stepper, each = self.stepper, self.kernel.layout.path
        state, row = stepper.states[self.i], n % 2
        key = id(state["old"]), row
        if key not in self.sweeps:
            path = stepper.path[row * each : (row + 1) * each]
            areas = state | {"new": stepper.spare, "kept": stepper.kept, "path": path}
            shared, _ = stepper.numbers[self.i]
            self.sweeps[key] = [sweep.over(sweep.uniforms(shared), areas) for sweep in stepper.kernel.sweeps]
        return self.sweeps[key]

    def _swept(self, sweep: Callable[[int, int, int], int], number: int) -> int:
        """A sweep over all sites; how many groups could not be done."""
        if len(self.parts) == 1:
            return sweep(*self.parts[0], number)
        return sum(self.pool.map(lambda part: sweep(part[0], part[1], number), self.parts))

    def _draw(self, n: int) -> None:
        """The increments of step n are there."""
        each = self.kernel.layout.path
        if not each or n // 2 == self.pair:
            return
        self.pair = n // 2
        if self.kernel.draw is not None:
            self._swept(self.draw, self.pair)
        else:
            sites, planes = self.kernel.layout.sites, self.stepper.path
            two = np.asarray(_two_steps(self.window, self.member, 2 * self.pair))
            planes[:, :sites] = two.reshape(2, sites, each).swapaxes(1, 2).reshape(-1, sites)


@jax.jit
def _two_steps(window: Window, member: Array, first: Array) -> Array:
    return window.steps(member, first, 2).S


@eqx.filter_jit
def _saved(save: Save, system: System, raw: tuple, params: PyTree, t: np.ndarray) -> PyTree:
    return save.value(system, jax.tree.map(jnp.asarray, raw), params, jnp.asarray(t))
