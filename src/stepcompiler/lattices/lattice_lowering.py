"""A program for all sites of a lattice as a program for one site.

The arrays of a lattice of N sites have N · k numbers, k at each site, one site after the other. A program that computes
the same expression at every site, from its own numbers and from those of sites in a fixed relation to it (its
neighbours), is evaluated anew for a single site: an array is then the k numbers of that site, and `neighbor` reads the
numbers of other sites. Operations that only move numbers are followed number by number; the addresses give the
relations. So neighbours may be found by shifts, slices or a lattice that is continued on all sides.

Every rule takes its operands from `Addresses.aligned`, which proves to which sites they belong. An operation without a
rule raises an error.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.extend import core as jex
from jaxtyping import Array

from ..errors import NotCompilable
from ..jaxprs.data_movement import MOVES
from ..jaxprs.equation_types import Equation
from ..jaxprs.equations import bind, live_equations, scan_of
from ..jaxprs.interning import value_key
from ..jaxprs.interpreter import Interpreter
from ..lowering.scalar_ops import known_to
from .site_values import SUMS, Addresses, Moved, PerSite, Sites, Sum, uniform

_IN_ORDER = ("expand_dims", "name", "optimization_barrier", "pvary", "reshape", "squeeze", "stop_gradient")
_REDUCTIONS = ("reduce_and", "reduce_max", "reduce_min", "reduce_or", "reduce_prod", "reduce_sum")
_SHARED = 64  # numbers of some sites that all sites may read
_ACROSS = " across the sites of a lattice"
_NOT = "is not supported in native code"
_PRODUCT = f"A product across the sites of a lattice {_NOT}."


class OneSite:
    """Evaluates programs of a lattice of so many sites for one site."""

    def __init__(self, sites: int, within: "OneSite | None" = None):
        self.places = Addresses(sites, None if within is None else within.places)
        self.sites = sites
        self.largest: int = sites if within is None else within.largest  # uniform arrays are smaller

    def evaluate(self, closed: jex.ClosedJaxpr, args: Sequence[Any]) -> list[Any]:
        """Return the results of a program: uniform arrays, and arrays with addresses."""
        site = Interpreter(lambda jaxpr, eqn, xs: self._equation(eqn, xs), literal=_literal, equations=live_equations)
        return site.evaluate(closed, args)

    def to_site(self, x: Any) -> Array:
        """Return the elements of an array at each site of the lattice, flat."""
        _, (here,) = self.places.aligned([x], [np.shape(x)], self.places.over)
        return here

    def _equation(self, eqn: Equation, xs: list[Any]) -> list[Any]:
        name = eqn.primitive.name
        largest = max(math.prod(v.aval.shape) for v in eqn.outvars)
        if all(map(uniform, xs)) and largest < (self.sites if name in MOVES else self.largest):
            return self._apply(eqn, eqn.params, *xs)
        if name in MOVES:
            return self._move(eqn, xs)
        if name in ("add", "add_any") and any(isinstance(x, (Moved, Sum)) for x in xs):
            return [self._sum(eqn, xs)]
        if known_to(name):
            return [self._elementwise(eqn, xs)]
        if name in _REDUCTIONS:
            return [self._reduce(eqn, xs[0])]
        if name == "dot_general":
            return [self._dot(eqn, *xs)]
        if name == "scan":
            return self._scan(eqn, xs)
        raise NotCompilable.operation(name, _ACROSS)

    def _apply(self, eqn: Equation, params: dict, *xs: Any) -> list:
        """The results of an operation."""
        what = eqn.primitive, value_key(params)
        return self.places.once(what, lambda *xs: bind(eqn.primitive, params, xs), *xs)

    def _elementwise(self, eqn: Equation, xs: list[Any]) -> PerSite:
        shape = eqn.outvars[0].aval.shape
        if np.broadcast_shapes(*map(np.shape, xs)) != shape:
            raise NotCompilable.operation(eqn.primitive.name, _ACROSS)
        over, values = self.places.aligned(xs, [shape] * len(xs))
        return PerSite(self._apply(eqn, eqn.params, *values)[0], shape, over)

    def _sum(self, eqn: Equation, xs: list[Any]) -> "PerSite | Sum":
        """A sum. The derivative of a shift adds parts of an array, with zeros around them: they are put together."""
        settled = [x for x in xs if not isinstance(x, (Moved, Sum))]
        parts: list[Moved] = []
        for x in xs:
            settled += x.settled if isinstance(x, Sum) else []
            for part in x.parts if isinstance(x, Sum) else [x] if isinstance(x, Moved) else []:
                merged = self.places.merged
                fits = ((i, both) for i, p in enumerate(parts) if (both := merged(p, part)) is not None)
                i, both = next(fits, (len(parts), part))
                parts[i : i + 1] = [both]
        left = []
        for part in parts:
            try:
                over, (value,) = self.places.aligned([part], [part.shape])
                settled.append(PerSite(value, part.shape, over))
            except NotCompilable:
                left.append(part)
        while len(settled) > 1:
            settled[:2] = [self._elementwise(eqn, settled[:2])]
        return Sum(settled, left, eqn.outvars[0].aval.shape) if left else settled[0]

    def _reduce(self, eqn: Equation, x: Any) -> PerSite:
        over, (value,) = self.places.aligned([x], [x.shape])
        outer = over.outer(x.shape)
        axes = tuple(a - outer for a in eqn.params["axes"])
        if any(a < 0 for a in axes):
            raise NotCompilable(SUMS)
        (out,) = self._apply(eqn, eqn.params | {"axes": axes}, self.places.shaped(value, x.shape[outer:]))
        return PerSite(self.places.shaped(out, (-1,)), eqn.outvars[0].aval.shape, over)

    def _dot(self, eqn: Equation, x: Any, y: Any) -> "PerSite | Moved":
        """Σ over axes inside of the sites: site by site, or with an array that all sites share."""
        (cx, cy), (bx, by) = ([tuple(map(int, axes)) for axes in pair] for pair in eqn.params["dimension_numbers"])
        if not bx:
            first = y if uniform(x) or (not uniform(y) and math.prod(x.shape) < math.prod(y.shape)) else x
            return self._dot_shared(eqn, y, x, cy, cx) if first is y else self._dot_shared(eqn, x, y, cx, cy, True)
        over, values = self.places.aligned([x, y], [np.shape(x), np.shape(y)])
        outer = tuple(range(over.outer(np.shape(x))))
        n = len(outer)
        if over.outer(np.shape(y)) != n or not bx[:n] == by[:n] == outer:
            raise NotCompilable(_PRODUCT)
        inside = [[tuple(a - n for a in axes) for axes in pair] for pair in ((cx, cy), (bx[n:], by[n:]))]
        given = [self.places.shaped(v, np.shape(z)[n:]) for v, z in zip(values, (x, y), strict=True)]
        out = self._contracted(eqn, inside, *given)
        return PerSite(self.places.shaped(out, (-1,)), eqn.outvars[0].aval.shape, over)

    def _dot_shared(
        self, eqn: Equation, x: Any, y: Any, cx: tuple[int, ...], cy: tuple[int, ...], leads: bool = False
    ) -> "PerSite | Moved":
        """Σ over axes inside of the sites of x with an array y that all sites share; `leads`: x comes first."""
        over, (here,) = self.places.aligned([x], [x.shape])
        n, free = over.outer(x.shape), np.ndim(y) - len(cy)
        inside = tuple(a - n for a in cx)
        if any(a < 0 for a in inside):
            raise NotCompilable(_PRODUCT)
        here = self.places.shaped(here, x.shape[n:])
        y = self._shared(y, over)
        both = ([inside, cy], here, y) if leads else ([cy, inside], y, here)
        out = self.places.shaped(self._contracted(eqn, [both[0], [(), ()]], *both[1:]), (-1,))
        shape = eqn.outvars[0].aval.shape
        if leads or not free:
            return PerSite(out, shape, over)
        at = self.places.places(PerSite(out, (*x.shape[:n], *shape[:free], *shape[free + n :]), over))
        return Moved(np.moveaxis(at, range(n), range(free, free + n)), self.places)

    def _contracted(self, eqn: Equation, dimension_numbers: Any, x: Any, y: Any) -> Array:
        dimensions = tuple(tuple(pair) for pair in dimension_numbers)
        return self._apply(eqn, eqn.params | {"dimension_numbers": dimensions}, x, y)[0]

    def _shared(self, x: Any, over: Sites) -> Any:
        """Return a complete array as each of some sites reads it."""
        if uniform(x):
            return x
        if math.prod(x.shape) > _SHARED:
            raise NotCompilable(_PRODUCT)
        _, (here,) = self.places.aligned([x], [(over.count, *x.shape)], over)
        return self.places.shaped(here, x.shape)

    def _scan(self, eqn: Equation, xs: list[Any]) -> list[Any]:
        """A loop over parts of the lattice that carries nothing along: the same at each site of each part."""
        body, constants, carry, length, _ = scan_of(eqn.params)
        rows = xs[constants:]
        if carry or not rows:
            raise NotCompilable(f"A loop that carries numbers from site to site of a lattice {_NOT}.")
        over, values = self.places.aligned(rows, [np.shape(x) for x in rows])
        if over.count % length:
            raise NotCompilable(f"A loop over parts of the sites of a lattice {_NOT}.")
        part = OneSite(over.count // length, self)
        given = [PerSite(v, np.shape(x)[1:], part.places.over) for v, x in zip(values, rows, strict=True)]
        out = part.evaluate(body, [*xs[:constants], *given])
        return [PerSite(part.to_site(y), (length, *np.shape(y)), over) for y in out]

    def _move(self, eqn: Equation, xs: list[Any]) -> list[Any]:
        name, params, x = eqn.primitive.name, eqn.params, xs[0]
        shapes = [v.aval.shape for v in eqn.outvars]
        kept = name in _IN_ORDER or (name == "broadcast_in_dim" and math.prod(np.shape(x)) == math.prod(shapes[0]))
        if kept and all(isinstance(y, PerSite) for y in xs):
            return [PerSite(y.value, shape, y.over) for y, shape in zip(xs, shapes, strict=False)]
        if name == "slice" and isinstance(x, PerSite) and (over := _rows(params, x)) is not None:
            return [PerSite(x.value, shapes[0], over)]
        if name == "concatenate" and (over := _joined(params, xs)) is not None:
            return [PerSite(x.value, shapes[0], over)]
        moved = MOVES[name](params, *map(self.places.places, xs))
        return [Moved(np.asarray(y, np.int64), self.places) for y in moved]


def _literal(v: jex.Literal) -> Any:
    """The value of a literal, with the type that the program gives it."""
    dtype = getattr(v.aval, "dtype", None)
    return v.val if np.result_type(v.val) == dtype else np.asarray(v.val, dtype)[()]


def _rows(params: dict, x: PerSite) -> Sites | None:
    """The sites of a slice of an array, if it has consecutive ones with all of their numbers; else None."""
    starts, limits = params["start_indices"], params["limit_indices"]
    whole = all(a == 0 and b == n for a, b, n in zip(starts[1:], limits[1:], x.shape[1:], strict=True))
    rows = limits[0] - starts[0]
    if not whole or rows < 1 or any(s != 1 for s in params["strides"] or ()) or x.over.count % x.shape[0]:
        return None
    each = x.over.count // x.shape[0]
    return Sites(x.over.part, x.over.first + starts[0] * each, rows * each)


def _joined(params: dict, xs: Sequence[Any]) -> Sites | None:
    """The sites of several parts of one array that are put together in order; None if they are something else."""
    if params["dimension"] or not all(isinstance(x, PerSite) and x.value is xs[0].value for x in xs):
        return None
    overs = [x.over for x in xs]
    first, count = overs[0].first, sum(o.count for o in overs)
    if any(o.part is not overs[0].part for o in overs):
        return None
    ends = [o.first + o.count for o in overs]
    return Sites(overs[0].part, first, count) if [o.first for o in overs[1:]] == ends[:-1] else None
