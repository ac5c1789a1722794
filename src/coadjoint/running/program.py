"""Programs: the compiled chunk of one trajectory or of a tile of members, in lanes where that pays."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree

from ..drivers import Window
from ..integrators.base import Integrator
from ..native.code import Unsuited
from ..systems import System
from .chunk import Clock, Point, Record, Stretch, advance, open_slots, record, start
from .native_chunk import WIDTH, advance_lanes, eligible

_unsuited: set[Any] = set()  # programs that were tried in lanes in vain


class Program(eqx.Module):
    """How chunks of one trajectory are computed."""

    system: System
    integrator: Integrator
    save: Callable[[Array], PyTree] | None
    group: bool = eqx.field(static=True)

    def start(self, mu0: Array) -> tuple[Point, Record]:
        """The point before the first step, and what is saved of it."""
        return _start(self, mu0)

    def open(self, point: Point, first: Record, slots: int) -> Stretch:
        """The run before its first chunk."""
        return Stretch(point, jnp.zeros((), int), open_slots(first, slots))

    def advance(self, path: str, window: Window, clock: Clock, first_slot: int, n1: int, stretch: Stretch) -> Stretch:
        """Steps up to n₁."""
        member, slot = jnp.zeros((), int), jnp.asarray(first_slot)

        def plain(stretch: Stretch, end: np.ndarray) -> Stretch:
            return _plain(
                self.system, self.integrator, window, self.save, clock, member, slot, jnp.asarray(end), stretch
            )

        def lanes(stretch: Stretch) -> Stretch:
            return advance_lanes(
                self.system, self.integrator, window, self.save, clock, member, first_slot, n1, stretch
            )

        return _drive(lanes if path == "lanes" else None, plain, n1, stretch)


class TileProgram(eqx.Module):
    """How chunks of a tile of members are computed: groups of members, arrays with leading axes (group, member).

    `params` replaces those of the system; `axes` says leaf by leaf which of them lead with members.
    """

    system: System
    integrator: Integrator
    save: Callable[[Array], PyTree] | None
    group: bool = eqx.field(static=True)
    axes: PyTree = eqx.field(static=True)

    def with_params(self, params: PyTree) -> System:
        """The system of one member, or of a group of them."""
        return self.system if self.axes is None else eqx.tree_at(lambda s: s.params, self.system, params)

    def start(self, tile: "Tile") -> tuple[Point, Record]:
        """The points before the first step, and what is saved of them."""
        return _start_tile(self, tile)

    def open(self, tile: "Tile", points: Point, first: Record, slots: int) -> Stretch:
        """The members before their first chunk."""
        groups, size = tile.member.shape
        shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct((groups, size, *x.shape[2:]), x.dtype), first)
        empty = jax.tree.map(lambda s: jnp.zeros((s.shape[0], slots + 1, *s.shape[1:]), s.dtype), shapes)
        return Stretch(points, jnp.zeros(groups, int), empty)

    def advance(
        self, path: str, window: Window, clock: Clock, tile: "Tile", first_slot: int, n1: int, stretch: Stretch
    ) -> Stretch:
        """Steps up to n₁ of all members. Slots are laid out (group, slot, member, …)."""
        slot = jnp.asarray(first_slot)

        def plain(stretch: Stretch, end: np.ndarray) -> Stretch:
            return _plain_tile(self, window, clock, tile, slot, jnp.asarray(end), stretch)

        def lanes(stretch: Stretch) -> Stretch:
            system, led = self.with_params(tile.params), _leaves_with_members(self)
            return advance_lanes(
                system, self.integrator, window, self.save, clock, tile.member, first_slot, n1, stretch, led
            )

        return _drive(lanes if path == "lanes" else None, plain, n1, stretch)


class Tile(eqx.Module):
    """The members of a tile, in groups, padded by repeating the last one."""

    member: Int[Array, "groups size"]
    mu0: Array
    params: PyTree


def group_size(path: str, tile: int) -> int:
    """Members in a group: those that are side by side in lanes, the whole tile else."""
    return min(WIDTH, tile) if path == "lanes" else tile


def on_best_path(system: System, integrator: Integrator, group: bool, members: int, run: Callable[[str], Any]) -> Any:
    """run("lanes") if that can be worth it, run("plain") if not, or if the program turns out to be unsuited.

    That shows when it is traced, before anything is computed.
    """
    if eligible(system):
        key = (jax.tree.structure((system, integrator)), group, members > 1)
        if key not in _unsuited:
            try:
                return run("lanes")
            except Unsuited:
                _unsuited.add(key)
    return run("plain")


def _drive(lanes: Callable | None, plain: Callable, n1: int, stretch: Stretch) -> Stretch:
    """In lanes as far as they go; where they stop, the plain program to the end of that block of steps.

    That end is part of the run's state, so that cutting a run into other chunks changes nothing.
    """
    if lanes is None:
        return plain(stretch, np.full(np.shape(stretch.n), n1))
    while True:
        n, until = np.asarray(stretch.n), np.asarray(stretch.point.plain_until)
        until = np.minimum(until[..., 0] if until.ndim else until, n1)
        if np.any(n < until):
            stretch = plain(stretch, np.maximum(n, until))
        if np.all(np.asarray(stretch.n) >= n1):
            return stretch
        stretch = lanes(stretch)


_plain = eqx.filter_jit(advance)


@eqx.filter_jit
def _start(program: Program, mu0: Array) -> tuple[Point, Record]:
    point = start(program.system, program.integrator, mu0, program.group)
    return point, record(program.integrator, program.save, point)


@eqx.filter_jit
def _start_tile(program: TileProgram, tile: Tile) -> tuple[Point, Record]:
    def one(mu0, params):
        point = start(program.with_params(params), program.integrator, mu0, program.group)
        return point, record(program.integrator, program.save, point)

    return jax.vmap(jax.vmap(one, in_axes=(0, program.axes)), in_axes=(0, program.axes))(tile.mu0, tile.params)


@eqx.filter_jit
def _plain_tile(
    program: TileProgram, window: Window, clock: Clock, tile: Tile, slot: Array, ends: Array, stretch: Stretch
) -> Stretch:
    def one_group(group):
        member, params, end, (points, n0, slots) = group

        def one(member, params, point, slots):
            system = program.with_params(params)
            stretch = Stretch(point, n0, slots)
            return advance(system, program.integrator, window, program.save, clock, member, slot, end, stretch)

        axes = Stretch(0, None, 1)  # type: ignore[arg-type]
        return jax.vmap(one, in_axes=(0, program.axes, 0, 1), out_axes=axes)(member, params, points, slots)

    ends = jnp.broadcast_to(ends, stretch.n.shape)
    return jax.lax.map(one_group, (tile.member, _by_group(program, tile), ends, stretch))


def _by_group(program: TileProgram, tile: Tile) -> PyTree:
    """The parameters with a leading axis of groups, those that all members share included."""
    if program.axes is None:
        return None
    groups = tile.member.shape[:1]
    return jax.tree.map(lambda x, a: x if a == 0 else jnp.broadcast_to(x, groups + x.shape), tile.params, program.axes)


def _leaves_with_members(program: TileProgram) -> tuple[bool, ...] | None:
    """For each number of the system, whether it leads with members; None if none does."""
    if program.axes is None:
        return None
    flags = eqx.tree_at(
        lambda s: s.params,
        jax.tree.map(lambda _: False, program.system),
        jax.tree.map(lambda a: a == 0, program.axes, is_leaf=lambda x: x is None),
    )
    return tuple(jax.tree.leaves(flags))
