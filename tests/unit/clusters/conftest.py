"""A cluster of two processes, and batches of four members."""

import threading

import pytest
from tuned import tune


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    """Six batches, the last one half empty."""
    tune(monkeypatch, max_batch_size=4)


@pytest.fixture(scope="package")
def cluster(tmp_path_factory):
    """Two processes, spawned, which keep what XLA compiles for those that take their place."""
    cache = {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path_factory.mktemp("cache")),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    distributed = pytest.importorskip("distributed")
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
    distributed = pytest.importorskip("distributed")
    with distributed.Client(cluster) as client, Keeper(cluster):
        client.wait_for_workers(2, timeout=60)
        yield client


@pytest.fixture(scope="package")
def whole(tmp_path_factory):
    """The store of a long run on one machine."""
    from cluster_runs import LONG, ensemble

    path = tmp_path_factory.mktemp("whole") / "run.zarr"
    with pytest.MonkeyPatch.context() as patch:
        tune(patch, max_batch_size=4)
        ensemble(**LONG, out=path)
    return path
