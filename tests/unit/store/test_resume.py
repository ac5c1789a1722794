"""A resumed run is bitwise identical to one that was never stopped; a run that differs is named field by field."""

import json
import os
import shutil
import signal

import numpy as np
import pytest
from comparisons import same_bits
from store_runs import BETA, MU0, RUN, Cut, ensemble, solve, stop_after, system
from stores import assert_same_store, edit_header, files
from tuned import tune

import coadjoint as cj
from coadjoint.runtime import loop
from coadjoint.store import atomic_io, store_sink


@pytest.mark.parametrize("commits", [0, 1, 3, 6])
def test_no_bit_depends_on_being_cut_off(usual, busy, commits, tmp_path, monkeypatch):
    """Also the files are the same, byte by byte."""
    solve(tmp_path / "whole.zarr")
    with monkeypatch.context() as patch, pytest.raises(Cut):
        stop_after(commits, patch)
        solve(tmp_path / "cut.zarr")
    assert cj.open(tmp_path / "cut.zarr").sizes["time"] == (0 if commits == 0 else 1 + 32 * commits // 2)
    stored = solve(tmp_path / "cut.zarr", resume=True)
    same_bits(stored.mu, usual.mu)
    assert stored.stats.steps == 200
    assert_same_store(tmp_path / "cut.zarr", tmp_path / "whole.zarr")


def test_no_bit_of_an_ensemble_depends_on_being_cut_off(busy, members, tmp_path, monkeypatch):
    tune(monkeypatch, max_batch_size=4)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    for reduce in (None, cj.Mean()):
        name = f"{reduce is None}.zarr"
        whole = ensemble(tmp_path / f"whole{name}", reduce=reduce)
        for commits in (2, 9, 13):
            with monkeypatch.context() as patch, pytest.raises(Cut):
                stop_after(commits, patch)
                ensemble(tmp_path / name, reduce=reduce)
            stored = ensemble(tmp_path / name, reduce=reduce, resume=True)
            same_bits(stored.mu, whole.mu) if reduce is None else same_bits(stored.reduced, whole.reduced)
            assert_same_store(tmp_path / name, tmp_path / f"whole{name}")
            shutil.rmtree(tmp_path / name)


def test_a_run_is_extended(usual, busy, tmp_path):
    solve(tmp_path / "whole.zarr")
    solve(tmp_path / "run.zarr", t1=3.0)
    stored = solve(tmp_path / "run.zarr", resume=True)
    same_bits(stored.mu, usual.mu)
    same_bits(stored.open()["time"].values, usual.t)
    assert_same_store(tmp_path / "run.zarr", tmp_path / "whole.zarr")
    with pytest.raises(cj.StoreError, match=r"t1 must be at least 10, the t1 of .*: a run can only be extended"):
        solve(tmp_path / "run.zarr", t1=3.0, resume=True)


def test_a_given_path_is_extended(tmp_path):
    dS = np.random.default_rng(0).standard_normal((200, 2)) * 0.1
    given = {"key": None, "driver": cj.Increments(dS)}
    solve(tmp_path / "run.zarr", t1=5.0, key=None, driver=cj.Increments(dS[:100]))
    stored = solve(tmp_path / "run.zarr", resume=True, **given)
    same_bits(stored.mu, cj.solve(system(), MU0, **(RUN | given)).mu)
    dS[3] += 1
    with pytest.raises(cj.StoreError, match=r"driver\.dS"):
        solve(tmp_path / "run.zarr", resume=True, key=None, driver=cj.Increments(dS))


def test_an_extension_that_was_cut_off_is_finished(usual, busy, tmp_path, monkeypatch):
    """Arrays of different lengths cannot be read, but resumed."""
    solve(tmp_path / "run.zarr", t1=3.0)
    write = atomic_io.write
    left = [3]

    def some(path, data):
        if left[0] == 0:
            raise Cut
        left[0] -= 1
        write(path, data)

    with monkeypatch.context() as patch, pytest.raises(Cut):
        patch.setattr(atomic_io, "write", some)
        solve(tmp_path / "run.zarr", resume=True)
    with pytest.raises(cj.StoreError, match="damaged, or just being extended"):
        cj.open(tmp_path / "run.zarr")
    same_bits(solve(tmp_path / "run.zarr", resume=True).mu, usual.mu)


def test_a_finished_run_is_not_run_again(tmp_path, monkeypatch):
    solve(tmp_path / "run.zarr")
    before = files(tmp_path / "run.zarr")
    monkeypatch.setattr(loop, "chunks", lambda *_: iter(()))
    stored = solve(tmp_path / "run.zarr", resume=True)
    assert stored.mu.shape == (101, 3) and files(tmp_path / "run.zarr") == before


def test_leftovers_of_a_killed_writer_are_removed(tmp_path):
    solve(tmp_path / "run.zarr")
    (tmp_path / "run.zarr" / "mu" / "c.0.0.partial").write_bytes(b"half")
    solve(tmp_path / "run.zarr", resume=True)
    assert not list((tmp_path / "run.zarr").rglob("*.partial"))


# A difference is named field by field.

DIFFERENT = {
    "dt": ({"dt": 0.025}, r"dt: the store has 0\.05, this run has 0\.025"),
    "t0": ({"t0": -10.0}, r"t0: the store has 0\.0, this run has -10\.0"),
    "key": ({"key": 4}, r"driver\.key: the store has 3, this run has 4"),
    "save_every": ({"save_every": 4}, "save_every: the store has 2, this run has 4"),
    "integrator": ({"integrator": cj.TMK()}, r'integrator\.type: the store has "EulerMaruyamaMK", this run has "TMK"'),
    "option": ({"integrator": cj.EulerMaruyamaMK(drift_free=False)}, r"integrator\.drift_free: the store has true"),
    "group": ({"group": True}, "group: the store has false, this run has true"),
    "save": ({"save": lambda m: m[0]}, "save: the store has null, this run has one with fingerprint [0-9a-f]{8}"),
    "mu0": ({"mu0": MU0 + 1}, r"mu0: the store has \[0\.6, -0\.8, 0\.5\], this run has \[1\.6, "),
    "k": ({"which": system(k=0.4)}, r"system\.params\.k: the store has 0\.3, this run has 0\.4"),
    "beta": ({"which": system(beta=2 * BETA)}, r"system\.noise\[0\]\.beta: the store has \[\[0\.3"),
    "h": ({"which": system(linear=2.0)}, r"system\.hamiltonian: the store has one with fingerprint"),
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_a_difference_is_named(what, finished):
    changes, message = DIFFERENT[what]
    options = dict(changes)
    with pytest.raises(cj.StoreError, match=message) as error:
        solve(finished, options.pop("which", None), options.pop("mu0", MU0), resume=True, **options)
    assert "has another configuration" in str(error.value)
    assert str(error.value).count("the store has") == 1 or what == "integrator"  # whose fields are others too


def test_an_ensemble_is_no_trajectory(finished):
    with pytest.raises(cj.StoreError, match="members: the store has null, this run has 7"):
        ensemble(finished, resume=True)


def test_other_versions_are_warned_of_and_written_down(finished, tmp_path):
    path = tmp_path / "run.zarr"
    shutil.copytree(finished, path)
    edit_header(path, lambda header: header["versions"].update(jaxlib="0.9.0"))
    with pytest.warns(RuntimeWarning, match=r"versions\.jaxlib: the store has \"0\.9\.0\""):
        solve(path, resume=True)
    assert json.loads((path / "zarr.json").read_text())["attributes"]["coadjoint"]["history"][0]["versions"]
    solve(path, resume=True)  # once is enough


# Interrupting.


def test_ctrl_c_finishes_the_chunk_and_says_how_to_go_on(usual, busy, tmp_path, monkeypatch):
    path = tmp_path / "run.zarr"
    add = store_sink.StoreSink.add

    def press(self, at, record):
        add(self, at, record)
        if at == 33:
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt) as stopped:
        patch.setattr(store_sink.StoreSink, "add", press)
        solve(path)
    assert str(stopped.value) == (f'stopped at step 96 (t = 4.8); resume with: solve(..., out="{path}", resume=True)')
    assert signal.getsignal(signal.SIGINT) is before
    data = cj.open(path)
    assert data.sizes["time"] == 49 and int(data["steps"]) == 96
    same_bits(solve(path, resume=True).mu, usual.mu)


def test_a_kill_during_creation_leaves_nothing_in_the_way(tmp_path, usual):
    stale = tmp_path / "run.zarr.new" / "checkpoint"
    stale.mkdir(parents=True)
    (stale / "lock").write_text("")
    with pytest.raises(cj.StoreError, match="remains of a run that was stopped before its store was complete"):
        solve(tmp_path / "run.zarr", resume=True)
    same_bits(solve(tmp_path / "run.zarr").mu, usual.mu)
    assert [p.name for p in tmp_path.iterdir()] == ["run.zarr"]
