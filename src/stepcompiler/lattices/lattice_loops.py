"""A step of a lattice as sweeps over its sites, in compiled code.

    sweeps = native_sweeps(program, patterns, arrays, moving, limit, full)

A step for one site reads other sites by `neighbor` (see `site_values`). It is divided where it reads values that the
step has computed at other sites, because all sites must have computed them. Values that a later sweep needs are saved
in memory, unless the site can compute them again. SIMD lanes hold eight sites. If the neighbours of eight consecutive
sites are consecutive, as they are inside a lattice, they are read as a vector.

Memory has planes: a number of each site, one after the other.
"""

import ctypes
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from string import Template
from typing import Any, NamedTuple

import numpy as np
from jax.extend import core as jex

from ..compile import lowered
from ..errors import NotCompilable
from ..jaxprs.data_movement import object_array
from ..lowering.instructions import Value
from ..lowering.llvm_builder import Code
from ..targets.cpu import Cpu, compiled
from ..targets.time_loop import ATTRIBUTES, Memory, broadcast
from .site_values import NeighborMap

WIDTH = 8  # sites in SIMD lanes
_APART = 9 * WIDTH
AREAS = (
    "old",
    "new",
    "fixed",
    "kept",
    "path",
)  # the state before and after, constants, values saved between sweeps, increments

_SWEEP = Template("""\
define i64 @advance(i64 %from, i64 %to, i64 %plane, i64 %number, ptr noalias %uniforms, ptr noalias %offsets,
    ptr noalias %rows, ptr noalias %table, ptr %old, ptr %new, ptr %fixed, ptr %kept, ptr %path) #0 {
entry:
$uniforms
  br label %head
head:
  %group = phi i64 [%from, %entry], [%group.next, %step.accept]
  %missed = phi i64 [0, %entry], [%missed.next, %step.accept]
  %more = icmp slt i64 %group, %to
  br i1 %more, label %member, label %exit
member:
  %site = mul i64 %group, $width
$reads
  br label %step.body
step.body:
$body
  br label %step.accept
step.accept:
$accepted
  %one = zext i1 %failed to i64
  %missed.next = add i64 %missed, %one
  %group.next = add i64 %group, 1
  br label %head
exit:
  ret i64 %missed
}""")
_NEAR = Template("""\
  %row.at = getelementptr i64, ptr %rows, i64 %group
  %row = load i64, ptr %row.at
  %regular = icmp slt i64 %row, 0
  br i1 %regular, label %near, label %far, !prof !0
near:
$near
  br label %found
far:
  %row.first = mul i64 %row, $relations
$far
  br label %found
found:""")


class Location(NamedTuple):
    """The memory of an array: an area and its first plane. In the areas "site" and "number": the number."""

    area: str
    plane: int = 0


class Read(NamedTuple):
    """An array that a sweep reads: at the site itself, or at the one in some relation to it."""

    place: Location
    relation: NeighborMap | None = None


@dataclass(frozen=True)
class Plan:
    """One sweep: a program of the shared numbers and of the arrays that it reads and writes.

    Its last result states whether the sweep is valid.
    """

    program: jex.ClosedJaxpr
    reads: list[Read]
    stores: list[Location]


class Sweep:
    """The compiled sweep over groups of eight sites."""

    def __init__(self, plan: Plan, patterns: Sequence, sites: int, limit: int, full: bool):
        relations = list(dict.fromkeys(r.relation for r in plan.reads if r.relation is not None))
        text, self.uniforms, shared, self.operations = _written(plan, patterns, relations, limit, full)
        self._engine, address = compiled(text)
        self._function = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 4, *[ctypes.c_void_p] * 9)(address)
        self._near = _near(relations, sites)
        self.over(np.zeros(shared), {})(0, 0, 0)  # a fault of the first call is found here

    def over(self, uniforms: np.ndarray, areas: dict[str, np.ndarray]) -> Callable[[int, int, int], int]:
        """The sweep over some memory, areas (planes, sites), padded, as a function of (start, end, number).

        It computes groups start … end − 1, and returns the number of those that were not valid.
        """
        planes = [areas.get(name, np.empty((0, 0))) for name in AREAS]
        arrays = [uniforms, *self._near, *planes]
        pointers, plane, function = [x.ctypes.data for x in arrays], max(x.shape[1] for x in planes), self._function

        def sweep(start: int, end: int, number: int, arrays: list = arrays) -> int:  # which stay alive
            return function(start, end, plane, number, *pointers)

        return sweep


def groups_of(sites: int) -> int:
    """Groups of eight sites, the last one filled up."""
    return -(-sites // WIDTH)


def plane_of(sites: int) -> int:
    """Numbers from one plane to the next: more than there are sites, or planes of 2ᵏ would share sets of a cache."""
    return groups_of(sites) * WIDTH + _APART


# How sweeps are cut.


def split_at_barriers(
    closed: jex.ClosedJaxpr, shared: int, places: Sequence[Location], outputs: Sequence[Location | None]
) -> tuple[list[Plan], int]:
    """Return the sweeps of a program whose first arguments are shared numbers, and the others arrays in memory.

    Also return the number of planes saved between sweeps. The results go to the given memory, or stay in place (None).
    The last result states whether the step is valid.
    """
    jaxpr = closed.jaxpr
    arguments = dict(zip(jaxpr.invars[shared:], places, strict=True))
    made = {v: eqn for eqn in jaxpr.eqns for v in eqn.outvars}
    level: dict[Any, int] = dict.fromkeys([*jaxpr.constvars, *jaxpr.invars], 0)
    plain = set(level)  # values computed from the site's own and from shared values
    kept: dict[Any, Location] = {}
    planes = 0

    def keep(v: Any) -> None:
        nonlocal planes
        _check_type(v.aval)
        if v not in kept:
            kept[v] = Location("kept", planes)
            planes += math.prod(v.aval.shape)

    for eqn in jaxpr.eqns:
        given = [v for v in eqn.invars if not isinstance(v, jex.Literal)]
        here = max((level[v] for v in given), default=0)
        reads = eqn.primitive.name == "neighbor"
        if reads and given[0] not in arguments:
            keep(given[0])
            here += 1
        for v in given:
            if level[v] < here and v not in plain:
                keep(v)
        level.update(dict.fromkeys(eqn.outvars, here))
        if not reads and plain.issuperset(given):
            plain.update(eqn.outvars)
    results = [v for v in jaxpr.outvars if not isinstance(v, jex.Literal)]
    last = max((level[v] for v in results), default=0)
    for v in results:
        if level[v] < last and v not in plain:
            keep(v)
    plans = []
    for now in range(last + 1):
        if now < last:
            wanted = [(v, place) for v, place in kept.items() if level[v] == now]
            ok: Any = jex.Literal(np.True_, results[-1].aval)
        else:
            wanted = [(v, p) for v, p in zip(jaxpr.outvars[:-1], outputs, strict=True) if p is not None]
            ok = jaxpr.outvars[-1]
        earlier = {v: place for v, place in kept.items() if level[v] < now}
        plans.append(_sweep(closed, shared, wanted, ok, made, arguments, earlier))
    return plans, planes


def _sweep(
    closed: jex.ClosedJaxpr,
    shared: int,
    wanted: list[tuple[Any, Location]],
    ok: Any,
    made: dict[Any, Any],
    arguments: dict[Any, Location],
    kept: dict[Any, Location],
) -> Plan:
    """Return the equations that the outputs need, back to values in memory."""
    jaxpr, known = closed.jaxpr, arguments | kept
    reads: dict[Any, Read] = {}
    needed: set[int] = set()
    waiting = [v for v, _ in wanted] + [ok]
    seen: set[Any] = set()
    while waiting:
        v = waiting.pop()
        if isinstance(v, jex.Literal) or v in seen:
            continue
        seen.add(v)
        if v in known:
            reads[v] = Read(known[v])
        elif v in made and made[v].primitive.name == "neighbor":
            reads[v] = Read(known[made[v].invars[0]], made[v].params["relation"])
        elif v in made:
            needed.add(id(made[v]))
            waiting += made[v].invars
    eqns = [eqn for eqn in jaxpr.eqns if id(eqn) in needed]
    invars = [*jaxpr.invars[:shared], *reads]
    program = jaxpr.replace(invars=invars, outvars=[*(v for v, _ in wanted), ok], eqns=eqns)
    return Plan(jex.ClosedJaxpr(program, closed.consts), list(reads.values()), [place for _, place in wanted])


# How a sweep is written.


def _check_type(aval: Any) -> None:
    """Raise if values of this type cannot be in memory: planes hold numbers of double precision."""
    if aval.dtype != np.float64:
        raise NotCompilable(f"Numbers of type {aval.dtype} at the sites of a lattice have no native rule.")


def _written(
    plan: Plan, patterns: Sequence, relations: list[NeighborMap], limit: int, full: bool
) -> tuple[str, Callable[[list], np.ndarray], int, int]:
    """Return the text of a sweep, its shared inputs, their number, and the number of operations."""
    code = Code(WIDTH)
    jaxpr = plan.program.jaxpr
    avals = [v.aval for v in jaxpr.invars[len(patterns) :]]
    names, lanes = [], []
    for i, (aval, read) in enumerate(zip(avals, plan.reads, strict=True)):
        if read.place.area not in ("site", "number"):
            _check_type(aval)
        names.append([Value(f"%r{i}.{j}", aval.dtype) for j in range(math.prod(aval.shape))])
        lanes.append(object_array(names[-1], aval.shape))
    programs = [plan.program] * (2 if full else 1)
    attempts, shared, operations, (uniforms, _) = lowered(code, programs, patterns, lanes, limit)
    memory = Memory(code, Cpu(WIDTH))
    text = _SWEEP.substitute(
        width=WIDTH,
        uniforms="\n".join(
            [
                *(line for i, x in enumerate(shared) for line in memory.read_shared(i, x)),
                *broadcast(code, "%number.each", "%number", np.int64),
            ]
        ),
        reads="\n".join(_reads(code, plan.reads, names, relations)),
        accepted="\n".join([*_accepted(code, attempts), *_stores(plan)]),
        body="\n".join(code.render(code.finished())),
    )
    return "\n".join([text, *code.functions.values(), _GATHER, ATTRIBUTES]), uniforms, len(shared), operations


_GATHER = "declare <8 x double> @llvm.masked.gather.v8f64.v8p0(<8 x ptr>, i32, <8 x i1>, <8 x double>)"


def _accepted(code: Code, attempts: Sequence[Any]) -> list[str]:
    """Return the results of the first valid attempt, and whether there is none."""
    lines = [
        f"  %out{i} = phi {code.kind(x.dtype)} "
        + ", ".join(f"[{code.spelled(a.results[i])}, %{a.block}]" for a in attempts)
        for i, x in enumerate(attempts[0].results)
    ]
    *first, last = attempts
    taken = ", ".join([*(f"[true, %{a.block}]" for a in first), f"[{code.spelled(last.taken)}, %{last.block}]"])
    return [*lines, f"  %taken = phi i1 {taken}", "  %failed = xor i1 %taken, true"]


def _stores(plan: Plan) -> list[str]:
    sizes = [math.prod(v.aval.shape) for v in plan.program.jaxpr.outvars[:-1]]
    where = [(place, j) for place, size in zip(plan.stores, sizes, strict=True) for j in range(size)]
    return [
        line
        for i, (place, j) in enumerate(where)
        for line in (
            *_at(f"%w{i}", place, j, "%site"),
            f"  store <8 x double> %out{i}, ptr %w{i}.at, align 8",
        )
    ]


def _at(name: str, place: Location, j: int, site: str) -> list[str]:
    """The lines that find number j of an array at a site."""
    return [
        f"  {name}.plane = mul i64 %plane, {place.plane + j}",
        f"  {name}.index = add i64 {name}.plane, {site}",
        f"  {name}.at = getelementptr double, ptr %{place.area}, i64 {name}.index",
    ]


def _reads(
    code: Code, reads: Sequence[Read], names: Sequence[Sequence[Value]], relations: list[NeighborMap]
) -> list[str]:
    """The lines that read arrays."""
    own, near, far, found = [], [], [], []
    for k in range(len(relations)):
        near += [
            f"  %offset{k}.at = getelementptr i64, ptr %offsets, i64 {k}",
            f"  %offset{k} = load i64, ptr %offset{k}.at",
            f"  %near{k} = add i64 %site, %offset{k}",
        ]
        far += [
            f"  %far{k}.row = add i64 %row.first, {k}",
            f"  %far{k}.word = mul i64 %far{k}.row, {WIDTH}",
            f"  %far{k}.at = getelementptr i64, ptr %table, i64 %far{k}.word",
            f"  %far{k} = load <8 x i64>, ptr %far{k}.at, align 8",
        ]
    for (place, relation), values in zip(reads, names, strict=True):
        for j, x in enumerate(values):
            if place.area == "number":
                own.append(f"  {x.name} = add <8 x i64> %number.each, zeroinitializer")
            elif place.area == "site":
                lanes = ", ".join(f"i64 {i}" for i in range(WIDTH))
                own += broadcast(code, f"{x.name}.first", "%site", np.int64)
                own.append(f"  {x.name} = add <8 x i64> {x.name}.first, <{lanes}>")
            elif relation is None:
                own += [*_at(x.name, place, j, "%site"), f"  {x.name} = load <8 x double>, ptr {x.name}.at, align 8"]
            else:
                k, n, f = relations.index(relation), f"{x.name}.near", f"{x.name}.far"
                near += [*_at(n, place, j, f"%near{k}"), f"  {n} = load <8 x double>, ptr {n}.at, align 8"]
                far += [
                    *_at(f, place, j, "0"),
                    f"  {f}.each = getelementptr double, ptr {f}.at, <8 x i64> %far{k}",
                    f"  {f} = call <8 x double> @llvm.masked.gather.v8f64.v8p0(<8 x ptr> {f}.each, i32 8, "
                    f"<8 x i1> <{', '.join(['i1 true'] * WIDTH)}>, <8 x double> zeroinitializer)",
                ]
                found.append(f"  {x.name} = phi <8 x double> [{n}, %near], [{f}, %far]")
    if not relations:
        return own
    both = _NEAR.substitute(near="\n".join(near), far="\n".join(far), relations=len(relations))
    return [both, *found, *own]


def _near(relations: Sequence[NeighborMap], sites: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the offset of each relation, the groups with other offsets, and the sites that these read.

    The groups by their row in the table, −1: regular.
    """
    groups, offsets = groups_of(sites), np.zeros(len(relations), np.int64)
    tables = np.zeros((len(relations), groups * WIDTH), np.int64)
    irregular = np.zeros(groups, bool)
    for k, relation in enumerate(relations):
        tables[k, :sites] = relation.table
        off = tables[k] - np.arange(groups * WIDTH)
        offsets[k] = np.partition(off[:sites], sites // 2)[sites // 2]  # that of most sites
        irregular |= (off != offsets[k]).reshape(groups, WIDTH).any(axis=1)
    rows = np.where(irregular, np.cumsum(irregular) - 1, -1)
    table = tables.reshape(len(relations), groups, WIDTH)[:, irregular].swapaxes(0, 1)
    return offsets, rows, np.ascontiguousarray(table)
