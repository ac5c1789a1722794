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
def test_splitting():
    """Energy errors that do not grow, a Casimir to round-off, the same path as TMK."""
    example = runpy.run_path(str(EXAMPLES / "splitting.py"))
    assert example["rigid_body"](1e4) < 1e-4 and example["potential"]() < 1e-3
    casimir, distance = example["maxwell_bloch"]()
    assert casimir < 5e-15 and 0 < distance < 1e-4
