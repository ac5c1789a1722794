"""The native backend: small systems as machine code, compiled from the traced step by `stepcompiler`.

The step is compiled for one trajectory, or for a group of members in SIMD lanes. The fast kernel runs the method
without fallbacks and assumes that `likely` conditions hold. If a step is not valid, its group stops before it. Then the
full kernel, which has all branches, takes the step. If it does not converge there either, the fallback solver takes it,
compiled by XLA. A step that does not converge costs time, but results do not depend on the path taken.
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

from ...drivers import BLOCK
from ...systems import System
from ..plan import Batch, Plan
from ..run_state import Snapshot, StepState, raw_snapshot
from ..saved_values import Save
from .base import NotSupported, on_cpu
from .native_reduction import CpuReduction
from .nonconverged_steps import FallbackStepper
from .observer import begin, observer_for, unsupported_reason
from .path_sampling import IncrementSource, drawn_with_steps
from .step_definition import InitialStateCache, StepDefinition, reduced_by_xla
from .step_kernels import KernelInputs, StepKernel, kernel_for, width_of

_PIECE = 256  # saved times per call of the user's `save`
_SHORT = 2**17  # steps of members; a batch with fewer takes longer in Python than in compiled code
_MOST, _LEAST = 16, 8  # the most batches per such launch, and the fewest launches


def prepare(plan: Plan, reason: str) -> "NativeProgram | NotSupported":
    """Return native code for the step of the plan, or the reason why it is not supported."""
    kernel = kernel_for(plan, Cpu(width_of(plan)), drawn=drawn_with_steps(plan))
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
        self.uniforms: dict[bool, np.ndarray] = {}  # shared inputs of the fast and the full kernel

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
        return points, reduced_rows(self.plan, self.reduction, first, batch.n_members, 1)

    def stepper(self, batch: Batch, points: StepState, n: int) -> "NativeStepper":
        """Return a stepper that starts before step n."""
        return NativeStepper(self, batch, points, n)


def _batches_per_launch(plan: Plan) -> int:
    """Return the number of batches per launch: several if they are short, but one with a reducer or `save`."""
    if plan.reduce is not None or plan.save.function is not None:
        return 1
    return max(1, min(_MOST, _SHORT // (plan.steps * plan.batch_size), plan.n_batches // _LEAST))


class NativeStepper:
    """The members of a batch in groups, as words that the native loop updates in place."""

    def __init__(self, program: NativeProgram, batch: Batch, points: StepState, n: int):
        self.program, self.plan, self.definition, self.reduction = (
            program,
            program.plan,
            program.definition,
            program.reduction,
        )
        self.batch, self.full = batch, False
        kernel = program.kernel
        self.observer = observer_for(self.plan, batch, kernel.width)
        if self.observer is not None:
            self.observer.states, points = points.observed, points._replace(observed=None)
        self.buffers = kernel.native.allocate(batch.member.size)
        self.buffers.n[:], self.buffers.state = n, kernel.pack(points)
        self.shape = len(self.buffers.n), kernel.width
        self.held = KernelInputs(self.plan, batch, kernel.by_member)
        own = self.held.own(kernel)
        if own:
            self.buffers.member = packed(own, kernel.width)
        self._use(kernel)

    def _use(self, kernel: StepKernel) -> None:
        """Continue with this kernel."""
        known = self.program.uniforms
        if self.full not in known:
            known[self.full] = self.held.uniforms(kernel)
        self.kernel, self.buffers.shared = kernel, known[self.full]
        self.source: IncrementSource | None = None

    def points(self) -> StepState:
        """Return a copy of the states, because the next steps overwrite the words."""
        points = self.kernel.unpack(self.buffers.state.copy())
        return points if self.observer is None else points._replace(observed=self.observer.states)

    def advance(self, n1: int, every: int) -> PyTree:
        """Take native steps, and fallback steps where a kernel stops."""
        first = int(self.buffers.n[0]) // every
        groups, width = self.shape
        raw = np.empty((groups, n1 // every - first, self.kernel.native.sizes.saved, width), np.int64)
        self.buffers.saved, self.buffers.first_slot = raw, first
        while (low := int(self.buffers.n.min())) < n1:
            end = self._load_path(low, n1)
            self.kernel.native.run(self.buffers, end, every)
            waiting = self.buffers.n < end
            if waiting.any() and not self._use_full_kernel():
                self._take_fallback_steps(waiting, raw, first, every)
        if self.plan.save.function is None and self.reduction is not None and self.observer is None:
            return self.reduction.batch(raw, self.batch.n_members)
        rows = saved_by(self.kernel, raw, self.batch.n_members)
        at = self.plan.saved.up_to(n1) - raw.shape[1]
        if self.plan.save.function is not None:
            rows = saved_rows(self.plan, rows, self.batch.params, at)
        if self.observer is not None:
            rows = self.observer.observed(rows, at)
        return reduced_rows(self.plan, self.reduction, rows, self.batch.n_members)

    def _use_full_kernel(self) -> bool:
        """Continue with the full kernel; return False if it is in use already, or cannot be compiled."""
        if self.full:
            return False
        self.full = True
        kernel = kernel_for(self.plan, Cpu(self.shape[1]), full=True, drawn=self.kernel.drawn)
        if isinstance(kernel, NotSupported):
            return False
        self._use(kernel)
        return True

    def _load_path(self, low: int, n1: int) -> int:
        """Load increments from step `low` on, unless the kernel samples them; return the step where they end."""
        if self.kernel.drawn:
            return n1
        if self.source is None or n1 > self.covered:
            first = low // BLOCK
            window = self.plan.window(first) if first else self.plan.first_window
            self.covered = (first + self.plan.window_blocks) * BLOCK
            self.source = IncrementSource(
                window, self.batch.member.reshape(self.shape), self.kernel.native.path_columns
            )
        b = low // BLOCK
        self.buffers.path, self.buffers.first_path_step = self.source.draw(b, n1), b * BLOCK
        return min(n1, b * BLOCK + self.buffers.path.shape[1])

    def _take_fallback_steps(self, waiting: np.ndarray, raw: np.ndarray, first: int, every: int) -> None:
        """Take one step of each member of the groups that stopped, one member at a time."""
        width = self.shape[1]
        lanes = np.flatnonzero(np.repeat(waiting, width))
        singly = FallbackStepper(
            self.kernel, self.definition, self.plan, self.batch, self.held, int(self.buffers.n[waiting].min())
        )
        n, state = self.buffers.n, self.buffers.state
        before = state[waiting].swapaxes(1, 2).reshape(len(lanes), -1)
        after = singly.step(lanes, before, np.repeat(n[waiting], width))
        state[waiting] = after.reshape(-1, width, after.shape[1]).swapaxes(1, 2)
        n += waiting
        due = np.flatnonzero(waiting & (n % every == 0))
        if len(due):
            saved = self.kernel.pack(raw_snapshot(self.plan.integrator, self.plan.save, self.points()))
            raw[due, n[due] // every - 1 - first] = saved[due]


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
