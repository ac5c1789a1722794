"""Fallback for steps that did not converge in native code."""

from collections.abc import Callable
from functools import partial

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Int

from stepcompiler.cache import LRUCache
from stepcompiler.words import as_words

from ...drivers import BLOCK, Window
from ..lapack_lock import run_exclusive
from ..plan import Batch, Plan
from ..run_state import TimeGrid
from .path_sampling import IncrementSource
from .step_definition import StepDefinition, fallback_step
from .step_kernels import KernelInputs, StepKernel


class FallbackStepper:
    """Takes the steps that did not converge in a group of members or on a GPU.

    First native code repeats the step for each member of the group, in a group of copies of this member. If the step
    does not converge there, the fallback solver takes it for this member alone. Therefore results do not depend on the
    other members of a group.
    """

    def __init__(
        self, kernel: StepKernel, definition: StepDefinition, plan: Plan, batch: Batch, held: KernelInputs, first: int
    ):
        """`first` is the earliest step to take."""
        self.kernel, self.definition, self.plan, self.batch, self.held = kernel, definition, plan, batch, held
        self.window = plan.window(first // BLOCK)
        self.fallback = _held(definition, self.window, plan.time_grid)

    def step(self, lanes: Int[np.ndarray, " k"], words: np.ndarray, n: Int[np.ndarray, " k"]) -> np.ndarray:
        """Return the words (k, words) of some members of the batch after step n of each."""
        words = words.copy()
        left = np.ones(len(lanes), bool)
        if self.kernel.width > 1:
            for now in np.unique(n):
                at = np.flatnonzero(n == now)
                words[at], left[at] = self._by_kernel(lanes[at], words[at], int(now))
        for i in np.flatnonzero(left & (lanes < self.batch.n_members)):  # padding is not stepped
            words[i] = self._by_fallback(int(lanes[i]), words[i], int(n[i]))
        return words

    def _by_kernel(self, lanes: np.ndarray, words: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the words after step n, and the members for which it was not valid."""
        kernel, width, count = self.kernel, self.kernel.width, len(lanes)
        copies = lambda x: np.repeat(x[:, :, None], width, axis=2)
        own = [as_words(np.asarray(x)[lanes]) for x in self.held.own(kernel)]
        given = copies(np.concatenate(own, axis=1)) if own else np.zeros((count, 0, width), np.int64)
        buffers = kernel.native.allocate(count * width, slots=1)
        if not kernel.drawn:
            member = np.repeat(self.batch.member[lanes][:, None], width, axis=1)
            source = IncrementSource(self.window, member, kernel.native.path_columns)
            buffers.path, buffers.first_path_step = source.draw(n // BLOCK, n + 1), n // BLOCK * BLOCK
        buffers.n[:], buffers.state = n, copies(words)
        buffers.shared, buffers.member = self.held.uniforms(kernel), given
        kernel.native.run(buffers, n + 1, save_every=n + 1)
        return buffers.state[:, :, 0], buffers.n == n

    def _by_fallback(self, lane: int, words: np.ndarray, n: int) -> np.ndarray:
        """Return the words after step n, by the program with all fallbacks."""
        axes, params = self.definition.axes, self.batch.params
        if axes is not None:
            params = jax.tree.map(lambda x, a: x[lane : lane + 1] if a == 0 else x, params, axes)
        point, member = self.kernel.unpack(words[None, :, None]), self.batch.member[lane : lane + 1]
        after = run_exclusive(self.fallback, member, params, np.full(1, n), np.ones(1, bool), point)
        return np.concatenate([as_words(np.asarray(x))[0] for x in jax.tree.leaves(after)])


fallback_program = eqx.filter_jit(fallback_step)
_programs: LRUCache[Callable] = LRUCache()


def _held(definition: StepDefinition, window: Window, time_grid: TimeGrid) -> Callable:
    """Return `fallback_program` with its first arguments bound.

    Their static parts are compared once, because a comparison per step takes as long as the step.
    """
    arrays, rest = eqx.partition((definition, window, time_grid), eqx.is_array)
    numbers, holding = jax.tree.flatten(arrays)
    objects, wrap_dissipation = jax.tree.flatten(rest)

    def make() -> Callable:
        def program(numbers, *args):
            given = eqx.combine(jax.tree.unflatten(holding, numbers), jax.tree.unflatten(wrap_dissipation, objects))
            return fallback_step(*given, *args)

        return jax.jit(program)

    return partial(_programs.get((holding, tuple(objects), wrap_dissipation), make), numbers)
