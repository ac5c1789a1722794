"""The command: options, messages, pipes, models beside the file, and commands that start without JAX."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import coadjoint as cj
from coadjoint.command.cli import app
from coadjoint.command.progress import combined_health
from coadjoint.runtime.health import Health

BODY = """
[model]
name = "rigid_body"
alpha = "none"
[run]
t1 = 1.0
dt = 0.1
"""
OWN = """
import coadjoint as cj

def body():
    return cj.models.rigid_body(alpha=None)
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "body.toml").write_text(BODY)
    return tmp_path


def call(*words, code=0):
    result = CliRunner().invoke(app, list(map(str, words)))
    assert result.exit_code == code, result.output
    return result.output


def python(code):
    """A fresh interpreter with this package."""
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(Path(cj.__file__).parents[1])!r}); {code}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_version_and_help_import_no_jax():
    assert call("--version").strip() == f"coadjoint {cj.__version__}"
    for words in (["--version"], ["--help"], ["run", "--help"]):
        run = f"sys.argv = ['coadjoint', *{words}]; from coadjoint.command.cli import app; app(standalone_mode=False)"
        done = python(f"{run}; print('imported:', 'jax' in sys.modules, 'zarr' in sys.modules)")
        assert done.returncode == 0 and done.stdout.endswith("imported: False False\n"), done.stderr


def test_info_imports_no_jax_and_survives_a_closed_pipe(here):
    call("run", "body.toml")
    run = "sys.argv = ['coadjoint', 'info', 'body.zarr']; from coadjoint.command.cli import app; "
    done = python(f"{run}app(standalone_mode=False); print('imported:', 'jax' in sys.modules, 'xarray' in sys.modules)")
    assert done.returncode == 0 and done.stdout.endswith("imported: False False\n"), done.stderr
    assert "|μ|² within" in done.stdout
    source = str(Path(cj.__file__).parents[1])
    code = f"import sys; sys.path.insert(0, {source!r}); {run}app()"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code], **pipes) as process:
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 141


def test_figures_of_bodies_import_no_jax(here):
    call("run", "body.toml")
    run = "sys.argv = ['coadjoint', 'plot', 'body.zarr', '--what', 'energy']; from coadjoint.command.cli import app; "
    done = python(f"{run}app(standalone_mode=False); print('imported:', 'jax' in sys.modules)")
    assert done.returncode == 0 and done.stdout.endswith("imported: False\n"), done.stderr


def test_quiet_prints_errors_only(here, capfd):
    assert call("run", "body.toml", "--quiet") == ""
    assert call("resume", "body.zarr", "--t1", "2", "-q") == ""
    assert capfd.readouterr() == ("", "")
    assert cj.open("body.zarr").sizes["time"] == 21
    assert "exists already" in call("run", "body.toml", "--quiet", code=2)


def test_force_replaces_a_store_and_nothing_else(here):
    call("run", "body.toml", "-q")
    assert "run.dt" in call("run", "body.toml", "--force", "--set", "run.dt=-1", code=2)
    assert cj.open("body.zarr").sizes["time"] == 11  # an error leaves the store alone
    call("run", "body.toml", "-q", "--force", "--set", "run.t1=2.0")
    assert cj.open("body.zarr").sizes["time"] == 21
    Path("mine").mkdir()
    Path("mine/notes.txt").write_text("mine")
    assert "is not a store" in call("run", "body.toml", "--force", "--out", "mine", code=2)
    assert Path("mine/notes.txt").read_text() == "mine"


def test_parent_folders_are_made(here):
    call("run", "body.toml", "-q", "--out", "a/b/c.zarr")
    call("plot", "a/b/c.zarr", "--out", "d/e.png")
    assert Path("d/e.png").stat().st_size > 10_000


def test_a_model_beside_the_file(here, monkeypatch):
    """And beside the store, when a run is resumed."""
    (here / "sub").mkdir()
    (here / "sub" / "beside_file.py").write_text(OWN)
    (here / "sub" / "own.toml").write_text(BODY.replace('"rigid_body"\nalpha = "none"', '"beside_file:body"'))
    monkeypatch.delitem(sys.modules, "beside_file", raising=False)
    before = list(sys.path)
    call("run", "sub/own.toml", "-q", "--out", "sub/own.zarr")
    monkeypatch.delitem(sys.modules, "beside_file")
    call("resume", "sub/own.zarr", "-q", "--t1", "2", "--model", "beside_file:body")
    assert sys.path == before
    call("run", "body.toml", "-q", "--set", "run.t1=2.0")
    np.testing.assert_array_equal(cj.open("sub/own.zarr")["mu"], cj.open("body.zarr")["mu"])


def test_a_misspelt_cluster(here):
    assert "did you mean 'local:2'?" in call("run", "body.toml", "-q", "--on", "locl:2", code=2)
    assert not Path("body.zarr").exists()


def test_progress_of_a_sweep_covers_all_runs(here):
    runs = [Health(2.0, 1e-17, 3e-16, 1), Health(0.0, 0.0, None, 0)]
    assert combined_health(runs) == Health(1.0, 1e-17, 3e-16, 1)
    (here / "sweep.toml").write_text(BODY + 'key = 0\n[sweep]\nrun.integrator = ["TMK", "HeunMK"]\n')
    (line,) = (x for x in call("run", "sweep.toml", "--json").splitlines() if '"progress"' in x)
    found = json.loads(line)
    assert found["iterations"] > 0.4 and found["residual"] > 0 and found["casimir_error"] is not None
