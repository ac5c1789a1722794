"""An own initial field stays with its tools: stores, resuming, experiment files, pictures."""

import numpy as np
import pytest
from typer.testing import CliRunner

import coadjoint as cj
from coadjoint.command.cli import app
from coadjoint.fluids import Sphere, Torus, random_field
from coadjoint.store.atomic_io import StoreError

N = 17
RUN = {"t1": 0.4, "dt": 0.1, "key": 0, "integrator": "IsospectralMidpoint"}
METHOD = cj.IsospectralMidpoint()


@pytest.fixture(scope="module")
def omega():
    return np.asarray(random_field(Torus(N), 3))


@pytest.fixture(scope="module")
def store(tmp_path_factory, omega):
    """A run of a fluid with a complex field and complex amplitudes, made in Python."""
    path = tmp_path_factory.mktemp("own") / "own.zarr"
    system, W = make(omega)
    cj.solve(system, W, t1=0.4, dt=0.1, key=0, integrator=METHOD, out=path)
    return path


def make(omega):
    return cj.models.sine_euler(N, omega=omega, amplitude=np.array([0.1, 0.1j]), orientation="physical")


def command(*arguments):
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == 0, result.output
    return result.output


def test_info_knows_the_model(store):
    assert "sine_euler on SU" in command("info", store, "--verify")


def test_a_run_is_gone_on_with_by_the_store_alone(store, omega, tmp_path):
    """Bit for bit as a run that was never interrupted."""
    whole = tmp_path / "whole.zarr"
    system, W = make(omega)
    cj.solve(system, W, t1=0.8, dt=0.1, key=0, integrator=METHOD, out=whole)
    np.testing.assert_array_equal(cj.resume(store, t1=0.8).mu, cj.open(whole)["mu"].values)


@pytest.mark.parametrize("kind", ["npy", pytest.param("zarr", marks=pytest.mark.slow)])
def test_the_same_run_from_an_experiment_file(store, omega, tmp_path, kind):
    """The field in a file beside the experiment; the store holds it, so that the file may go."""
    amplitude = np.array([0.1, 0.1j])
    np.save(tmp_path / "amplitude.npy", amplitude)
    if kind == "npy":
        np.save(tmp_path / "omega.npy", omega)
    else:
        import zarr

        group = zarr.open_group(str(tmp_path / "fields.zarr"), mode="w")
        group.create_array("omega", data=omega)
    where = "omega.npy" if kind == "npy" else "fields.zarr/omega"
    file = tmp_path / "experiment.toml"
    lines = [
        f'name = "sine_euler"\nn = {N}\nomega = "{where}"\namplitude = "amplitude.npy"',
        'orientation = "physical"',
    ]
    run = "\n".join(f"{k} = {v!r}" for k, v in RUN.items()).replace("'", '"')
    file.write_text("[model]\n" + "\n".join(lines) + "\n[run]\n" + run + "\n")
    out = tmp_path / "out.zarr"
    command("run", file, "--out", out)
    for path in tmp_path.glob("*.npy"):
        path.unlink()
    again = cj.resume(out)
    np.testing.assert_array_equal(np.asarray(again.mu), cj.open(store)["mu"].values[: len(again.mu)])


def test_values_on_a_grid_from_netcdf(tmp_path):
    """vorticity="field.nc": the field that was written."""
    xarray = pytest.importorskip("xarray")
    field = Torus(9).values(random_field(Torus(9), 1), 32)
    xarray.Dataset({"vorticity": (("x", "y"), field)}).to_netcdf(tmp_path / "field.nc", engine="scipy")
    system, W = cj.models.sine_euler(9, vorticity=str(tmp_path / "field.nc"))
    np.testing.assert_allclose(cj.fluids.of(system).vorticity(W, 32), field, atol=1e-13)


def test_pictures_are_of_vorticity(store, tmp_path, monkeypatch):
    """Field, spectrum and animation of a run with an own field are drawn by its model."""
    from coadjoint.report.selection import Selection, read

    shown = read(store, Selection())
    flow = shown.fluid(shown.series[0])
    assert flow is not None and flow.surface.orientation == "physical"
    for what in ("field", "spectrum", "animation"):
        target = tmp_path / f"{what}.{'gif' if what == 'animation' else 'png'}"
        command("plot", store, "--what", what, "--out", target)
        assert target.stat().st_size > 5000
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("coadjoint.report.fluids.find_spec", lambda name: None)
    refused = CliRunner().invoke(app, ["plot", str(store), "--what", "animation", "--out", str(tmp_path / "a.mp4")])
    assert refused.exit_code == 2 and "needs the program ffmpeg" in refused.output
    refused = CliRunner().invoke(app, ["plot", str(store), "--what", "globe"])
    assert refused.exit_code == 2 and "this one is on the torus" in refused.output


def test_a_film_is_written_by_ffmpeg(tmp_path):
    """MP4, where ffmpeg is on PATH or comes with the extra [film]."""
    from coadjoint.report import fluids

    if fluids._ffmpeg() is None:
        pytest.skip("no ffmpeg on this machine")
    frames = [np.full((33, 65, 3), 20 * k, np.uint8) for k in range(8)]
    fluids._write_mp4(tmp_path / "film.mp4", frames, 10.0)
    assert b"ftyp" in (tmp_path / "film.mp4").read_bytes()[:16]


@pytest.mark.slow
def test_a_sphere_is_drawn_as_globe_and_map(tmp_path):
    system, W = cj.models.euler_sphere(N, rotation=1.0, omega=random_field(Sphere(N), 1))
    cj.solve(system, W, t1=0.4, dt=0.1, integrator=METHOD, out=tmp_path / "sphere.zarr")
    command("plot", tmp_path / "sphere.zarr", "--what", "field", "--out", tmp_path / "field.png")
    command("plot", tmp_path / "sphere.zarr", "--what", "globe", "--out", tmp_path / "globe.html")
    text = (tmp_path / "globe.html").read_text(encoding="utf-8")
    assert "data-kind='globe'" in text and "http" not in text.replace("http-equiv", "")
    refused = CliRunner().invoke(app, ["plot", str(tmp_path / "sphere.zarr"), "--what", "globe", "--dark"])
    assert refused.exit_code == 2 and "--dark is not for a globe" in refused.output


def test_what_is_wrong_with_a_file_is_a_sentence(tmp_path, store):
    (tmp_path / "text.npy").write_text("no numbers")
    cases = {
        "missing.npy": "missing.npy does not exist",
        "text.npy": "is no .npy file of numbers",
        "field.csv": "the path of a .npy, .zarr or .nc",
    }
    for name, message in cases.items():
        with pytest.raises(ValueError, match=message):
            cj.models.sine_euler(9, omega=str(tmp_path / name))
        with pytest.raises(cj.ExperimentError, match=f"model.omega.*{message}"):
            cj.run({"model": {"name": "sine_euler", "omega": str(tmp_path / name)}, "run": RUN}, tmp_path / "x.zarr")
    for file in (store / "given" / "model.omega").glob("c*"):
        file.unlink()
    with pytest.raises(StoreError, match=r"model\.omega"):
        cj.resume(store, t1=1.2)
