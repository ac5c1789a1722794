"""The examples run, and do what they say."""

import runpy
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_fit_noise_and_inertia():
    """Both parameters come back to 5 %, from a start 30 % and 50 % off."""
    example = runpy.run_path(str(EXAMPLES / "fit_noise_and_inertia.py"))
    found = example["fit"]()
    for name, true in example["TRUE"].items():
        assert abs(found[name] - true) < 0.05 * true
