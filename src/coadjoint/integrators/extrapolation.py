"""Where a step of matrices starts on a path without noise: from the last steps, by the polynomial through them.

A state may be a stack of k matrices, of which all have the same q.

With the backward differences ∇x_k = x_k − x_{k−1}, the polynomial through the last q of S and D predicts the next,

    x_{k+1} ≈ Σ_{j<q} ∇ʲ x_k = Σ_{j<q} (−1)ʲ C(q, j + 1) x_{k−j},   with an error of about ∇^q x.

q is where ∇^q D is smallest: differences of a path that dt resolves fall by a factor each, others grow.
"""

from functools import reduce
from math import comb
from operator import add
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from ..numerics.sharding import shard_rows
from ..numerics.split_complex import F32, F64, Pair, padded

_POINTS, _FEWER, _MANY = 8, 6, 1000  # stored steps; fewer for large matrices, whose paths are smoother
_SAMPLED = 16  # rows of D by which q is chosen
_SMOOTH = 1e-5  # of W: an expected error of D up to which it is taken from earlier steps, not from S


class StepHistory(NamedTuple):
    """S and D of the last steps of one length dt, in a ring, and E of two; step k has index k mod p."""

    S: Float[Array, "p *k 2 n n"]
    D: Float[Array, "p *k 2 n n"]
    E: Float[Array, "2 *k 2 n n"]
    dt: Float[Array, ""]
    rate: Float[Array, ""]  # at which δ fell when it was followed
    known: Int[Array, ""]  # how many steps there have been


class Prediction(NamedTuple):
    """What earlier steps predict; `near`: whether D is so near that it is a start."""

    S: Pair
    D: Pair
    E: Pair
    rate: Float[Array, ""]
    near: Array
    known: Int[Array, ""]


def empty_history(shape: tuple[int, ...]) -> StepHistory:
    """Before the first step of a matrix or a stack of matrices."""
    *stack, n, _ = shape
    points = _POINTS if n < _MANY else _FEWER
    S, D, E = (jnp.zeros((count, *stack, 2, n, n), dtype) for count, dtype in ((points, F64), (points, F64), (2, F32)))
    return StepHistory(S, D, E, jnp.zeros(()), jnp.zeros(()), jnp.zeros((), int))


def reset_history(history: StepHistory) -> StepHistory:
    """After a step that was taken otherwise."""
    return history._replace(known=jnp.zeros_like(history.known))


def extrapolate(history: StepHistory, dt: Float[Array, ""], size: Float[Array, "*k"]) -> Prediction:
    """S, D and E of the next step; `size`: ‖W‖."""
    points, n = len(history.S), history.S.shape[-1]
    known = jnp.where(history.dt == dt, history.known, 0)
    last = jnp.minimum(known, points)
    q = jnp.arange(points)
    slot = (known - 1 - q) % points  # of the latest, the one before, …
    sample = history.D[..., :: -(-n // _SAMPLED), :][slot]
    differences = jnp.tensordot(_table(points, 0)[:points], sample, 1)
    error = jnp.sqrt(jnp.sum(jnp.square(differences), (-3, -2, -1)) * (n / sample.shape[-2]))
    if size.ndim:  # relative to each matrix, and so to the largest of them
        error, size = jnp.max(error / jnp.where(size > 0, size, 1.0), axis=1), jnp.ones(())
    error = jnp.where((q > 0) & (q < last), error, jnp.inf)
    best = jnp.argmin(error)
    order = jnp.where(last < 2, last, best + (best == last - 1))
    weights = jnp.zeros(points).at[slot].set(_table(points, 1)[order])
    total = lambda x: _pair(reduce(add, (weights[k] * x[k] for k in range(points))))
    E = jnp.where(known % 2 == 1, 2.0 * history.E[0] - history.E[1], 2.0 * history.E[1] - history.E[0])
    near = error[best] <= _SMOOTH * size  # and so there are two steps
    return Prediction(total(history.S), total(history.D), _pair(E), history.rate, near, known)


def append_step(history: StepHistory, at: Prediction, dt: Float[Array, ""]) -> StepHistory:
    """With one more step, that ended at `at`; `at.known` steps before it."""
    n, k = history.S.shape[-1], at.known
    put = lambda ring, x: lax.dynamic_update_index_in_dim(
        ring, shard_rows(x[..., :n, :n].astype(ring.dtype)), k % len(ring), 0
    )
    return StepHistory(put(history.S, at.S), put(history.D, at.D), put(history.E, at.E), dt, at.rate, k + 1)


def _table(points: int, more: int) -> Float[Array, "q p"]:
    """(−1)ʲ C(q, j + more): of ∇^q, or of the prediction by q points."""
    return jnp.asarray([[(-1.0) ** j * comb(q, j + more) for j in range(points)] for q in range(points + 1)])


def _pair(x: Float[Array, "*k 2 n n"]) -> Pair:
    more = padded(x.shape[-1]) - x.shape[-1]
    return shard_rows(jnp.pad(x, (*((0, 0),) * (x.ndim - 2), (0, more), (0, more))))
