"""The native backend: small systems as machine code, compiled from the traced step by `stepcompiler`.

The step is compiled for one trajectory, or for a group of members in SIMD lanes. `compiled_stepper` describes the fast
kernel, the full kernel and the fallback solver.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from stepcompiler.targets.cpu import Cpu
from stepcompiler.words import as_words, packed, unpacked

from ...systems import System
from .. import tuning
from ..plan import Batch, Plan
from ..run_state import Snapshot, StepState, raw_snapshot
from ..saved_values import Save
from .base import NotSupported, on_cpu
from .compiled_stepper import CompiledStepper
from .native_reduction import CpuReduction
from .nonconverged_steps import Repeater
from .observer import begin, unsupported_reason
from .path_sampling import PathLoader, drawn_with_steps
from .step_definition import InitialStateCache, StepDefinition, reduced_by_xla
from .step_kernels import KernelInputs, StepKernel, kernel_for, member_words, width_of

_PIECE = 256  # saved times per call of the user's `save`
_SHORT = 2**17  # steps of members; a batch with fewer takes longer in Python than in compiled code
_LEAST = 8  # launches of such batches


def prepare(plan: Plan, reason: str, arrays: bool = False) -> "NativeProgram | NotSupported":
    """Return native code for the step of the plan, or the reason why it is not supported.

    `arrays`: the code consists of loops over the elements of arrays.
    """
    kernel = kernel_for(plan, Cpu(width_of(plan)), drawn=drawn_with_steps(plan) and not arrays, arrays=arrays)
    return kernel if isinstance(kernel, NotSupported) else NativeProgram(plan, kernel, reason)


class NativeProgram:
    """Runs batches by native code, in groups of members."""

    backend = "native"
    short_runs: Callable[[Batch], Any] | None = None
    max_concurrency: int | None = None

    def __init__(self, plan: Plan, kernel: StepKernel, reason: str):
        self.plan, self.kernel, self.definition = plan, kernel, StepDefinition.of(plan)
        self.batches_per_launch = _batches_per_launch(plan)
        self.reduction = CpuReduction.of(plan, kernel.width)
        self.merge: Callable[[PyTree, PyTree], PyTree] | None = None if self.reduction is None else self.reduction.merge
        self.starts = InitialStateCache(plan, self.definition)
        self.reason = reason or unsupported_reason(plan, kernel.width)
        self.shared: dict[bool, np.ndarray] = {}  # inputs of the full and of the fast kernel

    def renewed(self, plan: Plan) -> "NativeProgram":
        """Return a program with the same code for another plan."""
        return NativeProgram(plan, self.kernel, self.reason)

    def device_context(self) -> AbstractContextManager[Any]:
        """The CPU."""
        return on_cpu()

    def slots(self, batch: Batch) -> int:
        """As the plan has it."""
        return self.plan.save_slots

    def initial_state(self, batch: Batch) -> tuple[StepState, PyTree]:
        """Return the states before the first step, and the rows saved of them."""
        points, first = begin(self.plan, batch, *self.starts(batch), self.kernel.width)
        return points, self.reduced(batch, first, 1)

    def reduced(self, batch: Batch, rows: Snapshot, slots: int) -> PyTree:
        """Return the rows of a batch; with a reducer, its accumulators."""
        return reduced_rows(self.plan, self.reduction, rows, batch.n_members, slots)

    def stepper(self, batch: Batch, points: StepState, n: int) -> CompiledStepper:
        """Return a stepper that starts before step n."""
        memory = GroupMemory(self, batch, points, n)
        repeater = lambda: Repeater(self.fallback_kernel(), memory.inputs)
        return CompiledStepper(self, batch, points, memory, repeater)

    def full_kernel(self) -> StepKernel | NotSupported:
        """Return the kernel that assumes nothing."""
        drawn, arrays = self.kernel.drawn, self.kernel.arrays
        return kernel_for(self.plan, Cpu(self.kernel.width), full=True, drawn=drawn, arrays=arrays)

    def fallback_kernel(self) -> StepKernel:
        """Return the full kernel, or the fast one if there is no other."""
        full = self.full_kernel()
        return self.kernel if isinstance(full, NotSupported) else full


def _batches_per_launch(plan: Plan) -> int:
    """Return the number of batches per launch: several if they are short, but one with a reducer or `save`."""
    if plan.reduce is not None or plan.save.function is not None:
        return 1
    most = tuning.current().batches_per_launch
    return max(1, min(most, _SHORT // (plan.steps * plan.batch_size), plan.n_batches // _LEAST))


class GroupMemory:
    """The members of a batch in groups, as words that the native loop updates in place."""

    def __init__(self, program: NativeProgram, batch: Batch, points: StepState, n: int):
        self.program, self.plan, self.batch, kernel = program, program.plan, batch, program.kernel
        self.buffers = kernel.native.allocate(batch.member.size)
        self.buffers.n[:], self.buffers.state = n, kernel.pack(points._replace(observed=None))
        self.members = batch.member.reshape(len(self.buffers.n), kernel.width)
        self.inputs = KernelInputs(self.plan, batch, kernel.by_member)
        own = self.inputs.own(kernel)
        if own:
            self.buffers.member = packed(own, kernel.width)
        self.use(kernel)

    @property
    def next_step(self) -> int:
        """The least number of the next step of a group."""
        return int(self.buffers.n.min())

    def use(self, kernel: StepKernel) -> None:
        """Continue with this kernel."""
        known, full = self.program.shared, kernel is not self.program.kernel
        if full not in known:
            known[full] = self.inputs.shared(kernel)
        self.kernel, self.buffers.shared = kernel, known[full]
        self.path = PathLoader(self.plan, self.members, kernel.native.path_columns)

    def open_slots(self, first: int, count: int) -> None:
        """Allocate a save buffer."""
        groups, width = self.members.shape
        self.buffers.saved = np.empty((groups, count, self.kernel.native.sizes.saved, width), np.int64)
        self.buffers.first_slot = first

    def run(self, stop: int, every: int) -> bool:
        """Take steps as far as the increments reach that are in memory."""
        self.end, buffers = stop, self.buffers
        if not self.kernel.drawn:
            buffers.path, buffers.first_path_step, self.end = self.path.load(self.next_step, stop)
        self.kernel.native.run(buffers, self.end, every)
        return not np.any(buffers.n < self.end)

    def stopped(self) -> tuple[np.ndarray, np.ndarray]:
        """Return all members of the groups that stopped, and their step numbers."""
        width, waiting = self.kernel.width, self.buffers.n < self.end
        return np.flatnonzero(np.repeat(waiting, width)), np.repeat(self.buffers.n[waiting], width)

    def states(self) -> StepState:
        """Return a copy of the states, because the next steps overwrite the words."""
        return self.kernel.unpack(self.buffers.state.copy())

    def states_of(self, lanes: np.ndarray) -> StepState:
        """Return the states of some members."""
        group, lane = np.divmod(lanes, self.kernel.width)
        return self.kernel.unpack(self.buffers.state[group, :, lane][:, :, None])

    def replace(self, lanes: np.ndarray, states: StepState, every: int) -> None:
        """Set the states of all members of some groups after one more step, and save them if it is time."""
        group, lane = np.divmod(lanes, self.kernel.width)
        self.buffers.state[group, :, lane] = member_words(states)
        self.buffers.n[np.unique(group)] += 1
        n = self.buffers.n[group]
        due = n % every == 0
        if due.any():
            saved = member_words(raw_snapshot(self.plan.integrator, self.plan.save, states))
            self.buffers.saved[group[due], n[due] // every - 1 - self.buffers.first_slot, :, lane[due]] = saved[due]

    def accumulators(self, count: int) -> PyTree | None:
        """Return the accumulators of the saved times, by native code."""
        if self.plan.save.function is not None or self.program.reduction is None:
            return None
        return self.program.reduction.batch(self.buffers.saved, self.batch.n_members)

    def rows(self, count: int, first: int) -> Snapshot:
        """Return the saved rows."""
        rows = saved_by(self.kernel, self.buffers.saved, self.batch.n_members)
        return rows if self.plan.save.function is None else saved_rows(self.plan, rows, self.batch.params, first)


def saved_by(kernel: StepKernel, raw: np.ndarray, count: int) -> Snapshot:
    """Return the states (member, saved time, …) of a batch, without padding, from (groups, times, words, width)."""
    shapes = kernel.native.saved_shape
    leaves = jax.tree.leaves(shapes)
    flat = unpacked(raw, [s.shape for s in leaves], [s.dtype for s in leaves])
    return jax.tree.unflatten(jax.tree.structure(shapes), [x[:count] for x in flat])


def reduced_rows(
    plan: Plan, reduction: CpuReduction | None, rows: Snapshot, count: int, slots: int | None = None
) -> PyTree:
    """Return the rows of a batch; with a reducer, its accumulators."""
    if reduction is None:
        return reduced_by_xla(plan, rows, slots or plan.call_slots + 1)
    size, width = plan.batch_size, reduction.width

    def words(x: np.ndarray) -> np.ndarray:
        full = np.concatenate([x, np.repeat(x[-1:], size - len(x), axis=0)])
        flat = as_words(full.reshape(size * full.shape[1], *full.shape[2:]))
        return flat.reshape(size // width, width, full.shape[1], flat.shape[1]).transpose(0, 2, 3, 1)

    return reduction.batch(np.concatenate([words(x) for x in jax.tree.leaves(rows.values)], axis=2), count)


def saved_rows(plan: Plan, raw: Snapshot, params: PyTree, at: int) -> Snapshot:
    """Apply the user's `save` to rows (member, saved time, …) of a batch from the saved time `at` on, in pieces.

    `params` are those of the members, if they differ between members.
    """
    size, (count, times) = plan.batch_size, raw.values.shape[:2]
    out = jax.tree.map(lambda s: np.empty((count, times, *s.shape), s.dtype), plan.snapshot_shape.values)
    length = min(_PIECE, plan.call_slots)
    piece = jax.tree.map(lambda x: np.zeros((size, length, *x.shape[2:]), x.dtype), raw)
    own = plan.system.params if plan.axes is None else params
    for first in range(0, times, length):
        stop = min(first + length, times)
        for whole, x in zip(jax.tree.leaves(piece), jax.tree.leaves(raw), strict=True):
            whole[:count, : stop - first] = x[:, first:stop]
        t = plan.t0 + plan.dt * np.asarray(plan.saved.step(at + first + np.arange(length)), float)
        values = _each(plan.save, plan.system, plan.axes, own, tuple(piece), t)
        for a, x in zip(jax.tree.leaves(out), jax.tree.leaves(values), strict=True):
            a[:, first:stop] = np.asarray(x)[:count, : stop - first]
    return Snapshot(out, raw.g if plan.group else None)


@eqx.filter_jit
def _each(save: Save, system: System, axes: PyTree, params: PyTree, raw: tuple, t: np.ndarray) -> PyTree:
    one = lambda params, own: jax.vmap(lambda own, t: save.value(system, own, params, t))(own, t)
    return jax.vmap(one, in_axes=(axes, 0))(params, jax.tree.map(jnp.asarray, raw))
