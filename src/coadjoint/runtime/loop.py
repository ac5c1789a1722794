"""The loop: a plan and its program, tile after tile and chunk after chunk, into a sink."""

import math
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import cache
from itertools import groupby
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree

from ..drivers import BLOCK
from ..numerics import validation
from .backends.base import Program, Stepper
from .executors import Executor, threads
from .multiprocess import agreed
from .orbits import LARGE_GROWTH, Examination
from .plan import Batch, Plan
from .progress import ProgressObserver, watch
from .reduction_tree import MergeTree
from .results import RunSummary, Stats, UnsolvedStepError, combine_totals
from .run_state import SolverTotals, StepState
from .saved_times import SavedTimes
from .sinks import Output, Sink
from .stall_monitor import MonitoredRun

_FIRST_CHUNK, _LARGEST_CHUNK = 8 * BLOCK, 2**26  # steps
_EASY = 2**15  # operations of a product, up to which so many steps do not take long
_CHUNK_SECONDS = 0.5  # what a chunk should take: progress is shown, and Ctrl-C heard, this often …
_FEW, _LONGER = 8, 4.0  # … but with fewer steps than these it may take so many times as long: it has a cost of its own


class BatchResult(NamedTuple):
    """What became of a tile."""

    members: int
    totals: SolverTotals  # of its members together
    accumulators: PyTree  # if there is a reducer
    growth: float = 1.0  # of max|μ| since the start, at most
    failure: str = ""  # why there is no result, where the place could not compute it and the plan does not throw


class RunContext(NamedTuple):
    """A run on its way: what a place must know of it."""

    plan: Plan
    program: Program
    output: Output
    bar: ProgressObserver
    run: MonitoredRun

    def batches(self, numbers: range) -> list[BatchResult]:
        """Run some tiles here, as one."""
        with self.program.device_context():
            done = run_tiles(self.plan, self.program, numbers, self.output, self.bar, self.run)
        return [
            BatchResult(len(t.iterations), combine_totals(t), accumulators, growth) for t, accumulators, growth in done
        ]


def execute(
    plan: Plan, program: Program, output: Output, progress: Any = False, executor: Executor | None = None
) -> Any:
    """Run all tiles, in threads or at another place. A step that was not solved is raised if the plan says so."""
    return execute_all([(plan, program, output)], progress, executor)[0]


def execute_all(
    runs: Sequence[tuple[Plan, Program, Output]], progress: Any = False, executor: Executor | None = None
) -> list[Any]:
    """Several runs, such as those of a sweep, whose tiles are taken one after the other and may run side by side."""
    with ExitStack() as stack:
        enter = stack.enter_context
        contexts = [RunContext(*run, enter(watch(progress, run[0])), enter(MonitoredRun(run[0]))) for run in runs]
        done = _each(
            (executor or threads)(
                contexts, [(k, numbers) for k, context in enumerate(contexts) for numbers in _parts(context)]
            )
        )
        stack.callback(done.close)
        return [_result(context, done) for context in contexts]


def _parts(context: RunContext) -> Iterator[range]:
    """The tiles of a run, in parts that should be stepped as one."""
    each, batches = context.program.batches_per_launch, context.plan.n_batches
    return (range(k, min(k + each, batches)) for k in range(0, batches, each))


def _each(parts: Generator[list[BatchResult]]) -> Generator[BatchResult]:
    """What became of one tile after the other; when this is closed, so is the place."""
    try:
        for part in parts:
            yield from part
    finally:
        parts.close()


def _result(context: RunContext, done: Generator[BatchResult]) -> Any:
    """What a run returns, from what became of its tiles."""
    plan, output = context.plan, context.output
    totals: list[SolverTotals] = []
    tree, computed, failures, growth = MergeTree(plan.reduce, context.program.merge), 0, [], 1.0
    for number in range(plan.n_batches):
        members, own, accumulators, grown, failure = next(done)
        computed, growth = computed + members, max(growth, grown)
        totals.append(own)
        if plan.throw and own.unsolved:
            done.close()
            break
        if failure:
            failures.append(f"{plan.describe_batches(range(number, number + 1))}: {failure}")
        elif plan.reduce is not None:
            tree.push(accumulators)
    summed = totals[0] if len(totals) == 1 else combine_totals(jax.tree.map(lambda *x: np.stack(x), *totals))
    stats = Stats.of(summed, plan.steps, computed, context.program.backend, context.program.reason)
    result = output.result(RunSummary(stats, computed, tree.result()))
    if plan.throw and stats.unsolved:
        raise UnsolvedStepError(_unsolved_message(plan, stats, computed) + output.recovery_hint(), result)
    if failures:
        message = f"{len(failures)} of {plan.n_batches} batches could not be computed.{output.recovery_hint()} "
        validation.warn(message + " ".join(failures))
    if growth >= LARGE_GROWTH and not stats.unsolved and not plan.system.leaves_orbit:
        validation.warn(_growth_message(growth))
    return result


def run_tiles(
    plan: Plan, program: Program, numbers: range, output: Output, bar: ProgressObserver, run: MonitoredRun
) -> list[tuple[SolverTotals, PyTree, float]]:
    """Run neighbouring tiles: the totals of the members of each, their accumulators if any, and their growth.

    Those that begin with the same step go together: at the start all, from a store those whose checkpoints agree.
    """
    batch = plan.load_batch(numbers)
    run.set_phase(numbers.start, f"backend ({program.backend})")
    points, first = program.initial_state(batch)
    sinks = [output.sink(k) for k in numbers]
    if len(numbers) == 1:
        done, points = sinks[0].restore(points)
        return run_tile(plan, program, batch, sinks, points, first, done, bar, run)
    fresh = jax.tree.map(np.asarray, points)
    begun = [
        sink.restore(own)
        for sink, own in zip(sinks, _at(fresh, map(batch.member_slice, range(len(sinks)))), strict=True)
    ]
    out: list[tuple[SolverTotals, PyTree, float]] = []
    for done, group in groupby(range(len(numbers)), lambda i: begun[i][0]):
        some = list(group)
        cut, members = (
            slice(some[0], some[-1] + 1),
            slice(batch.member_slice(some[0]).start, batch.member_slice(some[-1]).stop),
        )
        points = next(_at(fresh, [members]))
        if done:
            points = jax.tree.map(lambda *x: np.concatenate(x), *(begun[i][1] for i in some))
        rows = members if plan.reduce is None else cut
        own = plan.load_batch(numbers[cut])
        out += run_tile(plan, program, own, sinks[cut], points, next(_at(first, [rows])), done, bar, run)
    return out


def run_tile(
    plan: Plan,
    program: Program,
    batch: Batch,
    sinks: list[Sink],
    points: StepState,
    first: PyTree,
    done: int,
    bar: ProgressObserver,
    run: MonitoredRun,
) -> list[tuple[SolverTotals, PyTree, float]]:
    """Run a tile, or several as one, from step `done` to the end."""

    def keep(at: int, rows: PyTree) -> None:
        places = (batch.member_slice(i) if plan.reduce is None else i for i in range(len(sinks)))
        for sink, own in zip(sinks, _at(rows, places), strict=True):
            sink.add(at, own)

    def parts(points: StepState) -> Iterator[Callable[[], StepState]]:
        if len(sinks) == 1:
            return iter([lambda: points])
        here = cache(lambda: jax.tree.map(np.asarray, points))  # not before somebody asks
        return (lambda i=i: next(_at(here(), [batch.member_slice(i)])) for i in range(len(sinks)))

    saved = plan.saved
    if done == 0 and saved.start:
        keep(0, first)
    here = batch.indices.start
    bar.begin(done * batch.n_members)
    stepper, examination = program.stepper(batch, points, done), Examination(plan, batch)
    slots = min(plan.save_slots, program.slots(batch))
    largest, size = plan.window_blocks * BLOCK, first_chunk(plan.system.algebra.shape, len(plan.devices))
    for n0, n1 in chunks(saved, slots, largest, done, size, agreed(plan)):
        run.set_phase(here, f"backend ({program.backend}), which takes the steps up to {n1} at once", n0)
        rows = _advanced(stepper, saved, n0, n1)
        run.set_phase(here, "sink", n1)
        if saved.up_to(n1) > (before := saved.up_to(n0)):
            keep(before, rows)
            examination.saved(before, rows)
        points = stepper.points()
        if n1 == plan.steps:
            examination.ended(points)
        points = examination.counted(points)
        bar.add((n1 - n0) * batch.n_members, points, batch.mu0)
        if plan.throw and np.any(np.asarray(points.totals.unsolved)[: batch.n_members]):
            break
        for sink, point in zip(sinks, parts(points), strict=True):
            sink.checkpoint(n1, point)
    totals = jax.tree.map(lambda x: np.asarray(x)[: batch.n_members], points.totals)
    each = _at(totals, map(batch.member_slice, range(len(sinks))))
    growth = [
        float(np.max(own))
        for own in _at(examination.growth[: batch.n_members], map(batch.member_slice, range(len(sinks))))
    ]
    out = [(own, sink.close(), grown) for own, sink, grown in zip(each, sinks, growth, strict=True)]
    run.finish(here)
    return out


def _advanced(stepper: Stepper, saved: SavedTimes, n0: int, n1: int) -> PyTree:
    """Take the steps n₀ … n₁ − 1; what was saved on the way."""
    rows = [stepper.advance(stop, every) for stop, every in saved.segments(n0, n1)]
    return rows[0] if len(rows) == 1 else jax.tree.map(lambda *x: np.concatenate(x, axis=1), *rows)


def _at(tree: PyTree, places: Iterable[Any]) -> Iterator[PyTree]:
    """For each of the places, that part of the leading axis of all arrays: there may be a thousand tiles."""
    leaves, structure = jax.tree.flatten(tree)
    return (structure.unflatten([x[at] for x in leaves]) for at in places)


def first_chunk(shape: tuple[int, ...], devices: int = 1) -> int:
    """How many steps of a state to begin with: nobody knows yet how long one takes, and large matrices take long."""
    product = float(np.prod(shape)) ** 1.5
    return max(1, int(_FIRST_CHUNK * min(1.0, _EASY / product))) if devices <= 1 else 1


def chunks(
    saved: SavedTimes,
    slots: int,
    largest: int,
    first: int = 0,
    size: int | None = None,
    agreed: Callable[[float], float] = lambda seconds: seconds,
) -> Iterator[tuple[int, int]]:
    """Cut a run from step `first` on into chunks [n₀, n₁) that fit the slots and take about half a second each.

    The first has `size` steps; slow steps may take up to two seconds. The consumer times the work between two pieces;
    only speed depends on the cut, never a result. Several processes cut alike, by the seconds on which they have
    `agreed`.
    """
    n0, steps, size = first, saved.steps, size or _FIRST_CHUNK
    warm = False
    while n0 < steps:
        n1 = min(steps, n0 + size, saved.fitting(n0, slots), n0 // BLOCK * BLOCK + largest)
        began = time.perf_counter()
        yield n0, n1
        seconds = agreed(time.perf_counter() - began)
        wanted = min(max(_CHUNK_SECONDS, _FEW * seconds / (n1 - n0)), _LONGER * _CHUNK_SECONDS)
        if warm and seconds > 2 * wanted:
            size = max(int((n1 - n0) * wanted / seconds), 1)
        elif seconds < wanted:
            size = min(math.ceil(size * min(wanted / seconds, 64)), _LARGEST_CHUNK)
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


def _growth_message(growth: float) -> str:
    """How many digits the Casimirs have lost, and the remedy."""
    return (
        f"The state has grown by a factor of {growth:.1e} since the initial condition. Casimirs are conserved relative "
        f"to |μ|ᵏ, k their degree, so that their values lose about {np.log10(growth):.0f} digits per degree. Integrate "
        "for a shorter time, or rescale the system."
    )
