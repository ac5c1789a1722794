"""Quantities made of saved results."""

import numpy as np


def quaternions(R: np.ndarray) -> np.ndarray:
    """Rotation matrices (…, times, 3, 3) as unit quaternions (w, x, y, z), continuous in time.

    The largest of the four components is found first, the others follow without cancellation (Shepperd 1978).
    """
    diagonal = np.einsum("...ii->...i", R)
    trace = diagonal.sum(-1)
    squares = np.concatenate([trace[..., None], 2 * diagonal - trace[..., None]], axis=-1) + 1  # 4 w², 4 x², 4 y², 4 z²
    skew = np.stack([R[..., 2, 1] - R[..., 1, 2], R[..., 0, 2] - R[..., 2, 0], R[..., 1, 0] - R[..., 0, 1]], -1)
    table = np.empty((*R.shape[:-2], 4, 4))  # 4 q qᵀ
    table[..., range(4), range(4)] = squares
    table[..., 0, 1:] = table[..., 1:, 0] = skew
    for i, j in ((1, 2), (1, 3), (2, 3)):
        table[..., i, j] = table[..., j, i] = R[..., i - 1, j - 1] + R[..., j - 1, i - 1]
    largest = np.argmax(squares, axis=-1)
    q = np.take_along_axis(table, largest[..., None, None], axis=-2)[..., 0, :]
    q /= np.linalg.norm(q, axis=-1, keepdims=True)
    turns = np.sum(q[..., 1:, :] * q[..., :-1, :], axis=-1, keepdims=True)
    signs = np.cumprod(np.where(turns < 0, -1.0, 1.0), axis=-2)
    return np.concatenate([q[..., :1, :], signs * q[..., 1:, :]], axis=-2)
