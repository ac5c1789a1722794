"""The batches of some runs as tasks of a Dask cluster: they are submitted, repeated if lost, and ordered.

The scheduler receives only as many tasks as keep its workers busy. Results go directly from worker to client. They are
small: totals, accumulators, and the rows of members in a run without a store.
"""

import heapq
import queue
import sys
import time
import uuid
from collections.abc import Generator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from ..runtime.executors import ClusterError
from ..runtime.health import Health
from ..runtime.loop import BatchResult, RunContext
from ..runtime.run_state import SolverTotals
from ..store.atomic_io import StoreError
from .serialization import pack, pack_members
from .worker import ReportConfig, WorkerRejected, WorkerResult, run_remote

if TYPE_CHECKING:
    from .connect import Cluster

ATTEMPTS = 4  # per task, before it counts as failed
_GONE = 10.0  # seconds without a scheduler
_AHEAD = 8  # tasks queued at the scheduler, besides one per slot
_BATCH = 256  # the most tasks submitted at once
_LARGE = 2**14  # bytes above which data are scattered instead of sent with the task
_TICK = 0.25  # seconds to wait for an event
_OFTEN = 0.5  # seconds between reports of a task; longer on many workers
_AGAIN = (OSError, StoreError, MemoryError)  # errors that may be caused by the worker


def say(words: str) -> None:
    """Print a message on the standard error of the client."""
    print(f"coadjoint: {words}", file=sys.stderr, flush=True)


class Tasks:
    """The tasks of some jobs. A task is a range of batches, (job, numbers), and is identified by its index."""

    def __init__(self, cluster: "Cluster", jobs: Sequence[RunContext], tasks: Sequence[tuple[int, range]]):
        self.cluster, self.client, self.jobs, self.tasks = cluster, cluster.client, jobs, tasks
        self.index = {(job, numbers.start): task for task, (job, numbers) in enumerate(tasks)}
        self.distributions = [job.output.distribution() for job in jobs]
        self.topic = f"coadjoint-{uuid.uuid4().hex}"
        self.events: queue.SimpleQueue = queue.SimpleQueue()
        self.waiting = list(range(len(tasks)))  # a heap
        self.futures: dict[int, Any] = {}
        self.sent: dict[Any, Any] = {}  # data on workers: packages by job, members by ("own", task)
        self.ready: dict[int, list[BatchResult]] = {}
        self.next = 0  # the task whose results are returned next
        self.finished: list[tuple[int, Any]] = []  # futures whose results are not fetched yet
        self.fetching = False
        self.fetcher = ThreadPoolExecutor(1)
        self.steps: dict[int, int] = {}  # reported steps of all members of the started tasks
        self.workers: dict[int, str] = {}  # of the started tasks
        self.attempts: dict[int, int] = {}
        self.reached: dict[int, int] = {}  # steps at the end of the last attempt
        self.gone: float | None = None  # since when there is no scheduler

    def results(self) -> Generator[list[BatchResult]]:
        """Yield the results of the tasks in their order."""
        self.client.subscribe_topic(self.topic, lambda event: self.events.put(("report", event[1])))
        try:
            for task in range(len(self.tasks)):
                while task not in self.ready:
                    self._turn()
                self.next = task + 1
                yield self.ready.pop(task)
        finally:
            self._close()

    def _close(self) -> None:
        unfinished = list(self.futures.values())
        self.fetcher.shutdown(wait=False)
        if self.client.status == "running":
            with suppress(Exception):  # the scheduler may go away this very moment
                self.client.unsubscribe_topic(self.topic)
                if unfinished:
                    self.client.cancel(unfinished, force=True)
        self.futures.clear()
        self.sent.clear()
        if unfinished:
            self.distributions[0].drain()

    def _turn(self) -> None:
        """Submit tasks and handle events."""
        self._check()
        self._submit()
        with suppress(queue.Empty):
            event = self.events.get(timeout=_TICK)
            while True:
                getattr(self, f"_{event[0]}")(*event[1:])
                event = self.events.get_nowait()

    def _check(self) -> None:
        self.distributions[0].check()
        status = self.client.status
        if status == "running":
            self.gone = None
            return
        self.gone = self.gone or time.monotonic()
        if status != "connecting" or time.monotonic() - self.gone > _GONE:
            raise ClusterError(f"the scheduler at {self.cluster.address} is gone.{self._recovery()}")

    def _recovery(self) -> str:
        note = self.jobs[0].output.recovery_hint()
        return f"{note} Pass resume=True to continue." if note else " Pass out= to save results of interrupted runs."

    # Submission.

    def _submit(self) -> None:
        if self.gone is not None:
            return
        slots = self.cluster.slots()
        most = 2 * slots + _AHEAD
        room = min(most - len(self.futures), _BATCH)
        if room < min(_AHEAD // 2, len(self.waiting)):  # a few at once cost less
            return
        ahead = self.next + 8 * slots + 64  # accumulators of later tasks wait in the client's memory
        chosen: list[int] = []
        while self.waiting and len(chosen) < room and self.waiting[0] < ahead:
            chosen.append(heapq.heappop(self.waiting))
        if not chosen:
            return
        reports = [
            ReportConfig(self.topic, self.tasks[t][0], max(_OFTEN, slots / 40), self.cluster.closely) for t in chosen
        ]
        numbers = [self.tasks[t][1] for t in chosen]
        keys = [f"{self.topic}-{t}-{uuid.uuid4().hex[:8]}" for t in chosen]
        packages, own = zip(*(self._packed(t) for t in chosen), strict=True)
        try:
            futures = self.client.map(
                run_remote, packages, own, numbers, reports, key=keys, pure=False, workers=self.cluster.allowed()
            )
        except Exception as error:
            if self.client.status == "running":
                raise ClusterError(f"tasks cannot be sent to the cluster: {error}") from error
            for task in chosen:
                heapq.heappush(self.waiting, task)
            return
        for task, future in zip(chosen, futures, strict=True):
            self.futures[task] = future
            future.add_done_callback(lambda future, task=task: self.events.put(("over", task, future)))

    def _packed(self, task: int) -> tuple[Any, Any]:
        """Return the package of the job, and the data of the members of the task."""
        k, numbers = self.tasks[task]
        job = self.jobs[k]
        if k not in self.sent:
            package = pack(job.plan, job.program, self.distributions[k], self.cluster.about)
            self.sent[k] = self._send(package, len(package.data))
        if ("own", task) not in self.sent:
            own = pack_members(job.plan, numbers)
            self.sent["own", task] = None if own is None else self._send(own, len(own))
        return self.sent[k], self.sent["own", task]

    def _send(self, thing: Any, size: int) -> Any:
        if size <= _LARGE:
            return thing
        return self.client.scatter(thing, direct=self.cluster.direct, hash=False)

    # Events.

    def _over(self, task: int, future: Any) -> None:
        """Handle the end of a task."""
        if self.futures.get(task) is not future:
            return
        if future.status == "finished":
            self.finished.append((task, future))
            self._fetch()
        elif future.status == "error":
            self._failed(task, future.exception())
        else:
            self._failed(task, CancelledError(f"the task was {future.status}"))

    def _fetch(self) -> None:
        """Fetch available results, unless a fetch is in progress."""
        if self.finished and not self.fetching:
            self.fetching, batch, self.finished = True, self.finished, []
            self.fetcher.submit(self._fetched, batch)

    def _fetched(self, batch: list[tuple[int, Any]]) -> None:
        """Fetch results in a separate thread, because Dask repeats a task whose result was lost with its worker."""
        gather = lambda futures: self.client.gather(futures, direct=self.cluster.direct)
        try:
            results = gather([future for _, future in batch])
            self.events.put(("got", list(zip((task for task, _ in batch), results, strict=True))))
        except BaseException:
            for task, future in batch:
                try:
                    self.events.put(("got", [(task, gather(future))]))
                except BaseException as error:
                    self.events.put(("failed", task, error))
        self.events.put(("idle",))

    def _idle(self) -> None:
        self.fetching = False
        self._fetch()

    def _got(self, results: list[tuple[int, WorkerResult | None]]) -> None:
        for task, back in results:
            if back is None:
                self._failed(task, CancelledError("the task was cancelled"))
                continue
            job, numbers = self._of(task)
            tree_of = lambda acc, job=job: jax.tree.unflatten(jax.tree.structure(job.plan.accumulator_shape), acc)
            for number, rows in zip(numbers, back.rows, strict=True):
                self.distributions[self.tasks[task][0]].collect(number, rows)
            self._count(task, job.plan.steps * job.plan.count_members(numbers), back.health)
            accumulators = [None if acc is None else tree_of(acc) for acc in back.accumulators]
            totals = [jax.tree.map(np.asarray, x) for x in back.totals]
            parts = zip(back.members, totals, accumulators, back.growth, back.events, strict=True)
            self._done(task, [BatchResult(*x) for x in parts])

    def _done(self, task: int, done: list[BatchResult]) -> None:
        job, numbers = self._of(task)
        job.run.finish(numbers.start)
        for table in (self.futures, self.steps, self.workers, self.attempts, self.reached):
            table.pop(task, None)
        self.sent.pop(("own", task), None)
        if numbers.stop == job.plan.n_batches:
            self.sent.pop(self.tasks[task][0], None)
        self.ready[task] = done

    def _failed(self, task: int, error: Any) -> None:
        """Repeat a task, or record that it failed."""
        self.futures.pop(task, None)
        if self._may_try_again(task, error):
            heapq.heappush(self.waiting, task)
            return
        job, numbers = self._of(task)
        words = f"{type(error).__name__}: {error}"
        if job.plan.throw:
            raise ClusterError(f"{job.plan.describe_batches(numbers)} failed. {words}{self._recovery()}") from error
        done = []
        for number in numbers:
            self.distributions[self.tasks[task][0]].mark_failed(number)
            count = job.plan.count_members(range(number, number + 1))
            unsolved, first = np.int64(count * job.plan.steps), np.int64(0)
            totals: Any = SolverTotals.zero()._replace(unsolved=unsolved, first_unsolved=first)  # type: ignore[arg-type]
            done.append(BatchResult(count, totals, None, failure=words))
        self._done(task, done)

    def _may_try_again(self, task: int, error: Any) -> bool:
        """Return whether the worker may have caused the error, and attempts are left."""
        from distributed.scheduler import KilledWorker  # type: ignore[import-not-found]

        job, numbers = self._of(task)
        what, at = job.plan.describe_batches(numbers), self.steps.get(task, 0)
        if at > self.reached.get(task, 0):  # it advanced; with a store it resumes there
            self.attempts[task] = 0
        self.reached[task] = at
        if isinstance(error, WorkerRejected):
            self.cluster.refuse(error.address, error.why)
        elif isinstance(error, CancelledError):  # data on a worker are lost, or the scheduler is
            self.sent.pop(self.tasks[task][0], None)
            self.sent.pop(("own", task), None)
            if self.client.status != "running":
                return True
        elif isinstance(error, KilledWorker):
            say(f"{what}: the workers that ran it have died; it is run again.")
        elif isinstance(error, _AGAIN):
            say(f"{what}: {error}; it is run again.")
        else:
            return False
        self.attempts[task] = self.attempts.get(task, 0) + 1
        return self.attempts[task] < ATTEMPTS

    def _report(self, news: dict[str, Any]) -> None:
        """Handle the report of a worker."""
        task = self.index[news["job"], news["batch"]]
        job, numbers = self._of(task)
        if "words" in news:
            say(f"worker {news['worker']}: {news['words']}")
            return
        if task not in self.futures:  # outdated
            return
        done: int = news["begin"] if "begin" in news else news["done"]
        step = done // job.plan.count_members(numbers)
        job.run.set_phase(numbers.start, f"backend ({job.program.backend}) of worker {news['worker']}", step)
        if "begin" not in news:
            self._count(task, done, Health(*news["health"]))
        elif task not in self.steps:
            self.steps[task] = done
            self.workers[task] = news["worker"]
            job.bar.begin(done)
            say(f"{job.plan.describe_batches(numbers)} resumes from step {step}, on worker {news['worker']}.")

    def _count(self, task: int, done: int, health: Health) -> None:
        """Add reported steps of a task to the progress bar; repeated steps do not count."""
        before = self.steps.setdefault(task, 0)
        if done > before:
            self.steps[task] = done
            self._of(task)[0].bar.add_remote(done - before, health)

    def _of(self, task: int) -> tuple[RunContext, range]:
        job, numbers = self.tasks[task]
        return self.jobs[job], numbers
