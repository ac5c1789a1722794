"""Orders of convergence: fits, tables, plots, and errors."""

import numpy as np
import pytest
from typer.testing import CliRunner

import coadjoint as cj
from coadjoint.command.cli import app

DTS = np.array([0.1, 0.05, 0.025, 0.0125])


def made_up(order, paths=400):
    """Errors dt^order times a random number a path and step."""
    noise = np.random.default_rng(0).lognormal(0.0, 0.5, (1, len(DTS), paths))
    return cj.Convergence(("made up",), DTS, DTS[None, :, None] ** order * noise, None, 1.0, "nothing")


@pytest.mark.parametrize("order", [0.5, 1.0, 1.5])
def test_fit_finds_the_order(order):
    study = made_up(order)
    assert abs(study.order[0] - order) < 4 * study.order_error[0]
    assert 0.01 < study.order_error[0] < 0.1


def test_standard_error_is_that_of_repetition():
    """The bootstrap's standard error against the spread over independent studies."""
    rng = np.random.default_rng(1)
    orders = []
    for _ in range(200):
        noise = rng.lognormal(0.0, 0.5, (1, len(DTS), 100))
        orders.append(cj.Convergence(("",), DTS, DTS[None, :, None] * noise, None, 1.0, "").order[0])
    assert 0.7 < made_up(1.0, 100).order_error[0] / np.std(orders) < 1.4


def test_plateau_is_dropped():
    errors = np.maximum(DTS**8, 3e-13)[None, :, None] * np.ones((1, 1, 3))
    assert abs(cj.Convergence(("",), DTS, errors, None, 1.0, "").order[0] - 8) < 1e-9


@pytest.fixture(scope="module")
def study():
    system, mu0 = cj.models.heavy_top(alpha=None)
    return cj.convergence(system, mu0, [cj.TMK(), cj.HeunMK()], DTS * 2, t1=1.0, observable=lambda mu: mu[0])


def test_without_noise(study):
    """Deterministic orders, on one path."""
    assert study.errors.shape == (2, 4, 1) and study.differences.shape == (2, 4, 1)
    np.testing.assert_allclose(study.order, 2.0, atol=0.1)
    np.testing.assert_allclose(study.weak_order, 2.0, atol=0.15)
    assert np.all(study.order_error < 1e-12)
    np.testing.assert_array_less(np.abs(study.differences), study.errors + 1e-15)


def test_table_and_plot(study, tmp_path):
    lines = study.table().splitlines()
    assert lines[0] == "| integrator | error | dt = 0.2 | dt = 0.1 | dt = 0.05 | dt = 0.025 | order |"
    assert len(lines) == 6 and lines[2].startswith("| TMK | strong |") and lines[3].startswith("| TMK | weak |")
    assert "reference: TMK, dt = 0.003125" in repr(study)
    for weak in (False, True):
        fig = study.plot(weak)
        assert fig.axes[0].get_legend().get_texts()[0].get_text().startswith("TMK: ")
        fig.savefig(tmp_path / "orders.png")
    assert (tmp_path / "orders.png").stat().st_size > 5000


def test_weak_errors_have_standard_errors_and_are_resolved_or_not():
    """Differences of mean dt² with a spread that hides it, or does not."""
    noise = np.random.default_rng(3).standard_normal((len(DTS), 400))
    noise -= noise.mean(axis=1, keepdims=True)
    for spread, last in ((1.0, "not resolved"), (1e-4, "2.00 ± ")):
        differences = (DTS**2)[None, :, None] + spread * noise[None]
        study = cj.Convergence(("made up",), DTS, made_up(1.0).errors, differences, 1.0, "nothing")
        expected = spread * noise.std(axis=1, ddof=1) / 20
        np.testing.assert_allclose(study.weak_standard_errors[0], expected, rtol=1e-12)
        row = study.table().splitlines()[3]
        assert row.startswith("| made up | weak | 1.00e-02 ± ") and last in row


def test_errors_are_those_of_runs():
    """Against `solve` on the same path, with steps put together from the reference's grid."""
    system, mu0 = cj.models.rigid_body(alpha=0.5 * np.eye(3)[:2])  # with one area
    plain, levy = cj.TMK(fallbacks=False), cj.TMKLevy(fallbacks=False)
    study = cj.convergence(system, mu0, {"a": plain}, [0.25, 0.125], 3, 9, t1=0.5, reference=(levy, 0.0625))
    path = cj.Brownian(9, grid=0.0625, depth=0)
    runs = [
        cj.solve(system, mu0, t1=0.5, dt=dt, driver=path, integrator=i).mu[-1]
        for dt, i in ((0.25, plain), (0.0625, levy))
    ]
    np.testing.assert_allclose(study.errors[0, 0, 0], np.linalg.norm(runs[0] - runs[1]), rtol=1e-9)


@pytest.mark.parametrize(
    "change, words",
    [
        ({"dts": [0.1]}, "at least two"),
        ({"dts": [0.1, 0.03]}, "divide"),
        ({"integrators": []}, "at least one"),
        ({"integrators": [cj.Adaptive(cj.TMK())]}, "adaptive"),
        ({"reference": (cj.TMK(), 0.04)}, "multiples"),
    ],
)
def test_what_is_refused(change, words):
    system, mu0 = cj.models.heavy_top()
    args = {"integrators": cj.TMK(), "dts": [0.1, 0.05], "reference": None} | change
    with pytest.raises(ValueError, match=words):
        cj.convergence(system, mu0, args["integrators"], args["dts"], t1=1.0, reference=args["reference"])


def test_command(tmp_path):
    figure = tmp_path / "orders.pdf"
    args = "--model rigid_body --integrator TMK --dt 0.2 --dt 0.1 --paths 4 --amplitude 0.5".split()
    result = CliRunner().invoke(app, ["convergence", *args, "--plot", str(figure)])
    assert result.exit_code == 0, result.output
    assert "TMK" in result.output and "±" in result.output and figure.stat().st_size > 1000
    for wrong in (["--model", "nothing"], ["--integrator", "Euler"]):
        result = CliRunner().invoke(app, ["convergence", *args, *wrong])
        assert result.exit_code == 2
