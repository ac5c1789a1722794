"""What is wrong in an experiment file or at the command is named, with its key, its value and what is allowed."""

import os
import re
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from experiment_files import TABLES, call, tables
from stores import edit_header

import coadjoint as cj
from coadjoint.experiments import experiment


def test_nothing_that_a_store_names_is_called(here):
    """A store that names a function of the system, as a trap."""
    cj.run(tables(), "run.zarr")
    trap = {"name": "os:system", "command": "touch trapped"}
    edit_header(here / "run.zarr", lambda header: header["experiment"].update(model=trap))
    with pytest.raises(cj.StoreError, match="allow the call"):
        cj.resume("run.zarr")
    assert not (here / "trapped").exists()


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
    """A process of its own, interrupted once it runs: it reports where it stopped, and `info` agrees."""
    code = "from coadjoint.runtime import tuning as t; t._current = t.Tuning(checkpoint_seconds=0.05); "
    code += "from coadjoint.command.cli import app; app()"
    long = ["--set", "run.t1=1e9", "--set", "run.save_every=1000000"]
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
    assert f"{stopped[1]} of 20000000000 steps done" in call("info", "experiment.zarr")
