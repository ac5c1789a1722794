"""Figures of sweeps, ensembles and statistics: all curves are there, and titles name what is shown."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from typer.testing import CliRunner

import coadjoint as cj
from coadjoint.command.cli import app
from coadjoint.report import figures
from coadjoint.report.fluids import _guides
from coadjoint.report.selection import Selection

TOP = {"name": "heavy_top", "alpha": [0.1, 0.1, 0.1]}
RUN = {"t1": 1.0, "dt": 0.05, "key": 0}


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stores")

    def make(name, **tables):
        cj.run(tables, folder / f"{name}.zarr")

    methods = {"run": {"key": list(range(6)), "integrator": ["TMK", "HeunMK"]}}
    make("sweep", model=TOP, run=RUN, sweep=methods)
    make("steps", model=TOP, run=RUN, sweep={"run": {"dt": [0.05, 0.1]}})
    make("members", model=TOP, run=RUN | {"members": 8})
    for name, reduce in (
        ("mean", "Mean"),
        ("covariance", "Covariance"),
        ("quantiles", {"name": "Quantiles", "q": [0.1, 0.5, 0.9], "low": -3.0, "high": 3.0}),
    ):
        make(name, model=TOP, run=RUN | {"members": 8, "reduce": reduce})
    body = {"name": "rigid_body", "alpha": "none"}
    make("bath", model=body, run=RUN, bath={"friction": 0.1, "temperature": 0.1})
    forced = {"noise_modes": "none", "viscosity": 0.01, "stirring_shells": [2, 3]}
    make("forced", model={"name": "sine_euler", "n": 9} | forced, run=RUN)
    return folder


def draw(stores, name, what, **selection):
    return figures.draw(stores / f"{name}.zarr", what, "light", Selection(**selection))


def command(*words, code=0):
    result = CliRunner().invoke(app, list(map(str, words)))
    assert result.exit_code == code, result.output
    return result.output


def curves(ax):
    return [line for line in ax.lines if len(line.get_xdata()) > 2]


def test_all_runs_of_a_sweep_are_drawn_with_a_colour_bar(stores):
    for what in ("casimirs", "energy"):
        fig = draw(stores, "sweep", what)
        ax, bar = fig.axes
        assert len(curves(ax)) == 12 and bar.get_ylabel() == "key"
        assert "TMK and HeunMK" in ax.get_title()
        assert {line.get_linestyle() for line in curves(ax)} == {"-", "--"}
        entries = {text.get_text() for text in fig.legends[0].get_texts()}
        assert entries == {"integrator = TMK", "integrator = HeunMK"}


def test_a_part_of_a_sweep_is_selected(stores):
    fig = draw(stores, "sweep", "energy", where={"integrator": "TMK"})
    assert len(curves(fig.axes[0])) == 6 and fig.axes[0].get_title() == "Energy (heavy_top, TMK)"
    assert len(fig.legends[0].get_texts()) == 6
    (one,) = draw(stores, "sweep", "energy", run=3).axes
    assert one.get_title() == "Energy (heavy_top, HeunMK, key = 1)"
    expected = cj.open(stores / "sweep.zarr")["energy"].isel(key=1, integrator=1)
    np.testing.assert_array_equal(curves(one)[0].get_ydata(), expected)
    with pytest.raises(ValueError, match=r"no run has this value\. Values: 0, 1, 2"):
        draw(stores, "sweep", "energy", where={"key": "7"})
    assert draw(stores, "sweep", "energy", where={"run.key": "1"}) is not None  # the name in the experiment file
    with pytest.raises(ValueError, match="kex is not swept"):
        draw(stores, "sweep", "energy", where={"kex": "1"})
    with pytest.raises(ValueError, match="--run must be below 12"):
        draw(stores, "sweep", "energy", run=12)
    assert "--where dt: write KEY=VALUE" in command("plot", stores / "sweep.zarr", "--where", "dt", code=2)


def test_info_names_all_methods_and_steps(stores):
    said = command("info", stores / "sweep.zarr")
    assert "TMK, HeunMK, a sweep of 12 runs" in said and "dt = 0.05," in said
    assert "dt = 0.05 to 0.1," in command("info", stores / "steps.zarr")


def test_ensembles_are_shown_as_mean_and_quantiles(stores):
    mu = cj.open(stores / "members.zarr")["mu"].values
    fig = draw(stores, "members", "trajectory")
    assert len(fig.axes) == 6
    for k, ax in enumerate(fig.axes):
        np.testing.assert_allclose(curves(ax)[0].get_ydata(), mu[:, :, k].mean(axis=0), rtol=1e-12)
        (band,) = (c for c in ax.collections if isinstance(c, PolyCollection))
        low, high = band.get_paths()[0].get_extents().get_points()[:, 1]
        assert low == pytest.approx(np.quantile(mu[:, :, k], 0.05, axis=0).min())
        assert high == pytest.approx(np.quantile(mu[:, :, k], 0.95, axis=0).max())
    assert "8 members" in fig.get_suptitle()
    assert "member 2" in draw(stores, "members", "trajectory", member=2).get_supxlabel()
    spectrum = draw(stores, "members", "spectrum")
    assert "mean of 8 members" in spectrum.get_suptitle()
    each = [curves(draw(stores, "members", "spectrum", member=k).axes[0])[0].get_ydata() for k in range(8)]
    np.testing.assert_allclose(curves(spectrum.axes[0])[0].get_ydata(), np.mean(each, axis=0), rtol=1e-12)
    with pytest.raises(ValueError, match="--member must be below 8, not 8"):
        draw(stores, "members", "energy", member=8)


@pytest.mark.parametrize("name", ["mean", "covariance", "quantiles"])
def test_statistics_are_drawn(stores, name, tmp_path):
    data = cj.open(stores / f"{name}.zarr")
    middle = data["quantiles"].values[:, 1] if name == "quantiles" else data["mean"].values
    fig = draw(stores, name, "statistics")
    assert len(fig.axes) == 6
    for k, ax in enumerate(fig.axes):
        np.testing.assert_array_equal(curves(ax)[0].get_ydata(), middle[:, k])
        assert len(ax.collections) == 1
    out = command("plot", stores / f"{name}.zarr", "--out", tmp_path / "a" / "b.png").strip()
    assert Path(out).stat().st_size > 10_000
    assert "holds statistics only" in command("plot", stores / f"{name}.zarr", "--what", "energy", code=2)


def test_models_are_made_anew_from_what_the_file_accepts(stores):
    """`alpha = "none"` is None."""
    assert len(draw(stores, "bath", "spectrum").axes) == 3


def test_figures_of_a_forced_fluid(stores):
    flow = cj.fluids.of(cj.models.sine_euler(n=9)[0])
    data = cj.open(stores / "forced.zarr")
    (ax,) = draw(stores, "forced", "energy").axes
    expected = [float(flow.energy(W)) for W in data["mu"].values]
    np.testing.assert_allclose(curves(ax)[0].get_ydata(), expected, rtol=1e-10)
    assert ax.get_ylabel() == "energy, mean of ½|u|²" and ax.get_title() == "Energy (sine_euler, TMK)"
    fig = draw(stores, "forced", "spectrum")
    entries = [text.get_text() for text in fig.legends[0].get_texts()]
    assert entries == ["$t = 0$", "$t = 1$", "mean, $t$ = 0.5 to 1", "forcing"]
    zonal, mean, _ = draw(stores, "forced", "hovmoller").axes
    middle = np.mean([flow.zonal_mean(W, 128) for W in data["mu"].values[len(data["time"]) // 2 :]], axis=0)
    np.testing.assert_allclose(curves(mean)[0].get_xdata(), middle, atol=1e-14)
    assert zonal.get_ylabel() == "$y$" and mean.get_xlabel() == "mean, $t$ = 0.5 to 1"
    field = draw(stores, "forced", "field")
    assert field.get_suptitle() == "sine_euler, TMK"
    FigureCanvasAgg(field).draw()
    boxes = [ax.title.get_window_extent() for ax in field.axes[:3]]
    assert not any(box.overlaps(field._suptitle.get_window_extent()) for box in boxes)
    assert all(ax.get_tightbbox().x0 >= 0 and ax.get_tightbbox().y0 >= 0 for ax in field.axes)
    (ax,) = draw(stores, "forced", "casimirs").axes  # they are not conserved: the axis holds the changes only
    changes = np.concatenate([line.get_ydata() for line in curves(ax)])
    assert ax.get_ylim()[0] > 0.1 * np.nanmin(changes)
    dots = [line for line in curves(ax) if line.get_marker() == "."]
    assert dots and all(line.get_linestyle() == "None" for line in dots)
    said = command("info", stores / "forced.zarr")
    assert "sine_euler on SU" in said and "Dissipative" not in said
    assert "casimirs  not conserved: the system has dissipation or forcing" in said


@pytest.mark.parametrize(
    "slope, forced, guides",
    [(-3.2, None, ["$k^{-3}$"]), (-1.5, None, []), (-3.2, (4, 5), ["$k^{-3}$"]), (-9.0, (4, 5), [])],
)
def test_power_laws_are_drawn_along_the_data(slope, forced, guides):
    """At 1.5 times the spectrum on average, over the shells where the law applies, and only if it is close."""
    ax, k = Figure().subplots(), np.arange(1, 33)
    spectrum = 0.3 * k**slope
    _guides(ax, k, spectrum, forced)
    assert [text.get_text() for text in ax.texts if "-3" in text.get_text()][:1] == guides
    if guides:
        low, high = np.rint(ax.lines[0].get_xdata()).astype(int)
        assert low == (6 if forced is None else 5) and high == (24 if forced is None else 20)
        ends = ax.lines[0].get_ydata() / spectrum[[low - 1, high - 1]]
        assert np.all((ends > 1.2) & (ends < 1.9))
