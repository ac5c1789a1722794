"""Launching kernels on the GPUs of this machine: by XLA's call of PTX, by the CUDA driver, or emulated on a CPU.

XLA's call `__gpu$xla.gpu.ptx` takes its turn among all that JAX computes, inside compiled programs too; but it is XLA's
to change, so it is tried once before it is used. If the test fails, the CUDA driver is called directly.
"""

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from stepcompiler.compile import compile_step
from stepcompiler.device_arrays import to_device
from stepcompiler.kernel import Buffers, Signature
from stepcompiler.targets.gpu import Gpu, GpuExecutable

_BLOCKS = (512, 256, 128, 64)  # threads in a block: those of a large one read the same code at about the same time


class GpuRuntime(Protocol):
    """The GPUs of a machine."""

    target: Gpu
    devices: list[Any]
    processors: int  # of one of them, each with its own registers

    def call(self, loop: GpuExecutable, *arrays: Any) -> tuple[Array, ...]:
        """Run a kernel on arrays in the order of its arguments. It updates n, state and slots in place if possible."""
        ...

    def jit(self, program: Callable, donate: tuple[int, ...] = ()) -> Callable:
        """A program that calls kernels, compiled if that is possible."""
        ...


def processors_of(devices: list[Any]) -> int:
    """Return the number of processors of a GPU; 1 if JAX does not report it."""
    return max(1, min(getattr(d, "core_count", 0) for d in devices))


def threads_for(members: int, processors: int) -> tuple[int, int]:
    """Blocks, and threads in each: as large as they may be with the members spread evenly over the processors."""
    busiest = lambda size: -(-members // (size * processors)) * size
    size = min(_BLOCKS, key=busiest)
    return -(-members // size), size


class XlaLauncher:
    """NVIDIA GPUs, kernels called by XLA."""

    target = Gpu()

    def __init__(self, devices: list[Any]):
        self.devices = devices
        self.capability = min(int(str(d.compute_capability).replace(".", "")) for d in devices)
        self.processors = processors_of(devices)

    def call(self, loop: GpuExecutable, *arrays: Any) -> tuple[Array, ...]:
        """XLA's custom call."""
        shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in arrays[4:]]
        blocks, size = threads_for(len(arrays[4]), self.processors)
        call = jax.ffi.ffi_call("__gpu$xla.gpu.ptx", shapes, input_output_aliases={4: 0, 5: 1, 6: 2})
        one, none = np.int32(1), np.int32(0)
        return tuple(call(
            *arrays, name="advance", kernel_type="ptx", kernel_data=loop.ptx(self.capability), shared_mem_bytes=none,
            grid_x=np.int32(blocks), grid_y=one, grid_z=one, block_x=np.int32(size), block_y=one, block_z=one,
        ))  # fmt: skip

    def jit(self, program: Callable, donate: tuple[int, ...] = ()) -> Callable:
        """Compiled."""
        return jax.jit(program, donate_argnums=donate)


class CudaLauncher:
    """NVIDIA GPUs, whose driver launches kernels on JAX's arrays; a launch waits for its arrays and results."""

    target = Gpu()

    def __init__(self, devices: list[Any]):
        self.devices = devices
        self.capability = min(int(str(d.compute_capability).replace(".", "")) for d in devices)
        self.processors = processors_of(devices)
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self._check(self.cuda.cuInit(0))
        self._functions: dict[Any, ctypes.c_void_p] = {}

    def _check(self, code: int) -> None:
        if code:
            text = ctypes.c_char_p()
            self.cuda.cuGetErrorString(code, ctypes.byref(text))
            raise RuntimeError(f"CUDA driver: {(text.value or b'').decode()} ({code}).")

    def _function(self, loop: GpuExecutable, ordinal: int) -> ctypes.c_void_p:
        """The kernel, loaded into the context that JAX uses; that becomes this thread's."""
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self._check(self.cuda.cuDeviceGet(ctypes.byref(device), ordinal))
        self._check(self.cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
        self._check(self.cuda.cuCtxSetCurrent(context))
        if (loop, ordinal) not in self._functions:
            module, function = ctypes.c_void_p(), ctypes.c_void_p()
            self._check(self.cuda.cuModuleLoadData(ctypes.byref(module), loop.ptx(self.capability).encode() + b"\0"))
            self._check(self.cuda.cuModuleGetFunction(ctypes.byref(function), module, b"advance"))
            self._functions[loop, ordinal] = function
        return self._functions[loop, ordinal]

    def call(self, loop: GpuExecutable, *arrays: Any) -> tuple[Array, ...]:
        """A launch, to its end."""
        (device,) = arrays[4].devices()
        arrays = tuple(jax.device_put(a, device) for a in arrays)
        jax.block_until_ready(arrays)
        function = self._function(loop, device.local_hardware_id)
        pointers = [ctypes.c_void_p(a.unsafe_buffer_pointer()) for a in (*arrays, *arrays[4:])]
        given = (ctypes.c_void_p * len(pointers))(*(ctypes.addressof(p) for p in pointers))
        blocks, size = threads_for(len(arrays[4]), self.processors)
        self._check(self.cuda.cuLaunchKernel(function, blocks, 1, 1, size, 1, 1, 0, None, given, None))
        self._check(self.cuda.cuCtxSynchronize())
        return arrays[4:]

    def jit(self, program: Callable, donate: tuple[int, ...] = ()) -> Callable:
        """As it is."""
        return program


class EmulatedGpu:
    """No GPU: the kernel's text as machine code for this processor, one thread after the other. For tests."""

    target = Gpu(emulated=True)
    processors = 1

    def __init__(self, count: int = 1):
        self.devices = jax.local_devices(backend="cpu")[:1] * count

    def call(self, loop: GpuExecutable, *arrays: Any) -> tuple[Array, ...]:
        """All threads."""
        copies = [np.array(a) for a in arrays]
        blocks, size = threads_for(len(copies[4]), self.processors)
        loop.emulate(blocks * size, *copies)
        return tuple(to_device(a) for a in copies[4:])

    def jit(self, program: Callable, donate: tuple[int, ...] = ()) -> Callable:
        """As it is."""
        return program


@cache
def detect() -> GpuRuntime | str:
    """Return the GPUs of this machine, or the reason why none can be used."""
    devices = [d for d in jax.local_devices() if d.platform in ("gpu", "cuda")]
    if not devices:
        return "JAX finds no GPU on this machine."
    if not hasattr(devices[0], "compute_capability") or "nvidia" not in devices[0].device_kind.lower():
        return f"native code is not made for {devices[0].device_kind}."
    troubles = []
    for way in XlaLauncher, CudaLauncher:
        try:
            machine = way(devices)
            self_test(machine)
            return machine
        except Exception as error:
            troubles.append(" ".join(str(error).split())[:200])
    return f"kernels could not be run on {devices[0].device_kind}: {'; '.join(troubles)}"


def self_test(machine: GpuRuntime) -> None:
    """Raise an error if a test kernel fails: two steps of x → 3x + 1 of each number, in place."""

    def step(shared: list, own: list, state: Array, n: Array, path: None) -> tuple[Array, ...]:
        new = 3.0 * state + own[0]
        return new, new, jnp.ones((), bool)

    number = jax.ShapeDtypeStruct((), jnp.float64)
    kernel = compile_step(step, Signature(member=[number], state=number), machine.target)
    loop, x = kernel.executable, np.arange(1000.0)
    buffers = Buffers(
        np.zeros(1000, np.int64), state=x[None].copy(), member=np.ones((1, 1000)), saved=np.zeros((2, 1, 1000))
    )
    program = machine.jit(lambda *a: machine.call(loop, *a), (4, 5, 6))
    n, state, slots = program(*jax.device_put(loop.arguments(buffers, 2, 1), machine.devices[0]))
    expected = np.stack([3 * x + 1, 3 * (3 * x + 1) + 1])
    same = np.array_equal(np.asarray(slots)[:, 0], expected) and np.array_equal(np.asarray(state)[0], expected[1])
    if not same or np.any(np.asarray(n) != 2):
        raise RuntimeError("a kernel that was tried gave wrong numbers.")
