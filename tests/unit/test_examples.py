"""The examples run, with the results that they describe."""

import runpy
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_gyrostat():
    """A rotor makes the middle axis stable; the momentum in space does not move, so that attitude and momentum fit."""
    example = runpy.run_path(str(EXAMPLES / "gyrostat.py"))
    assert example["tumbling"](False) > 1.5 and example["tumbling"](True) < 1e-5
    sol = example["noisy"]()
    space = np.einsum("tij,tj->ti", sol.attitude(), sol.mu)
    assert np.abs(sol.mu - sol.mu[0]).max() > 0.5 and np.abs(space - space[0]).max() < 1e-14


def test_spins_with_anisotropy():
    """Energy is nearly kept, and falls with friction; all lengths are conserved in both."""
    example = runpy.run_path(str(EXAMPLES / "spins_with_anisotropy.py"))
    free, relaxed = example["free"](), example["relaxed"]()
    assert np.abs(free.energy() - free.energy()[0]).max() < 5e-3
    assert np.all(np.diff(relaxed.energy()) < 1e-12) and relaxed.energy()[-1] < free.energy()[0] - 5
    assert max(free.casimir_errors().max(), relaxed.casimir_errors().max()) < 2e-15


def test_statistics_of_an_ensemble():
    """The mean is that of the method, to four standard errors, and not that of the process."""
    example = runpy.run_path(str(EXAMPLES / "statistics_of_an_ensemble.py"))
    reduced = example["run"]().reduced
    mean, error = (reduced["mean"][k][-1, 2] for k in ("mean", "standard_error"))
    method, process = example["expected"]()
    assert abs(mean - method) < 4 * error < abs(mean - process)
    np.testing.assert_allclose(reduced["covariance"]["covariance"][-1, 2, 2], reduced["mean"]["variance"][-1, 2])
    low, middle, high = reduced["spread"]["quantiles"][-1, :, 2]
    assert low < middle < high and abs(middle - mean) < 0.2


def test_sweep_from_a_file(tmp_path):
    """Without noise the energy is conserved; with noise it is not, and it varies less where the noise is weaker."""
    example = runpy.run_path(str(EXAMPLES / "sweep.py"))
    alpha, change = example["sweep"](tmp_path / "sweep.zarr")
    assert len(change) == len(alpha) == 6 and change[0] < 1e-14 < change[1] < change[-1]


def test_fit_noise_and_inertia():
    """Both parameters come back to 5 %, from a start 30 % and 50 % off."""
    example = runpy.run_path(str(EXAMPLES / "fit_noise_and_inertia.py"))
    found = example["fit"]()
    for name, true in example["TRUE"].items():
        assert abs(found[name] - true) < 0.05 * true


@pytest.mark.slow
def test_fluids(tmp_path):
    """All Casimirs to round-off, the wave's angle as it should be, noise that makes members diverge; and the
    figures."""
    example = runpy.run_path(str(EXAMPLES / "fluids.py"))
    found = {
        "turbulence": example["turbulence"](n=33, t1=4.0, members=2, amplitude=0.1),
        "rossby_haurwitz": example["rossby_haurwitz"](n=9, t1=2.0),
        "mhd_relaxation": example["mhd_relaxation"](n=17, t1=2.0),
    }
    assert all(values["orbit error"] < 1e-13 for values in found.values())
    assert found["turbulence"]["energy error"] < 1e-3 and 0.05 < found["turbulence"]["spread"] < 1.0
    assert found["rossby_haurwitz"]["angle error"] < 1e-3
    assert found["mhd_relaxation"]["energy error"] < 1e-2 and found["mhd_relaxation"]["given to motion"] > 0.01
    for name, values in found.items():
        example["DRAW"][name](values).savefig(tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").stat().st_size > 50_000


@pytest.mark.slow
def test_forced_turbulence(tmp_path):
    """The energy balance: the supply is the given rate, up to what drag and hyperviscosity take."""
    example = runpy.run_path(str(EXAMPLES / "forced_turbulence.py"))
    found = example["turbulence"](n=33, t1=20.0, dt=0.05, rotation=5.0, drag=0.2, rate=0.01)
    numbers = example["numbers"](found)
    for name in ("rotating", "still"):
        assert 0.5 < numbers[f"{name}: share of drag in the dissipation"] < 1.5, numbers
        start = found[name]["energy"][:6], found[name]["t"][:6]  # drag has not acted yet
        assert 0.4 < np.polyfit(start[1], start[0], 1)[0] / 0.01 < 1.6
    assert all(np.isfinite(x) for x in numbers.values())
    example["draw"](found).savefig(tmp_path / "forced.png")
    assert (tmp_path / "forced.png").stat().st_size > 50_000


@pytest.mark.slow
def test_splitting():
    """Energy errors that do not grow, a Casimir to round-off, the same path as TMK."""
    example = runpy.run_path(str(EXAMPLES / "splitting.py"))
    assert example["rigid_body"](1e4) < 1e-4 and example["potential"]() < 1e-3
    casimir, distance = example["maxwell_bloch"]()
    assert casimir < 5e-15 and 0 < distance < 1e-4
