"""Fixtures of the tests of stores."""

import pytest
from tuned import tune

from coadjoint.store import store_sink


@pytest.fixture(scope="package")
def usual():
    """The run in memory."""
    from store_runs import solve

    return solve(None)


@pytest.fixture(scope="package")
def members():
    """The ensemble in memory."""
    from store_runs import ensemble

    return ensemble(None)


@pytest.fixture
def busy(monkeypatch):
    """A commit after every chunk of 32 steps, waited for, and 16 saved times in a file of the arrays."""
    commit = store_sink.StoreSink.commit
    monkeypatch.setattr(store_sink.StoreSink, "commit", lambda self: (commit(self), self._wait_for_commit()))
    tune(
        monkeypatch,
        checkpoint_seconds=0.0,
        checkpoint_share=0,
        first_chunk=32,
        largest_chunk=32,
        saved_times_per_file=16,
    )


@pytest.fixture(scope="package")
def finished(tmp_path_factory):
    """A complete store, which tests copy before they change it."""
    from store_runs import solve

    path = tmp_path_factory.mktemp("store") / "run.zarr"
    solve(path)
    return path
