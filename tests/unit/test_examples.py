"""The examples run, and do what they say."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_fit_noise_and_inertia():
    """Both parameters come back to 5 %, from a start 30 % and 50 % off."""
    example = runpy.run_path(str(EXAMPLES / "fit_noise_and_inertia.py"))
    found = example["fit"]()
    for name, true in example["TRUE"].items():
        assert abs(found[name] - true) < 0.05 * true


@pytest.mark.slow
def test_fluids(tmp_path):
    """All Casimirs to round-off, the wave's angle as it should be, noise that makes members part; and the figure."""
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
    example["figure"](found, str(tmp_path / "fluids.png"))
    assert (tmp_path / "fluids.png").stat().st_size > 50_000


@pytest.mark.slow
def test_splitting():
    """Energy errors that do not grow, a Casimir to round-off, the same path as TMK."""
    example = runpy.run_path(str(EXAMPLES / "splitting.py"))
    assert example["rigid_body"](1e4) < 1e-4 and example["potential"]() < 1e-3
    casimir, distance = example["maxwell_bloch"]()
    assert casimir < 5e-15 and 0 < distance < 1e-4
