"""The loop: a plan and its program, tile after tile and chunk after chunk, into a sink."""

import time
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from ..drivers import BLOCK
from .backends.base import Program
from .placing import Place, threads
from .plan import Plan
from .points import Totals
from .results import Outcome, Stats, UnsolvedStepError, together
from .sinks import Output, Sink
from .statistics import MergeTree, accumulated
from .watchdog import Watched
from .watching import Watch, watch

_FIRST_CHUNK, _LARGEST_CHUNK = 8 * BLOCK, 2**26  # steps
_CHUNK_SECONDS = 0.5  # what a chunk should take: progress is shown, and Ctrl-C heard, this often


def execute(plan: Plan, program: Program, output: Output, progress: Any = False, place: Place | None = None) -> Any:
    """Run all tiles, in threads or at another place. A step that was not solved is raised if the plan says so."""
    totals: Totals | None = None
    tree, computed = MergeTree(plan.reduce), 0
    with watch(progress, plan) as bar, Watched(plan) as run:

        def one_tile(number: int) -> tuple[Totals, PyTree]:
            with program.placed():
                return run_tile(plan, program, number, output.sink(number), bar, run)

        for own, accumulators in (place or threads)(one_tile, range(plan.tiles)):
            computed += len(own.iterations)
            own = together(own)
            totals = own if totals is None else together(jax.tree.map(lambda *x: np.stack(x), totals, own))
            if plan.throw and own.unsolved:
                break
            if plan.reduce is not None:
                tree.push(accumulators)
    assert totals is not None
    stats = Stats.of(totals, plan.steps, computed, program.backend, program.reason)
    result = output.result(Outcome(stats, computed, tree.result()))
    if plan.throw and stats.unsolved:
        raise UnsolvedStepError(_unsolved_message(plan, stats, computed) + output.note(), result)
    return result


def run_tile(plan: Plan, program: Program, number: int, sink: Sink, bar: Watch, run: Watched) -> tuple[Totals, PyTree]:
    """Run one tile from start to end: the totals of its members, and their accumulators if there is a reducer."""
    tile = plan.open_tile(number)
    run.stand(number, f"backend ({program.backend})")
    points, first = program.start(tile)

    def keep(at: int, rows: PyTree) -> None:
        if plan.reduce is not None:
            rows = accumulated(plan.reduce, rows.values, plan.slots + 1 if at else 1, plan.tile)
        sink.add(at, rows)

    done, points = sink.begin(points)
    if done == 0:
        keep(0, first)
    bar.begin(done * tile.count)
    stepper = program.stepper(tile, points, done)
    for n0, n1 in pieces(plan.steps, plan.save_every, plan.slots, plan.blocks * BLOCK, done):
        run.stand(number, f"backend ({program.backend}), which takes the steps up to {n1} at once", n0)
        rows = stepper.advance(n1)
        run.stand(number, "sink", n1)
        keep(n0 // plan.save_every + 1, rows)
        points = stepper.points()
        bar.add((n1 - n0) * tile.count, points, tile.mu0)
        if plan.throw and np.any(np.asarray(points.totals.unsolved)[: tile.count]):
            break
        sink.mark(n1, points)
    totals = jax.tree.map(lambda x: np.asarray(x)[: tile.count], points.totals)
    accumulators = sink.close()
    run.leave(number)
    return totals, accumulators


def pieces(steps: int, save_every: int, slots: int, largest: int, first: int = 0) -> Iterator[tuple[int, int]]:
    """Cut a run from step `first` on into chunks [n₀, n₁) that fit the slots and take about half a second each.

    The consumer times the work between two pieces; only speed depends on the cut, never a result.
    """
    n0, size = first, _FIRST_CHUNK
    warm = False
    while n0 < steps:
        room = (n0 // save_every + slots) * save_every - n0
        n1 = min(steps, n0 + size, n0 + room, n0 // BLOCK * BLOCK + largest)
        began = time.perf_counter()
        yield n0, n1
        seconds = time.perf_counter() - began
        if warm and seconds > 2 * _CHUNK_SECONDS:
            size = max(size // 2, 1)
        elif seconds < _CHUNK_SECONDS / 4:
            size = min(int(size * min(_CHUNK_SECONDS / 2 / seconds, 64)), _LARGEST_CHUNK)
        warm = True
        n0 = n1


def _unsolved_message(plan: Plan, stats: Stats, members: int) -> str:
    """What could not be solved, and what to do."""
    where = "" if plan.members is None else f" (over {members} members)"
    why = plan.integrator.failure(plan.dt, float(stats.residual))
    return (
        f"{stats.unsolved} of {stats.steps} steps could not be solved{where}, first at step {stats.first_unsolved} "
        f"(t = {plan.t0 + stats.first_unsolved * plan.dt:g}): {why}, "
        "or throw=False to go on regardless; what was computed is in this error's `solution`."
    )
