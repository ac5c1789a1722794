"""What runs on a worker: a tile, by the engine's own loop."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from stepcompiler.cache import LRUCache

from ..runtime.backends import prepare_program
from ..runtime.backends.base import Program
from ..runtime.distribution import Cancelled, Remote
from ..runtime.health import NOTHING, Health, health_of
from ..runtime.loop import RunContext, run_batches
from ..runtime.plan import Plan
from ..runtime.results import combine_totals
from ..runtime.run_state import SolverTotals, StepState
from ..runtime.stall_monitor import MonitoredRun
from ..store.interrupts import Stopped
from .serialization import RunPackage, differences, environment, unpack, with_members


class WorkerRejected(RuntimeError):
    """A worker that cannot take part: its address, and why."""

    def __init__(self, address: str, why: str):
        super().__init__(address, why)
        self.address, self.why = address, why


class WorkerResult(NamedTuple):
    """What a worker sends back of each of some tiles, and how all of them are. With a store there are no rows."""

    members: list[int]
    totals: list[
        SolverTotals
    ]  # plain numbers: arrays would keep the whole message alive as long as they live themselves
    accumulators: list[list | None]
    growth: list[float]
    rows: list[Any]
    health: Health


class _Run(NamedTuple):
    """A run that was unpacked."""

    plan: Plan
    program: Program
    remote: Remote


_runs: LRUCache[_Run] = LRUCache(16)


class ReportConfig(NamedTuple):
    """How a worker tells how a tile goes: under which topic, for which job, how often, and whether it looks closely."""

    topic: str
    job: int
    often: float  # seconds
    closely: bool


def run_remote(package: RunPackage, own: bytes | None, numbers: range, told: ReportConfig) -> WorkerResult | None:
    """Run some tiles as one; None if nobody waits for them any more."""
    from distributed import get_worker  # type: ignore[import-not-found]

    worker = get_worker()
    run = _runs.get(package.token, lambda: _opened(package, worker.address))
    plan, program = run.plan, run.program
    if own is not None:
        plan = with_members(plan, numbers, own)
        program = prepare_program(plan)
    head = {"job": told.job, "tile": numbers.start, "worker": worker.address}
    reporter = Reporter(plan, told, lambda **words: worker.log_event(told.topic, head | words))
    cancelled = CancelToken()
    if cancelled.is_set():  # before a store is touched
        return None
    try:
        with MonitoredRun(plan, lambda words: reporter.tell(words=words)) as watched, program.device_context():
            with run.remote.output(plan, program, numbers, cancelled) as output:
                done = run_batches(RunContext(plan, program, output, reporter, watched), numbers)
                rows = run.remote.rows(output)
    except (Cancelled, Stopped):  # the latter would end the worker
        return None
    totals, accumulators, growth = zip(*done, strict=True)
    return WorkerResult(
        [len(x.iterations) for x in totals],
        [jax.tree.map(lambda n: np.asarray(n).item(), combine_totals(x)) for x in totals],
        [None if acc is None else [np.asarray(x) for x in jax.tree.leaves(acc)] for acc in accumulators],
        list(growth),
        rows,
        reporter.health(),
    )


def _opened(package: RunPackage, address: str) -> _Run:
    wrong = differences(package.about, environment(package.about["modules"]), package.about["same machine"])
    if wrong:
        raise WorkerRejected(address, "; ".join(wrong))
    plan, remote = unpack(package)
    if plan.batch_size != package.about["tile"]:
        raise WorkerRejected(address, "it would cut members into other tiles, because JAX's default device is another")
    try:
        return _Run(plan, prepare_program(plan), remote)
    except ValueError as error:  # no native code on this machine
        raise WorkerRejected(address, str(error)) from None


class CancelToken:
    """Set when nobody waits any more for the task of this thread, or when the worker goes away."""

    def is_set(self) -> bool:
        from distributed import get_worker  # type: ignore[import-not-found]

        worker = get_worker()
        task = worker.state.tasks.get(worker.get_current_task())
        return task is None or task.state == "cancelled" or worker.status.name in ("closing", "closed", "failed")


class Reporter:
    """Watches a tile and tells the client now and then, in few words."""

    def __init__(self, plan: Plan, how: ReportConfig, tell: Callable[..., None]):
        self.plan, self.how, self.tell = plan, how, tell
        self.done, self.last = 0, time.monotonic()
        self.at: tuple[StepState, Any] | None = None

    def __enter__(self) -> "Reporter":
        return self

    def __exit__(self, *exc: Any) -> None:
        pass

    def begin(self, done: int) -> None:
        """From this step on; tiles that began with other steps follow later."""
        self.done += done
        self.tell(begin=self.done)

    def add(self, more: int, points: StepState, mu0: Any) -> None:
        """On the way."""
        self.done += more
        self.at = points, mu0
        now = time.monotonic()
        if now - self.last >= self.how.often:
            self.last = now
            self.tell(done=self.done, health=list(self.health()))

    def add_remote(self, more: int, health: Health) -> None:
        """Nobody tells a worker."""

    def health(self) -> Health:
        """How the members are."""
        return health_of(self.plan, *self.at) if self.at is not None and self.how.closely else NOTHING
