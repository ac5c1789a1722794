"""Arrays of JAX as words of kernels, and back.

Members come in groups of `width`, the last axis of all words. Arrays lead with members.
"""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from stepcompiler.lowering.complex_lowering import as_reals
from stepcompiler.words import words_in


def words(arrays: Sequence[Array], lead: int = 1) -> Array:
    """Words of arrays that share their first `lead` axes: those axes, then the words."""

    def one(x: Array) -> Array:
        x = jnp.asarray(as_reals(x))
        flat = x.reshape(*x.shape[:lead], math.prod(x.shape[lead:]))
        if flat.dtype == jnp.float64:
            return lax.bitcast_convert_type(flat, jnp.int64)
        return flat.astype(jnp.int64)

    return jnp.concatenate([one(jnp.asarray(x)) for x in arrays], axis=-1)


def arrays(flat: Array, like: Sequence[Any]) -> list[Array]:
    """Arrays from words, whose last axis it is; `like` has the shapes without the leading axes."""
    out, at, lead = [], 0, flat.shape[:-1]
    for s in like:
        size = words_in(s.shape, s.dtype)
        part = flat[..., at : at + size]
        if jnp.issubdtype(s.dtype, jnp.inexact):
            part = lax.bitcast_convert_type(part, jnp.float64)
        if jnp.issubdtype(s.dtype, jnp.complexfloating):
            part = part.reshape(*lead, *s.shape, 2)
            out.append(lax.complex(part[..., 0], part[..., 1]))
        else:
            out.append(part.astype(s.dtype).reshape(*lead, *s.shape))
        at += size
    return out


def grouped(x: Array, width: int) -> Array:
    """(members, …) as (groups, …, width); the last group is filled with the last member."""
    missing = -len(x) % width
    if missing:
        x = jnp.concatenate([x, jnp.repeat(x[-1:], missing, axis=0)])
    return jnp.moveaxis(x.reshape(len(x) // width, width, *x.shape[1:]), 1, -1)


def ungrouped(x: Array, members: int) -> Array:
    """The way back."""
    x = jnp.moveaxis(x, -1, 1)
    return x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])[:members]


def count_words(like: Sequence[Any]) -> int:
    """Words of some shapes together."""
    return sum(words_in(s.shape, s.dtype) for s in like)


def struct(x: Any) -> jax.ShapeDtypeStruct:
    """The shape and type of an array."""
    return jax.ShapeDtypeStruct(jnp.shape(x), jnp.result_type(x))
