"""The argument `on=`, and the check that its workers can compute the run."""

import asyncio
import difflib
import os
import queue
import socket
import threading
import time
import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ..numerics import validation
from ..runtime import tuning
from ..runtime.backends.base import Program
from ..runtime.executors import ClusterError
from ..runtime.loop import BatchResult, RunContext
from ..runtime.plan import Plan
from ..store.locks import lock_warning
from .serialization import differences, environment, serialize
from .tasks import Tasks, say

_CONNECT = 5.0  # seconds to wait for a scheduler …
_ANSWER = 60.0  # seconds in which workers must answer: they import JAX
_TRIES = 5  # attempts to reach workers, because some may die
_LOOK = 2.0  # seconds between counts of the workers
# A terminal sends Ctrl-C to all its processes. Workers ignore it, and the client ends them.
_IGNORE_INTERRUPT = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"


class Cluster:
    """A Dask cluster as an executor."""

    def __init__(
        self, client: Any, plans: Sequence[Plan], programs: Sequence[Program], out: Any, closely: bool, own: int = 0
    ):
        self.client, self.closely = client, closely
        self.own = own  # the number of local workers to restart if they die
        self.address = client.scheduler.address
        self.rejected: dict[str, str] = {}
        self.seen, self._slots = 0.0, 0
        # XLA, whose rounding depends on the machine, computes statistics, `save`, and the energies in a store.
        native = all(program.backend.startswith("native") for program in programs)
        same_machine = not native or out is not None or any(plan.reduce or plan.save.function for plan in plans)
        modules = serialize([(plan.integrator, plan.reduce, plan.driver, plan.system.algebra) for plan in plans])[1]
        self.about: dict[str, Any] = environment(modules) | {"same machine": same_machine}
        self._greet(None if out is None else Path(out))
        self.direct = self._reaches_workers()

    @property
    def platform(self) -> dict[str, Any]:
        """The platform of the workers."""
        return self.about["platform"]

    def __call__(self, jobs: Sequence[RunContext], tasks: Sequence[tuple[int, range]]) -> Generator[list[BatchResult]]:
        """Yield the results of the tasks in their order."""
        return Tasks(self, jobs, tasks).results()

    # Workers.

    def slots(self) -> int:
        """Return the number of tasks that the workers run at once, as last counted."""
        now = time.monotonic()
        if now - self.seen > _LOOK:
            with suppress(OSError):
                threads = self._threads()
                if not threads and self._slots:
                    say("there are no workers left; waiting for new ones.")
                self._slots = sum(n for address, n in threads.items() if address not in self.rejected)
            self.seen = time.monotonic()
        return self._slots

    def _threads(self) -> dict[str, int]:
        """Return the threads of each worker. Dask abandons workers that fail to start: local ones are restarted."""
        threads = self.client.nthreads()
        if len(threads) < self.own:
            self.client.cluster.scale(self.own)
        return threads

    def allowed(self) -> list[str] | None:
        """Return the workers that may receive tasks; None for all."""
        if not self.rejected:
            return None
        left = [address for address in self.client.nthreads() if address not in self.rejected]
        if not left:
            raise ClusterError(self._refusal(self.rejected))
        return left

    def refuse(self, address: str, why: str) -> None:
        """Exclude a worker that joined later and cannot compute the run."""
        if address not in self.rejected:
            say(f"worker {address} receives no tasks: {why}.")
            self.rejected[address] = why

    def _refusal(self, wrong: dict[str, str]) -> str:
        named = [f"worker {address}: {why}" for address, why in list(wrong.items())[:3]]
        more = f" (and {len(wrong) - 3} more)" if len(wrong) > 3 else ""
        return (
            f"results of workers of {self.address} would not be bitwise identical. {'. '.join(named)}{more}. "
            "Workers need the packages of the client, and machines of one kind."
        )

    def _greet(self, out: Path | None) -> None:
        """Compare the environments of all workers, and check that they see the folder of the store."""
        answers: dict[str, Any] = {}
        with _probe(out) as probe:
            question = _greeting(list(self.about["modules"]), probe)
            for _ in range(_TRIES):
                self._await_workers()
                self._compare_pythons()
                found = self._ask(lambda: self.client.run(question, on_error="return"))
                answers = {k: v for k, v in found.items() if not isinstance(v, OSError)}  # without workers that died
                if answers:
                    break
        if not answers:
            raise ClusterError(f"the workers of {self.address} die when coadjoint contacts them: see their logs.")
        wrong: dict[str, str] = {}
        machines = [a["platform"] for a in answers.values() if isinstance(a, dict) and "platform" in a]
        if machines:
            self.about["platform"] = machines[0]
        for address, answer in answers.items():
            if isinstance(answer, BaseException):
                wrong[address] = f"{type(answer).__name__}: {answer}"
            elif "missing" in answer:
                wrong[address] = f"coadjoint cannot be imported there ({answer['missing']})"
            elif not answer["sees"]:
                assert out is not None
                raise ClusterError(
                    f"{out} cannot be created there: worker {address} does not see the folder {out.absolute().parent}. "
                    "A store must lie on a file system that the client and all workers share under one name."
                )
            elif different := differences(self.about, answer, self.about["same machine"]):
                wrong[address] = "; ".join(different)
        if wrong:
            raise ClusterError(self._refusal(wrong))
        if out is not None and len({a["host"] for a in answers.values()}) > 1 and (why := lock_warning(out.parent)):
            validation.warn(f"{why} Take care that no other run writes to {out}.")

    def _await_workers(self) -> None:
        if not self._threads():
            say(f"{self.address} has no workers yet; waiting for the first.")
        while not self._threads():
            time.sleep(_LOOK / 4)

    def _compare_pythons(self) -> None:
        """Compare versions by Dask's own message before code is sent: another Python may crash on it."""
        own = self.about["versions"]["python"]
        found = self._ask(self.client.get_versions)["workers"]
        pythons = {k: ".".join(about["host"]["python"].split(".")[:2]) for k, about in found.items()}
        wrong = {k: f"python is {python}, not {own}" for k, python in pythons.items() if python != own}
        if wrong:
            raise ClusterError(self._refusal(wrong))

    def _ask(self, question: Callable[[], Any]) -> Any:
        try:
            return _within(_ANSWER, question)
        except Timeout:
            raise ClusterError(f"not all workers of {self.address} have answered within {_ANSWER:g} s.") from None
        except OSError as error:
            raise ClusterError(f"{self.address} does not answer: {error}") from None

    def _reaches_workers(self) -> bool:
        """Return whether the client can exchange data directly with the workers; those that die are ignored."""
        for _ in range(_TRIES):
            there = set(self.client.nthreads())
            try:
                self.client.scatter([b""], direct=True, hash=False, timeout=_CONNECT)
                return True
            except OSError:
                time.sleep(_LOOK)  # until the scheduler has removed dead workers
            if there <= set(self.client.nthreads()):
                break
        validation.warn(
            f"the workers of {self.address} cannot be reached from here, so that results go through the scheduler: "
            "it will need memory for them."
        )
        return False


def _greeting(modules: list[str], probe: str | None) -> Callable:
    """Return a function that also runs on a worker without coadjoint: nested functions are sent by value.

    Modules are imported in the thread that also reads messages: two threads that import JAX at once may both fail.
    """

    async def greeting() -> dict:
        import asyncio
        import os
        import socket
        import time

        try:
            from . import worker  # noqa: F401, all that tasks will need
            from .serialization import environment
        except ImportError as error:
            return {"missing": str(error)}
        end = time.monotonic() + 3.0  # network file systems show new files a little later
        while probe is not None and not os.path.exists(probe) and time.monotonic() < end:
            await asyncio.sleep(0.1)
        sees = probe is None or os.path.exists(probe)
        return {**environment(modules), "sees": sees, "host": socket.gethostname()}

    return greeting


@contextmanager
def _probe(out: Path | None) -> Iterator[str | None]:
    """Create a file next to the store that workers must see; None without a writable folder, an error elsewhere."""
    if out is None or not os.access(out.absolute().parent, os.W_OK):
        yield None
        return
    path = out.absolute().parent / f".{out.name}.{uuid.uuid4().hex}"
    path.touch()
    try:
        yield str(path)
    finally:
        path.unlink(missing_ok=True)


# The argument `on=`.


@contextmanager
def connected(
    on: Any, plans: Sequence[Plan], programs: Sequence[Program], out: Any, progress: Any
) -> Iterator[Cluster]:
    """Connect to the cluster `on` and check it for these plans. A client opened here is closed at the end."""
    try:
        import distributed  # type: ignore[import-not-found]
    except ImportError:
        raise ClusterError("on= needs Dask: pip install 'coadjoint[cluster]'.") from None
    with _client(on, distributed) as client:
        _check(client)
        own = len(client.cluster.worker_spec) if _is_local(on) else 0
        cluster = Cluster(client, plans, programs, out, progress is not False, own)
        if progress is not False:
            say(f"{len(client.nthreads())} workers; dashboard at {client.dashboard_link}")
        yield cluster


@contextmanager
def _client(on: Any, distributed: Any) -> Iterator[Any]:
    if isinstance(on, distributed.Client):
        if on.asynchronous:
            raise TypeError("on must be a client that waits for results: Client(..., asynchronous=False).")
        if on.status != "running":
            raise ClusterError(f"on is a client that is {on.status}: make a new one.")
        yield on
    elif _is_local(on):
        with _local(on, distributed) as cluster, distributed.Client(cluster, set_as_default=False) as client:
            yield client
    elif isinstance(on, str) and (close := difflib.get_close_matches(on.partition(":")[0].lower(), ["local"], 1, 0.8)):
        raise ValueError(f"on = {on!r} is not known: did you mean '{close[0]}:{on.partition(':')[2] or 8}'?")
    elif (isinstance(on, str) and on) or hasattr(on, "scheduler_address"):
        where = on if isinstance(on, str) else on.scheduler_address
        try:
            if isinstance(on, str):
                _within(tuning.current().cluster_reply_seconds, lambda: _identified(on, distributed))
            client = distributed.Client(on, timeout=_CONNECT, set_as_default=False)
        except Exception as error:  # Dask's error for a server that is not a scheduler
            why = str(error) or "no answer"
            raise ClusterError(f"there is no Dask scheduler at {where}: {why}") from None
        with client:
            yield client
    else:
        raise TypeError(
            f"on must be a distributed.Client, a Dask cluster, an address such as 'tcp://10.0.0.1:8786', or 'local:8', "
            f"not {on!r}."
        )


def _identified(address: str, distributed: Any) -> None:
    """Identify a scheduler in a separate event loop: a `Client` waits forever for a server that does not answer."""

    if not address.startswith("inproc:"):  # Dask would retry for seconds if no server listens
        socket.create_connection(distributed.comm.get_address_host_port(address), _CONNECT).close()

    async def ask() -> None:
        security = distributed.Security().get_connection_args("client")
        async with distributed.rpc(address, timeout=_CONNECT, connection_args=security) as scheduler:
            await asyncio.wait_for(scheduler.identity(), _CONNECT)

    asyncio.run(ask())


def _check(client: Any) -> None:
    """Raise an error if the scheduler of a client does not answer; Dask would wait for 30 seconds."""
    try:
        _within(tuning.current().cluster_reply_seconds, client.nthreads)
    except (OSError, RuntimeError) as error:
        raise ClusterError(f"the scheduler at {client.scheduler.address} does not answer: {error}") from None


class Timeout(OSError):
    """Something took too long."""


def _within(seconds: float, work: Callable[[], Any]) -> Any:
    """Return the result of work(), or raise its error or `Timeout`; its daemon thread does not block the exit."""
    box: queue.SimpleQueue = queue.SimpleQueue()

    def run() -> None:
        try:
            box.put((work(), None))
        except BaseException as error:
            box.put((None, error))

    threading.Thread(target=run, daemon=True).start()
    try:
        value, error = box.get(timeout=seconds)
    except queue.Empty:
        raise Timeout(f"no answer within {seconds:g} s") from None
    if error is not None:
        raise error
    return value


def _is_local(on: Any) -> bool:
    return isinstance(on, str) and on.lower().partition(":")[0] == "local"


def _local(on: str, distributed: Any) -> Any:
    """Processes on this machine, spawned: JAX does not survive a fork."""
    from dask import config

    count = on.removeprefix("local:")
    if not count.isdecimal() or not int(count):
        raise ValueError(f"on must have a number of processes after 'local:', as in 'local:8', not {on!r}.")
    with config.set({"distributed.worker.multiprocessing-method": "spawn"}):
        return distributed.LocalCluster(
            n_workers=int(count), threads_per_worker=1, dashboard_address=":0", preload=_IGNORE_INTERRUPT
        )
