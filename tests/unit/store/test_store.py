"""What a store contains, and that Xarray and Zarr alone read it."""

import warnings

import jax
import numpy as np
import pytest
import xarray as xr
import zarr
from comparisons import close_to_round_off, same_bits
from store_runs import EM, MU0, RUN, Cut, ensemble, solve, stop_after, system
from stores import assert_same_store
from tuned import tune

import coadjoint as cj
from coadjoint.store import reading, schema


def test_a_store_holds_the_run(usual, tmp_path):
    stored = solve(tmp_path / "run.zarr")
    same_bits(stored.mu, usual.mu)
    same_bits(stored.t, usual.t)
    data = cj.open(tmp_path / "run.zarr")
    assert data["mu"].dims == ("time", "component") and dict(data.sizes) == {"time": 101, "component": 3, "casimir": 1}
    same_bits(data["mu"].values, usual.mu)
    same_bits(data["time"].values, usual.t)
    close_to_round_off(data["casimirs"].values, usual.casimirs())
    close_to_round_off(data["energy"].values, usual.energy())
    errors = abs(data["casimirs"] - data["casimirs"].isel(time=0)) / data["casimir_scale"]
    close_to_round_off(errors.values, usual.casimir_errors())
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
    close_to_round_off(group["energy"][:], usual.energy())
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
    close_to_round_off(data["casimirs"], MU0 @ MU0)


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
    close_to_round_off(stored.open()["casimirs"].values, usual.casimirs())


def test_an_ensemble(members, tmp_path, monkeypatch):
    stored = ensemble(tmp_path / "run.zarr")
    same_bits(stored.mu, members.mu)
    data = stored.open()
    assert data["mu"].dims == ("member", "time", "component")
    close_to_round_off(data["energy"], members.energy())
    close_to_round_off(data["casimirs"], members.casimirs())
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


def test_few_files(tmp_path, monkeypatch):
    """Small accumulators are kept in checkpoints, totals of many batches in one file, checkpoints packed at the end."""
    tune(monkeypatch, max_batch_size=4)
    run = {"members": 4 * 40, "reduce": cj.Mean(), "save_every": 10, "integrator": cj.HeunMK(), "dt": 0.1, "key": 0}
    path, whole = tmp_path / "run.zarr", tmp_path / "whole.zarr"
    cj.ensemble(system(), MU0, t1=2.0, out=path, **run)
    names = sorted(p.name for p in (path / "checkpoint").iterdir())
    assert names == ["all.zip", "lock", "manifest", "zarr.json"]
    assert len([p for p in path.rglob("*") if p.is_file()]) < 40  # there were more than 400
    half = cj.open(path)
    assert half.sizes["member"] == 160 and (half["steps"] == 20).all() and "partial_0" not in half
    # A run resumed from packed checkpoints, and killed half-way, equals one run.
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
    tune(monkeypatch, max_batch_size=4)
    run = {"members": 8, "reduce": cj.Mean(), "save_every": 10, "integrator": cj.HeunMK(), "dt": 0.1, "key": 0}
    with monkeypatch.context() as patch:
        patch.setattr(schema, "_KEPT_BYTES", 0)
        cj.ensemble(system(), MU0, t1=2.0, out=tmp_path / "run.zarr", **run)
    assert (tmp_path / "run.zarr" / "partial_0").is_dir()
    stored = cj.ensemble(system(), MU0, t1=4.0, out=tmp_path / "run.zarr", resume=True, **run)
    same_bits(stored.reduced, cj.ensemble(system(), MU0, t1=4.0, **run).reduced)
