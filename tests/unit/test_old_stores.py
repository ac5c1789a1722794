"""Stores of version 0.1 (tests/data/stores-0.1) open, and go on as if they had never been interrupted."""

import functools
import json
import warnings
import zipfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import coadjoint as cj
from coadjoint.command import summary
from coadjoint.store import checkpoints, conditions, creating
from coadjoint.store.formats import state_now

DATA = Path(__file__).parents[1] / "data" / "stores-0.1"
TOP, MU0 = cj.models.heavy_top()
FLUID, W0 = cj.models.sine_euler(n=3, orientation="paper")
SWEEP = {
    "model": {"name": "rigid_body"},
    "run": {"t1": 0.4, "dt": 0.01, "key": 1, "save_every": 5},
    "sweep": {"run.dt": [0.01, 0.02]},
}


@functools.cache
def whole(name):
    """The run of today, to the end to which the old one goes on."""
    work, system, start, options, t1 = MADE[name]
    return work(system, start, **(options | {"t1": t1}))


class Fields:
    size = 2

    def apply(self, mu, dS):
        return 0.1 * jnp.stack([dS[0] * mu[1], dS[1], dS[0]])


BODY = cj.System(cj.SO3(), lambda m: 0.5 * m @ (m / jnp.array([1.0, 2.0, 3.0])), [lambda m: 0.1 * m[0] ** 2, Fields()])


def gamma(m):
    return {"gamma": m[3:]}


# How each was made, how far it goes on, and whether `resume` can make it.
MEMBERS = {"dt": 0.01, "key": 3, "save_every": 5}
MADE = {
    "solve": (cj.solve, TOP, MU0, {"t1": 1.0, "dt": 0.01, "key": 3}, 2.0),
    "ensemble": (cj.ensemble, TOP, MU0, {"members": 10, "t1": 0.5} | MEMBERS, 1.0),
    "statistics": (cj.ensemble, TOP, MU0, {"members": 1030, "t1": 0.2, "reduce": cj.Mean()} | MEMBERS, 0.4),
    "matrices": (cj.solve, FLUID, W0, {"t1": 0.2, "dt": 0.01, "key": 3}, 0.4),
    "hard": (cj.solve, TOP, MU0, {"t1": 16.0, "dt": 0.8, "key": 5, "throw": False}, 32.0),
    "noise": (cj.solve, BODY, [1.0, 0.2, 0.3], {"t1": 0.5, "dt": 0.01, "key": 3}, 1.0),
    "saved": (
        cj.solve, TOP, MU0, {"t1": 1.0, "dt": 0.01, "key": 3, "group": True, "save": gamma, "save_every": 10}, 2.0
    ),
}  # fmt: skip
# By which backend it was made; today all are native.
BACKEND = dict.fromkeys(MADE, "native") | {"matrices": "xla", "sweep": "native"}


def unpacked(name, folder):
    with zipfile.ZipFile(DATA / f"{name}.zip") as archive:
        archive.extractall(folder)
    return folder / f"{name}.zarr"


def header(path):
    return json.loads((path / "zarr.json").read_text())["attributes"]["coadjoint"]


def gone_on(work, path, backend):
    """The run, gone on with. On another JAX fingerprints are others, which is said; then the test is over."""
    other = header(path)["versions"]["jax"] != jax.__version__
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = work()
        except cj.StoreError as error:
            assert other and "Versions differ too, and fingerprints with them: " in str(error)
            pytest.skip("made by another JAX, whose fingerprints are others")
    said = " ".join(str(w.message) for w in caught)
    assert (": backend: " in said or "; backend: " in said) == (backend != BACKEND[path.stem])
    assert ("arithmetic: the store has 1" in said) == (conditions.arithmetic() != 1)
    return result


def same(found, expected, path):
    """To round-off; bit for bit where nothing has changed that bits depend on."""
    now = header(path)
    exact = not now["history"] and conditions.arithmetic() == 1
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)
        if exact:
            np.testing.assert_array_equal(a, b)


def values(run):
    return run.reduced if getattr(run, "reduced", None) is not None else (run.saved, run.g)


@pytest.mark.parametrize("name", MADE)
def test_an_old_store_opens(name, tmp_path):
    path = unpacked(name, tmp_path)
    data, expected = cj.open(path), whole(name).to_xarray()
    expected = expected.isel(time=slice(0, data.sizes["time"]))
    assert data.attrs["format"] == 1 and data.attrs["backend"] == BACKEND[name] and data.attrs["arithmetic"] == 1
    np.testing.assert_allclose(data["time"], expected["time"], rtol=1e-15)
    assert len(expected.data_vars) > 1
    for variable in expected.data_vars:
        np.testing.assert_allclose(data[variable], expected[variable], rtol=1e-9, atol=1e-11)
    steps = round(MADE[name][3]["t1"] / MADE[name][3]["dt"])
    assert np.all(data["steps"] == steps) and int(data["unsolved"].sum()) == 0
    assert np.all(data["iterations"] >= data["most_iterations"]) and np.all(data["first_unsolved"] == -1)
    assert f"backend   {BACKEND[name]}" in summary.words(summary.summary(path))
    assert summary.verify(path) > 5


# Of matrices the store knows the bits of a state that XLA has computed.
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.xla_as_it_is) if n == "matrices" else n for n in MADE]
)
def test_an_old_store_goes_on(name, tmp_path):
    work, system, start, options, t1 = MADE[name]
    path = unpacked(name, tmp_path)
    options = options | {"t1": t1}
    stored = gone_on(lambda: work(system, start, out=path, resume=True, **options), path, "native")
    same(values(stored), values(whole(name)), path)
    assert header(path)["format"] == 2 and header(path)["arithmetic"] == 1
    assert stored.stats.backend == whole(name).stats.backend == "native"
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # what has changed was said once
        work(system, start, out=path, resume=True, **options)
    assert summary.summary(path)["finished"]


def test_an_old_store_goes_on_from_its_name_alone(tmp_path):
    path = unpacked("solve", tmp_path)
    stored = gone_on(lambda: cj.resume(path, t1=2.0), path, "native")
    same(stored.mu, whole("solve").mu, path)


def test_an_old_sweep(tmp_path):
    path = unpacked("sweep", tmp_path)
    assert cj.open(path)["steps"].values.tolist() == [40, 20] and cj.open(path).attrs["backend"] == "native"
    gone_on(lambda: cj.resume(path, t1=0.8), path, "native")
    today = cj.run(SWEEP | {"run": SWEEP["run"] | {"t1": 0.8}}, tmp_path / "whole.zarr").open()
    data = cj.open(path)
    same((data["mu"].values, data["time"].values), (today["mu"].values, today["time"].values), path)
    assert data["steps"].values.tolist() == [80, 40]


def test_an_old_store_goes_on_by_another_backend_and_says_so(tmp_path):
    path = unpacked("solve", tmp_path)
    stored = gone_on(lambda: cj.resume(path, t1=2.0, backend="xla"), path, "xla")
    np.testing.assert_allclose(stored.mu, whole("solve").mu, rtol=1e-9, atol=1e-11)
    (note,) = header(path)["history"]
    assert note["steps"] == [100] and note["backends"][0]["backend"] == "xla"
    said = summary.words(summary.summary(path))
    assert "backend   xla" in said and "xla, from step 100 on" in said


def test_a_difference_in_an_old_store_is_named(tmp_path):
    path = unpacked("solve", tmp_path)
    with pytest.raises(cj.StoreError, match=r"driver\.key: the store has 3, this run has 4"):
        cj.solve(TOP, MU0, t1=2.0, dt=0.01, key=4, out=path, resume=True)
    with pytest.raises(cj.StoreError, match=r"integrator\.solve\.tol: the store has 1e-14, this run has 1e-12"):
        cj.solve(TOP, MU0, t1=2.0, dt=0.01, key=3, integrator=cj.TMK(tol=1e-12), out=path, resume=True)


def test_an_old_store_whose_arithmetic_was_another(tmp_path, monkeypatch):
    """When the arithmetic changes, a run goes on with a sentence on it, and a note of the step."""
    path = unpacked("solve", tmp_path)
    for module in (creating, checkpoints):
        monkeypatch.setattr(module, "arithmetic", lambda: 7)
    with pytest.warns(RuntimeWarning, match="arithmetic: the store has 1, this run has 7"):
        try:
            cj.resume(path, t1=2.0)
        except cj.StoreError:
            pytest.skip("made by another JAX, whose fingerprints are others")
    (note,) = header(path)["history"]
    assert note["arithmetic"] == 7 and note["steps"] == [100] and header(path)["arithmetic"] == 1


@pytest.mark.parametrize("noise_modes", [None, [(1, 0)]], ids=["past", "none"])
def test_large_matrices_go_on_without_the_memory_of_another_version(noise_modes, tmp_path):
    """Which version 0.1 had of the starting orbit, and later ones have, without noise, of earlier steps."""
    system, W = cj.models.sine_euler(n=9, noise_modes=noise_modes)
    run = {"dt": 0.02, "driver": cj.Brownian(1) if noise_modes else None, "integrator": cj.TMK(tau=cj.Cayley())}
    whole = cj.solve(system, W, t1=0.4, **run)
    out = tmp_path / "run.zarr"
    cj.solve(system, W, t1=0.2, out=out, **run)
    kept = checkpoints.Checkpoints(out)
    found = kept.read(0)
    assert found is not None
    leaves = {name: x for name, x in kept.whole(found).items() if not name.startswith(".carry")}
    leaves |= {".carry.anchor[0]": np.eye(9, dtype=complex), ".carry.anchor[1]": np.asarray(W)}  # U, W₀
    kept.save(0, found.step, found.rows, "xla", leaves)
    with pytest.warns(UserWarning, match="remembers of earlier steps is of another version of coadjoint"):
        done = cj.solve(system, W, t1=0.4, out=out, resume=True, **run).load()
    np.testing.assert_allclose(done.mu, whole.mu, rtol=0, atol=1e-12)
    leaves = {".mu": np.zeros(3), ".carry.anchor": np.zeros(1)}
    assert state_now(leaves, leaves | {".carry.anchor": np.zeros(2)}) is None  # of so(3) it is the Casimir
