"""The recorded study of forecasts: its goals, and the table of the case study."""

import json
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "gallery" / "calibrated_flow.md"


def record():
    return json.loads((ROOT / "benchmarks" / "results" / "forecasts.json").read_text(encoding="utf-8"))


def test_forecasts_are_calibrated_and_better_than_the_baselines():
    found = record()
    leads = np.array(found["leads"])
    assert found["held_out_starts"] == 20 and found["members"] == 50
    ours, dressed = found["white"]["ensemble"], found["white"]["dressed"]
    assert all(0.90 <= c <= 0.99 for c in ours["coverage"])
    assert all(0.8 <= r <= 1.3 for r in ours["spread_ratio"])
    ratio = np.array(ours["crps_ratio"])
    assert np.all(ratio[leads <= 6] <= 0.80) and ratio[leads == 12] <= 0.72
    assert ratio[-1] < dressed["crps_ratio"][-1]
    for wrong in ("a third of the amplitude", "three times the amplitude"):
        assert np.all(ratio < np.array(found[wrong]["ensemble"]["crps_ratio"]))


ROWS = {
    "EOFs, white": ("white", "ensemble"),
    "EOFs, Ornstein–Uhlenbeck": ("coloured", "ensemble"),
    "isotropic, degrees 2 to 8": ("isotropic", "ensemble"),
    "EOFs, a third of the amplitude": ("a third of the amplitude", "ensemble"),
    "EOFs, three times the amplitude": ("three times the amplitude", "ensemble"),
    "dressed deterministic": ("white", "dressed"),
    "climatology": ("white", "climatology"),
}


def rows(found):
    """The rows of the table of the case study."""
    at = [found["leads"].index(lead) for lead in (3.0, 6.0, 12.0)]
    for name, (case, forecast) in ROWS.items():
        scores = found[case][forecast]
        cells = [
            ", ".join(f"{scores[score][i]:.2f}" for i in at) for score in ("crps_ratio", "spread_ratio", "coverage")
        ]
        yield f"| {name} | {' | '.join(cells)} |"


def test_the_table_of_the_case_study():
    text = PAGE.read_text(encoding="utf-8")
    for row in rows(record()):
        assert row in text, row
