"""Workers that die, hang or fail: the results stay the same, or an error names the batch."""

import os
import random
import signal
import threading
import time
from contextlib import suppress

import jax.numpy as jnp
import numpy as np
import pytest
from cluster_runs import LONG, MU0, SYSTEM, ensemble, in_time
from stores import assert_same_store

import coadjoint as cj
from coadjoint.runtime.executors import ClusterError

distributed = pytest.importorskip("distributed", reason="the extra [cluster] is not installed")

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


class Killer(threading.Thread):
    """Kills workers at random moments of a run."""

    def __init__(self, cluster, kills, seed, longest=1.0, number=signal.SIGKILL):
        super().__init__(daemon=True)
        self.cluster, self.left, self.moments, self.longest = cluster, kills, random.Random(seed), longest
        self.number, self.over = number, threading.Event()

    def run(self):
        longest = 0.2  # at first: the run must not be over before
        while self.left and not self.over.wait(self.moments.uniform(0.05, longest)):
            pids = [nanny.pid for nanny in self.cluster.workers.values() if nanny.status.name == "running"]
            if pids and None not in pids:
                with suppress(ProcessLookupError):  # it ended just now
                    os.kill(self.moments.choice(pids), self.number)
                    self.left -= 1
                    longest = self.longest


def killed(client, path, kills, seed):
    killer = Killer(client.cluster, kills, seed)
    killer.start()
    try:
        cj.ensemble(SYSTEM, MU0, **LONG, out=path, on=client)
    finally:
        killer.over.set()
        killer.join()
    return kills - killer.left


def test_three_kills(client, whole, tmp_path):
    assert killed(client, tmp_path / "run.zarr", 3, seed=0) > 0
    assert_same_store(tmp_path / "run.zarr", whole)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 21))
def test_twenty_runs_with_kills(client, whole, tmp_path, seed):
    assert killed(client, tmp_path / "run.zarr", 3, seed) > 0
    assert_same_store(tmp_path / "run.zarr", whole)


@pytest.mark.slow
def test_members_in_memory_survive_a_kill(client):
    usual = cj.ensemble(SYSTEM, MU0, **LONG)
    killer = Killer(client.cluster, 2, seed=5)
    killer.start()
    there = cj.ensemble(SYSTEM, MU0, **LONG, on=client)
    killer.over.set()
    np.testing.assert_array_equal(there.mu, usual.mu)


def test_ctrl_c_and_on(client, whole, tmp_path):
    """No process writes to the store when the call returns, and another call resumes the run."""
    path = tmp_path / "run.zarr"

    def press():
        while not list(path.glob("checkpoint/*.npz")):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press, daemon=True).start()
    with pytest.raises(KeyboardInterrupt, match=r"stopped; .*run\.zarr contains each member .* Resume with: "):
        cj.ensemble(SYSTEM, MU0, **LONG, out=path, on=client)
    assert not list(path.glob("checkpoint/*.lock"))
    cj.ensemble(SYSTEM, MU0, **LONG, out=path, on=client, resume=True)
    assert_same_store(path, whole)


def test_workers_of_our_own_do_not_hear_ctrl_c():
    """A terminal sends it to them too; the client stops them, when they have written what they have."""
    from coadjoint.clusters import connect

    def heard():
        import multiprocessing
        import signal

        return signal.getsignal(signal.SIGINT) is not signal.SIG_IGN, multiprocessing.get_start_method()

    with connect._local("local:1", distributed) as cluster, distributed.Client(cluster) as client:
        assert list(client.run(heard).values()) == [(False, "spawn")]


def failing(batch):
    """On a worker, from now on: this batch fails."""
    from coadjoint.clusters import worker

    usual = worker.run_batches

    def run_batches(context, numbers):
        if batch in numbers:
            raise ZeroDivisionError("by hand")
        return usual(context, numbers)

    worker.run_batches = run_batches
    worker.usual = usual


def mended():
    from coadjoint.clusters import worker

    worker.run_batches = worker.usual


def test_a_tile_that_fails_is_named_and_takes_others_along_only_if_asked_to(client, tmp_path):
    here = ensemble()
    client.run(failing, 2)
    try:
        with pytest.raises(ClusterError, match=r"batch 2 \(members 8 to 11\) failed\. ZeroDivisionError: by hand"):
            ensemble(on=client)
        with pytest.warns(RuntimeWarning, match=r"1 of 6 batches .*batch 2 \(members 8 to 11\): ZeroDivisionError"):
            there = ensemble(on=client, throw=False)
        assert np.isnan(there.mu[8:12]).all() and there.stats.unsolved == 4 * 400
        others = np.r_[0:8, 12:22]
        np.testing.assert_array_equal(there.mu[others], here.mu[others])
        path = tmp_path / "run.zarr"
        with pytest.warns(RuntimeWarning, match="1 of 6 batches"):
            ensemble(on=client, throw=False, out=path)
    finally:
        client.run(mended)
    result = ensemble(on=client, throw=False, out=path, resume=True)
    np.testing.assert_array_equal(result.mu, here.mu)


@pytest.mark.slow
def test_a_step_that_is_not_solved(client):
    """As on one machine: raised with all that was computed, or counted."""
    system = cj.System(cj.SO3(), lambda m: jnp.exp(20.0 * m[0]) + m[1] ** 2)
    hard, easy = [0.9, 0.4, 0.1], [0.0, 0.4, 0.1]
    mu0 = np.array([easy] * 5 + [hard] + [easy] * 4)
    run = {"members": 10, "t1": 4.0, "dt": 2.0, "integrator": cj.TMK(max_steps=2, fallbacks=False)}
    messages = []
    for on in (None, client):
        with pytest.raises(cj.UnsolvedStepError) as info:
            cj.ensemble(system, mu0, **run, on=on)
        messages.append(str(info.value))
    assert messages[0] == messages[1]
    here, there = (cj.ensemble(system, mu0, **run, throw=False, on=on) for on in (None, client))
    assert here.stats == there.stats and here.stats.unsolved
    np.testing.assert_array_equal(here.mu, there.mu)


@pytest.mark.slow
def test_workers_of_our_own_that_die_while_they_start(tmp_path, whole):
    """Dask gives them up; local: starts others."""
    import dask
    from distributed import Nanny

    path, seen = tmp_path / "run.zarr", set()

    def kill_each():
        """Every process, once when it runs and once when it starts again."""
        while len(seen) < 4:
            for nanny in list(Nanny._instances):
                if nanny.pid is not None and nanny.pid not in seen and path.exists():
                    seen.add(nanny.pid)
                    with suppress(ProcessLookupError):
                        os.kill(nanny.pid, signal.SIGKILL)
            time.sleep(0.02)

    threading.Thread(target=kill_each, daemon=True).start()
    with dask.config.set({"distributed.deploy.lost-worker-timeout": "3s"}):
        cj.ensemble(SYSTEM, MU0, **LONG, out=path, on="local:2")
    assert len(seen) == 4
    assert_same_store(path, whole)


@pytest.mark.slow
def test_a_worker_that_hangs(whole, tmp_path):
    """It stands still, with the lock of its batch in hand, until Dask ends it."""
    import dask

    with (
        dask.config.set({"distributed.scheduler.worker-ttl": "5s"}),
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50) as cluster,
        distributed.Client(cluster) as client,
    ):
        ensemble(on=client)  # all is compiled
        pids = list(client.run(os.getpid).values())
        threading.Timer(1.0, os.kill, (pids[0], signal.SIGSTOP)).start()
        cj.ensemble(SYSTEM, MU0, **LONG, out=tmp_path / "run.zarr", on=client)
    assert_same_store(tmp_path / "run.zarr", whole)


@pytest.mark.slow
def test_a_scheduler_that_goes_away(whole, tmp_path):
    """The call ends soon with an error, and the run can be resumed on another cluster."""
    import subprocess
    import sys

    path = tmp_path / "run.zarr"
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", "0", "--scheduler-file"]
    about = tmp_path / "scheduler.json"
    scheduler = subprocess.Popen([*command, str(about), "--no-dashboard"], stderr=subprocess.DEVNULL)
    worker = [sys.executable, "-m", "distributed.cli.dask_worker", "--scheduler-file", str(about)]
    workers = [subprocess.Popen([*worker, "--nthreads", "1"], stderr=subprocess.DEVNULL) for _ in range(2)]
    try:
        while not about.exists():
            time.sleep(0.1)
        with distributed.Client(scheduler_file=str(about)) as client:
            client.wait_for_workers(2, timeout=60)
            ensemble(on=client)
            threading.Timer(1.5, scheduler.kill).start()
            began = time.monotonic()
            with pytest.raises(
                ClusterError, match=r"the scheduler at tcp://.* is gone\. .*run\.zarr contains .* resume="
            ):
                cj.ensemble(SYSTEM, MU0, **LONG, out=path, on=client)
            assert time.monotonic() - began < 45
            early = in_time()
            with pytest.raises(ClusterError, match=r"on is a client that is |does not answer"):
                ensemble(on=client)
            assert early()
    finally:
        for process in (scheduler, *workers):
            process.kill()
            process.wait()
    cj.ensemble(SYSTEM, MU0, **LONG, out=path, on="local:2", resume=True)
    assert_same_store(path, whole)
