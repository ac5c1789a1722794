"""Rotations as unit quaternions (w, x, y, z)."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from .validation import is_traced


def quaternions(R: Any, axis: int = -3) -> Any:
    """Rotation matrices as unit quaternions (w, x, y, z), continuous along the given axis, that of times."""
    xp: Any = jnp if is_traced(R) else np
    q = xp.moveaxis(rotation_to_quaternion(R), axis + 1 if axis < 0 else axis, -2)
    turns = xp.sum(q[..., 1:, :] * q[..., :-1, :], axis=-1, keepdims=True)
    signs = xp.cumprod(xp.where(turns < 0, -1.0, 1.0), axis=-2)
    q = xp.concatenate([q[..., :1, :], signs * q[..., 1:, :]], axis=-2)
    return xp.moveaxis(q, -2, axis + 1 if axis < 0 else axis)


def rotation_to_quaternion(R: Any) -> Any:
    """The unit quaternion (w, x, y, z) of a rotation matrix, with w ≥ 0.

    It can be used in functions of the group element, `h(mu, g)`, and differentiated. The largest of the four components
    is found first, and the others follow without cancellation (Shepperd 1978).

    Parameters
    ----------
    R : array, shape (..., 3, 3)
        Rotation matrices, such as `g` for SO3 and `g[:3, :3]` for SE3.

    Returns
    -------
    array, shape (..., 4)
        The quaternions: cos(θ/2), then sin(θ/2) times the axis.
    """
    xp: Any = jnp if isinstance(R, jnp.ndarray) else np  # NumPy needs no compilation
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
    return xp.where(q[..., :1] < 0, -q, q)


def quaternion_to_rotation(q: Any) -> Any:
    """The rotation matrix of a quaternion (w, x, y, z), which need not have length 1.

    Parameters
    ----------
    q : array_like, shape (..., 4)
        Quaternions other than 0.

    Returns
    -------
    array, shape (..., 3, 3)
        The rotation matrices, such as `g0` for SO3.

    Raises
    ------
    ValueError
        If a quaternion is 0 or not finite. Traced quaternions are not checked.
    """
    xp: Any = np if isinstance(q, (np.ndarray, list, tuple)) and not is_traced(q) else jnp
    q = xp.asarray(q)
    if q.shape[-1:] != (4,):
        raise ValueError(f"q must have shape (..., 4), not {q.shape}.")
    if not is_traced(q):
        lengths = np.linalg.norm(np.asarray(q), axis=-1)
        if not (np.all(np.isfinite(lengths)) and np.all(lengths > 0.0)):
            raise ValueError("q must be finite quaternions other than 0.")
    w, v = q[..., :1, None], q[..., 1:]
    zero = xp.zeros(q.shape[:-1])
    x, y, z = (v[..., k] for k in range(3))
    rows = [zero, -z, y], [z, zero, -x], [-y, x, zero]
    hat = xp.stack([xp.stack(row, axis=-1) for row in rows], axis=-2)
    size = xp.sum(q * q, axis=-1)[..., None, None]
    return np.eye(3) + 2.0 * (w * hat + hat @ hat) / size
