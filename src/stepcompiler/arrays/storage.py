"""Which arrays of a step are stored in memory: the others are computed where they are read.

An array is stored if it would otherwise be computed more than once: because several stored arrays read it, or because a
product, a sum over an axis or a broadcast reads each of its elements many times.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from ..jaxprs.data_movement import MOVES
from ..lowering.reduction_rules import REDUCTIONS
from .terms import SCATTERS, Block, Term

SMALL = 4  # axes up to this size are written element by element
_CHEAP = 3  # operations that are rather repeated than stored
_COSTS = {"div": 8, "sqrt": 8, "rsqrt": 16, "add": 1, "sub": 1, "mul": 1, "neg": 1, "select_n": 1, "max": 1, "min": 1}
_FUNCTION = 20
_GIVEN = ("constant", "shared", "input", "result")
_MOVED = ("gather", "row", "no_fma")


def large(shape: Sequence[int]) -> int:
    """The number of elements without small axes."""
    return math.prod(n for n in shape if n > SMALL)


def reachable(blocks: Iterable[Block]) -> set[Term]:
    """All terms that results need."""
    found: set[Term] = set()
    waiting = [t for b in blocks for t in b.results]
    while waiting:
        t = waiting.pop()
        if t not in found:
            found.add(t)
            waiting += t.operands
            waiting += [r for b in t.blocks for r in b.results]
    return found


def sums_large(t: Term) -> bool:
    """Whether a term is a sum, a product … over an axis that is not small."""
    if t.name == "dot_general":
        ((axes, _), _), x = t.params["dimension_numbers"], t.operands[0]
    elif t.name in REDUCTIONS:
        axes, x = t.params["axes"], t.operands[0]
    else:
        return False
    return any(x.shape[a] > SMALL for a in axes)


def stored(root: Block, used: set[Term]) -> set[Term]:
    """The terms that are stored in memory."""
    order = list(_in_order(root, used))
    cost = _costs(order)
    readers: dict[Term, list[tuple[Term | None, Block]]] = {t: [] for t in order}
    for t in order:
        for x in t.operands:
            readers.setdefault(x, []).append((t, t.block))
        for b in t.blocks:
            for r in b.results:
                readers.setdefault(r, []).append((None, b))
    for r in root.results:
        readers.setdefault(r, []).append((None, root))
    out: set[Term] = set()
    roots: dict[Term, set[Any]] = {}
    for t in reversed(order):
        at: set[Any] = set()
        for reader, _ in readers[t]:
            at |= {None} if reader is None else {reader} if reader in out else roots[reader]
        roots[t] = at
        if t.name in (*_GIVEN, "while", "cond"):
            continue
        elsewhere = any(b is not t.block or (r is not None and r.name in ("while", "cond")) for r, b in readers[t])
        repeated = any(r is not None and _repeats(r, t) for r, _ in readers[t])
        if elsewhere or sums_large(t) or (cost[t] > 0 and repeated) or (cost[t] >= _CHEAP and len(at) > 1):
            out.add(t)
    return out


def _in_order(block: Block, used: set[Term]) -> Iterable[Term]:
    """The terms of a block that are used, and those of the blocks inside, operands first."""
    for t in block.terms:
        if t in used:
            for b in t.blocks:
                yield from _in_order(b, used)
            yield t


def _costs(order: Sequence[Term]) -> dict[Term, int]:
    """The operations per element of each term from memory."""
    cost: dict[Term, int] = {}
    for t in order:
        if t.name in _GIVEN or t.blocks or sums_large(t):
            cost[t] = 0
            continue
        own = 0 if t.name in MOVES or t.name in _MOVED else _COSTS.get(t.name, _FUNCTION)
        if t.name == "dot_general":
            ((axes, _), _) = t.params["dimension_numbers"]
            own = math.prod(t.operands[0].shape[a] for a in axes)
        elif t.name in REDUCTIONS:
            own = t.operands[0].size // max(t.size, 1)
        elif t.name not in _COSTS and t.name in ("lt", "le", "gt", "ge", "eq", "ne", "and", "or", "not", "abs"):
            own = 1
        cost[t] = own + sum(cost.get(x, 0) for x in t.operands)
    return cost


def _repeats(reader: Term, x: Term) -> bool:
    """Whether a term reads each element of another many times."""
    most = large(reader.shape)
    if reader.name == "dot_general":
        ((axes, _), _) = reader.params["dimension_numbers"]
        most *= large([reader.operands[0].shape[a] for a in axes])
    if reader.name in ("concatenate", "pad", "dynamic_update_slice"):
        return most > SMALL
    if reader.name in SCATTERS:
        return large(reader.operands[0].shape) > 4 * large(x.shape)
    if reader.name in REDUCTIONS or reader.name in ("reshape", "stack", "row"):
        return False
    return most > 2 * large(x.shape)
