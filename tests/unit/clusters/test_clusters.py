"""Tiles on a Dask cluster: bit for bit what one machine computes, whatever happens to workers on the way."""

import os
import random
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import feature_table
import jax.numpy as jnp
import numpy as np
import pytest
from stores import assert_same_store, files

import coadjoint as cj
from coadjoint.runtime import plan
from coadjoint.runtime.executors import ClusterError

distributed = pytest.importorskip("distributed", reason="the extra [cluster] is not installed")

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")

SYSTEM = cj.System(
    cj.SO3(), lambda m, p: 0.5 * m @ (m / p), cj.salt([[0.3, 0.2, 0.5]]), params=np.array([4.0, 2.0, 1.0])
)
MU0 = np.array([0.6, -0.8, 0.5])
RUN = {"members": 22, "t1": 20.0, "dt": 0.05, "key": 3, "save_every": 8, "integrator": cj.EulerMaruyamaMK()}
LONG = RUN | {"t1": 60000.0, "save_every": 6000}  # seconds of work
MEMBERS = {"params": np.linspace(1.0, 4.0, 66).reshape(22, 3), "mu0": MU0 + np.linspace(0, 0.1, 22)[:, None]}


@pytest.fixture(scope="module", autouse=True)
def small_tiles():
    """Six batches, the last one half empty."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "MAX_BATCH_SIZE", 4)
        yield


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Two processes, spawned, which keep what XLA compiles for those that take their place."""
    cache = {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path_factory.mktemp("cache")),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=":0", env=cache, silence_logs=50
    ) as cluster:
        yield cluster


class Keeper(threading.Thread):
    """Starts workers that Dask has given up, because they died while they started: as a queue does, or a cloud."""

    def __init__(self, cluster):
        super().__init__(daemon=True)
        self.cluster, self.over = cluster, threading.Event()

    def run(self):
        while not self.over.wait(1.0):
            self.cluster.scale(2)

    def __enter__(self):
        self.start()

    def __exit__(self, *exc):
        self.over.set()
        self.join()


@pytest.fixture
def client(cluster):
    with distributed.Client(cluster) as client, Keeper(cluster):
        client.wait_for_workers(2, timeout=60)
        yield client


def ensemble(mu0=MU0, **options):
    return cj.ensemble(SYSTEM, mu0, **(RUN | options))


# The same bits.


SAVE = {"save": lambda m: {"first": m[0], "square": m @ m}, "group": True}


@pytest.mark.parametrize("own", [{}, MEMBERS, pytest.param(SAVE, marks=pytest.mark.slow)])
def test_members_come_back(client, own):
    here, there = ensemble(**own), ensemble(**own, on=client)
    for a, b in zip(*(map(np.asarray, _leaves(x.saved, x.g)) for x in (here, there)), strict=True):
        np.testing.assert_array_equal(a, b)
    assert here.stats == there.stats


def _leaves(*trees):
    import jax

    return jax.tree.leaves(trees)


def test_statistics(client):
    """Along time too, at given times, with a function of the time."""
    both = {"spread": cj.Covariance(), "average": cj.TimeAverage()}
    given = {"save_every": 1, "save_at": [0.0, 0.1, 0.4, 2.0], "save": lambda m, t: m * t, "reduce": both}
    here, there = (ensemble(**given, **own) for own in ({}, {"on": client}))
    for a, b in zip(_leaves(here.reduced), _leaves(there.reduced), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("own", [MEMBERS, {"reduce": cj.RunningMax()}], ids=["members", "statistics"])
def test_stores(client, tmp_path, own):
    ensemble(**own, out=tmp_path / "here.zarr")
    result = ensemble(**own, out=tmp_path / "there.zarr", on=client)
    assert_same_store(tmp_path / "here.zarr", tmp_path / "there.zarr")
    assert result.stats.unsolved == 0
    # to a later end, from either
    ensemble(**own, out=tmp_path / "here.zarr", resume=True, t1=24.0)
    ensemble(**own, out=tmp_path / "there.zarr", resume=True, t1=24.0, on=client)
    assert_same_store(tmp_path / "here.zarr", tmp_path / "there.zarr")


SWEEP = {
    "model": {"name": "rigid_body"},
    "run": {"t1": 2.0, "dt": 0.05, "key": 1, "members": 6, "integrator": "EulerMaruyamaMK"},
    "sweep": {"run.key": [1, 2, 3]},
}


def test_sweeps(client, tmp_path):
    cj.run(SWEEP, tmp_path / "here.zarr")
    cj.run(SWEEP, tmp_path / "there.zarr", on=client)
    assert_same_store(tmp_path / "here.zarr", tmp_path / "there.zarr")


def test_what_goes_to_a_worker_and_back_does_not_grow_with_members(client):
    """Parcels have nothing of members; with a store, nothing of them comes back."""
    from coadjoint.clusters import serialization
    from coadjoint.runtime.backends import prepare_program
    from coadjoint.runtime.planning import plan_ensemble
    from coadjoint.runtime.sinks import Memory

    sizes = []
    for members in (22, 2200):
        mu0 = np.tile(MU0, (members, 1))
        options = {**RUN, "members": members, "t0": 0.0, "driver": None, "params": None, "reduce": None, "save": None}
        made = plan_ensemble(SYSTEM, mu0, **options, group=False, throw=True, backend="auto", stored=False)
        output = Memory(made).distribution()
        sizes.append(len(serialization.pack(made, prepare_program(made), output, serialization.environment()).data))
    assert sizes[0] == pytest.approx(sizes[1], abs=16)


# Faults.


class Killer(threading.Thread):
    """Kills workers at random moments while a run goes on."""

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


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "run.zarr"
    cj.ensemble(SYSTEM, MU0, **LONG, out=path)
    return path


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
    """The store is at rest when the call returns, and another call goes on with it."""
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


# Progress.


def test_one_bar_over_all_workers(client, capsys):
    ensemble(on=client, progress=True)
    said = capsys.readouterr().err
    assert "coadjoint: 2 workers; dashboard at http://" in said
    assert "solving: 8800/8800 steps, " in said and " members/s" in said


# What cannot be.


def in_time(seconds=10.0):
    """Whatever happens is said within ten seconds."""
    began = time.monotonic()
    return lambda: time.monotonic() - began < seconds


def test_bad_arguments(client, tmp_path):
    early = in_time()
    with pytest.raises(ClusterError, match=r"there is no Dask scheduler at tcp://127\.0\.0\.1:9: .*Connection refused"):
        ensemble(on="tcp://127.0.0.1:9", out=tmp_path / "run.zarr")
    with pytest.raises(TypeError, match=r"on must be a distributed\.Client, .* not 3\."):
        ensemble(on=3)
    for local in ("local:many", "local", "LOCAL:2", "local:0"):
        with pytest.raises(ValueError, match="on must have a number of processes after 'local:'"):
            ensemble(on=local)
    with pytest.raises(TypeError, match=r"on must be a distributed\.Client, .* not ''\."):
        ensemble(on="")
    with pytest.raises(ClusterError, match=r"there is no Dask scheduler at hello: .*missing port number"):
        ensemble(on="hello")
    closed = distributed.Client(client.cluster)
    closed.close()
    with pytest.raises(ClusterError, match="on is a client that is closed"):
        ensemble(on=closed, out=tmp_path / "run.zarr")
    assert early() and not list(tmp_path.iterdir())


def test_somebody_who_does_not_answer(client, tmp_path, monkeypatch):
    """A server that is no scheduler, a scheduler that is gone and of which Dask still hopes, workers that die."""
    from coadjoint.clusters import connect

    early = in_time()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ClusterError, match=f"there is no Dask scheduler at {address}: "):
            ensemble(on=address, out=tmp_path / "run.zarr")
    assert early()
    monkeypatch.setattr(connect, "_REPLY", 0.1)
    with monkeypatch.context() as patch:
        patch.setattr(client, "nthreads", lambda: time.sleep(5.0))
        with pytest.raises(ClusterError, match=r"the scheduler at tcp://.* does not answer: no answer within 0\.1 s"):
            ensemble(on=client, out=tmp_path / "run.zarr")
    monkeypatch.setattr(connect, "_REPLY", 5.0)
    with monkeypatch.context() as patch:
        patch.setattr(client, "run", lambda *_, **__: dict.fromkeys(client.nthreads(), OSError("gone")))
        with pytest.raises(ClusterError, match=r"the workers of tcp://.* die when coadjoint contacts them"):
            ensemble(on=client, out=tmp_path / "run.zarr")
    assert not list(tmp_path.iterdir())


def test_a_worker_with_another_python_is_sent_no_code(client, tmp_path, monkeypatch):
    """It would crash on it; the versions are Dask's own message."""
    about = client.get_versions()
    worker = next(iter(client.nthreads()))
    about["workers"][worker]["host"]["python"] = "3.99.1.final.0"
    monkeypatch.setattr(client, "get_versions", lambda: about)
    monkeypatch.setattr(client, "run", None)
    with pytest.raises(ClusterError, match=rf"worker {worker}: python is 3\.99, not 3\."):
        ensemble(on=client, out=tmp_path / "run.zarr")
    assert not list(tmp_path.iterdir())


def test_a_store_that_workers_do_not_see(client, tmp_path, monkeypatch):
    """A folder that has this name in this process only."""
    monkeypatch.chdir(tmp_path)
    early = in_time()
    with pytest.raises(ClusterError, match=r"worker tcp://.* does not see the folder /proc/self/cwd\. A store must"):
        ensemble(on=client, out="/proc/self/cwd/run.zarr")
    assert early() and not list(tmp_path.iterdir())


def hidden(name, value):
    """On a worker: something is other than it was."""
    import importlib
    import sys

    if value is None:
        sys.modules["coadjoint.clusters.serialization"] = None
        return
    module, _, attribute = name.rpartition(".")
    setattr(importlib.import_module(module), attribute, value)


def shown(name, value):
    import sys

    if value is None:
        del sys.modules["coadjoint.clusters.serialization"]
        return
    hidden(name, value)


@pytest.mark.parametrize(
    "name, usual, other, words",
    [
        ("stepcompiler.NUMERICS_VERSION", None, 99, "the numerics version is 99, not "),
        ("jax.__version__", None, None, r"coadjoint cannot be imported there \(import of coadjoint"),
    ],
    ids=["other numerics version", "no coadjoint"],
)
def test_a_worker_that_differs_is_refused_by_name(client, tmp_path, name, usual, other, words):
    import stepcompiler

    worker = next(iter(client.nthreads()))
    client.run(hidden, name, other, workers=[worker])
    early = in_time()
    try:
        with pytest.raises(ClusterError, match=rf"worker {worker}: {words}"):
            ensemble(on=client, out=tmp_path / "run.zarr")
    finally:
        client.run(shown, name, stepcompiler.NUMERICS_VERSION if other else None, workers=[worker])
    assert early() and not list(tmp_path.iterdir())


def test_a_module_of_ones_own_that_differs(client, tmp_path, monkeypatch):
    """Its classes go by name, so a worker must have the same code of them."""
    code = "import coadjoint as cj\nclass Mine(cj.EulerMaruyamaMK):\n    pass\n"
    for folder, more in (("here", ""), ("there", "# other\n")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a_module_of_ones_own.py").write_text(code + more)
    monkeypatch.syspath_prepend(tmp_path / "here")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    import a_module_of_ones_own as own  # type: ignore[import-not-found]

    def path_on_worker(change, folder):
        import sys

        getattr(sys.path, change)(folder)
        sys.modules.pop("a_module_of_ones_own", None)

    worker, out = next(iter(client.nthreads())), tmp_path / "run.zarr"
    with pytest.raises(ClusterError, match=r"worker tcp://.*: module a_module_of_ones_own is missing"):
        ensemble(integrator=own.Mine(), on=client, out=out)
    try:
        client.run(path_on_worker, "append", str(tmp_path / "here"))
        client.run(path_on_worker, "remove", str(tmp_path / "here"), workers=[worker])
        client.run(path_on_worker, "append", str(tmp_path / "there"), workers=[worker])
        with pytest.raises(ClusterError, match=rf"worker {worker}: module a_module_of_ones_own has other code"):
            ensemble(integrator=own.Mine(), on=client, out=out)
    finally:
        client.run(path_on_worker, "remove", str(tmp_path / "there"), workers=[worker])
        client.run(path_on_worker, "remove", str(tmp_path / "here"), workers=list(client.nthreads())[1:])
    assert not out.exists()


def test_two_clients_on_one_store(client, tmp_path):
    """The second is told who has it."""
    from coadjoint.store.locks import store_lock

    path = tmp_path / "run.zarr"
    ensemble(out=path)
    lock = store_lock(path)
    lock.acquire()
    before = files(path)
    with pytest.raises(
        cj.StoreError, match=rf"run\.zarr is being written by process {os.getpid()} on .*: let it finish"
    ):
        ensemble(out=path, resume=True, t1=24.0, on=client)
    lock.release()
    assert files(path) == before


def test_a_worker_that_comes_later_and_differs_receives_no_tasks(client, capsys):
    """Asked when all is well, and then one of them changes."""
    from coadjoint.clusters import connect

    worker = next(iter(client.nthreads()))
    greet = connect.Cluster._greet

    def greet_and_change(self, out):
        greet(self, out)
        client.run(hidden, "stepcompiler.NUMERICS_VERSION", 99, workers=[worker])

    import stepcompiler

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connect.Cluster, "_greet", greet_and_change)
        there = ensemble(on=client)
    client.run(shown, "stepcompiler.NUMERICS_VERSION", stepcompiler.NUMERICS_VERSION, workers=[worker])
    np.testing.assert_array_equal(there.mu, ensemble().mu)
    said = capsys.readouterr().err
    assert f"worker {worker} receives no tasks: the numerics version is 99" in said


def test_the_command(client, tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from coadjoint.command.cli import app

    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.toml").write_text(
        '[model]\nname = "rigid_body"\n[run]\nt1 = 2.0\ndt = 0.05\nkey = 1\nmembers = 6\nintegrator = "EulerMaruyamaMK"'
    )
    address = client.scheduler.address
    for where, out in (([], "here.zarr"), (["--on", address], "there.zarr")):
        done = CliRunner().invoke(app, ["run", "run.toml", "--out", out, *where])
        assert done.exit_code == 0, done.output
    assert_same_store(tmp_path / "here.zarr", tmp_path / "there.zarr")
    done = CliRunner().invoke(app, ["run", "run.toml", "--out", "other.zarr", "--on", "local:none"])
    assert done.exit_code == 2 and "on must have a number of processes" in done.output


# On one machine.


def test_a_store_that_a_cluster_still_writes_is_left_alone(tmp_path):
    """A worker that was cut off has the lock of its batch: other runs raise an error; temporary files go."""
    from coadjoint.store.locks import batch_lock

    path = tmp_path / "run.zarr"
    ensemble(out=path)
    lock = batch_lock(path, 3)
    lock.acquire()
    with pytest.raises(cj.StoreError, match=rf"run\.zarr is being written by process {os.getpid()} on "):
        ensemble(out=path, resume=True)
    lock.release()  # as when the process dies
    assert lock.path.exists()
    ensemble(out=path, resume=True)
    assert not lock.path.exists()


def test_file_systems_whose_locks_do_not_hold(tmp_path, monkeypatch):
    from coadjoint.store import locks

    def words(kind, options):
        line = f"server:/x {tmp_path} {kind} {options} 0 0\n"
        monkeypatch.setattr(locks.Path, "read_text", lambda self, **_: "disk / ext4 rw 0 0\n" + line)
        return locks.lock_warning(tmp_path / "run.zarr")

    assert words("nfs4", "rw,local_lock=none") == words("lustre", "rw,flock") == words("ext4", "rw") == ""
    assert "mounted with nolock, so that locks hold on one machine only" in words("nfs", "rw,nolock")
    assert "mounted with localflock" in words("lustre", "rw,localflock")
    assert "without flock, so that there are no locks on it" in words("lustre", "rw")


@pytest.mark.filterwarnings("ignore:Port 8787 is already in use")  # of another dashboard on this machine
def test_the_job_script_of_the_page():
    """What docs/guides/dask.md submits to Slurm, without a queue."""
    pytest.importorskip("dask_jobqueue")
    page = (Path(__file__).parents[3] / "docs" / "guides" / "dask.md").read_text(encoding="utf-8")
    (block,) = (b.partition("```")[0] for b in page.split("```python\n")[1:] if "job_script" in b)
    names: dict = {}
    exec(block.replace("print(cluster.job_script())", "script = cluster.job_script()"), names)
    names["cluster"].close()
    script = names["script"]
    for line in (
        "#SBATCH -p cpu",
        "#SBATCH -t 12:00:00",
        "#SBATCH --constraint=zen4",
        "--nthreads 1",
        "--lifetime 11h50m",
    ):
        assert line in script
    assert "dask_worker tcp://" in script and "--nanny" in script


def test_a_worker_without_a_gpu_is_refused(monkeypatch):
    """The plan fixes the arithmetic, and where it is computed: a run that began on GPUs stays there."""
    from coadjoint.clusters.serialization import environment, pack
    from coadjoint.clusters.worker import WorkerRejected, _opened
    from coadjoint.runtime.backends import prepare_program
    from coadjoint.runtime.planning import plan_ensemble
    from coadjoint.runtime.sinks import Memory

    about: dict = {
        "t0": 0.0,
        "driver": None,
        "integrator": cj.TMK(),
        "save_every": 1,
        "backend": "native",
        "reduce": None,
    }
    about |= {"stored": False, "save": None, "group": False, "throw": True, "params": None}
    plan = plan_ensemble(SYSTEM, MU0, members=4, t1=0.1, dt=0.1, key=0, **about)
    program = prepare_program(plan)
    monkeypatch.setattr(type(program), "backend", "native-gpu")
    package = pack(plan, program, Memory(plan).distribution(), environment() | {"same machine": False})
    with pytest.raises(WorkerRejected, match="backend='native-gpu' cannot take this run"):
        _opened(package, "tcp://10.0.0.1:1")


def test_a_derivative_of_ones_own(tmp_path):
    """Its function goes by value, and the worker traces it anew."""
    import pickle
    import subprocess
    import sys

    from coadjoint.clusters.serialization import serialize

    namespace: dict = {}
    code = "import jax\nf = jax.custom_jvp(lambda x: x * x)\nf.defjvp(lambda p, t: (f(*p), 3 * p[0] * t[0]))\n"
    exec(code, namespace)
    f = namespace["f"]
    system = cj.System(cj.SO3(), [lambda m: f(m[0]), lambda m: m @ m], [lambda m: f(m[1])])
    with pytest.raises(TypeError, match="custom_jvp_call"):
        pickle.dumps(system)
    path = tmp_path / "system"
    path.write_bytes(serialize(system)[0])
    there = f"""
import pickle, jax.numpy as jnp
system = pickle.load(open({str(path)!r}, "rb"))
m = jnp.array([1.0, 2.0, 3.0])
print(system.energy(m), system.drift(m))
"""
    done = subprocess.run([sys.executable, "-c", there], capture_output=True, text=True, check=True)
    assert done.stdout == "15.0 [5. 4. 6.]\n"  # with the wrong derivative that was given


# Other clusters, which take longer.


@pytest.mark.slow
@pytest.mark.parametrize("case", [c for c in feature_table.FAST if c["run"] != "solve"], ids=feature_table.name)
def test_combinations(client, case, tmp_path, monkeypatch):
    """The table of features, on a cluster: the same bits."""
    if case["run"] == "ensemble, many batches":
        monkeypatch.setattr(plan, "MAX_BATCH_SIZE", 2)
    runs = [
        feature_table.run(case, on, feature_table.STEPS, None if case["sink"] == "memory" else tmp_path / f"{k}.zarr")
        for k, on in enumerate(({"backend": "auto"}, {"backend": "auto", "on": client}))
    ]
    feature_table.same(*(feature_table.results(case, done) for done in runs))
    assert runs[0].stats.backend == runs[1].stats.backend


@pytest.mark.slow
@pytest.mark.parametrize("processes", [True, False])
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_any_cluster(workers, processes, tmp_path):
    """Ensemble with members, with statistics, and a sweep: the stores of one machine."""
    runs = {
        "members": lambda out, **on: ensemble(**MEMBERS, out=out, **on),
        "statistics": lambda out, **on: ensemble(reduce=cj.Covariance(), out=out, **on),
        "sweep": lambda out, **on: cj.run(SWEEP, out, **on),
    }
    with distributed.LocalCluster(
        n_workers=workers, threads_per_worker=2, processes=processes, dashboard_address=":0", silence_logs=50
    ) as cluster:
        for name, run in runs.items():
            run(tmp_path / f"{name}-here.zarr")
            run(tmp_path / f"{name}-there.zarr", on=cluster)
            assert_same_store(tmp_path / f"{name}-here.zarr", tmp_path / f"{name}-there.zarr")


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
    """The call ends soon with a sentence, and another cluster goes on."""
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
