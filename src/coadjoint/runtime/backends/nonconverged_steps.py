"""Fallback for steps that did not converge in native code."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Int

from stepcompiler.cache import LRUCache

from ...drivers import BLOCK, Window
from ..lapack_lock import run_exclusive
from ..plan import Batch, Plan
from ..run_state import StepState, TimeGrid
from .path_sampling import IncrementSource
from .step_definition import StepDefinition, fallback_step
from .step_kernels import KernelInputs, StepKernel, member_words


class Repeater(NamedTuple):
    """A kernel of the CPU that repeats a step for one member, and its inputs."""

    kernel: StepKernel
    inputs: KernelInputs


class FallbackStepper:
    """Takes the steps that did not converge in a group of members, on a GPU or on a lattice.

    First native code repeats the step for each member of the group, in a group of copies of this member. If the step
    does not converge there, the fallback solver takes it for this member alone. Therefore results do not depend on the
    other members of a group.
    """

    def __init__(self, repeater: Repeater | None, definition: StepDefinition, plan: Plan, batch: Batch, first: int):
        """`first` is the earliest step to take; without a `repeater`, XLA takes all steps."""
        self.repeater, self.definition, self.batch = repeater, definition, batch
        self.window = plan.window(first // BLOCK)
        self.fallback = _bound(definition, self.window, plan.time_grid)

    def step(self, lanes: Int[np.ndarray, " k"], states: StepState, n: Int[np.ndarray, " k"]) -> StepState:
        """Return the states of some members of the batch after step n of each."""
        leaves, structure = jax.tree.flatten(jax.tree.map(np.array, states))
        left = np.ones(len(lanes), bool)
        repeater = self.repeater
        if repeater is not None and repeater.kernel.width > 1:
            for now in np.unique(n):
                at = np.flatnonzero(n == now)
                after, left[at] = self._by_kernel(*repeater, lanes[at], [x[at] for x in leaves], int(now))
                for x, new in zip(leaves, jax.tree.leaves(after), strict=True):
                    x[at] = new
        for i in np.flatnonzero(left & (lanes < self.batch.n_members)):  # padding is not stepped
            state = jax.tree.unflatten(structure, [x[i : i + 1] for x in leaves])
            after = self._by_fallback(int(lanes[i]), state, int(n[i]))
            for x, new in zip(leaves, jax.tree.leaves(after), strict=True):
                x[i : i + 1] = np.asarray(new)
        return jax.tree.unflatten(structure, leaves)

    def _by_kernel(
        self, kernel: StepKernel, inputs: KernelInputs, lanes: np.ndarray, leaves: list[np.ndarray], n: int
    ) -> tuple[StepState, np.ndarray]:
        """Return the states after step n, and the members for which it was not valid."""
        width, count = kernel.width, len(lanes)
        copies = lambda x: np.repeat(x[:, :, None], width, axis=2)
        own = [np.asarray(x)[lanes] for x in inputs.own(kernel)]
        buffers = kernel.native.allocate(count * width, slots=1)
        if not kernel.drawn:
            member = np.repeat(self.batch.member[lanes][:, None], width, axis=1)
            source = IncrementSource(self.window, member, kernel.native.path_columns)
            buffers.path, buffers.first_path_step = source.draw(n // BLOCK, n + 1), n // BLOCK * BLOCK
        buffers.n[:], buffers.state, buffers.shared = n, copies(member_words(leaves)), inputs.shared(kernel)
        if own:
            buffers.member = copies(member_words(own))
        kernel.native.run(buffers, n + 1, save_every=n + 1)
        return kernel.unpack(buffers.state[:, :, :1]), buffers.n == n

    def _by_fallback(self, lane: int, state: StepState, n: int) -> StepState:
        """Return the state after step n, by the program with all fallbacks."""
        axes, params = self.definition.axes, self.batch.params
        if axes is not None:
            params = jax.tree.map(lambda x, a: x[lane : lane + 1] if a == 0 else x, params, axes)
        member = self.batch.member[lane : lane + 1]
        return run_exclusive(self.fallback, member, params, np.full(1, n), np.ones(1, bool), state)


_programs: LRUCache[Callable] = LRUCache()


def _bound(definition: StepDefinition, window: Window, time_grid: TimeGrid) -> Callable:
    """Return `fallback_step`, compiled, with its first arguments bound.

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
