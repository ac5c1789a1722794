"""The steps of a run as nested scans, arranged for derivatives in reverse."""

from collections.abc import Callable
from functools import partial
from math import isqrt

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PyTree

from ..drivers import BLOCK, Increment, Window
from ..numerics.rootfind import ROOT
from .run_state import StepState

_TAPE_BYTES = 2**28  # bytes of states and roots that a reverse pass saves
_ROOT_SIZE = 3  # σ, its last correction, and the change of the state


def path_of(window: Window, member: Int[Array, ""] | int, steps: int) -> Increment:
    """Return the increments of a member, step by step."""
    member = jnp.asarray(member)
    increments = jax.vmap(lambda b: window.block(member, b))(jnp.arange(-(-steps // BLOCK)))
    return jax.tree.map(lambda x: x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])[:steps], increments)


def scan_steps(
    step: Callable[[Array, Increment, StepState], StepState],
    snapshot: Callable[[StepState, Array], PyTree],
    first: StepState,
    increments: Increment,
    steps: int,
    save_every: int,
) -> tuple[StepState, PyTree]:
    """Return the last state, and the snapshots after the first.

    A reverse pass recomputes every step from the state before it and the root of its equation. It saves all of these if
    they fit in 256 MB. Otherwise it saves one state per saved time, one per block of about √save_every steps, and those
    of one block. Then it computes each step once more.
    """
    kept = sum(x.nbytes for x in jax.tree.leaves(first)) + _ROOT_SIZE * first.mu.nbytes
    sparse = steps * kept > _TAPE_BYTES
    size = max(k for k in range(1, isqrt(save_every) + 1) if save_every % k == 0) if sparse else 1
    lead = steps // save_every, save_every // size, size
    rows = jax.tree.map(lambda x: x.reshape(*lead, *x.shape[1:]), (jnp.arange(steps), increments))

    def one(point: StepState, row: tuple[Array, Increment]) -> tuple[StepState, None]:
        n, dS = row
        return step(n, dS, point), None

    @partial(jax.checkpoint, policy=None if sparse else jax.checkpoint_policies.save_only_these_names(ROOT))
    def block(point: StepState, rows: PyTree) -> tuple[StepState, None]:
        return _loop(one, point, rows)

    def interval(point: StepState, rows: PyTree) -> tuple[StepState, PyTree]:
        point, _ = _loop(block, point, rows)
        return point, snapshot(point, rows[0].ravel()[-1] + 1)

    return jax.lax.scan(jax.checkpoint(interval) if sparse else interval, first, rows)


def _loop(step: Callable[[PyTree, PyTree], tuple[PyTree, None]], initial: PyTree, rows: PyTree) -> tuple[PyTree, None]:
    """A scan without outputs; for a single row no loop, because JAX and XLA compile one step faster."""
    if len(jax.tree.leaves(rows)[0]) > 1:
        return jax.lax.scan(step, initial, rows)
    return step(initial, jax.tree.map(lambda x: x[0], rows))
