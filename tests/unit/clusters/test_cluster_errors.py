"""Clusters that cannot take a run: an error within ten seconds names the scheduler or the worker."""

import os
import socket
import sys
import time

import numpy as np
import pytest
from cluster_runs import MU0, SYSTEM, ensemble, in_time
from stores import files
from tuned import tune

import coadjoint as cj
from coadjoint.runtime.executors import ClusterError

distributed = pytest.importorskip("distributed", reason="the extra [cluster] is not installed")

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


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

    early = in_time()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ClusterError, match=f"there is no Dask scheduler at {address}: "):
            ensemble(on=address, out=tmp_path / "run.zarr")
    assert early()
    tune(monkeypatch, cluster_reply_seconds=0.1)
    with monkeypatch.context() as patch:
        patch.setattr(client, "nthreads", lambda: time.sleep(5.0))
        with pytest.raises(ClusterError, match=r"the scheduler at tcp://.* does not answer: no answer within 0\.1 s"):
            ensemble(on=client, out=tmp_path / "run.zarr")
    tune(monkeypatch, cluster_reply_seconds=5.0)
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
    """The error of the second run names the process that holds the lock."""
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
