"""The tiles of some runs as tasks of a Dask cluster: handed out, waited for, done again, and brought into order.

The scheduler holds no more tasks than keep its workers busy. What comes back goes from worker to client without it,
and is small: the totals of a tile, accumulators, and in a run without a store the rows of its members.
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

ATTEMPTS = 4  # at a tile, before it counts as failed
_GONE = 10.0  # seconds without a scheduler
_AHEAD = 8  # tasks that wait at the scheduler, beside one for each slot
_BATCH = 256  # tasks that are handed out at once
_LARGE = 2**14  # bytes above which something is sent to a worker, and not with the task
_TICK = 0.25  # seconds between two looks around
_OFTEN = 0.5  # seconds after which a tile tells how it goes; more, where there are many
_AGAIN = (OSError, StoreError, MemoryError)  # what may be of the worker, not of the tile


def say(words: str) -> None:
    """The log of all workers is the standard error of the client."""
    print(f"coadjoint: {words}", file=sys.stderr, flush=True)


class Tasks:
    """Tiles on their way, one or a few as one; they are known by their place in `tiles`, which are (job, numbers)."""

    def __init__(self, cluster: "Cluster", jobs: Sequence[RunContext], tiles: Sequence[tuple[int, range]]):
        self.cluster, self.client, self.jobs, self.tiles = cluster, cluster.client, jobs, tiles
        self.places = {(job, numbers.start): place for place, (job, numbers) in enumerate(tiles)}
        self.distributions = [job.output.distribution() for job in jobs]
        self.topic = f"coadjoint-{uuid.uuid4().hex}"
        self.events: queue.SimpleQueue = queue.SimpleQueue()
        self.waiting = list(range(len(tiles)))  # a heap
        self.futures: dict[int, Any] = {}
        self.sent: dict[Any, Any] = {}  # what workers hold for us: packages by job, members of tiles by ("own", tile)
        self.ready: dict[int, list[BatchResult]] = {}
        self.next = 0  # the tile that is to be handed over next
        self.finished: list[tuple[int, Any]] = []  # futures whose results are to be fetched
        self.fetching = False
        self.fetcher = ThreadPoolExecutor(1)
        self.steps: dict[int, int] = {}  # of all members of tiles that have begun, as far as they were counted
        self.by: dict[int, str] = {}  # the workers that have them
        self.attempts: dict[int, int] = {}
        self.stood: dict[int, int] = {}  # at the end of the last attempt
        self.gone: float | None = None  # since when there is no scheduler

    def results(self) -> Generator[list[BatchResult]]:
        """What became of the tiles, in their order."""
        self.client.subscribe_topic(self.topic, lambda event: self.events.put(("told", event[1])))
        try:
            for tile in range(len(self.tiles)):
                while tile not in self.ready:
                    self._turn()
                self.next = tile + 1
                yield self.ready.pop(tile)
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
        """Hand out what there is room for, and take what comes."""
        self._check()
        self._hand_out()
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
            raise ClusterError(f"the scheduler at {self.cluster.address} is gone.{self._kept()}")

    def _kept(self) -> str:
        note = self.jobs[0].output.recovery_hint()
        return f"{note} resume=True goes on from there." if note else " With out= what was computed would be kept."

    # Handing out.

    def _hand_out(self) -> None:
        if self.gone is not None:
            return
        slots = self.cluster.slots()
        most = 2 * slots + _AHEAD
        room = min(most - len(self.futures), _BATCH)
        if room < min(_AHEAD // 2, len(self.waiting)):  # a few at once cost less
            return
        ahead = self.next + 8 * slots + 64  # accumulators of later tiles wait here for those before them
        chosen: list[int] = []
        while self.waiting and len(chosen) < room and self.waiting[0] < ahead:
            chosen.append(heapq.heappop(self.waiting))
        if not chosen:
            return
        reports = [
            ReportConfig(self.topic, self.tiles[t][0], max(_OFTEN, slots / 40), self.cluster.closely) for t in chosen
        ]
        numbers = [self.tiles[t][1] for t in chosen]
        keys = [f"{self.topic}-{t}-{uuid.uuid4().hex[:8]}" for t in chosen]
        packages, own = zip(*(self._packed(t) for t in chosen), strict=True)
        try:
            futures = self.client.map(
                run_remote, packages, own, numbers, reports, key=keys, pure=False, workers=self.cluster.allowed()
            )
        except Exception as error:
            if self.client.status == "running":
                raise ClusterError(f"tiles cannot be sent to the cluster: {error}") from error
            for tile in chosen:
                heapq.heappush(self.waiting, tile)
            return
        for tile, future in zip(chosen, futures, strict=True):
            self.futures[tile] = future
            future.add_done_callback(lambda future, tile=tile: self.events.put(("over", tile, future)))

    def _packed(self, tile: int) -> tuple[Any, Any]:
        """The package of the job, and what the members of the tile have of their own."""
        k, numbers = self.tiles[tile]
        job = self.jobs[k]
        if k not in self.sent:
            package = pack(job.plan, job.program, self.distributions[k], self.cluster.about)
            self.sent[k] = self._send(package, len(package.data))
        if ("own", tile) not in self.sent:
            own = pack_members(job.plan, numbers)
            self.sent["own", tile] = None if own is None else self._send(own, len(own))
        return self.sent[k], self.sent["own", tile]

    def _send(self, thing: Any, size: int) -> Any:
        if size <= _LARGE:
            return thing
        return self.client.scatter(thing, direct=self.cluster.direct, hash=False)

    # What comes.

    def _over(self, tile: int, future: Any) -> None:
        """A task has ended, somehow."""
        if self.futures.get(tile) is not future:
            return
        if future.status == "finished":
            self.finished.append((tile, future))
            self._fetch()
        elif future.status == "error":
            self._failed(tile, future.exception())
        else:
            self._failed(tile, CancelledError(f"the task was {future.status}"))

    def _fetch(self) -> None:
        """Fetch the results that there are, unless that is under way."""
        if self.finished and not self.fetching:
            self.fetching, batch, self.finished = True, self.finished, []
            self.fetcher.submit(self._fetched, batch)

    def _fetched(self, batch: list[tuple[int, Any]]) -> None:
        """In a thread of its own, because a result that was lost with its worker is computed again."""
        gather = lambda futures: self.client.gather(futures, direct=self.cluster.direct)
        try:
            results = gather([future for _, future in batch])
            self.events.put(("got", list(zip((tile for tile, _ in batch), results, strict=True))))
        except BaseException:
            for tile, future in batch:
                try:
                    self.events.put(("got", [(tile, gather(future))]))
                except BaseException as error:
                    self.events.put(("failed", tile, error))
        self.events.put(("idle",))

    def _idle(self) -> None:
        self.fetching = False
        self._fetch()

    def _got(self, results: list[tuple[int, WorkerResult | None]]) -> None:
        for tile, back in results:
            if back is None:
                self._failed(tile, CancelledError("the task was cancelled"))
                continue
            job, numbers = self._of(tile)
            whole = lambda acc, job=job: jax.tree.unflatten(jax.tree.structure(job.plan.accumulator_shape), acc)
            for number, rows in zip(numbers, back.rows, strict=True):
                self.distributions[self.tiles[tile][0]].collect(number, rows)
            self._count(tile, job.plan.steps * job.plan.count_members(numbers), back.health)
            accumulators = [None if acc is None else whole(acc) for acc in back.accumulators]
            totals = [jax.tree.map(np.asarray, x) for x in back.totals]
            self._done(
                tile, [BatchResult(*x) for x in zip(back.members, totals, accumulators, back.growth, strict=True)]
            )

    def _done(self, tile: int, done: list[BatchResult]) -> None:
        job, numbers = self._of(tile)
        job.run.finish(numbers.start)
        for kept in (self.futures, self.steps, self.by, self.attempts, self.stood):
            kept.pop(tile, None)
        self.sent.pop(("own", tile), None)
        if numbers.stop == job.plan.n_batches:
            self.sent.pop(self.tiles[tile][0], None)
        self.ready[tile] = done

    def _failed(self, tile: int, error: Any) -> None:
        """Try again, or give up."""
        self.futures.pop(tile, None)
        if self._may_try_again(tile, error):
            heapq.heappush(self.waiting, tile)
            return
        job, numbers = self._of(tile)
        words = f"{type(error).__name__}: {error}"
        if job.plan.throw:
            raise ClusterError(f"{job.plan.describe_batches(numbers)} failed. {words}{self._kept()}") from error
        done = []
        for number in numbers:
            self.distributions[self.tiles[tile][0]].mark_failed(number)
            count = job.plan.count_members(range(number, number + 1))
            unsolved, first = np.int64(count * job.plan.steps), np.int64(0)
            totals: Any = SolverTotals.zero()._replace(unsolved=unsolved, first_unsolved=first)  # type: ignore[arg-type]
            done.append(BatchResult(count, totals, None, failure=words))
        self._done(tile, done)

    def _may_try_again(self, tile: int, error: Any) -> bool:
        """Whether it may be the worker's fault, and did not happen too often."""
        from distributed.scheduler import KilledWorker  # type: ignore[import-not-found]

        job, numbers = self._of(tile)
        what, at = job.plan.describe_batches(numbers), self.steps.get(tile, 0)
        if at > self.stood.get(tile, 0):  # it came on meanwhile: with a store it goes on from there
            self.attempts[tile] = 0
        self.stood[tile] = at
        if isinstance(error, WorkerRejected):
            self.cluster.refuse(error.address, error.why)
        elif isinstance(error, CancelledError):  # something that a worker held for us is lost, or the scheduler is
            self.sent.pop(self.tiles[tile][0], None)
            self.sent.pop(("own", tile), None)
            if self.client.status != "running":
                return True
        elif isinstance(error, KilledWorker):
            say(f"{what}: the workers that ran it have died; it is run again.")
        elif isinstance(error, _AGAIN):
            say(f"{what}: {error}; it is run again.")
        else:
            return False
        self.attempts[tile] = self.attempts.get(tile, 0) + 1
        return self.attempts[tile] < ATTEMPTS

    def _told(self, news: dict[str, Any]) -> None:
        """A worker tells how a tile goes."""
        tile = self.places[news["job"], news["tile"]]
        job, numbers = self._of(tile)
        if "words" in news:
            say(f"worker {news['worker']}: {news['words']}")
            return
        if tile not in self.futures:  # old news
            return
        done: int = news["begin"] if "begin" in news else news["done"]
        step = done // job.plan.count_members(numbers)
        job.run.set_phase(numbers.start, f"backend ({job.program.backend}) of worker {news['worker']}", step)
        if "begin" not in news:
            self._count(tile, done, Health(*news["health"]))
        elif tile not in self.steps:
            self.steps[tile] = done
            self.by[tile] = news["worker"]
            job.bar.begin(done)
        elif self.by.get(tile) != news["worker"]:
            self.by[tile] = news["worker"]
            say(f"{job.plan.describe_batches(numbers)} goes on from step {step}, with worker {news['worker']}.")

    def _count(self, tile: int, done: int, health: Health) -> None:
        """So many steps of a tile are done; those that are done again do not count."""
        before = self.steps.setdefault(tile, 0)
        if done > before:
            self.steps[tile] = done
            self._of(tile)[0].bar.add_remote(done - before, health)

    def _of(self, tile: int) -> tuple[RunContext, range]:
        job, numbers = self.tiles[tile]
        return self.jobs[job], numbers
