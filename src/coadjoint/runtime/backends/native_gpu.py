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

from ...drivers import BLOCK
from ..executors import cores
from ..member_params import params_of
from ..plan import Batch, Plan
from ..run_state import Snapshot, StepState, raw_snapshot
from . import gpu_runtime
from .base import NotSupported, on_cpu
from .gpu_runtime import GpuRuntime
from .native import reduced_rows, saved_rows
from .native_reduction import CpuReduction, ReductionKernels, constants, reduction_for
from .nonconverged_steps import FallbackStepper
from .observer import begin, observer_for, unsupported_reason
from .path_sampling import IncrementSource
from .step_definition import StepDefinition, initial_batch
from .step_kernels import KernelInputs, StepKernel, kernel_for, width_of

TOGETHER = 2**18  # the most members per launch; one launch runs while the rows of another are saved
FEWEST = 2**12  # members from which on a GPU pays
_START = 2.0  # seconds that kernels take to be made and loaded, …
_STEP = 4e-8  # … and that a step takes on one core
_SLOTS = 2**24  # words that are saved in a stretch of steps: 128 megabytes


def prepare(plan: Plan, reason: str) -> "GpuProgram | NotSupported":
    """Return kernels for the step of the plan, or the reason why not. With backend="auto" they must be faster."""
    if plan.members is None:
        return NotSupported("one trajectory would be one thread of a GPU.", expected=True)
    work = plan.members * plan.steps * _STEP / cores()
    if plan.backend == "auto" and (plan.members < FEWEST or work < _START):
        return NotSupported("the run is too small for a GPU.", expected=True)
    machine = gpu_runtime.detect()  # last, for it begins to use the GPU
    if isinstance(machine, str):
        return NotSupported(machine, expected=True)
    kernel = kernel_for(plan, machine.target, drawn=True)
    if isinstance(kernel, NotSupported):  # the driver has no numbers that code can draw, or something else is wrong
        given = kernel_for(plan, machine.target)
        if isinstance(given, NotSupported):
            return NotSupported(f"On a GPU: {given.reason}")
        if given.native.path_columns and plan.backend == "auto":
            return NotSupported(
                "On a GPU: a kernel cannot draw this path, and from memory it would take longer than here."
            )
        kernel = given
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
        wave = RESIDENT * machine.processors  # threads per wave: launches of complete waves use the GPU fully
        self.short_runs: Callable[[Batch], Any] | None = None
        self.batches_per_launch = max(1, (TOGETHER // wave * wave or TOGETHER) // plan.batch_size)
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

    def stepper(self, batch: Batch, points: StepState, n: int) -> "GpuStepper":
        """Return a stepper that starts before step n."""
        return GpuStepper(self, batch, points, n, self.device(batch))


_programs: LRUCache[Any] = LRUCache()


class GpuStepper:
    """The members of some batches on one GPU: words × members, which kernels update in place."""

    def __init__(self, program: GpuProgram, batch: Batch, points: StepState, n: int, device: Any):
        self.program, self.plan, self.batch, self.device, self.at = program, program.plan, batch, device, n
        self.full = False
        self.held = KernelInputs(self.plan, batch, program.kernel.by_member)
        count = batch.n_members
        self.observer = observer_for(self.plan, batch, width_of(self.plan))
        if self.observer is not None:
            self.observer.states, points = points.observed, points._replace(observed=None)
        leaves = [np.asarray(x) for x in jax.tree.leaves(points)]
        alike = all(x.strides[0] == 0 for x in leaves)  # data that all members share is sent once
        state = np.concatenate([as_words(x[: 1 if alike else count]).T for x in leaves])
        rooms = (count,), (len(state), count), (program.slots(batch), program.kernel.native.sizes.saved, count)
        begin = _programs.get(("begin", rooms), lambda: jax.jit(partial(_begun, rooms)))
        self.n, self.state, self.slots = begin(*self._put((np.asarray(n), np.ascontiguousarray(state))))
        own = [as_words(np.asarray(x)[:count]).T for x in self.held.own(program.kernel)]
        self.own = self._put(np.ascontiguousarray(np.concatenate(own)) if own else np.zeros(1))
        self._use(program.kernel)

    def _put(self, x: Any) -> Any:
        return jax.device_put(x, self.device)

    def _use(self, kernel: StepKernel) -> None:
        """Continue with this kernel."""
        self.kernel, machine = kernel, self.program.machine
        self.uniforms = self._put(self.held.uniforms(kernel))
        loop = kernel.native.executable

        def launch(*arrays: Array) -> tuple[Array, ...]:
            n, state, slots = machine.call(loop, *arrays)
            return n, state, slots, jnp.min(n)

        self.launch = _programs.get((loop, machine), lambda: machine.jit(launch, (4, 5, 6)))
        self.source: IncrementSource | None = None

    def points(self) -> StepState:
        """Return copies of the states of the members."""
        padding = self.batch.member.size - self.batch.n_members
        key = self.kernel.shapes, self.kernel.dtypes, padding
        unpack = _programs.get(key, lambda: jax.jit(partial(_unpacked, *key)))
        points = jax.tree.unflatten(self.kernel.treedef, unpack(self.state))
        return points if self.observer is None else points._replace(observed=self.observer.states)

    def advance(self, n1: int, every: int) -> PyTree:
        """Launch kernels, and take fallback steps where a kernel stops."""
        first, low = self.at // every, self.at
        while low < n1:
            base, end, path = self._path(low, n1)
            buffers = Buffers(self.n, self.state, self.uniforms, self.own, path, self.slots, base, first)
            arguments = self.kernel.native.executable.arguments(buffers, end, every)
            self.n, self.state, self.slots, least = self.launch(*arguments)
            low = int(least)
            if low < end and not self._use_full_kernel():
                low = self._take_fallback_steps(end, first, every)
        self.at = n1
        return self._rows(n1 // every - first)

    def _path(self, low: int, n1: int) -> tuple[int, int, Any]:
        """Return the first step of the increments, the last, and the increments (steps, columns, members)."""
        kernel, plan = self.kernel, self.plan
        if kernel.drawn or not kernel.native.path_columns:
            return 0, n1, np.zeros(1)
        if self.source is None or n1 > self.covered:
            first, width = low // BLOCK, width_of(plan)
            window = plan.window(first) if first else plan.first_window
            self.covered = (first + plan.window_blocks) * BLOCK
            self.source = IncrementSource(window, self.batch.member.reshape(-1, width), kernel.native.path_columns)
        rows = self.source.draw(low // BLOCK, n1)
        base = low // BLOCK * BLOCK
        path = rows.transpose(1, 2, 0, 3).reshape(rows.shape[1], rows.shape[2], -1)[:, :, : self.batch.n_members]
        return base, min(n1, base + rows.shape[1]), self._put(np.ascontiguousarray(path))

    def _use_full_kernel(self) -> bool:
        """Continue with the full kernel; return False if it is in use already, or cannot be compiled."""
        if self.full:
            return False
        self.full = True
        kernel = kernel_for(self.plan, self.program.machine.target, full=True, drawn=self.kernel.drawn)
        if isinstance(kernel, NotSupported):
            return False
        self._use(kernel)
        return True

    def _take_fallback_steps(self, end: int, first: int, every: int) -> int:
        """Take one step of the members that stopped, by programs of the CPU; return the least step number."""
        plan = self.plan
        n = np.array(self.n)
        lanes = np.flatnonzero(n < end)
        target = Cpu(width_of(plan))
        kernel = kernel_for(plan, target, full=True)
        kernel = kernel_for(plan, target) if isinstance(kernel, NotSupported) else kernel
        assert isinstance(kernel, StepKernel)  # a CPU supports every step that a GPU supports
        before = np.ascontiguousarray(np.asarray(self.state)[:, lanes].T)
        singly = FallbackStepper(kernel, self.program.definition, plan, self.batch, self.held, int(n.min()))
        after = singly.step(lanes, before, n[lanes])
        n[lanes] += 1
        state = np.array(self.state)
        state[:, lanes] = after.T
        due = n[lanes] % every == 0
        if due.any():
            points = jax.tree.map(lambda x: x[due], kernel.unpack(after[:, :, None]))
            saved = [as_words(x) for x in jax.tree.leaves(raw_snapshot(plan.integrator, plan.save, points))]
            slots = np.array(self.slots)
            slots[n[lanes][due] // every - 1 - first, :, lanes[due]] = np.concatenate(saved, axis=1)
            self.slots = self._put(slots)
        self.n, self.state = self._put((n, state))
        return int(n.min())

    def _rows(self, saved: int) -> PyTree:
        """Return the saved rows."""
        plan, program, first = self.plan, self.program, self.plan.saved.up_to(self.at) - saved
        if program.reduction is not None:
            take = _programs.get("one time", lambda: jax.jit(_one_time, static_argnums=2))
            times = (take(self.slots, np.asarray(k), program.reduction.values) for k in range(saved))
            return program.reduction.batches(list(times), len(self.batch.indices), self.batch.n_members)
        shapes = self.kernel.native.saved_shape
        fetched = min(len(self.slots), 1 << (saved - 1).bit_length()) if saved else 0  # one program for several numbers
        words = np.asarray(jnp.transpose(self.slots[:fetched], (2, 0, 1)))[:, :saved]
        out, at = [], 0
        for s in jax.tree.leaves(shapes):
            size = words_in(s.shape, s.dtype)
            a = np.ascontiguousarray(words[:, :, at : at + size])
            a = a.view(s.dtype) if np.dtype(s.dtype).itemsize >= 8 else a.astype(s.dtype)
            out.append(a.reshape(*a.shape[:2], *s.shape))
            at += size
        rows: Snapshot = jax.tree.unflatten(jax.tree.structure(shapes), out)
        if plan.save.function is not None:
            cuts = [self.batch.member_slice(i) for i in range(len(self.batch.indices))]
            of = lambda cut: (
                None if plan.axes is None else params_of(self.batch.params, plan.axes, np.arange(cut.start, cut.stop))
            )
            parts = [saved_rows(plan, jax.tree.map(lambda x, cut=cut: x[cut], rows), of(cut), first) for cut in cuts]
            rows = jax.tree.map(lambda *x: np.concatenate(x), *parts)
        if self.observer is not None:
            rows = self.observer.observed(rows, first)
        return program.reduced(self.batch, rows, plan.call_slots + 1)


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


def _begun(rooms: tuple, n: Array, state: Array) -> tuple[Array, Array, Array]:
    """Return step numbers, the words of members (of one, if all are equal), and an empty save buffer."""
    return jnp.broadcast_to(n, rooms[0]), jnp.broadcast_to(state, rooms[1]), jnp.zeros(rooms[2], jnp.int64)


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
            n=jnp.zeros(lanes, jnp.int64), state=np.zeros(0), shared=shared, member=own, path=np.zeros(0),
            saved=jnp.zeros((1, kernel.sizes.saved, lanes), jnp.int64),
        )  # fmt: skip
        return self.machine.call(kernel.executable, *kernel.executable.arguments(buffers, 1, 1))[2][0]
