"""Quantities made of saved results."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from .validation import is_traced


def quaternions(R: Any) -> Any:
    """Rotation matrices (…, times, 3, 3) as unit quaternions (w, x, y, z), continuous in time.

    The largest of the four components is found first, the others follow without cancellation (Shepperd 1978).
    """
    xp: Any = jnp if is_traced(R) else np  # NumPy compiles nothing
    R = xp.asarray(R)
    trace = R[..., 0, 0] + R[..., 1, 1] + R[..., 2, 2]
    w, x, y, z = trace + 1, *(2 * R[..., i, i] - trace + 1 for i in range(3))  # 4 w², 4 x², 4 y², 4 z²
    wx, wy, wz = (R[..., j, i] - R[..., i, j] for i, j in ((1, 2), (2, 0), (0, 1)))
    xy, xz, yz = (R[..., i, j] + R[..., j, i] for i, j in ((0, 1), (0, 2), (1, 2)))
    rows = [w, wx, wy, wz], [wx, x, xy, xz], [wy, xy, y, yz], [wz, xz, yz, z]
    table = xp.stack([xp.stack(row, axis=-1) for row in rows], axis=-2)  # 4 q qᵀ
    largest = xp.argmax(xp.stack([w, x, y, z], axis=-1), axis=-1)
    q = xp.take_along_axis(table, largest[..., None, None], axis=-2)[..., 0, :]
    q = q / xp.sqrt(xp.sum(q * q, axis=-1, keepdims=True))
    turns = xp.sum(q[..., 1:, :] * q[..., :-1, :], axis=-1, keepdims=True)
    signs = xp.cumprod(xp.where(turns < 0, -1.0, 1.0), axis=-2)
    return xp.concatenate([q[..., :1, :], signs * q[..., 1:, :]], axis=-2)
