"""Experiments as files: what they may say, what they run, and what is said when they are wrong."""

import inspect
import json
import os
import re
import subprocess
import sys
import time
import tomllib
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stores import edit_header
from typer.testing import CliRunner

import coadjoint as cj
from coadjoint.command import model_text
from coadjoint.command.cli import app
from coadjoint.experiments import experiment, schema
from coadjoint.models.origin import origin
from coadjoint.report import figures

TEXT = """
[model]
name = "rigid_body"
inertia = [4, 2, 1]
alpha = [0.1, 0.2, 0.3]

[run]
t1 = 2.0
dt = 0.05
key = 3
save_every = 4
integrator = "EulerMaruyamaMK"
"""
TABLES = {
    "model": {"name": "rigid_body", "inertia": [4, 2, 1], "alpha": [0.1, 0.2, 0.3]},
    "run": {"t1": 2.0, "dt": 0.05, "key": 3, "save_every": 4, "integrator": "EulerMaruyamaMK"},
}
EM = cj.EulerMaruyamaMK()


def tables(**changes):
    """The tables with some values changed, by their full names; None removes one."""
    out = json.loads(json.dumps(TABLES))
    for name, value in changes.items():
        section, _, key = name.partition("__")
        if value is None:
            del out[section][key]
        else:
            out.setdefault(section, {})[key.replace("__", ".")] = value
    return out


def expected(t1=2.0, dt=0.05, key=3, save_every=4, **model):
    system, mu0 = cj.models.rigid_body(**({"inertia": (4, 2, 1), "alpha": (0.1, 0.2, 0.3)} | model))
    return cj.solve(system, mu0, t1=t1, dt=dt, key=key, save_every=save_every, integrator=EM)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "experiment.toml").write_text(TEXT)
    return tmp_path


def call(*arguments, code=0):
    """The command, in this process; its output."""
    result = CliRunner().invoke(app, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.output


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
    assert "a model of your own, mymodule:factory: say that you want it called" in said.replace("\n", "")
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


def test_nothing_that_a_store_names_is_called(here):
    """A store that names a function of the system, as a trap."""
    cj.run(tables(), "run.zarr")
    trap = {"name": "os:system", "command": "touch trapped"}
    edit_header(here / "run.zarr", lambda header: header["experiment"].update(model=trap))
    with pytest.raises(cj.StoreError, match="say that you want it called"):
        cj.resume("run.zarr")
    assert not (here / "trapped").exists()


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
            cj.StoreError, match=rf'made in Python: resume with solve\(\.\.\., out="{store}", resume=True'
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


def test_a_backend_that_cannot_take_a_run_is_refused_before_anything_is_made(here):
    fluid = {"model": {"name": "sine_euler", "n": 9}, "run": {"t1": 0.1, "dt": 0.05, "key": 0, "backend": "native"}}
    with pytest.raises(
        cj.ExperimentError, match=r"run\.backend='native' cannot take this run: The system is too large"
    ):
        cj.run(fluid, "run.zarr")
    assert not Path("run.zarr").exists()
    fluid["run"]["backend"] = "auto"
    cj.run(fluid, "run.zarr")
    assert re.search(r"backend   xla: .*too large for native code", call("info", "run.zarr"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it was not native before
        cj.resume("run.zarr", t1=0.2)


class Lines:
    """A bar that remembers what it was told."""

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


# What is wrong is said with the file, the key, what was given and what is allowed.

WRONG = {
    "model": (
        {"model__name": "rigd_body"},
        r"model\.name = 'rigd_body' is not known: did you mean 'rigid_body'\? Allowed",
    ),
    "no model": ({"model__name": None}, r"model\.name is missing\. Allowed: .*rigid_body"),
    "parameter": ({"model__inertai": 1}, r"model\.inertai is not known: did you mean 'inertia'\? Allowed: inertia, "),
    "value": ({"model__inertia": [1, 2]}, r"model\.inertia: inertia must be 3 numbers, shape \(3,\), not shape \(2,\)"),
    "word": ({"model__alpha": "much"}, r"model\.alpha: "),
    "key": ({"run__keys": 3}, r"run\.keys is not known: did you mean 'key'\? Allowed: t0, t1, dt, key"),
    "no t1": ({"run__t1": None}, r"run\.t1 is missing"),
    "no key": ({"run__key": None}, r"run\.key is missing: the model has noise"),
    "t1": ({"run__t1": "soon"}, r"run\.t1 must be a number, not 'soon'"),
    "multiple": ({"run__dt": 0.3}, r"run: t1 − t0 must be a whole multiple of dt"),
    "nan": ({"run__dt": float("nan")}, r"run\.dt must be finite, not nan"),
    "members": ({"run__members": 0}, r"run\.members must be at least 1, not 0"),
    "half": ({"run__save_every": 1.5}, r"run\.save_every must be a whole number, not 1\.5"),
    "flag": ({"run__group": 1}, r"run\.group must be true or false, not 1"),
    "huge key": ({"run__key": 2**64}, r"run\.key must be below 2\^64"),
    "huge run": ({"run__t1": 1e300}, r"run: a run has at most 2\^62 steps"),
    "integrator": ({"run__integrator": "TKM"}, r"run\.integrator = 'TKM' is not known: did you mean 'TMK'\? Allowed: "),
    "option": (
        {"run__integrator": {"name": "TMK", "tolerance": 1}},
        r"run\.integrator\.tolerance is not known: .*Allowed: tol, solver",
    ),
    "solver": (
        {"run__integrator": {"name": "TMK", "solver": "best"}},
        r"run\.integrator\.solver must be one of 'auto', 'chord'",
    ),
    "type": (
        {"run__integrator": {"name": "HeunMK", "drift_free": 3}},
        r"run\.integrator\.drift_free must be true or false",
    ),
    "backend": (
        {"run__backend": "gpu"},
        r"run\.backend must be one of 'auto', 'native-gpu', 'native', 'xla', not 'gpu'",
    ),
    "reduce": ({"run__reduce": "Men"}, r"run\.reduce = 'Men' is not known: did you mean 'Mean'\? Allowed: Mean, "),
    "mu0": ({"run__mu0": [1.0, 2.0]}, r"run: mu0 "),
    "mu0 words": ({"run__mu0": ["a"]}, r"run\.mu0 must be numbers, not \['a'\]"),
    "section": ({"rum__t1": 3}, r"\[rum\] is not known: did you mean 'run'\? Allowed: model, run, sweep"),
    "sweep": ({"sweep__alpha": [1]}, r"sweep\.alpha is not known: write model\.alpha or run\.alpha"),
    "scalar": ({"sweep__run__dt": 3}, r"sweep\.run\.dt must be a list of values, or a range"),
    "empty": ({"sweep__run__dt": []}, r"sweep\.run\.dt must have at least one value"),
    "range": ({"sweep__run__dt": {"start": 1, "stop": 2}}, r"sweep\.run\.dt\.count is missing"),
    "log": ({"sweep__run__dt": {"start": 0, "stop": 2, "count": 2, "log": True}}, r"start and stop must be above 0"),
    "swept members": ({"sweep__run__members": [1, 2]}, r"sweep\.run\.members cannot be swept"),
    "many": ({"sweep__run__key": {"start": 0, "stop": 1, "count": 10**6}}, r"count must be at most 100000"),
    "swept value": ({"sweep__model__pi0": [[1, 0, 0], [1, 0]]}, r"model\.pi0: pi0 must be 3 numbers"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_named(what):
    changes, message = WRONG[what]
    with pytest.raises(cj.ExperimentError, match=message) as error:
        experiment.Experiment(tables(**changes), "e.toml").plans()
    assert str(error.value).startswith("e.toml: ")


def test_a_sweep_over_shapes():
    def factory(n=1):
        algebra = cj.SO3() if n == 1 else cj.SE3()
        return cj.System(algebra, lambda m: m @ m), np.ones(algebra.dim)

    swept = {"model": {"name": "my:own"}, "run": {"t1": 1.0, "dt": 0.5}, "sweep": {"model.n": [1, 2]}}
    with pytest.raises(cj.ExperimentError, match=r"sweep\.model\.n changes the shape of the state"):
        experiment.Experiment(swept, "e.toml", factory).plans()


def test_a_size_that_is_a_typing_error():
    with pytest.raises(cj.ExperimentError, match=r"model\.n must be at most 10000, not 1000000000"):
        experiment.Experiment({"model": {"name": "spin_chain", "n": 10**9}, "run": TABLES["run"]}, "e.toml")


def test_what_cannot_fit_on_the_disk(here):
    long = tables(run__t1=2.0e9, run__save_every=1)
    with pytest.raises(cj.StoreError, match=r"would take .* GB \(40000000001 saved times\), and the disk has"):
        cj.run(long, "run.zarr")
    assert not Path("run.zarr").exists() and not Path("run.zarr.new").exists()


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("run", "none.toml"), "none.toml does not exist. `coadjoint new MODEL > none.toml` makes one"),
        (("run", "."), ". is a folder, not an experiment file"),
        (("run", "bad.toml"), "bad.toml is no TOML file: "),
        (("run", "bytes.toml"), "bytes.toml is no TOML file: it is not text in UTF-8"),
        (("run", "experiment.toml", "--set", "dt=3"), "--set dt=3: write section.key=value"),
        (("run", "experiment.toml", "--set", "run.integrator.tol.x=3"), "tol"),
        (("run", "experiment.toml", "--out", "bad.toml/x.zarr"), "bad.toml"),
        (("resume", "none.zarr"), "none.zarr does not exist: there is nothing to resume"),
        (("info", "experiment.toml"), "experiment.toml is not a store"),
        (("plot", "none.zarr"), "none.zarr does not exist"),
        (("plot", "none.zarr", "--out", "x.doc"), "--out must end in .png, .pdf or .svg, not 'x.doc'"),
        (("plot", "none.zarr", "--what", "nothing"), "nothing"),
        (("new", "hevy_top"), "'hevy_top' is not a model: did you mean 'heavy_top'?"),
        (("models", "top"), "'top' is not a model"),
    ],
)
def test_what_the_command_says(arguments, message, here):
    (here / "bad.toml").write_text("[model\nname = 3")
    (here / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    said = call(*arguments, code=2)
    assert message in said.replace("\n", " ").replace("  ", " ") and "Traceback" not in said


@pytest.mark.parametrize("command", ["", "run", "resume", "info", "plot", "models", "new"])
def test_help(command):
    said = call(*filter(None, [command]), "--help")
    assert "Usage: " in said and "--help" in said
    if not command:
        assert all(word in said for word in ("run", "resume", "info", "plot", "models", "new", "top.toml"))


def test_ctrl_c_at_the_command(here):
    """A process of its own, interrupted once it runs: it says where it stopped, and goes on from there."""
    code = "import coadjoint.store.store_sink as s; s._SECONDS = 0.05; from coadjoint.command.cli import app; app()"
    long = ["--set", "run.t1=1e6", "--set", "run.save_every=1000"]
    process = subprocess.Popen(
        [sys.executable, "-c", code, "run", "experiment.toml", *long],
        env=os.environ | {"PYTHONPATH": str(Path(cj.__file__).parents[1])},
        stderr=subprocess.PIPE,
        text=True,
    )
    checkpoint = here / "experiment.zarr" / "checkpoint" / "part-000000.npz"
    deadline = time.monotonic() + 60
    while not checkpoint.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(2)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    stopped = re.search(r"stopped at step (\d+) \(t = [^)]*\); resume with: coadjoint resume experiment\.zarr", err)
    assert stopped, err
    assert f"{stopped[1]} of 20000000 steps done" in call("info", "experiment.zarr")


# Fuzzing: whatever a file says, the answer is a run that is ready to go, or a sentence with the key's name.

KNOWN = (
    "model run sweep name inertia alpha pi0 t0 t1 dt key members save_every integrator grid depth group throw backend "
    "mu0 reduce tol solver start stop count log é a.b"
)
WORDS = st.sampled_from(["", *KNOWN.split()])
NUMBERS = st.one_of(
    st.integers(-3, 10),
    st.sampled_from([0, -1, 2**31, 2**63, 2**64, 10**30, 1e-300, 1e300, 5e-324, 0.1, float("inf"), float("nan"), -0.0]),
    st.floats(),
)
SCALARS = st.one_of(
    NUMBERS,
    st.booleans(),
    st.text(max_size=5),
    WORDS,
    st.sampled_from(["none", "TMK", "Adaptive", "rigid_body", "os:sep"]),
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=3), max_leaves=8
)


@st.composite
def mutated(draw):
    """The tables of a good experiment, changed in a few places."""
    out = json.loads(json.dumps(TABLES))
    if draw(st.booleans()):
        out["sweep"] = {"run": {"key": [1, 2]}}
    for _ in range(draw(st.integers(1, 3))):
        at = out
        while True:
            inner = [k for k, v in at.items() if isinstance(v, dict)]
            if not inner or draw(st.integers(0, 3)) == 0:
                break
            at = at[draw(st.sampled_from(inner))]
        change = draw(st.sampled_from(["set", "set", "add", "drop", "rename"]))
        if change == "add" or not at:
            at[draw(WORDS)] = draw(VALUES)
            continue
        key = draw(st.sampled_from(sorted(at)))
        if change == "set":
            at[key] = draw(VALUES)
        elif change == "drop":
            del at[key]
        else:
            at[draw(WORDS)] = at.pop(key)
    return out


def answered(work):
    """A run that is ready to go, or one sentence that names a key; and no traceback, no hang."""
    began = time.perf_counter()
    try:
        work()
    except cj.ExperimentError as error:
        said = str(error)
        assert said.startswith("e.toml") and "\n" not in said
        assert re.search(r"\b(model|run|sweep)\b|^e\.toml: \[.*\] is not known", said), said
    assert time.perf_counter() - began < 20


def no_run(tables):
    made = experiment.Experiment(tables, "e.toml")
    if len(made.combinations()) <= 8:
        made.plans()


FUZZ = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}


@settings(max_examples=200, **FUZZ)
@given(mutated())
def test_fuzzed_tables(tables):
    answered(lambda: no_run(tables))


@pytest.mark.slow
@settings(max_examples=4000, **FUZZ)
@given(mutated())
def test_thousands_of_fuzzed_tables(tables):
    answered(lambda: no_run(tables))


@st.composite
def scrambled(draw):
    """The text of a good experiment with some characters, lines or pieces changed."""
    text = TEXT
    for _ in range(draw(st.integers(1, 4))):
        i = draw(st.integers(0, len(text)))
        j = draw(st.integers(i, min(len(text), i + 12)))
        text = (
            text[:i]
            + draw(st.sampled_from(["", '"', "[", "]", "=", "\n", "0", "-", ".", "9e99", "nan", "\x00", "{"]))
            + text[j:]
        )
    return text


def answered_text(text, folder):
    path = folder / "e.toml"
    path.write_text(text, encoding="utf-8")

    def work():
        try:
            no_run(experiment.load(path).tables)
        except cj.ExperimentError as error:
            raise cj.ExperimentError(str(error).replace(str(path), "e.toml")) from None

    began = time.perf_counter()
    try:
        work()
    except cj.ExperimentError as error:
        assert str(error).startswith("e.toml") and "\n" not in str(error)
    assert time.perf_counter() - began < 20


@settings(max_examples=200, **FUZZ)
@given(text=scrambled())
def test_fuzzed_text(text, tmp_path_factory):
    answered_text(text, tmp_path_factory.getbasetemp())


@pytest.mark.slow
@settings(max_examples=4000, **FUZZ)
@given(text=scrambled())
def test_thousands_of_fuzzed_texts(text, tmp_path_factory):
    answered_text(text, tmp_path_factory.getbasetemp())
