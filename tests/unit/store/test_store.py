"""Stores: what is in them, that resuming changes no bit, and what is said when something is wrong."""

import errno
import json
import os
import shutil
import signal
import warnings

import jax
import numpy as np
import pytest
import xarray as xr
import zarr
from stores import assert_same_store, edit_header, files, write_manifest

import coadjoint as cj
from coadjoint.runtime import loop, plan
from coadjoint.store import atomic_io, checkpoints, create, reading, schema, store_sink

EM = cj.EulerMaruyamaMK()
BETA = np.array([[0.3, 0.2, 0.5], [0.0, 0.4, 0.1]])


def system(k=0.3, beta=BETA, inertia=(4.0, 2.0, 1.5), linear=1.0):
    return cj.System(
        cj.SO3(),
        lambda m, p: 0.5 * m @ (m / p["inertia"]) + linear * p["k"] * m[0],
        cj.salt(beta),
        params={"inertia": np.array(inertia), "k": k},
    )


MU0 = np.array([0.6, -0.8, 0.5])
RUN = {"t1": 10.0, "dt": 0.05, "key": 3, "integrator": EM, "save_every": 2}  # 200 steps, 101 saved times


def solve(out, which=None, mu0=MU0, **options):
    return cj.solve(which or system(), mu0, out=out, **(RUN | options))


def ensemble(out, which=None, **options):
    return cj.ensemble(which or system(), MU0, out=out, **({"members": 7} | RUN | options))


def same_bits(a, b):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y))


def close(a, b):
    """To round-off: XLA's bits depend on the shape of a batch."""
    np.testing.assert_allclose(a, b, rtol=1e-15, atol=1e-15)


@pytest.fixture(scope="module")
def usual():
    """The run in memory."""
    return cj.solve(system(), MU0, **RUN)


@pytest.fixture(scope="module")
def members():
    return cj.ensemble(system(), MU0, members=7, **RUN)


@pytest.fixture
def busy(monkeypatch):
    """A commit after every chunk of 32 steps, waited for, and 16 saved times in a file of the arrays."""
    commit = store_sink.StoreSink.commit
    monkeypatch.setattr(store_sink.StoreSink, "commit", lambda self: (commit(self), self._wait_for_commit()))
    monkeypatch.setattr(store_sink, "_SECONDS", 0.0)
    monkeypatch.setattr(store_sink, "_SHARE", 0)
    monkeypatch.setattr(loop, "_FIRST_CHUNK", 32)
    monkeypatch.setattr(loop, "_LARGEST_CHUNK", 32)
    monkeypatch.setattr(schema, "_LONGEST_FILE", 16)


class Cut(Exception):
    pass


def stop_after(commits, monkeypatch):
    """The process 'dies' after so many checkpoints, and before the next one."""
    left = [commits]
    save = store_sink.BatchSink._commit_files

    def counted(*args):
        if left[0] == 0:
            raise Cut
        left[0] -= 1
        save(*args)

    monkeypatch.setattr(store_sink.BatchSink, "_commit_files", counted)


# What is in a store.


def test_a_store_holds_the_run(usual, tmp_path):
    stored = solve(tmp_path / "run.zarr")
    same_bits(stored.mu, usual.mu)
    same_bits(stored.t, usual.t)
    data = cj.open(tmp_path / "run.zarr")
    assert data["mu"].dims == ("time", "component") and dict(data.sizes) == {"time": 101, "component": 3, "casimir": 1}
    same_bits(data["mu"].values, usual.mu)
    same_bits(data["time"].values, usual.t)
    close(data["casimirs"].values, usual.casimirs())
    close(data["energy"].values, usual.energy())
    errors = abs(data["casimirs"] - data["casimirs"].isel(time=0)) / data["casimir_scale"]
    close(errors.values, usual.casimir_errors())
    assert list(data["casimir"].values) == ["|μ|²"]
    assert int(data["steps"]) == 200 and int(data["unsolved"]) == 0 and int(data["first_unsolved"]) == -1
    assert all("units" in data[v].attrs and "long_name" in data[v].attrs for v in data.data_vars)
    assert data.attrs["configuration.dt"] == 0.05 and data.attrs["configuration.driver.key"] == 3
    assert data.attrs["configuration.integrator.type"] == "EulerMaruyamaMK"
    assert data.attrs["versions.jax"] == jax.__version__
    assert "200 steps" in repr(stored) and stored.stats.steps == 200


def test_a_store_is_read_by_xarray_and_zarr_alone(usual, tmp_path):
    solve(tmp_path / "run.zarr")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data = xr.open_zarr(tmp_path / "run.zarr", consolidated=False, chunks=None)
    same_bits(data["mu"].values, usual.mu)
    group = zarr.open_group(tmp_path / "run.zarr", mode="r")
    close(group["energy"][:], usual.energy())
    assert group.attrs["coadjoint"]["configuration"]["t1"] == 10.0
    assert [c["name"] for c in group["mu"].metadata.to_dict()["codecs"]][-1] == "crc32c"


def test_what_a_function_saves_and_the_group_element(tmp_path):
    def some(m):
        return {"square": m[0] ** 2, "rest": m[1:]}

    usual = cj.solve(system(), MU0, save=some, group=True, **RUN)
    stored = solve(tmp_path / "run.zarr", save=some, group=True)
    same_bits(stored.saved, usual.saved)
    same_bits(stored.g, usual.g)
    data = stored.open()
    assert {"saved_square", "saved_rest", "g", "energy", "casimirs"} <= set(data.data_vars) and "mu" not in data
    close(data["casimirs"], MU0 @ MU0)


@pytest.mark.parametrize("algebra", [cj.SO3() * cj.SO3(), cj.SO3() * cj.SE3()], ids=["alike", "unlike"])
def test_the_group_element_of_a_product(algebra, tmp_path):
    """One array where factors are alike, else one a factor."""
    which = cj.System(algebra, lambda m: 0.5 * m @ m + m[0] ** 2, cj.salt(0.1 * np.ones((1, algebra.dim))))
    start, options = np.linspace(0.5, 1.0, algebra.dim), {"group": True, "t1": 1.0}
    usual = cj.solve(which, start, **(RUN | options))
    stored = solve(tmp_path / "run.zarr", which, start, **options)
    same_bits(stored.g, usual.g)
    names = {name for name in stored.open().data_vars if name == "g" or name.startswith("g_")}
    assert names == ({"g"} if algebra.dim == 6 else {"g_0", "g_1"}) and names <= set(usual.to_xarray().data_vars)


def test_matrices(tmp_path):
    which, W0 = cj.models.sine_euler(n=3)
    options = {"t1": 1.0, "dt": 0.1, "key": 0, "integrator": EM}
    stored = cj.solve(which, W0, out=tmp_path / "run.zarr", **options)
    usual = cj.solve(which, W0, **options)
    same_bits(stored.open()["mu"].values, usual.mu)
    assert stored.open()["mu"].dims == ("time", "row", "column")
    close(stored.open()["casimirs"].values, usual.casimirs())


def test_an_ensemble(members, tmp_path, monkeypatch):
    stored = ensemble(tmp_path / "run.zarr")
    same_bits(stored.mu, members.mu)
    data = stored.open()
    assert data["mu"].dims == ("member", "time", "component")
    close(data["energy"], members.energy())
    close(data["casimirs"], members.casimirs())
    assert data["steps"].values.tolist() == [200] * 7
    assert stored.stats.steps == 200 and stored.members == 7


def test_names_are_the_same_in_memory_and_on_disk(tmp_path):
    def some(m):
        return {"square": m[0] ** 2, "rest": m[1:]}

    options = {"save": some, "group": True}
    usual, stored = cj.solve(system(), MU0, **(RUN | options)).to_xarray(), solve(tmp_path / "a.zarr", **options).open()
    for name in usual.data_vars:
        assert usual[name].dims == stored[name].dims and name in stored
    usual, stored = cj.ensemble(system(), MU0, members=7, **RUN).to_xarray(), ensemble(tmp_path / "b.zarr").open()
    assert all(usual[name].dims == stored[name].dims for name in usual.data_vars)


def test_the_point_of_a_checkpoint_is_that_of_its_step(busy, tmp_path):
    """Also where steps after it were tried, and one of them failed: native code writes over its points."""
    path = tmp_path / "run.zarr"
    bad = cj.System(cj.SO3(), lambda m: m[0] ** 4 + 2 * m[1] ** 4, cj.salt([0.0, 0.0, 1.0]))
    options = {"dt": 0.05, "key": 3, "integrator": cj.Heun()}
    with pytest.raises(cj.UnsolvedStepError):
        cj.solve(bad, MU0, t1=10.0, out=path, **options)
    found = reading.contents(path).checkpoints[0]
    assert found.step == 96
    same_bits(found.leaves[".mu"], cj.solve(bad, MU0, t1=4.8, **options).mu[-1])


# Resuming.


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
    monkeypatch.setattr(plan, "MAX_BATCH_SIZE", 4)
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


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    path = tmp_path_factory.mktemp("store") / "run.zarr"
    solve(path)
    return path


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


# What can go wrong.


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
    if name != "time/c.0":  # not needed to go on
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
    """A direct method that blows up: the step is not solved, and all that is stored is sound."""
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


def test_few_files(tmp_path, monkeypatch):
    """Small accumulators are kept in checkpoints, totals of many batches in one file, checkpoints packed at the end."""
    monkeypatch.setattr(plan, "MAX_BATCH_SIZE", 4)
    run = {"members": 4 * 40, "reduce": cj.Mean(), "save_every": 10, "integrator": cj.HeunMK(), "dt": 0.1, "key": 0}
    path, whole = tmp_path / "run.zarr", tmp_path / "whole.zarr"
    cj.ensemble(system(), MU0, t1=2.0, out=path, **run)
    names = sorted(p.name for p in (path / "checkpoint").iterdir())
    assert names == ["all.zip", "lock", "manifest", "zarr.json"]
    assert len([p for p in path.rglob("*") if p.is_file()]) < 40  # there were more than 400
    half = cj.open(path)
    assert half.sizes["member"] == 160 and (half["steps"] == 20).all() and "partial_0" not in half
    # Going on from what was packed, cut off half-way, is as good as one run.
    with monkeypatch.context() as patch, pytest.raises(Cut):
        stop_after(9, patch)
        cj.ensemble(system(), MU0, t1=4.0, out=path, resume=True, **run)
    assert set(np.unique(cj.open(path)["steps"])) == {20, 40}
    assert set(np.unique(zarr.open_group(path)["steps"])) <= {20, 40}
    stored = cj.ensemble(system(), MU0, t1=4.0, out=path, resume=True, **run)
    once = cj.ensemble(system(), MU0, t1=4.0, out=whole, **run)
    same_bits(stored.reduced, once.reduced)
    assert_same_store(path, whole)
    same_bits(stored.reduced, cj.ensemble(system(), MU0, t1=4.0, **run).reduced)
    # A part that is left beside the pack is the newer one; a damaged pack is named.
    pack = path / "checkpoint" / "all.zip"
    pack.write_bytes(pack.read_bytes()[:-30])
    with pytest.raises(cj.StoreError, match=r"checkpoint/all\.zip is not the file that the run wrote: it is damaged"):
        cj.open(path)


def test_large_accumulators_have_files_of_their_own(tmp_path, monkeypatch):
    """As in stores made before, which go on as they were made."""
    monkeypatch.setattr(plan, "MAX_BATCH_SIZE", 4)
    run = {"members": 8, "reduce": cj.Mean(), "save_every": 10, "integrator": cj.HeunMK(), "dt": 0.1, "key": 0}
    with monkeypatch.context() as patch:
        patch.setattr(schema, "_KEPT_BYTES", 0)
        cj.ensemble(system(), MU0, t1=2.0, out=tmp_path / "run.zarr", **run)
    assert (tmp_path / "run.zarr" / "partial_0").is_dir()
    stored = cj.ensemble(system(), MU0, t1=4.0, out=tmp_path / "run.zarr", resume=True, **run)
    same_bits(stored.reduced, cj.ensemble(system(), MU0, t1=4.0, **run).reduced)
