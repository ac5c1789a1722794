"""A warning if a gradient grows along a run, as it does along trajectories of chaotic systems.

Two functions that change nothing enclose a run: `begin` before it and `end` after it. A reverse pass first meets the
transpose of `end`, which measures the cotangents of the saved states, and then that of `begin`, which compares the
cotangent of the initial state with them. The number in between is the cotangent of `token`, which is zero.
"""

import math
import warnings
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from stepcompiler.derivatives import custom_derivative

LIMIT = 1e8  # growth of a gradient that is reported


@custom_derivative
def begin(mu: Array, others: list[Array], time: Array) -> tuple[Array, Array]:
    """The initial state and `token`. `others`: all else by which the run may be differentiated."""
    return mu, jnp.zeros(())


@begin.def_rule
def _begin_slope(out, primals, tangents):
    """Tangents of others count as zero, so that a reverse pass computes the cotangent of the initial state as well."""
    dmu, dothers, _ = tangents
    dmu = jnp.zeros_like(out[0]) if dmu is None else dmu
    for t in dothers:
        dmu = dmu if t is None else dmu + 0.0 * jnp.sum(jnp.real(t))
    return _begin(dmu, primals[2])


@custom_derivative
def _begin(dmu: Array, time: Array) -> tuple[Array, Array]:
    return dmu, jnp.zeros(())


@_begin.def_rule
def _begin_again(out, primals, tangents):
    return _begin(tangents[0], primals[1])


@_begin.def_transpose(0)
def _begin_transposed(cts, time):
    """The cotangent of the initial state, after a comparison with the size of those of saved states."""
    ct, size = cts
    size, now = jax.lax.stop_gradient((size, _size(ct)))
    growth = jnp.where(size > 0.0, now / jnp.where(size > 0.0, size, 1.0), 0.0)

    def reported(growth: Array, time: Array) -> Array:
        return jax.pure_callback(_report, jax.ShapeDtypeStruct((), float), growth, time, vmap_method="broadcast_all")

    time = jax.lax.stop_gradient(time)
    return ct + jax.lax.cond(growth > LIMIT, reported, lambda *_: jnp.zeros(()), growth, time)


@custom_derivative
def end(given: tuple[list[Array], Array]) -> list[Array]:
    """The saved states, from these and `token`."""
    return list(given[0])


@end.def_rule
def _end_slope(out, primals, tangents):
    values, token = tangents[0]
    values = [jnp.zeros_like(x) if t is None else t for x, t in zip(out, values, strict=True)]
    return end((values, jnp.zeros(()) if token is None else token))


@end.def_transpose(0)
def _end_transposed(cts):
    """Cotangents of the saved states, and their size for `token`."""
    return list(cts), jax.lax.stop_gradient(sum(map(_sum_of_sizes, cts), jnp.zeros(())))


def _size(x: Array) -> Array:
    return jnp.max(jnp.abs(x), initial=0.0)


def _sum_of_sizes(x: Array) -> Array:
    """The largest entry of each saved time, summed."""
    return jnp.sum(jnp.max(jnp.abs(x.reshape(len(x), -1)), axis=1, initial=0.0))


def _report(growth: Any, time: Any) -> np.ndarray:
    """Warn on the host; under `vmap` also of gradients that do not grow."""
    growth, time = np.broadcast_arrays(np.asarray(growth, float), np.asarray(time, float))
    k = int(np.argmax(np.where(np.isnan(growth), -1.0, growth)))
    factor = float(growth.flat[k])
    if factor > LIMIT and math.isfinite(factor):
        rate = math.log(factor) / float(time.flat[k])
        warnings.warn(
            f"the gradient grows by a factor of {factor:.1e} over the run, at a rate of {rate:.3g} per unit time, "
            "as it does for chaotic systems. Such a gradient holds only in a tiny neighbourhood of the trajectory. "
            "Differentiate shorter runs, or means over ensembles of short runs.",
            RuntimeWarning,
            stacklevel=2,
        )
    return np.zeros(growth.shape)


def watched(mu: Array, tree: PyTree, time: Any) -> tuple[Array, Array]:
    """The initial state of a run whose reverse pass is to be watched, and `token`; `time` is the length of the run."""
    others = [
        x for x in jax.tree.leaves(tree) if isinstance(x, jax.core.Tracer) and jnp.issubdtype(x.dtype, jnp.inexact)
    ]
    return begin(jnp.asarray(mu), others, jnp.asarray(time, float))


def unwatched(values: PyTree, token: Array) -> PyTree:
    """The saved states of such a run."""
    leaves, structure = jax.tree.flatten(values)
    at = [i for i, x in enumerate(leaves) if jnp.issubdtype(x.dtype, jnp.inexact)]
    for i, x in zip(at, end(([leaves[i] for i in at], token)), strict=True):
        leaves[i] = x
    return jax.tree.unflatten(structure, leaves)
