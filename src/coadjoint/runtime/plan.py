"""The plan of a run: all arguments checked, nothing run yet. `planning.py` makes plans."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree

from stepcompiler.cache import LRUCache

from ..drivers import BLOCK, Driver, Increment, Needs, Window
from ..integrators.base import Integrator
from ..integrators.implicit import DENSE
from ..numerics import validation
from ..systems import System
from .member_params import energy_of_states, params_of
from .run_state import Snapshot, StepState, TimeGrid, initial_state, take_snapshot
from .saved_times import SavedTimes
from .saved_values import MemberFunction, Save

MAX_BATCH_SIZE = 1024  # members that are stepped together
_shapes: LRUCache[tuple[StepState, Snapshot]] = LRUCache()
_increments: LRUCache[Increment] = LRUCache()
_MATRICES = 2**22  # entries of the matrices that are stepped together on a GPU
_SLOTS = 2**18, 2**19  # numbers saved in a chunk of one trajectory, and of a tile: two megabytes, and four


class Batch(NamedTuple):
    """Members that are stepped together, those of one tile or of several, padded by repeating the last one."""

    indices: range
    n_members: int  # without padding
    member: Int[np.ndarray, " size"]
    mu0: np.ndarray
    params: PyTree  # in place of the system's; leaves that are by member lead with the tile's
    g0: PyTree  # the group elements at the start, if they are given

    def member_slice(self, which: int) -> slice:
        """Where the members of one of the tiles are among all of them."""
        each = self.member.size // len(self.indices)
        return slice(which * each, (which + 1) * each)


@dataclass(frozen=True)
class Plan:
    """The checked arguments of `solve` (then `members` is None) or `ensemble`.

    Members sit in tiles of fixed size P, member k in slot k mod P of tile k div P. A trajectory is a tile of one.
    """

    system: System
    integrator: Integrator
    driver: Driver
    needs: Needs  # what the method asks of the path
    t0: float
    dt: float
    steps: int
    save_every: int
    mu0: Array
    save: Save  # for a store, which also keeps Casimirs and energy, its function returns (what is saved, mu)
    custom: bool  # the user gave a `save` function
    group: bool
    throw: bool
    backend: str
    adjoint: str = "auto"  # how JAX differentiates the run …
    adjoint_memory: int = 2**28  # … and how many bytes the forward pass may save for that
    members: int | None = None
    mu0_by_member: bool = False  # mu0 leads with members
    params: PyTree = None  # in place of the system's …
    axes: PyTree = None  # … and, leaf by leaf, whether they lead with members (0) or not (None)
    reduce: Any = None
    observe: MemberFunction | None = None  # of a reducer with a state per member
    g0: PyTree = None  # the group element at the start, where it is not 1 …
    g0_by_member: bool = False  # … and whether it leads with members
    mu0_given: Any = None  # mu0 as it was given, before it was brought into the algebra
    max_batch_size: int = field(default_factory=lambda: MAX_BATCH_SIZE)
    devices: tuple = ()  # over which one large matrix is spread; none: wherever JAX computes
    save_at: tuple[np.ndarray, np.ndarray] | None = None  # given times in place of `save_every`, and their steps
    member_offset: int = (
        0  # the member with which all that leads with members begins: not 0 for the plan of one tile alone
    )

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

    @property
    def follows_group(self) -> bool:
        """Whether steps compute the group element."""
        return self.group or self.system.has_attitude or self.save.receives("g")

    @cached_property
    def time_grid(self) -> TimeGrid:
        """For compiled code."""
        return TimeGrid(*(np.asarray(x) for x in (self.t0, self.dt, self.save_every)))  # type: ignore[arg-type]

    # The path.

    @cached_property
    def window_blocks(self) -> int:
        """Blocks of steps in a window on the path."""
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
        """Shapes and types of what the path does in one step."""
        window = self.first_window
        leaves, treedef = jax.tree.flatten(window)
        key = treedef, tuple((np.shape(x), x.dtype) for x in leaves)
        zero = jax.ShapeDtypeStruct((), jnp.int64)
        first = lambda window, z: jax.tree.map(lambda x: x[0], window.block(z, z))
        return _increments.get(key, lambda: jax.eval_shape(first, window, zero))

    @property
    def whole_window(self) -> Window:
        """The window on the whole path."""
        return self.window(0, -(-self.steps // BLOCK))

    # Shapes.

    def share(self, other: "Plan") -> None:
        """Take over what depends on structures and shapes alone from a plan that differs in values only."""
        for name in ("structure_key", "_first", "save_slots", "increment_shape"):
            if name in other.__dict__:
                self.__dict__[name] = other.__dict__[name]

    @cached_property
    def structure_key(self) -> Hashable:
        """What two plans have in common that run the same code, but for the path."""
        return jax.tree.structure((self.system, self.integrator, self.save)), self.follows_group

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
        """Shapes and types of a point."""
        return self._first[0]

    @property
    def snapshot_shape(self) -> Snapshot:
        """Shapes and types of what is saved of one state."""
        return self._first[1]

    @cached_property
    def accumulator_shape(self) -> PyTree:
        """Shapes and types of what a reducer keeps of one saved time."""
        return jax.eval_shape(self.reduce.init, self.reduced_shape)

    @cached_property
    def observed_shape(self) -> PyTree:
        """Shapes and types of the state that a reducer has for a member."""
        return None if self.observe is None else jax.eval_shape(self.reduce.start, self.snapshot_shape.values)

    @cached_property
    def reduced_shape(self) -> PyTree:
        """Shapes and types of the value of a member that is reduced."""
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
        """How many saved times one call of compiled code holds: given times are saved one by one."""
        return self.save_slots if self.save_at is None else 1

    @cached_property
    def save_slots(self) -> int:
        """How many saved times a chunk of steps holds."""

        def fitting(shapes: PyTree, members: int) -> int:
            size = members * sum(int(np.prod(s.shape)) for s in jax.tree.leaves(shapes))
            return max(1, _SLOTS[members > 1] // max(size, 1))

        slots = fitting(self.snapshot_shape, self.batch_size)
        if self.reduce is not None:  # accumulators may be larger than what they sum up
            slots = min(slots, fitting(self.accumulator_shape, 1))
        return slots

    # Members.

    @property
    def batch_size(self) -> int:
        """Members that are stepped together: at most `largest_tile`, and a power of two.

        Large matrices fill a processor by themselves: one a core on a CPU. A GPU takes many, and no more than there
        are: of tiles as large as fit, all are filled alike.
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
        """Whether states are matrices, and not small."""
        algebra = self.system.algebra
        return len(algebra.shape) > 1 and algebra.dim > DENSE

    @property
    def single(self) -> bool:
        """Whether a tile has one member and always will: then nothing is mapped over members."""
        return self.members is None or (self._large and self.batch_size == 1)

    @property
    def n_batches(self) -> int:
        """How many tiles there are."""
        return 1 if self.members is None else -(-self.members // self.batch_size)

    def load_batch(self, numbers: range) -> Batch:
        """The members of some neighbouring tiles; of a trajectory, itself."""
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
        """The members of some tiles, in words."""
        last = min(numbers.stop * self.batch_size, self.members or 1) - 1
        named = f"batch {numbers.start}" if len(numbers) == 1 else f"batches {numbers.start} to {numbers.stop - 1}"
        return named + ("" if self.members is None else f" (members {numbers.start * self.batch_size} to {last})")

    def count_members(self, numbers: range) -> int:
        """How many members some tiles have."""
        return min(numbers.stop * self.batch_size, self.members or 1) - numbers.start * self.batch_size

    def restrict(self, numbers: range) -> "Plan":
        """The plan of some tiles: of what leads with members it has theirs only."""
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
        """The parameters of the given members, one after the other, where they are by member."""
        return None if self.axes is None else params_of(self.params, self.axes, member - self.member_offset)

    def energy(self, mu: Array, member: np.ndarray, t: np.ndarray, g: PyTree = None) -> Array:
        """h of states, each at its own time and with the parameters of the member it belongs to."""
        return energy_of_states(self.system, self.params_of(member), self.axes, mu, t, g)

    @property
    def traced(self) -> bool:
        """Whether the run is part of something that JAX differentiates, compiles or maps."""
        return validation.is_traced((self.system, self.mu0, self.g0, self.params, self.driver, self.save))


def method_of(module: Any, name: str) -> Callable[..., Any]:
    """A method without the wrapper that equinox makes at each access, which costs a short run its time."""
    return partial(getattr(type(module), name), module)
