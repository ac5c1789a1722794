"""The values of arrays of a lattice at one site, with the sites to which they belong.

Three kinds of values describe the arrays of a program over a lattice:

- a plain array is `uniform`: all sites share it;
- a `PerSite` array has k numbers for each of some consecutive sites, stored site after site, and holds those of one;
- a `Moved` array lists for each of its elements the address of the number that it is a copy of.

`Addresses` assigns addresses. `Addresses.aligned` is the only way from these values to the numbers of one site: it
returns them if it can prove that all operands belong to the same sites, or raises an error.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jex
from jax.interpreters import ad
from jaxtyping import Array, Int

from ..errors import NotCompilable
from ..jaxprs.interning import value_key

MOST = 1024  # numbers per site in one array; larger arrays are not examined

_PARTS = "Different parts of a lattice meet in one operation, which native code does not support."
_NOT_ALL = "An array that does not belong to all sites of a lattice is not supported in native code."
_UNEQUAL = "Not all sites of a lattice compute the same expression, which native code requires."
_CLOSURE = "Native code of a lattice supports arrays that differ from site to site only in `params` and in the state."
SUMS = "A sum over the sites of a lattice is not supported in native code."


class NeighborMap:
    """A table that maps each site to another site; equal only to itself."""

    def __init__(self, table: Int[np.ndarray, " sites"]):
        self.table = table


_neighbor = jex.Primitive("neighbor")
_neighbor.def_abstract_eval(lambda x, relation: x)
ad.deflinear2(_neighbor, None)  # the tangent at the related site; no method transposes a step for one site


def neighbor(x: Array, relation: NeighborMap) -> Array:
    """The value of x at the related site; only for programs that become native code."""
    return _neighbor.bind(x, relation=relation)


def _read(x: Array, relation: NeighborMap) -> Array:
    """The value at the related site. Memory holds numbers of type float64, to which smaller types are converted."""
    exact = x.dtype == bool or (x.dtype.kind in "iuf" and x.dtype.itemsize <= 4)
    return neighbor(x.astype(jnp.float64), relation).astype(x.dtype) if exact else neighbor(x, relation)


class Sites(NamedTuple):
    """Consecutive sites: `count` of them from `first` on, counted in the lattice or in one part of it.

    `part` is None for the lattice itself. A loop over parts of a lattice has a `part` of its own, so that its sites
    are distinct from those of the lattice.
    """

    part: Any
    first: int
    count: int

    def outer(self, shape: tuple[int, ...]) -> int:
        """How many leading axes of an array of these sites go over them; raises if some axis fits only partly."""
        axis, left = 0, self.count
        while left > 1 and axis < len(shape) and left % shape[axis] == 0:
            axis, left = axis + 1, left // shape[axis]
        if left > 1:
            raise NotCompilable(SUMS)
        return axis


@dataclass(frozen=True, eq=False)
class PerSite:
    """An array of some sites: the k numbers of one site (flat), the shape of the whole, and the sites it belongs to."""

    value: Array
    shape: tuple[int, ...]
    over: Sites

    def __post_init__(self):
        if self.value.size == 0 or math.prod(self.shape) != self.value.size * self.over.count:
            raise NotCompilable(_UNEQUAL)

    @staticmethod
    def whole(value: Array, shape: tuple[int, ...]) -> "PerSite":
        """An array of all sites of a lattice."""
        return PerSite(value, shape, Sites(None, 0, math.prod(shape) // value.size))


@dataclass(frozen=True, eq=False)
class Moved:
    """An array whose elements were moved: the address of each, in the numbering of `owner`."""

    at: Int[np.ndarray, "..."]
    owner: "Addresses"

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        return self.at.shape


@dataclass(frozen=True, eq=False)
class Sum:
    """A sum some of whose terms are not the same at all sites, as long as others are not added to them."""

    settled: list[Any]
    parts: list[Moved]
    shape: tuple[int, ...]


class _Source(NamedTuple):
    """An array that has addresses: its first address, its value at one site, and the number of sites (0: uniform)."""

    start: int
    value: Any
    sites: int

    @property
    def end(self) -> int:
        """The first address after it."""
        return self.start + np.size(self.value) * max(self.sites, 1)


class Addresses:
    """The addresses of all numbers of a lattice, or of one part of it, and the numbers that one site has of arrays."""

    def __init__(self, sites: int, within: "Addresses | None" = None):
        self.over = Sites(None if within is None else self, 0, sites)
        self.sources: list[_Source] = []
        self.known: dict[tuple[int, bool], _Source] = {}
        self.done: dict[Any, tuple] = {} if within is None else within.done  # equal operations are done once
        self.relations: dict[bytes, NeighborMap] = {} if within is None else within.relations

    def aligned(
        self, xs: Sequence[Any], shapes: Sequence[tuple[int, ...]], over: Sites | None = None
    ) -> tuple[Sites, list[Array]]:
        """The numbers of one site of each operand, flat, and the sites that all operands belong to.

        Operand k has shape `shapes[k]` or is broadcast to it. Raises `NotCompilable` unless the addresses prove that
        the operands belong to the same sites, `over` if given, and that all of these sites read the same numbers: their
        own, uniform ones, or those of the site in one relation to each.
        """
        found = {x.over for x, shape in zip(xs, shapes, strict=True) if isinstance(x, PerSite) and x.shape == shape}
        found |= set() if over is None else {over}
        if len(found) > 1:
            raise NotCompilable(_PARTS)
        (sites,) = found or {self.over}
        if sites.part is not self.over.part:
            raise NotCompilable(_UNEQUAL)
        return sites, [self._here(x, shape, sites) for x, shape in zip(xs, shapes, strict=True)]

    def once(self, what: Any, make: Callable, *xs: Any) -> Any:
        """make(*xs), evaluated once for equal operands."""
        key = what, *map(_identity, xs)
        if key not in self.done:
            self.done[key] = make(*xs), xs  # which keeps their identities
        return self.done[key][0]

    def shaped(self, x: Any, shape: tuple[int, ...]) -> Array:
        """An array with another shape."""
        return self.once(("reshape", shape), lambda x: jnp.reshape(x, shape), x)

    def places(self, x: Any) -> Int[np.ndarray, "..."]:
        """The address of each element."""
        if isinstance(x, Moved):
            if x.owner is not self:
                raise NotCompilable(_UNEQUAL)
            return x.at
        sited = isinstance(x, PerSite)
        if (sited and x.over.part is not self.over.part) or not (sited or uniform(x)):
            raise NotCompilable(_UNEQUAL)
        value, shape, first = (x.value, x.shape, x.over.first) if sited else (x, np.shape(x), 0)
        if (id(value), sited) not in self.known:
            end = self.sources[-1].end if self.sources else 0
            self.sources.append(_Source(end, value, self.over.count if sited else 0))
            self.known[id(value), sited] = self.sources[-1]
        start = self.known[id(value), sited].start + first * np.size(value)
        return start + np.arange(math.prod(shape)).reshape(shape)

    def merged(self, x: Moved, y: Moved) -> Moved | None:
        """A sum in which one of two is zero everywhere; None if it is none."""
        zeros = [s for s in self.sources if not isinstance(s.value, jax.core.Tracer) and not np.any(s.value)]
        if not zeros or x.shape != y.shape or not x.owner is y.owner is self:
            return None
        empty = [np.any([(z.at >= s.start) & (z.at < s.end) for s in zeros], axis=0) for z in (x, y)]
        return Moved(np.where(empty[0], y.at, x.at), self) if np.logical_or(*empty).all() else None

    def _here(self, x: Any, shape: tuple[int, ...], sites: Sites) -> Array:
        """The numbers that each of some sites has of an array."""
        if isinstance(x, PerSite) and x.shape == shape:
            return x.value
        size = math.prod(shape)
        if size == 0 or size % sites.count:
            raise NotCompilable(_NOT_ALL)
        if size // sites.count > MOST:
            raise NotCompilable(f"Native code of a lattice supports arrays of at most {MOST} numbers per site.")
        if uniform(x) and np.shape(x) == ():
            return self.once(("full", size // sites.count), lambda x: jnp.full(size // sites.count, x), x)
        at = np.broadcast_to(self.places(x), shape).reshape(sites.count, -1)
        return self.once("stack", lambda *xs: jnp.stack(xs), *(self._column(c, sites) for c in at.T))

    def _column(self, at: Int[np.ndarray, " sites"], sites: Sites) -> Array:
        """One number per site, by the addresses of this number at all sites."""
        source = next((s for s in reversed(self.sources) if s.start <= at[0] < s.end), None)
        if source is None:
            raise NotCompilable(_UNEQUAL)
        within = at - source.start
        if not source.sites:
            if not np.all(within == within[0]):
                raise NotCompilable(_CLOSURE)
            return self._number(source.value, int(within[0]))
        size = source.value.size
        place = int(within[0]) % size
        site, rest = np.divmod(within - place, size)
        if np.any(rest) or site.min() < 0 or site.max() >= source.sites:
            raise NotCompilable(_UNEQUAL)
        if np.array_equal(site, sites.first + np.arange(sites.count)):
            return self._number(source.value, place)
        if sites != Sites(None, 0, self.over.count):
            raise NotCompilable("Neighbours inside of a part of a lattice are not supported in native code.")
        relation = self.relations.setdefault(site.tobytes(), NeighborMap(site))
        return self._number(self.once(relation, lambda x: _read(x, relation), source.value), place)

    def _number(self, x: Any, i: int) -> Array:
        return self.once(("number", i), lambda x: jnp.ravel(x)[i], x)


def uniform(x: Any) -> bool:
    """Whether all sites share an array."""
    return isinstance(x, (jax.Array, np.ndarray, np.generic, bool, int, float, complex))


def _identity(x: Any) -> Any:
    """Return the common part of two numbers or arrays."""
    return value_key(x) if np.ndim(x) == 0 and not isinstance(x, jax.core.Tracer) else id(x)
