"""One large matrix on several devices: the placement of the members of a batch, and how the XLA backend runs there.

Between two calls of compiled code all matrices have rows of zeros below them, so that each device has as many.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, PyTree

from stepcompiler.jaxprs.interning import intern

from ...numerics import sharding
from ...numerics.split_complex import on_gpu
from ...systems import System
from ..plan import Plan
from ..run_state import StepState

_LARGE = 2**24  # bytes of slots that are cut before they are sent: to cut is a program for each number of slots


class SingleDevice:
    """A batch on one device."""

    def __init__(self, device: Any):
        self.device = device

    def put(self, tree: PyTree) -> PyTree:
        """From the host."""
        return jax.device_put(tree, self.device)

    def rows(self, x: Array, saved: int) -> np.ndarray:
        """Copy the first saves to the host; only these are sent if they are large."""
        if not saved:
            return np.zeros((len(x), 0, *x.shape[2:]), x.dtype)
        return np.asarray(x[:, :saved] if x.nbytes > _LARGE else x)[:, :saved]

    def points(self, points: StepState) -> StepState:
        """Return the states of the members."""
        return points

    def call(self, program: Callable, definition: Any, *args: Any) -> Any:
        """program(core, *args)."""
        return (_for_gpu(program) if on_gpu() else program)(definition, *args)


@cache
def _for_gpu(program: Callable) -> Callable:
    """A compiled program without Triton's products: the vendor's are as fast, so no algorithm is chosen by timing."""
    options: Any = {"compiler_options": {"xla_gpu_enable_triton_gemm": False}}
    return eqx.filter_jit(program.__wrapped__, **options)  # type: ignore[attr-defined]


class ShardedPlacement:
    """A batch of one member whose n×n matrices are distributed over devices, of one process or of several."""

    def __init__(self, plan: Plan):
        self.n = plan.system.algebra.shape[-1]
        self.mesh = sharding.mesh_of(plan.devices)
        with sharding.use_mesh(self.mesh):
            self.more = sharding.padded_size(self.n) - self.n

    def put(self, tree: PyTree) -> PyTree:
        """Copy data from the host, which is equal in all processes."""

        def one(x: Any) -> Array:
            x = np.asarray(x)
            if not self._matrices(x.shape, self.n):
                return sharding.to_device(x, P())
            below = [(0, 0)] * (x.ndim - 2) + [(0, self.more), (0, 0)]
            return sharding.to_device(np.pad(x, below), P(*(None,) * (x.ndim - 2), sharding.AXIS, None))

        with sharding.use_mesh(self.mesh):
            return jax.tree.map(one, tree)

    def host(self, x: Array) -> np.ndarray:
        """To the host of every process."""
        if not self._matrices(x.shape, self.n + self.more):
            return np.asarray(x)
        if not x.is_fully_addressable:
            from jax.experimental.multihost_utils import process_allgather

            x = process_allgather(x, tiled=True)
        return np.asarray(x)[..., : self.n, :]

    def rows(self, x: Array, saved: int) -> np.ndarray:
        """Copy the first saves to the host of every process; nothing is sent if there are none."""
        return self.host(x)[:, :saved] if saved else np.zeros((len(x), 0, *x.shape[2:]), x.dtype)

    def points(self, points: StepState) -> StepState:
        """Return the states of the members; a matrix is copied to the host when it is first read."""
        shape = lambda x: self._matrices(x.shape, self.n + self.more)
        return jax.tree.map(lambda x: LazyMatrix(self, x) if shape(x) else np.asarray(x), points)

    def call(self, program: Callable, definition: Any, *args: Any) -> Any:
        """program(core, *args), compiled for the mesh."""
        with sharding.use_mesh(self.mesh):
            return _called(self, program, definition, args)

    def definition(self, definition: Any) -> Any:
        """With the system on the mesh of devices."""
        with sharding.use_mesh(self.mesh):
            return retraced(definition)

    def cut(self, tree: PyTree) -> PyTree:
        """Remove padding, in compiled code."""
        return self._each(lambda x: sharding.shard_rows(x[..., : self.n, :]), tree, self.n + self.more)

    def filled(self, tree: PyTree) -> PyTree:
        """With the zeros, in compiled code."""
        below = lambda x: [(0, 0)] * (x.ndim - 2) + [(0, self.more), (0, 0)]
        return self._each(lambda x: sharding.shard_rows(jnp.pad(x, below(x))), tree, self.n)

    def _each(self, fn: Callable[[Array], Array], tree: PyTree, rows: int) -> PyTree:
        return jax.tree.map(lambda x: fn(x) if self._matrices(np.shape(x), rows) else x, tree)

    def _matrices(self, shape: tuple[int, ...], rows: int) -> bool:
        return shape[-2:] == (rows, self.n)

    def __hash__(self) -> int:
        return hash((self.n, self.mesh))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShardedPlacement) and (self.n, self.mesh) == (other.n, other.mesh)


@eqx.filter_jit
def _called(where: ShardedPlacement, program: Callable, definition: Any, args: tuple) -> Any:
    return where.filled(program(definition, *where.cut(args)))


def retraced(definition: Any) -> Any:
    """Return the system with its flow's functions traced for the mesh or the GPU; those of users are unchanged."""
    system: System = definition.system
    flow = system.flow
    if flow is None or not system.algebra.is_matrix_conjugation:
        return definition
    if on_gpu():
        flow = eqx.tree_at(lambda f: f.surface, flow, flow.surface.for_gpu())
    state = jax.ShapeDtypeStruct(system.algebra.shape, system.algebra.dtype)
    traced = intern(flow.hamiltonian, state), intern(flow.stream, state)
    return eqx.tree_at(lambda c: (c.system.h, c.system.grad_h), definition, traced)


class LazyMatrix:
    """A distributed matrix, which is copied to the host when it is first read."""

    def __init__(self, where: ShardedPlacement, x: Array):
        self.where, self.x, self.dtype = where, x, x.dtype
        self.shape = (*x.shape[:-2], where.n, where.n)
        self.ndim = len(self.shape)
        self._host: np.ndarray | None = None

    def blocks(self) -> list[tuple[int, np.ndarray]]:
        """Return the blocks of rows of this process, each with the number of its first row."""
        found = ((shard.index[-2].start or 0, np.asarray(shard.data)) for shard in self.x.addressable_shards)
        return [(at, block[..., : self.where.n - at, :]) for at, block in found if at < self.where.n]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if self._host is None:
            self._host = self.where.host(self.x)
        return np.asarray(self._host, dtype)
