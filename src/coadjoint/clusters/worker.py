"""Tasks on a worker, run by the loop of the runtime."""

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
from ..runtime.run_state import SolverTotals, StepState
from ..runtime.stall_monitor import MonitoredRun
from ..runtime.stats import combine_totals
from ..store.interrupts import Stopped
from .serialization import RunPackage, differences, environment, unpack, with_members


class WorkerRejected(RuntimeError):
    """A worker that cannot compute the run: its address and the reason."""

    def __init__(self, address: str, why: str):
        super().__init__(address, why)
        self.address, self.why = address, why


class WorkerResult(NamedTuple):
    """The results of some batches that a worker sends to the client. With a store there are no rows."""

    members: list[int]
    totals: list[SolverTotals]  # plain numbers, because an array keeps the memory of the complete message alive
    accumulators: list[list | None]
    growth: list[float]
    events: list[Any]  # of the members, with `until`
    rows: list[Any]
    health: Health


class _Run(NamedTuple):
    """An unpacked run."""

    plan: Plan
    program: Program
    remote: Remote


_runs: LRUCache[_Run] = LRUCache(16)


class ReportConfig(NamedTuple):
    """The reports of a worker: their topic, job and interval, and whether they include the health of members."""

    topic: str
    job: int
    often: float  # seconds
    closely: bool


def run_remote(package: RunPackage, own: bytes | None, numbers: range, config: ReportConfig) -> WorkerResult | None:
    """Run some batches in one launch; return None if the task was cancelled."""
    from distributed import get_worker  # type: ignore[import-not-found]

    worker = get_worker()
    run = _runs.get(package.token, lambda: _opened(package, worker.address))
    plan, program = run.plan, run.program
    if own is not None:
        plan = with_members(plan, numbers, own)
        program = prepare_program(plan)
    head = {"job": config.job, "batch": numbers.start, "worker": worker.address}
    reporter = Reporter(plan, config, lambda **words: worker.log_event(config.topic, head | words))
    cancelled = CancelToken()
    if cancelled.is_set():  # before a store is touched
        return None
    try:
        with MonitoredRun(plan, lambda words: reporter.send(words=words)) as watched, program.device_context():
            with run.remote.output(plan, program, numbers, cancelled) as output:
                done = run_batches(RunContext(plan, program, output, reporter, watched), numbers)
                rows = run.remote.rows(output)
    except (Cancelled, Stopped):  # the latter would end the worker
        return None
    totals, accumulators, growth, events = zip(*done, strict=True)
    return WorkerResult(
        [len(x.iterations) for x in totals],
        [jax.tree.map(lambda n: np.asarray(n).item(), combine_totals(x)) for x in totals],
        [None if acc is None else [np.asarray(x) for x in jax.tree.leaves(acc)] for acc in accumulators],
        list(growth),
        list(events),
        rows,
        reporter.health(),
    )


def _opened(package: RunPackage, address: str) -> _Run:
    wrong = differences(package.about, environment(package.about["modules"]), package.about["same machine"])
    if wrong:
        raise WorkerRejected(address, "; ".join(wrong))
    plan, remote = unpack(package)
    if plan.batch_size != package.about["batch_size"]:
        raise WorkerRejected(address, "its batches would have another size, because its default device of JAX differs")
    try:
        return _Run(plan, prepare_program(plan), remote)
    except ValueError as error:  # no native code on this machine
        raise WorkerRejected(address, str(error)) from None


class CancelToken:
    """Set if the task of this thread is cancelled, or if the worker closes."""

    def is_set(self) -> bool:
        from distributed import get_worker  # type: ignore[import-not-found]

        worker = get_worker()
        task = worker.state.tasks.get(worker.get_current_task())
        return task is None or task.state == "cancelled" or worker.status.name in ("closing", "closed", "failed")


class Reporter:
    """Observes a task and sends short reports to the client at intervals."""

    def __init__(self, plan: Plan, config: ReportConfig, send: Callable[..., None]):
        self.plan, self.config, self.send = plan, config, send
        self.done, self.last = 0, time.monotonic()
        self.at: tuple[StepState, Any] | None = None

    def __enter__(self) -> "Reporter":
        return self

    def __exit__(self, *exc: Any) -> None:
        pass

    def begin(self, done: int) -> None:
        """Report the first step; batches that begin at other steps report later."""
        self.done += done
        self.send(begin=self.done)

    def add(self, more: int, points: StepState, mu0: Any) -> None:
        """Report progress."""
        self.done += more
        self.at = points, mu0
        now = time.monotonic()
        if now - self.last >= self.config.often:
            self.last = now
            self.send(done=self.done, health=list(self.health()))

    def add_remote(self, more: int, health: Health) -> None:
        """Do nothing: a worker receives no reports."""

    def health(self) -> Health:
        """Return the health of the members."""
        return health_of(self.plan, *self.at) if self.at is not None and self.config.closely else NOTHING
