"""Operations that only move elements, for arrays of any objects."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Objects = np.ndarray  # dtype object


def object_array(entries: Sequence[Any], shape: tuple[int, ...]) -> Objects:
    """An array of objects from a flat list of them."""
    out = np.empty(len(entries), object)
    for i, x in enumerate(entries):
        out[i] = x
    return out.reshape(shape)


def row(x: Objects, i: int) -> Objects:
    """x[i], an array also if it is only one object."""
    return object_array([x[i]], ()) if x.ndim == 1 else x[i]


def _broadcast(params: dict, x: Objects, *_: Any) -> list[Objects]:
    shape, where = params["shape"], params["broadcast_dimensions"]
    inner = [1] * len(shape)
    for axis, size in zip(where, x.shape, strict=True):
        inner[axis] = size
    return [np.broadcast_to(x.reshape(inner), shape)]


def _slice(params: dict, x: Objects) -> list[Objects]:
    strides = params["strides"] or (1,) * x.ndim
    return [x[tuple(map(slice, params["start_indices"], params["limit_indices"], strides))]]


def _pad(params: dict, x: Objects, value: Objects) -> list[Objects]:
    """Pad between the elements and at the ends; a negative width removes elements."""
    if x.ndim == 0:
        return [x]
    low, high, inside = (np.array(c, int) for c in zip(*params["padding_config"], strict=True))
    size = np.maximum(np.array(x.shape), 1)
    spread = np.where(np.array(x.shape) > 0, (size - 1) * (inside + 1) + 1, 0)
    shape = spread + np.maximum(low, 0) + np.maximum(high, 0)
    out = object_array([value[()]] * int(np.prod(shape)), tuple(shape))
    out[tuple(slice(max(a, 0), max(a, 0) + s, i + 1) for a, s, i in zip(low, spread, inside, strict=True))] = x
    return [out[tuple(slice(max(-a, 0), n - max(-b, 0)) for a, b, n in zip(low, high, shape, strict=True))]]


def _split(params: dict, x: Objects) -> list[Objects]:
    return np.split(x, np.cumsum(params["sizes"])[:-1], axis=params["axis"])


def _same(params: dict, *xs: Objects) -> list[Objects]:
    return list(xs)


MOVES: dict[str, Callable[..., list[Objects]]] = {
    "broadcast_in_dim": _broadcast,
    "concatenate": lambda params, *xs: [np.concatenate(xs, axis=params["dimension"])],
    "expand_dims": lambda params, x: [np.expand_dims(x, params["dimensions"])],
    "name": _same,
    "optimization_barrier": _same,
    "pad": _pad,
    "pvary": _same,
    "reshape": lambda params, x: [x.reshape(params["new_sizes"])],
    "rev": lambda params, x: [np.flip(x, params["dimensions"])],
    "slice": _slice,
    "split": _split,
    "squeeze": lambda params, x: [x.reshape(np.squeeze(np.empty(x.shape), params["dimensions"]).shape)],
    "stack": lambda params, *xs: [np.stack(xs, axis=params["axis"])],
    "stop_gradient": _same,
    "tile": lambda params, x: [np.tile(x, params["reps"])],
    "transpose": lambda params, x: [x.transpose(params["permutation"])],
    "unstack": lambda params, x: [row(np.moveaxis(x, params["axis"], 0), i) for i in range(x.shape[params["axis"]])],
}
