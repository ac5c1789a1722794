"""A program for all sites of a lattice as a program for one site.

The arrays of a lattice of N sites have N · k numbers, k at each site, one site after the other. A program that does the
same at every site, with what is there and at sites that stand in a fixed relation to it (its neighbours), is evaluated
anew for a single site: an array is then the k numbers of that site, and what comes from other sites is read by
`elsewhere`. What only moves numbers is followed number by number; from where each has come tells the relations. So
neighbours may be found by shifts, slices or a lattice that is continued on all sides: all of it is gone afterwards.
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
from jaxtyping import Array, Int

from ..numerics.functions import value_key
from ..numerics.jaxprs import CALLS, applied, called, scan_of, wanted
from ..numerics.moves import MOVES
from .operations import known_to
from .refused import Refused

_IN_ORDER = ("expand_dims", "name", "optimization_barrier", "pvary", "reshape", "squeeze", "stop_gradient")
_REDUCTIONS = ("reduce_and", "reduce_max", "reduce_min", "reduce_or", "reduce_prod", "reduce_sum")


class Relation:
    """Which site stands in a relation to each site; equal to itself alone."""

    def __init__(self, table: Int[np.ndarray, " sites"]):
        self.table = table


_elsewhere = jex.Primitive("elsewhere")
_elsewhere.def_abstract_eval(lambda x, relation: x)


def elsewhere(x: Array, relation: Relation) -> Array:
    """What x is at the site that stands in a relation to this one; for programs that are made native code."""
    return _elsewhere.bind(x, relation=relation)


@dataclass(frozen=True, eq=False)
class Sited:
    """An array of a lattice, or of some consecutive sites of it: what one site has of it, flat."""

    value: Array
    shape: tuple[int, ...]
    first: int = 0

    @property
    def sites(self) -> int:
        """How many."""
        return math.prod(self.shape) // self.value.size

    @property
    def inner(self) -> tuple[int, ...]:
        """The axes that do not go over sites."""
        axis, left = 0, self.sites
        while left > 1:
            axis, left = axis + 1, left // self.shape[axis]
        if math.prod(self.shape[:axis]) != self.sites:
            raise Refused("A sum over the sites of a lattice has no native rule.")
        return self.shape[axis:]


@dataclass(frozen=True, eq=False)
class _Moved:
    """An array whose numbers were moved: where each has come from."""

    at: Int[np.ndarray, "..."]

    @property
    def shape(self) -> tuple[int, ...]:
        """As of any array."""
        return self.at.shape


@dataclass(frozen=True, eq=False)
class _Sum:
    """A sum some of whose terms are not the same at all sites, as long as others are not added to them."""

    settled: list[Sited]
    parts: list[_Moved]
    shape: tuple[int, ...]


class _Source(NamedTuple):
    """An array that numbers come from, and which of all numbers is its first."""

    start: int
    value: Any
    sites: int  # 0: it is the same for all of them

    @property
    def end(self) -> int:
        """The first number after it."""
        return self.start + np.size(self.value) * max(self.sites, 1)


class OneSite:
    """Evaluates programs of a lattice of so many sites for one site."""

    def __init__(self, sites: int, within: "OneSite | None" = None):
        self.sites, self.whole = sites, within is None
        self.sources: list[_Source] = []
        self.known: dict[int, _Source] = {}
        self.done: dict[Any, tuple] = {} if within is None else within.done  # equal operations are done once
        self.relations: dict[bytes, Relation] = {} if within is None else within.relations

    def evaluate(self, closed: jex.ClosedJaxpr, args: Sequence[Any]) -> list[Any]:
        """What comes out of a program: arrays that are the same for all sites, and `Sited` ones."""
        jaxpr = closed.jaxpr
        env: dict[Any, Any] = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*closed.consts, *args], strict=True))
        for eqn in wanted(jaxpr):
            xs = [v.val if isinstance(v, jex.Literal) else env[v] for v in eqn.invars]
            env.update(zip(eqn.outvars, self._equation(eqn, xs), strict=True))
        return [v.val if isinstance(v, jex.Literal) else env[v] for v in jaxpr.outvars]

    def _equation(self, eqn: Any, xs: list[Any]) -> list[Any]:
        name = eqn.primitive.name
        shapes = [v.aval.shape for v in eqn.outvars]
        alike = not any(isinstance(x, (Sited, _Moved, _Sum)) for x in xs)
        if name in CALLS:
            return self.evaluate(called(eqn), xs)
        if alike and max(map(math.prod, shapes)) < self.sites:
            return self._apply(eqn, eqn.params, *xs)
        if name in MOVES:
            return self._move(eqn, xs)
        if name in ("add", "add_any") and any(isinstance(x, (_Moved, _Sum)) for x in xs):
            return [self._sum(eqn, xs)]
        if known_to(name):
            return [self._elementwise(eqn, xs)]
        if name in _REDUCTIONS:
            return [self._reduce(eqn, self.home(xs[0]))]
        if name == "dot_general":
            return [self._dot(eqn, *xs)]
        if name == "scan":
            return self._scan(eqn, xs)
        raise Refused(f"`{name}` of all sites of a lattice has no native rule.")

    def _once(self, what: Any, make: Callable, *xs: Any) -> Any:
        """make(*xs); where that was done before, what came out then."""
        key = what, *map(_identity, xs)
        if key not in self.done:
            self.done[key] = make(*xs), xs  # which keeps their identities
        return self.done[key][0]

    def _apply(self, eqn: Any, params: dict, *xs: Any) -> list:
        """What comes out of an operation."""
        what = eqn.primitive, value_key(params)
        return self._once(what, lambda *xs: applied(eqn.primitive, params, xs), *xs)

    def _shaped(self, x: Any, shape: tuple[int, ...]) -> Array:
        return self._once(("reshape", shape), lambda x: jnp.reshape(x, shape), x)

    def _elementwise(self, eqn: Any, xs: list[Any]) -> Sited:
        shape = eqn.outvars[0].aval.shape
        given = [self.home(x, shape) if np.shape(x) else x for x in xs]
        sited = [x for x in given if isinstance(x, Sited)]
        first, size = sited[0].first, sited[0].value.size
        if any(x.first != first or x.value.size != size for x in sited):
            raise Refused("Different parts of a lattice meet in one operation.")
        spread = lambda x: self._once(("full", size), lambda x: jnp.full(size, x), x)
        values = [x.value if isinstance(x, Sited) else spread(x) for x in given]
        return Sited(self._apply(eqn, eqn.params, *values)[0], shape, first)

    def _sum(self, eqn: Any, xs: list[Any]) -> "Sited | _Sum":
        """A sum. The derivative of a shift adds parts of an array, with zeros around them: they are put together."""
        settled = [x for x in xs if not isinstance(x, (_Moved, _Sum))]
        parts: list[_Moved] = []
        for x in xs:
            settled += x.settled if isinstance(x, _Sum) else []
            for part in x.parts if isinstance(x, _Sum) else [x] if isinstance(x, _Moved) else []:
                fits = ((i, both) for i, p in enumerate(parts) if (both := self._merged(p, part)) is not None)
                i, both = next(fits, (len(parts), part))
                parts[i : i + 1] = [both]
        left = []
        for part in parts:
            try:
                settled.append(self.home(part))
            except Refused:
                left.append(part)
        while len(settled) > 1:
            settled[:2] = [self._elementwise(eqn, settled[:2])]
        return _Sum(settled, left, eqn.outvars[0].aval.shape) if left else settled[0]

    def _merged(self, x: _Moved, y: _Moved) -> _Moved | None:
        """A sum in which one of two is zero everywhere; None if it is none."""
        zeros = [s for s in self.sources if not isinstance(s.value, jax.core.Tracer) and not np.any(s.value)]
        if not zeros or x.shape != y.shape:
            return None
        empty = [np.any([(z.at >= s.start) & (z.at < s.end) for s in zeros], axis=0) for z in (x, y)]
        return _Moved(np.where(empty[0], y.at, x.at)) if np.logical_or(*empty).all() else None

    def _reduce(self, eqn: Any, x: Sited) -> Sited:
        axes = tuple(a - len(x.shape) + len(x.inner) for a in eqn.params["axes"])
        if any(a < 0 for a in axes):
            raise Refused("A sum over the sites of a lattice has no native rule.")
        (out,) = self._apply(eqn, eqn.params | {"axes": axes}, self._shaped(x.value, x.inner))
        return Sited(self._shaped(out, (-1,)), eqn.outvars[0].aval.shape, x.first)

    def _dot(self, eqn: Any, x: Any, y: Any) -> Sited:
        """Σ over axes inside of the sites: with something that is the same for all, or site by site."""
        contracted, batch = eqn.params["dimension_numbers"]
        x, y = (self.home(z) if isinstance(z, (Sited, _Moved, _Sum)) else z for z in (x, y))
        outer = [len(z.shape) - len(z.inner) if isinstance(z, Sited) else 0 for z in (x, y)]
        each = tuple(range(min(outer)))
        leads = isinstance(x, Sited) or len(contracted[0]) == np.ndim(x)  # sites come first in what comes out
        inside = tuple(tuple(a - n for a in axes) for axes, n in zip(contracted, outer, strict=True))
        if tuple(map(tuple, batch)) != (each, each) or not leads or any(a < 0 for axes in inside for a in axes):
            raise Refused("A product over sites of a lattice has no native rule.")
        params = eqn.params | {"dimension_numbers": (inside, ((), ()))}
        (out,) = self._apply(
            eqn, params, *(self._shaped(z.value, z.inner) if isinstance(z, Sited) else z for z in (x, y))
        )
        first = x.first if isinstance(x, Sited) else y.first
        return Sited(self._shaped(out, (-1,)), eqn.outvars[0].aval.shape, first)

    def _scan(self, eqn: Any, xs: list[Any]) -> list[Any]:
        """A loop over parts of the lattice that carries nothing along: the same at each site of each part."""
        body, constants, carry, length, _ = scan_of(eqn.params)
        given = [self.home(x) for x in xs[constants:]] if not carry else []
        if not given or given[0].sites % length or len({(x.first, x.sites) for x in given}) > 1:
            raise Refused("`scan` of all sites of a lattice has no native rule.")
        part = OneSite(given[0].sites // length, self)
        out = part.evaluate(body, [*xs[:constants], *(Sited(x.value, x.shape[1:]) for x in given)])
        return [Sited(part.home(y).value, (length, *part.home(y).shape), given[0].first) for y in out]

    # What moves numbers.

    def _move(self, eqn: Any, xs: list[Any]) -> list[Any]:
        name, params, x = eqn.primitive.name, eqn.params, xs[0]
        shapes = [v.aval.shape for v in eqn.outvars]
        kept = name in _IN_ORDER or (name == "broadcast_in_dim" and math.prod(x.shape) == math.prod(shapes[0]))
        if kept and all(isinstance(y, Sited) for y in xs):
            return [Sited(y.value, shape, y.first) for y, shape in zip(xs, shapes, strict=False)]
        if name == "slice" and isinstance(x, Sited) and (rows := _rows(params, x)) is not None:
            return [Sited(x.value, shapes[0], x.first + rows)]
        if name == "concatenate" and (joined := _joined(params, xs)) is not None:
            return [Sited(joined.value, shapes[0], joined.first)]
        return [_Moved(np.asarray(y, np.int64)) for y in MOVES[name](params, *map(self._places, xs))]

    def _places(self, x: Any) -> np.ndarray:
        """Which of all numbers each one is."""
        if isinstance(x, _Sum):
            raise Refused("Not all sites of a lattice do the same.")
        if isinstance(x, _Moved):
            return x.at
        value, shape, first = (x.value, x.shape, x.first) if isinstance(x, Sited) else (x, np.shape(x), 0)
        if id(value) not in self.known:
            end = self.sources[-1].end if self.sources else 0
            self.sources.append(_Source(end, value, self.sites if isinstance(x, Sited) else 0))
            self.known[id(value)] = self.sources[-1]
        start = self.known[id(value)].start + first * np.size(value)
        return start + np.arange(math.prod(shape)).reshape(shape)

    def home(self, x: Any, shape: tuple[int, ...] | None = None) -> Sited:
        """An array, of some shape or broadcast to it, by what each site has of it, wherever that has come from."""
        if isinstance(x, Sited) and shape in (None, x.shape):
            return x
        at = self._places(x)
        at = at if shape is None else np.broadcast_to(at, shape)
        if at.size == 0 or at.size % self.sites:
            raise Refused("An array of other than all sites of a lattice has no native rule.")
        columns = [self._column(c) for c in at.reshape(self.sites, -1).T]
        return Sited(self._once("stack", lambda *xs: jnp.stack(xs), *columns), at.shape)

    def _column(self, at: Int[np.ndarray, " sites"]) -> Array:
        """One number at each site: where it has come from."""
        source = next(s for s in reversed(self.sources) if s.start <= at[0])
        within = at - source.start
        if not source.sites:
            if not np.all(within == within[0]):
                raise Refused("A number that differs from site to site of a lattice is known by its place alone.")
            return self._number(source.value, int(within[0]))
        size = source.value.size
        place = int(within[0]) % size
        site, rest = np.divmod(within - place, size)
        if np.any(rest) or site.min() < 0 or site.max() >= source.sites:
            raise Refused("Not all sites of a lattice do the same.")
        if np.array_equal(site, np.arange(self.sites)):
            return self._number(source.value, place)
        if not self.whole:
            raise Refused("Neighbours inside of a part of a lattice have no native rule.")
        relation = self.relations.setdefault(site.tobytes(), Relation(site))
        return self._number(self._once(relation, lambda x: elsewhere(x, relation), source.value), place)

    def _number(self, x: Any, i: int) -> Array:
        return self._once(("number", i), lambda x: jnp.ravel(x)[i], x)


def _identity(x: Any) -> Any:
    """What two numbers, or one and the same array, have in common."""
    return value_key(x) if np.ndim(x) == 0 and not isinstance(x, jax.core.Tracer) else id(x)


def _rows(params: dict, x: Sited) -> int | None:
    """With which of its sites a slice of an array begins, if it has consecutive ones; else None."""
    starts, limits = params["start_indices"], params["limit_indices"]
    whole = all(a == 0 and b == n for a, b, n in zip(starts[1:], limits[1:], x.shape[1:], strict=True))
    if not whole or any(s != 1 for s in params["strides"] or ()) or x.sites % x.shape[0]:
        return None
    return starts[0] * (x.sites // x.shape[0])


def _joined(params: dict, xs: Sequence[Any]) -> Sited | None:
    """The first of several parts of an array that are put together again; None if that is something else."""
    if params["dimension"] or not all(isinstance(x, Sited) and x.value is xs[0].value for x in xs):
        return None
    ends = [x.first + x.sites for x in xs]
    return xs[0] if all(x.first == end for x, end in zip(xs[1:], ends, strict=False)) else None
