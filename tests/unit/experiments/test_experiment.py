"""Experiments as files: what they run, from a file and from Python."""

import inspect
import json
import re
import sys
import tomllib
import warnings
from pathlib import Path

import numpy as np
import pytest
from experiment_files import EM, TEXT, call, expected, tables

import coadjoint as cj
from coadjoint.command import model_text
from coadjoint.experiments import experiment, schema
from coadjoint.models.origin import origin
from coadjoint.report import figures

# Running.


def test_run_info_resume_and_plot(here):
    said = call("run", "experiment.toml")
    assert "experiment.zarr: rigid_body on SO3, 1 noise, EulerMaruyamaMK, one trajectory" in said
    assert "0 to 2, dt = 0.05, 11 times saved (finished)" in said and "coadjoint plot experiment.zarr" in said
    np.testing.assert_array_equal(cj.open("experiment.zarr")["mu"].values, expected().mu)
    call("resume", "experiment.zarr", "--t1", "4")
    np.testing.assert_array_equal(cj.open("experiment.zarr")["mu"].values, expected(t1=4.0).mu)
    found = json.loads(call("info", "experiment.zarr", "--json", "--verify"))
    assert found["finished"] and found["steps"] == 80 and found["t1"] == 4.0 and found["chunks_verified"] > 10
    assert found["casimir_errors"]["|μ|²"] < 1e-15 and found["being_written_by"] is None
    assert call("plot", "experiment.zarr").strip() == "experiment-casimirs.png"
    assert Path("experiment-casimirs.png").stat().st_size > 10_000
    for what in ("casimirs", "energy"):
        (ax,) = figures.draw(Path("experiment.zarr"), what).axes
        assert ax.get_xlabel() and ax.get_ylabel() and "rigid_body" in ax.get_title()
    assert "rigid_body" in figures.draw(Path("experiment.zarr"), "spectrum").get_suptitle()
    (ax,) = figures.draw(Path("experiment.zarr"), "trajectory").axes
    assert ax.get_zlabel() == "$\\pi_3$"
    with pytest.raises(cj.StoreError, match="has no field: fields are for matrices"):
        figures.draw(Path("experiment.zarr"), "field")


def test_settings_and_json(here):
    out = call(
        "run", "experiment.toml", "--set", "run.dt=0.1", "--set", "model.alpha=none", "--out", "b.zarr", "--json"
    )
    lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    assert [line["event"] for line in lines] == ["progress", "done"]
    assert lines[0]["done"] == lines[0]["total"] == 20
    assert {"rate", "iterations", "residual", "casimir_error", "seconds_left"} <= set(lines[0])
    assert lines[1]["noises"] == 0 and lines[1]["dt"] == 0.1
    problem = json.loads(call("run", "experiment.toml", "--set", "run.dt=-1", "--json", code=2))
    assert problem == {"event": "error", "message": "experiment.toml: run.dt must be above 0, not -1.0."}


def test_members_make_an_ensemble(here):
    stored = cj.run(tables(run__members=3), "run.zarr")
    system, mu0 = cj.models.rigid_body(inertia=(4, 2, 1), alpha=(0.1, 0.2, 0.3))
    options = {"t1": 2.0, "dt": 0.05, "key": 3, "save_every": 4, "integrator": EM}
    np.testing.assert_array_equal(stored.mu, cj.ensemble(system, mu0, members=3, **options).mu)


def test_a_sweep_is_all_combinations(here):
    swept = tables(sweep__run__key=[3, 4], sweep__model__inertia=[[4, 2, 1], [5, 3, 2]])
    swept["sweep"] = {"run": {"key": [3, 4]}, "model.inertia": [[4, 2, 1], [5, 3, 2]]}
    data = cj.run(swept, "run.zarr").open()
    assert data["mu"].dims == ("key", "inertia", "time", "component")
    assert data["key"].values.tolist() == [3, 4] and data["inertia"].values.tolist() == ["[4, 2, 1]", "[5, 3, 2]"]
    for key in (3, 4):
        for inertia in ([4, 2, 1], [5, 3, 2]):
            alone = expected(key=key, inertia=inertia)
            np.testing.assert_array_equal(data["mu"].sel(key=key, inertia=str(inertia)).values, alone.mu)
    assert data["steps"].values.tolist() == [[40, 40], [40, 40]]
    longer = cj.resume("run.zarr", t1=4.0).open()
    np.testing.assert_array_equal(longer["mu"][1, 0].values, expected(t1=4.0, key=4).mu)
    assert "Casimirs" in call("plot", "run.zarr") or Path("run-casimirs.png").exists()
    with pytest.raises(cj.StoreError, match="is a sweep, which has no single solution"):
        cj.resume("run.zarr").load()


def test_figures_of_a_sweep_say_which_run_they_show(here):
    cj.run(tables() | {"sweep": {"run.key": [3, 4]}}, "run.zarr")
    for what in ("spectrum", "energy"):
        fig = figures.draw(Path("run.zarr"), what)
        assert [t.get_text() for t in fig.legends[0].get_texts()] == ["key = 3", "key = 4"]
        assert "key" not in fig.get_suptitle() + fig.axes[0].get_title()


def test_a_sweep_over_the_step_has_times_of_its_own(here):
    swept = tables() | {"sweep": {"run": {"dt": {"start": 0.05, "stop": 0.1, "count": 2}}}}
    data = cj.run(swept, "run.zarr").open()
    assert data["mu"].dims == ("dt", "sample", "component") and data["time"].dims == ("dt", "sample")
    np.testing.assert_array_equal(data["mu"][0].values, expected().mu)
    np.testing.assert_array_equal(data["mu"][1, :6].values, expected(dt=0.1).mu)
    assert np.all(np.isnan(data["mu"][1, 6:].values)) and data["time"][1, 5] == 2.0
    assert "0.05, 0.1" in call("info", "run.zarr")


def test_a_sweep_over_options_of_the_integrator():
    swept = tables(run__integrator="TMK") | {"sweep": {"run.integrator.tol": [1e-8, 1e-12]}}
    combinations = experiment.Experiment(swept, "x").combinations()
    assert [c["run"]["integrator"] for c in combinations] == [{"name": "TMK", "tol": t} for t in (1e-8, 1e-12)]


OWN = """
import coadjoint as cj

def factory(k=1.0):
    system = cj.System(cj.SO3(), lambda m: k * m[0] ** 2 + m[1] ** 2, cj.salt([0.1, 0.2, 0.3]))
    return system, [0.6, 0.0, 0.8]

def broken():
    raise RuntimeError("no luck")

def other():
    return 3
"""


def test_a_model_of_ones_own(here, monkeypatch):
    """Imported from the current folder; what a store names is called only if it is named again."""
    (here / "mymodule.py").write_text(OWN)
    monkeypatch.delitem(sys.modules, "mymodule", raising=False)
    (here / "own.toml").write_text('[model]\nname = "mymodule:factory"\nk = 2.0\n' + TEXT[TEXT.index("[run]") :])
    call("run", "own.toml")
    said = call("resume", "own.zarr", "--t1", "4", code=2)
    assert "a model of your own, mymodule:factory: allow the call" in said.replace("\n", "")
    call("resume", "own.zarr", "--t1", "4", "--model", "mymodule:factory")
    import mymodule  # pyright: ignore[reportMissingImports]

    assert cj.resume("own.zarr", t1=6.0, model=mymodule.factory).mu.shape == (31, 3)
    for name, message in [
        ("mymodule:factori", "mymodule has no function 'factori'"),
        ("nomodule:factory", "importing nomodule failed: No module named 'nomodule'"),
        ("mymodule:broken", "model.name: no luck"),
        ("mymodule:other", r"other must return (System, mu0), not 3"),
        ("my module:x", "must be 'module:function'"),
        ("mymodule:", "must be 'module:function'"),
    ]:
        with pytest.raises(cj.ExperimentError, match=re.escape(message)):
            cj.run(tables() | {"model": {"name": name}}, "x.zarr")


def test_three_commands_of_the_readme(tmp_path, monkeypatch):
    """From nothing to a figure, as the README has it."""
    monkeypatch.chdir(tmp_path)
    text = (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")
    (block,) = [part.split("```")[0] for part in text.split("```sh\n")[1:] if "coadjoint new" in part.split("```")[0]]
    lines = [line.partition("#")[0].split() for line in block.splitlines()]
    assert [line[1] for line in lines] == ["new", "run", "plot"]
    Path("top.toml").write_text(call(*lines[0][1:3]))
    assert lines[0][3:] == [">", "top.toml"]
    assert "π·γ within" in call(*lines[1][1:])
    assert call(*lines[2][1:]).strip() == "top-casimirs.png" and Path("top-casimirs.png").exists()


# Runs that were made in Python.


def test_a_run_of_a_model_is_gone_on_with(here):
    system, mu0 = cj.models.rigid_body(alpha=np.array([0.1, 0.2, 0.3]), inertia=(4, 2, 1))
    cj.solve(system, mu0, t1=1.0, dt=0.05, key=3, save_every=4, integrator=EM, out="run.zarr")
    stored = cj.resume("run.zarr", t1=2.0)
    np.testing.assert_array_equal(stored.mu, expected().mu)
    assert cj.open("run.zarr").attrs["experiment.model.name"] == "rigid_body"


def test_a_run_of_something_else_is_not(here):
    system, mu0 = cj.models.rigid_body()
    options = {"t1": 1.0, "dt": 0.05, "integrator": EM}
    cj.solve(system, mu0, key=0, save=lambda m: m[0], out="a.zarr", **options)
    cj.solve(system, mu0, driver=cj.Increments(np.zeros((20, 1))), out="b.zarr", **options)
    cj.solve(system.with_params(system.params), mu0, key=0, out="c.zarr", **options)
    for store in ("a.zarr", "b.zarr", "c.zarr"):
        with pytest.raises(
            cj.StoreError, match=rf'created in Python: resume with solve\(\.\.\., out="{store}", resume=True'
        ):
            cj.resume(store)


def test_a_start_of_ones_own_is_gone_on_with(here):
    system, mu0 = cj.models.rigid_body()
    options = {"dt": 0.05, "integrator": EM, "key": 0}
    cj.solve(system, 2 * mu0, t1=1.0, out="a.zarr", **options)
    np.testing.assert_array_equal(cj.resume("a.zarr", t1=2.0).mu, cj.solve(system, 2 * mu0, t1=2.0, **options).mu)
    many = np.stack([mu0, 2 * mu0, 3 * mu0])
    cj.ensemble(system, many, members=3, t1=1.0, out="b.zarr", **options)
    np.testing.assert_array_equal(
        cj.resume("b.zarr", t1=2.0).mu, cj.ensemble(system, many, members=3, t1=2.0, **options).mu
    )


@pytest.mark.parametrize("reduce", [cj.Mean(), cj.Quantiles((0.1, 0.9), low=-2.0, high=2.0, bins=50)])
def test_statistics_of_a_model_are_gone_on_with(reduce, here):
    system, mu0 = cj.models.rigid_body()
    options = {"members": 9, "dt": 0.05, "integrator": EM, "key": 0, "reduce": reduce}
    cj.ensemble(system, mu0, t1=1.0, out="a.zarr", **options)
    assert "members are reduced to statistics" in call("info", "a.zarr")
    stored = cj.resume("a.zarr", t1=2.0)
    whole = cj.ensemble(system, mu0, t1=2.0, **options)
    for name, value in whole.reduced.items():
        np.testing.assert_array_equal(stored.reduced[name], value)
        np.testing.assert_array_equal(stored.open()[name], value)
        np.testing.assert_array_equal(whole.to_xarray()[name], value)
        assert stored.open()[name].dims == whole.to_xarray()[name].dims


def test_statistics_from_a_file(here):
    stored = cj.run(tables(run__members=5, run__reduce="Mean"), "run.zarr")
    system, mu0 = cj.models.rigid_body(inertia=(4, 2, 1), alpha=(0.1, 0.2, 0.3))
    options = {"t1": 2.0, "dt": 0.05, "key": 3, "save_every": 4, "integrator": EM, "members": 5}
    whole = cj.ensemble(system, mu0, reduce=cj.Mean(), **options)
    np.testing.assert_array_equal(stored.open()["mean"], whole.reduced["mean"])


# Backends.


def test_the_backend_is_said(here):
    said = call("run", "experiment.toml")
    assert "backend   native" in said
    assert json.loads(call("info", "experiment.zarr", "--json"))["backend"] == "native"
    said = call("run", "experiment.toml", "--set", "run.backend=xla", "--out", "b.zarr")
    assert "backend   xla" in said and cj.open("b.zarr").attrs["experiment.run.backend"] == "xla"
    native, xla = cj.open("experiment.zarr"), cj.open("b.zarr")
    np.testing.assert_allclose(native["mu"], xla["mu"], rtol=1e-13, atol=1e-14)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the experiment keeps the backend, so bits do not change
        assert cj.resume("b.zarr", t1=4.0).stats.backend == "xla"
    with pytest.warns(RuntimeWarning, match=r'backend: the store has "xla", this run has "native"'):
        call("resume", "b.zarr", "--t1", "6", "--backend", "native")
    assert "native, from step 80 on" in call("info", "b.zarr")


class Lines:
    """A progress bar that records its calls."""

    def __init__(self):
        self.total = self.before = self.done = 0

    def serving(self, plan):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        pass

    def begin(self, done):
        self.before += done

    def add(self, more, points, mu0):
        self.done += more


@pytest.mark.parametrize("backend", ["native", "xla"])
@pytest.mark.parametrize("members", [1, 3])
def test_finished_steps_are_counted_once(backend, members, here):
    bar, later = Lines(), Lines()
    cj.run(tables(run__members=members, run__backend=backend), "run.zarr", progress=bar)
    assert (bar.before, bar.done, bar.total) == (0, 40 * members, 40 * members)
    cj.resume("run.zarr", t1=3.0, progress=later)
    assert (later.before, later.done, later.total) == (40 * members, 20 * members, 60 * members)


@pytest.mark.parametrize("name", schema.known_models())
def test_every_model_is_marked_and_makes_an_experiment(name):
    assert inspect.unwrap(schema.known_models()[name]) is not schema.known_models()[name], "mark it with @model"
    made = experiment.Experiment(tomllib.loads(model_text.new(name)), name)
    assert made.tables["run"]["integrator"] == "TMK"
    assert call("new", name) == model_text.new(name)


def test_a_system_knows_its_origin():
    system, _ = cj.models.heavy_top("lagrange", alpha=np.eye(3))
    assert origin(system) == ("heavy_top", {"preset": "lagrange", "alpha": np.eye(3).tolist()})
    assert origin(system.with_params(system.params)) is None


def test_models_are_listed():
    said = call("models")
    assert all(f"{name}: " in said for name in schema.known_models())
    assert "    inertia = [4.0, 2.0, 1.0]" in said and "(computed by the model)" in said
    assert "h = −J Σ S_i·S_{i+1}" in call("models", "spin_chain")
    assert json.loads(call("models", "--json"))["rigid_body"]["parameters"]["alpha"] == "[0.01, 0.02, 0.03]"


def test_models_and_integrators_are_found_by_inspection():
    assert {"heavy_top", "rigid_body", "sine_euler", "spin_chain", "kirchhoff"} <= set(schema.known_models())
    assert "fourier_to_matrix" not in schema.known_models()
    known = schema.known_integrators()
    assert {type(i).__name__ for i in cj.integrators.ALL.values()} | {"Adaptive"} <= set(known)
    assert "Integrator" not in known
    made = schema.check_integrator(
        "x", {"name": "Adaptive", "integrator": {"name": "TMKLevy", "tol": 1e-12}, "tol": 1e-4}
    )
    assert made.integrator.solve.tol == 1e-12 and made.tol == 1e-4
