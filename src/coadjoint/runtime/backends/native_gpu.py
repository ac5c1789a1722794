"""The native backend on a GPU: one thread per member, bitwise identical to native code on a CPU.

One launch takes many steps of many batches: states stay in registers, random numbers are drawn in the kernel, and only
saved rows go to memory. Reducers are kernels too, with the same tree as on a CPU. If a step is not valid, the full
kernel takes it. If it does not converge there either, programs of the CPU take it.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from stepcompiler.cache import LRUCache
from stepcompiler.kernel import Buffers, Kernel
from stepcompiler.targets.cpu import Cpu
from stepcompiler.targets.gpu import LONGEST, RESIDENT, too_long
from stepcompiler.words import as_words, words_in

from ...drivers import BrownianWindow
from .. import tuning
from ..executors import cores
from ..member_params import params_of
from ..plan import Batch, Plan
from ..run_state import Snapshot, StepState, raw_snapshot
from . import gpu_runtime
from .base import NotSupported, on_cpu
from .compiled_stepper import CompiledStepper
from .gpu_runtime import GpuRuntime
from .native import reduced_rows, saved_rows
from .native_reduction import CpuReduction, ReductionKernels, constants, reduction_for
from .nonconverged_steps import Repeater
from .observer import begin, unsupported_reason
from .path_sampling import PathLoader
from .step_definition import StepDefinition, initial_batch
from .step_kernels import KernelInputs, StepKernel, kernel_for, member_words, width_of

_STEP = 4e-8  # seconds that a step takes on one core
_SLOTS = 2**24  # words that are saved in a stretch of steps: 128 megabytes


def prepare(plan: Plan, reason: str) -> "GpuProgram | NotSupported":
    """Return kernels for the step of the plan, or the reason why not. With backend="auto" they must be faster."""
    if plan.members is None:
        return NotSupported("one trajectory would be one thread of a GPU.", expected=True)
    limits = tuning.current()
    work = plan.members * plan.steps * _STEP / cores()
    if plan.backend == "auto" and (plan.members < limits.gpu_members or work < limits.gpu_seconds):
        return NotSupported("the run is too small for a GPU.", expected=True)
    machine = gpu_runtime.detect()  # last, for it begins to use the GPU
    if isinstance(machine, str):
        return NotSupported(machine, expected=True)
    kernel = None
    if isinstance(plan.first_window, BrownianWindow):  # other paths round otherwise in a kernel than on the CPU
        kernel = kernel_for(plan, machine.target, drawn=True)
    if kernel is None or isinstance(kernel, NotSupported):  # the path is no such path, or something else is wrong
        kernel = kernel_for(plan, machine.target)
        if isinstance(kernel, NotSupported):
            return NotSupported(f"On a GPU: {kernel.reason}")
        if kernel.native.path_columns and plan.backend == "auto":
            return NotSupported(
                "On a GPU: a kernel cannot draw this path, and from memory it would take longer than here."
            )
    length = kernel.native.executable.length
    if plan.backend == "auto" and length > LONGEST:
        return NotSupported(f"On a GPU: {too_long(length, LONGEST)}")
    return GpuProgram(plan, kernel, machine, reason)


class GpuProgram:
    """Runs many batches per launch, on one GPU after the other."""

    backend = "native-gpu"

    def __init__(self, plan: Plan, kernel: StepKernel, machine: GpuRuntime, reason: str):
        self.plan, self.kernel, self.machine = plan, kernel, machine
        self.definition = StepDefinition.of(plan)
        most = tuning.current().gpu_launch_members
        wave = RESIDENT * machine.processors  # threads per wave: launches of complete waves use the GPU fully
        self.short_runs: Callable[[Batch], Any] | None = None
        self.batches_per_launch = max(1, (most // wave * wave or most) // plan.batch_size)
        self.max_concurrency: int | None = 2 * len(machine.devices)
        found = reduction_for(plan, machine.target)
        self.merge = None if found is None else lambda a, b: self.on_host.merge(a, b)  # type: ignore[union-attr]
        self.reduction, self.reason = None, reason or unsupported_reason(plan, width_of(plan))
        if found is not None and plan.save.function is None and plan.observe is None:
            self.reduction = DeviceReduction(machine, found, plan.batch_size)

    @cached_property
    def on_host(self) -> CpuReduction | None:
        """The reducer on the CPU, which has the same tree: made when it is needed."""
        return CpuReduction.of(self.plan, width_of(self.plan))

    def renewed(self, plan: Plan) -> "GpuProgram":
        """The same code."""
        return GpuProgram(plan, self.kernel, self.machine, self.reason)

    def device_context(self) -> AbstractContextManager[Any]:
        """The CPU, for all that is done once: so its bits are the CPU's."""
        return on_cpu()

    def device(self, batch: Batch) -> Any:
        """Return the GPU for some batches."""
        return self.machine.devices[batch.indices.start // self.batches_per_launch % len(self.machine.devices)]

    def slots(self, batch: Batch) -> int:
        """As many as fit, or as the run needs, up to a power of 2: runs of about one length are one program."""
        needed = max(1, self.plan.steps // self.plan.save_every) if self.plan.save_at is None else 1
        fitting = max(1, _SLOTS // (self.kernel.native.sizes.saved * batch.n_members))
        return min(fitting, 1 << (needed - 1).bit_length())

    def initial_state(self, batch: Batch) -> tuple[StepState, PyTree]:
        """Return the states before the first step, batch by batch as on a CPU, and the rows saved of them."""
        plan = self.plan
        alike = plan.axes is None and not plan.mu0_by_member and not plan.g0_by_member
        numbers = batch.indices[:1] if alike else batch.indices
        parts = [initial_batch(self.definition, plan.load_batch(range(k, k + 1)), plan.time_grid.t0) for k in numbers]
        if alike:
            points, first = (
                jax.tree.map(lambda x, count=count: np.broadcast_to(np.asarray(x)[:1], (count, *x.shape[1:])), part)
                for part, count in zip(parts[0], (batch.member.size, batch.n_members), strict=True)
            )
        else:
            points, first = jax.tree.map(lambda *x: np.concatenate([np.asarray(a) for a in x]), *parts)
        if self.reduction is None:
            points, first = begin(plan, batch, points, first, width_of(plan))
            return points, self.reduced(batch, first, 1)
        words = np.concatenate([as_words(x[:, 0]).T for x in jax.tree.leaves(first.values)])
        words = jax.device_put(np.ascontiguousarray(words), self.device(batch))
        return points, self.reduction.batches([words], len(batch.indices), batch.n_members)

    def reduced(self, batch: Batch, rows: Snapshot, slots: int) -> PyTree:
        """Return the rows of some batches; with a reducer, its accumulators, by programs of the CPU."""
        if self.plan.reduce is None:
            return rows
        parts = []
        for i in range(len(batch.indices)):
            own = jax.tree.map(lambda x, at=batch.member_slice(i): x[at], rows)
            parts.append(reduced_rows(self.plan, self.on_host, own, len(jax.tree.leaves(own)[0]), slots))
        return jax.tree.map(lambda *x: np.concatenate(x), *parts)

    def stepper(self, batch: Batch, points: StepState, n: int) -> CompiledStepper:
        """Return a stepper that starts before step n."""
        memory = GpuMemory(self, batch, points, n, self.device(batch))
        repeater = lambda: Repeater(self.fallback_kernel(), memory.inputs)
        return CompiledStepper(self, batch, points, memory, repeater)

    def full_kernel(self) -> StepKernel | NotSupported:
        """Return the kernel that assumes nothing."""
        return kernel_for(self.plan, self.machine.target, full=True, drawn=self.kernel.drawn)

    def fallback_kernel(self) -> StepKernel:
        """Return a kernel of the CPU."""
        target = Cpu(width_of(self.plan))
        kernel = kernel_for(self.plan, target, full=True)
        kernel = kernel_for(self.plan, target) if isinstance(kernel, NotSupported) else kernel
        assert isinstance(kernel, StepKernel)  # a CPU supports every step that a GPU supports
        return kernel


_programs: LRUCache[Any] = LRUCache()


class GpuMemory:
    """The members of some batches on one GPU: words × members, which kernels update in place."""

    def __init__(self, program: GpuProgram, batch: Batch, points: StepState, n: int, device: Any):
        self.program, self.plan, self.batch, self.device = program, program.plan, batch, device
        self.inputs = KernelInputs(self.plan, batch, program.kernel.by_member)
        count = batch.n_members
        leaves = [np.asarray(x) for x in jax.tree.leaves(points._replace(observed=None))]
        alike = all(x.strides[0] == 0 for x in leaves)  # data that all members share is sent once
        state = member_words([x[: 1 if alike else count] for x in leaves]).T
        shapes = (count,), (len(state), count), (program.slots(batch), program.kernel.native.sizes.saved, count)
        begin = _programs.get(("begin", shapes), lambda: jax.jit(partial(_begun, shapes)))
        self.n, self.state, self.slots = begin(*self._put((np.asarray(n), np.ascontiguousarray(state))))
        self.next_step = n
        own = self.inputs.own(program.kernel)
        words = member_words([np.asarray(x)[:count] for x in own]).T if own else np.zeros(0)
        self.own = self._put(np.ascontiguousarray(words))
        self.use(program.kernel)

    def _put(self, x: Any) -> Any:
        return jax.device_put(x, self.device)

    def use(self, kernel: StepKernel) -> None:
        """Continue with this kernel."""
        self.kernel, machine = kernel, self.program.machine
        self.shared = self._put(self.inputs.shared(kernel))
        loop = kernel.native.executable

        def launch(*arrays: Array) -> tuple[Array, ...]:
            n, state, slots = machine.call(loop, *arrays)
            return n, state, slots, jnp.min(n)

        self.launch = _programs.get((loop, machine), lambda: machine.jit(launch, (4, 5, 6)))
        groups = self.batch.member.reshape(-1, width_of(self.plan))
        self.path = PathLoader(self.plan, groups, kernel.native.path_columns)

    def open_slots(self, first: int, count: int) -> None:
        """The save buffer is allocated already."""
        self.first_slot = first

    def run(self, stop: int, every: int) -> bool:
        """Launch a kernel, which takes steps as far as the increments reach that are on the GPU."""
        path, base, self.end = self._load_path(stop)
        buffers = Buffers(
            self.n, state=self.state, shared=self.shared, member=self.own, path=path, saved=self.slots,
            first_path_step=base, first_slot=self.first_slot,
        )  # fmt: skip
        arguments = self.kernel.native.executable.arguments(buffers, self.end, every)
        self.n, self.state, self.slots, least = self.launch(*arguments)
        self.next_step = int(least)
        return self.next_step >= self.end

    def _load_path(self, stop: int) -> tuple[Any, int, int]:
        """Return the increments (steps, columns, members), their first step, and the step where they end."""
        if self.kernel.drawn or not self.kernel.native.path_columns:
            return np.zeros(0), 0, stop
        rows, base, end = self.path.load(self.next_step, stop)
        path = rows.transpose(1, 2, 0, 3).reshape(rows.shape[1], rows.shape[2], -1)[:, :, : self.batch.n_members]
        return self._put(np.ascontiguousarray(path)), base, end

    def stopped(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the members that stopped, and their step numbers."""
        n = np.asarray(self.n)
        lanes = np.flatnonzero(n < self.end)
        return lanes, n[lanes]

    def states(self) -> StepState:
        """Return copies of the states of the members."""
        padding = self.batch.member.size - self.batch.n_members
        key = self.kernel.shapes, self.kernel.dtypes, padding
        unpack = _programs.get(key, lambda: jax.jit(partial(_unpacked, *key)))
        return jax.tree.unflatten(self.kernel.treedef, unpack(self.state))

    def states_of(self, lanes: np.ndarray) -> StepState:
        """Return the states of some members."""
        words = np.ascontiguousarray(np.asarray(self.state)[:, lanes].T)
        return self.kernel.unpack(words[:, :, None])

    def replace(self, lanes: np.ndarray, states: StepState, every: int) -> None:
        """Set the states of some members after one more step, and save those for which it is time."""
        n, state = np.array(self.n), np.array(self.state)
        n[lanes] += 1
        state[:, lanes] = member_words(states).T
        due = n[lanes] % every == 0
        if due.any():
            saved = member_words(raw_snapshot(self.plan.integrator, self.plan.save, states))
            slots = np.array(self.slots)
            slots[n[lanes][due] // every - 1 - self.first_slot, :, lanes[due]] = saved[due]
            self.slots = self._put(slots)
        self.n, self.state = self._put((n, state))
        self.next_step = int(n.min())

    def accumulators(self, count: int) -> PyTree | None:
        """Return the accumulators of the saved times, by kernels."""
        reduction = self.program.reduction
        if reduction is None:
            return None
        take = _programs.get("one time", lambda: jax.jit(_one_time, static_argnums=2))
        times = (take(self.slots, np.asarray(k), reduction.values) for k in range(count))
        return reduction.batches(list(times), len(self.batch.indices), self.batch.n_members)

    def rows(self, count: int, first: int) -> Snapshot:
        """Return the saved rows."""
        plan = self.plan
        shapes = self.kernel.native.saved_shape
        fetched = min(len(self.slots), 1 << (count - 1).bit_length()) if count else 0  # one program for several numbers
        words = np.asarray(jnp.transpose(self.slots[:fetched], (2, 0, 1)))[:, :count]
        out, at = [], 0
        for s in jax.tree.leaves(shapes):
            size = words_in(s.shape, s.dtype)
            a = np.ascontiguousarray(words[:, :, at : at + size])
            a = a.view(s.dtype) if np.dtype(s.dtype).itemsize >= 8 else a.astype(s.dtype)
            out.append(a.reshape(*a.shape[:2], *s.shape))
            at += size
        rows: Snapshot = jax.tree.unflatten(jax.tree.structure(shapes), out)
        if plan.save.function is None:
            return rows
        cuts = [self.batch.member_slice(i) for i in range(len(self.batch.indices))]
        of = lambda cut: (
            None if plan.axes is None else params_of(self.batch.params, plan.axes, np.arange(cut.start, cut.stop))
        )
        parts = [saved_rows(plan, jax.tree.map(lambda x, cut=cut: x[cut], rows), of(cut), first) for cut in cuts]
        return jax.tree.map(lambda *x: np.concatenate(x), *parts)


def _unpacked(shapes: tuple, dtypes: tuple, padding: int, state: Array) -> list[Array]:
    """Return arrays with a leading axis of members from words × members; the last member is repeated."""
    out, at = [], 0
    for shape, dtype in zip(shapes, dtypes, strict=True):
        size = words_in(shape, dtype)
        a = state[at : at + size].T
        if np.dtype(dtype).kind == "c":
            parts = jax.lax.bitcast_convert_type(a, jnp.float64).reshape(len(a), *shape, 2)
            a = jax.lax.complex(parts[..., 0], parts[..., 1])
        else:
            a = jax.lax.bitcast_convert_type(a, dtype) if np.dtype(dtype).itemsize == 8 else a.astype(dtype)
            a = a.reshape(len(a), *shape)
        out.append(jnp.concatenate([a, jnp.repeat(a[-1:], padding, axis=0)]) if padding else a)
        at += size
    return out


def _one_time(slots: Array, k: Array, words: int) -> Array:
    """The first words of slot k."""
    return jax.lax.dynamic_index_in_dim(slots, k, keepdims=False)[:words]


def _begun(shapes: tuple, n: Array, state: Array) -> tuple[Array, Array, Array]:
    """Return step numbers, the words of members (of one, if all are equal), and an empty save buffer."""
    return jnp.broadcast_to(n, shapes[0]), jnp.broadcast_to(state, shapes[1]), jnp.zeros(shapes[2], jnp.int64)


class DeviceReduction:
    """The tree of `native_reduction` on a GPU: all batches at once, for each saved time."""

    def __init__(self, machine: GpuRuntime, reduction: ReductionKernels, size: int):
        self.machine, self.reduction, self.size = machine, reduction, size
        self.constants = [constants(x) for x in (reduction.single, reduction.merge)]

    @property
    def values(self) -> int:
        """The number of words saved of a member."""
        return self.reduction.values

    def batches(self, rows: list[Any], batches: int, count: int) -> PyTree:
        """Return the accumulators (batches, times, …) of words (words, members) at some times."""
        key = self.reduction.single.executable, self.reduction.merge.executable, self.machine, self.size, batches, count
        program = _programs.get(key, lambda: self.machine.jit(partial(self._one, batches, count)))
        made = [program(x) for x in rows]
        if not made:
            return jax.tree.map(lambda s: np.zeros((batches, 0, *s.shape), s.dtype), self.reduction.accumulator)
        words = np.stack([np.asarray(x) for x in made])  # (times, words, batches)
        flat = np.ascontiguousarray(words.transpose(2, 0, 1)).reshape(batches * len(made), -1, 1)
        return jax.tree.map(lambda x: x.reshape(batches, len(made), *x.shape[1:]), self.reduction.leaves(flat))

    def _one(self, batches: int, count: int, x: Array) -> Array:
        """Return the accumulators (words, batches) of the words (words, members) at one time."""
        words, size = self.reduction.words, self.size
        x = jnp.pad(x, ((0, 0), (0, batches * size - count)))
        acc = self._call(self.reduction.single, self.constants[0], x).reshape(words, batches, size)
        member = np.arange(batches * size).reshape(batches, size)
        half = size
        while half > 1:
            half //= 2
            first, second = acc[:, :, :half], acc[:, :, half:]
            both = jnp.concatenate([first, second]).reshape(2 * words, batches * half)
            merged = self._call(self.reduction.merge, self.constants[1], both).reshape(words, batches, half)
            here = member[:, half : 2 * half] < count
            acc = merged if here.all() else jnp.where(here, merged, first)
        return acc[:, :, 0]

    def _call(self, kernel: Kernel, shared: np.ndarray, own: Array) -> Array:
        """A kernel on words (own, lanes)."""
        lanes = own.shape[1]
        buffers = Buffers(
            n=jnp.zeros(lanes, jnp.int64),
            shared=shared,
            member=own,
            saved=jnp.zeros((1, kernel.sizes.saved, lanes), jnp.int64),
        )
        return self.machine.call(kernel.executable, *kernel.executable.arguments(buffers, 1, 1))[2][0]
