"""The loop runs the batches of a plan in chunks of steps and passes the results to sinks."""

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
from . import tuning
from .backends.base import Program, Stepper
from .events import Events, events_of, joined
from .executors import Executor, threads
from .failures import unsolved_message
from .multiprocess import agreed
from .orbits import LARGE_GROWTH, Examination
from .plan import Batch, Plan
from .progress import ProgressObserver, watch
from .reduction_tree import MergeTree
from .results import RunSummary, UnsolvedStepError
from .run_state import SolverTotals, StepState
from .saved_times import SavedTimes
from .sinks import Output, Sink
from .stall_monitor import MonitoredRun
from .stats import Stats, combine_totals, order_limit

_EASY = 2**15  # operations of a product of matrices; up to here the first chunk has its full length
_FEW, _LONGER = 8, 4.0  # chunks of fewer steps may take so many times as long, because each call has a cost


class BatchResult(NamedTuple):
    """The result of a batch."""

    members: int
    totals: SolverTotals  # of its members together
    accumulators: PyTree  # if there is a reducer
    growth: float = 1.0  # of max|μ| since the start, at most
    events: Events | None = None  # of its members, with `until`
    failure: str = ""  # the reason, if an executor could not compute the batch and the plan does not throw


class RunContext(NamedTuple):
    """A run in progress, as executors and the loop use it."""

    plan: Plan
    program: Program
    output: Output
    bar: ProgressObserver
    run: MonitoredRun

    def batches(self, numbers: range) -> list[BatchResult]:
        """Run some batches in this thread, in one launch."""
        with self.program.device_context():
            done = run_batches(self, numbers)
        return [
            BatchResult(len(t.iterations), combine_totals(t), accumulators, growth, events)
            for t, accumulators, growth, events in done
        ]


def execute(
    plan: Plan, program: Program, output: Output, progress: Any = False, executor: Executor | None = None
) -> Any:
    """Run all batches, in threads or by another executor; if the plan throws, a step that fails raises an error."""
    return execute_all([(plan, program, output)], progress, executor)[0]


def execute_all(
    runs: Sequence[tuple[Plan, Program, Output]], progress: Any = False, executor: Executor | None = None
) -> list[Any]:
    """Execute several runs, such as those of a sweep; their batches may run side by side."""
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
    """Return the batches of a run, in parts that are launched together."""
    each, batches = context.program.batches_per_launch, context.plan.n_batches
    return (range(k, min(k + each, batches)) for k in range(0, batches, each))


def _each(parts: Generator[list[BatchResult]]) -> Generator[BatchResult]:
    """Return the result of one batch after the other; closing this closes the executor."""
    try:
        for part in parts:
            yield from part
    finally:
        parts.close()


def _result(context: RunContext, done: Generator[BatchResult]) -> Any:
    """Return what `solve` or `ensemble` returns, from the results of the batches."""
    plan, output = context.plan, context.output
    totals: list[SolverTotals] = []
    events: list[tuple[Events | None, int]] = []
    tree, computed, failures, growth = MergeTree(plan.reduce, context.program.merge), 0, [], 1.0
    for number in range(plan.n_batches):
        members, own, accumulators, grown, event, failure = next(done)
        events.append((event, members))
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
    program, limit = context.program, order_limit(plan)
    stats = Stats.of(summed, plan.steps, computed, program.backend, program.reason, order_limit=limit)
    found = joined([e for e, _ in events], [n for _, n in events], plan)
    result = output.result(RunSummary(stats, computed, tree.result(), found))
    if plan.throw and stats.unsolved:
        raise UnsolvedStepError(unsolved_message(plan, stats, computed) + output.recovery_hint(), result)
    if failures:
        message = f"{len(failures)} of {plan.n_batches} batches could not be computed.{output.recovery_hint()} "
        validation.warn(message + " ".join(failures))
    if growth >= LARGE_GROWTH and not stats.unsolved and not plan.system.leaves_orbit:
        validation.warn(_growth_message(growth))
    return result


def run_batches(context: RunContext, numbers: range) -> "list[BatchRun]":
    """Run neighbouring batches; return, of each, the totals of its members, its accumulators, growth and events.

    Batches that begin with the same step run as one: all of them in a new run, and in a resumed run those whose
    checkpoints have the same step. The initial state is computed only if a batch has no checkpoint.
    """
    if context.program.short_runs is not None:
        return _run_short(context, numbers)
    return _run_in_chunks(context, numbers)


def _run_short(context: RunContext, numbers: range) -> "list[BatchRun]":
    """Run short batches of one member in one call, and each that does not reach the end, or has a store, by itself."""
    plan, program, output, bar, run = context
    done: list[Any] = [None] * len(numbers)
    if output.in_memory and program.short_runs is not None:
        batch = plan.load_batch(numbers)
        run.set_phase(numbers.start, f"backend ({program.backend}), which takes all {plan.steps} steps at once")
        rows, points, complete = program.short_runs(batch)
        output.put(numbers, rows)
        examination = Examination(plan, batch)
        examination.saved(0, rows)
        examination.ended(points)
        totals = examination.counted(points).totals
        for k in np.flatnonzero(complete):
            own = jax.tree.map(lambda x, k=k: x[k : k + 1], totals)
            done[k] = BatchRun(own, None, float(examination.growth[k]), None)
        bar.begin(0)
        bar.add(int(np.sum(complete)) * plan.steps, points, batch.mu0)
        run.finish(numbers.start)
    alone = lambda k: _run_in_chunks(context, range(k, k + 1))[0]
    return [alone(k) if own is None else own for k, own in zip(numbers, done, strict=True)]


def _run_in_chunks(context: RunContext, numbers: range) -> "list[BatchRun]":
    """Run neighbouring batches chunk after chunk."""
    plan, program = context.plan, context.program
    batch = plan.load_batch(numbers)
    context.run.set_phase(numbers.start, f"backend ({program.backend})")
    initial = cache(lambda: program.initial_state(batch))
    sinks = [context.output.sink(k) for k in numbers]
    if len(numbers) == 1:
        step, points = sinks[0].restore(lambda: initial()[0])
        return run_batch(context, batch, sinks, Start(step, points, None if step else initial()[1]))
    fresh = cache(lambda: jax.tree.map(np.asarray, initial()[0]))
    begun = [s.restore(lambda i=i: next(_at(fresh(), [batch.member_slice(i)]))) for i, s in enumerate(sinks)]
    out: list[BatchRun] = []
    for step, group in groupby(range(len(numbers)), lambda i: begun[i][0]):
        some = list(group)
        cut = slice(some[0], some[-1] + 1)
        if step:
            start = Start(step, jax.tree.map(lambda *x: np.concatenate(x), *(begun[i][1] for i in some)), None)
        else:
            members = slice(batch.member_slice(some[0]).start, batch.member_slice(some[-1]).stop)
            rows = members if plan.reduce is None else cut
            start = Start(0, next(_at(fresh(), [members])), next(_at(initial()[1], [rows])))
        out += run_batch(context, plan.load_batch(numbers[cut]), sinks[cut], start)
    return out


class BatchRun(NamedTuple):
    """The totals of the members of a batch, its accumulators, the growth of its states, and the events."""

    totals: SolverTotals
    accumulators: PyTree
    growth: float
    events: Events | None


class Start(NamedTuple):
    """The step that a batch begins with, the states of its members before it, and in a new run the rows of t₀."""

    step: int
    points: StepState
    rows: PyTree


def run_batch(context: RunContext, batch: Batch, sinks: list[Sink], start: Start) -> "list[BatchRun]":
    """Run a batch, or several in one launch, to the last step."""
    plan, program, _, bar, run = context
    alone = len(sinks) == 1 and plan.reduce is None

    def keep(at: int, rows: PyTree) -> None:
        if alone:
            sinks[0].add(at, rows)
            return
        places = (batch.member_slice(i) if plan.reduce is None else i for i in range(len(sinks)))
        for sink, own in zip(sinks, _at(rows, places), strict=True):
            sink.add(at, own)

    def parts(points: StepState) -> Iterator[Callable[[], StepState]]:
        if len(sinks) == 1:
            return iter([lambda: points])
        here = cache(lambda: jax.tree.map(np.asarray, points))  # computed only if needed
        return (lambda i=i: next(_at(here(), [batch.member_slice(i)])) for i in range(len(sinks)))

    saved = plan.saved
    done, points = start.step, start.points
    if done == 0 and saved.start:
        keep(0, start.rows)
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
    ends = points.totals, events_of(plan, points), examination.growth
    ends = jax.tree.map(lambda x: np.asarray(x)[: batch.n_members], ends)
    each = [ends] if len(sinks) == 1 else _at(ends, map(batch.member_slice, range(len(sinks))))
    for sink in sinks:
        sink.close()
    run.finish(here)
    accumulators = [None if plan.reduce is None else sink.accumulators() for sink in sinks]
    both = zip(each, accumulators, strict=True)
    return [BatchRun(totals, acc, float(np.max(growth)), events) for (totals, events, growth), acc in both]


def _advanced(stepper: Stepper, saved: SavedTimes, n0: int, n1: int) -> PyTree:
    """Take the steps n₀ … n₁ − 1 and return the saved rows."""
    rows = [stepper.advance(stop, every) for stop, every in saved.segments(n0, n1)]
    return rows[0] if len(rows) == 1 else jax.tree.map(lambda *x: np.concatenate(x, axis=1), *rows)


def _at(tree: PyTree, places: Iterable[Any]) -> Iterator[PyTree]:
    """Return each of the slices of the leading axis of all arrays; there may be a thousand batches."""
    leaves, structure = jax.tree.flatten(tree)
    return (structure.unflatten([x[at] for x in leaves]) for at in places)


def first_chunk(shape: tuple[int, ...], devices: int = 1) -> int:
    """Return the length of the first chunk. Steps are not timed yet, and those of large matrices take long."""
    product = float(np.prod(shape)) ** 1.5
    return max(1, int(tuning.current().first_chunk * min(1.0, _EASY / product))) if devices <= 1 else 1


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
    n0, steps, size = first, saved.steps, size or tuning.current().first_chunk
    warm = False
    while n0 < steps:
        n1 = min(steps, n0 + size, saved.fitting(n0, slots), n0 // BLOCK * BLOCK + largest)
        began = time.perf_counter()
        yield n0, n1
        seconds = agreed(time.perf_counter() - began)
        usual = tuning.current().chunk_seconds
        wanted = min(max(usual, _FEW * seconds / (n1 - n0)), _LONGER * usual)
        if warm and seconds > 2 * wanted:
            size = max(int((n1 - n0) * wanted / seconds), 1)
        elif seconds < wanted:
            size = min(math.ceil(size * min(wanted / seconds, 64)), tuning.current().largest_chunk)
        warm = True
        n0 = n1


def _growth_message(growth: float) -> str:
    """How many digits the Casimirs have lost, and the remedy."""
    return (
        f"The state has grown by a factor of {growth:.1e} since the initial condition. Casimirs are conserved relative "
        f"to |μ|ᵏ, k their degree, so that their values lose about {np.log10(growth):.0f} digits per degree. Integrate "
        "for a shorter time, or rescale the system."
    )
