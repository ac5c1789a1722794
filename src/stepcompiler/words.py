"""Arrays as words of eight bytes, the form in which kernels read and write them.

A number of any type takes one word; a complex number takes two. Narrow integers and truth values are widened.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np


def as_words(x: Any) -> np.ndarray:
    """Return an array with a leading axis as words (leading, words)."""
    a = np.asarray(x)
    if a.dtype.kind == "c":
        a = np.ascontiguousarray(a)[..., None].view(np.float64)
    a = np.ascontiguousarray(a if a.dtype.itemsize == 8 else a.astype(np.int64))
    return a.reshape(len(a), math.prod(a.shape[1:])).view(np.int64)


def words_in(shape: Any, dtype: Any) -> int:
    """Return the number of words that an array takes."""
    return math.prod(shape) * (2 if np.dtype(dtype).kind == "c" else 1)


def packed(leaves: Sequence, width: int) -> np.ndarray:
    """Return arrays that lead with members as words (groups, words, width)."""

    def words(x: Any) -> np.ndarray:
        a = as_words(x)
        return np.ascontiguousarray(a.reshape(len(a) // width, width, a.shape[1]).swapaxes(1, 2))

    return np.concatenate([words(x) for x in leaves], axis=1)


def unpacked(words: np.ndarray, shapes: Any, dtypes: Any) -> list[np.ndarray]:
    """Return arrays (members, times, …) from words (groups, times, words, width)."""
    groups, times, _, width = words.shape
    out, at = [], 0
    for shape, dtype in zip(shapes, dtypes, strict=True):
        kind = np.dtype(dtype).kind
        size = words_in(shape, dtype)
        a = words[:, :, at : at + size]
        a = a.view(np.float64 if kind == "c" else dtype) if np.dtype(dtype).itemsize >= 8 else a.astype(dtype)
        a = np.ascontiguousarray(a.transpose(0, 3, 1, 2))
        out.append((a.view(dtype) if kind == "c" else a).reshape(groups * width, times, *shape))
        at += size
    return out
