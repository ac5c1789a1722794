"""The plan of a run: all arguments checked, nothing run yet. `planning.py` makes plans."""

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree

from stepcompiler.cache import IdentityCache, LRUCache

from ..drivers import BLOCK, Driver, Increment, Needs, Window
from ..integrators.base import Integrator
from ..integrators.implicit import DENSE
from ..integrators.until import Until
from ..numerics import validation
from ..numerics.modules import method_of
from ..systems import System
from . import tuning
from .member_params import energy_of_states, params_of
from .run_state import Snapshot, StepState, TimeGrid, initial_state, take_snapshot
from .saved_times import SavedTimes
from .saved_values import MemberFunction, Save

_structures: IdentityCache[Hashable] = IdentityCache()
_shapes: LRUCache[tuple[StepState, Snapshot]] = LRUCache()
_increments: LRUCache[Increment] = LRUCache()
_MATRICES = 2**22  # entries of the matrices in a batch on a GPU
_SLOTS = 2**18, 2**19  # numbers saved per chunk of a trajectory, and of a batch: 2 and 4 MB


def _structure(module: System | Integrator) -> Hashable:
    """The structure of a module, which never changes."""
    return _structures.get(module, lambda: jax.tree.structure(module))


class Batch(NamedTuple):
    """The members of one batch, or of several in one launch, padded by repeating the last member."""

    indices: range
    n_members: int  # without padding
    member: Int[np.ndarray, " size"]
    mu0: np.ndarray
    params: PyTree  # replaces the system's; leaves that differ between members have an axis of these members
    g0: PyTree  # the group elements at the start, if they are given

    def member_slice(self, which: int) -> slice:
        """Return the slice of the members of one of the batches."""
        each = self.member.size // len(self.indices)
        return slice(which * each, (which + 1) * each)


@dataclass(frozen=True)
class Plan:
    """The checked arguments of `solve` (then `members` is None) or `ensemble`.

    Batches have a fixed size P: member k has index k mod P in batch k div P. A trajectory is a batch of one member.
    """

    system: System
    integrator: Integrator
    driver: Driver
    needs: Needs  # the integrals of the path that the method uses
    t0: float
    dt: float
    steps: int
    save_every: int
    mu0: Array
    save: Save  # for a store, which saves Casimirs and energy too, its function returns (saved values, mu)
    custom: bool  # the user gave a `save` function
    group: bool
    throw: bool
    backend: str
    adjoint: str = "auto"  # how JAX differentiates the run …
    adjoint_memory: int = 2**28  # … and how many bytes the forward pass may save for that
    members: int | None = None
    mu0_by_member: bool = False  # mu0 has an axis of members
    params: PyTree = None  # replaces the system's …
    axes: PyTree = None  # … and whether a leaf has an axis of members (0) or not (None)
    reduce: Any = None
    observe: MemberFunction | None = None  # of a reducer with a state per member
    g0: PyTree = None  # the initial group element, if it is not 1 …
    g0_by_member: bool = False  # … and whether it has an axis of members
    mu0_given: Any = None  # mu0 as the user passed it, before conversion
    max_batch_size: int = field(default_factory=lambda: tuning.current().max_batch_size)
    devices: tuple = ()  # over which one large matrix is distributed; empty: JAX's default device
    save_at: tuple[np.ndarray, np.ndarray] | None = None  # prescribed times instead of `save_every`, and their steps
    member_offset: int = 0  # the first member of arrays with an axis of members: not 0 in the plan of some batches

    # Time.

    @cached_property
    def saved(self) -> SavedTimes:
        """The times at which the run saves."""
        return SavedTimes(self.t0, self.dt, self.steps, self.save_every, *(self.save_at or ()))

    @property
    def n_saved(self) -> int:
        """The number of saved times."""
        return self.saved.count

    def times(self, first: int = 0, last: int | None = None) -> np.ndarray:
        """The saved times first … last − 1."""
        return self.saved.times(first, self.n_saved if last is None else last)

    @cached_property
    def follows_group(self) -> bool:
        """Whether steps compute the group element."""
        event = isinstance(self.integrator, Until) and "g" in self.integrator.event.names
        return self.group or self.system.has_attitude or method_of(self.save, "receives")("g") or event

    @cached_property
    def time_grid(self) -> TimeGrid:
        """For compiled code."""
        each = (x if validation.is_traced(x) else np.asarray(x) for x in (self.t0, self.dt, self.save_every))
        return TimeGrid(*each)  # type: ignore[arg-type]

    # The path.

    @cached_property
    def window_blocks(self) -> int:
        """The number of blocks of steps in a window on the path."""
        return method_of(self.driver, "blocks")(self.system.n_noise)

    def window(self, first: int, blocks: int | None = None) -> Window:
        """The window on the path from block `first` on."""
        return method_of(self.driver, "window")(
            self.system.n_noise, self.dt, first, blocks or self.window_blocks, self.needs
        )

    @cached_property
    def first_window(self) -> Window:
        """The window on the path from its beginning on."""
        return self.window(0)

    @cached_property
    def increment_shape(self) -> Increment:
        """Shapes and types of the increments of one step."""
        window = self.first_window
        leaves, treedef = jax.tree.flatten(window)
        key = treedef, tuple((np.shape(x), x.dtype) for x in leaves)
        return _increments.get(key, window.step_shape)

    @property
    def whole_window(self) -> Window:
        """The window that covers the path of all steps."""
        return self.window(0, -(-self.steps // BLOCK))

    # Shapes.

    def share(self, other: "Plan") -> None:
        """Reuse the properties that depend only on shapes from a plan that differs only in values."""
        for name in ("structure_key", "_first", "save_slots", "increment_shape"):
            if name in other.__dict__:
                self.__dict__[name] = other.__dict__[name]

    @cached_property
    def structure_key(self) -> Hashable:
        """A key that is equal for plans whose runs use the same code, apart from the path."""
        save = jax.tree.structure(self.save)
        return _structure(self.system), _structure(self.integrator), save, self.follows_group

    @cached_property
    def _first(self) -> tuple[StepState, Snapshot]:
        algebra = self.system.algebra

        def first_state(mu: Array) -> tuple[StepState, Snapshot]:
            system, t0 = self.system, jnp.zeros(())
            point = initial_state(system, self.integrator, mu, t0, self.follows_group)
            return point, take_snapshot(self.integrator, self.save, system, point, system.params, t0)

        state = jax.ShapeDtypeStruct(algebra.shape, algebra.dtype)
        return _shapes.get(self.structure_key, lambda: jax.eval_shape(first_state, state))

    @property
    def state_shape(self) -> StepState:
        """Shapes and types of a step state."""
        return self._first[0]

    @property
    def snapshot_shape(self) -> Snapshot:
        """Shapes and types of the saved values of one state."""
        return self._first[1]

    @cached_property
    def accumulator_shape(self) -> PyTree:
        """Shapes and types of the accumulator of one saved time."""
        return jax.eval_shape(self.reduce.init, self.reduced_shape)

    @cached_property
    def observed_shape(self) -> PyTree:
        """Shapes and types of the state of a reducer for one member."""
        return None if self.observe is None else jax.eval_shape(self.reduce.start, self.snapshot_shape.values)

    @cached_property
    def reduced_shape(self) -> PyTree:
        """Shapes and types of the value of a member that a reducer receives."""
        if self.observe is None:
            return self.snapshot_shape.values
        call = lambda state, x, params: self.observe(state, x, params=params, t=jnp.zeros(()))[1]  # type: ignore[misc]
        return jax.eval_shape(call, self.observed_shape, self.snapshot_shape.values, self.system.params)

    @property
    def checkpoint_shape(self) -> StepState:
        """Shapes and types of the state of one member in a checkpoint."""
        return self.state_shape._replace(observed=self.observed_shape)

    @property
    def call_slots(self) -> int:
        """The number of saves per call of compiled code: prescribed times are saved one by one."""
        return self.save_slots if self.save_at is None else 1

    @cached_property
    def save_slots(self) -> int:
        """The number of saves per chunk of steps."""

        def fitting(shapes: PyTree, members: int) -> int:
            size = members * sum(int(np.prod(s.shape)) for s in jax.tree.leaves(shapes))
            return max(1, _SLOTS[members > 1] // max(size, 1))

        slots = fitting(self.snapshot_shape, self.batch_size)
        if self.reduce is not None:  # accumulators may be larger than the rows that they sum
            slots = min(slots, fitting(self.accumulator_shape, 1))
        return slots

    # Members.

    @property
    def batch_size(self) -> int:
        """The number of members in a batch: a power of two, at most `max_batch_size`.

        A batch of large matrices has one member on a CPU, because a matrix occupies a core. On a GPU it has as many
        as fit, divided equally among the batches.
        """
        if self.members is None:
            return 1
        if not self._large:
            return min(self.max_batch_size, 1 << (self.members - 1).bit_length())
        if jax.default_backend() == "cpu":
            return 1
        fitting = max(1, _MATRICES // int(np.prod(self.system.algebra.shape)))
        return -(-self.members // -(-self.members // fitting))

    @property
    def _large(self) -> bool:
        """Whether states are large matrices."""
        algebra = self.system.algebra
        return len(algebra.conjugated_shape or algebra.shape) > 1 and algebra.dim > DENSE

    @property
    def single(self) -> bool:
        """Whether every batch has exactly one member: then programs have no axis of members."""
        return self.members is None or (self._large and self.batch_size == 1)

    @property
    def n_batches(self) -> int:
        """The number of batches."""
        return 1 if self.members is None else -(-self.members // self.batch_size)

    def load_batch(self, numbers: range) -> Batch:
        """Return the members of some consecutive batches."""
        size, last = self.batch_size * len(numbers), self.members or 1
        member = numbers.start * self.batch_size + np.arange(size)
        at = np.minimum(member, last - 1) - self.member_offset
        states = np.asarray(self.mu0)
        mu0 = states[at] if self.mu0_by_member else np.broadcast_to(states, (size, *states.shape))
        each = lambda x: np.asarray(x)[at] if self.g0_by_member else np.broadcast_to(x, (size, *x.shape))
        g0 = jax.tree.map(each, self.g0)
        params = self.params_of(at + self.member_offset)
        return Batch(numbers, min(size, last - numbers.start * self.batch_size), member, mu0, params, g0)

    def describe_batches(self, numbers: range) -> str:
        """Return the members of some batches as text."""
        last = min(numbers.stop * self.batch_size, self.members or 1) - 1
        named = f"batch {numbers.start}" if len(numbers) == 1 else f"batches {numbers.start} to {numbers.stop - 1}"
        return named + ("" if self.members is None else f" (members {numbers.start * self.batch_size} to {last})")

    def count_members(self, numbers: range) -> int:
        """Return the number of members of some batches."""
        return min(numbers.stop * self.batch_size, self.members or 1) - numbers.start * self.batch_size

    def restrict(self, numbers: range) -> "Plan":
        """Return the plan of some batches, whose arrays contain only these members."""
        own = slice(
            numbers.start * self.batch_size - self.member_offset, numbers.stop * self.batch_size - self.member_offset
        )
        each = lambda x, by_member: np.asarray(x)[own] if by_member else x
        params = self.params
        if self.axes is not None:
            params = jax.tree.map(lambda x, a: each(x, a == 0), params, self.axes)
        g0 = jax.tree.map(lambda x: each(x, self.g0_by_member), self.g0)
        mu0: Any = each(self.mu0, self.mu0_by_member)
        return replace(self, mu0=mu0, params=params, g0=g0, member_offset=numbers.start * self.batch_size)

    def params_of(self, member: np.ndarray) -> PyTree:
        """Return the parameters of the given members; None if they do not differ between members."""
        return None if self.axes is None else params_of(self.params, self.axes, member - self.member_offset)

    def energy(self, mu: Array, member: np.ndarray, t: np.ndarray, g: PyTree = None) -> Array:
        """Return h of each state, at its time and with the parameters of its member."""
        return energy_of_states(self.system, self.params_of(member), self.axes, mu, t, g)

    @property
    def traced(self) -> bool:
        """Whether the run is part of something that JAX differentiates, compiles or maps."""
        return validation.is_traced(
            (self.system, self.mu0, self.g0, self.params, self.driver, self.save, self.t0, self.dt)
        )
