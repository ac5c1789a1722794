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
from .. import tuning
from ..member_params import params_of, with_params
from ..plan import Batch, Plan
from ..run_state import Snapshot, StepState
from ..saved_values import Save
from .base import NotSupported, on_cpu
from .compiled_stepper import CompiledStepper
from .observer import begin, unsupported_reason
from .site_kernel import SiteKernel, clock_of, copies, kernel_for, threads_for
from .step_definition import InitialStateCache, StepDefinition, reduced_by_xla
from .step_kernels import width_of


def takes(plan: Plan) -> bool:
    """Whether a system has so many equal copies that sweeps over them may pay."""
    return copies(plan) >= tuning.current().lattice_copies


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
        return points, self.reduced(batch, first, 1)

    def reduced(self, batch: Batch, rows: Snapshot, slots: int) -> PyTree:
        """Return the rows of a batch; with a reducer, its accumulators."""
        return reduced_by_xla(self.plan, rows, slots)

    def stepper(self, batch: Batch, points: StepState, n: int) -> CompiledStepper:
        """Return a stepper that starts before step n."""
        return CompiledStepper(self, batch, points, LatticeMemory(self, batch, points, n))

    def full_kernel(self) -> SiteKernel | NotSupported:
        """Return the kernel that assumes nothing."""
        return kernel_for(self.plan, full=True)


class LatticeMemory:
    """The members of a batch in the memory layout of the sweeps; members share the intermediate arrays of a step."""

    def __init__(self, program: LatticeProgram, batch: Batch, points: StepState, n: int):
        self.program, self.plan, self.batch, self.kernel = program, program.plan, batch, program.kernel
        self.n = np.full(batch.member.size, n)
        self.totals = jax.tree.map(np.array, points.totals)
        leaves = [np.asarray(x) for x in jax.tree.leaves((points.mu, points.carry))]
        layout = program.kernel.layout
        self.numbers = [self._numbers(i) for i in range(batch.member.size)]
        self.planes = [self._laid_out(i, [x[i] for x in leaves]) for i in range(batch.member.size)]
        self.spare, self.kept = (np.empty((layout.planes[x], plane_of(layout.sites))) for x in ("old", "kept"))
        self.path = np.zeros((2 * layout.path, plane_of(layout.sites)))
        self.saved: list[list[Snapshot]] = []

    @property
    def next_step(self) -> int:
        """The least number of the next step of a member."""
        return int(self.n.min())

    def use(self, kernel: SiteKernel) -> None:
        """Continue with this kernel."""
        self.kernel = kernel

    def open_slots(self, first: int, count: int) -> None:
        """Forget the values saved before."""
        self.saved = [[] for _ in self.n]

    def run(self, stop: int, every: int) -> bool:
        """Advance one member after the other, until a step is not valid."""
        self.end, workers = stop, threads_for(self.kernel)
        with ThreadPoolExecutor(workers) as pool:
            for i in np.flatnonzero(self.n < stop):
                _Run(self, int(i), pool, workers).advance(stop, every)
        return self.next_step >= stop

    def stopped(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the members that stopped, and their step numbers."""
        lanes = np.flatnonzero(self.n < self.end)
        return lanes, self.n[lanes]

    def states(self) -> StepState:
        """Return the states of the members."""
        return self.states_of(np.arange(len(self.n)))

    def states_of(self, lanes: np.ndarray) -> StepState:
        """Return the states of some members."""
        mu, carry = jax.tree.map(lambda *x: np.stack(x), *(self._point(int(i)) for i in lanes))
        return StepState(mu, carry, jax.tree.map(lambda x: x[lanes], self.totals))

    def replace(self, lanes: np.ndarray, states: StepState, every: int) -> None:
        """Set the states of some members after one more step, and save those for which it is time."""
        leaves = jax.tree.leaves((states.mu, states.carry))
        for k, i in enumerate(map(int, lanes)):
            self.planes[i] = self._laid_out(i, [x[k] for x in leaves])
        for total, new in zip(self.totals, states.totals, strict=True):
            total[lanes] = new
        for i in map(int, lanes):
            self.complete_step(i, every)

    def complete_step(self, i: int, every: int) -> None:
        """Count a step of a member, and save its values if it is time."""
        self.n[i] += 1
        if self.n[i] % every == 0:
            self.saved[i].append(self._record(i, int(self.n[i])))

    def accumulators(self, count: int) -> None:
        """XLA computes them."""

    def rows(self, count: int, first: int) -> Snapshot:
        """Return the saved rows."""
        each = self.saved[: self.batch.n_members]
        if not count:
            empty = lambda s: np.empty((len(each), 0, *s.shape), s.dtype)
            return jax.tree.map(empty, self.plan.snapshot_shape)
        return jax.tree.map(lambda *x: np.stack(x), *(jax.tree.map(lambda *x: np.stack(x), *rows) for rows in each))

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
        layout, state = self.kernel.layout, self.planes[i]
        structs, treedef = jax.tree.flatten(self.plan.state_shape[:2])
        both = zip(structs, layout.places, layout.sizes, strict=False)
        planes = ((s, state[area][at : at + size, : layout.sites]) for s, (area, at), size in both)
        return jax.tree.unflatten(treedef, [np.ascontiguousarray(x.T).reshape(s.shape) for s, x in planes])

    def _record(self, i: int, n: int) -> Snapshot:
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
    """One member during a stretch of steps."""

    def __init__(self, memory: LatticeMemory, i: int, pool: ThreadPoolExecutor, workers: int):
        self.memory, self.i, self.pool = memory, i, pool
        self.plan, self.kernel = memory.plan, memory.kernel
        groups = groups_of(self.kernel.layout.sites)
        self.parts = [(groups * k // workers, groups * (k + 1) // workers) for k in range(workers)]
        self.member, self.window = memory.batch.member[i], self.plan.window(int(memory.n[i]) // BLOCK)
        self.sweeps: dict[Any, list[Callable]] = {}  # by the arrays that they read and write
        self.pair = -1  # of steps, for which increments are there
        if (draw := self.kernel.draw) is not None:
            numbers = draw.uniforms([*jax.tree.leaves(self.window), np.int64(self.member)])
            self.draw = draw.over(numbers, {"path": memory.path})

    def advance(self, stop: int, every: int) -> None:
        """Advance to step `stop`, or until a step is not valid."""
        for n in range(self.memory.n[self.i], stop):
            if not self._step(n):
                return
            self.memory.complete_step(self.i, every)

    def _step(self, n: int) -> bool:
        """Take step n; return False if it is not valid."""
        memory, i = self.memory, self.i
        self._draw(n)
        if any(self._swept(sweep, n) for sweep in self._over(n)):
            return False
        state = memory.planes[i]
        state["old"], memory.spare = memory.spare, state["old"]
        memory.totals.substeps[i] += 1
        return True

    def _over(self, n: int) -> list[Callable]:
        """The sweeps of step n, over the memory that they read and write then."""
        memory, each = self.memory, self.kernel.layout.path
        state, row = memory.planes[self.i], n % 2
        key = id(state["old"]), row
        if key not in self.sweeps:
            path = memory.path[row * each : (row + 1) * each]
            areas = state | {"new": memory.spare, "kept": memory.kept, "path": path}
            shared, _ = memory.numbers[self.i]
            self.sweeps[key] = [sweep.over(sweep.uniforms(shared), areas) for sweep in self.kernel.sweeps]
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
            sites, planes = self.kernel.layout.sites, self.memory.path
            two = np.asarray(_two_steps(self.window, self.member, 2 * self.pair))
            planes[:, :sites] = two.reshape(2, sites, each).swapaxes(1, 2).reshape(-1, sites)


@jax.jit
def _two_steps(window: Window, member: Array, first: Array) -> Array:
    return window.steps(member, first, 2).S


@eqx.filter_jit
def _saved(save: Save, system: System, raw: tuple, params: PyTree, t: np.ndarray) -> PyTree:
    return save.value(system, jax.tree.map(jnp.asarray, raw), params, jnp.asarray(t))
