"""Large matrices distributed over the devices of a mesh, with a block of rows on each: products, wrapped diagonals.

Code is traced for a mesh inside `jax.set_mesh(mesh)`, where `mesh()` is not None. XLA partitions elementwise
operations and transposes (an all-to-all each). It would gather complete matrices for other operations. They are written
here per device, so that no device contains a complete matrix:

- a product uses a ring: device k multiplies columns of its rows of A with its current rows of B, and sends these to
  device k − 1;
- row j of a matrix contains entry j of all diagonals, so that an all-to-all converts rows to diagonals and back.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Complex

AXIS = "rows"
_current: ContextVar[Mesh | None] = ContextVar("mesh", default=None)


@contextmanager
def use_mesh(mesh: Mesh) -> Iterator[None]:
    """Code is traced for this mesh, and runs there."""
    token = _current.set(mesh)
    try:
        with jax.set_mesh(mesh):
            yield
    finally:
        _current.reset(token)


def current() -> Mesh | None:
    """Return the mesh with its devices, which JAX does not expose during tracing."""
    return _current.get()


def mesh() -> AbstractMesh | None:
    """The mesh for which code is being traced, if there is one."""
    found = jax.sharding.get_abstract_mesh()
    return found if AXIS in found.axis_names else None


def count() -> int:
    """Its devices; 1 without a mesh."""
    found = mesh()
    return 1 if found is None else found.shape[AXIS]


def mesh_of(devices: Any) -> Mesh:
    """The mesh of some devices."""
    return jax.make_mesh((len(devices),), (AXIS,), axis_types=(AxisType.Auto,), devices=devices)


def padded_size(n: int) -> int:
    """n, rounded up to a multiple of the devices."""
    return -(-n // count()) * count()


def shard_rows(x: Array) -> Array:
    """x with the rows of its matrices spread; as it is, without a mesh. Rows need not be a multiple of the devices."""
    if mesh() is None:
        return x
    return lax.with_sharding_constraint(x, P(*(None,) * (x.ndim - 2), AXIS, None))


def to_device(x: np.ndarray, spec: P) -> Array:
    """An array of the host, the same in all processes, spread over the mesh."""
    mesh = current()
    assert mesh is not None
    return jax.make_array_from_callback(x.shape, NamedSharding(mesh, spec), lambda at: x[at])


def ring_product(dot: Callable[[Array, Array], Array], A: Array, B: Array) -> Array:
    """Σ_k dot(A_k, B_k) over blocks of the columns of A and the rows of B: A (…, m, l), B (…, l, p), m, l multiples."""
    k, lead = count(), (None,) * (A.ndim - 2)
    back = [(i, (i - 1) % k) for i in range(k)]

    def ring(a: Array, b: Array) -> Array:
        size, here = b.shape[-2], lax.axis_index(AXIS)
        part = lambda i, b: dot(lax.dynamic_slice_in_dim(a, (here + i) % k * size, size, axis=-1), b)

        def turn(i: Array, state: tuple) -> tuple:
            total, b = state
            b = lax.ppermute(b, AXIS, back)
            return total + part(i, b), b

        return lax.fori_loop(1, k, turn, (part(0, b), b))[0]

    return jax.shard_map(ring, in_specs=P(*lead, AXIS, None), out_specs=P(*lead, AXIS, None))(A, B)


# Wrapped diagonals: D[d, j] = W[j, (j + d) mod n], d < padded_size(n//2 + 1), each complete on a device.

Act = Callable[..., Complex[Array, "d n"]]


def along_diagonals(act: Act, W: Complex[Array, "n n"], tables: Any = (), specs: Any = P()) -> Complex[Array, "n n"]:
    """The skew-Hermitian matrix with the diagonals act(D, first, tables) of W: D begins with diagonal `first`.

    `specs` name the devices of `tables`.
    """
    n = W.shape[-1]

    def local(W: Array, tables: Any) -> Array:
        D = _diagonals(W)
        return _matrix(act(D, lax.axis_index(AXIS) * len(D), tables))

    W = jnp.pad(shard_rows(W), ((0, padded_size(n) - n), (0, 0)))
    return _cut(jax.shard_map(local, in_specs=(P(AXIS, None), specs), out_specs=P(AXIS, None))(W, tables), n)


def from_diagonals(act: Act, D: Complex[Array, "d n"]) -> Complex[Array, "n n"]:
    """The matrix with the diagonals act(D), which act takes one by one."""
    n = D.shape[-1]
    D = jnp.pad(D, ((0, padded_size(n // 2 + 1) - len(D)), (0, 0)))
    return _cut(jax.shard_map(lambda D: _matrix(act(D)), in_specs=P(AXIS, None), out_specs=P(AXIS, None))(D), n)


def _cut(W: Array, n: int) -> Array:
    return shard_rows(W[:n])


def _diagonals(W: Complex[Array, "m n"]) -> Complex[Array, "d n"]:
    """The diagonals of one device, from the rows of all."""
    (m, n), total = W.shape, padded_size(W.shape[-1] // 2 + 1)
    j = lax.axis_index(AXIS) * m + jnp.arange(m)[:, None]
    D = jnp.take_along_axis(W, (j + jnp.arange(total)) % n, axis=1)
    return lax.all_to_all(D, AXIS, 1, 0, tiled=True)[:n].T


def _matrix(D: Complex[Array, "d n"]) -> Complex[Array, "m n"]:
    """The rows of one device, skew-Hermitian to the last bit, from the diagonals of all."""
    n, m = D.shape[1], padded_size(D.shape[1]) // count()
    D = lax.all_to_all(jnp.pad(D.T, ((0, m * count() - n), (0, 0))), AXIS, 0, 1, tiled=True)  # [j, d]
    j, c = lax.axis_index(AXIS) * m + jnp.arange(m)[:, None], jnp.arange(m * count())
    d = (c - j) % n
    given = ((2 * d < n) | ((2 * d == n) & (j < c))) & (j < n) & (c < n)
    above = jnp.where(given, jnp.take_along_axis(D, jnp.where(given, d, 0), axis=1), 0.0)
    below = lax.all_to_all(above, AXIS, 1, 0, tiled=True).T
    value = jnp.where(given, above, -jnp.conj(below))
    return lax.complex(jnp.where(j == c, 0.0, value.real), value.imag)[:, :n]
