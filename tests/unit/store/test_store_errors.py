"""Errors of stores: missing and damaged files, full disks, other writers, states that are not finite."""

import errno
import os
import shutil

import jax
import numpy as np
import pytest
import xarray as xr
from comparisons import same_bits
from store_runs import MU0, Cut, solve, system
from stores import edit_header, files, write_manifest

import coadjoint as cj
from coadjoint.store import atomic_io, checkpoints, create, reading, store_sink


def test_a_store_that_exists_is_not_overwritten(finished):
    with pytest.raises(cj.StoreError, match=r"run\.zarr exists already: resume it \(resume=True, or "):
        solve(finished)


def test_resume_before_the_store_exists(tmp_path):
    with pytest.raises(cj.StoreError, match=r"run\.zarr does not exist: there is nothing to resume"):
        solve(tmp_path / "run.zarr", resume=True)
    with pytest.raises(cj.StoreError, match=r"run\.zarr does not exist\.$"):
        cj.open(tmp_path / "run.zarr")
    with pytest.raises(ValueError, match="resume=True needs a store: pass its name as out="):
        solve(None, resume=True)
    with pytest.raises(TypeError, match="out must be the name of a store such as"):
        solve(3)
    with pytest.raises(cj.StoreError, match=r"cannot be created: there is no folder .*nowhere"):
        solve(tmp_path / "nowhere" / "run.zarr")


def test_a_run_that_is_traced_is_not_stored(tmp_path):
    with pytest.raises(TypeError, match="out= stores numbers, but this run is being traced"):
        jax.grad(lambda k: solve(tmp_path / "run.zarr", system(k)).mu[-1, 0])(0.3)
    assert list(tmp_path.iterdir()) == []


def test_the_second_process_is_refused(busy, tmp_path, monkeypatch):
    """A lock is a matter of open files, not of processes, so one process can try."""
    path = tmp_path / "run.zarr"
    said = []

    def meanwhile(*args):
        with pytest.raises(cj.StoreError) as error:
            solve(path, resume=True)
        said.append(str(error.value))
        raise Cut

    with monkeypatch.context() as patch, pytest.raises(Cut):
        patch.setattr(store_sink.BatchSink, "_commit_files", meanwhile)
        solve(path)
    assert f"{path} is being written by process {os.getpid()} on" in said[0]
    solve(path, resume=True)


def test_a_full_disk(usual, busy, tmp_path, monkeypatch):
    path = tmp_path / "run.zarr"
    write = atomic_io.write
    room = [40]

    def small(target, data):
        room[0] -= 1
        if room[0] < 0:
            target.with_name(target.name + ".partial").write_bytes(bytes(data)[:7])
            target.with_name(target.name + ".partial").unlink()
            raise OSError(errno.ENOSPC, "No space left on device")
        write(target, data)

    with monkeypatch.context() as patch, pytest.raises(cj.StoreError) as error:
        patch.setattr(atomic_io, "write", small)
        solve(path)
    assert "run.zarr cannot be written: the disk is full. It contains the run up to step " in str(error.value)
    assert 'resume with: solve(..., out="' in str(error.value)
    reached = cj.open(path).sizes["time"]
    assert reached > 1
    same_bits(cj.open(path)["mu"].values, usual.mu[:reached])
    same_bits(solve(path, resume=True).mu, usual.mu)


def test_a_disk_that_is_full_from_the_start(tmp_path, monkeypatch):
    def full(root):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(create, "sync_tree", full)
    with pytest.raises(cj.StoreError, match=r"run\.zarr cannot be created: the disk is full"):
        solve(tmp_path / "run.zarr")
    assert list(tmp_path.iterdir()) == []


def test_a_read_only_folder(finished, tmp_path, monkeypatch):
    """Root may write anywhere, so the system's answer is given by hand."""
    locked = shutil.copytree(finished, tmp_path / "locked.zarr")
    mkdir, opened = os.mkdir, open

    def refuse(path, *args, **kwargs):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    def refuse_writing(file, mode="r", *args, **kwargs):
        return refuse(file) if set(mode) & set("wa+") else opened(file, mode, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(os, "mkdir", refuse)
        with pytest.raises(cj.StoreError, match=r"run\.zarr cannot be created: permission is denied \("):
            solve(tmp_path / "run.zarr")
    assert os.mkdir is mkdir and not (tmp_path / "run.zarr").exists()
    with monkeypatch.context() as patch:
        patch.setattr(atomic_io, "open", refuse_writing, raising=False)
        with pytest.raises(cj.StoreError, match=r"locked\.zarr cannot be written: permission is denied \("):
            solve(locked, resume=True)
        assert cj.open(locked).sizes["time"] == 101  # reading needs no permission to write


CUT = {
    "zarr.json": r"run\.zarr/zarr\.json is damaged: it was cut off",
    "mu/zarr.json": r"run\.zarr.* is (missing or )?damaged",
    "mu/c.0.0": r"run\.zarr/mu/c\.0\.0 is damaged: its checksum is wrong",
    "time/c.0": r"run\.zarr/time/c\.0 is damaged: its checksum is wrong",
    "checkpoint/part-000000.npz": r"run\.zarr/checkpoint/part-000000\.npz is damaged: it was cut off",
}


@pytest.mark.parametrize("length", [0, 0.5])
@pytest.mark.parametrize("name", CUT)
def test_a_file_that_was_cut_off(name, length, finished, tmp_path):
    path = shutil.copytree(finished, tmp_path / "run.zarr")
    data = (path / name).read_bytes()
    (path / name).write_bytes(data[: int(length * len(data))])
    with pytest.raises(cj.StoreError, match=CUT[name]):
        cj.open(path).load()
    if name != "time/c.0":  # not needed to resume
        before = files(path)
        with pytest.raises(cj.StoreError, match=CUT[name]):
            solve(path, t1=20.0, resume=True)
        assert (path / "checkpoint/part-000000.npz").read_bytes() == before["checkpoint/part-000000.npz"]


def test_a_flipped_bit_and_a_missing_chunk(finished, tmp_path):
    path = shutil.copytree(finished, tmp_path / "run.zarr")
    chunk_file = path / "energy" / "c.0"
    data = bytearray(chunk_file.read_bytes())
    data[len(data) // 2] ^= 1
    chunk_file.write_bytes(data)
    with pytest.raises(cj.StoreError, match=r"energy/c\.0 is damaged"):
        cj.open(path).load()
    chunk_file.unlink()
    with pytest.raises(cj.StoreError, match=r"energy/c\.0 is missing: it was there when the run was stored"):
        cj.open(path).load()


def test_a_store_of_a_newer_format(finished, tmp_path):
    path = shutil.copytree(finished, tmp_path / "run.zarr")
    edit_header(path, lambda header: header.update(format=2))
    for work in (lambda: cj.open(path), lambda: solve(path, resume=True)):
        with pytest.raises(cj.StoreError, match="has format 2, and this version of coadjoint reads format 1"):
            work()


def test_a_store_of_something_else(tmp_path):
    other, folder, file = tmp_path / "other.zarr", tmp_path / "folder", tmp_path / "file"
    xr.Dataset({"a": ("x", [1.0])}).to_zarr(other, consolidated=False)
    folder.mkdir()
    file.write_text("something")
    for path, message in [
        (other, r"other\.zarr is a Zarr folder of something else: coadjoint did not write"),
        (folder, "folder is not a store: .*zarr.json is missing"),
        (file, "file is not a store: .*zarr.json is missing"),
    ]:
        for work in (lambda p=path: cj.open(p), lambda p=path: solve(p, resume=True)):
            with pytest.raises(cj.StoreError, match=message):
                work()


def test_a_nan_in_the_state(busy, tmp_path):
    """A classical method that blows up: the step is not solved, and all that is stored is sound."""
    path = tmp_path / "run.zarr"
    bad = cj.System(cj.SO3(), lambda m: m[0] ** 4 + 2 * m[1] ** 4, cj.salt([0.0, 0.0, 1.0]))
    options = {"t1": 10.0, "dt": 0.05, "key": 3, "integrator": cj.Heun()}
    with pytest.raises(cj.UnsolvedStepError, match=r"first at step 123 .* contains the run up to step 96 \(t = 4\.8\)"):
        cj.solve(bad, MU0, out=path, **options)
    data = cj.open(path)
    assert data.sizes["time"] == 97 and int(data["unsolved"]) == 0
    assert np.all(np.isfinite(data["mu"].values))
    with pytest.raises(cj.UnsolvedStepError):
        cj.solve(bad, MU0, out=path, resume=True, **options)
    cj.solve(bad, MU0, out=path, resume=True, throw=False, **options)
    assert cj.open(path).sizes["time"] == 201 and int(cj.open(path)["first_unsolved"]) == 123


def test_nothing_is_unpickled(finished, tmp_path):
    """A checkpoint with pickled objects in it is damaged, no more."""
    path = shutil.copytree(finished, tmp_path / "run.zarr")
    with open(path / "checkpoint" / "part-000000.npz", "wb") as file:
        np.savez(file, header=np.array([print], object), leaf_0=np.array([print], object))
    with pytest.raises(cj.StoreError, match="is damaged"):
        solve(path, resume=True)


def test_a_checkpoint_of_another_integrator(finished, tmp_path):
    path = shutil.copytree(finished, tmp_path / "run.zarr")
    found = reading.contents(path)
    old = found.checkpoints[0]
    own = checkpoints.Checkpoints(found.manifest, found.header["plans"], 1)
    data = own.encode(0, old.step, old.rows, old.commit, old.backend, dict(list(old.leaves.items())[1:]))
    (path / "checkpoint" / "part-000000.npz").write_bytes(data)
    write_manifest(path)
    with pytest.raises(cj.StoreError, match="contains another state of the integrator than EulerMaruyamaMK has"):
        solve(path, resume=True)


def test_a_log_that_another_process_is_writing_is_ignored(finished, tmp_path):
    path = shutil.copytree(finished, tmp_path / "run.zarr")
    for name in ("manifest-000001.partial", "manifest-000000-2.partial"):
        (path / "checkpoint" / name).write_bytes(b'{"store": ')
    np.testing.assert_array_equal(cj.open(path)["mu"], cj.open(finished)["mu"])
